"""Goal: a refund of a bucket kept at the hub admits no request twice, however late the hub hears of it.

Method: random plays of three nodes, with messages that are lost or late, and requests that ask or do not; each
admission is judged by a bucket computed from what remains charged.
"""

from __future__ import annotations

from random import Random

import pytest

from reconverge.clock import SECOND_NS
from reconverge.kernel import Charged
from reconverge.kernel.composite.all_of import settle
from tests.protocol.merge.test_kept_at_hub import WINDOW_S, asks, speaks, waits, world_of
from tests.support.effort import tried
from tests.support.kernel.talker import Talker, Talkers

QUOTA = 6
PAUSES_S = (0.01, 0.3, 2, 9, 40, 130)
LEAST = 0.001
"""The hub's levels are in thousandths."""


class Play:
    """Nodes that charge and refund at random, and the charges that remain, with their times."""

    def __init__(self, algorithm: str, seed: int) -> None:
        self.random = Random(seed)
        self.world = world_of(algorithm, quota=QUOTA, nodes=3)
        self.remaining: list[tuple[float, int]] = []
        self.open: list[tuple[int, tuple[Charged, ...]]] = []
        """The charges that may be refunded, each with its place in `remaining`."""
        self.fullest = 0.0

    def level(self) -> float:
        """How full one bucket is by now, if it was filled by nothing but the charges that remain."""
        level, last_s = 0.0, 0.0
        for at_s, cost in [*self.remaining, (self.world.clock.monotonic_ns() / SECOND_NS, 0)]:
            level = max(0.0, level - (at_s - last_s) * QUOTA / WINDOW_S) + cost
            last_s = at_s
        return level

    def charge(self, node: Talker, cost: int) -> None:
        decision, charges = node.table.hit_and_mark("ada", cost)
        if decision.allowed:
            self.open.append((len(self.remaining), charges))
            self.remaining.append((self.world.clock.monotonic_ns() / SECOND_NS, cost))
            self.fullest = max(self.fullest, self.level())

    def asks(self, node: Talker) -> None:
        cost = self.random.randint(1, 3)
        waits(node, cost)
        speaks(self.world, node)
        self.charge(node, cost)
        node.cancels_asks(node.table)

    def refunds(self) -> None:
        place, charges = self.open.pop(self.random.randrange(len(self.open)))
        at_s, cost = self.remaining[place]
        amount = self.random.randint(0, cost)
        settle(charges, "ada", -amount)
        self.remaining[place] = at_s, cost - amount

    def loses_a_message(self, node: Talker) -> None:
        """A batch, or the answer to it."""
        self.world.passes(ns=node.due_in_ns)
        if node.sends() is not None:
            if self.random.random() < 0.5:
                node.reaches(self.world.hub)
            node.gives_up()

    def delays_a_batch(self, node: Talker) -> None:
        """Lets others ask, and time pass, while a batch is on its way."""
        self.world.passes(ns=node.due_in_ns)
        if node.sends() is not None:
            for other in self.random.sample(self.world.nodes, 2):
                self.world.passes(self.random.choice(PAUSES_S) / 2)
                if other is not node:
                    speaks(self.world, other)
                    self.asks(other)
            node.reaches(self.world.hub)
            node.hears() if self.random.random() < 0.8 else node.gives_up()

    def goes_on(self) -> None:
        """One random event."""
        node, chance = self.random.choice(self.world.nodes), self.random.random()
        if chance < 0.05:
            self.delays_a_batch(node)
        elif chance < 0.1:
            self.loses_a_message(node)
        elif chance < 0.13:
            node.table.asks = not node.table.asks
        elif chance < 0.4:
            self.asks(node)
        elif chance < 0.55 and "ada" in node.table.cells:
            self.charge(node, self.random.randint(1, 2))
        elif chance < 0.8 and self.open:
            self.refunds()
        elif chance < 0.9:
            self.world.passes(self.random.choice(PAUSES_S))
        else:
            speaks(self.world, node)


@pytest.mark.parametrize("algorithm", ["token-bucket", "gcra"])
def test_a_bucket_is_never_fuller_than_its_capacity(algorithm: str) -> None:
    """By the charges that remain, in every play and at every moment."""
    plays = [Play(algorithm, seed) for seed in range(tried(60, long=2000))]
    for play in plays:
        for _ in range(60):
            play.goes_on()

    assert [] == [play.fullest for play in plays if play.fullest > QUOTA + LEAST]
    assert sum(len(play.remaining) for play in plays) > 5 * len(plays)


def interval_world() -> Talkers:
    """Two nodes that ask about a bucket of six, which drains at once at each edge of a minute."""
    return world_of("token-bucket", quota=QUOTA, nodes=2, refill="interval")


def fills(world: Talkers, node: Talker) -> tuple[Charged, ...]:
    """Charges all six by one request, and reports it."""
    waits(node, QUOTA)
    speaks(world, node)
    decision, charges = node.table.hit_and_mark("ada", QUOTA)
    assert decision.allowed
    node.cancels_asks(node.table)
    speaks(world, node)
    return charges


def test_charges_after_a_refund_do_not_make_up_for_what_has_drained() -> None:
    """Though they were made before the node looked at its bucket again."""
    world = world_of("token-bucket", quota=QUOTA, nodes=2)
    ada, bob = world.nodes
    waits(ada, 3)
    speaks(world, ada)
    _, charges = ada.table.hit_and_mark("ada", 3)
    ada.cancels_asks(ada.table)
    waits(ada, 3)
    speaks(world, ada)
    settle(charges, "ada", -3)
    assert not ada.table.allow("ada", QUOTA)  # the refusal lets later requests be decided without a look
    world.passes(WINDOW_S / 2)

    admitted = asks(world, bob, *[1] * QUOTA)
    speaks(world, bob)
    admitted += ada.table.allow("ada") + ada.table.allow("ada")
    ada.cancels_asks(ada.table)
    speaks(world, ada)
    assert QUOTA == admitted + asks(world, bob, *[1] * QUOTA)


def test_what_an_edge_has_drained_is_not_given_back_after_it() -> None:
    """A charge of two seconds before is gone, not a thirtieth of it."""
    world = interval_world()
    ada, bob = world.nodes
    world.passes(58)
    charges = fills(world, ada)
    world.passes(3)

    assert QUOTA == asks(world, bob, *[1] * QUOTA)
    speaks(world, bob)
    settle(charges, "ada", -QUOTA)
    speaks(world, ada)
    assert 0 == asks(world, bob, 1) + asks(world, ada, 1)


def test_a_refund_before_an_edge_is_not_reported_once_the_edge_may_have_passed() -> None:
    """The node's clock may be behind the hub's, which has drained the charge."""
    world = interval_world()
    ada, bob = world.nodes
    world.passes(50)
    settle(fills(world, ada), "ada", -QUOTA)
    world.passes(WINDOW_S + 0.01 - world.clock.wall_ns() / SECOND_NS % WINDOW_S)

    assert QUOTA == asks(world, bob, *[1] * QUOTA)
    speaks(world, bob)
    ada.kernel.shards[0].lag_ns = 400_000_000  # as far as the node knows, its clock may be ahead by so much
    ada.says()
    ada.reaches(world.hub)
    ada.hears()
    speaks(world, bob)
    assert 0 == asks(world, bob, 1)
