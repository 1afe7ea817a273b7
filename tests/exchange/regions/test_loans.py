"""Goal: a region's hub never grants more than its own part and what it was lent, and tells what is held of that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from reconverge.clock import ManualClock
from reconverge.errors import HubUnavailable
from reconverge.hub import Region
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import Answer, Batch, CellAnswer, CellReport, LimitReport, Loan, Status, Wish
from reconverge_sync.cluster.hub import ClusterHub
from reconverge_sync.memory import MemoryHub
from reconverge_sync.merge.loans import LENDERS_MAX
from reconverge_sync.redis.hub import RedisHub
from tests.support.redis_cluster import RedisCluster
from tests.support.servers import RedisServer

START_S = 1_750_000_000.0
LIMIT = LimitReport("login", "sliding-window", 60_000_000, 100, 100, 100, 0, 0, apart=80)
OWN = 20
LEASE_US = 30_000_000


@pytest.fixture
def clock() -> ManualClock:
    """The hub's."""
    return ManualClock(START_S)


@pytest.fixture(params=["memory", "redis", "cluster"])
async def home(request: pytest.FixtureRequest, clock: ManualClock) -> AsyncIterator[Home]:
    """The hub of a region, with a node that asks for as much as it can get."""
    hub: Any = MemoryHub(clock=clock)
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        hub = RedisHub(server.url, HubSettings("shop", 5.0), clock=clock)
    elif request.param == "cluster":
        cluster: RedisCluster = request.getfixturevalue("shared_cluster")
        cluster.flush()
        hub = ClusterHub(cluster.url, HubSettings("shop", 30.0), clock=clock)
    yield Home(hub, clock)
    await hub.close()


class Home:
    """A region's hub, its clock, and what its nodes hold."""

    def __init__(self, hub: Any, clock: ManualClock) -> None:
        self.hub = hub
        self.clock = clock
        self._sequence = 0
        self.answer: CellAnswer | None = None

    async def report(
        self, *, allowance: int | None = None, used: int = 0, need: int = 0, per_s: int | None = None, node: str = "n1"
    ) -> CellAnswer:
        """Reports a node's allowance, by default the one that it was told, and hears the answer."""
        self._sequence += 1
        held = (self.answer.allowance if self.answer is not None else 0) if allowance is None else allowance
        window = self.clock.wall_ns() // 1000 // LIMIT.window_us
        cell = CellReport(
            0,
            "ada",
            window,
            used,
            0,
            held,
            0,
            0,
            need * 1000,
            0,
            need,
            1000 * (need if per_s is None else per_s),
            need,
            0,
        )
        batch = Batch(node, node, 0, self._sequence, "", 100_000, LEASE_US, False, (LIMIT,), (cell,))
        answer: Answer = await self.hub.exchange(batch)
        self.answer = answer.cells[0]
        return self.answer

    async def wish(self) -> Wish | None:
        told = await self.hub.wishes(0)
        return told.wishes[0] if told.wishes else None

    async def lend(self, amount: int, *, sequence: int, lender: str = "b1", for_s: float = 30.0) -> tuple[Status, int]:
        """Lend something to the key, as it was called on the list; says what became of it, and what is held."""
        cell = self.cell
        until_us = self.clock.wall_ns() // 1000 + round(for_s * 1_000_000)
        lent = await self.hub.lend(0, lender, sequence, (Loan(cell, amount, until_us),))
        return lent.status, lent.held[0]

    async def become_short(self) -> None:
        """Lets the node use up the region's own part, and need more."""
        await self.report(need=OWN)
        self.pass_s(1)
        await self.report(used=OWN, need=50)
        wish = await self.wish()
        assert wish is not None
        self.cell = wish.cell

    def pass_s(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)


@pytest.mark.slow
def test_both_hubs_can_be_a_regions(home: Home) -> None:
    """They say so by their shape."""
    assert isinstance(home.hub, Region)


async def test_without_a_loan_only_the_regions_own_part_is_granted(home: Home) -> None:
    """However much is needed; and the answer says what there is."""
    await home.become_short()
    home.pass_s(1)
    answer = await home.report(used=OWN, need=80)
    other = await home.report(node="n2", allowance=0, need=80)

    assert OWN == answer.allowance + other.allowance
    assert OWN == answer.capacity


async def test_who_needs_more_than_there_is_is_on_the_list(home: Home) -> None:
    """With all that is needed to judge how much; and off it again when the need is over."""
    await home.report(need=1, per_s=0)

    assert await home.wish() is None

    await home.become_short()
    wish = await home.wish()

    assert wish is not None
    assert ("login", 100, OWN, OWN) == (wish.limit, wish.capacity, wish.own, wish.used)
    assert (50_000, 50_000) == (wish.needs_milli, wish.demand_milli)

    for node in ("n2", "n3"):  # what one held that was not heard of again counts as used at first
        home.pass_s(200)
        await home.report(allowance=0, node=node)

    assert await home.wish() is None


async def test_a_loan_is_granted_to_nodes_at_once(home: Home) -> None:
    """The next report hears of it."""
    await home.become_short()

    assert (Status.MERGED, 40) == await home.lend(40, sequence=1)

    home.pass_s(1)
    answer = await home.report(used=OWN, need=80)

    assert OWN + 40 == answer.allowance
    assert OWN + 40 == answer.capacity


async def test_what_nodes_hold_is_held_until_they_let_go(home: Home) -> None:
    """They are told to go down when they report, and have done so when they report again."""
    await home.become_short()
    await home.lend(40, sequence=1)
    home.pass_s(1)
    await home.report(used=OWN, need=80)

    assert (Status.MERGED, 40) == await home.lend(10, sequence=2)

    answer = await home.report(used=OWN)

    assert OWN + 10 == answer.allowance
    assert (Status.MERGED, 40) == await home.lend(10, sequence=3)

    await home.report(used=OWN)

    assert (Status.MERGED, 10) == await home.lend(10, sequence=4)


async def test_what_was_used_of_a_loan_is_held_while_it_counts(home: Home) -> None:
    """An allowance can be taken back, but not what was admitted on it."""
    await home.become_short()
    await home.lend(40, sequence=1)
    home.pass_s(1)
    await home.report(used=OWN, need=80)
    await home.lend(0, sequence=2)
    await home.report(used=OWN + 40)
    await home.report(used=OWN + 40)

    assert (Status.MERGED, 40) == await home.lend(0, sequence=3)


async def test_a_loan_ends_by_itself(home: Home) -> None:
    """By the hub's own clock; from then on it is as if it had been taken back."""
    await home.become_short()
    await home.lend(40, sequence=1, for_s=5.0)
    home.pass_s(4.9)

    assert OWN + 40 == (await home.report(used=OWN, need=80)).allowance

    home.pass_s(0.2)
    answer = await home.report(used=OWN, need=80)

    assert (OWN, OWN) == (answer.allowance, answer.capacity)


async def test_late_news_of_a_lender_change_nothing(home: Home) -> None:
    """Nor do the same news twice."""
    await home.become_short()
    await home.lend(10, sequence=7)

    assert (Status.STALE, 10) == await home.lend(60, sequence=6)
    assert (Status.STALE, 10) == await home.lend(60, sequence=7)
    assert (Status.MERGED, 60) == await home.lend(60, sequence=8)


async def test_a_cell_takes_loans_of_so_many_lenders_at_once(home: Home) -> None:
    """The last of LENDERS_MAX lends what it offers; the next one lends nothing, on every hub."""
    await home.become_short()
    for number in range(LENDERS_MAX - 1):
        await home.lend(1, sequence=1, lender=f"b{number}")

    assert (Status.MERGED, 1) == await home.lend(1, sequence=1, lender="last")
    assert (Status.MERGED, 0) == await home.lend(1, sequence=1, lender="next")


async def test_what_two_lenders_lend_is_added_up(home: Home) -> None:
    """And what is held is held by one of them, at least."""
    await home.become_short()
    await home.lend(15, sequence=1, lender="b1")

    assert (Status.MERGED, 25) == await home.lend(25, sequence=1, lender="b2")

    home.pass_s(1)

    assert OWN + 40 == (await home.report(used=OWN, need=80)).allowance
    assert (Status.MERGED, 15) == await home.lend(0, sequence=2, lender="b1")
    assert (Status.MERGED, 40) == await home.lend(0, sequence=2, lender="b2")


async def test_a_loan_that_has_ended_makes_no_debt_of_what_is_left(home: Home) -> None:
    """A cell that nobody has told of for long is gone, and nothing is held of it."""
    await home.become_short()
    await home.lend(40, sequence=1)
    home.pass_s(3600)

    assert (Status.MERGED, -1) == await home.lend(0, sequence=2)


@pytest.mark.parametrize(
    "loan",
    [Loan("nodes", 1, 1), Loan("c1:x:1:1:k", -1, 1), Loan("c1:x:1:1:k", 1, 2**60)],
    ids=["name", "amount", "end"],
)
async def test_loans_that_make_no_sense_are_not_sent(redis_server: RedisServer, loan: Loan) -> None:
    """A cell that is none, above all: it would be another key of the namespace."""
    hub = RedisHub(redis_server.url, HubSettings("shop", 5.0))

    with pytest.raises(HubUnavailable, match="protocol"):
        await hub.lend(0, "b1", 1, (loan,))
    await hub.close()


async def test_what_is_no_wish_is_not_believed(redis_server: RedisServer) -> None:
    """Another program may have put anything there: the hub raises the errors of hubs."""
    redis_server.command("HSET", "shop:{0}:meta", "c1:x:1:1:k", "\x93abc")
    hub = RedisHub(redis_server.url, HubSettings("shop", 5.0))

    with pytest.raises(HubUnavailable):
        await hub.wishes(0)
    await hub.close()
