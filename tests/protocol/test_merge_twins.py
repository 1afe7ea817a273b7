"""Goal: the merge rule in Lua is the merge rule in Python. Method: both are fed the same batches, sane and insane."""

from __future__ import annotations

import asyncio
from operator import add
from typing import NamedTuple, cast

import redis
from hypothesis import event, given, settings
from hypothesis import strategies as st

from reconverge.clock import ManualClock
from reconverge.hub.reading import KeyQuestion
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import (
    ASKS,
    AT_HUB,
    FLOATS,
    FORGOTTEN,
    SCHEMA_VERSION,
    UNBOUNDED,
    Answer,
    Batch,
    CellAnswer,
    CellReport,
    LimitReport,
    Loan,
    Status,
    Wishes,
)
from reconverge_sync.memory import MemoryHub
from reconverge_sync.merge import rule
from reconverge_sync.redis.hub import RedisHub, _keys
from tests.support.aligned import ToyCalendar
from tests.support.effort import tried
from tests.support.hubs.lua import keeping_all
from tests.support.servers import RedisServer

START_S = 1_750_000_000.25
WINDOW_US = 1_000_000
LONG_US = 90_000_000
"""Longer than a lease, so that allowances are kept small."""
LIMITS = (
    LimitReport("fixed", "fixed-window", WINDOW_US, 100, 100, 100, 0, 0),
    LimitReport("sliding", "sliding-window", WINDOW_US, 90, 90, 0, 0, 0),
    LimitReport("bucket", "token-bucket", WINDOW_US, 100, 50, 250, 0, 0),
    LimitReport("gcra", "gcra", 3_000_001, 7, 13, UNBOUNDED, 0, 0),
    LimitReport("slices", "sliding-slices", WINDOW_US, 100, 100, 100, 0, 0),
    LimitReport("log", "sliding-log", WINDOW_US, 80, 80, 0, 0, 0),
    LimitReport("long log", "sliding-log", 40_000_000, 80, 80, UNBOUNDED, 0, 0),
    LimitReport("first", "fixed-window", WINDOW_US, 60, 60, 0, 0, 0, "first-hit"),
    LimitReport("calendar", "fixed-window", 2 * WINDOW_US, 80, 80, 100, 0, 0, "calendar@Toy", closes_us=1),
    LimitReport("steps", "token-bucket", WINDOW_US, 30, 70, 0, 0, 0, "interval"),
    LimitReport("begins", "gcra", WINDOW_US, 30, 70, 100, 0, 0, withheld=40),
    LimitReport("both", "token-bucket", 700_001, 30, 20, 250, 0, 0, "interval", withheld=20),
    LimitReport("bucket", "leaky-bucket", WINDOW_US, 100_000, 50_000, 0, 0, 0),
    LimitReport("bucket", "smooth-bursty", WINDOW_US, 100, 50, 0, 0, 0),
    LimitReport("warming", "smooth-warming-up", WINDOW_US, 100, 50, 100, 0, 0),
    LimitReport("soft", "sliding-window", WINDOW_US, 60, 78, 100, 0, 0),
    LimitReport("slow", "sliding-window", WINDOW_US, 60, 60, 100, 0, 0, interval_us=700_000),
    LimitReport("fast", "fixed-window", WINDOW_US, 60, 60, 0, 0, 0, interval_us=20_000),
    LimitReport("soft#2", "fixed-window", 2 * WINDOW_US, 60, 90, 0, 0, 0),
    LimitReport("apart fixed", "fixed-window", WINDOW_US, 90, 90, 100, 0, 0, apart=60),
    LimitReport("apart sliding", "sliding-window", WINDOW_US, 90, 90, 0, 0, 0, apart=70),
    LimitReport("apart bucket", "token-bucket", WINDOW_US, 90, 60, 100, 0, 0, interval_us=50_000, apart=40),
    LimitReport("apart log", "sliding-log", WINDOW_US, 90, 90, 0, 0, 0, apart=90),
    LimitReport("long fixed", "fixed-window", LONG_US, 300, 300, 100, 0, 0),
    LimitReport("long sliding", "sliding-window", LONG_US, 100, 100, 0, 0, 0),
    LimitReport("long first", "fixed-window", LONG_US, 60, 60, 100, 0, 0, "first-hit"),
    LimitReport("long slices", "sliding-slices", LONG_US, 2000, 2000, 100, 0, 0),
    LimitReport("slow bucket", "token-bucket", WINDOW_US, 2, 300, 100, 0, 0),
    LimitReport("slow steps", "token-bucket", LONG_US, 50, 50, 250, 0, 0, "interval"),
    LimitReport("large", "sliding-window", WINDOW_US, 10**11, 10**11, 100, 0, 0),
    LimitReport("large", "token-bucket", WINDOW_US, 10**11, 10**11, 100, 0, 0),
    LimitReport("slots", "concurrency", 5_000_000, 100, 100, 100, 0, 0),
    LimitReport("strict slots", "concurrency", 2_000_000, 60, 60, 0, 0, 0),
    LimitReport("free slots", "concurrency", 2_000_000, 60, 60, UNBOUNDED, 0, 0),
    LimitReport("apart slots", "concurrency", 2_000_000, 60, 60, 0, 0, 0, apart=20),
    LimitReport("scarce slots", "concurrency", 2_000_000, 9, 9, 0, 0, 0),
    LimitReport("scarce sliding", "sliding-window", WINDOW_US, 9, 9, 0, 0, 0),
    LimitReport("scarce fixed", "fixed-window", WINDOW_US, 9, 9, 100, 0, 0),
    LimitReport("scarce first", "fixed-window", WINDOW_US, 9, 9, 0, 0, 0, "first-hit"),
    LimitReport("tight sliding", "sliding-window", WINDOW_US, 70, 70, 100, 0, 0),
    LimitReport("scarce apart", "sliding-window", WINDOW_US, 20, 20, 0, 0, 0, apart=12),
    LimitReport("scarce bucket", "token-bucket", WINDOW_US, 9, 9, 0, 0, 0),
    LimitReport("scarce burst", "gcra", WINDOW_US, 5, 9, 100, 0, 0, withheld=4),
    LimitReport("scarce steps", "token-bucket", WINDOW_US, 9, 9, 0, 0, 0, "interval"),
    LimitReport("scarce bucket", "token-bucket", WINDOW_US, 1, 1, 0, 0, 0),
    LimitReport("scarce bucket", "token-bucket", WINDOW_US, 40, 40, 0, 0, 0),
)
SCARCE = range(len(LIMITS) - 11, len(LIMITS))
LEASES_US = (0, 2_000_000, 5_000_000, 40_000_000)
"""For how long each node's allowances on the limits with short windows are its own; the last is longer than its name's.
"""
LARGE = 10**9
"""By so much are the amounts of limits of that name larger: too large for 32 bits."""
TOY = ToyCalendar(WINDOW_US * 1000)


COUNTED = {"gcra": "token-bucket", "sliding-slices": "sliding-log"}
"""Algorithms that are counted alike are one cell."""
DEPARTED_IN_LUA = "-"
AMOUNT = st.integers(0, 120)


class Wish(NamedTuple):
    """A cell report in the making: what a node says, relative to what the hub last granted it."""

    limit: int
    key: str
    epochs_ahead: int
    current: int
    previous: int
    kept: float
    """The share of its granted allowances that the node still has; above 1 for a node gone mad."""
    need_milli: int
    ask: int
    asked: int
    demand_milli: int
    window_demand: int
    reset_us: int
    forgets: bool
    """The node forgets the key with this report."""


SAID = dict[str, st.SearchStrategy[object]](
    key=st.sampled_from(["a", "a", "b"]),
    epochs_ahead=st.sampled_from([0] * 20 + [-1, -1, 1, 1, -2, 5]),
    current=st.integers(0, 40) | AMOUNT,
    previous=st.integers(0, 40) | AMOUNT | st.integers(0, 60_000) | st.sampled_from([333_333, 1_000_000, 10**9]),
    kept=st.sampled_from([1.0, 1.0, 1.0, 1.0, 0.8, 0.3, 0.0, 1.5]),
    need_milli=st.sampled_from([0, 1, 700]) | st.integers(0, 130_000),
    ask=st.sampled_from([0, 0, 0, 1]) | AMOUNT,
    asked=st.sampled_from([0, 1, 50]) | st.builds(ASKS.__add__, st.sampled_from([0, 1, 1, 2, 7, 50])),
    demand_milli=st.integers(0, 10**6),
    window_demand=AMOUNT,
    reset_us=st.sampled_from([0] * 30 + [7, 9]),
    forgets=st.sampled_from([False] * 7 + [True]),
)
WISHES = st.builds(Wish, limit=st.integers(0, len(LIMITS) - 1), **SAID)
FEW = st.integers(0, 4)
SCARCE_SAID = SAID | {
    "key": st.just("a"),
    "current": FEW,
    "previous": FEW | st.sampled_from([300, 1000, 2700]),
    "ask": st.sampled_from([0, 1, 1, 2]),
    "asked": st.sampled_from([0, 3, ASKS]) | st.builds(add, st.sampled_from([ASKS, ASKS + FLOATS]), st.integers(0, 4)),
    "demand_milli": st.integers(0, 30_000),
}
SCARCE_WISHES = st.builds(Wish, limit=st.sampled_from(SCARCE), **SCARCE_SAID)


class Lending(NamedTuple):
    """A lender's act with the cells that are on the list: it lends to some, and for how long."""

    lender: str
    late: int
    """By how much its sequence lags behind."""
    amounts: list[int]
    """To each cell in turn, the first of them again when there are more cells; -1 to leave one out."""
    for_us: int


LENDINGS = st.builds(
    Lending,
    lender=st.sampled_from(["one", "one", "other"]),
    late=st.sampled_from([0] * 8 + [1, 2, 3]),
    amounts=st.lists(st.sampled_from([-1, 0, 0, 1, 7, 30, 60]), min_size=1, max_size=3),
    for_us=st.sampled_from([3_000_000] * 6 + [400_000, 0, -1, 10**9]),
)


class TwinStep(NamedTuple):
    """One exchange: how much time passes before it, who makes it, and what it says."""

    pause_us: int
    node: int
    believes: str
    """Which generation the node has last seen: the true one ("now"), none (""), or one that is lost."""
    leaving: bool
    repeats: int
    """Which of the last batches, of whatever node, arrives once more before this one; 0 for none."""
    wishes: list[Wish]
    off_us: int
    """How far the node's clock is off, by which it tells of a window of the calendar."""
    lending: Lending | None
    heard_ago_us: int | None
    """How long ago the node has had the last answer; None if it has had none."""


SENT = dict[str, st.SearchStrategy[object]](
    pause_us=st.sampled_from(
        [0, 1, 997, 50_000, 100_000, 100_000, 333_333, 1_000_000, 2_100_000] * 4
        + [9_000_000, 31_000_000, 90_000_000_000]
    ),
    node=st.integers(0, 3),
    believes=st.sampled_from(["now"] * 30 + ["", "lost"]),
    leaving=st.sampled_from([False] * 30 + [True]),
    repeats=st.sampled_from([0] * 15 + [1, 2, 9]),
    off_us=st.sampled_from([0] * 20 + [-1, 1, -400_000, 400_000, -2_000_000, 2_000_000, -(10**9), 10**9]),
    lending=st.none() | LENDINGS,
    heard_ago_us=st.none() | st.sampled_from([0, 1, 900_000, 14_500_000, 15_000_000, 17_500_000, 46_000_000]),
)
STEPS = st.builds(TwinStep, wishes=st.lists(WISHES, min_size=1, max_size=4), **SENT)
SCARCE_STEPS = st.builds(TwinStep, wishes=st.lists(SCARCE_WISHES, min_size=2, max_size=4), **SENT)


class Nodes:
    """Four nodes that remember what they were granted, and take a new name when the hub has given up on them."""

    def __init__(self) -> None:
        self.generations = [0] * 4
        self.granted: dict[tuple[int, int, str], CellAnswer] = {}
        self.merged = 0
        self.lent = 0
        self.kept_at_hub = 0
        self.vouchers = 0
        self.shares = 0

    def batch_of(self, step: TwinStep, sequence: int, hub_us: int) -> Batch:
        """Returns the batch of the step's node at that moment."""
        return Batch(
            node=f"node{step.node}.{self.generations[step.node]}",
            account=f"node{step.node}",
            shard=0,
            sequence=sequence,
            generation=step.believes,
            interval_us=100_000,
            lease_us=30_000_000,
            leaving=step.leaving,
            limits=tuple(_placed(limit, step, hub_us) for limit in LIMITS),
            cells=tuple(self._report(step.node, wish, hub_us) for wish in step.wishes),
            heard_us=0 if step.heard_ago_us is None else hub_us - step.heard_ago_us,
        )

    def hear(self, step: TwinStep, batch: Batch, answer: Answer) -> None:
        """Remember what was granted; a name that has lapsed or left is not used again."""
        if answer.status is Status.LAPSED or step.leaving:
            self.generations[step.node] += 1
            self.granted = {place: granted for place, granted in self.granted.items() if place[0] != step.node}
        for cell, granted in zip(batch.cells, answer.cells, strict=False):
            self.granted[step.node, cell.limit, cell.key] = granted
            self.merged += 1
            self.kept_at_hub += AT_HUB <= granted.nodes < FORGOTTEN
            self.vouchers += cell.waiting > 0 and granted.allowance > cell.current
            self.shares += granted.base > 0 and LIMITS[cell.limit].algorithm == "sliding-window"

    def _report(self, node: int, wish: Wish, hub_us: int) -> CellReport:
        granted = self.granted.get((node, wish.limit, wish.key))
        allowance, base, overdraft = (granted.allowance, granted.base, granted.overdraft) if granted else (0, 0, 0)
        unit = LARGE if LIMITS[wish.limit].name == "large" else 1
        report = CellReport(
            limit=wish.limit,
            key=wish.key,
            epoch=_epoch(LIMITS[wish.limit], wish, granted, hub_us),
            current=wish.current * unit,
            previous=min(wish.previous, 10**6) * unit if unit > 1 else wish.previous,
            allowance=int(allowance * wish.kept) if granted is None or granted.nodes < AT_HUB else 0,
            base=int(base * wish.kept),
            overdraft=int(overdraft * wish.kept),
            need_milli=wish.need_milli * unit,
            ask=wish.ask * unit,
            asked=wish.asked if wish.asked >= ASKS else wish.asked * unit,
            demand_milli=wish.demand_milli * unit,
            window_demand=wish.window_demand * unit,
            reset_us=wish.reset_us,
        )
        if not wish.forgets:
            return report
        return report._replace(allowance=0, base=0, overdraft=0, need_milli=0, ask=0, asked=FORGOTTEN, demand_milli=0)


def _placed(limit: LimitReport, step: TwinStep, hub_us: int) -> LimitReport:
    """The limit as the node tells of it now; one of the nodes knows nothing of leases of single limits."""
    # A cell that could do with a loan stays on the list in Redis after it is gone, and nobody lends it anything.
    with_its_own = limit.window_us <= 3_000_001 and not limit.closes_us and not limit.apart
    lease_us = LEASES_US[step.node] if with_its_own else 0
    limit = limit._replace(charged=step.pause_us % 1000, refunded=step.node, lease_us=lease_us)
    if not limit.closes_us:
        return limit
    number = TOY.number((hub_us + step.off_us) * 1000)
    return limit._replace(
        window=number, opens_us=TOY.opens_ns(number) // 1000, closes_us=TOY.opens_ns(number + 1) // 1000
    )


def _epoch(limit: LimitReport, wish: Wish, granted: CellAnswer | None, hub_us: int) -> int:
    """The window in which the node is: roughly the one that it should be in, and sometimes any other."""
    if limit.closes_us:
        return TOY.number(hub_us * 1000) + wish.epochs_ahead
    if limit.variant != "first-hit":
        return hub_us // limit.window_us + wish.epochs_ahead
    if wish.epochs_ahead == 0 and granted is not None:
        return max(granted.epoch, -1)
    return -1 if wish.epochs_ahead < 0 else hub_us - wish.demand_milli * wish.epochs_ahead


@settings(max_examples=tried(50, long=200, brief=15))
@given(
    steps=st.lists(STEPS, min_size=10, max_size=60),
    certainly_new=st.booleans(),
    scanned_max=st.sampled_from([rule.SCANNED_MAX, rule.SCANNED_MAX, 1, 2]),
)
def test_lua_and_python_answer_alike(
    shared_redis: RedisServer, steps: list[TwinStep], certainly_new: bool, scanned_max: int
) -> None:
    """Every answer is the same to the last unit, whatever was reported before, and so are the lifetime numbers."""
    with keeping_all(scanned_max):
        _compare_twins(shared_redis, steps, certainly_new=certainly_new)


@settings(max_examples=tried(50, long=200, brief=15))
@given(
    steps=st.lists(SCARCE_STEPS, min_size=10, max_size=60),
    scanned_max=st.sampled_from([rule.SCANNED_MAX, rule.SCANNED_MAX, rule.SCANNED_MAX, 1, 2]),
)
def test_lua_and_python_answer_alike_about_scarce_keys(
    shared_redis: RedisServer, steps: list[TwinStep], scanned_max: int
) -> None:
    """Likewise of keys that nodes ask about, and that are kept at the hub."""
    with keeping_all(scanned_max):
        _compare_twins(shared_redis, steps, certainly_new=True)


def _compare_twins(shared_redis: RedisServer, steps: list[TwinStep], *, certainly_new: bool) -> None:
    shared_redis.command("FLUSHALL")
    clock = ManualClock(START_S)
    in_lua = RedisHub(shared_redis.url, HubSettings("twins", 5.0), clock=clock, new_name=lambda: "now")
    in_python = MemoryHub(clock=clock, new_name=lambda: "now")
    if certainly_new:
        begun = {"generation": "now", "born": "0", "schema": str(SCHEMA_VERSION)}
        shared_redis.command("HSET", "twins:{0}:meta", *(word for entry in begun.items() for word in entry))
    else:
        in_python.lose_data()
    nodes = Nodes()
    server = redis.Redis.from_url(shared_redis.url)
    sent: list[Batch] = []

    async def compare() -> None:
        """Tell both the same, and hear what they say."""
        for sequence, step in enumerate(steps, start=1):
            clock.advance_ns(step.pause_us * 1000)
            if 0 < step.repeats <= len(sent):
                late = sent[-step.repeats]
                assert in_python.merge(late) == await in_lua.exchange(late)
            batch = nodes.batch_of(step, sequence, clock.wall_ns() // 1000)
            sent.append(batch)
            answer = in_python.merge(batch)

            assert answer == await in_lua.exchange(batch)

            nodes.hear(step, batch, answer)
            known = in_python.tell_wishes(0)
            told = await in_lua.wishes(0)

            assert told._replace(wishes=()) == known._replace(wishes=())
            assert sorted(_fields(known)) == sorted(_fields(told, prefix="c1:"))
            if answer.status is Status.MERGED:
                assert _kept(in_python, batch) == _stored(server, batch)

            questions = [KeyQuestion(batch.limits[cell.limit], key) for cell in batch.cells for key in (cell.key, "no")]
            assert in_python.tell_keys(0, questions) == await in_lua.read_keys(0, questions)

            if step.lending is not None:
                here = _loans(step.lending, sorted(wish.cell for wish in known.wishes), clock.wall_ns() // 1000)
                there = [loan._replace(cell=_in_lua(loan.cell)) for loan in here]
                rank = sequence - min(step.lending.late, sequence - 1)
                lent = in_python.take_loans(0, step.lending.lender, rank, here)

                assert lent == await in_lua.lend(0, step.lending.lender, rank, there)

                nodes.lent += len(here)
        assert await in_python.totals() == await in_lua.totals()
        await in_lua.close()

    asyncio.run(compare())
    server.close()
    event(f"cells merged: {nodes.merged // 25 * 25}+")
    event(f"kept at the hub: {nodes.kept_at_hub // 10 * 10}+")
    event(f"sealed shares: {min(nodes.shares, 5)}")
    event(f"vouchers: {nodes.vouchers // 5 * 5}+")
    event(f"loans: {nodes.lent // 10 * 10}+")


def _kept(hub: MemoryHub, batch: Batch) -> list[set[str] | None]:
    """For whom there is an entry in each of the batch's cells; None for a cell that is not kept."""
    kept: list[set[str] | None] = []
    for report in batch.cells:
        limit = batch.limits[report.limit]
        counted = COUNTED.get(limit.algorithm, limit.algorithm)
        cell = hub._shards[0].cells.get((limit.name, counted + limit.variant, limit.window_us, report.key))
        kept.append(None if cell is None else {name or DEPARTED_IN_LUA for name in cell.entries})
    return kept


def _stored(server: redis.Redis, batch: Batch) -> list[set[str] | None]:
    """The same, of what a Redis has."""
    stored: list[set[str] | None] = []
    for key in _keys("twins", batch)[3:]:
        fields = {field.decode() for field in cast("list[bytes]", server.hkeys(key))}
        stored.append(fields - {"g", "l"} if fields else None)
    return stored


def _loans(lending: Lending, cells: list[str], hub_us: int) -> list[Loan]:
    """To the cells that are on the list."""
    amounts = [lending.amounts[number % len(lending.amounts)] for number in range(len(cells))]
    until_us = hub_us + lending.for_us
    return [Loan(cell, amount, until_us) for cell, amount in zip(cells, amounts, strict=True) if amount >= 0]


def _in_lua(cell: str) -> str:
    """Returns a Redis's name of the cell: kinds have numbers there, and variants come last."""
    name, counted, window_us, key = cell.rsplit(":", 3)
    kind = {"fixed-window": 0, "sliding-window": 1, "token-bucket": 2, "sliding-log": 3}[counted]
    return f"c{SCHEMA_VERSION}:{name}:{kind}:{window_us}:{key}"


def _fields(told: Wishes, prefix: str = "") -> list[tuple[object, ...]]:
    """All wishes as plain data, by the names that a Redis has for them."""
    return [(wish.cell if prefix else _in_lua(wish.cell), *wish[1:]) for wish in told.wishes]
