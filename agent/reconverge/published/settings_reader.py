"""Reads the published settings of a fleet on one node, and keeps them in force until they expire.

`Overrides` in the package `agent` applies them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from reconverge.clock import Clock
from reconverge.hub.port import Hub, SettingsStore
from reconverge.published.envelope import PAYLOAD_BYTES_MAX, Verifier
from reconverge.published.reader import Reader, ReaderStats
from reconverge.published.settings import FleetSettings

logger = logging.getLogger("reconverge")


@dataclass(frozen=True, slots=True)
class FleetSettingsStats(ReaderStats):
    """The state of the published settings on one node.

    Version 0 means that only the node's own settings are in force.
    """

    capped: tuple[str, ...] = ()
    """The names of limits whose published value is bounded by their cap."""
    unfit: dict[str, str] = field(default_factory=dict[str, str])
    """The reasons why published settings cannot apply on this node, by name of a limit; or under "sync_interval"."""


class SettingsReader(Reader[FleetSettings, SettingsStore]):
    """Reads the published settings of a fleet on one node.

    `apply` is called with published settings when they come into force, and with None when they have expired.
    """

    what = "settings"

    def __init__(
        self,
        verifier: Verifier[FleetSettings],
        clock: Clock,
        *,
        interval_ns: Callable[[], int],
        apply: Callable[[FleetSettings | None], None],
        random: Random | None = None,
    ) -> None:
        super().__init__(verifier, clock, interval_ns=interval_ns, random=random)
        self._apply = apply

    def stats(self) -> FleetSettingsStats:
        """Returns a snapshot of the counters, without `capped` and `unfit`, which only the agent can fill in."""
        return FleetSettingsStats(**self._counted())

    async def follow(self, hub: Hub, *, cut_off: bool, timeout_s: float) -> None:
        """Stops applying settings that have expired, and then reads the settings at the hub if a read is due."""
        self._follow_the_clock()
        await super().follow(hub, cut_off=cut_off, timeout_s=timeout_s)

    def _follow_the_clock(self) -> None:
        newest, before = self._newest, self.in_force
        now = newest if newest is not None and newest.expires > self._now_s() else None
        if now is before:
            return
        try:
            self._apply(now)
        except Exception as error:  # noqa: BLE001  # tried again each time; and newer settings must be read
            self._fail_for(error, "expired settings cannot be removed")
            return
        self.in_force = now
        if now is not None:
            logger.info("reconverge: published settings (version %d) are in force", now.version)
        elif before is not None:
            logger.warning(
                "reconverge: published settings (version %d) have expired; this node's own settings are in force again",
                before.version,
            )

    def _apply_whole(self, document: FleetSettings) -> None:
        """Applies published settings; if that fails, applies the settings before them again, and raises the error."""
        try:
            self._apply(document)
        except Exception:
            self._apply(self.in_force)
            raise

    def _store_in(self, hub: Hub) -> SettingsStore | None:
        return hub if isinstance(hub, SettingsStore) else None

    async def _read(self, store: SettingsStore) -> bytes | None:
        return await store.read(bytes_max=PAYLOAD_BYTES_MAX)

    async def _prepared(self, store: SettingsStore, document: FleetSettings, timeout_s: float) -> Callable[[], object]:  # noqa: ARG002  # there are no further parts
        return partial(self._apply_whole, document)

    async def _post(
        self,
        store: SettingsStore,
        payload: bytes,
        *,
        over: bytes | None,  # noqa: ARG002  # a store has no swap
        keep_s: float,
        timeout_s: float,
    ) -> bool:
        async with asyncio.timeout(timeout_s):
            await store.post(payload, keep_s=keep_s)
        return True
