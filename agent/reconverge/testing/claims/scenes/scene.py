"""A scene for claims: one hub, and nodes that report to it exactly what a test orders."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final, NamedTuple, TypedDict, Unpack
from unittest import SkipTest

from reconverge.clock import SECOND_NS, Clock, ManualClock
from reconverge.hub.port import Hub
from reconverge.hub.report import ASKS, AT_HUB, FLOATS, Answer, Batch, CellAnswer, CellReport, LimitReport, Status
from reconverge.limit.limit import FIXED_WINDOW, TOKEN_BUCKET

SECOND_US: Final = 1_000_000
WINDOW_S: Final = 6 * 3600.0
"""The length of a window: so long that a test of a hub with a clock of its own does not meet a window's end by
chance."""
WINDOW_US: Final = int(WINDOW_S) * SECOND_US
LEASE_US: Final = 4 * WINDOW_US
INTERVAL_S: Final = 10.0
"""The sync interval: so long that no node counts as silent because the machine is busy."""
LEARNING_S: Final = 6 * INTERVAL_S
"""How long after a loss of data a hub waits at most for reports of nodes with this interval (it learns), in seconds."""
START_S: Final = 1_750_000_000.0
"""The time at the start, in the middle of a window."""
QUOTA: Final = 100


def limit(
    name: str = "limit",
    *,
    algorithm: str = FIXED_WINDOW,
    quota: int = QUOTA,
    capacity: int | None = None,
    overshoot_milli: int = 100,
    window_us: int = WINDOW_US,
    charged: int = 0,
    refunded: int = 0,
) -> LimitReport:
    """Returns a limit as a node declares it; by default 100 per window, which may be exceeded by a tenth."""
    return LimitReport(name, algorithm, window_us, quota, capacity or quota, overshoot_milli, charged, refunded)


LIMIT: Final = limit()


class ReportedCell(NamedTuple):
    """A node's report about one key, and the limit to which the key belongs."""

    limit: LimitReport
    report: CellReport


class Allowances(NamedTuple):
    """The allowances of a node for one key, as the node remembers them from answers."""

    epoch: int = 0
    allowance: int = 0
    base: int = 0
    overdraft: int = 0
    at_hub: bool = False


class ArgumentsOfCell(TypedDict, total=False):
    """The arguments of `Voice.cell` beside the key."""

    of: LimitReport
    current: int
    previous: int
    need: int
    ask: int
    asked: int | None
    allowance: int | None
    epoch: int | None
    demand: int
    reset_us: int


class Voice:
    """A node without a kernel: it reports what the test orders, and remembers the allowances that it was granted."""

    def __init__(
        self, hub: Hub, hub_us: Callable[[], int], *, node: str, account: str, shard: int, lease_us: int
    ) -> None:
        self.hub = hub
        self._hub_us = hub_us
        self.node = node
        self.account = account
        self._shard = shard
        self._lease_us = lease_us
        self._sequence = 0
        self.generation = ""
        self.allowances: dict[tuple[str, str], Allowances] = {}
        """The allowances of this node, by limit and key."""

    def cell(
        self,
        key: str = "ada",
        *,
        of: LimitReport = LIMIT,
        current: int = 0,
        previous: int = 0,
        need: int = 0,
        ask: int = 0,
        asked: int | None = None,
        allowance: int | None = None,
        epoch: int | None = None,
        demand: int = 0,
        reset_us: int = 0,
    ) -> ReportedCell:
        """Returns this node's report about one key.

        `allowance` is the allowance that the node still holds; by default the granted one. `asked` is the cost of the
        requests made since the last exchange, without those that still wait from before; by default the larger of
        `need` and `ask`.
        """
        held = self.allowances.get((of.name, key), Allowances())
        epoch = self._hub_us() // of.window_us if epoch is None else epoch
        if of.algorithm == FIXED_WINDOW and epoch > held.epoch:
            held = held._replace(allowance=held.base)
        held = held._replace(epoch=epoch, allowance=held.allowance if allowance is None else allowance)
        self.allowances[of.name, key] = held
        return ReportedCell(
            of,
            CellReport(
                limit=0,
                key=key,
                epoch=epoch,
                current=current,
                previous=previous,
                allowance=held.allowance,
                base=held.base,
                overdraft=held.overdraft,
                need_milli=1000 * need,
                ask=ask,
                asked=max(need, ask) if asked is None else asked,
                demand_milli=1000 * need,
                window_demand=demand,
                reset_us=reset_us,
            ),
        )

    def batch(self, *cells: ReportedCell, limits: tuple[LimitReport, ...] = (), leaving: bool = False) -> Batch:
        """Returns the next batch: these cells, their limits, and `limits` that have no cell in the batch."""
        declared = tuple(dict.fromkeys((*(said.limit for said in cells), *limits)))
        self._sequence += 1
        return Batch(
            node=self.node,
            account=self.account,
            shard=self._shard,
            sequence=self._sequence,
            generation=self.generation,
            interval_us=int(INTERVAL_S) * SECOND_US,
            lease_us=self._lease_us,
            leaving=leaving,
            limits=declared,
            cells=tuple(said.report._replace(limit=declared.index(said.limit)) for said in cells),
        )

    async def sends(self, batch: Batch) -> Answer:
        """Sends a batch to the hub and returns the answer, but remembers nothing of it, as if the answer were lost."""
        return await self.hub.exchange(batch)

    async def exchanges(self, batch: Batch) -> Answer:
        """Sends a batch to the hub, and remembers the allowances that its answer grants. Returns the answer."""
        answer = await self.hub.exchange(batch)
        if answer.status is Status.MERGED:
            self.generation = answer.generation
            for report, cell in zip(batch.cells, answer.cells, strict=True):
                place = batch.limits[report.limit].name, report.key
                self.allowances[place] = Allowances(
                    cell.epoch, cell.allowance, cell.base, cell.overdraft, cell.nodes >= AT_HUB
                )
        return answer

    async def reports(self, key: str = "ada", **of_cell: Unpack[ArgumentsOfCell]) -> CellAnswer:
        """Exchanges a report about one key; see `cell` for the arguments. Returns the hub's answer about that key."""
        answer = await self.exchanges(self.batch(self.cell(key, **of_cell)))

        assert Status.MERGED == answer.status
        assert 1 == len(answer.cells)

        return answer.cells[0]

    def asking(
        self,
        key: str = "ada",
        *,
        of: LimitReport,
        waits: int,
        current: int = 0,
        previous: int = 0,
        epoch: int | None = None,
    ) -> ReportedCell:
        """Returns a report that asks about a key: the hub grants at most `waits`, the cost of the waiting requests."""
        allowance = current if of.algorithm == FIXED_WINDOW else 0
        floats = of.algorithm == TOKEN_BUCKET and self.allowances.get((of.name, key), Allowances()).at_hub
        said = self.cell(
            key, of=of, current=current, previous=previous, need=1, ask=1, allowance=allowance, epoch=epoch
        )
        return ReportedCell(of, said.report._replace(asked=ASKS + (FLOATS if floats else 0) + waits))

    async def asks(
        self,
        key: str = "ada",
        *,
        of: LimitReport,
        waits: int,
        current: int = 0,
        previous: int = 0,
        epoch: int | None = None,
    ) -> CellAnswer:
        """Exchanges a report that asks about a key: the hub grants at most `waits`, the cost of the waiting requests.

        Returns the hub's answer about that key.
        """
        said = self.asking(key, of=of, waits=waits, current=current, previous=previous, epoch=epoch)
        (answer,) = (await self.exchanges(self.batch(said))).cells
        return answer

    async def says_hello(self) -> Answer:
        """Sends an empty batch, so that the hub knows this node, and returns the answer."""
        return await self.exchanges(self.batch())

    async def leaves(self, *cells: ReportedCell, limits: tuple[LimitReport, ...] = ()) -> Answer:
        """Sends the node's last batch, with these `cells`, and drops all its allowances. Returns the answer."""
        given_back = [
            ReportedCell(said.limit, said.report._replace(allowance=0, base=0, overdraft=0, need_milli=0))
            for said in cells
        ]
        self.allowances.clear()
        return await self.exchanges(self.batch(*given_back, limits=limits, leaving=True))


class Scene:
    """The hub and the clock with which one claim is tried."""

    def __init__(self, hub: Hub, clock: Clock, *, join: Callable[[Hub], Hub]) -> None:
        self.hub = hub
        self.clock = clock
        self._join = join
        self._hubs = [hub]
        self._numbers = count(1)

    @property
    def time_travel(self) -> bool:
        """Whether the hub uses the test's clock, so that the test can move the hub's time."""
        return isinstance(self.clock, ManualClock)

    def hub_us(self) -> int:
        """Returns the hub's time in microseconds.

        A hub with a clock of its own is assumed to be on this machine's time.
        """
        return self.clock.wall_ns() // (SECOND_NS // SECOND_US)

    def epoch(self, of: LimitReport = LIMIT) -> int:
        """Returns the number of the present window of a limit."""
        return self.hub_us() // of.window_us

    def pass_time(self, seconds: float) -> None:
        """Lets time pass for the hub. Skips the test if the hub uses a clock of its own."""
        if not isinstance(self.clock, ManualClock):
            raise SkipTest("the hub has a clock of its own, and this claim needs time to pass")
        self.clock.advance(seconds)

    def voice(
        self, *, hub: Hub | None = None, account: str | None = None, shard: int = 0, lease_us: int = LEASE_US
    ) -> Voice:
        """Returns a new node, which uses `hub`, or else a hub object of its own if the hub allows several objects."""
        number = next(self._numbers)
        return Voice(
            hub or self.another_hub(),
            self.hub_us,
            node=f"node{number}.0",
            account=account or f"account{number}",
            shard=shard,
            lease_us=lease_us,
        )

    def another_hub(self) -> Hub:
        """Returns another object for the hub, as another process would have."""
        return self.keep(self._join(self.hub))

    def keep(self, hub: Hub) -> Hub:
        """Makes the scene close `hub` when the claim has been tried. Returns `hub`."""
        if all(hub is not known for known in self._hubs):
            self._hubs.append(hub)
        return hub

    async def close(self) -> None:
        """Closes every hub object."""
        for hub in self._hubs:
            await hub.close()
