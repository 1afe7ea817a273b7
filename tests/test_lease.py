"""Goal: a node stops using its lines before the hub stops holding them for it, whatever it was told meanwhile.

Method: one node and one hub, each with a clock of its own.
"""

from __future__ import annotations

from random import Random

import pytest

from reconverge import Agent
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.hub_clock import DRIFT
from reconverge.kernel import Kernel
from reconverge.limit import Limit
from reconverge.policies import STRICT
from reconverge.report import Status
from reconverge.simulation import Experiment, Fleet, Traffic, World
from reconverge.syncer import Syncer
from reconverge_sync.memory import MemoryHub
from tests.node import START_S


class Pair:
    """A node and its hub, whose clock is as much faster as two clocks may be."""

    def __init__(self) -> None:
        self.clock, self.hubs_clock = ManualClock(START_S), ManualClock(START_S)
        self.hub = MemoryHub(clock=self.hubs_clock)
        self.kernel = Kernel(
            self.clock,
            namespace="test",
            interval_ns=SECOND_NS // 10,
            interval_min_ns=SECOND_NS // 100,
            keys_max=10,
            key_bytes_max=256,
        )
        self.shard = self.kernel.shards[0]
        self.syncer = Syncer(self.kernel, shard=0, random=Random(0), new_name=lambda: "node", now_ns=0)

    def pass_until_ns(self, moment_ns: int) -> None:
        """Let time pass until that moment of the node's clock."""
        passing_ns = moment_ns - self.clock.monotonic_ns()
        self.clock.advance_ns(passing_ns)
        self.hubs_clock.advance_ns(passing_ns + int(passing_ns * DRIFT))

    def exchange(self, declare: Limit | None = None) -> Status:
        """One exchange; `declare` is a limit that is declared while it is under way."""
        sent_ns = self.clock.monotonic_ns()
        batch = self.syncer.take(sent_ns)
        assert batch is not None
        answer = self.hub.merge(batch)
        if declare is not None:
            self.kernel.declare("late", declare, STRICT)
        self.syncer.merged(batch, answer, sent_ns=sent_ns, now_ns=self.clock.monotonic_ns())
        return answer.status


def test_the_slower_clock_does_not_make_the_lease_longer() -> None:
    """At the last moment at which a node may use its lines by its own clock, the hub still holds them by its own."""
    pair = Pair()
    pair.kernel.declare("limit", Limit(100, 60), STRICT)
    pair.exchange()

    pair.pass_until_ns(pair.shard.lease_until_ns - 1)

    assert Status.MERGED is pair.exchange()


def test_a_limit_declared_meanwhile_does_not_make_the_lease_longer() -> None:
    """The lease is the one that the batch asked for, though a longer one has become right before the answer came."""
    pair = Pair()
    pair.kernel.declare("limit", Limit(100, 1), STRICT)
    pair.exchange(declare=Limit(100, 3600))

    pair.pass_until_ns(pair.shard.lease_until_ns - 1)

    assert Status.MERGED is pair.exchange()


@pytest.mark.parametrize(
    ("settings", "window_s", "lease_s"),
    [
        ({}, 1, 30),
        ({}, 10, 100),
        ({}, 86_400, 600),
        ({"sync_interval": 5.0}, 1, 30),
        ({"sync_interval": 6.0}, 1, 36),
        ({"sync_interval": 900.0}, 86_400, 5_400),
        ({"exchange_timeout": 60.0}, 1, 180),
    ],
)
def test_a_lease_that_nobody_sets_is_never_shorter_than_one_that_might_be_set(
    settings: dict[str, float], window_s: int, lease_s: int
) -> None:
    """Ten windows, between half a minute and ten, unless exchanges take longer than that."""
    agent = Agent(MemoryHub(), **settings)  # type: ignore[arg-type]
    agent.limit("login", Limit(100, window_s))

    assert lease_s * SECOND_NS == agent._kernel.lease_ns


def test_a_fleet_that_exchanges_rarely_does_not_lapse_between_exchanges() -> None:
    """Every quarter of an hour, about a limit for a day."""
    day = Limit(200, 86_400, algorithm="fixed-window")
    tried = Experiment(Fleet(2, day, 900 * SECOND_NS), Traffic("uniform", 2.0), 2, 1)
    world = World(tried.fleet, STRICT, (), seed=1)
    world.run(tried.arrivals(1), until_ns=2 * day.window_ns)

    assert [0, 0] == [node.syncer.stats(world.now_ns).lapses for node in world.nodes]
