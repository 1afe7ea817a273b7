"""Goal: the hub in memory keeps every promise of a hub. Method: the contract that all hubs share."""

from __future__ import annotations

from reconverge.hub import Hub
from reconverge.testing import HubContract, ManualClock, ReaderContract
from reconverge_sync.memory import MemoryHub


class TestMemoryHub(HubContract, ReaderContract):
    """The merge rule and nothing else."""

    def make_hub(self, clock: ManualClock) -> Hub:
        """A hub that nobody has used."""
        self.clock = clock
        return MemoryHub(clock=clock)

    def make_stranger(self, hub: Hub) -> Hub:
        """Another one: they have nothing to share."""
        return MemoryHub(clock=self.clock)

    async def lose_data(self, hub: Hub) -> None:
        """Forget everything."""
        assert isinstance(hub, MemoryHub)
        hub.lose_data()


class TestMemoryHubOfFourShards(TestMemoryHub):
    """Shards change nothing for a node that speaks to each as if it were the only one."""

    seeds = range(2)

    def make_hub(self, clock: ManualClock) -> Hub:
        """A hub of four shards."""
        self.clock = clock
        return MemoryHub(clock=clock, shards=4)
