"""Goal: the hub in memory keeps every promise of a hub. Method: the claims that all hubs share; then threads."""

from __future__ import annotations

import threading
from typing import Any

from reconverge.hub import Hub
from reconverge.hub.checking.probe import TRIAL
from reconverge.hub.report import Answer, Batch
from reconverge.testing import HubClaims, ManualClock, ReaderClaims
from reconverge_sync.memory import MemoryHub
from tests.support.hubs.reached import StoreClaims
from tests.support.hubs.ways import InMemory


class TestMemoryHub(InMemory, HubClaims, ReaderClaims, StoreClaims):
    """The merge rule and nothing else."""


class TestMemoryHubOfFourShards(TestMemoryHub):
    """Shards change nothing for a node that speaks to each as if it were the only one."""

    seeds = range(2)

    def make_hub(self, clock: ManualClock) -> Hub:
        self.clock = clock
        return MemoryHub(clock=clock, shards=4)


class Watched:
    """A shard that takes its time, and counts how many callers are in it at once."""

    def __init__(self, shard: Any) -> None:
        self._shard = shard
        self._inside = self.most = 0

    def merge(self, batch: Batch, **words: Any) -> Answer:
        """Merges as the shard does, slowly."""
        self._inside += 1
        self.most = max(self.most, self._inside)
        threading.Event().wait(0.02)
        answer: Answer = self._shard.merge(batch, **words)
        self._inside -= 1
        return answer


def test_threads_may_share_it() -> None:
    """Each agent of a process exchanges in a thread of its own: two batches are merged one after the other."""
    hub = MemoryHub()
    shard: Any = Watched(hub._shards[0])
    hub._shards[0] = shard
    threads = [threading.Thread(target=hub.merge, args=(TRIAL._replace(node=f"node-{each}"),)) for each in range(4)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 1 == shard.most
