"""Goal: what the compiled kernel writes and reads as rows is what Python writes and reads field by field.

Method: batches of a node about limits of every kind, sent and heard both ways.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge.clock import ManualClock
from reconverge.hub.report import ANSWER_ROWS, AnswerRows, Batch, CellAnswer, CellReport, Rows
from reconverge.kernel import COMPILED
from reconverge.limit import ALGORITHMS, SMOOTH_WARMING_UP, Limit
from reconverge.policies import AVAILABLE, BALANCED
from reconverge.simulation.explore.node import START_S
from reconverge_sync.codec import encode_batch
from reconverge_sync.memory import MemoryHub
from reconverge_sync.redis.hub import _keys
from tests.support.kernel.talker import Talker

compiled_only = pytest.mark.skipif(not COMPILED, reason="in Python reports are tuples, and there is nothing to compare")
ASKED = st.lists(st.tuples(st.sampled_from(["ada", "żaba", "猫", "x" * 100]), st.integers(1, 10**11)), max_size=20)
SCALE = 10**11


def batch_of(algorithm: str, asked: list[tuple[str, int]], scale: int) -> tuple[Talker, Batch]:
    clock = ManualClock(START_S)
    policy = AVAILABLE if algorithm == "sliding-window" else BALANCED
    quota = 100_000 if algorithm == "sliding-log" else 10**12 // 1000 if scale > 1 else 1000
    warmup = 10 if algorithm == SMOOTH_WARMING_UP else None
    node = Talker(clock, Limit(quota, 60, algorithm=algorithm, warmup=warmup), policy)
    for key, cost in asked:
        node.table.allow(key, min(max(1, cost * scale // SCALE), quota))
    clock.advance(0.1)
    return node, node.says()


@compiled_only
@pytest.mark.parametrize("scale", [1, SCALE // 1000], ids=["narrow", "wide"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(asked=ASKED)
def test_a_batch_travels_alike_whoever_writes_it(algorithm: str, scale: int, asked: list[tuple[str, int]]) -> None:
    """To the byte, with the names of its keys."""
    _, batch = batch_of(algorithm, asked, scale)
    plain = batch._replace(cells=tuple(batch.cells))

    assert isinstance(batch.cells, Rows)
    assert not isinstance(plain.cells, Rows)
    assert encode_batch(plain, "new", certainly_new=True) == encode_batch(batch, "new", certainly_new=True)
    assert _keys("shop", plain) == _keys("shop", batch)


@pytest.mark.parametrize("wide", [False, True], ids=["narrow", "wide"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(asked=ASKED)
def test_an_answer_is_heard_alike_however_it_came(algorithm: str, wide: bool, asked: list[tuple[str, int]]) -> None:
    """It came as a tuple or as rows: afterwards both nodes report the same."""
    said: list[tuple[CellReport, ...]] = []
    for as_rows in (False, True):
        node, batch = batch_of(algorithm, asked, 1)
        answer = MemoryHub(clock=node.clock).merge(batch)
        if as_rows:
            wide = wide or any(abs(amount) >= 2**31 for cell in answer.cells for amount in cell[1:-1])
            raw = b"".join(ANSWER_ROWS[wide].pack(*cell) for cell in answer.cells)
            answer = answer._replace(cells=AnswerRows(raw, wide=wide))
        now_ns = node.clock.monotonic_ns()
        node.syncer.merged(batch, answer, sent_ns=now_ns, now_ns=now_ns)
        for key, _ in asked:
            node.table.allow(key)
        node.clock.advance(1.0)
        again = node.syncer.take(node.clock.monotonic_ns())
        said.append(() if again is None else tuple(again.cells))
        assert len(said[-1]) == len({key for key, _ in asked})

    assert said[0] == said[1]


@given(
    cells=st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=16, max_size=16), max_size=5), wide=st.booleans()
)
def test_rows_are_a_sequence_of_answers(cells: list[list[int]], wide: bool) -> None:
    """Each as it went in, by its place and in a row."""
    answers = tuple(CellAnswer(*cell) for cell in cells)
    rows = AnswerRows(b"".join(ANSWER_ROWS[wide].pack(*cell) for cell in cells), wide=wide)

    assert answers == rows
    assert (len(answers), list(answers), answers[1:]) == (len(rows), list(rows), rows[1:])
    assert [rows[place] for place in range(len(rows))] == list(answers)
    assert repr(answers) == repr(rows)
