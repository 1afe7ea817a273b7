"""Floods of keys, wrong answers of a hub, and crashes after a number of requests, as faults."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from chaos.faults.nonsense import KINDS
from chaos.names import Nodes
from chaos.stage import ChaosFailed, Stage

LOOK_S: Final = 0.1
"""The seconds between two looks at the hub's memory."""
CRASH_WAIT_S: Final = 60.0
"""The longest time, in seconds, that a node may take to decide the requests before its crash."""
HUB_BYTES, HUB_KEYS = "most bytes in the hub", "most keys in the hub"


@dataclass(frozen=True)
class Flooded:
    """A stranger asks some nodes about many distinct keys per second. The growth of the hub's memory is noted.

    The figures are the largest growth of the hub's memory, and the most keys that it had.
    """

    keys_per_s: int
    who: Nodes = None

    async def begin(self, stage: Stage) -> None:
        watching = asyncio.create_task(self._watch(stage, await self._memory(stage)))
        stage.callback(watching.cancel)
        for number in stage.numbers(self.who):
            stage.nodes[number].tell("stranger", amount=self.keys_per_s)

    async def end(self, stage: Stage) -> None:
        for number in stage.numbers(self.who):
            stage.nodes[number].tell("stranger", amount=0)

    async def _watch(self, stage: Stage, before: int) -> None:
        while True:
            grown, keys = await self._memory(stage) - before, await stage.tell_server("DBSIZE")
            assert isinstance(keys, int)
            stage.noted[HUB_BYTES] = max(stage.noted.get(HUB_BYTES, 0), grown)
            stage.noted[HUB_KEYS] = max(stage.noted.get(HUB_KEYS, 0), keys)
            await asyncio.sleep(LOOK_S)

    @staticmethod
    async def _memory(stage: Stage) -> int:
        facts = await stage.tell_server("INFO", "memory")
        assert isinstance(facts, dict)
        return int(facts["used_memory"])


@dataclass(frozen=True)
class Lied:
    """Nonsense of these kinds takes the place of the server's replies to some nodes."""

    kinds: tuple[str, ...] = KINDS
    who: Nodes = None

    async def begin(self, stage: Stage) -> None:
        for liar in stage.liars_of(self.who):
            liar.kinds = self.kinds

    async def end(self, stage: Stage) -> None:
        for liar in stage.liars_of(self.who):
            liar.kinds = ()
            stage.noted["lies"] = stage.noted.get("lies", 0) + liar.lied
            liar.lied = 0


@dataclass(frozen=True)
class ObjectLied:
    """The hub objects of all nodes, which are third-party ones, answer nonsense."""

    async def begin(self, stage: Stage) -> None:
        for node in stage.nodes:
            node.tell("lie", amount=1)

    async def end(self, stage: Stage) -> None:
        for node in stage.nodes:
            node.tell("lie", amount=0)


@dataclass(frozen=True)
class NodeCrashed:
    """A node is killed when its process has decided a number of requests, and another process takes its place."""

    node: int
    requests: int

    async def begin(self, stage: Stage) -> None:
        """Kills the node. Raises ChaosFailed if its process does not decide so many requests."""
        node, deadline_s = stage.nodes[self.node], time.monotonic() + CRASH_WAIT_S
        while await asyncio.to_thread(node.decisions) < self.requests:
            if time.monotonic() > deadline_s or not node.alive:
                raise ChaosFailed(f"node {self.node} does not decide {self.requests} requests")
            await asyncio.sleep(0.02)
        node.kill()

    async def end(self, stage: Stage) -> None:
        await stage.nodes[self.node].start_again()
