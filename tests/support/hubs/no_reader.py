"""A hub without any of the optional ports."""

from __future__ import annotations

from reconverge.hub.report import Answer, Batch, Totals
from reconverge_sync.memory import MemoryHub


class NoReader:
    """A hub with the methods that a hub must have, and no others."""

    shards = 1

    def __init__(self) -> None:
        self._hub = MemoryHub()

    async def exchange(self, batch: Batch) -> Answer:
        return await self._hub.exchange(batch)

    async def totals(self) -> dict[str, Totals]:
        return await self._hub.totals()

    async def close(self) -> None:
        """Does nothing."""
