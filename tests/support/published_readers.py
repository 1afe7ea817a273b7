"""Nodes that read published documents of each kind, at a hub to which any client may write."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import Any

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.contracts.store import index as contracts_index
from reconverge.contracts.store.index import INDEX, Index, seal_index
from reconverge.contracts.store.reader import ContractsReader
from reconverge.published import settings
from reconverge.published.envelope import Rejection, Secrets, Verifier
from reconverge.published.reader import Reader, ReaderStats
from reconverge.published.settings_reader import SettingsReader
from reconverge_sync.memory import MemoryHub
from tests.support.kept_contracts import INTERVAL_S, book_at, shop
from tests.support.published import HOUR_S, NOON, SECRET, orders, sealed


class TroubledHub(MemoryHub):
    """A hub that fails when its test orders it."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.manual = clock
        self.reads = 0
        self.slow_s = 0.0
        self.read_problem: Exception | None = None
        self.post_problem: Exception | None = None

    def _read_anything(self) -> None:
        self.reads += 1
        self.manual.advance(self.slow_s)
        if self.read_problem is not None:
            raise self.read_problem

    async def read(self, *, bytes_max: int) -> bytes | None:
        """Reads as a hub in memory, or raises an error."""
        self._read_anything()
        return await super().read(bytes_max=bytes_max)

    async def read_index(self, *, bytes_max: int) -> bytes | None:
        self._read_anything()
        return await super().read_index(bytes_max=bytes_max)

    async def post(self, payload: bytes, *, keep_s: float) -> None:
        if self.post_problem is not None:
            raise self.post_problem
        await super().post(payload, keep_s=keep_s)

    async def swap_index(self, payload: bytes, *, over: bytes | None, bytes_max: int, keep_s: float) -> bool:
        if self.post_problem is not None:
            raise self.post_problem
        return await super().swap_index(payload, over=over, bytes_max=bytes_max, keep_s=keep_s)


class ReadingNode:
    """A reader of one kind of document, and the versions that it has received."""

    magic: bytes
    reader: Reader[Any, Any]

    def __init__(self, hub: TroubledHub | None = None) -> None:
        self.hub = hub or TroubledHub(ManualClock(start=NOON))
        self.clock = self.hub.manual
        self.applied: list[int | None] = []
        self.unfit = 0
        """A version that it cannot apply."""

    def _apply(self, version: int | None) -> None:
        if version is not None and version == self.unfit:
            raise ZeroDivisionError
        self.applied.append(version)

    def document(self, version: int = 1, secret: str = SECRET, **stamp: Any) -> bytes:
        """Returns a document that is valid for an hour."""
        raise NotImplementedError

    def put(self, payload: bytes | None) -> None:
        """Puts a payload at the hub, as any client could."""
        raise NotImplementedError

    def at_hub(self) -> bytes | None:
        """Returns the payload at the hub."""
        raise NotImplementedError

    @property
    def stats(self) -> ReaderStats:
        stats: ReaderStats = self.reader.stats()  # type: ignore[attr-defined]  # each kind has its own
        return stats

    def look(self, after_s: float = INTERVAL_S, *, cut_off: bool = False, hub: Any = None) -> None:
        """Lets some time pass, and does all that is due."""
        self.clock.advance(after_s)
        if self.reader.due_ns() <= self.clock.monotonic_ns():
            asyncio.run(self.reader.follow(hub or self.hub, cut_off=cut_off, timeout_s=5.0))

    def reads(self, payload: bytes | None, after_s: float = INTERVAL_S) -> None:
        """Reads the hub with this payload."""
        self.put(payload)
        self.look(after_s)

    @property
    def wait_s(self) -> float:
        """Returns the seconds until it looks again."""
        return (self.reader.due_ns() - self.clock.monotonic_ns()) / SECOND_NS


class SettingsNode(ReadingNode):
    magic = settings.MAGIC

    def __init__(self, hub: TroubledHub | None = None) -> None:
        super().__init__(hub)
        self.reader = SettingsReader(
            Verifier(settings.SETTINGS, "shop", Secrets(SECRET)),
            self.clock,
            interval_ns=lambda: round(INTERVAL_S * SECOND_NS),
            apply=lambda said: self._apply(None if said is None else said.version),
            random=Random(1),
        )

    def document(self, version: int = 1, secret: str = SECRET, **stamp: Any) -> bytes:
        return sealed(orders(version, **stamp), secret)

    def put(self, payload: bytes | None) -> None:
        self.hub._posted = None if payload is None else (payload, 1 << 62)

    def at_hub(self) -> bytes | None:
        return None if self.hub._posted is None else self.hub._posted[0]


class ContractsNode(ReadingNode):
    """A node that reads contracts, none of whose pages are missing."""

    magic = contracts_index.MAGIC

    def __init__(self, hub: TroubledHub | None = None) -> None:
        super().__init__(hub)
        self.reader = ContractsReader(
            Verifier(INDEX, "shop", Secrets(SECRET)),
            self.clock,
            interval_ns=lambda: round(INTERVAL_S * SECOND_NS),
            apply=lambda version, _: self._apply(version),
            random=Random(1),
        )
        if self.hub._index is None:
            asyncio.run(book_at(self.hub, self.clock).replace(shop(ada="free"), author="root"))
        assert self.hub._index is not None
        index = INDEX.opened(self.hub._index[0], Secrets(SECRET), "shop")
        assert not isinstance(index, Rejection)
        self._index: Index = index
        self.put(None)
        self.hub.reads = 0

    def document(self, version: int = 1, secret: str = SECRET, **stamp: Any) -> bytes:
        issued, lifetime = stamp.get("issued", NOON), stamp.get("lifetime", HOUR_S)
        namespace = stamp.get("namespace", "shop")
        said = {"version": version, "namespace": namespace, "issued": issued, "expires": issued + lifetime}
        return seal_index(replace(self._index, **said), Secrets(secret))

    def put(self, payload: bytes | None) -> None:
        self.hub._index = None if payload is None else (payload, 1 << 62)

    def at_hub(self) -> bytes | None:
        return None if self.hub._index is None else self.hub._index[0]
