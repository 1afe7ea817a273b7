"""Goal: a hub that has lost its data grants nothing that somebody may be holding already.

Method: nodes with allowances, the real merge rule, and both sides of the moment from which it may grant again.
"""

from __future__ import annotations

import pytest

from reconverge.clock import MICROSECOND_NS, SECOND_NS
from reconverge.limit import Limit
from reconverge.policies import BALANCED, STRICT, Policy, choose
from reconverge.simulation.explore.node import LEASE_NS
from tests.support.kernel.talker import Talker, Talkers

WINDOW_S = 2
LIMITS = {
    "fixed-window": (Limit(100, WINDOW_S, algorithm="fixed-window"), 2 * WINDOW_S),
    "sliding-window": (Limit(100, WINDOW_S), 2 * WINDOW_S),
    "small bucket": (Limit(100, WINDOW_S, algorithm="gcra", burst=50), 2 * WINDOW_S),
    "large bucket": (Limit(100, WINDOW_S, algorithm="token-bucket", burst=250), 2 * 2.5 * WINDOW_S),
}
"""Each limit, and after how many seconds no charge to it counts any more."""
each_limit = pytest.mark.parametrize(("limit", "counts_for_s"), LIMITS.values(), ids=LIMITS)

LEASE_S = LEASE_NS / SECOND_NS
SPEAK_UP_S = 0.1 + 1.0
"""An interval, and the longest back-off and silence."""
BALANCED_WITHOUT_COLD = choose(cold_allowance=0.0)


class Loss(Talkers):
    """One node that holds an allowance when the hub loses its data, and another that would like to have one."""

    def __init__(self, limit: Limit, policy: Policy) -> None:
        super().__init__(limit, policy, nodes=2)
        self.holder, self.other = self.nodes
        self.all_speak()
        for _ in range(3):
            self.holder.admitted_of(5)
            self.all_speak()
        self.passes(0.5)
        self.holder.admitted_of(1)
        self.all_speak(2)
        assert 0 < self.holder.allowance() < limit.capacity
        self.hub.lose_data()
        self.passes(1.0)
        self.lost_us = self.clock.wall_ns() // 1000
        """When the hub hears for the first time that there were data before."""
        for node in self.nodes:
            node.exchanges_with(self.hub, rounds=3)

    def passes_until(self, us: int) -> None:
        """Let time pass until that moment, with the holder in touch, and using what it may."""
        while (left_us := us - self.clock.wall_ns() // 1000) > 0:
            self.clock.advance_ns(min(left_us, 100_000) * MICROSECOND_NS)
            self.holder.table.allow("ada")
            self.holder.exchanges_with(self.hub)

    def is_granted(self, key: str) -> bool:
        """Whether the other node has an allowance after asking for one."""
        self.other.admitted_of(1, key=key)
        self.other.exchanges_with(self.hub, rounds=2)
        return self.other.allowance(key) > 0


both_sides = pytest.mark.parametrize(("late_us", "granted"), [(-1, False), (0, True)])


@each_limit
@both_sides
@pytest.mark.parametrize("policy", [STRICT, BALANCED_WITHOUT_COLD], ids=["strict", "balanced"])
def test_nothing_is_granted_until_nobody_can_hold_it_or_all_can_have_spoken(
    policy: Policy, limit: Limit, counts_for_s: float, late_us: int, granted: bool
) -> None:
    """In strict every lease must be over, and what was used until then count no more.

    For balanced an interval and the longest silence are enough, in which all that are in touch have spoken.
    """
    loss = Loss(limit, policy)
    learning_s = LEASE_S + counts_for_s if policy is STRICT else SPEAK_UP_S

    loss.passes_until(loss.lost_us + round(learning_s * 1e6) + late_us)

    assert granted == loss.is_granted("ada")


@both_sides
@pytest.mark.parametrize(
    ("policy", "learning_s"), [(STRICT, LEASE_S + 2 * WINDOW_S), (BALANCED_WITHOUT_COLD, SPEAK_UP_S)]
)
def test_a_key_of_which_nobody_has_spoken_yet_is_learnt_about_too(
    policy: Policy, learning_s: float, late_us: int, granted: bool
) -> None:
    """Nobody knows that nobody holds an allowance there."""
    loss = Loss(LIMITS["sliding-window"][0], policy)

    loss.passes_until(loss.lost_us + round(learning_s * 1e6) + late_us)

    assert granted == loss.is_granted("bob")


@both_sides
def test_an_allowance_that_is_reported_late_is_learnt_about_from_then_on(late_us: int, granted: bool) -> None:
    """There may be others who are as late, though the first have spoken long ago."""
    world = Talkers(LIMITS["sliding-window"][0], STRICT, nodes=3)
    first, late, other = world.nodes
    for _ in range(4):
        first.admitted_of(5)
        late.admitted_of(5)
        world.all_speak()
    assert late.allowance() > 0
    world.hub.lose_data()
    world.passes(0.5)
    first.exchanges_with(world.hub, rounds=2)
    world.passes(1.0)
    late.exchanges_with(world.hub, rounds=2)

    world.passes(LEASE_S + 2 * WINDOW_S, ns=late_us * MICROSECOND_NS)
    other.admitted_of(1)
    other.exchanges_with(world.hub, rounds=3)

    assert granted == (other.allowance() > 0)


@pytest.mark.parametrize("policy", [STRICT, BALANCED])
def test_who_holds_an_allowance_goes_on_with_it(policy: Policy) -> None:
    """It is as good as before, once it has been reported; and the hub knows of no more than was."""
    loss = Loss(LIMITS["sliding-window"][0], policy)
    cells = loss.hub._shards[0].cells.values()

    assert loss.holder.in_lease
    assert 0 < loss.holder.allowance() == sum(cell.allowances for cell in cells)


@each_limit
def test_what_was_used_is_known_again_after_one_exchange_of_each(limit: Limit, counts_for_s: float) -> None:
    """The reports rebuild the hub."""
    loss = Loss(limit, STRICT)

    assert loss.holder.table.admitted == loss.totals().charged


def first_grant_us(world: Talkers, node: Talker) -> int:
    """How long after its first word a node is granted something, in steps of a tenth of a second."""
    began_us = world.clock.wall_ns() // 1000
    while not node.allowance():
        node.admitted_of(1)
        node.exchanges_with(world.hub, rounds=2)
        if not node.allowance():
            world.passes(0.1)
    return world.clock.wall_ns() // 1000 - began_us


@pytest.mark.parametrize(
    ("policy", "certainly_new", "learning_s"),
    [(STRICT, True, 0.0), (STRICT, False, SPEAK_UP_S), (BALANCED_WITHOUT_COLD, False, 0.0)],
)
def test_the_birth_of_unknown_data(policy: Policy, certainly_new: bool, learning_s: float) -> None:
    """Strict waits for nodes that may hold allowances from before, unless certainly none does; balanced does not."""
    world = Talkers(Limit(100, WINDOW_S), policy)
    if not certainly_new:
        world.hub.lose_data()

    assert round(learning_s * 1e6) == first_grant_us(world, world.nodes[0])
