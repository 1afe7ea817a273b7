"""Finds out, through the hub, whether all nodes of a namespace count the same keys together."""

# Theory of operation.
#
# The problem. Nodes with different secrets send the same key to the hub under different names, and so do nodes with a
# secret and nodes without one. The hub counts the names apart, so each group of nodes admits the whole limit, and no
# count looks wrong. So it is with nodes that declare a limit of one name with different windows or algorithms.
#
# Why the hub does not notice this. It sees only names, and any name may be a key. Counts with other windows may also be
# those of nodes that have ended.
#
# How it works. Each node leaves marks at the hub: a fingerprint of its secret, or PLAIN, and the terms of each limit.
# The hub keeps the first one for as long as a node renews it, and answers each node with the mark that it keeps. A node
# whose own mark is another one logs that. This takes one small command for each in ten minutes, beside the exchanges.
#
# Tiers of one limit (`table/tiers.py`) may differ in their windows, so they have no marks.
from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from reconverge.clock import NEVER_NS, SECOND_NS, Clock
from reconverge.errors import HubUnavailable, shown
from reconverge.hub.fallback.opening import hub_in_use
from reconverge.hub.hashing import MARK_BYTES, VARIABLE, KeyHasher
from reconverge.hub.port import Hub, KeyMarker
from reconverge.hub.report import cells_of
from reconverge.kernel import Kernel, Table
from reconverge.settings import MILLION

logger = logging.getLogger("reconverge")

PLAIN: Final = "plain"
"""The mark that a node without a secret stores at the hub, in place of a fingerprint of a secret."""
MARK_EVERY_NS: Final = 600 * SECOND_NS
"""The nanoseconds after which a node renews its mark, and checks whether the hub has another one."""
MARK_RETRY_NS: Final = 10 * SECOND_NS
"""The nanoseconds after which a node tries again to store its marks if that failed, and after which it reads each for
the second time: of two marks that are stored at once a broker keeps the later one."""
MARK_KEPT_S: Final = 3600.0
"""How many seconds a hub keeps a mark that no node renews. In this time after a change of secret or of a limit's
window, nodes log the difference."""


class KeyMarks:
    """Stores marks (of this node's key secret, and of its limits) at the hub; logs other ones that are there.

    The exchanges run it as a `Follower`. `hasher` is None on a node that hashes no keys. It sends nothing to a hub that
    is no `KeyMarker`.
    """

    brief = True
    """True: each call of `follow` sends the hub one small question."""

    def __init__(self, hasher: KeyHasher | None, kernel: Kernel, clock: Clock) -> None:
        self._mark = PLAIN if hasher is None else hasher.mark
        self._kernel = kernel
        self._clock = clock
        self._others: dict[str, str] = {}
        """The last mark that was found at the hub, by limit; of the secret under ""."""
        self._again_ns: dict[str, int] = {}
        """When the node renews a mark that is at the hub, by limit."""
        self._left: list[tuple[str, str]] = []
        """The limits whose marks are due now, with these marks."""
        self.start_over()

    def start_over(self) -> None:
        self._next_ns = self._clock.monotonic_ns()
        self._declared = 0

    def due_ns(self) -> int:
        return self._next_ns if self._declared == len(self._kernel.tables) else -NEVER_NS

    async def follow(self, hub: Hub, *, cut_off: bool, timeout_s: float) -> None:
        now_ns = self._clock.monotonic_ns()
        at = hub_in_use(hub, 0)
        marker = at if isinstance(at, KeyMarker) else None
        self._left = self._left or self._due(now_ns)
        self._next_ns = now_ns + (MARK_EVERY_NS if marker is None else MARK_RETRY_NS)
        if cut_off or marker is None:
            self._left = []
            return
        if not self._left:
            self._next_ns = min(self._again_ns.values(), default=self._next_ns)
            return
        limit, mark = self._left.pop()
        # Exchanges log a hub that does not answer; this one is asked again soon.
        with contextlib.suppress(HubUnavailable, TimeoutError):
            async with asyncio.timeout(timeout_s):
                found = await marker.mark_keys(mark, keep_s=MARK_KEPT_S, limit=limit)
            self._again_ns[limit] = now_ns + (MARK_EVERY_NS if limit in self._again_ns else MARK_RETRY_NS)
            if found not in (mark, self._others.get(limit)):
                self._log(limit, mark, found)
            self._others[limit] = found
            self._next_ns = now_ns + 1 if self._left else min(self._again_ns.values())

    def _due(self, now_ns: int) -> list[tuple[str, str]]:
        """Returns the limits whose marks are to be stored or renewed now, with these marks; "" for the secret."""
        tables = list(self._kernel.tables.values())
        self._declared = len(tables)
        for kept in (self._again_ns, self._others):
            for dropped in kept.keys() - self._kernel.tables.keys() - {""}:
                del kept[dropped]
        due = [table for table in tables if table.name == table.reported_as and self._is_due(table.name, now_ns)]
        secret = [("", self._mark)] if self._is_due("", now_ns) else []
        return [(table.name, self._terms(table)) for table in due] + secret

    def _is_due(self, limit: str, now_ns: int) -> bool:
        return self._again_ns.get(limit, 0) <= now_ns

    def _terms(self, table: Table) -> str:
        _, algorithm, window_us, variant = cells_of(self._kernel.declared(table, 0))
        return f"{algorithm}, {window_us / MILLION:.15g} s" + (variant and f", {variant}")

    def _log(self, limit: str, mark: str, found: str) -> None:
        if limit:
            logger.warning(
                "reconverge: other nodes declare the limit %r with %s, or have done so within the last hour, and this"
                " node with %s: they count the same keys apart, and each group of nodes admits the whole limit; declare"
                " it with one algorithm and window on all nodes, or give one of the two another name",
                limit,
                shown(found),
                shown(mark),
            )
            return
        other = "another" if mark != PLAIN else "a"
        theirs = f"hash keys with {other} secret ({found[: 2 * MARK_BYTES]} at the hub)"
        logger.error(
            "reconverge: other nodes %s, and this node %s: they count the same keys apart, and each group of nodes"
            " admits the whole limit; give all nodes the same %s",
            "send keys to the hub as they are, without a secret" if found == PLAIN else theirs,
            "hashes none" if mark == PLAIN else f"hashes them with the secret {mark}",
            VARIABLE,
        )
