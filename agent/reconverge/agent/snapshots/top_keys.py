"""Finds the keys of a node that have used most of their limits; each search reads only some of the keys."""

# Theory of operation.
#
# A node may have 100,000 keys. To compute the exact use of a key takes 5 us, as that updates its counts under the lock,
# and a console may cost a node a hundredth of a core. So there are two steps. The first step reads the counts of the
# next SCANNED_MAX keys as they are, without the lock, in half a microsecond a key; it continues where the last search
# has stopped. The second step computes the exact use of the few keys that seem to have used most, and of those that had
# used most at the last search. A count that is out of date may be too high, but not too low, except in buckets that
# drain; so a full key is found when a round through all keys is complete, and denials name it earlier.

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import nlargest
from typing import Final, NamedTuple

from reconverge.agent.snapshots.snapshot import KEYS_MAX, TEXT_MAX, KeyUse
from reconverge.kernel import Cell, Reentry, Table
from reconverge.kernel.table.explain import peek_at

SCANNED_MAX: Final = 1000
"""The most keys that one search reads, which takes about half a millisecond."""
SETTLED_MAX: Final = 2 * KEYS_MAX
"""The most keys whose exact use one search computes."""


class _KeyPlace(NamedTuple):
    limit: str
    key: str


class TopKeys:
    """Finds the keys of one node that have used most of their limits."""

    def __init__(self) -> None:
        self._ahead: list[tuple[str, list[str]]] = []
        """The limits, each with its keys, that the present round through all keys has not read yet."""
        self._top: list[_KeyPlace] = []

    def look(self, tables: Mapping[str, Table], now_ns: int) -> list[KeyUse]:
        """Reads some more keys. Returns those found until now that have used most of their limits, the fullest first.

        Charges nothing, and adds no key to the node's counts.
        """
        seeming: list[tuple[float, str, str]] = []
        if not self._ahead:
            self._ahead = [(name, list(table.cells)) for name, table in tables.items()]
        left = SCANNED_MAX
        while self._ahead and left > 0:
            name, keys = self._ahead.pop()
            if len(keys) > left:
                self._ahead.append((name, keys[:-left]))
                keys = keys[-left:]
            left -= len(keys)
            if name in tables:
                seeming += [(part, name, key) for part, key in _seem_used(tables[name], keys)]
        fullest = [_KeyPlace(name, key) for _, name, key in nlargest(SETTLED_MAX, seeming)]
        found = [use for each in dict.fromkeys([*self._top, *fullest]) if (use := _use_of(tables, each, now_ns))]
        found.sort(key=lambda use: (-use.used / max(1, use.capacity), use.limit, use.key))
        self._top = [_KeyPlace(use.limit, use.key) for use in found[:KEYS_MAX]]
        return found[:KEYS_MAX]


def _seem_used(table: Table, keys: list[str]) -> Iterator[tuple[float, str]]:
    """Yields a pair for each of `keys`: the fraction of the limit that it has used, maybe out of date, and the key."""
    cell_of, capacity = table.cells.get, table.capacity
    window_ns = table.window_ns if table.meter.bucket else 0
    for key in keys:
        cell: Cell | None = cell_of(key)
        if cell is not None:
            own = cell.used + (cell.level // window_ns if window_ns else cell.previous)
            used = cell.fleet_used
            yield (max(used, own)) / capacity, key


def _use_of(tables: Mapping[str, Table], place: _KeyPlace, now_ns: int) -> KeyUse | None:
    table = tables.get(place.limit)
    if table is None or len(place.key) > TEXT_MAX:
        return None
    try:
        usage = table.lock.run(peek_at, table, place.key, now_ns)
    except Reentry:
        return None
    if usage is None or usage.total <= 0:
        return None
    return KeyUse(place.limit, place.key, usage.total, usage.limit)
