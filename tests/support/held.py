"""An all-knowing observer's count of work in progress."""

from __future__ import annotations

from dataclasses import dataclass

from reconverge.clock import ManualClock
from reconverge.kernel import Cell, Table, lease_left_ns
from reconverge.limit import Limit
from tests.support.node import Node, Truth


@dataclass(eq=False)
class Held:
    """Slots in use, until their work ends."""

    node: Node
    key: str
    slots: int
    cell: Cell | None
    cost: int
    apart: bool = False
    """The lease of its node has ended since it began, so that the hub may have given its slots away."""


class SlotTruth(Truth):
    """Counts work in progress, but for that which counts apart."""

    held: list[Held]

    def __init__(self, limit: Limit, clock: ManualClock) -> None:
        super().__init__(limit, clock)
        self.held = []

    def begins(self, node: Node, key: str, cost: int) -> None:
        self.held.append(Held(node, key, cost, node.kernel.tables["limit"].cell_in_use(key), cost))

    def ends(self, node: Node, table: Table) -> None:
        """The oldest work of a node ends, if it has any."""
        for one in [one for one in self.held if one.node is node][:1]:
            table.release(one)
            self.held.remove(one)

    def vanishes(self, node: Node) -> None:
        """A process ends, and with it all that it has in progress."""
        self.held = [one for one in self.held if one.node is not node]

    def counts_at(self, epoch: int) -> bool:
        """Slots have one window."""
        return True

    def excess(self) -> float:
        now_ns = self._clock.monotonic_ns()
        for one in self.held:
            one.apart = one.apart or (one.cell is not None and lease_left_ns(one.cell, now_ns) <= 0)
        return sum(one.slots for one in self.held if not one.apart) - self.limit.capacity
