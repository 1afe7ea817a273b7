"""Reads the state of one node that the binding compares with the model: one key in its cell, and its lease."""

# Why a snapshot. A simulation could read the objects of a node whenever it checks a step. The nodes of a chaos run are
# other processes, which write down their snapshots; they are read when the run is over. So that one check serves both,
# it never sees an object of a node.

from __future__ import annotations

from typing import Any, NamedTuple

from reconverge.exchange.syncer import Syncer
from reconverge.kernel.cell import has_share, lease_until_ns


class BoundSnapshot(NamedTuple):
    """The state of a node at one moment. If the node has no cell of the key, all fields about the cell are 0."""

    node: str
    """The node's name."""
    lapsed: bool
    """Whether the node's lease has ended, and the hub has not answered it under its new name yet."""
    heard: bool
    """Whether the hub has ever answered the node."""
    until_ns: int
    """When the lease of the key's allowances ends, by the node's clock."""
    opens_us: int
    """The time of the hub's clock at which the node may open a sealed share."""
    cell: int = 0
    """The number of the node's cell of the key: another one if the node has forgotten the key meanwhile; 0 for none."""
    epoch: int = 0
    used: int = 0
    allowance: int = 0
    base: int = 0
    overdraft: int = 0
    sealed: bool = False
    shares: bool = False
    """Whether `base` is a sealed share that the node may open."""


class Looks:
    """Takes the snapshots of one key at one node, and counts the cells that the node has had of it."""

    def __init__(self, syncer: Syncer, limit: str, key: str) -> None:
        self._syncer = syncer
        self._limit = limit
        self._key = key
        self._cell: Any = None
        self._cells = 0

    def look(self) -> BoundSnapshot:
        """Returns the node's state at this moment. Waits for a decision of another thread about the limit."""
        return self._syncer.kernel.tables[self._limit].lock.run(self._look)

    def _look(self) -> BoundSnapshot:
        syncer, shard = self._syncer, self._syncer._shard
        cell: Any = syncer.kernel.tables[self._limit].cells.get(self._key)
        until_ns = shard.lease_until_ns if cell is None else lease_until_ns(cell)
        node = syncer.node, syncer._lapsed, bool(syncer._generation), until_ns, shard.opens_us
        if cell is None:
            return BoundSnapshot(*node)
        if cell is not self._cell:
            self._cell, self._cells = cell, self._cells + 1
        amounts = cell.epoch, cell.used, cell.allowance, cell.base, cell.overdraft
        return BoundSnapshot(*node, self._cells, *amounts, cell.sealed, has_share(cell))
