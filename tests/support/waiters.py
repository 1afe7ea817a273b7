"""A vocabulary for tests of waiting: a limit on a clock that the test moves, and a record of admissions."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from reconverge import Agent, Decision, Limit, RateLimiter
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.kernel.cell import measure
from reconverge.limiter.waiting.waiters import Waiting, waiting_at
from tests.support.waiting import eventually

TURNS = 50
"""The turns of an event loop that are enough for all that happens at one moment."""


class Scene:
    """A limiter on a clock that the test moves, and a record of the admitted requests with their times."""

    def __init__(self, clock: ManualClock, agent: Agent, limiter: RateLimiter) -> None:
        self.clock = clock
        self.agent = agent
        self.limiter = limiter
        self.released: list[tuple[str, float]] = []
        self.refused: list[str] = []

    async def waits(self, name: str, cost: int = 1, **how: Any) -> Decision:
        """Makes a request wait in the running loop."""
        decision = await self.limiter.wait("ada", cost, **how)
        self._note(name, decision)
        return decision

    def waits_blocking(self, name: str, cost: int = 1, **how: Any) -> threading.Thread:
        """Makes a request wait on a thread of its own; returns when it is in the queue."""
        before = self.queue
        thread = threading.Thread(target=lambda: self._note(name, self.limiter.wait_blocking("ada", cost, **how)))
        thread.start()
        eventually(lambda: self.queue == before + 1, "a thread in the queue")
        return thread

    def _note(self, name: str, decision: Decision) -> None:
        if decision:
            self.released.append((name, self.clock.monotonic_ns() / SECOND_NS))
        else:
            self.refused.append(name)

    @property
    def waiting(self) -> Waiting:
        return waiting_at(self.limiter._table)

    @property
    def queue(self) -> int:
        return self.waiting.waiters("ada")

    @property
    def charges(self) -> list[int]:
        for table in self.limiter.control.tables:
            for cell in table.all_cells():
                measure(cell)
        return [table.tallies[0].charged for table in self.limiter.control.tables]

    @property
    def charged(self) -> int:
        return sum(self.charges)

    async def passes(self, seconds: float, steps: int = 1) -> None:
        """Lets time pass, and all that is due happen."""
        for _ in range(steps):
            self.clock.advance_ns(round(seconds * SECOND_NS / steps))
            await settled()

    def is_empty(self) -> bool:
        """Returns whether nothing is left of any waiting request."""
        cells = [cell for table in self.limiter.control.tables for cell in table.all_cells()]
        left = [(cell.waiters, cell.waiting, cell.head_cost) for cell in cells]
        return [] == self.clock._watchers and {} == self.waiting._queues and [(0, 0, 0)] * len(cells) == left


def scene_of(*quotas: Limit) -> Scene:
    """Returns a scene with a limit that has these quotas."""
    clock = ManualClock()
    agent = Agent("memory://", clock=clock)
    return Scene(clock, agent, agent.limit("queue", list(quotas)))


async def settled() -> None:
    """Lets all happen that happens at this moment."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def counted_tries(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the keys of all attempts to admit a waiting request from now on, in order."""
    gate = scene.waiting._gate
    try_turn = gate.try_turn
    tries: list[str] = []

    def counted(key: str, *arguments: Any, **named: Any) -> Any:
        tries.append(key)
        return try_turn(key, *arguments, **named)

    monkeypatch.setattr(gate, "try_turn", counted)
    return tries
