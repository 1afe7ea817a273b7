"""Goal: memory is bounded, and nothing that counts is forgotten for it.

Method: nodes with room for few keys, alone and with a hub, past the moments at which keys may leave.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconverge import Agent, RateLimiter
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.limit import METERED, PACED, Limit
from reconverge.policies import BALANCED, STRICT, Policy
from reconverge.simulation.explore.node import INTERVAL_NS, START_S, SmallNode
from reconverge_sync.memory import MemoryHub
from tests.support.kernel.lone import Lone

WINDOW_S = 10.0


@pytest.fixture(params=METERED)
def limit(request: pytest.FixtureRequest) -> Limit:
    """Ten per ten seconds, by each algorithm in turn."""
    return Limit(10, WINDOW_S, algorithm=request.param)


def keys_of(node: Lone) -> set[str]:
    """The keys that a lone node remembers."""
    return set(node.limiter.control.table.cells)


def test_beyond_the_cap_keys_share_one_count(limit: Limit) -> None:
    """All of them together get one quota, and keys that found room are not touched, as they have used most of it."""
    node = Lone(limit, keys_max=2)
    node.admitted_of(6, key="ada")
    node.admitted_of(6, key="bob")

    together = sum(node.admits(key=f"late {number}") for number in range(20))

    assert (10, 4, 4) == (together, node.admitted_of(11, key="ada"), node.admitted_of(11, key="bob"))


def strict_and_full(limit: Limit) -> RateLimiter:
    """A strict limit on a node without a hub, with room for one key, which has used all; another key was refused."""
    agent = Agent("memory://", clock=ManualClock(START_S), max_keys=1, policy="strict")
    limiter = agent.limit("limit", limit)
    assert [True] * 10 == [limiter.allow("ada") for _ in range(10)]
    assert not limiter.allow("late")
    return limiter


@pytest.mark.parametrize("algorithm", [each for each in METERED if each not in PACED])
def test_strict_refuses_keys_beyond_the_cap_whatever_becomes_of_the_quota(algorithm: str) -> None:
    """Keys that share one count could exceed the limit; a larger quota does not change that."""
    limit = Limit(10, WINDOW_S, algorithm=algorithm)
    limiter = strict_and_full(limit)

    limiter.change(replace(limit, quota=15))

    assert 0 == sum(limiter.allow(f"late {number}") for number in range(5))
    assert 5 == sum(limiter.allow("ada") for _ in range(25))


@pytest.mark.parametrize(("before", "after", "admitted"), [(STRICT, BALANCED, 10), (BALANCED, STRICT, 0)])
def test_keys_beyond_the_cap_go_by_the_policy_that_holds_now(
    limit: Limit, before: Policy, after: Policy, admitted: int
) -> None:
    """A policy that becomes strict refuses them, and one that was strict does so no more."""
    table = strict_and_full(limit).control.table
    table.set_policy(before)

    table.set_policy(after)

    assert admitted == sum(table.allow(f"late {number}") for number in range(20))


def test_decisions_beyond_the_cap_are_counted_and_reported(limit: Limit) -> None:
    """The number of keys never exceeds the cap, and the shared count is not one of them."""
    node = Lone(limit, keys_max=2)
    for key in ("ada", "bob"):
        node.admitted_of(6, key=key)
    for number in range(5):
        node.admits(key=f"late {number}")

    stats = node.agent.stats()

    assert (2, 2, 5) == (stats.keys, stats.limits["limit"].keys, stats.limits["limit"].overflowed)


def test_the_cap_is_one_for_all_limits() -> None:
    """A second limit finds no more room than the first has left, and has a shared count of its own."""
    node = Lone("1/minute", keys_max=2)
    other = node.agent.limit("other", "1/minute")
    node.admits(key="ada")
    other.allow("ada")
    node.admits(key="bob")

    late = (other.allow("bob"), other.allow("cyd"), node.admits(key="cyd"))

    assert (2, (True, False, False)) == (node.agent.stats().keys, late)


def test_a_key_that_counts_for_nothing_any_more_makes_room(limit: Limit) -> None:
    """At the cap, idle keys leave for new ones, which are then counted each on its own."""
    node = Lone(limit, keys_max=3)
    for key in ("ada", "bob", "cyd", "dan"):
        node.admits(key=key)
    node.passes(2 * WINDOW_S)

    assert [10, 10, 10] == [node.admitted_of(11, key=key) for key in ("eve", "fay", "gus")]


def test_a_key_that_still_counts_never_makes_room(limit: Limit) -> None:
    """However many strangers come by, nobody gets a second quota out of being forgotten."""
    node = Lone(limit, keys_max=3)
    node.admitted_of(10, key="ada")

    for number in range(50):
        node.admits(key=f"stranger {number}")

    assert 0 == node.admitted_of(10, key="ada")


def test_idle_keys_leave_long_before_the_cap(limit: Limit) -> None:
    """With every new key two old ones are looked at, so that memory follows traffic."""
    node = Lone(limit)
    for number in range(100):
        node.admits(key=f"old {number}")
    node.passes(2 * WINDOW_S)

    for number in range(50):
        node.admits(key=f"new {number}")

    assert {f"new {number}" for number in range(50)} == keys_of(node)


def test_the_shared_count_is_forgotten_like_any_other(limit: Limit) -> None:
    """Once nothing in it counts any more it begins anew."""
    node = Lone(limit, keys_max=1)
    node.admits(key="ada")
    node.admitted_of(11, key="bob")

    node.passes(2 * WINDOW_S)
    node.admits(key="ada")

    assert 10 == node.admitted_of(11, key="bob")


def test_a_limit_whose_keys_are_idle_makes_room_for_another_limit(limit: Limit) -> None:
    """Nobody asks the first limit any more, and it does not hold on to the cap."""
    node = Lone(limit, keys_max=3)
    for key in ("ada", "bob", "cyd"):
        node.admits(key=key)
    other = node.agent.limit("other", limit)
    node.passes(2 * WINDOW_S)
    for key in ("eve", "fay", "gus"):
        other.allow(key)

    stats = node.agent.stats()

    assert (3, 0, 3) == (stats.keys, stats.limits["limit"].keys, stats.limits["other"].keys)


def test_a_limit_that_is_in_use_elsewhere_is_left_alone() -> None:
    """Room is looked for without waiting for anybody: a decision never does."""
    node = Lone("1/minute", keys_max=1)
    node.admits(key="ada")
    other = node.agent.limit("other", "1/minute")
    node.passes(120.0)

    with node.limiter.control.table.lock:
        answers = (other.allow("bob"), other.allow("cyd"))

    assert ((True, False), 2) == (answers, other.control.table.overflowed)


def test_agents_of_one_name_share_their_keys_and_their_cap() -> None:
    """`memory://NAME` is one node, however many agents speak for it."""
    clock = ManualClock(START_S)
    agents = [Agent("memory://cells", clock=clock, max_keys=1, namespace="test_cells") for _ in range(2)]
    limiters = [agent.limit("limit", "3/minute") for agent in agents]

    admitted = sum(limiters[number % 2].allow("ada") for number in range(6))

    assert (3, 1) == (admitted, agents[1].stats().keys)


class CrampedNode:
    """One node with room for few keys, and its hub."""

    def __init__(self, limit: Limit, *, keys_max: int = 1000) -> None:
        self.clock = ManualClock(START_S)
        self.hub = MemoryHub(clock=self.clock)
        self.node = SmallNode(self.clock, keys_max=keys_max)
        self.table = self.node.limit(limit, BALANCED)

    def keeps_in_touch(self, seconds: float) -> None:
        """Time passes, and the node exchanges whenever that is due."""
        until_ns = self.clock.monotonic_ns() + round(seconds * SECOND_NS)
        while (now_ns := self.clock.monotonic_ns()) < until_ns:
            if self.node.syncer.due_ns(now_ns) <= now_ns:
                self.node.exchanges_with(self.hub)
            self.clock.advance_ns(INTERVAL_NS)

    def charged(self) -> int:
        """Returns the charges that the hub has heard of, in all."""
        totals = self.hub._shards[0].totals()
        return totals["limit"].charged if "limit" in totals else 0


def test_an_idle_key_leaves_when_the_hub_has_taken_its_allowance_back(limit: Limit) -> None:
    """Two windows after the last request nothing is left of it on the node, and all of it has been told."""
    fleet = CrampedNode(limit)
    admitted = sum(fleet.table.allow("ada") for _ in range(7))
    fleet.keeps_in_touch(1.0)
    remembered = set(fleet.table.cells)

    fleet.keeps_in_touch(2 * WINDOW_S + 5)

    assert ({"ada"}, set[str](), 0, admitted) == (
        remembered,
        set(fleet.table.cells),
        fleet.node.kernel.keys,
        fleet.charged(),
    )


def test_an_idle_key_stays_while_the_hub_has_not_heard_of_it(limit: Limit) -> None:
    """Cut off, a node forgets nothing, and tells it all as soon as it can."""
    fleet = CrampedNode(limit)
    admitted = sum(fleet.table.allow("ada") for _ in range(7))
    for _ in range(100):
        fleet.node.sends()
        fleet.node.gives_up()
        fleet.clock.advance_ns(SECOND_NS)
    kept = set(fleet.table.cells)

    fleet.node.reports_everything_to(fleet.hub)

    assert (7, 0, {"ada"}, 7) == (admitted, 7 - admitted, kept, fleet.charged())


def test_what_was_charged_meanwhile_is_told_before_a_key_leaves(limit: Limit) -> None:
    """A key that wakes up between two looks at it is not taken for an idle one."""
    fleet = CrampedNode(limit)
    fleet.table.allow("ada")
    fleet.keeps_in_touch(2 * WINDOW_S - 1)
    woken = fleet.table.allow("ada")

    fleet.keeps_in_touch(5.0)

    assert (True, {"ada"}, 2) == (woken, set(fleet.table.cells), fleet.charged())


def test_a_key_that_is_only_asked_about_leaves_too(limit: Limit) -> None:
    """Questions make the node learn about a key, and do not keep it for ever."""
    fleet = CrampedNode(limit)
    fleet.table.usage("ada")
    fleet.keeps_in_touch(1.0)
    learnt = fleet.table.usage("ada").staleness

    fleet.keeps_in_touch(2 * WINDOW_S + 5)

    assert (True, set[str]()) == (learnt < 2.0, set(fleet.table.cells))


def test_beyond_the_cap_the_shared_count_is_told_to_the_hub(limit: Limit) -> None:
    """Nothing that was admitted is lost because its key found no room."""
    fleet = CrampedNode(limit, keys_max=2)
    admitted = sum(fleet.table.allow(f"key {number}") for number in range(8))

    fleet.keeps_in_touch(2.0)

    assert (8, 8, 6) == (admitted, fleet.charged(), fleet.table.overflowed)


def test_room_that_an_idle_key_leaves_is_used(limit: Limit) -> None:
    """After the cap was reached and traffic has moved on, new keys are counted each on its own again."""
    fleet = CrampedNode(limit, keys_max=2)
    for key in ("ada", "bob", "cyd"):
        fleet.table.allow(key)
    fleet.keeps_in_touch(2 * WINDOW_S + 5)

    fleet.table.allow("dan")
    fleet.table.allow("eve")

    assert {"dan", "eve"} == set(fleet.table.cells)
