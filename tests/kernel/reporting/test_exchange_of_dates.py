"""Goal: in a fleet, too, a charge with a date counts until its date is over: not shorter, and hardly longer.

Method: a few real nodes and the real merge rule, with single exchanges at chosen moments.
"""

from __future__ import annotations

import pytest

from reconverge.clock import SECOND_NS
from reconverge.limit import Limit
from reconverge.limiter import RateLimiter
from reconverge.limiter.control import LimitControl
from reconverge.policies import AVAILABLE, STRICT, Policy
from reconverge.simulation.explore.node import LEASE_NS
from reconverge.simulation.explore.observer import TrueUse
from tests.support.kernel.talker import Talker, Talkers, busy, reported

LOG = Limit(100, 60, algorithm="sliding-log")
REFUSED = Limit(100, 60, algorithm="sliding-log", count_refused=True)
SLICES = Limit(100, 60, algorithm="sliding-slices", slices=6)
each_limit = pytest.mark.parametrize("limit", [LOG, SLICES], ids=["log", "slices"])
LEASE_S = LEASE_NS / SECOND_NS
SLICE_NS = 10 * SECOND_NS


def who_used_all(world: Talkers) -> Talker:
    """The first node, which has been granted the whole limit, and has used it up just now."""
    node = world.nodes[0]
    for _ in range(20):
        node.admitted_of(100)
        node.exchanges_with(world.hub)
        world.passes(0.1)
        if node.table.usage("ada").own == 100:
            return node
    raise AssertionError("this node is never granted the whole limit")


def granted(world: Talkers, node: Talker, cost: int = 100) -> int:
    """Returns a node's allowance after it has asked for so much."""
    for _ in range(2):
        node.table.allow("ada", cost)
        node.exchanges_with(world.hub)
        world.passes(0.1)
    return node.allowance()


@each_limit
def test_a_node_reports_what_it_has_in_use_and_for_how_long(limit: Limit) -> None:
    """All that counts, whenever it was charged, and the microseconds until the last of it does not."""
    world = busy(limit)
    (node,) = world.nodes
    before = node.table.usage("ada").own
    world.passes(1.0)
    charged = node.admitted_of(5)
    world.passes(30.0)

    report = reported(node.says())

    # A minute from when it was charged; or from when its slice began, which was at the minute.
    lasts_us = 30_000_000 if limit is LOG else 60_000_000 - world.clock.wall_ns() // 1000 % 60_000_000
    assert (before + charged, lasts_us) == (report.current, report.previous)


@each_limit
def test_what_has_expired_is_reported_no_more(limit: Limit) -> None:
    """Use falls without anything being asked."""
    world = busy(limit)
    (node,) = world.nodes
    world.passes(60.0)

    report = reported(node.says())

    assert (0, 0) == (report.current, report.previous)


@each_limit
def test_what_was_heard_of_the_others_counts_for_a_window(limit: Limit) -> None:
    """After that none of it can, whatever they have done since."""
    world = busy(limit, nodes=2)
    node, other = world.nodes
    other.admitted_of(10)
    other.exchanges_with(world.hub)
    node.table.test("ada")
    node.exchanges_with(world.hub)
    theirs = node.table.usage("ada").total - node.table.usage("ada").own

    world.passes(60.0, ns=-1)
    before = node.table.usage("ada").total - node.table.usage("ada").own
    world.passes(ns=1)

    assert (theirs, 0) == (before, node.table.usage("ada").total)
    assert 0 < theirs


PAID_OFF_AFTER_S = {"slices": 180, "log": 60}


@each_limit
def test_a_debt_is_refused_on_every_node_until_its_node_has_paid_it_off(limit: Limit) -> None:
    """Of three and a half windows that are used, slices have room again after three; a log has it after one."""
    world = Talkers(limit, STRICT, nodes=2, lease_ns=3600 * SECOND_NS)
    debtor, other = who_used_all(world), world.nodes[1]
    RateLimiter(LimitControl(debtor.table)).reserve("ada", 0).settle(250)
    begun_ns = world.clock.monotonic_ns()
    until_s = PAID_OFF_AFTER_S["log" if limit is LOG else "slices"]

    admitted_after_s: list[float] = []
    for _ in range(until_s + 20):
        world.all_speak(every_s=1.0)
        if other.admitted_of(1):
            admitted_after_s.append((world.clock.monotonic_ns() - begun_ns) / SECOND_NS)

    # A slice began up to its length before it was charged; what has expired is granted with the next exchanges.
    assert until_s - 10 <= admitted_after_s[0] <= until_s + 3


@pytest.mark.parametrize("holds", [True, False], ids=["with an allowance", "without"])
def test_the_hub_hears_of_a_debt_until_it_is_paid_off_though_no_node_asks_for_the_key(*, holds: bool) -> None:
    """A hub believes what is in use for two windows at most, so a node that owes more says so again before that."""
    world = Talkers(SLICES, STRICT, nodes=2, lease_ns=3600 * SECOND_NS)
    holder, other = who_used_all(world), world.nodes[1]
    debtor = holder if holds else other
    debtor.exchanges_with(world.hub)
    RateLimiter(LimitControl(debtor.table)).reserve("ada", 0).settle(450 if holds else 550)

    for _ in range(3700):
        debtor.speaks_when_due(world.hub, 0.1)
        ledger = world.hub._shards[0].cells.values()
        entries = [entry for cell in ledger for name, entry in cell.entries.items() if name.startswith(debtor.name)]
        now_us = world.clock.wall_ns() // 1000
        counted = sum(entry.current for entry in entries if entry.current_until_us > now_us)

        assert counted >= debtor.table.usage("ada").own
    assert 0 == debtor.table.usage("ada").own


def test_a_lease_that_ends_hands_a_debt_over_and_makes_none_anew() -> None:
    """The hub's count under the old name is the others' use, and owed no more by this node."""
    world = Talkers(SLICES, STRICT, lease_ns=LEASE_NS)
    node = who_used_all(world)
    RateLimiter(LimitControl(node.table)).reserve("ada", 0).settle(250)
    node.exchanges_with(world.hub)
    before = node.table.usage("ada").own

    world.passes(LEASE_S + 1)
    node.exchanges_with(world.hub, rounds=3)
    usage = node.table.usage("ada")

    assert (350, 0) == (before, usage.own)
    assert 350 <= usage.total


@each_limit
def test_a_quiet_node_gives_its_allowance_back_when_its_use_expires(limit: Limit) -> None:
    """Before two intervals have passed another one is granted what it asks for, though nobody asks the first."""
    world = Talkers(limit, STRICT, nodes=2, lease_ns=600 * SECOND_NS)
    node = who_used_all(world)
    other = world.nodes[1]
    node.speaks_when_due(world.hub, 59.0)
    before = granted(world, other, 30)

    node.speaks_when_due(world.hub, 1.2)

    assert 0 == before
    assert 30 <= granted(world, other, 30)


@each_limit
def test_a_quiet_node_is_looked_at_when_something_expires_and_not_all_the_time(limit: Limit) -> None:
    """Four charges expire one after the other: that is a handful of reports in a minute, at intervals of a tenth."""
    world = Talkers(limit, STRICT, lease_ns=600 * SECOND_NS)
    (node,) = world.nodes
    for _ in range(4):
        granted(world, node, 25)
        world.passes(10.0)
    used = node.table.usage("ada").own

    said = [batch for batch in node.speaks_when_due(world.hub, 60.0) if batch.cells]

    assert 100 == used
    assert 4 <= len(said) <= 24


@each_limit
def test_nodes_that_leave_again_and_again_do_not_make_it_count_for_ever(limit: Limit) -> None:
    """Five of a hundred leave with each node every ten seconds: never more than those of two minutes count."""
    world = Talkers(limit, STRICT, lease_ns=600 * SECOND_NS)
    counted: list[int] = []
    for _ in range(40):
        node = world.nodes.pop()
        granted(world, node, 5)
        counted.append(node.table.usage("ada").total)
        node.syncer.leave(world.clock.monotonic_ns())
        node.exchanges_with(world.hub)
        assert 5 == node.table.tallies[0].charged
        world.nodes.append(world.another_node())
        world.passes(10.0)

    assert 30 <= max(counted) <= 65


def test_use_that_is_renewed_after_the_last_report_counts_when_the_node_vanishes() -> None:
    """Its reported use has expired by the end of its lease, but not the charges in place of that."""
    world = Talkers(Limit(100, 2, algorithm="sliding-log"), STRICT, nodes=2)
    node, heir = world.nodes
    who_used_all(world)
    world.passes(2.0)
    again = node.admitted_of(100)
    world.passes(LEASE_S - 2.0)
    heir.exchanges_with(world.hub)
    world.passes(0.1)

    assert (100, 0) == (again, granted(world, heir))
    world.passes(2.0)
    assert 100 == granted(world, heir)


def a_round_trip(world: Talkers, *, out_s: float, back_s: float, merged_at_s: float) -> None:
    """The first node exchanges, and the hub merges so long after a slice has begun."""
    (node,) = world.nodes
    node.admitted_of(1)
    into_ns = world.clock.wall_ns() % SLICE_NS
    world.clock.advance_ns(SLICE_NS - into_ns + round((merged_at_s - out_s) * SECOND_NS) % SLICE_NS)
    node.says()
    world.passes(out_s)
    node.reaches(world.hub)
    world.passes(back_s)
    node.hears()


def slice_of(world: Talkers) -> int:
    """The slice that the first node would charge."""
    (node,) = world.nodes
    return node.table.decide("ada", 0, world.clock.monotonic_ns()).slice_number


def hubs_slice(world: Talkers) -> int:
    """The slice that it is for the hub."""
    return world.clock.wall_ns() // SLICE_NS


def test_a_node_leaves_no_slice_before_the_hub_does() -> None:
    """The use that expires with it may be granted to others then, who may still charge the slice before."""
    world = Talkers(SLICES, STRICT, lease_ns=600 * SECOND_NS)
    a_round_trip(world, out_s=0.5, back_s=0.0, merged_at_s=9.5)

    world.passes(0.5, ns=-1000)
    before = slice_of(world), hubs_slice(world)
    world.passes(ns=1000)
    after = slice_of(world), hubs_slice(world)

    assert before[0] == before[1] == after[1] - 1
    assert after[0] == after[1]


def test_a_node_that_has_heard_of_a_later_slice_charges_none_before_it() -> None:
    """However far its estimate of the hub's clock is behind: what it was granted may have expired with that."""
    world = Talkers(SLICES, STRICT, lease_ns=600 * SECOND_NS)
    a_round_trip(world, out_s=0.0, back_s=0.4, merged_at_s=5.0)
    a_round_trip(world, out_s=0.5, back_s=0.0, merged_at_s=0.001)

    assert hubs_slice(world) == slice_of(world)


class Slowly(Talkers):
    """Two nodes, one of which has used all; what travels takes as long as it is told to."""

    def __init__(self) -> None:
        super().__init__(SLICES, STRICT, nodes=2, lease_ns=600 * SECOND_NS)
        self.truth = TrueUse(SLICES, self.clock)
        self.charged = 0
        """To which slice the first charge was."""

    def exchange(self, node: Talker, *, out_s: float = 0.0, back_s: float = 0.0) -> None:
        """One exchange of one node."""
        self.passes(1.0)
        node.table.decide("ada", 0, self.clock.monotonic_ns())
        node.says()
        self.passes(out_s)
        node.reaches(self.hub)
        self.passes(back_s)
        node.hears()

    def uses_all(self, node: Talker) -> None:
        """One node asks for the whole limit."""
        verdict = node.table.decide("ada", 100, self.clock.monotonic_ns())
        if verdict.allowed:
            self.truth.admitted(100, verdict.epoch, verdict.slice_number)
            self.charged = self.charged or verdict.slice_number

    def before_it_expires(self, seconds: float) -> None:
        """Let time pass until so long before that charge expires."""
        expires_ns = (self.charged + 6) * SLICE_NS
        self.clock.advance_ns(expires_ns - round(seconds * SECOND_NS) - self.clock.wall_ns())


@pytest.mark.parametrize("early_s", [0.3, 0.2, 0.1, 0.001])
def test_a_node_whose_clock_is_ahead_gives_nothing_back_too_early(early_s: float) -> None:
    """Requests that take half a second, and answers that take none, make a midpoint a quarter of a second ahead."""
    world = Slowly()
    fast, other = world.nodes
    for _ in range(4):
        world.exchange(other)
        world.uses_all(fast)
        world.exchange(fast, out_s=0.5)
    assert 0 == world.truth.excess()

    world.before_it_expires(early_s + 1.0)
    world.uses_all(other)
    world.exchange(fast)
    world.clock.advance_ns(1000)
    other.exchanges_with(world.hub, rounds=2)
    world.uses_all(other)

    assert 0 == world.truth.excess()


def test_a_node_whose_clock_is_behind_charges_nothing_to_a_slice_that_is_over() -> None:
    """Answers that take half a second, and requests that take none, make a midpoint a quarter of a second behind."""
    world = Slowly()
    exact, slow = world.nodes
    for _ in range(4):
        world.exchange(slow, back_s=0.5)
        world.uses_all(exact)
        world.exchange(exact)
    assert 0 == world.truth.excess()

    world.before_it_expires(0.6)
    world.uses_all(slow)
    slow.says()
    world.passes(0.6)
    exact.table.test("ada")
    exact.exchanges_with(world.hub)
    slow.reaches(world.hub)
    slow.hears()
    world.uses_all(slow)

    assert 0 == world.truth.excess()
    assert 100 == slow.table.usage("ada").own


def test_a_request_refused_for_what_all_have_used_counts_on_all_nodes() -> None:
    """Who goes on asking on one node stays out on the others."""
    world = Talkers(REFUSED, AVAILABLE, nodes=2)
    node, other = world.nodes
    who_used_all(world)
    assert 0 == node.admitted_of(7)
    node.exchanges_with(world.hub)
    other.table.test("ada")
    other.exchanges_with(world.hub)

    assert 107 == node.table.usage("ada").own == other.table.usage("ada").total
    assert 100 == node.table.tallies[0].charged


def test_a_request_refused_because_the_others_hold_what_is_left_does_not_count() -> None:
    """Nobody who asks can be blamed for where the allowances are."""
    world = Talkers(REFUSED, STRICT, nodes=2)
    node, other = world.nodes
    other.exchanges_with(world.hub)
    granted(world, node)
    assert 0 < node.allowance()

    assert 0 == other.admitted_of(50)
    other.exchanges_with(world.hub)

    assert 0 == other.table.usage("ada").own


@each_limit
@pytest.mark.parametrize("policy", [STRICT, AVAILABLE])
def test_what_was_confirmed_under_the_old_name_is_the_others_from_then_on(limit: Limit, policy: Policy) -> None:
    """The hub goes on counting it; what it has not heard of is reported under the new name."""
    world = Talkers(limit, policy)
    (node,) = world.nodes
    who_used_all(world)
    node.exchanges_with(world.hub)
    world.passes(2 * LEASE_S)

    node.exchanges_with(world.hub)

    usage = node.table.usage("ada")
    assert (0, 100) == (usage.own, usage.total)
    node.exchanges_with(world.hub)
    assert 100 == node.table.usage("ada").total


@each_limit
@pytest.mark.parametrize("policy", [STRICT, AVAILABLE])
def test_what_was_charged_since_the_last_report_is_reported_under_the_new_name(limit: Limit, policy: Policy) -> None:
    """However it was admitted: the hub has never heard of it, and does not count it as anybody's."""
    world = Talkers(limit, policy)
    (node,) = world.nodes
    for _ in range(4):
        node.admitted_of(10)
        node.exchanges_with(world.hub)
        world.passes(0.1)
    before = node.table.usage("ada").own
    since = node.admitted_of(5)
    world.passes(2 * LEASE_S)

    node.exchanges_with(world.hub, rounds=2)

    assert 5 == since == node.table.usage("ada").own
    assert before + since <= node.table.usage("ada").total


@each_limit
def test_a_hub_that_has_lost_its_data_is_told_what_is_in_use(limit: Limit) -> None:
    """By everybody who is there."""
    world = busy(limit, nodes=2)
    for node in world.nodes:
        node.admitted_of(4)
    world.all_speak(2)
    used = sum(node.table.usage("ada").own for node in world.nodes)

    world.hub.lose_data()
    world.all_speak(4)

    assert [used] * 2 == [node.table.usage("ada").total for node in world.nodes]


@each_limit
@pytest.mark.parametrize("jump_s", [-3600.0, -33.0, 33.0, 3600.0])
def test_a_jump_of_the_hubs_clock_makes_nothing_younger_or_older(limit: Limit, jump_s: float) -> None:
    """A charge of ten seconds ago stays one, with any clock of the hub."""
    world = busy(limit)
    (node,) = world.nodes
    node.admitted_of(5)
    world.passes(10.0)
    used = node.table.usage("ada").own

    world.clock.jump(jump_s)
    node.admitted_of(1)
    world.all_speak(2)

    assert used + 1 == node.table.usage("ada").own
    world.passes(39.0)
    assert used + 1 == node.table.usage("ada").own
    world.passes(21.0)
    assert 0 == node.table.usage("ada").own
