"""Stores the keys of which one node lacks capacity while others hold it unused, so that these learn of the need."""

# Theory of operation.
#
# The problem. A node reports nothing about a key for seconds while it holds several times what it needs
# (`kernel/reporting/silence.py`). If traffic moves to another node meanwhile, that node lacks what the silent one
# holds. The hub only answers batches, so it cannot ask for it.
#
# How it works. If a merge grants less than a node needs, while others hold more than they need, the hub recalls the
# key: it notes it, and the next answer to each other node contains all keys noted since that node's previous batch,
# with the needs of all nodes;
# and a node that holds something of such a key reports it as soon as it may exchange. Even a node with nothing to
# report sends a batch each second. A recall whose answer is lost is noted again an interval later, if the lack lasts;
# until then requests are refused that fit, and nothing is admitted that does not.
#
# A key is noted once in an interval at most. Of a shard's keys, the RECALLS_MAX that were noted last are kept, for
# RECALLED_FOR_US, which is longer than any node is silent. All nodes hear of a key, and not only those that hold some
# of it: to find those, a merge would have to read the entries of all nodes, while all others wait.

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from reconverge.hub.headroom import NEED_MARGIN, REQUESTS_MIN
from reconverge.hub.report import Batch, CellReport, Recall
from reconverge_sync.merge.asking import HubAsk
from reconverge_sync.merge.ledger import Entry, LedgerCell, LimitRule

RECALLS_MAX: Final = 64
RECALLED_FOR_US: Final = 10_000_000
"""For how many microseconds a recall is kept."""
NEEDS_LACKED: Final = 4
"""A node lacks capacity if it may use less than this many times the cost that is expected until its next exchange."""
SURPLUS: Final = 0.25
"""A key is recalled if the other nodes hold, beyond their own needs, all that a node lacks, or this fraction of what
they hold."""


class KeptRecall(NamedTuple):
    """A key that nodes have to report because another node, `node`, lacks its capacity, and when the hub noted that."""

    noted_us: int
    node: str
    recall: Recall


@dataclass(slots=True)
class Recalls:
    """The keys that nodes of one shard shall report, as another node lacks their capacity; the latest last."""

    kept: dict[tuple[str, str], KeptRecall] = field(default_factory=dict)

    def look(
        self,
        cell: LedgerCell,
        entry: Entry,
        batch: Batch,
        report: CellReport,
        rule: LimitRule,
        hub_us: int,
        asked: HubAsk | None,
    ) -> None:
        """Notes the key of `report` if the node of `batch` lacks what other nodes hold; called after each merge."""
        if not lacks(cell, entry, batch, report, rule, hub_us, asked):
            return
        name = batch.limits[report.limit].name
        before = self.kept.get((name, report.key))
        if before is not None and hub_us - before.noted_us < rule.pace_us(batch):
            return
        self.kept.pop((name, report.key), None)
        self.kept[name, report.key] = KeptRecall(hub_us, batch.node, Recall(name, report.key, cell.needs_milli))
        while len(self.kept) > RECALLS_MAX or hub_us - next(iter(self.kept.values())).noted_us > RECALLED_FOR_US:
            del self.kept[next(iter(self.kept))]

    def since(self, seen_us: int, node: str) -> tuple[Recall, ...]:
        """Returns the recalls noted at `seen_us` or later, except those of `node` itself."""
        return tuple(each.recall for each in self.kept.values() if each.noted_us >= seen_us and each.node != node)


def lacks(
    cell: LedgerCell, entry: Entry, batch: Batch, report: CellReport, rule: LimitRule, hub_us: int, asked: HubAsk | None
) -> bool:
    """Returns whether a node lacks, after a merge, what other nodes hold and do not need."""
    if batch.leaving or report.forgotten or not rule.bounded or rule.dated or rule.slots:
        return False
    if cell.capacity < REQUESTS_MIN * cell.active:
        return False  # no node is silent
    used = entry.used(rule, cell, hub_us)
    if asked is not None:
        lacked_milli = 1000.0 * (report.waiting - asked.granted)
    else:
        # Requests that ask about a fixed window leave their node no more than its need, however much is free.
        times = 0 if report.asks and rule.fixed else NEEDS_LACKED
        expected_milli = NEED_MARGIN * report.demand_milli * rule.pace_us(batch) / 1_000_000
        wanted_milli = max(float(max(entry.need_milli, 1000 * entry.ask)), times * expected_milli)
        lacked_milli = wanted_milli - 1000 * (entry.allowance - used) if entry.need_milli + entry.ask > 0 else 0.0
    if lacked_milli <= 0:
        return False
    # The sums contain this node. Its headroom may be negative.
    held_milli = 1000 * (cell.allowances - entry.allowance - cell.used(rule, hub_us) + used)
    return held_milli - (cell.needs_milli - entry.need_milli) >= min(lacked_milli, SURPLUS * held_milli)
