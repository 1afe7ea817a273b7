"""Reads the settings that are published for a fleet, on one node, and has them be in force until they expire.

`Overrides` in the room `agent` applies them.
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
    """The state of published settings on one node; version 0 stands for the node's own settings."""

    capped: tuple[str, ...] = ()
    """Names of limits that keep to their cap, and not to all that is in force."""
    unfit: dict[str, str] = field(default_factory=dict[str, str])
    """Settings that do not fit this node, and why: by the name of a limit, or "sync_interval"."""


class SettingsReader(Reader[FleetSettings, SettingsStore]):
    """The reader of published settings.

    `apply` is called with the settings in force from now on; None if there are none.
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
        """A snapshot, without the fields that only the agent can fill in: what was overridden."""
        return FleetSettingsStats(**self._counted())

    async def follow(self, hub: Hub, *, cut_off: bool, timeout_s: float) -> None:
        """Look at the hub; and have the newest settings be in force exactly as long as they are valid."""
        self._follow_the_clock()
        await super().follow(hub, cut_off=cut_off, timeout_s=timeout_s)

    def _follow_the_clock(self) -> None:
        """Let go of what has expired, and take it back if it was the clock that had jumped."""
        newest, before = self._newest, self.in_force
        now = newest if newest is not None and newest.expires > self._now_s() else None
        if now is before:
            return
        try:
            self._apply(now)
        except Exception as error:  # noqa: BLE001  # tried again each time; and the next settings must be read
            self._fail_for(error, "published settings that have expired cannot be taken back")
            return
        self.in_force = now
        if now is not None:
            logger.info("reconverge: published settings (version %d) are in force", now.version)
        elif before is not None:
            logger.warning(
                "reconverge: published settings (version %d) have expired; back to this node's own", before.version
            )

    def _apply_whole(self, document: FleetSettings) -> None:
        """Apply a document; if that fails, those before apply again."""
        try:
            self._apply(document)
        except Exception:
            self._apply(self.in_force)
            raise

    def _store_in(self, hub: Hub) -> SettingsStore | None:
        return hub if isinstance(hub, SettingsStore) else None

    async def _read(self, store: SettingsStore) -> bytes | None:
        return await store.read(bytes_max=PAYLOAD_BYTES_MAX)

    async def _prepared(self, store: SettingsStore, document: FleetSettings, timeout_s: float) -> Callable[[], object]:  # noqa: ARG002  # all is there
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
        await asyncio.wait_for(store.post(payload, keep_s=keep_s), timeout_s)
        return True
