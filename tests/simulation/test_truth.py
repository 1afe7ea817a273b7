"""Goal: an all-knowing observer judges a run as a count by hand does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconverge.limit import FIXED_WINDOW, SLIDING_LOG, SLIDING_SLICES, SLIDING_WINDOW, TOKEN_BUCKET, Limit
from reconverge.policies import AVAILABLE, BALANCED, NAIVE, STRICT
from reconverge.simulation.truth import Bounds, TrueCharge, excess_by_place, ideal_admissions
from tests.support.judged import at, charge, request, ten

FIXED, SLIDING = ten(), ten(SLIDING_WINDOW)
LOG, SLICES = ten(SLIDING_LOG), ten(SLIDING_SLICES)
"""The slices are of a second each."""
BUCKET = ten(TOKEN_BUCKET, burst=3)
"""It drains by one in a second."""


def excess(limit: Limit, *charges: TrueCharge) -> dict[tuple[str, int], int]:
    """By how much the limit was exceeded, settling left out."""
    return excess_by_place(limit, charges, settling=False)


def test_a_window_that_is_full_is_not_exceeded_and_one_more_exceeds_it_by_one() -> None:
    """The quota itself is allowed."""
    assert {} == excess(FIXED, charge(10, at(0)))
    assert {("ada", 0): 1} == excess(FIXED, charge(10, at(0)), charge(1, at(9.9)))


def test_a_fixed_window_forgets_at_its_end_and_not_before() -> None:
    """The last nanosecond of a window and the first of the next are ten each."""
    last, first = at(10, late_ns=-1), at(10)

    assert {} == excess(FIXED, charge(10, last), charge(10, first))
    assert {("ada", 0): 10} == excess(FIXED, charge(10, last), charge(10, last))


def test_a_charge_counts_in_the_window_that_its_node_put_it_in() -> None:
    """The node keeps the rule of its own windows; whose clock was wrong is another matter."""
    assert {("ada", 0): 1} == excess(FIXED, charge(10, at(9)), charge(1, at(10), epoch=0))


def test_of_the_last_sliding_window_the_part_that_is_still_covered_counts() -> None:
    """After a tenth of the window nine tenths of the last one are left, and a moment later less than that."""
    assert {("ada", 1): 1} == excess(SLIDING, charge(10, at(0)), charge(2, at(11)))
    assert {} == excess(SLIDING, charge(10, at(0)), charge(2, at(11, late_ns=1)))
    assert {} == excess(SLIDING, charge(10, at(0)), charge(1, at(11)))


def test_of_windows_before_the_last_nothing_is_covered() -> None:
    """A sliding window reaches back one window."""
    assert {} == excess(SLIDING, charge(10, at(0)), charge(10, at(20)))


def test_a_sliding_window_counts_all_of_the_last_one_whenever_it_was_charged() -> None:
    """A charge that a node puts into the last window after that has ended counts as well."""
    late = charge(1, at(10.5), epoch=0)

    assert {("ada", 1): 1} == excess(SLIDING, charge(9, at(0)), charge(2, at(11)), late)


def test_of_a_log_all_counts_that_is_less_than_a_window_old() -> None:
    """To the nanosecond, and in every window at its worst moment."""
    assert {} == excess(LOG, charge(10, at(3)), charge(10, at(13)))
    assert {("ada", 1): 10} == excess(LOG, charge(10, at(3)), charge(10, at(13, late_ns=-1)))
    assert {("ada", 0): 2} == excess(LOG, charge(5, at(3)), charge(7, at(5)), charge(3, at(14)))


def test_a_log_is_judged_by_when_something_happened_whatever_window_its_node_thought_it_was() -> None:
    """It knows no windows; they are only for the record."""
    assert {("ada", 0): 1} == excess(LOG, charge(10, at(3), epoch=-7), charge(1, at(4), epoch=9))


def test_of_slices_all_counts_that_makes_up_a_window_with_the_present_one() -> None:
    """Ten slices with the one that a charge is in; what came at the end of a slice goes with its beginning."""
    assert {} == excess(SLICES, charge(10, at(3.9)), charge(10, at(13)))
    assert {("ada", 1): 10} == excess(SLICES, charge(10, at(3.9)), charge(10, at(13, late_ns=-1)))
    assert {("ada", 1): 10} == excess(SLICES, charge(10, at(3)), charge(10, at(12.9)))


def test_a_charge_counts_in_the_slice_that_its_node_put_it_in() -> None:
    """Whenever that was, and also for those that were charged to that slice before."""
    late = charge(1, at(13.1))._replace(slice_number=12)

    assert {("ada", 1): 1} == excess(SLICES, charge(10, at(3.9)), late)


def test_a_single_slice_is_judged_as_a_fixed_window() -> None:
    """It is forgotten at its end."""
    limit = Limit(10, 10, algorithm=SLIDING_SLICES, slices=1)

    assert {} == excess(limit, charge(10, at(10, late_ns=-1)), charge(10, at(10)))
    assert {("ada", 0): 1} == excess(limit, charge(10, at(0)), charge(1, at(9)))


def test_a_bucket_drains_steadily() -> None:
    """Full at the start, a second later there is room for one, and for two a second after that."""
    full = charge(3, at(0))

    assert {} == excess(BUCKET, full, charge(1, at(1)))
    assert {("ada", 0): 1} == excess(BUCKET, full, charge(2, at(1)))
    assert {} == excess(BUCKET, full, charge(2, at(1, late_ns=1)))
    assert {} == excess(BUCKET, full, charge(2, at(2)))


def test_a_bucket_never_drains_below_empty() -> None:
    """An hour of quiet is worth no more than the capacity."""
    assert {} == excess(BUCKET, charge(1, at(0)), charge(3, at(3600)))
    assert {("ada", 360): 1} == excess(BUCKET, charge(1, at(0)), charge(4, at(3600)))


def test_what_a_bucket_is_over_stays_until_it_has_drained() -> None:
    """Its windows are only for the record: the fill goes on from one to the next."""
    found = excess(BUCKET, charge(5, at(8)), charge(1, at(9)), charge(1, at(10)))

    assert {("ada", 0): 2, ("ada", 1): 2} == found


def test_the_worst_moment_of_a_window_is_what_counts() -> None:
    """Not the last, nor the sum."""
    assert {("ada", 0): 2} == excess(BUCKET, charge(5, at(0)), charge(1, at(1.5)))


def test_every_key_has_a_limit_of_its_own() -> None:
    """Ten of one and eleven of another exceed by one."""
    assert {("bob", 0): 1} == excess(FIXED, charge(10, at(0)), charge(11, at(0), key="bob"))


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
