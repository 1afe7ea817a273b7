"""Hubs in memory with one fault each in their stores of settings, contracts or snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconverge_sync.memory import MemoryHub


class Cached(MemoryHub):
    """Returns for ever what it has read once."""

    first: bytes | None = None

    async def read(self, *, bytes_max: int) -> bytes | None:
        """Returns the first settings that were read."""
        self.first = self.first or await super().read(bytes_max=bytes_max)
        return self.first


class CutSettings(MemoryHub):
    """Cuts settings that are too long, in place of an error."""

    async def read(self, *, bytes_max: int) -> bytes | None:
        read = await super().read(bytes_max=bytes_max)
        return None if read is None else read[:bytes_max]


class Empty(MemoryHub):
    """Treats nothing and an empty text as the same."""

    async def read(self, *, bytes_max: int) -> bytes | None:
        """Returns a text, never None."""
        return await super().read(bytes_max=bytes_max) or b""


class Unconditional(MemoryHub):
    """Replaces an index even if another writer has changed it since it was read."""

    async def swap_index(self, payload: bytes, *, over: bytes | None, bytes_max: int, keep_s: float) -> bool:
        """Replaces the index, and returns True."""
        read = await super().read_index(bytes_max=bytes_max)
        return await super().swap_index(payload, over=read, bytes_max=bytes_max, keep_s=keep_s)


class CutPages(MemoryHub):
    """Cuts pages that are too long, in place of an error."""

    async def get_page(self, digest: str, *, bytes_max: int) -> bytes | None:
        page = await super().get_page(digest, bytes_max=bytes_max)
        return None if page is None else page[:bytes_max]


class KnowsAllPages(MemoryHub):
    """Reports that no page is missing."""

    async def keep_pages(self, digests: Any, *, keep_s: float) -> list[str]:
        """Returns an empty list."""
        await super().keep_pages(digests, keep_s=keep_s)
        return []


class Endless(MemoryHub):
    """Keeps data that have expired."""

    async def leave_snapshot(self, name: str, payload: bytes, *, keep_s: float) -> bool:
        return await super().leave_snapshot(name, payload, keep_s=1000 * keep_s)


class Open(MemoryHub):
    """Takes snapshots although no console is open."""

    async def leave_snapshot(self, name: str, payload: bytes, *, keep_s: float) -> bool:
        await self.watch(keep_s=1.0)
        return await super().leave_snapshot(name, payload, keep_s=keep_s)


class Closing(MemoryHub):
    """Lets a second console end the time of the first one."""

    async def watch(self, *, keep_s: float) -> None:
        self._board._until_us = 0
        await super().watch(keep_s=keep_s)


class CutSnapshots(MemoryHub):
    """Keeps only the beginning of a snapshot."""

    async def snapshots(self) -> Mapping[str, bytes]:
        return {name: payload[:100] for name, payload in (await super().snapshots()).items()}
