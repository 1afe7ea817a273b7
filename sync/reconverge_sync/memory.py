"""A hub in this process's memory: for tests, for simulations, and for several agents in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from secrets import token_hex

from reconverge.clock import MICROSECOND_NS, SECOND_NS, Clock, SystemClock
from reconverge.hub.adopting import Adoption, HubData
from reconverge.hub.reading import KeyQuestion, KeyReadings
from reconverge.hub.report import Answer, Batch, Lent, Loan, Totals, Wishes, add_totals
from reconverge_sync.merge.adopting import adopt, data_of
from reconverge_sync.merge.reading import read_keys
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
        self._mark = ("", 0)
        """Likewise."""

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
        self._posted = payload, self._clock.wall_ns() + round(keep_s * SECOND_NS)

    async def read(self, *, bytes_max: int) -> bytes | None:
        """See `SettingsStore.read`; never fails."""
        if self._posted is None or self._posted[1] <= self._clock.wall_ns():
            return None
        return self._posted[0][: bytes_max + 1]

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

    async def read_keys(self, shard: int, questions: Sequence[KeyQuestion]) -> KeyReadings:
        """See `KeyReader.read_keys`; fails for too many questions alone."""
        return self.tell_keys(shard, questions)

    def tell_keys(self, shard: int, questions: Sequence[KeyQuestion]) -> KeyReadings:
        """`read_keys` without the waiting."""
        return read_keys(self._shards[shard], questions, self._clock.wall_ns() // MICROSECOND_NS)

    async def data(self, shard: int) -> HubData:
        """See `Adoptable.data`; never fails."""
        return data_of(self._shards[shard], self._clock.wall_ns() // MICROSECOND_NS)

    async def adopt(self, shard: int, incarnation: str) -> Adoption:
        """See `Adoptable.adopt`; never fails."""
        return adopt(self._shards[shard], incarnation, self._clock.wall_ns() // MICROSECOND_NS)

    async def mark_keys(self, mark: str, *, keep_s: float) -> str:
        """See `KeyMarker.mark_keys`; never fails."""
        known, until_ns = self._mark
        now_ns = self._clock.wall_ns()
        if known not in ("", mark) and now_ns < until_ns:
            return known
        self._mark = mark, now_ns + round(keep_s * SECOND_NS)
        return mark

    async def close(self) -> None:
        """See `Hub.close`; there is nothing to let go of."""

    def lose_data(self) -> None:
        """Forget everything, as a server does that comes back empty."""
        self._shards = [Shard(cells_max=self._max_cells) for _ in self._shards]
        self._posted = None
        self._mark = ("", 0)

    def __repr__(self) -> str:
        cells = sum(len(shard.cells) for shard in self._shards)
        return f"MemoryHub(shards={self.shards}, cells={cells})"
