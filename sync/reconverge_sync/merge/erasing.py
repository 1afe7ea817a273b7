"""The rule by which keys of erased identities are dropped, and orders to erase kept; scripts do the same in Redis.

The comments in `reconverge/hub/erasing.py` explain it. A key is dropped when no live node has an entry for it. The use
that the key still has then is the use of departed nodes, and is erased with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from reconverge.hub.erasing import KEPT_S, ORDERS_MAX, Erased, Erasure, Erasures, names_in
from reconverge_sync.merge.ledger import DEPARTED, LedgerCell
from reconverge_sync.merge.loans import Identity
from reconverge_sync.merge.rule import LedgerShard

KEPT_US: Final = round(KEPT_S * 1_000_000)


@dataclass(slots=True)
class Orders:
    """The orders to erase identities that a hub stores."""

    _at_us: dict[str, int] = field(default_factory=dict[str, int])
    """The moment of each order by its mark, the oldest first."""
    _latest_us: int = 0

    def give(self, marks: Sequence[str], hub_us: int) -> int:
        """Stores an order for each mark; returns the moment of the last order, in microseconds of the hub's clock."""
        for mark in marks:
            self._latest_us = max(hub_us, self._latest_us + 1)
            self._at_us.pop(mark, None)
            self._at_us[mark] = self._latest_us
        old = [mark for mark, at_us in self._at_us.items() if hub_us - at_us > KEPT_US]
        for mark in (*old, *list(self._at_us)[len(old) : max(len(old), len(self._at_us) - ORDERS_MAX)]):
            del self._at_us[mark]
        return self._latest_us

    def since(self, since_us: int, hub_us: int) -> Erasures:
        orders = sorted(Erasure(at_us, mark) for mark, at_us in self._at_us.items() if at_us > since_us)
        return Erasures(hub_us, orders)


def drop_keys(shard: LedgerShard, identities: Iterable[Identity], hub_us: int) -> tuple[int, int]:
    """Drops those of these cells that no live node has; returns how many were dropped, and how many stay."""
    dropped = kept = 0
    for identity in identities:
        cell = shard.cells.get(identity)
        if cell is None:
            continue
        if _is_held(shard, cell, hub_us):
            kept += 1
            continue
        del shard.cells[identity]
        shard.lending.forget(identity)
        dropped += 1
    return dropped, kept


def erase_keys(shard: LedgerShard, names: Sequence[str], hub_us: int) -> Erased:
    """Drops all cells whose keys contain any of these names and that no live node has, in one step.

    Returns how many were dropped, and how many stay.
    """
    wanted = set(names)
    found = [each for each in shard.cells if wanted.intersection(names_in(each[3]))]
    return Erased(0, *drop_keys(shard, found, hub_us), 0)


def _is_held(shard: LedgerShard, cell: LedgerCell, hub_us: int) -> bool:
    """Whether a node with a running lease has an entry in the cell."""
    for name, entry in cell.entries.items():
        record = shard.nodes.get(name)
        if name == DEPARTED or record is None or record.gone:
            continue
        lease_us = min(record.lease_us, entry.lease_us) if entry.lease_us > 0 else record.lease_us
        if hub_us - max(entry.seen_us, record.seen_us) <= lease_us:
            return True
    return False
