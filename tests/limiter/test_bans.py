"""Goal: a key that was refused too often is refused until its ban ends, on all nodes, and is free again after it.

Method: agents alone under a clock that the test moves; nodes at one hub whose every message the test carries; two
agents on a real Redis. What is declared stands beside each scene.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from reconverge import (
    Agent,
    CostExceedsQuota,
    InvalidKey,
    InvalidLimit,
    InvalidSetting,
    LimitConflict,
    RateLimiter,
)
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.contracts.document import checked
from reconverge.contracts.model import InvalidContracts
from reconverge.limit import Limit
from reconverge.limiter.control import LimitControl
from reconverge.limiter.enforcement.bans import LOOK_NS, Bans, ban_terms, names_of
from reconverge.limiter.waiting.waiters import waiting_at
from reconverge.policies import NAIVE, STRICT
from reconverge.simulation.explore.node import INTERVAL_NS, START_S, SmallNode
from reconverge_sync.memory import MemoryHub

AFTER, FOR = "3/minute", "10 minutes"
FOR_S = 600
FIVE = Limit(5, 60, algorithm="fixed-window", align="first-hit")


class BanScene:
    """One agent without a hub, with a limit of 5 a minute that bans for 10 minutes after 3 refusals in one."""

    def __init__(self, max_keys: int = 1000) -> None:
        self.clock = ManualClock(START_S)
        self.agent = Agent(clock=self.clock, max_keys=max_keys)
        self.limiter = self.agent.limit("login", FIVE, block_after=AFTER, block_for=FOR)

    def tries(self, times: int, key: str = "ada") -> int:
        """How many of so many requests are admitted."""
        return sum(self.limiter.allow(key) for _ in range(times))

    def ban(self, key: str = "ada") -> None:
        """Bans a key by five requests that are admitted, and three that are not."""
        assert self.tries(8, key) == 5

    def counts(self) -> tuple[int, int, int]:
        """The refusals that were counted, the bans that were begun, and the requests that these refused."""
        limits = self.agent.stats().limits
        return limits["login/refusals"].admitted, limits["login/ban"].admitted, limits["login/ban"].refused


@pytest.fixture
def scene() -> BanScene:
    """An agent without a hub."""
    return BanScene()


def test_a_key_is_banned_by_the_refusal_that_fills_the_number(scene: BanScene) -> None:
    """Two refusals of three do not ban a key, the third does; other keys are not banned."""
    assert scene.tries(7) == 5
    scene.clock.advance(60)
    free = scene.limiter.test("ada").allowed

    scene.ban("bob")
    scene.clock.advance(60)

    assert free
    assert not scene.limiter.test("bob").allowed
    assert scene.limiter.test("ada").allowed


def test_refusals_of_an_earlier_window_do_not_count(scene: BanScene) -> None:
    """Two refusals in one minute and two in the next do not ban, where three in a minute would."""
    scene.tries(7)
    scene.clock.advance(61)
    scene.tries(7)
    scene.clock.advance(60)

    assert scene.limiter.allow("ada")
    assert scene.counts()[1] == 0


def test_a_banned_key_that_keeps_trying_is_not_banned_for_longer(scene: BanScene) -> None:
    """Ten requests a second for the whole ban do not move its end, and count towards no other ban."""
    scene.ban()
    for _ in range(FOR_S * 10 - 1):
        scene.clock.advance(0.1)
        assert not scene.limiter.allow("ada")
    scene.clock.advance(0.1)

    assert scene.tries(7) == 5
    assert scene.counts() == (5, 1, FOR_S * 10 - 1)


def test_a_decision_tells_the_end_of_the_ban(scene: BanScene) -> None:
    """`hit` and `test` name the ban as what refuses, and say when it ends."""
    scene.ban()
    scene.clock.advance(100)

    for decision in (scene.limiter.hit("ada"), scene.limiter.test("ada")):
        assert (False, "login/ban", 500.0, 0, True) == (
            decision.allowed,
            decision.binding,
            decision.retry_after,
            decision.remaining,
            decision.certain,
        )


def test_reset_lifts_a_ban_and_forgets_the_refusals(scene: BanScene) -> None:
    """After a reset the key has all of its limit, and two refusals do not ban it again."""
    scene.ban()
    scene.limiter.reset("ada")

    assert scene.tries(7) == 5
    assert scene.counts()[1] == 1


def test_all_ways_to_ask_refuse_a_banned_key(scene: BanScene) -> None:
    """A banned key is refused at once by each of them, and nothing is charged to its limit."""
    scene.ban()
    scene.clock.advance(60)
    limiter = scene.limiter

    assert not limiter.allow("ada")
    assert limiter.allow_many(["bob", "ada", "bob"]) == [True, False, True]
    assert not limiter.hit("ada")
    assert not limiter.ask_blocking("ada")
    assert not limiter.wait_blocking("ada", timeout=30)
    assert not limiter.reserve("ada", 2).decision
    assert not limiter.reserve("ada", 2, within=0.025).decision
    assert limiter.usage("ada").own == 0


def test_what_is_awaited_refuses_a_banned_key(scene: BanScene) -> None:
    """`ask`, `reserve_async` and `wait` refuse a banned key without a wait."""
    scene.ban()
    scene.clock.advance(60)

    assert not asyncio.run(scene.limiter.ask("ada"))
    assert not asyncio.run(scene.limiter.reserve_async("ada", 2)).decision
    assert not asyncio.run(scene.limiter.wait("ada", timeout=30))


async def test_a_request_that_waits_is_refused_when_its_key_is_banned(scene: BanScene) -> None:
    """It leaves with the refusal of the ban at once, is charged nothing, and does not count towards the next ban."""
    assert scene.tries(5) == 5
    waiting = [asyncio.create_task(scene.limiter.wait("ada", timeout=120)) for _ in range(2)]
    while waiting_at(scene.limiter.control.table).waiters("ada") < 2:  # noqa: ASYNC110  # both begin in this loop
        await asyncio.sleep(0)
    assert scene.tries(3) == 0
    first, second = await asyncio.wait_for(asyncio.gather(*waiting), timeout=20)
    decisions = first, second

    assert [(False, "login/ban"), (False, "login/ban")] == [(each.allowed, each.binding) for each in decisions]
    assert scene.counts() == (3, 1, 2)
    assert scene.limiter.usage("ada").own == 5


async def test_a_request_that_waits_is_refused_when_another_node_has_banned_its_key(scene: BanScene) -> None:
    """It is told so when its turn comes, which would have admitted it; no refusal is counted here."""
    assert scene.tries(5) == 5
    waiting = asyncio.create_task(scene.limiter.wait("ada", timeout=120))
    while waiting_at(scene.limiter.control.table).waiters("ada") < 1:  # noqa: ASYNC110  # it begins in this loop
        await asyncio.sleep(0)
    bans = scene.limiter.control.bans
    assert bans is not None
    bans.table.hit("ada")  # as with an answer of the hub that comes LOOK_NS later
    bans.free.discard("ada")
    scene.clock.advance(60)
    decision = await asyncio.wait_for(waiting, timeout=20)

    assert (False, "login/ban") == (decision.allowed, decision.binding)
    assert scene.counts() == (0, 1, 1)


@pytest.mark.parametrize("way", ["hit", "ask_blocking", "reserve", "wait_blocking", "allow_many"])
def test_refusals_count_by_whatever_way_they_come(scene: BanScene, way: str) -> None:
    """Three refusals ban a key, whichever method has refused."""
    calls: dict[str, Callable[[], object]] = {
        "hit": lambda: scene.limiter.hit("ada"),
        "ask_blocking": lambda: scene.limiter.ask_blocking("ada"),
        "reserve": lambda: scene.limiter.reserve("ada", 1),
        "wait_blocking": lambda: scene.limiter.wait_blocking("ada", timeout=0),
        "allow_many": lambda: scene.limiter.allow_many(["ada"]),
    }
    for _ in range(8):
        calls[way]()

    assert scene.counts() == (3, 1, 0)


def test_questions_do_not_count(scene: BanScene) -> None:
    """`test`, `usage` and a cost of nothing are no requests, and ban no key; not even one that is in debt."""
    scene.limiter.reserve("ada", 5).settle(20)
    for _ in range(10):
        scene.limiter.test("ada")
        scene.limiter.usage("ada")
        assert not scene.limiter.allow("ada", 0)

    assert scene.counts() == (0, 0, 0)


def test_a_mistake_is_raised_of_a_banned_key_too(scene: BanScene) -> None:
    """A value that is no key, and a cost that could never be admitted, raise as without a ban."""
    scene.ban()

    with pytest.raises(InvalidKey):
        scene.limiter.allow(["ada"])  # type: ignore[arg-type]
    with pytest.raises(CostExceedsQuota):
        scene.limiter.allow("ada", 6)
    with pytest.raises(InvalidSetting, match="costs"):
        scene.limiter.allow_many(["ada", "bob"], [1])


def test_in_shadow_a_banned_key_is_admitted_and_told_of(scene: BanScene) -> None:
    """In shadow a ban refuses nothing, and the decision says that it would; no refusal by a ban is counted."""
    scene.ban()
    scene.limiter.switch("shadow")
    decision = scene.limiter.hit("ada")

    assert decision.allowed
    assert decision.would_refuse
    assert decision.binding == "login/ban"
    assert scene.limiter.allow("ada")
    assert scene.counts()[2] == 0


def test_what_shadow_would_refuse_bans_no_key(scene: BanScene) -> None:
    """A client that was served through the whole shadow is not banned when the limit is on, by whatever way it came."""
    scene.limiter.switch("shadow")
    admitted = scene.tries(20)
    for _ in range(10):
        scene.limiter.hit("ada")
        scene.limiter.reserve("ada", 1)
        scene.limiter.wait_blocking("ada", timeout=0)
        scene.limiter.allow_many(["ada"])
    scene.limiter.switch("on")
    scene.clock.advance(60)

    assert admitted == 20
    assert scene.counts() == (0, 0, 0)
    assert scene.tries(7) == 5


def test_off_a_limit_neither_bans_nor_looks(scene: BanScene) -> None:
    """Switched off, a limit admits a banned key and counts no refusal; on again, the ban is in force as before."""
    scene.ban()
    scene.limiter.switch("off")
    admitted = scene.tries(20)
    scene.limiter.switch("on")

    assert admitted == 20
    assert not scene.limiter.allow("ada")
    assert scene.counts() == (3, 1, 1)


def test_keys_beyond_the_cap_are_never_banned_together() -> None:
    """Keys that share one count, as there is no room for them, are refused by their limit, and none is banned."""
    scene = BanScene(max_keys=3)
    scene.ban("ada")
    for key in ("bob", "cleo", "dan"):
        scene.tries(12, key)

    assert [key for key in ("ada", "bob", "cleo", "dan", "new") if scene.limiter.test(key).binding == "login/ban"] == [
        "ada"
    ]
    assert scene.counts()[1] == 1


def test_a_ban_outlasts_a_flood_of_keys() -> None:
    """However many keys come after it, a ban neither ends early nor lasts longer."""
    scene = BanScene(max_keys=30)
    scene.ban("ada")
    for number in range(FOR_S * 10 - 1):
        scene.clock.advance(0.1)
        scene.limiter.allow(f"key{number}")
        assert scene.limiter.test("ada").binding == "login/ban"
    scene.clock.advance(0.1)

    assert scene.limiter.test("ada").allowed


def test_what_the_shared_count_has_bans_no_key() -> None:
    """Even if a ban was charged to the one count of keys beyond the cap, no key without one of its own is banned."""
    scene = BanScene(max_keys=3)
    for key in ("bob", "cleo", "dan"):
        scene.tries(3, key)
    bans = scene.limiter.control.bans
    assert bans is not None
    bans.table.hit("ada")

    assert bans.table.usage("new").total == 1
    assert not bans.is_banned("ada")
    assert not bans.is_banned("new")


@pytest.mark.parametrize("seconds", [0, 86_400, -86_400])
def test_a_ban_lasts_as_long_as_declared_whatever_the_wall_clock_says(scene: BanScene, seconds: int) -> None:
    """From the last refusal to the last moment of ten minutes, also where the clock is set a day forward or back."""
    scene.ban()
    scene.clock.advance(100)
    scene.clock.jump(seconds)
    scene.clock.advance(FOR_S - 100.001)
    before = scene.limiter.allow("ada")
    scene.clock.advance(0.001)

    assert not before
    assert scene.tries(7) == 5


def test_a_ban_that_another_thread_begins_during_a_look_is_noticed(scene: BanScene) -> None:
    """A look that has read the count just before a ban began does not have the key believed to be free."""
    bans = scene.limiter.control.bans
    assert bans is not None

    note = bans.note

    class Interrupted(set[str]):
        """A set of free keys; another thread bans a key just before it is added."""

        def add(self, key: str) -> None:
            for _ in range(3):
                note(key)
            super().add(key)

    bans.free = Interrupted()

    assert bans.is_banned("ada")
    assert bans.is_banned("ada")
    assert not bans.free


def test_threads_that_are_refused_at_once_begin_one_ban_and_pass_no_request(scene: BanScene) -> None:
    """Eight threads that go on asking about one key get five requests through, and the ban ends when it says."""
    with ThreadPoolExecutor(8) as pool:
        admitted = sum(pool.map(lambda _: scene.tries(200), range(8)))
    decision = scene.limiter.test("ada")
    scene.clock.advance(FOR_S)

    assert admitted == 5
    assert decision.retry_after == FOR_S
    assert scene.limiter.test("ada").allowed


def test_a_share_is_banned_by_its_own_refusals_and_not_by_its_parents() -> None:
    """A key that is banned in a limit is served by a share that bans none; a share bans by its own refusals."""
    clock = ManualClock(START_S)
    agent = Agent(clock=clock)
    parent = agent.limit("api", "10/minute", block_after=AFTER, block_for=FOR)
    share = agent.limit("search", "4/minute", parent=parent)
    own = agent.limit("login", "2/minute", parent=parent, block_after=AFTER, block_for=FOR)
    for _ in range(20):
        parent.allow("ada")
        own.allow("bob")

    assert parent.test("ada").binding == "api/ban"
    assert share.test("ada").allowed
    assert own.test("bob").binding == "login/ban"


def test_what_is_remembered_of_free_keys_is_bounded() -> None:
    """A flood of keys leaves no more names in memory than the agent counts keys."""
    scene = BanScene(max_keys=10)
    for number in range(1000):
        scene.limiter.allow(f"key{number}")

    assert scene.limiter.control.bans is not None
    assert len(scene.limiter.control.bans.free) <= 10


def test_to_forget_an_identity_ends_its_bans(scene: BanScene) -> None:
    """After `forget` an identity has all of its limit again, and its refusals count for no ban."""
    scene.ban()
    asyncio.run(scene.agent.forget("ada"))

    assert scene.tries(7) == 5


@pytest.mark.parametrize(
    ("after", "lasts"),
    [
        ("3/minute", None),
        (None, "10 minutes"),
        ("3/minute", "30 seconds"),
        ("3/minute", 0),
        ("3/minute", True),
        ("3/minute", "soon"),
        ("many", 600),
        (3, 600),
        ("3/minute; 10/hour", 3600),
        ("3/minute as few", 600),
    ],
)
def test_what_makes_no_ban_is_an_error_that_names_it(after: str | None, lasts: float | str | None) -> None:
    """One setting without the other, a ban shorter than its window, and nonsense raise InvalidSetting."""
    with pytest.raises(InvalidSetting, match="block_"):
        Agent().limit("login", "5/minute", block_after=after, block_for=lasts)


@pytest.mark.parametrize("lasts", ["10 minutes", 600, 600.0, timedelta(minutes=10)])
def test_durations_are_words_numbers_or_a_timedelta(lasts: float | str | timedelta) -> None:
    """Ten minutes are the same however they are written."""
    terms = ban_terms(AFTER, lasts)

    assert terms is not None
    assert terms.ban.window == FOR_S
    assert (terms.refusals.quota, terms.refusals.window) == (3, 60)


def test_limits_whose_refusals_are_never_certain_do_not_ban() -> None:
    """Slots and smooth limits raise InvalidSetting, as their refusals would ban no key."""
    smooth = Limit(5, 60, algorithm="smooth-bursty")
    with pytest.raises(InvalidSetting, match=r"block_after.*certain"):
        Agent().limit("login", smooth, block_after=AFTER, block_for=FOR)
    with pytest.raises(InvalidSetting, match=r"block_after.* is a setting of limits on a rate"):
        Agent().declare("login", "5 in flight", block_after=AFTER, block_for=FOR)


def test_a_declaration_again_is_the_same_limiter_and_another_is_an_error() -> None:
    """The same terms, or none, return the limiter; others raise, and so does a name that is taken."""
    agent = Agent()
    login = agent.limit("login", "5/minute", block_after=AFTER, block_for=FOR)
    agent.limit("mail/ban", "5/minute")
    agent.limit("news/ban", Limit(1, FOR_S, algorithm="fixed-window", align="first-hit"), policy="naive")

    assert agent.limit("login", "5/minute", block_after=AFTER, block_for=FOR) is login
    assert agent.limit("login", "5/minute") is login
    with pytest.raises(InvalidSetting, match="block_for"):
        agent.limit("login", "5/minute", block_after="4/minute", block_for=FOR)
    for taken in ("mail", "news"):
        with pytest.raises(LimitConflict):
            agent.limit(taken, "5/minute", block_after=AFTER, block_for=FOR)
    assert not {"mail", "mail/refusals", "news", "news/refusals"} & set(agent.stats().limits)
    with pytest.raises(InvalidLimit):
        agent.limit("x" * 60, "5/minute", block_after=AFTER, block_for=FOR)


@pytest.mark.parametrize("field", ["block_after", "block_for"])
def test_a_contract_that_says_a_ban_is_an_error_that_says_where_bans_are_declared(field: str) -> None:
    """Contracts declare no bans: the error names the field and `agent.limit`."""
    plans = {"free": {"limits": {"login": {"limit": "5/minute", field: "20/minute"}}}}

    with pytest.raises(InvalidContracts, match=rf"plans\.free\.limits\.login\.{field}: .*agent\.limit"):
        checked({"plans": plans})


def test_a_pace_of_its_own_is_that_of_its_bans_too() -> None:
    """The counts of refusals and bans are exchanged as often as the limit that they belong to."""
    agent = Agent("memory://")
    login = agent.limit("login", "5/minute", block_after=AFTER, block_for=FOR, sync_interval=0.5)
    agent.change_pace(0.7, limit="login")

    assert {round(table.interval_ns / 1e9, 3) for table in login.control.all_tables} == {0.7}
    assert [table.name for table in login.control.all_tables] == ["login", "login/refusals", "login/ban"]


class BanningFleet:
    """Nodes at one hub with the limit of `BanScene`, whose messages the test carries."""

    def __init__(self, nodes: int = 2) -> None:
        self.clock = ManualClock(START_S)
        self.hub = MemoryHub(clock=self.clock)
        self.nodes = [SmallNode(self.clock) for _ in range(nodes)]
        self.limiters = [self._limiter(node) for node in self.nodes]

    @staticmethod
    def _limiter(node: SmallNode) -> RateLimiter:
        terms = ban_terms(AFTER, FOR)
        assert terms is not None
        refusals, ban = (
            node.kernel.declare(name, limit, NAIVE) for name, limit in zip(names_of("login"), terms, strict=True)
        )
        return RateLimiter(LimitControl(node.kernel.declare("login", FIVE, STRICT), Bans(refusals, ban)))

    def passes(self, seconds: float, *connected: int) -> None:
        """Let time pass, while nodes exchange, by default all of them."""
        for _ in range(round(seconds * SECOND_NS / INTERVAL_NS)):
            for number, node in enumerate(self.nodes):
                if not connected or number in connected:
                    node.exchanges_with(self.hub)
            self.clock.advance_ns(INTERVAL_NS)

    def meet(self) -> None:
        for limiter in self.limiters:
            limiter.allow("ada", 0)
        self.passes(2)

    def ban_at(self, number: int, *connected: int) -> None:
        """Uses one node until it bans."""
        limiter = self.limiters[number]
        for _ in range(100):
            if not limiter.test("ada").allowed and limiter.test("ada").binding == "login/ban":
                return
            limiter.allow("ada")
            self.passes(0.1, *connected)
        raise AssertionError("no ban after a hundred requests")

    def banned(self) -> list[bool]:
        """Which nodes refuse the key for its ban."""
        return [limiter.test("ada").binding == "login/ban" for limiter in self.limiters]


LATEST_S = (LOOK_NS + 5 * INTERVAL_NS) / SECOND_NS
"""By then every node that is asked about a key knows of its ban, while exchanges are answered."""


def test_another_node_knows_of_a_ban_within_a_look_and_the_exchanges() -> None:
    """A node that has refused nothing refuses the key within LATEST_S of the ban, and until the same moment."""
    fleet = BanningFleet(3)
    fleet.meet()
    fleet.ban_at(0)
    for _ in range(round(LATEST_S / 0.1)):
        fleet.passes(0.1)
        fleet.banned()
    ends = [limiter.test("ada").retry_after for limiter in fleet.limiters]

    assert fleet.banned() == [True, True, True]
    assert max(ends) - min(ends) < 0.001


def test_refusals_of_all_nodes_count_together() -> None:
    """After one refusal on each of three nodes, of which all have heard, the next one bans, and on all nodes."""
    fleet = BanningFleet(3)
    fleet.meet()
    for limiter in fleet.limiters:
        bans = limiter.control.bans
        assert bans is not None
        bans.note("ada")
    fleet.passes(1)
    before = any(fleet.banned())
    last = fleet.limiters[1].control.bans
    assert last is not None
    last.note("ada")
    for _ in range(round(LATEST_S / 0.1)):
        fleet.passes(0.1)
        fleet.banned()

    assert not before
    assert fleet.banned() == [True, True, True]


def test_refusals_in_doubt_do_not_count() -> None:
    """A node that has not heard of the hub refuses in `strict`, and however often it does, it bans no key."""
    fleet = BanningFleet(1)
    limiter = fleet.limiters[0]
    admitted = [limiter.allow("ada") for _ in range(10)]

    assert admitted == [False] * 10
    assert fleet.banned() == [False]


def test_a_banned_key_is_settled_by_memory() -> None:
    """A request of a banned key does not ask the hub, although its limit may have room again."""
    fleet = BanningFleet(2)
    fleet.meet()
    fleet.ban_at(0)
    fleet.passes(61)
    fleet.banned()
    fleet.passes(1)
    on = fleet.limiters[1].control.enforcement.on

    assert fleet.banned() == [True, True]
    assert on.settles("ada", 5, None)
    assert not fleet.limiters[1].control.table.settles("ada", 5)


def test_a_reset_on_another_node_lifts_a_ban_everywhere() -> None:
    """After a reset no node bans the key, within the time of a look and the exchanges."""
    fleet = BanningFleet(2)
    fleet.meet()
    fleet.ban_at(0)
    fleet.passes(LATEST_S)
    fleet.limiters[1].reset("ada")
    for _ in range(round(LATEST_S / 0.1)):
        fleet.passes(0.1)
        fleet.banned()

    assert fleet.banned() == [False, False]


def test_a_node_that_is_cut_off_learns_of_a_ban_when_it_is_back() -> None:
    """While a node is cut off it bans by its own refusals alone; connected again, it keeps to the ban of the others."""
    fleet = BanningFleet(2)
    fleet.meet()
    fleet.ban_at(0, 0)
    fleet.passes(2, 0)
    apart = fleet.banned()
    fleet.banned()
    fleet.passes(5)
    fleet.banned()
    fleet.passes(LATEST_S)

    assert apart == [True, False]
    assert fleet.banned() == [True, True]


def test_a_ban_outlives_a_hub_that_has_lost_its_data() -> None:
    """A node that has begun a ban tells an empty hub of it, and from there others learn it again."""
    fleet = BanningFleet(2)
    fleet.meet()
    fleet.ban_at(0)
    fleet.passes(LATEST_S)
    fleet.hub = MemoryHub(clock=fleet.clock)
    for _ in range(100):
        fleet.passes(0.1)
        fleet.banned()

    assert fleet.banned() == [True, True]
