"""Goal: a node stops using its allowances before the hub stops holding them for it, whatever it was told meanwhile.

Method: one node and one hub, each with a clock of its own.
"""

from __future__ import annotations

from random import Random

import pytest

from reconverge import Agent
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.exchange.syncer import Syncer
from reconverge.hub.clock import DRIFT
from reconverge.hub.report import Status
from reconverge.kernel import Kernel
from reconverge.kernel.cell import lease_until_ns
from reconverge.limit import Limit
from reconverge.policies import STRICT
from reconverge.simulation import Experiment, Fleet, Traffic, World
from reconverge.simulation.explore.node import START_S
from reconverge.testing.claims.scenes.scene import Voice, limit
from reconverge_sync.memory import MemoryHub


class DriftingClocks:
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
    """At the last moment of a node's allowances by its own clock, the hub still holds them by its own."""
    pair = DriftingClocks()
    pair.kernel.declare("limit", Limit(100, 60), STRICT)
    pair.exchange()

    pair.pass_until_ns(pair.shard.lease_until_ns - 1)

    assert Status.MERGED is pair.exchange()


def test_a_limit_declared_meanwhile_does_not_make_the_lease_longer() -> None:
    """The lease is the one that the batch asked for, though a longer one has become right before the answer came."""
    pair = DriftingClocks()
    pair.kernel.declare("limit", Limit(100, 1), STRICT)
    pair.exchange(declare=Limit(100, 3600))

    pair.pass_until_ns(pair.shard.lease_until_ns - 1)

    assert Status.MERGED is pair.exchange()


def test_allowances_are_given_up_one_limit_at_a_time() -> None:
    """Cut off for longer than the lease of a short limit, a node uses no allowance on it, and goes on with others."""
    pair = DriftingClocks()
    short = pair.kernel.declare("short", Limit(100, 1), STRICT)
    day = pair.kernel.declare("day", Limit(100, 86_400), STRICT)
    asked: list[bool] = []
    for _ in range(3):
        asked = [short.allow("ada"), day.allow("ada")]
        pair.pass_until_ns(pair.clock.monotonic_ns() + SECOND_NS)
        pair.exchange()
    assert [True, True] == asked
    name = pair.syncer.node

    pair.pass_until_ns(lease_until_ns(short.cells["ada"]) - 1)
    last = [short.allow("ada"), day.allow("ada")]
    pair.pass_until_ns(lease_until_ns(short.cells["ada"]))
    after = [short.allow("ada"), day.allow("ada")]
    statuses = {pair.exchange()}
    short.allow("ada")
    pair.pass_until_ns(pair.clock.monotonic_ns() + SECOND_NS)
    statuses.add(pair.exchange())
    again = [short.allow("ada"), day.allow("ada")]

    assert [True, True] == last
    assert [False, True] == after
    assert [True, True] == again
    assert {Status.MERGED} == statuses
    assert name == pair.syncer.node


def test_allowances_that_an_answer_says_nothing_of_are_given_up_too() -> None:
    """The hub may have dealt out again what a node held on other keys of a limit whose lease was over."""
    pair = DriftingClocks()
    pair.kernel.declare("day", Limit(100, 86_400), STRICT)
    short = pair.kernel.declare("short", Limit(100, 1), STRICT)
    asked: list[bool] = []
    for _ in range(3):
        asked = [short.allow(key) for key in ("ada", "bob")]
        pair.pass_until_ns(pair.clock.monotonic_ns() + SECOND_NS)
        pair.exchange()
    assert [True, True] == asked
    held = short.cells["bob"].allowance
    pair.pass_until_ns(pair.clock.monotonic_ns() + SECOND_NS // 50)
    sent_ns = pair.clock.monotonic_ns()
    assert not short.allow("eve")
    batch = pair.syncer.take(sent_ns)
    assert batch is not None
    pair.pass_until_ns(lease_until_ns(short.cells["ada"]))

    pair.syncer.merged(batch, pair.hub.merge(batch), sent_ns=sent_ns, now_ns=pair.clock.monotonic_ns())

    assert {"eve"} == {cell.key for cell in batch.cells}
    assert held > 0
    assert 0 == short.cells["bob"].allowance
    assert short.cells["eve"].allowance > 0


@pytest.mark.parametrize(("lease_us", "comes_back"), [(5_000_000, True), (0, False)])
async def test_what_a_vanished_node_held_comes_back_with_the_lease_of_its_limit(
    lease_us: int, comes_back: bool
) -> None:
    """And not only when the lease on its name is over, as it does from a node of the version before."""
    clock = ManualClock(START_S)
    hub = MemoryHub(clock=clock)
    short = limit(name="short", window_us=1_000_000)._replace(lease_us=lease_us)

    gone, there = (
        Voice(hub, lambda: clock.wall_ns() // 1000, node=f"{name}.0", account=name, shard=0, lease_us=600_000_000)
        for name in ("gone", "there")
    )
    await gone.reports(of=short, need=100)
    granted: list[int] = []
    for passing_s in (4.9, 0.2, 2.0):
        clock.advance_ns(int(passing_s * SECOND_NS))
        granted.append((await there.reports(of=short, need=100)).allowance)
    before, at_its_end, after = granted

    assert 20 > before
    assert 20 > at_its_end
    assert comes_back == (after > 80)


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
