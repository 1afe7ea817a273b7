"""Goal: an all-knowing observer judges a run as a count by hand does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconverge.limit import FIXED_WINDOW, SLIDING_LOG, SLIDING_SLICES, SLIDING_WINDOW, TOKEN_BUCKET, Limit
from reconverge.policies import AVAILABLE, BALANCED, NAIVE, STRICT
from reconverge.simulation.truth import Bounds, TrueCharge, excess_by_place, ideal_admissions
from tests.support.judged import at, charge, request, ten

FIXED, SLIDING = ten(), ten(SLIDING_WINDOW)
ONE_SLICE = Limit(10, 10, algorithm=SLIDING_SLICES, slices=1)
LOG, SLICES = ten(SLIDING_LOG), ten(SLIDING_SLICES)
"""The slices are of a second each."""
BUCKET = ten(TOKEN_BUCKET, burst=3)
"""It drains by one in a second."""


def excess(limit: Limit, *charges: TrueCharge) -> dict[tuple[str, int], int]:
    """By how much the limit was exceeded, settling left out."""
    return excess_by_place(limit, charges, settling=False)


LAST_NS, FIRST_NS = at(10, late_ns=-1), at(10)
"""The last nanosecond of a window, and the first of the next."""
EXCESSES: dict[str, tuple[Limit, list[TrueCharge], dict[tuple[str, int], int]]] = {
    "the quota itself is allowed": (FIXED, [charge(10, at(0))], {}),
    "one more exceeds it by one": (FIXED, [charge(10, at(0)), charge(1, at(9.9))], {("ada", 0): 1}),
    "a fixed window forgets at its end": (FIXED, [charge(10, LAST_NS), charge(10, FIRST_NS)], {}),
    "and not before": (FIXED, [charge(10, LAST_NS), charge(10, LAST_NS)], {("ada", 0): 10}),
    # The node keeps the rule of its own windows; whose clock was wrong is another matter.
    "a charge counts in the window of its node": (
        FIXED,
        [charge(10, at(9)), charge(1, at(10), epoch=0)],
        {("ada", 0): 1},
    ),
    "every key has a limit of its own": (FIXED, [charge(10, at(0)), charge(11, at(0), key="bob")], {("bob", 0): 1}),
    # After a tenth of the window nine tenths of the last one are left, and a moment later less than that.
    "of the last sliding window what is covered counts": (
        SLIDING,
        [charge(10, at(0)), charge(2, at(11))],
        {("ada", 1): 1},
    ),
    "a moment later less is covered": (SLIDING, [charge(10, at(0)), charge(2, at(11, late_ns=1))], {}),
    "and there is room for one": (SLIDING, [charge(10, at(0)), charge(1, at(11))], {}),
    "a sliding window reaches back one window": (SLIDING, [charge(10, at(0)), charge(10, at(20))], {}),
    "what is put into the last window late counts": (
        SLIDING,
        [charge(9, at(0)), charge(2, at(11)), charge(1, at(10.5), epoch=0)],
        {("ada", 1): 1},
    ),
    "of a log nothing counts that is a window old": (LOG, [charge(10, at(3)), charge(10, at(13))], {}),
    "of a log all younger counts": (LOG, [charge(10, at(3)), charge(10, at(13, late_ns=-1))], {("ada", 1): 10}),
    "in its worst moment": (LOG, [charge(5, at(3)), charge(7, at(5)), charge(3, at(14))], {("ada", 0): 2}),
    "a log knows no windows": (LOG, [charge(10, at(3), epoch=-7), charge(1, at(4), epoch=9)], {("ada", 0): 1}),
    # Ten slices with the one that a charge is in; what came at the end of a slice goes with its beginning.
    "of slices those count that make up a window": (SLICES, [charge(10, at(3.9)), charge(10, at(13))], {}),
    "also at the end of the last": (SLICES, [charge(10, at(3.9)), charge(10, at(13, late_ns=-1))], {("ada", 1): 10}),
    "also from the beginning of the first": (SLICES, [charge(10, at(3)), charge(10, at(12.9))], {("ada", 1): 10}),
    "a charge counts in the slice of its node": (
        SLICES,
        [charge(10, at(3.9)), charge(1, at(13.1))._replace(slice_number=12)],
        {("ada", 1): 1},
    ),
    "a single slice is forgotten at its end": (ONE_SLICE, [charge(10, LAST_NS), charge(10, FIRST_NS)], {}),
    "and counts until then": (ONE_SLICE, [charge(10, at(0)), charge(1, at(9))], {("ada", 0): 1}),
    "a bucket has room for one a second later": (BUCKET, [charge(3, at(0)), charge(1, at(1))], {}),
    "and not for two": (BUCKET, [charge(3, at(0)), charge(2, at(1))], {("ada", 0): 1}),
    "but a moment after that": (BUCKET, [charge(3, at(0)), charge(2, at(1, late_ns=1))], {}),
    "an hour of quiet is worth the capacity": (BUCKET, [charge(1, at(0)), charge(3, at(3600))], {}),
    "and no more": (BUCKET, [charge(1, at(0)), charge(4, at(3600))], {("ada", 360): 1}),
    # Its windows are only for the record: the fill goes on from one to the next.
    "what a bucket is over stays until it has drained": (
        BUCKET,
        [charge(5, at(8)), charge(1, at(9)), charge(1, at(10))],
        {("ada", 0): 2, ("ada", 1): 2},
    ),
    "the worst moment counts, and not the last": (BUCKET, [charge(5, at(0)), charge(1, at(1.5))], {("ada", 0): 2}),
}


@pytest.mark.parametrize("case", EXCESSES)
def test_a_run_exceeds_its_limit_by_what_a_count_by_hand_finds(case: str) -> None:
    """By each algorithm, on both sides of each edge."""
    limit, charges, expected = EXCESSES[case]

    assert expected == excess(limit, *charges)


def test_the_order_in_which_charges_are_told_does_not_matter() -> None:
    """Nodes tell their stories one after the other."""
    told = [charge(10, at(0)), charge(2, at(11)), charge(3, at(1), key="bob")]

    assert excess(SLIDING, *told) == excess(SLIDING, *reversed(told))
    assert excess(BUCKET, *told) == excess(BUCKET, *reversed(told))


def test_settling_counts_only_if_asked_for() -> None:
    """Debt from settling is excluded from the bounds, but it was used."""
    charges = [charge(8, at(0)), charge(5, at(1), settling=True)]

    assert {} == excess_by_place(FIXED, charges, settling=False)
    assert {("ada", 0): 3} == excess_by_place(FIXED, charges, settling=True)


def test_the_bound_of_a_known_key_is_the_policys_own() -> None:
    """For ten on four nodes: nothing, a tenth and one request for each, or the limit for each node but one."""
    requests = [request(1, at(0))]

    assert 0 == Bounds(FIXED, STRICT, 4, requests).of(("ada", 0))
    assert 10 * 0.1 + 4 == Bounds(FIXED, BALANCED, 4, requests).of(("ada", 0))
    assert 30 == Bounds(FIXED, AVAILABLE, 4, requests).of(("ada", 0))
    assert 30 == Bounds(FIXED, NAIVE, 4, requests).of(("ada", 0))


def test_the_largest_cost_that_was_admitted_is_what_a_node_may_be_over_by() -> None:
    """One that was refused is of no account."""
    requests = [request(1, at(0)), request(3, at(1)), request(7, at(2), allowed=False)]

    assert 1 + 4 * 3 == Bounds(FIXED, BALANCED, 4, requests).of(None)


def test_each_node_that_admits_before_it_has_heard_of_a_key_raises_the_bound_by_its_allowance() -> None:
    """Once, however often it did; what it refused, and what it knew, does not."""
    requests = [
        *(request(1, at(30), node=0, known=False) for _ in range(3)),
        request(1, at(31), node=1, known=False),
        request(1, at(31), node=2, known=False, allowed=False),
        request(1, at(32), node=3, known=True),
    ]

    assert 5 + 2 * 10 == Bounds(FIXED, BALANCED, 4, requests).of(("ada", 3))
    assert 5 + 2 * 2.5 == Bounds(FIXED, replace(BALANCED, cold_allowance=0.25), 4, requests).of(("ada", 3))
    assert 2 == Bounds(FIXED, BALANCED, 4, requests).cold(("ada", 3))
    assert 5 == Bounds(FIXED, BALANCED, 4, requests).of(("bob", 3))
    assert 5 == Bounds(FIXED, BALANCED, 4, requests).of(None)


@pytest.mark.parametrize(
    ("limit", "last"),
    [
        (ten(FIXED_WINDOW), 3),
        (ten(SLIDING_WINDOW), 4),
        (ten(TOKEN_BUCKET), 3 + 1 + 5),  # five times the capacity drain within five windows
        (ten(TOKEN_BUCKET, burst=20), 3 + 1 + 10),
    ],
    ids=str,
)
def test_what_was_admitted_of_a_new_key_raises_the_bound_for_as_long_as_it_counts(limit: Limit, last: int) -> None:
    """A fixed window has forgotten it in the next, a sliding one in the one after, a bucket when it has drained."""
    bounds = Bounds(limit, BALANCED, 4, [request(1, at(30), known=False)])

    assert [0, *[1] * (last - 2), 0] == [bounds.cold(("ada", epoch)) for epoch in range(2, last + 2)]


def test_a_bound_is_broken_by_what_exceeds_it_and_not_by_what_reaches_it() -> None:
    """Window by window: the second may admit more, as a node met the key there for the first time."""
    bounds = Bounds(FIXED, BALANCED, 4, [request(1, at(10), known=False)])

    assert {} == bounds.broken({("ada", 0): 5, ("ada", 1): 15})
    assert {("ada", 0): 6, ("ada", 1): 16} == bounds.broken({("ada", 0): 6, ("ada", 1): 16})
    assert {("ada", 2): 6} == bounds.broken({("ada", 1): 6, ("ada", 2): 6})


def test_who_declares_nothing_cannot_break_it() -> None:
    """A limiter that only compares totals is there to be compared with."""
    assert {} == Bounds(FIXED, NAIVE, 4, []).broken({("ada", 0): 1000})
    assert {("ada", 0): 1000} == Bounds(FIXED, AVAILABLE, 4, []).broken({("ada", 0): 1000})


def ideal(limit: Limit, *asked: tuple[int, int]) -> tuple[dict[tuple[str, int], int], int]:
    """Returns its admissions of costs at moments, though the nodes have refused everything."""
    return ideal_admissions(limit, [request(cost, moment, allowed=False) for cost, moment in asked], settle_after_ns=0)


def test_a_central_limiter_admits_exactly_the_quota_of_every_window() -> None:
    """Up to the last nanosecond of one and from the first of the next on."""
    asked = [(1, at(9))] * 12 + [(1, at(10, late_ns=-1))] + [(1, at(10))] * 3

    assert ({("ada", 0): 10, ("ada", 1): 3}, 13) == ideal(FIXED, *asked)


def test_a_central_limiter_passes_over_what_does_not_fit_and_admits_what_does() -> None:
    """Six, not six more, but four; and eleven are a mistake that nobody could admit."""
    assert ({("ada", 0): 10}, 2) == ideal(FIXED, (6, at(0)), (6, at(1)), (11, at(1)), (4, at(2)))


def test_a_central_limiter_counts_by_the_same_algorithm() -> None:
    """A tenth of a window after ten, a sliding window has room for one; a bucket has drained by one."""
    assert ({("ada", 0): 10, ("ada", 1): 1}, 2) == ideal(SLIDING, (10, at(5)), (1, at(11)), (1, at(11)))
    assert ({("ada", 0): 10}, 1) == ideal(SLIDING, (10, at(5)), (1, at(11, late_ns=-1)))
    assert ({("ada", 0): 4}, 2) == ideal(BUCKET, (3, at(0)), (1, at(1, late_ns=-1)), (1, at(1)))


def test_a_central_limiter_has_room_for_every_key() -> None:
    """None of them shares a count with another."""
    requests = [request(10, at(1), key=f"key-{number}") for number in range(50)]

    admitted, count = ideal_admissions(FIXED, requests, settle_after_ns=0)

    assert 50 == count
    assert {10} == set(admitted.values())


def test_a_central_limiter_charges_what_requests_turn_out_to_cost_when_they_are_over() -> None:
    """Two seconds later, and not a moment before."""
    dear = request(1, at(0), settle=9)
    before, then = request(1, at(2, late_ns=-1)), request(1, at(2))

    assert ({("ada", 0): 2}, 2) == ideal_admissions(FIXED, [dear, before], settle_after_ns=at(2))
    assert ({("ada", 0): 1}, 1) == ideal_admissions(FIXED, [dear, then], settle_after_ns=at(2))


def test_what_was_refused_centrally_does_not_turn_out_to_cost_anything() -> None:
    """Only what was admitted is settled."""
    requests = [request(9, at(0)), request(5, at(1), settle=5), request(1, at(9))]

    assert ({("ada", 0): 10}, 2) == ideal_admissions(FIXED, requests, settle_after_ns=at(1))
