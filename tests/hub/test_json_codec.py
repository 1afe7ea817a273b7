"""Goal: what travels as plain values comes back as it was, and nothing else comes in.

Method: batches of many kinds to JSON and back; then one value after the other replaced by what does not belong there.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge.errors import HubUnavailable
from reconverge.hub.json_codec import (
    Malformed,
    plain_answer,
    plain_batch,
    plain_totals,
    read_answer,
    read_batch,
    read_totals,
)
from reconverge.hub.report import (
    WHOLE_MAX,
    Answer,
    Batch,
    CellAnswer,
    CellReport,
    LimitReport,
    Recall,
    Status,
    Totals,
)
from reconverge.limit import ALGORITHMS, QUOTA_MAX
from reconverge_sync.merge.bounds import INTERVAL_MAX_US
from reconverge_sync.merge.rule import LedgerShard

LIMIT = LimitReport("login", "sliding-window", 60_000_000, 100, 100, 100, 7, 2)
CELL = CellReport(0, "ada", 29_000_000, 7, 0, 10, 0, 3, 5000, 0, 5, 5000, 7, 0)
BATCH = Batch("node.0", "node", 0, 3, "data", 100_000, 30_000_000, False, (LIMIT,), (CELL, CELL._replace(key="\0{}\n")))
HUB_US = 1_750_000_000_000_000

amounts = st.integers(0, WHOLE_MAX)
anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


def places(value: object) -> list[tuple[int, ...]]:
    """Where in nested lists there is anything, the lists themselves included."""
    found: list[tuple[int, ...]] = [()]
    if isinstance(value, list):
        found += [(index, *rest) for index, each in enumerate(value) for rest in places(each)]
    return found


def replaced(value: Any, place: tuple[int, ...], by: object) -> Any:
    """The same nested lists, but for what is at that place."""
    if not place:
        return by
    return [replaced(each, place[1:], by) if index == place[0] else each for index, each in enumerate(value)]


def test_a_batch_comes_back_as_it_was() -> None:
    """Through JSON, with keys that are hard to write."""
    assert read_batch(json.loads(json.dumps(plain_batch(BATCH)))) == BATCH


@pytest.mark.parametrize("recalls", [None, (), (Recall("login", "ada", 0), Recall("api", "b\u00e4r", 2**40))])
def test_an_answer_comes_back_as_it_was(recalls: tuple[Recall, ...] | None) -> None:
    """With numbers of either sign, as windows and sums may have."""
    cell = CellAnswer(*range(-3, len(CellAnswer._fields) - 3))
    answer = Answer(HUB_US, "data", Status.MERGED, (cell,), recalls)

    assert read_answer(json.loads(json.dumps(plain_answer(answer)))) == answer


def test_totals_come_back_as_they_were() -> None:
    """By limit."""
    totals = {"login": Totals(7, 2), "search": Totals(0, 0)}

    assert read_totals(json.loads(json.dumps(plain_totals(totals)))) == totals


@given(amount=amounts, epoch=st.integers(-WHOLE_MAX, WHOLE_MAX), algorithm=st.sampled_from(ALGORITHMS))
def test_whatever_is_read_can_be_merged(amount: int, epoch: int, algorithm: str) -> None:
    """At the ends of the ranges, too: the rule does not stop in the middle of a batch."""
    quota = min(max(1, amount), QUOTA_MAX)
    limit = LIMIT._replace(algorithm=algorithm, charged=amount, quota=quota, capacity=quota)
    cell = CellReport(0, "ada", epoch, epoch, *[amount] * 10)
    batch = BATCH._replace(limits=(limit,), cells=(cell,), interval_us=min(max(1, amount), INTERVAL_MAX_US))

    answer = LedgerShard().merge(read_batch(plain_batch(batch)), hub_us=HUB_US, candidate="data")

    assert Status.MERGED == answer.status
    assert read_answer(plain_answer(answer)) == answer


@given(place=st.sampled_from(places(plain_batch(BATCH))), by=anything)
def test_what_does_not_belong_there_is_refused_before_it_is_merged(place: tuple[int, ...], by: object) -> None:
    """A wrong value is malformed at any place, or more than an agent can declare, or the rule can take it."""
    try:
        batch = read_batch(replaced(plain_batch(BATCH), place, by))
    except Malformed:
        return
    shard, answered = LedgerShard(), None
    with suppress(HubUnavailable):
        answered = shard.merge(batch, hub_us=HUB_US, candidate="data")

    if answered is None:
        assert {} == shard.nodes
    else:
        assert len(batch.cells) == len(answered.cells)


@pytest.mark.parametrize(
    ("place", "by", "told"),
    [
        ((0,), 2, "schema 2 is not"),
        ((3,), 1, r"batch\.shard cannot be 1"),
        ((4,), True, r"batch\.sequence cannot be true or false"),
        ((8,), 1, "leaving cannot be 1"),
        ((9, 0, 1), "guess", "algorithm cannot be 'guess'"),
        ((9, 0, 2), 0, r"LimitReport\.window_us cannot be 0"),
        ((10, 0, 0), 1, r"CellReport\.limit cannot be 1"),
        ((10, 0, 1), "\ud800", r"CellReport\.key cannot be '\\ud800'"),
        ((10, 0, 5), -1, r"CellReport\.allowance cannot be -1"),
        ((10, 0, 5), 1.0, r"CellReport\.allowance cannot be a float"),
        ((10, 0, 5), 10**400, r"CellReport\.allowance cannot be so large a number"),
        ((10,), [[]] * 257, "cells cannot be a list"),
    ],
)
def test_what_is_malformed_is_named(place: tuple[int, ...], by: object, told: str) -> None:
    """With the field, and what it cannot be."""
    with pytest.raises(Malformed, match=told):
        read_batch(replaced(plain_batch(BATCH), place, by))


@given(place=st.sampled_from(places([3, 1, "data", 0, [list(range(16))]])), by=anything)
def test_an_answer_that_is_none_is_malformed_and_nothing_else(place: tuple[int, ...], by: object) -> None:
    """A hub has one error to turn into `HubUnavailable`."""
    try:
        answer = read_answer(replaced([3, 1, "data", 0, [list(range(16))]], place, by))
    except Malformed:
        return

    assert all(type(number) is int for cell in answer.cells for number in cell)
