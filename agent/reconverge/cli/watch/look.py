"""Reads the state of a fleet from its hub, once, as rows by limit, by node or by key."""

# Theory of operation.
#
# A hub has the totals of each limit, the number of live nodes, and, if nodes meter usage, the load of each node and the
# use of each identity in the present minute. A look reads only these, and asks no node. Totals only rise, so two looks
# give a rate: the charges between them, divided by the time between them by this machine's clock. A hub that has lost
# its data begins anew, with totals below those of the look before; then there is no rate until the next look.
#
# The hub bounds the number of rows that are read, and `most` the number that are shown: the largest rows.

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconverge.cli.shared.tables import Row
from reconverge.clock import SECOND_NS, Clock
from reconverge.errors import InvalidSetting, asked
from reconverge.hub.port import Adoptable, Hub, UsageHub
from reconverge.hub.report import Totals
from reconverge.hub.usage import MINUTE
from reconverge.usage.periods import period_at
from reconverge.usage.reading import fleet_load
from reconverge.usage.reading import totals as usage_totals

LIMIT: Final = "limit"
NODE: Final = "node"
KEY: Final = "key"
VIEWS: Final = (LIMIT, NODE, KEY)
NO_METER: Final = "nothing is metered: add a meter of reconverge.usage to the nodes, see docs/guide/usage.md"


@dataclass(frozen=True, slots=True)
class WatchLook:
    """The state of a fleet at one moment, as its hub has it, in rows by limit, by node or by key."""

    by: str
    taken_s: float
    """The moment of the look by the monotonic clock, in seconds."""
    nodes: int | None
    """The number of live nodes that have reported; None if the hub does not name it."""
    rows: Sequence[Mapping[str, Any]]
    """The rows, the largest first, `most` at most; all with the same columns."""
    left_out: int
    """The number of rows that are not shown."""
    totals: Mapping[str, Totals]
    """The totals of all limits, for the rates of the next look; empty unless `by` is "limit"."""
    remark: str = ""
    """The reason why there are no rows, if the user can change that; else empty."""

    def as_json(self, wall_s: float) -> dict[str, Any]:
        """Returns this state as an object for `--json`."""
        return {
            "at": round(wall_s, 3),
            "by": self.by,
            "nodes": self.nodes,
            "rows": [dict(row) for row in self.rows],
            "left_out": self.left_out,
        }

    def table(self) -> tuple[Row, list[Row]]:
        """Returns the headings of the columns, and the rows as texts."""
        heads = tuple(self.rows[0]) if self.rows else ()
        return heads, [tuple(_shown(value) for value in row.values()) for row in self.rows]


def check_view(by: str) -> None:
    """Raises InvalidSetting unless rows can be made by `by`: limit, node or key."""
    if by not in VIEWS:
        raise InvalidSetting("--by", by, f"must be {', '.join(VIEWS)}{asked(by, VIEWS)}")


async def look(hub: Hub, clock: Clock, *, by: str, most: int, before: WatchLook | None = None) -> WatchLook:
    """Reads the state of a fleet from its hub. Raises HubUnavailable.

    `before` is the state that was read before: charges per second are computed from the difference.
    """
    taken_s = time.monotonic()
    nodes = await live_nodes(hub)
    totals: Mapping[str, Totals] = {}
    if by == LIMIT:
        totals = await hub.totals()
        rows = limit_rows(totals, before, taken_s)
    elif not isinstance(hub, UsageHub):
        return WatchLook(by, taken_s, nodes, (), 0, totals, "this hub does not add usage up")
    elif by == NODE:
        rows = [
            {"node": each.node, "requests/s": each.requests_per_s, "cost/s": each.cost_per_s}
            for each in await fleet_load(hub.usage)
        ]
    else:
        period = period_at(MINUTE, clock.wall_ns() / SECOND_NS)
        used = await usage_totals(hub.usage, period, by=("identity",))
        rows = [{"key": key.identity, **counts._asdict()} for key, counts in used.items()]
    return WatchLook(by, taken_s, nodes, *_largest(rows, most), totals, NO_METER if not rows and by != LIMIT else "")


async def live_nodes(hub: Hub) -> int | None:
    """Returns how many live nodes have reported to any shard; None if the hub does not report that.

    Raises HubUnavailable.
    """
    found: object = hub
    if not isinstance(found, Adoptable):
        return None
    return max([(await found.data(shard)).nodes for shard in range(found.shards)])


def limit_rows(
    totals: Mapping[str, Totals], before: WatchLook | None = None, now_s: float = 0.0
) -> list[dict[str, Any]]:
    """Returns a row for each limit: its charges, and its charges per second between `before` and `now_s`.

    The rate is None without a state `before`, or if the charges have fallen since, as after a loss of data.
    """
    rows = list[dict[str, Any]]()
    for name, total in totals.items():
        former = None if before is None else before.totals.get(name)
        rate = None
        if before is not None and former is not None and total.charged >= former.charged:
            rate = round((total.charged - former.charged) / max(now_s - before.taken_s, 1e-3), 1)
        rows.append({"limit": name, "charged/s": rate, "charged": total.charged, "given back": total.refunded})
    return rows


def _largest(rows: Sequence[Mapping[str, Any]], most: int) -> tuple[list[Mapping[str, Any]], int]:
    """Returns the `most` largest rows, compared column by column, and how many rows are left out."""
    shown = heapq.nlargest(most, rows, key=lambda row: tuple(value or 0 for value in list(row.values())[1:]))
    return shown, len(rows) - len(shown)


def _shown(value: object) -> str:
    return "-" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)
