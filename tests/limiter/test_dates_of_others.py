"""Goal: a node knows when the charges of other nodes expire: its refusals name the moment, and its waits go by it.

Method: nodes with one hub on a clock that is moved by hand; one node uses up the quota, and another one is asked.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Final

import pytest

from reconverge import Limit, RateLimiter
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.limiter.control import LimitControl
from reconverge.policies import BALANCED, STRICT, Policy
from reconverge.simulation.explore.node import START_S, SmallNode
from reconverge_sync.memory import MemoryHub
from tests.support.waiters import settled

QUOTA: Final = 8
TICK_NS: Final = SECOND_NS // 10
DATED: Final = ("sliding-log", "sliding-slices")


class DatedNodes:
    """Nodes with a limit of 8 per 10 seconds, and one hub with which they exchange ten times a second."""

    def __init__(self, algorithm: str, policy: Policy, nodes: int = 2) -> None:
        self.clock = ManualClock(START_S)
        self.hub = MemoryHub(clock=self.clock)
        self.nodes = [SmallNode(self.clock) for _ in range(nodes)]
        quotas = {"api": Limit(QUOTA, 10, algorithm=algorithm)}
        self.limiters = [
            RateLimiter(LimitControl(node.kernel.composites.all_of("api", quotas, policy))) for node in self.nodes
        ]

    def passes(self, ticks: int = 1) -> None:
        """So many tenths of a second pass, in which nodes with something to report exchange."""
        for _ in range(ticks):
            for node in self.nodes:
                node.exchanges_with(self.hub)
            self.clock.advance_ns(TICK_NS)

    def first_uses_all(self) -> None:
        """All nodes know the key, and the first one uses up its quota within two seconds, which all then hear."""
        for limiter in self.limiters:
            limiter.test("ada")
        self.passes(30)
        admitted = 0
        while admitted < QUOTA:
            admitted += self.limiters[0].allow("ada")
            self.passes()
        for limiter in self.limiters:
            limiter.test("ada")
        self.passes(3)


@pytest.mark.parametrize("policy", [STRICT, BALANCED], ids=["strict", "balanced"])
@pytest.mark.parametrize("algorithm", DATED)
def test_the_wait_for_anothers_charges_shrinks_as_time_passes(algorithm: str, policy: Policy) -> None:
    """By as much as has passed, however often the node is asked: nothing is charged meanwhile."""
    fleet = DatedNodes(algorithm, policy)
    fleet.first_uses_all()

    waits = []
    for _ in range(5):
        refusal = fleet.limiters[1].hit("ada")
        assert (False, True) == (refusal.allowed, refusal.certain)
        waits.append(refusal.retry_after)
        fleet.passes(10)

    assert waits[0] < 10
    assert [pytest.approx(waits[0] - passed, abs=0.11) for passed in range(5)] == waits


@pytest.mark.parametrize("algorithm", DATED)
def test_a_call_that_keeps_to_it_goes_within_two_exchanges(algorithm: str) -> None:
    """The other node reports what has expired, and the hub grants it."""
    fleet = DatedNodes(algorithm, STRICT)
    fleet.first_uses_all()

    fleet.passes(int(fleet.limiters[1].hit("ada").retry_after * 10))
    admitted = False
    for _ in range(4):
        admitted = fleet.limiters[1].allow("ada")
        fleet.passes()

    assert admitted


@pytest.mark.parametrize("user", [0, 1], ids=["by this node", "by another"])
@pytest.mark.parametrize("policy", [STRICT, BALANCED], ids=["strict", "balanced"])
@pytest.mark.parametrize("algorithm", [*DATED, "fixed-window"])
async def test_a_wait_that_cannot_end_in_time_is_refused_at_once(algorithm: str, policy: Policy, user: int) -> None:
    """No matter which node has used up the quota; a longer wait stays in the queue."""
    fleet = DatedNodes(algorithm, policy)
    fleet.first_uses_all()

    short = asyncio.create_task(fleet.limiters[user].wait("ada", timeout=1))
    patient = asyncio.create_task(fleet.limiters[user].wait("ada", timeout=30))
    await settled()

    assert short.done()
    assert not short.result().allowed
    assert not patient.done()
    patient.cancel()
    await asyncio.gather(patient, return_exceptions=True)


@pytest.mark.parametrize("algorithm", DATED)
async def test_each_window_admits_the_quota_while_calls_wait(algorithm: str) -> None:
    """A charge that expires on one node makes room for the calls that wait on another."""
    fleet = DatedNodes(algorithm, STRICT)
    fleet.first_uses_all()
    released: list[int] = []

    async def waits(limiter: RateLimiter) -> None:
        assert await limiter.wait("ada", timeout=120)
        released.append(fleet.clock.monotonic_ns())

    began_ns = fleet.clock.monotonic_ns()
    tasks = [asyncio.create_task(waits(limiter)) for limiter in fleet.limiters for _ in range(2 * QUOTA)]
    await settled()
    while len(released) < len(tasks) and fleet.clock.monotonic_ns() < began_ns + 100 * SECOND_NS:
        fleet.passes()
        await settled()
    await asyncio.gather(*tasks)

    ends_ns = [released[count * QUOTA + QUOTA - 1] for count in range(4)]
    gaps_s = [(later - earlier) / SECOND_NS for earlier, later in pairwise(ends_ns)]
    most = max(sum(since <= each < since + 10 * SECOND_NS for each in released) for since in released)
    assert most <= QUOTA or algorithm == "sliding-slices"
    assert max(gaps_s) < 10 + 1.5
