"""Finds out whether the hub's server may evict counts, so that limits are exceeded and no count looks wrong."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from reconverge.clock import NEVER_NS, SECOND_NS, Clock
from reconverge.errors import HubUnavailable
from reconverge.hub.fallback.opening import hub_in_use
from reconverge.hub.port import Evicting, Hub

logger = logging.getLogger("reconverge")

READ_EVERY_NS: Final = 600 * SECOND_NS
"""The nanoseconds after which the server's setting is read again, as an operator may change it."""


class EvictionCheck:
    """Reads how the hub's server evicts keys; logs each setting by which it may evict the hub's, once.

    The exchanges run it as a `Follower`. It sends nothing to a hub that is not `Evicting`.
    """

    brief = True
    """True: each call of `follow` sends the hub one small question."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logged = ""
        self.start_over()

    def start_over(self) -> None:
        # A second later, the first exchanges, for which requests may wait, are over.
        self._next_ns = self._clock.monotonic_ns() + SECOND_NS

    def due_ns(self) -> int:
        return self._next_ns

    async def follow(self, hub: Hub, *, cut_off: bool, timeout_s: float) -> None:
        self._next_ns = self._clock.monotonic_ns() + READ_EVERY_NS
        at = hub_in_use(hub, 0)
        if cut_off or not isinstance(at, Evicting):
            return
        try:
            async with asyncio.timeout(timeout_s):
                setting = await at.evicts()
        except (HubUnavailable, TimeoutError) as error:
            # Exchanges log a hub that does not answer. A user without the right would only fill the server's log of
            # denials: `reconverge doctor` names the missing right.
            if isinstance(error, HubUnavailable) and error.kind == "permission":
                self._next_ns = NEVER_NS
            return
        if setting and setting != self._logged:
            logger.warning(
                "reconverge: the server of the hub has %s, so when its memory runs short it forgets counts, and limits"
                " are exceeded; write CONFIG SET maxmemory-policy noeviction, or give the hub a server of its own",
                setting,
            )
        self._logged = setting
