"""Goal: a hub that has lost its data is told everything again, and trusted only when it has heard it.

Method: one node and its hub, which forgets.
"""

from __future__ import annotations

import pytest

from reconverge.clock import SECOND_NS
from reconverge.hub.report import Totals
from reconverge.limit import Limit
from reconverge.simulation.explore.node import LEASE_NS
from tests.support.kernel.pair import WINDOWS, Pair
from tests.support.kernel.talker import reported


def test_a_hub_that_has_lost_its_data_is_told_everything_again() -> None:
    """Every key, with all its counts and allowances, whatever had been confirmed before."""
    pair = Pair()
    pair.node.admitted_of(1, key="bob")
    pair.all_speak(2)
    pair.hub.lose_data()
    pair.passes(1.0)
    pair.node.exchanges_with(pair.hub)

    told = pair.node.says()
    pair.node.reaches(pair.hub)
    pair.node.hears()

    assert {"ada", "bob"} == {cell.key for cell in told.cells}
    assert (10, True) == (reported(told).current, 10 <= reported(told).allowance == pair.node.allowance())


@pytest.mark.parametrize("lapsed", [False, True])
def test_lifetime_numbers_are_told_again_too(lapsed: bool) -> None:
    """A hub without memory has nothing to add them to, though all keys that they came from have long been forgotten."""
    pair = Pair(Limit(100, 1, algorithm="fixed-window"))
    pair.node.speaks_when_due(pair.hub, 5.0)
    forgotten = dict(pair.node.table.cells)
    pair.hub.lose_data()
    if lapsed:
        pair.lease_ends()

    pair.node.reports_everything_to(pair.hub)

    assert ({}, Totals(10, 0)) == (forgotten, pair.totals())


def test_an_answer_of_a_hub_that_has_forgotten_does_not_renew_the_lease() -> None:
    """It is worth nothing until every allowance has been reported: whoever is asked meanwhile could be granted them."""
    pair = Pair()
    pair.hub.lose_data()
    pair.passes(1.0)
    before_ns = pair.node.kernel.shards[0].lease_until_ns

    pair.node.exchanges_with(pair.hub)
    unconfirmed_ns = pair.node.kernel.shards[0].lease_until_ns
    pair.node.exchanges_with(pair.hub)

    assert (before_ns, LEASE_NS // 10**9) == (
        unconfirmed_ns,
        round((pair.node.kernel.shards[0].lease_until_ns - pair.clock.monotonic_ns()) / SECOND_NS),
    )


def test_what_is_left_to_confirm_takes_as_many_batches_as_it_takes() -> None:
    """The lease is renewed with the last of them, not with the first."""
    pair = Pair()
    for number in range(300):
        pair.node.admitted_of(1, cost=0, key=f"key {number}")
    pair.all_speak(5)
    pair.hub.lose_data()
    pair.passes(0.5)
    leases_ns: list[int] = []

    for _ in range(4):
        pair.node.exchanges_with(pair.hub)
        leases_ns.append(pair.node.kernel.shards[0].lease_until_ns)

    assert leases_ns[0] == leases_ns[1] < leases_ns[2]


def test_rebirths_are_counted() -> None:
    """So that one can see that the hub has lost its data."""
    pair = Pair()
    for _ in range(2):
        pair.hub.lose_data()
        pair.passes(1.0)
        pair.node.exchanges_with(pair.hub, rounds=3)

    assert 2 == pair.node.syncer.stats(0).rebirths


@pytest.mark.parametrize("limit", WINDOWS, ids=str)
def test_when_lease_and_data_are_gone_everything_is_said_again_under_the_new_name(limit: Limit) -> None:
    """Nobody else knows what was confirmed; nothing is lost, and the allowances are void."""
    pair = Pair(limit)
    pair.node.admitted_of(7)
    pair.hub.lose_data()
    pair.lease_ends()
    pair.node.exchanges_with(pair.hub)

    report = reported(pair.node.says())
    pair.node.reaches(pair.hub)
    pair.node.hears()

    assert (17, 0) == (report.current, report.allowance)
    assert Totals(17, 0) == pair.totals()
