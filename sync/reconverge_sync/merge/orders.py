"""Operators' orders: to erase keys, and to end the time in which a hub that has lost its data grants nothing.

The hub drops keys of erased identities, and keeps the orders to erase them, as `reconverge/hub/erasing.py` explains;
scripts do the same in Redis. A key is dropped when no live node has an entry for it. Any use that it still has is that
of departed nodes, and is erased with it.
"""

# Theory of operation of ending that time.
#
# The problem. A hub that has lost its data grants nothing of a strict limit until nothing from before can count any
# more: a lease and two windows. Of a limit per month that is 62 days. Most of the data are back after seconds, because
# every live node reports its counts and its allowances again. Not back are the use of departed nodes, and the
# allowances of nodes that are cut off just now.
#
# Why nothing does this by itself. A hub cannot tell a node that is gone from one that is cut off, nor whether any node
# had left before the loss. An operator can, or can accept the price: the use of such nodes, before and meanwhile, may
# be admitted once more.
#
# How it works. The data are treated as if they had begun so long ago that no wait is left (`ADOPTED_US`). They stay
# marked as lost, so that a node that comes back from before the loss begins no other wait. Each cell's own wait ends.
# If a node reports allowances from before the loss, its cells wait as briefly as those of a limit that is not strict.
# All of this is part of the data, and is gone after the next loss.

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from reconverge.hub.adopting import Adoption, HubData
from reconverge.hub.erasing import KEPT_S, ORDERS_MAX, Erased, Erasure, Erasures, names_in
from reconverge_sync.merge.ledger import DEPARTED, LedgerCell
from reconverge_sync.merge.loans import Identity
from reconverge_sync.merge.rule import ADOPTED_US, SPEAK_UP_US, LedgerShard

KEPT_US: Final = round(KEPT_S * 1_000_000)


def data_of(shard: LedgerShard, hub_us: int) -> HubData:
    """Returns the state of a shard's data: their generation, whether data were lost, until when nodes may report."""
    live = [each for each in shard.nodes.values() if not each.gone and hub_us - each.seen_us <= each.lease_us]
    waits = shard.born_us not in (0, ADOPTED_US)
    interval_us = max((each.interval_us for each in live), default=0)
    return HubData(
        hub_us=hub_us,
        generation=shard.generation,
        lost=shard.lost,
        begun_us=shard.born_us if waits else 0,
        reports_until_us=shard.born_us + max(2 * interval_us, interval_us + SPEAK_UP_US) + shard.grace_us
        if waits
        else 0,
        nodes=len(live),
        adopted=shard.adopted,
    )


def refusal(data: HubData, generation: str) -> str:
    """Returns a sentence about why an operator cannot adopt the loss of data; an empty string if that is possible."""
    if not data.generation:
        return "no node has reported to the hub yet, so there is nothing to adopt"
    if data.generation != generation:
        return f"the hub's data are called {data.generation}, not {generation}; check again what was lost"
    if not data.waits and data.adopted == 0:
        return "the hub has lost no data, and waits for no node"
    if data.hub_us < data.reports_until_us:
        left_s = (data.reports_until_us - data.hub_us) / 1_000_000
        return f"nodes may still be reporting their counts; repeat the order in {left_s:.1f} s"
    return ""


def adopt(shard: LedgerShard, generation: str, hub_us: int) -> Adoption:
    """Ends the wait of a shard after a loss of data, if its data have the given `generation`.

    Returns the number of keys on which it ended the wait, or the reason why the order is refused.
    """
    problem = refusal(data_of(shard, hub_us), generation)
    if problem:
        return Adoption(problem, 0)
    shard.lost, shard.born_us, shard.adopted = True, ADOPTED_US, shard.adopted + 1
    waiting = [cell for cell in shard.cells.values() if cell.learn_until_us > 0]
    for cell in waiting:
        cell.learn_until_us = 0
    return Adoption("", len(waiting))


@dataclass(slots=True)
class Orders:
    """The orders to erase identities, as a hub stores them."""

    _at_us: dict[str, int] = field(default_factory=dict[str, int])
    """The moment of each order by its mark (the hash of the identity to erase), the oldest order first."""
    _latest_us: int = 0

    def give(self, marks: Sequence[str], hub_us: int) -> int:
        """Stores, for each mark (the hash of an identity), an order to erase that identity.

        Returns the moment of the last order, in microseconds of the hub's clock.
        """
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
    """Drops those of the keys `identities` that no live node has; returns how many were dropped, and how many stay."""
    dropped = kept = 0
    shard.recalls.kept.clear()  # these name keys, too; at worst, a node lacks something for a while
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
    """Drops all cells whose keys contain any of `names`, unless a live node has them, in one step.

    Returns how many were dropped, and how many stay.
    """
    wanted = set(names)
    found = [each for each in shard.cells if wanted.intersection(names_in(each[3]))]
    return Erased(0, *drop_keys(shard, found, hub_us), 0)


def _is_held(shard: LedgerShard, cell: LedgerCell, hub_us: int) -> bool:
    """Returns whether any node with a running lease has an entry for the key."""
    for name, entry in cell.entries.items():
        record = shard.nodes.get(name)
        if name == DEPARTED or record is None or record.gone:
            continue
        lease_us = min(record.lease_us, entry.lease_us) if entry.lease_us > 0 else record.lease_us
        if hub_us - max(entry.seen_us, record.seen_us) <= lease_us:
            return True
    return False
