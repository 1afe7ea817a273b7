"""Finds out, through the hub, whether all nodes of a namespace hash their keys with the same secret."""

# Theory of operation.
#
# The problem. Nodes with different secrets send the same key to the hub under different names, and so do nodes with a
# secret and nodes without one. The hub counts the names apart, so each group of nodes admits the whole limit, and no
# count looks wrong.
#
# Why the hub does not notice this. It sees only names, and any name may be a key.
#
# How it works. Each node leaves a mark at the hub: a fingerprint of its secret, or PLAIN. The hub keeps the first one
# for as long as a node renews it, and answers each node with the mark that it keeps. A node whose own mark is another
# one logs an error. This takes one small command in ten minutes, beside the exchanges.
from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from reconverge.clock import SECOND_NS, Clock
from reconverge.errors import HubUnavailable
from reconverge.hub.fallback.opening import hub_in_use
from reconverge.hub.hashing import MARK_BYTES, VARIABLE, KeyHasher
from reconverge.hub.port import Hub, KeyMarker

logger = logging.getLogger("reconverge")

PLAIN: Final = "plain"
"""The mark that a node without a secret stores at the hub, in place of a fingerprint of a secret."""
MARK_EVERY_NS: Final = 600 * SECOND_NS
"""The nanoseconds after which a node renews its mark, and checks whether the hub has another one."""
MARK_RETRY_NS: Final = 10 * SECOND_NS
"""The nanoseconds after which a node tries again to store its mark, if that failed, or if the node has stored it only
once: a hub keeps no mark before the first exchange."""
MARK_KEPT_S: Final = 3600.0
"""How many seconds a hub keeps a mark that no node renews. In this time after a change of secret, nodes log an
error."""


class KeyMarks:
    """Stores a mark (a fingerprint of this node's key secret) at the hub; logs an error if another one is there.

    The exchanges run it as a `Follower`. `hasher` is None on a node that hashes no keys. It sends nothing to a hub that
    is no `KeyMarker`.
    """

    brief = True
    """True: each call of `follow` sends the hub one small question."""

    def __init__(self, hasher: KeyHasher | None, clock: Clock) -> None:
        self._mark = PLAIN if hasher is None else hasher.mark
        self._clock = clock
        self._other = ""
        """The other mark that was found at the hub last; empty if the hub had this node's own."""
        self._answers = 0
        self.start_over()

    def start_over(self) -> None:
        self._next_ns = self._clock.monotonic_ns()

    def due_ns(self) -> int:
        return self._next_ns

    async def follow(self, hub: Hub, *, cut_off: bool, timeout_s: float) -> None:
        now_ns = self._clock.monotonic_ns()
        at = hub_in_use(hub, 0)
        self._next_ns = now_ns + (MARK_RETRY_NS if isinstance(at, KeyMarker) else MARK_EVERY_NS)
        if cut_off or not isinstance(at, KeyMarker):
            return
        # Exchanges log a hub that does not answer; this one is asked again soon.
        with contextlib.suppress(HubUnavailable, TimeoutError):
            async with asyncio.timeout(timeout_s):
                found = await at.mark_keys(self._mark, keep_s=MARK_KEPT_S)
            self._answers += 1
            if self._answers > 1:
                self._next_ns = now_ns + MARK_EVERY_NS
            if found not in (self._mark, self._other):
                self._log(found)
            self._other = "" if found == self._mark else found

    def _log(self, found: str) -> None:
        other = "another" if self._mark != PLAIN else "a"
        theirs = f"hash keys with {other} secret ({found[: 2 * MARK_BYTES]} at the hub)"
        logger.error(
            "reconverge: other nodes %s, and this node %s: they count the same keys apart, and each group of nodes"
            " admits the whole limit; give all nodes the same %s",
            "send keys to the hub as they are, without a secret" if found == PLAIN else theirs,
            "hashes none" if self._mark == PLAIN else f"hashes them with the secret {self._mark}",
            VARIABLE,
        )
