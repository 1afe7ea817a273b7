"""Statistics of the hub's answers: which keys are near their limit or above it, and how long answers took."""

# Theory of operation.
#
# The exchange loop gathers the statistics after it has applied an answer, so no decision waits for them.
#
# They also show whether another node declares a smaller quota under the same name: for a key that both nodes use, the
# hub grants no more than the smaller quota, and sends that in its answer. This is normal while a larger quota is rolled
# out node by node, or while published settings are on their way, so it is logged only if it lasts. A node with another
# window or algorithm cannot be noticed: the hub counts its keys separately, and no answer contains them.

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Container, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

from reconverge.hub.report import Answer, Batch, CellAnswer, Status
from reconverge.runtime.durations import Durations
from reconverge.runtime.log_throttle import LoggedOnce
from reconverge.settings import MILLION

if TYPE_CHECKING:
    from reconverge.kernel import Cell, Kernel

KEYS_ONCE: Final = 10_000
"""With so many keys, each decided about once, a warning is logged. Of a million clients that each ask at random, some
50 among 10,000 requests would have come twice."""
NEAR_SHARE: Final = 0.8
"""A key counts as near its limit when all nodes together have used this fraction (0 to 1) of the limit's quota."""
KEYS_SEEN_MAX: Final = 10_000
"""The most keys near their limit that the node remembers. When there are more, the node forgets all of them."""
SMALLER_GRACE_US: Final = 30_000_000
"""How long another node may declare a smaller quota for a limit before this node logs a warning, in microseconds of the
hub's clock."""
KEYS_REPORTED_MAX: Final = 100
DURATIONS_REPORTED_MAX: Final = 1000
"""The most durations of exchanges that wait for the hook dispatcher; further durations replace the oldest."""


@dataclass(slots=True)
class _SeenAnswers:
    """The record of a key near its limit: the window in which it came near, and how far it exceeded the capacity."""

    epoch: int
    excess: int = 0
    """The largest use beyond the capacity so far, in the integer units of the limit's table (`Table.unit` per cost of
    1)."""


BEYOND_CAP: Final = "all further keys of a limit share one count, and strict limits refuse them; raise max_keys"
logger = logging.getLogger("reconverge")


class AnswerStats:
    """Statistics of the hub's answers: how many keys are near their limits or above, and how long exchanges took."""

    def __init__(self) -> None:
        self.near: Counter[str] = Counter()
        self.over: Counter[str] = Counter()
        self.smaller: Counter[str] = Counter()
        """By limit, the number of answers about keys for which another node declares a smaller quota."""
        self._smaller_since_us: dict[str, tuple[int, int]] = {}
        """By limit, when the first and the latest answer that showed a smaller quota came, in microseconds of the hub's
        clock."""
        self._logged_smaller = LoggedOnce()
        """The limits for which a smaller quota of another node was logged already."""
        self.durations = Durations()
        self.near_keys: deque[tuple[str, str]] = deque(maxlen=KEYS_REPORTED_MAX)
        """The limit and key of each key that has come near its limit, until the hook dispatcher reads them."""
        self.refused_keys: deque[tuple[str, str]] = deque(maxlen=KEYS_REPORTED_MAX)
        """The limit and key of some refused requests, until the hook dispatcher reads them."""
        self.recent: deque[float] = deque(maxlen=DURATIONS_REPORTED_MAX)
        """The durations of the latest exchanges in seconds, until the hook dispatcher reads them."""
        self.has_hooks = False
        """Whether a hook dispatcher reads `refused_keys`, `near_keys` and `recent`."""
        self._logged_full = LoggedOnce()
        """Ensures that the warning about a full node, without room for another key, is logged once."""
        self._logged_keys = LoggedOnce()
        """Ensures that the warning about keys of one request each is logged once."""
        self._seen: dict[tuple[str, str], _SeenAnswers] = {}

    def forget(self, keys: Container[tuple[str, str]]) -> None:
        """Deletes the records of these keys; each key is paired with the name of its limit, as (limit, key)."""
        for known in [each for each in list(self._seen) if each in keys]:
            self._seen.pop(known, None)
        for queue in (self.near_keys, self.refused_keys):
            kept = [each for each in list(queue) if each not in keys]
            if len(kept) < len(queue):
                queue.clear()
                queue.extend(kept)

    def look_at_keys(self, kernel: Kernel) -> None:
        """Logs a warning if the node has no room for new keys, and one if keys never come again; each warning once."""
        self._look_at_room(kernel)
        self._look_at_repetition(kernel)

    def _look_at_room(self, kernel: Kernel) -> None:
        full = any(table.overflowed for table in list(kernel.tables.values()))
        if not full or not self._logged_full.is_new():
            return
        logger.warning(
            "reconverge: max_keys=%d keys are in use, and none of them can be evicted now; %s",
            kernel.keys_max,
            BEYOND_CAP,
            extra={"max_keys": kernel.keys_max},
        )

    def _look_at_repetition(self, kernel: Kernel) -> None:
        """Warns of a limit with many keys, about each of which it has decided exactly once.

        Its key function may return a new value with each request: an identifier, a time, an object's `repr`.
        """
        for table in list(kernel.tables.values()):
            keys = len(table.cells)
            if keys >= KEYS_ONCE and table.admitted + table.refused == keys and self._logged_keys.is_new():
                logger.warning(
                    "reconverge: the limit %r has decided about %d keys, and about none of them twice; if the key is"
                    " new with each request, as an identifier or an object's repr is, the limit limits nothing: use a"
                    " key that a client keeps, such as its user or its address",
                    table.name,
                    keys,
                )

    def answered(self, batch: Batch, answer: Answer, *, seconds: float) -> None:
        """Counts an answered exchange, which took `seconds`. The caller has already applied the answer to the keys."""
        self.durations.add(seconds)
        if self.has_hooks:
            self.recent.append(seconds)
        if answer.status is not Status.MERGED:
            return
        cells: Sequence[Cell] = getattr(batch.cells, "cells", ())
        if self.has_hooks:
            # By the limit's own name, which differs from the reported one if it is the quota of a plan in contracts.
            asking = ((cell, report.key) for cell, report in zip(cells, batch.cells, strict=False) if report.ask > 0)
            self.refused_keys.extend((cell.table.name, key) for cell, key in asking)
        answers: Sequence[CellAnswer] = ()
        for number, cell in enumerate(cells):
            table, capacity = cell.table, cell.capacity
            if capacity < table.capacity:
                self._see_smaller(cell, batch, answer.hub_us)
            nominal, used = table.nominal, cell.fleet_used
            if used < NEAR_SHARE * nominal and used < NEAR_SHARE * capacity:
                if self._seen:
                    self._seen.pop((table.name, cell.key), None)
                continue
            seen = self._see(cell)
            # Use under a region's earlier loans counts, too, and this node does not know how large they were.
            if table.region_ppm != MILLION:
                capacity = table.capacity
            if used > capacity:
                answers = answers or tuple(answer.cells)
                self._see_excess(cell, seen, ceil(used - answers[number].silent - capacity))

    def _see_smaller(self, cell: Cell, batch: Batch, hub_us: int) -> None:
        table = cell.table
        said = next((limit.capacity for limit in batch.limits if limit.name == table.name), 0)
        if cell.capacity >= said or table.region_ppm != MILLION:  # capacity changed meanwhile, or part is lent
            return
        self.smaller[table.name] += 1
        since_us, last_us = self._smaller_since_us.get(table.name, (hub_us, hub_us))
        since_us = hub_us if hub_us - last_us > SMALLER_GRACE_US else since_us
        self._smaller_since_us[table.name] = since_us, hub_us
        if hub_us - since_us < SMALLER_GRACE_US or not self._logged_smaller.is_new(table.name):
            return
        logger.warning(
            "reconverge: another node of this namespace declares the limit %r with a capacity of %d, and this node"
            " with %d; for keys that both nodes use, the smaller capacity applies. Declare the same capacity on all"
            " nodes, or rename the limit on one of them",
            table.name,
            cell.capacity // table.unit,
            said // table.unit,
            extra={"limit": table.name},
        )

    def _see(self, cell: Cell) -> _SeenAnswers:
        table = cell.table
        seen = self._seen.get((table.name, cell.key))
        if seen is None or (table.meter.aligned and seen.epoch != cell.epoch):
            if len(self._seen) >= KEYS_SEEN_MAX:
                self._seen.clear()
            seen = self._seen[table.name, cell.key] = _SeenAnswers(cell.epoch)
            if self.has_hooks:
                self.near_keys.append((table.name, cell.key))
            self.near[table.name] += 1  # after the key, so that a reader of the count finds the key
        return seen

    def _see_excess(self, cell: Cell, seen: _SeenAnswers, excess: int) -> None:
        unit = cell.table.unit
        if excess > seen.excess:
            self.over[cell.table.name] += -(-excess // unit) - -(-seen.excess // unit)
            seen.excess = excess
