"""Goal: an agent tells other agents of a change, although thousands of keys of another limit wait to be told of.

Method: two agents with one hub in memory, which counts the batches of the first one, and keeps it waiting after some.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from reconverge import Agent
from reconverge.exchange.syncer import CELLS_MAX
from reconverge.hub.report import Answer, Batch
from reconverge_sync.memory import MemoryHub
from tests.support.agents import NEVER_FULL, node_of
from tests.support.waiting import eventually

KEYS = 20 * CELLS_MAX
BATCHES = 3
"""The one that was under way when the keys changed, and two more."""


class RationedHub(MemoryHub):
    """Answers one node only so many more times, if it is told to, and lets it wait then."""

    def __init__(self) -> None:
        super().__init__()
        self.counted = ""
        """The node whose batches are counted."""
        self.left = 0
        self.kept_waiting = False

    async def exchange(self, batch: Batch) -> Answer:
        """Answer in time, or later."""
        if batch.node == self.counted:
            while self.left == 0:
                self.kept_waiting = True
                await asyncio.sleep(0.001)
            self.left -= 1
        return await super().exchange(batch)

    def lets_pass(self, batches: int) -> None:
        """Answer so many batches of the node."""
        self.left = batches


@pytest.fixture
def hub() -> RationedHub:
    """A hub that answers at once, so far."""
    return RationedHub()


@pytest.fixture
def agents(hub: RationedHub) -> Iterator[list[Agent]]:
    """Two agents that meet there, and may wait long for its answers."""
    with (
        Agent(
            hub,
            sync_interval=0.02,
            max_silence=0,
            exchange_timeout=30.0,
            max_keys=2 * KEYS,
            new_keys_max=1_000_000,
        ) as one,
        Agent(hub, sync_interval=0.02, max_silence=0) as other,
    ):
        yield [one, other]
        hub.lets_pass(1_000_000)


@pytest.mark.slow
@pytest.mark.parametrize(("quotas", "uses"), [(NEVER_FULL, 1), ("10/hour", 6)], ids=["changed", "in a hurry"])
def test_a_change_reaches_another_node_within_three_batches(
    agents: list[Agent], hub: RationedHub, quotas: str, uses: int
) -> None:
    """Whether the thousands of keys of the other limit only changed, or are also about to use up their allowances."""
    one, _ = agents
    crowded, (mine, yours) = one.limit("crowded", quotas), [agent.limit("quiet", NEVER_FULL) for agent in agents]
    keys = [f"key {number}" for number in range(KEYS)]
    for key in keys:
        crowded.allow(key)
    mine.allow("ada")
    eventually(lambda: one.stats().exchanges[0].pending == 0, "the answers for all keys")
    hub.counted = node_of(one)
    mine.allow("bob")
    eventually(lambda: hub.kept_waiting, "a batch that is kept waiting")
    for _ in range(uses):
        for key in keys:
            crowded.allow(key)
    mine.allow("ada")

    hub.lets_pass(BATCHES)

    eventually(lambda: yours.usage("ada").total == 2, "the change at the other node")
    assert one.stats().exchanges[0].pending > KEYS // 2
