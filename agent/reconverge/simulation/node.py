"""One node of a simulated fleet: its clocks, the real kernel and syncer, and what it has under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconverge.exchange.syncer import Syncer
from reconverge.hub.report import Batch
from reconverge.kernel import Kernel, Table
from reconverge.simulation.fleet import Asked

if TYPE_CHECKING:
    from reconverge.simulation.world import World


class NodeClock:
    """One node's clocks: the world's time, and a wall clock of its own."""

    __slots__ = ("ahead_ns", "world")

    def __init__(self, world: World, ahead_ns: int) -> None:
        self.world = world
        self.ahead_ns = ahead_ns

    def monotonic_ns(self) -> int:
        """See `Clock.monotonic_ns`."""
        return self.world.now_ns

    def wall_ns(self) -> int:
        """See `Clock.wall_ns`."""
        return self.world.begin_ns + self.world.now_ns + self.ahead_ns


class Member:
    """One node, and what it has under way."""

    __slots__ = ("alive", "asked", "batch", "clock", "due_ns", "index", "kernel", "sent_ns", "syncer", "woken")

    kernel: Kernel
    asked: Asked
    syncer: Syncer

    def __init__(self, index: int, clock: NodeClock) -> None:
        self.index = index
        self.clock = clock
        self.alive = False
        self.batch: Batch | None = None
        self.sent_ns = 0
        self.due_ns = 0
        self.woken = False

    @property
    def table(self) -> Table:
        """Of the first quota."""
        return self.asked.tables[0]
