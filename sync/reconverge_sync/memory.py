"""A hub in this process's memory: for tests, for simulations, and for several agents in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from secrets import token_hex

from reconverge.clock import MICROSECOND_NS, SECOND_NS, Clock, SystemClock
from reconverge.hub.report import Answer, Batch, Lent, Loan, Totals, Wishes, add_totals
from reconverge_sync.merge.rule import CELLS_MAX, Shard


class MemoryHub:
    """The merge rule and nothing else. See `reconverge.Hub` for what it promises.

    `clock` is the hub's own; `new_name` names an incarnation of its data; each shard keeps up to `max_cells` keys.
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
        self._new_name = new_name
        self._max_cells = max_cells
        self._shards = [Shard(incarnation=new_name(), cells_max=max_cells) for _ in range(shards)]
        self._posted: tuple[bytes, int] | None = None
        """And until when it is kept, by the clock."""
        self._index: tuple[bytes, int] | None = None
        """The index of the contracts, likewise."""
        self._pages: dict[str, tuple[bytes, int]] = {}
        """By digest. Those that are kept no more go with the next one that is put."""

    @property
    def shards(self) -> int:
        """See `Hub.shards`."""
        return len(self._shards)

    async def exchange(self, batch: Batch) -> Answer:
        """See `Hub.exchange`; never fails."""
        return self.merge(batch)

    def merge(self, batch: Batch) -> Answer:
        """`exchange` without the waiting."""
        hub_us = self._clock.wall_ns() // MICROSECOND_NS
        return self._shards[batch.shard].merge(batch, hub_us=hub_us, candidate=self._new_name())

    async def totals(self) -> dict[str, Totals]:
        """See `Hub.totals`; never fails."""
        return self.sums()

    def sums(self) -> dict[str, Totals]:
        """`totals` without the waiting."""
        sums: dict[str, Totals] = {}
        for shard in self._shards:
            add_totals(sums, shard.totals())
        return sums

    async def post(self, payload: bytes, *, keep_s: float) -> None:
        """See `SettingsStore.post`; never fails."""
        self._posted = payload, self._until_ns(keep_s)

    async def read(self, *, bytes_max: int) -> bytes | None:
        """See `SettingsStore.read`; never fails."""
        if self._posted is None or self._posted[1] <= self._clock.wall_ns():
            return None
        return self._posted[0][: bytes_max + 1]

    async def read_index(self, *, bytes_max: int) -> bytes | None:
        """See `ContractStore.read_index`; never fails."""
        if self._index is None or self._index[1] <= self._clock.wall_ns():
            return None
        return self._index[0][: bytes_max + 1]

    async def swap_index(self, payload: bytes, *, over: bytes | None, bytes_max: int, keep_s: float) -> bool:
        """See `ContractStore.swap_index`; never fails."""
        if over != await self.read_index(bytes_max=bytes_max):
            return False
        self._index = payload, self._until_ns(keep_s)
        return True

    async def put_page(self, digest: str, payload: bytes, *, keep_s: float) -> None:
        """See `ContractStore.put_page`; never fails."""
        now_ns = self._clock.wall_ns()
        self._pages = {each: page for each, page in self._pages.items() if page[1] > now_ns}
        self._pages[digest] = payload, self._until_ns(keep_s)

    async def get_page(self, digest: str, *, bytes_max: int) -> bytes | None:
        """See `ContractStore.get_page`; never fails."""
        payload, until_ns = self._pages.get(digest, (b"", 0))
        return payload[: bytes_max + 1] if until_ns > self._clock.wall_ns() else None

    async def keep_pages(self, digests: Sequence[str], *, keep_s: float) -> list[str]:
        """See `ContractStore.keep_pages`; never fails."""
        missing = [each for each in digests if await self.get_page(each, bytes_max=0) is None]
        for each in set(digests).difference(missing):
            self._pages[each] = self._pages[each][0], self._until_ns(keep_s)
        return missing

    def _until_ns(self, keep_s: float) -> int:
        return self._clock.wall_ns() + round(keep_s * SECOND_NS)

    async def wishes(self, shard: int) -> Wishes:
        """See `Region.wishes`; never fails."""
        return self.tell_wishes(shard)

    def tell_wishes(self, shard: int) -> Wishes:
        """`wishes` without the waiting."""
        return self._shards[shard].wishes(self._clock.wall_ns() // MICROSECOND_NS)

    async def lend(self, shard: int, lender: str, sequence: int, loans: Sequence[Loan]) -> Lent:
        """See `Region.lend`; never fails."""
        return self.take_loans(shard, lender, sequence, loans)

    def take_loans(self, shard: int, lender: str, sequence: int, loans: Sequence[Loan]) -> Lent:
        """`lend` without the waiting."""
        return self._shards[shard].lend(lender, sequence, loans, self._clock.wall_ns() // MICROSECOND_NS)

    async def close(self) -> None:
        """See `Hub.close`; there is nothing to let go of."""

    def lose_data(self) -> None:
        """Forget everything, as a server does that comes back empty."""
        self._shards = [Shard(cells_max=self._max_cells) for _ in self._shards]
        self._posted = self._index = None
        self._pages = {}

    def __repr__(self) -> str:
        cells = sum(len(shard.cells) for shard in self._shards)
        return f"MemoryHub(shards={self.shards}, cells={cells})"
