"""Goal: a node is never mistaken for its own past, and nothing it counted is lost or doubled when its lease ends.

Method: nodes that are cut off for longer than a lease, or told that they were.
"""

from __future__ import annotations

import pytest

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.hub.report import Status, Totals
from reconverge.limit import Limit
from reconverge.policies import STRICT
from reconverge.simulation.explore.node import LEASE_NS, START_S, SmallNode
from reconverge_sync.memory import MemoryHub
from tests.support.kernel.pair import HOUR_S, WINDOWS, Pair, name_number
from tests.support.kernel.talker import Talkers, reported


def test_an_allowance_may_be_used_until_the_last_nanosecond_of_the_lease() -> None:
    """And not at its end."""
    pair = Pair()
    shard = pair.node.kernel.shards[0]
    pair.clock.advance_ns(shard.lease_until_ns - 1 - pair.clock.monotonic_ns())
    before = pair.node.admitted_of(1)

    pair.passes(ns=1)

    assert (1, 0) == (before, pair.node.admitted_of(1))


def test_the_fast_path_ends_with_the_first_lease() -> None:
    """Which a node has with the answer that brought the allowance, and not before; nothing was exchanged since."""
    clock = ManualClock(START_S)
    node = SmallNode(clock)
    table = node.limit(Limit(100, 60.0, algorithm="fixed-window"), STRICT)
    assert not table.allow("ada")
    node.exchanges_with(MemoryHub(clock=clock))
    assert table.allow("ada", 0)  # leaves room on the fast path for all of the allowance but the low-water mark

    clock.advance_ns(LEASE_NS)

    assert not table.allow("ada")
    assert 0 == table.usage("ada").allowance


@pytest.mark.parametrize("by_hub", [False, True])
def test_after_its_lease_a_node_says_hello_under_a_new_name(by_hub: bool) -> None:
    """Whether it has noticed by itself or was told: the first batch says the name and nothing else."""
    pair = Pair()
    old = pair.node.syncer.node
    if by_hub:
        pair.passes(0.1)
        pair.node.admitted_of(1)
        pair.node.says()
        pair.hears(Status.LAPSED)
    else:
        pair.lease_ends()

    hello = pair.node.says()

    assert ((), (), False) == (hello.limits, hello.cells, hello.leaving)
    assert (pair.node.syncer.account, 1) == name_number(hello)
    assert old != hello.node


def test_a_hello_that_is_not_answered_is_said_again_under_the_same_name() -> None:
    """Only an ended lease makes a new one."""
    pair = Pair()
    pair.lease_ends()
    first = pair.node.says()
    pair.node.gives_up()
    pair.clock.advance_ns(pair.node.due_in_ns)

    second = pair.node.says()

    assert (first.node, first.sequence + 1) == (second.node, second.sequence)


def test_lapses_are_counted() -> None:
    """So that one can see that a cut was longer than the lease."""
    pair = Pair()
    pair.lease_ends()
    pair.node.exchanges_with(pair.hub, rounds=3)

    assert 1 == pair.node.syncer.stats(0).lapses


def test_a_lease_counts_from_when_the_batch_was_sent() -> None:
    """The hub may have heard it as early as that, and counts from then."""
    pair = Pair()
    pair.passes(0.5)
    sent_ns = pair.clock.monotonic_ns()
    pair.node.says()
    pair.node.reaches(pair.hub)
    pair.passes(0.5)
    pair.node.hears()

    assert pair.node.kernel.shards[0].lease_until_ns <= sent_ns + LEASE_NS


@pytest.mark.parametrize("limit", WINDOWS, ids=str)
def test_what_the_hub_had_confirmed_is_not_counted_twice(limit: Limit) -> None:
    """It stays under the old name, and the new one begins without it; the allowance there counts as used."""
    pair = Pair(limit)
    allowance = pair.node.allowance()
    pair.lease_ends()

    pair.node.exchanges_with(pair.hub, rounds=3)

    assert (allowance, 10) == (pair.counted(), pair.totals().charged)


@pytest.mark.parametrize("limit", WINDOWS, ids=str)
def test_what_the_hub_had_not_confirmed_is_reported_under_the_new_name(limit: Limit) -> None:
    """All of it and nothing else."""
    pair = Pair(limit)
    assert 7 == pair.node.admitted_of(7)
    pair.lease_ends()
    pair.node.exchanges_with(pair.hub)

    report = reported(pair.node.says())

    assert (7, 0, 0, 0) == (report.current, report.allowance, report.base, report.overdraft)


def test_what_was_used_before_the_edge_is_found_again_behind_it() -> None:
    """A count that was confirmed as this window's is taken out of the window before, once that has ended."""
    world = Talkers(Limit(100, 2), STRICT)
    (node,) = world.nodes
    node.exchanges_with(world.hub)
    node.admitted_of(10)
    world.all_speak(2)
    assert 10 == node.admitted_of(10)
    world.all_speak(2)
    assert 7 == node.admitted_of(7)
    world.passes(LEASE_NS / SECOND_NS)
    node.exchanges_with(world.hub)

    assert (0, 7) == (node.table.cells["ada"].used, node.table.cells["ada"].previous)


def test_lifetime_numbers_go_on_under_the_same_account() -> None:
    """Unconfirmed numbers are reported, confirmed ones are not reported again."""
    pair = Pair()
    pair.node.admitted_of(7)
    pair.lease_ends()

    pair.node.reports_everything_to(pair.hub)

    assert Totals(17, 0) == pair.totals()


def test_the_fleet_refuses_nothing_for_ever_after_a_lapse() -> None:
    """The node is granted an allowance anew, of what is left."""
    pair = Pair()
    used_up = pair.node.allowance()
    pair.lease_ends()
    pair.node.exchanges_with(pair.hub, rounds=2)
    admitted = 0
    for _ in range(30):
        admitted += pair.node.admitted_of(500)
        pair.all_speak()

    assert 500 - used_up == admitted


def test_a_bucket_keeps_its_fill() -> None:
    """The part that it counts twice drains before long."""
    world = Talkers(Limit(500, HOUR_S, algorithm="gcra"), STRICT)
    (node,) = world.nodes
    node.exchanges_with(world.hub)
    node.admitted_of(10)
    world.all_speak(3)
    assert 10 == node.admitted_of(10)
    world.all_speak(3)

    world.passes(2 * LEASE_NS / SECOND_NS)
    node.exchanges_with(world.hub)

    assert 10 == node.table.usage("ada").own


def test_a_node_that_was_told_stops_in_the_middle_of_a_series_of_admissions() -> None:
    """Those that came while the batch was under way have looked up until when the allowance lasts; that has changed."""
    pair = Pair()
    pair.node.admitted_of(1)
    pair.passes(0.1)
    pair.node.says()
    before = pair.node.admitted_of(3)

    pair.hears(Status.LAPSED)

    assert (3, False, 0) == (before, pair.node.in_lease, pair.node.admitted_of(1))


def test_a_node_that_renounces_goes_on_as_another() -> None:
    """Name and account are new, and the allowances are void."""
    pair = Pair()
    old = pair.node.syncer.node
    pair.node.admitted_of(1)
    pair.passes(0.1)
    pair.node.says()

    pair.node.gives_up()
    pair.node.syncer.give_up_allowances(pair.clock.monotonic_ns())
    admitted = pair.node.admitted_of(1)
    pair.clock.advance_ns(pair.node.due_in_ns)
    hello = pair.node.says()

    assert ((), (), 0) == (hello.limits, hello.cells, admitted)
    assert old.partition(".")[0] != hello.account
    assert hello.account == name_number(hello)[0]
    assert 1 == pair.node.syncer.stats(0).lapses


def test_what_a_copy_had_not_confirmed_is_said_under_its_new_account() -> None:
    """And nothing else, so the hub's totals are those of all copies; the allowance counts as used, as after a lapse."""
    pair = Pair()
    allowance = pair.node.allowance()
    assert 5 == pair.node.admitted_of(5)
    pair.passes(0.1)
    pair.node.says()
    pair.node.gives_up()
    pair.node.syncer.give_up_allowances(pair.clock.monotonic_ns())

    pair.node.reports_everything_to(pair.hub)

    assert (allowance + 5, 15) == (pair.counted(), pair.totals().charged)


def test_a_name_that_is_given_up_while_a_batch_is_under_way_holds_no_allowances() -> None:
    """The answer brings a lease for the old name, which a copy of this process may use as well."""
    pair = Pair()
    pair.node.admitted_of(1)
    pair.passes(0.1)
    pair.node.says()
    pair.node.reaches(pair.hub)

    pair.node.syncer.give_up_allowances(pair.clock.monotonic_ns())
    pair.node.hears()

    assert (False, 0, 0) == (pair.node.in_lease, pair.node.admitted_of(1), pair.node.due_in_ns)
