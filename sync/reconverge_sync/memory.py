"""A hub in this process's memory: for tests, for simulations, and for several agents in one process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from secrets import token_hex

from reconverge.clock import MICROSECOND_NS, SECOND_NS, Clock, SystemClock
from reconverge.hub.adopting import Adoption, HubData
from reconverge.hub.erasing import Erased, Erasures
from reconverge.hub.port import IndexHints
from reconverge.hub.reading import KeyQuestion, KeyReadings
from reconverge.hub.report import Answer, Batch, Lent, Loan, Totals, Wishes, add_totals
from reconverge.hub.usage import (
    ROWS_MAX,
    AddressReport,
    ExportLease,
    ExportMarks,
    NodeLoad,
    Period,
    Recorded,
    UsageBatch,
    UsageEvent,
    UsageKey,
    UsageRow,
)
from reconverge.runtime.locks import new_lock
from reconverge_sync.board import Board
from reconverge_sync.merge.addresses import AddressShard
from reconverge_sync.merge.orders import Orders, adopt, data_of, drop_keys, erase_keys
from reconverge_sync.merge.reading import check_questions, identity_of, read_keys
from reconverge_sync.merge.rule import CELLS_MAX, LedgerShard
from reconverge_sync.merge.usage import UsageShard


class MemoryHub:
    """A hub in this process's memory. Its methods fail only if a call has too many questions about keys.

    `clock` is the hub's own clock; `new_name` makes names for generations of its data; each shard keeps up to
    `max_cells` keys.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        shards: int = 1,
        new_name: Callable[[], str] = lambda: token_hex(8),
        max_cells: int = CELLS_MAX,
    ) -> None:
        self._clock = clock or SystemClock()
        self._lock = new_lock(whole=True)
        """A lock, held while the hub's data change, because each agent of a process exchanges in a thread of its own.
        """
        self._new_name = new_name
        self._max_cells = max_cells
        self._shards = [LedgerShard(generation=new_name(), cells_max=max_cells) for _ in range(shards)]
        self._posted: tuple[bytes, int] | None = None
        """The published settings, and until when they are kept, in nanoseconds of the clock."""
        self._usage = MemoryUsage(self._clock, shards=shards)
        self._orders = Orders()
        self._board = Board()
        self._marks: dict[str, tuple[str, int]] = {}
        """The marks of keys by limit, each with the moment until which it is kept, in nanoseconds of the clock; a new
        mark removes expired ones."""
        self._index: tuple[bytes, int] | None = None
        """The index of the contracts, and until when it is kept, in nanoseconds of the clock."""
        self._listeners: dict[MemoryHints, None] = {}
        """The listeners for changes of the index."""
        self._pages: dict[str, tuple[bytes, int]] = {}
        """The pages of contracts by digest, each with the moment until which it is kept; a new page removes expired
        ones."""

    @property
    def shards(self) -> int:
        return len(self._shards)

    async def exchange(self, batch: Batch) -> Answer:
        return self.merge(batch)

    def merge(self, batch: Batch) -> Answer:
        """Does what `exchange` does, without `await`: merges a batch and returns the answer."""
        with self._lock:
            hub_us = self._clock.wall_ns() // MICROSECOND_NS
            return self._shards[batch.shard].merge(batch, hub_us=hub_us, candidate=self._new_name())

    async def totals(self) -> dict[str, Totals]:
        return self.sums()

    def sums(self) -> dict[str, Totals]:
        """Does what `totals` does, without `await`: returns the charges and refunds of all nodes, by limit."""
        sums: dict[str, Totals] = {}
        with self._lock:
            for shard in self._shards:
                add_totals(sums, shard.totals())
        return sums

    async def post(self, payload: bytes, *, keep_s: float) -> None:
        self._posted = payload, self._until_ns(keep_s)

    async def read(self, *, bytes_max: int) -> bytes | None:
        if self._posted is None or self._posted[1] <= self._clock.wall_ns():
            return None
        return self._posted[0][: bytes_max + 1]

    async def read_index(self, *, bytes_max: int) -> bytes | None:
        if self._index is None or self._index[1] <= self._clock.wall_ns():
            return None
        return self._index[0][: bytes_max + 1]

    async def swap_index(self, payload: bytes, *, over: bytes | None, bytes_max: int, keep_s: float) -> bool:
        if over != await self.read_index(bytes_max=bytes_max):
            return False
        self._index = payload, self._until_ns(keep_s)
        for listener in list(self._listeners):
            listener.tell()
        return True

    def hints(self) -> IndexHints:
        return MemoryHints(self._listeners)

    async def put_page(self, digest: str, payload: bytes, *, keep_s: float) -> None:
        now_ns = self._clock.wall_ns()
        self._pages = {each: page for each, page in self._pages.items() if page[1] > now_ns}
        self._pages[digest] = payload, self._until_ns(keep_s)

    async def get_page(self, digest: str, *, bytes_max: int) -> bytes | None:
        payload, until_ns = self._pages.get(digest, (b"", 0))
        return payload[: bytes_max + 1] if until_ns > self._clock.wall_ns() else None

    async def keep_pages(self, digests: Sequence[str], *, keep_s: float) -> list[str]:
        missing = [each for each in digests if await self.get_page(each, bytes_max=0) is None]
        for each in set(digests).difference(missing):
            self._pages[each] = self._pages[each][0], self._until_ns(keep_s)
        return missing

    def _until_ns(self, keep_s: float) -> int:
        return self._clock.wall_ns() + round(keep_s * SECOND_NS)

    async def wishes(self, shard: int) -> Wishes:
        return self.tell_wishes(shard)

    def tell_wishes(self, shard: int) -> Wishes:
        """Does what `wishes` does, without `await`: returns the keys of a shard that need loans from other regions."""
        with self._lock:
            return self._shards[shard].wishes(self._clock.wall_ns() // MICROSECOND_NS)

    async def lend(self, shard: int, lender: str, sequence: int, loans: Sequence[Loan]) -> Lent:
        return self.take_loans(shard, lender, sequence, loans)

    def take_loans(self, shard: int, lender: str, sequence: int, loans: Sequence[Loan]) -> Lent:
        """Does what `lend` does, without `await`: replaces a lender's loans, and returns the result."""
        with self._lock:
            return self._shards[shard].lend(lender, sequence, loans, self._clock.wall_ns() // MICROSECOND_NS)

    @property
    def usage(self) -> MemoryUsage:
        return self._usage

    async def read_keys(self, shard: int, questions: Sequence[KeyQuestion]) -> KeyReadings:
        return self.tell_keys(shard, questions)

    def tell_keys(self, shard: int, questions: Sequence[KeyQuestion]) -> KeyReadings:
        """Returns the use of the keys in `questions` by all nodes, as `read_keys` does, without `await`."""
        with self._lock:
            return read_keys(self._shards[shard], questions, self._clock.wall_ns() // MICROSECOND_NS)

    async def data(self, shard: int) -> HubData:
        return data_of(self._shards[shard], self._clock.wall_ns() // MICROSECOND_NS)

    async def adopt(self, shard: int, generation: str) -> Adoption:
        with self._lock:
            return adopt(self._shards[shard], generation, self._clock.wall_ns() // MICROSECOND_NS)

    async def order_erasure(self, marks: Sequence[str]) -> int:
        return self._orders.give(marks, self._clock.wall_ns() // MICROSECOND_NS)

    async def erasures(self, since_us: int) -> Erasures:
        return self._orders.since(since_us, self._clock.wall_ns() // MICROSECOND_NS)

    async def drop_keys(self, shard: int, questions: Sequence[KeyQuestion]) -> int:
        check_questions(questions)
        identities = [identity_of(limit, key) for limit, key in questions]
        with self._lock:
            return drop_keys(self._shards[shard], identities, self._clock.wall_ns() // MICROSECOND_NS)[1]

    async def erase(self, shard: int, identity: str, names: Sequence[str], *, cursor: int = 0) -> Erased:  # noqa: ARG002
        with self._lock:
            done = erase_keys(self._shards[shard], names, self._clock.wall_ns() // MICROSECOND_NS)
        return done._replace(rows=self._usage.erase(shard, identity))

    async def mark_keys(self, mark: str, *, keep_s: float, limit: str = "") -> str:
        now_ns = self._clock.wall_ns()
        self._marks = {each: kept for each, kept in self._marks.items() if kept[1] > now_ns}
        known = self._marks.get(limit, (mark, 0))[0]
        if known == mark:
            self._marks[limit] = mark, self._until_ns(keep_s)
        return known

    async def watch(self, *, keep_s: float) -> None:
        self._board.watch(keep_s, self._clock.wall_ns() // MICROSECOND_NS)

    async def watched_s(self) -> float:
        return self._board.watched_s(self._clock.wall_ns() // MICROSECOND_NS)

    async def leave_snapshot(self, name: str, payload: bytes, *, keep_s: float) -> bool:
        with self._lock:
            return self._board.leave(name, payload, keep_s, self._clock.wall_ns() // MICROSECOND_NS)

    async def snapshots(self) -> Mapping[str, bytes]:
        with self._lock:
            return self._board.snapshots(self._clock.wall_ns() // MICROSECOND_NS)

    async def close(self) -> None:
        """Does nothing, because a hub in memory has no connection."""

    def lose_data(self) -> None:
        """Drops all data, like a server that restarts empty."""
        self._shards = [LedgerShard(cells_max=self._max_cells) for _ in self._shards]
        self._posted = None
        self._usage.lose_data()
        self._orders = Orders()
        self._board = Board()
        self._marks = {}
        self._index = None
        self._pages = {}

    def __repr__(self) -> str:
        cells = sum(len(shard.cells) for shard in self._shards)
        return f"MemoryHub(shards={self.shards}, cells={cells})"


class MemoryHints:
    """Wakes a waiter in one event loop when any thread has changed the index of contracts. Implements `IndexHints`."""

    def __init__(self, listeners: dict[MemoryHints, None]) -> None:
        self._listeners = listeners
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._changed = asyncio.Event()
            self._listeners[self] = None
            return
        await self._changed.wait()
        self._changed.clear()

    def tell(self) -> None:
        """Wakes the event loop in which the listener waits, because the index of contracts has changed."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed without `close`
                self._loop.call_soon_threadsafe(self._changed.set)

    async def close(self) -> None:
        self._listeners.pop(self, None)
        self._loop = None


class MemoryUsage:
    """A usage ledger in this process's memory, which threads may share. Implements `UsageLedger`, and never fails."""

    def __init__(self, clock: Clock, *, shards: int = 1, rows_max: int = ROWS_MAX) -> None:
        self._clock = clock
        self._rows_max = rows_max
        self._lock = new_lock(whole=True)
        self._shards = [UsageShard(shard=shard, rows_max=rows_max) for shard in range(shards)]
        self._addresses = [AddressShard() for _ in range(shards)]

    @property
    def shards(self) -> int:
        return len(self._shards)

    async def record(self, batch: UsageBatch) -> Recorded:
        with self._lock:
            return self._shards[batch.shard].record(batch, hub_us=self._hub_us)

    async def totals(self, period: Period, shard: int, page: int) -> Sequence[UsageRow]:
        with self._lock:
            return self._shards[shard].totals(period, page)

    async def loads(self) -> Sequence[NodeLoad]:
        with self._lock:
            return self._shards[0].loads(self._hub_us)

    async def lead_export(self, kind: str, exporter: str, keep_s: float) -> ExportLease:
        with self._lock:
            until_us = self._hub_us + round(keep_s * SECOND_NS) // MICROSECOND_NS
            return self._shards[0].lead_export(kind, exporter, until_us, self._hub_us)

    async def marks(self, kind: str, shard: int) -> ExportMarks:
        with self._lock:
            return self._shards[shard].marks(kind)

    async def close_period(self, period: Period, shard: int) -> bool:
        with self._lock:
            return self._shards[shard].close_period(period, self._hub_us)

    async def issue(self, period: Period, shard: int, page: int) -> Sequence[UsageEvent]:
        with self._lock:
            return self._shards[shard].issue(period, page)

    async def confirm(self, events: Sequence[UsageEvent], shard: int, page: int) -> None:
        with self._lock:
            self._shards[shard].confirm(events, page)

    async def finish(self, period: Period, shard: int, late_mark: int | None) -> None:
        with self._lock:
            self._shards[shard].finish(period, late_mark, self._hub_us)

    async def address_secret(self, proposed: bytes = b"") -> bytes:
        with self._lock:
            self._addresses[0].secret = self._addresses[0].secret or proposed
            return self._addresses[0].secret

    async def note_addresses(self, report: AddressReport) -> int:
        with self._lock:
            return self._addresses[report.shard].note(report, hub_us=self._hub_us)

    async def address_sketches(self, hour: int, shard: int, secret: bytes) -> Mapping[str, bytes]:
        with self._lock:
            return self._addresses[shard].sketches(hour, secret)

    async def retract(self, account: str, shard: int, rows: Sequence[tuple[Period, UsageKey]]) -> None:
        with self._lock:
            self._shards[shard].retract(account, rows)

    def erase(self, shard: int, identity: str) -> int:
        """Erases an identity's usage in a shard, sketches of addresses too; returns how many rows and events it had."""
        with self._lock:
            self._addresses[shard].erase(identity)
            return self._shards[shard].erase(identity)

    def lose_data(self) -> None:
        """Drops all data, like a server that restarts empty."""
        with self._lock:
            self._shards = [UsageShard(shard=shard, rows_max=self._rows_max) for shard in range(self.shards)]
            self._addresses = [AddressShard() for _ in range(self.shards)]

    @property
    def _hub_us(self) -> int:
        return self._clock.wall_ns() // MICROSECOND_NS
