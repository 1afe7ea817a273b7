"""Goal: a request that memory cannot settle is settled by the hub, within the time that it may wait, or by memory.

Method: the real kernel, syncer and hub, whose every message the test carries, and the very steps that `ask` goes
through; agents on a real Redis where threads, loops and a stopped server matter.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest

from reconverge import Agent, CostExceedsQuota, InvalidCost, InvalidKey, InvalidSetting, Limit, RateLimiter
from reconverge.clock import MILLISECOND_NS, SECOND_NS, ManualClock, SystemClock
from reconverge.exchange.syncer import CELLS_MAX
from reconverge.kernel import Settled
from reconverge.kernel.cell import measure
from reconverge.kernel.composite.decider import Decider
from reconverge.limiter.asking import Asking, Result, Steps
from reconverge.policies import BALANCED, NAIVE, STRICT, Policy
from reconverge.simulation.explore.node import INTERVAL_NS, START_S, SmallNode
from reconverge_sync.memory import MemoryHub
from tests.support.agents import until_near
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

WITHIN_NS = 25 * MILLISECOND_NS
PATIENT_S = 5.0
"""So long that no pause of a busy machine looks like a hub that does not answer."""
FIVE = Limit(5, 60, algorithm="fixed-window")
ALGORITHMS = [
    "fixed-window",
    "sliding-window",
    "sliding-log",
    "sliding-slices",
    "token-bucket",
    "gcra",
]


class Ring:
    """Counts how often it was rung."""

    due_ns = 0
    gone = False

    def __init__(self) -> None:
        self.rings = 0

    def wake(self) -> None:
        self.rings += 1


class Ask:
    """One request that asks, stepped by the test."""

    def __init__(self, asking: Asking, key: str = "ada", cost: int = 1, *, marks: bool = False) -> None:
        self.ring = Ring()
        self.steps: Steps = asking.steps(asking.request(key, cost, None, WITHIN_NS, marks=marks), self.ring)
        self.settled: Settled | None = None
        self.sleep_ns = 0
        self.goes_on()

    def goes_on(self) -> None:
        """Go on as far as it goes without the hub."""
        try:
            self.sleep_ns = next(self.steps)
        except StopIteration as end:
            self.settled = end.value

    def sleeps(self, clock: ManualClock) -> int:
        """Let it wait until it has its answer, its loop being run all the while; returns for how long."""
        began_ns = clock.monotonic_ns()
        while self.waits:
            clock.advance_ns(self.sleep_ns)
            self.goes_on()
        return clock.monotonic_ns() - began_ns

    @property
    def waits(self) -> bool:
        """Whether it has not been answered."""
        return self.settled is None

    @property
    def allowed(self) -> bool:
        """The answer."""
        assert self.settled is not None, "it waits"
        return self.settled.decision.allowed


class AskingNodes:
    """Nodes with one limit at one hub."""

    def __init__(
        self,
        *quotas: Limit,
        nodes: int = 2,
        policy: Policy = STRICT,
        asks_max: int | None = None,
        interval_ns: int = INTERVAL_NS,
    ) -> None:
        self.clock = ManualClock(START_S)
        self.hub = MemoryHub(clock=self.clock)
        self.nodes = [SmallNode(self.clock, interval_ns=interval_ns) for _ in range(nodes)]
        if asks_max is not None:
            for node in self.nodes:
                node.kernel.asks.per_second = asks_max
                node.kernel.asks.start_over()
        self.limits: list[Decider] = [
            node.kernel.composites.declare(
                "limit", {f"limit{number or ''}": quota for number, quota in enumerate(quotas)}, policy, parents=None
            )
            for node in self.nodes
        ]
        self.asking = [Asking(limit) for limit in self.limits]

    def asks(self, node: int = 0, key: str = "ada", cost: int = 1) -> Ask:
        """A request of a node that asks."""
        return Ask(self.asking[node], key, cost)

    def settles(self, node: int = 0, key: str = "ada", cost: int = 1) -> bool:
        """The answer to a request that asks, with an exchange if it waits for one."""
        asking = self.asking[node]
        settled = asking.at_once(asking.request(key, cost, None, WITHIN_NS))
        if settled is not None:
            return settled.decision.allowed
        ask = self.asks(node, key, cost)
        if ask.waits:
            self.exchanges(node)
            ask.goes_on()
        return ask.allowed

    def exchanges(self, node: int = 0) -> None:
        self.nodes[node].exchanges_with(self.hub)

    def results(self, node: int = 0) -> dict[Result, int]:
        """Returns the results of a node's asks, without those that have not occurred."""
        return {result: count for result, count in self.asking[node].stats.results.items() if count}

    def nothing_waits(self) -> bool:
        """Whether nothing is left of any ask."""
        cells = [cell for node in self.nodes for table in node.kernel.tables.values() for cell in table.all_cells()]
        askers = [shard.askers for node in self.nodes for shard in node.kernel.shards]
        left = [(cell.waiters, cell.waiting, cell.head_cost) for cell in cells]
        return [(0, 0, 0)] * len(cells) == left and [{}] * len(askers) == askers


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_new_key_is_asked_about_before_it_is_decided(algorithm: str) -> None:
    """Eight nodes ask about a key that none of them knows, and all together admit the quota, and not the quota each."""
    scene = AskingNodes(Limit(5, 60, algorithm=algorithm), nodes=8, policy=BALANCED)

    admitted = sum(scene.settles(node) for node in range(8) for _ in range(3))

    assert admitted <= 5
    assert scene.settles(7, "eve")
    assert scene.nothing_waits()


def test_without_asking_each_node_admits_the_quota_of_a_new_key() -> None:
    """This is the cold allowance of `balanced`: the test above would miss nothing if asking did nothing."""
    scene = AskingNodes(FIVE, nodes=8, policy=BALANCED)

    assert 24 == sum(limit.allow("ada") for limit in scene.limits for _ in range(3))


def test_a_request_waits_for_the_answer_to_a_batch_that_carried_it() -> None:
    """The answer to the batch before tells it nothing; that batch was sent before the request came."""
    scene = AskingNodes(FIVE)
    node = scene.nodes[0]
    node.limit(FIVE, STRICT, "other").allow("eve")
    node.sends()
    scene.clock.advance_ns(MILLISECOND_NS)

    ask = scene.asks()
    node.reaches(scene.hub)
    node.hears()
    ask.goes_on()
    assert ask.waits

    scene.exchanges()
    ask.goes_on()
    assert ask.allowed


def test_a_report_that_leaves_between_a_look_at_a_key_and_the_ask_answers_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The look makes the key known, so a batch may carry it before the request has joined; that grants nothing."""
    scene = AskingNodes(FIVE)
    node, asking = scene.nodes[0], scene.asking[0]
    joins = asking.join

    def joins_late(*arguments: Any) -> int | None:
        """Another thread has its turn first."""
        assert node.sends() is not None
        scene.clock.advance_ns(MILLISECOND_NS)
        return joins(*arguments)

    monkeypatch.setattr(asking, "join", joins_late)
    scene.limits[0].test("ada")
    ask = scene.asks()
    scene.clock.advance_ns(MILLISECOND_NS)
    node.reaches(scene.hub)
    node.hears()
    ask.goes_on()
    assert ask.waits, "an answer to what was said before it asked has settled it"

    scene.exchanges()
    ask.goes_on()
    assert ask.allowed


def test_the_answer_to_a_batch_without_the_key_settles_no_ask_about_it() -> None:
    """More keys are asked about than a batch has room for: one of them was heard of before it asked, and waits."""
    scene = AskingNodes(FIVE)
    node = scene.nodes[0]
    keys = [f"customer {number}" for number in range(2 * CELLS_MAX)]
    for key in keys:
        scene.limits[0].test(key)
    node.sends()
    scene.clock.advance_ns(MILLISECOND_NS)
    asks = [scene.asks(key=key) for key in keys]
    scene.clock.advance_ns(3 * MILLISECOND_NS)
    for _ in range(4):
        node.reaches(scene.hub)
        node.hears()
        scene.clock.advance_ns(MILLISECOND_NS)
        node.sends()
        scene.clock.advance_ns(MILLISECOND_NS)
        for ask in asks:
            if ask.waits:
                ask.goes_on()

    assert [True] * len(keys) == [ask.allowed for ask in asks]


def test_an_ask_leaves_as_soon_as_no_batch_is_under_way() -> None:
    """Not after the shortest interval between two exchanges, as a decision's wish for one would."""
    scene = AskingNodes(FIVE)
    scene.settles(0, "eve")
    scene.clock.advance_ns(INTERVAL_NS // 1000)
    now_ns = scene.clock.monotonic_ns()
    assert scene.nodes[0].syncer.due_ns(now_ns) > now_ns

    scene.asks()

    assert scene.nodes[0].syncer.due_ns(now_ns) <= now_ns


def test_all_that_ask_are_told_of_the_answer() -> None:
    """One batch carries what asks at once, of one key and of several."""
    scene = AskingNodes(FIVE)
    asks = [scene.asks(0, f"key{number % 2}") for number in range(8)]

    scene.exchanges()

    assert [1] * 8 == [ask.ring.rings for ask in asks]
    assert 1 == scene.nodes[0].syncer.stats(0).exchanges


def test_what_the_hub_refuses_is_refused_though_the_policy_would_dare_more() -> None:
    """`balanced` goes beyond its allowance when the hub does not answer; here it has."""
    scene = AskingNodes(FIVE, nodes=2, policy=BALANCED)
    for _ in range(5):
        scene.settles(0)

    assert not scene.settles(1)
    assert 5 == sum(cell.used for limit in scene.limits for cell in limit.tables[0].all_cells())


def test_a_certain_answer_asks_nothing() -> None:
    """Neither an admission within the allowance, nor a refusal of what is used up."""
    scene = AskingNodes(FIVE, nodes=1)
    assert [True] * 5 == [scene.settles() for _ in range(5)]
    scene.exchanges()
    before = scene.nodes[0].syncer.stats(0).exchanges

    assert [False] * 5 == [scene.settles() for _ in range(5)]
    assert before == scene.nodes[0].syncer.stats(0).exchanges


def test_after_its_time_memory_answers_and_no_further_request_waits() -> None:
    """Until the hub has answered: then the next request in doubt asks again."""
    scene = AskingNodes(FIVE, policy=BALANCED)
    assert scene.settles(0, "zoe")  # the hub has answered before
    scene.clock.advance_ns(MILLISECOND_NS)
    ask = scene.asks()
    scene.nodes[0].sends()

    assert WITHIN_NS == ask.sleeps(scene.clock)
    assert ask.allowed  # by the cold allowance
    assert not scene.asks(0, "eve").waits
    assert {"admitted": 1, "timeout": 1, "in_vain": 1} == scene.results()

    scene.nodes[0].reaches(scene.hub)
    scene.nodes[0].hears()
    scene.clock.advance_ns(INTERVAL_NS)
    scene.exchanges()  # and not as slowly
    assert scene.asks(0, "bob").waits


def test_a_failed_exchange_lets_all_that_ask_go_at_once() -> None:
    """They do not wait for the end of their time; the rest of it would be in vain."""
    scene = AskingNodes(FIVE)
    ask = scene.asks()
    scene.nodes[0].sends()

    scene.nodes[0].gives_up()
    ask.goes_on()

    assert not ask.waits
    assert 1 == ask.ring.rings
    assert scene.nothing_waits()


def test_what_stops_asking_has_not_been_charged() -> None:
    """Cancelled before, while and after its batch is under way; a later request finds the whole quota."""
    scene = AskingNodes(FIVE, nodes=1)
    for stage in range(4):
        key = f"key{stage}"
        ask = scene.asks(0, key, 5)
        if stage > 0:
            scene.nodes[0].sends()
        if stage > 1:
            scene.nodes[0].reaches(scene.hub)
        if stage > 2:
            scene.nodes[0].hears()
        assert ask.waits
        ask.steps.close()
        assert scene.nothing_waits()
        assert 0 == scene.limits[0].usage(key).own
        scene.nodes[0].reaches(scene.hub)
        scene.nodes[0].hears()

        assert scene.settles(0, key, 5)


def test_of_several_quotas_all_are_charged_or_none() -> None:
    """A request that one of them lacks room for charges nothing, and is refused by that one."""
    scene = AskingNodes(FIVE, Limit(2, 3600, algorithm="sliding-window"), nodes=1)

    assert [True, True, False] == [scene.settles() for _ in range(3)]
    assert [2, 2] == [usage.own for usage in scene.limits[0].usages("ada").values()]


def test_demand_counts_once() -> None:
    """However a request that asked was decided, it is one request to the hub."""
    scene = AskingNodes(FIVE, nodes=1)
    for _ in range(7):
        scene.settles()
    scene.exchanges()

    (cell,) = scene.limits[0].tables[0].all_cells()
    measure(cell)
    assert 7 == cell.window_demand + cell.arrived


def test_beyond_the_budget_memory_answers() -> None:
    """Requests that join a batch that is to leave anyway take nothing from it."""
    scene = AskingNodes(FIVE, policy=BALANCED, asks_max=1)
    assert scene.asks(0, "ada").waits
    assert scene.asks(0, "eve").waits
    scene.exchanges()

    assert not scene.asks(0, "bob").waits
    assert {"capped": 1} == scene.results()

    scene.clock.advance_ns(SECOND_NS)
    assert scene.asks(0, "zoe").waits


def test_with_asks_max_of_zero_none_asks() -> None:
    """Memory decides, as without."""
    scene = AskingNodes(FIVE, policy=BALANCED, asks_max=0)

    assert not scene.asks().waits


def test_a_refusal_in_doubt_is_followed_by_a_pause() -> None:
    """Another node holds what is left, and has to give it back first: to ask at once again would be in vain."""
    scene = AskingNodes(FIVE)
    for _ in range(3):  # does not ask, and is granted ahead of its requests
        scene.limits[0].allow("ada")
        scene.exchanges(0)
    usage = scene.limits[0].tables[0].usage("ada")
    assert usage.allowance > usage.own
    cost = 5 - usage.own
    assert not scene.settles(1, cost=cost)
    exchanges = scene.nodes[1].syncer.stats(0).exchanges

    assert [False] * 20 == [scene.settles(1, cost=cost) for _ in range(20)]
    assert exchanges == scene.nodes[1].syncer.stats(0).exchanges

    scene.clock.advance_ns(INTERVAL_NS)
    assert scene.asks(1, cost=cost).waits


@pytest.mark.parametrize(
    ("algorithm", "intervals", "pauses"), [("sliding-window", 90, True), ("fixed-window", 79, False)]
)
def test_what_comes_free_bit_by_bit_is_asked_for_once_in_an_interval(
    algorithm: str, intervals: int, pauses: bool
) -> None:
    """Else all nodes of a flood would ask about each part that fades; all of a fixed window comes free at once."""
    scene = AskingNodes(Limit(600, 6, algorithm=algorithm))
    for cost in (300, 300):
        assert scene.settles(1, cost=cost)
    for _ in range(intervals):  # a fixed window ends within the next one
        scene.clock.advance_ns(INTERVAL_NS)
        scene.exchanges(0)
        scene.exchanges(1)
    assert scene.settles(0)
    while scene.settles(1, cost=10):
        pass
    assert not scene.settles(0, cost=100)  # it has asked, and knows now that another node was first
    assert {"admitted": 1, "refused": 1} == scene.results(0)

    asking, passed = scene.asking[0], 0
    while asking.at_once(asking.request("ada", 1, None, WITHIN_NS)) is not None:
        scene.clock.advance_ns(INTERVAL_NS // 100)
        passed += 1

    assert passed < 100
    assert pauses != scene.asks(0, cost=100).waits


def test_memory_decides_about_a_key_that_the_hub_has_no_room_for() -> None:
    """By the cold rule, as without asking; the hub's answer says nothing about it."""
    scene = AskingNodes(FIVE, policy=BALANCED)
    scene.hub = MemoryHub(clock=scene.clock, max_cells=1)
    assert scene.settles(0, "eve")

    assert scene.settles(0, "ada")
    assert 1 == scene.results()["unsettled"]


def test_memory_decides_while_the_hub_learns_what_it_has_lost() -> None:
    """It knows less than its nodes then, and grants nothing."""
    scene = AskingNodes(Limit(100, 60, algorithm="fixed-window"), nodes=1, policy=BALANCED)
    assert scene.settles(0)
    scene.hub = MemoryHub(clock=scene.clock)
    scene.nodes[0].exchanges_with(scene.hub)
    scene.clock.advance_ns(INTERVAL_NS)

    assert scene.settles(0, "eve")


@pytest.mark.parametrize("algorithm", ["leaky-bucket", "smooth-bursty"])
def test_a_paced_limit_asks_for_a_part_of_the_rate_and_not_for_its_turn(algorithm: str) -> None:
    """A node that has a part of the rate knows when the next request goes; the hub does not."""
    scene = AskingNodes(Limit(5, 60, algorithm=algorithm), nodes=1)
    assert scene.settles()
    while scene.settles():
        pass
    exchanges = scene.nodes[0].syncer.stats(0).exchanges

    assert not scene.settles()
    assert exchanges == scene.nodes[0].syncer.stats(0).exchanges


def test_a_policy_that_goes_by_totals_alone_asks_nothing() -> None:
    """`naive` has no allowances that a hub could grant."""
    scene = AskingNodes(FIVE, nodes=1, policy=NAIVE)

    assert [True] * 5 + [False] == [scene.settles() for _ in range(6)]
    assert {} == scene.results()


@pytest.mark.parametrize(("round_trips", "waits"), [(1, True), (2, False)])
def test_a_hub_that_is_too_far_is_not_waited_for(round_trips: int, waits: bool) -> None:
    """Round trips longer than a request may wait would only cost it that time; the first opens the connection, too."""
    scene = AskingNodes(FIVE, policy=BALANCED)
    node = scene.nodes[0]
    for number in range(round_trips):
        scene.asks(0, f"key{number}")
        node.sends()
        scene.clock.advance_ns(2 * WITHIN_NS)
        node.reaches(scene.hub)
        node.hears()

    assert waits == scene.asks(0).waits


@pytest.fixture
def login(redis_server: RedisServer, make_agent: Callable[..., Agent]) -> Callable[..., RateLimiter]:
    """Makes an agent at one Redis with a small limit, as a process has it."""

    def make(limit: str = "5/minute", **settings: object) -> RateLimiter:
        return make_agent(f"redis://127.0.0.1:{redis_server.port}/0", **settings).limit("login", limit)

    return make


def answers_at_once(limiters: list[RateLimiter], ask: Callable[[RateLimiter], Any]) -> list[Any]:
    """Calls `ask` for all limiters at the same moment, each on a thread of its own. Returns the results."""
    start = threading.Barrier(len(limiters))

    def come(limiter: RateLimiter) -> Any:
        start.wait()
        return ask(limiter)

    with ThreadPoolExecutor(len(limiters)) as threads:
        return list(threads.map(come, limiters))


@pytest.mark.parametrize("known", [True, False], ids=["running", "starting"])
def test_thirty_two_agents_that_are_asked_at_once_admit_the_quota_of_a_new_key(
    login: Callable[..., RateLimiter], known: bool
) -> None:
    """On threads, at the default policy; also of agents that start at that moment, of which the first is alone."""
    limiters = [login() for _ in range(32)]
    if known:
        answers_at_once(limiters, lambda limiter: limiter.ask_blocking("other", within=PATIENT_S))

    told = answers_at_once(limiters, lambda limiter: limiter.ask_blocking("ada", within=PATIENT_S))

    assert 32 == len(told)
    assert 5 == sum(each.allowed for each in told), told


@pytest.mark.parametrize("nodes", [16, 32])
def test_agents_that_know_of_each_other_admit_a_new_keys_quota_and_one_each_without_asking(
    login: Callable[..., RateLimiter], nodes: int
) -> None:
    """On threads, at the default policy. Each is asked for the whole quota at the same moment."""
    limiters = [login() for _ in range(nodes)]
    for _ in range(2):  # the first answers know of the agents before them alone
        for limiter in limiters:
            limiter.ask_blocking("other", within=PATIENT_S)

    admitted = answers_at_once(limiters, lambda limiter: sum(limiter.allow("ada") for _ in range(5)))

    assert nodes == len(admitted)
    assert 5 <= sum(admitted) <= 5 + nodes


async def test_a_loop_goes_on_while_requests_ask(login: Callable[..., RateLimiter]) -> None:
    """And a certain answer comes without a turn of the loop."""
    limiter = login("100/minute")

    other = asyncio.create_task(asyncio.sleep(0))
    decision = await limiter.ask("ada", within=PATIENT_S)
    assert decision.allowed
    assert decision.certain
    assert other.done()
    other = asyncio.create_task(asyncio.sleep(0))
    assert await limiter.ask("ada")
    assert not other.done()
    await other


async def test_a_task_that_is_cancelled_while_it_asks_has_not_charged(own_redis: RedisServer) -> None:
    """And nothing waits for it any more."""
    async with Agent(f"redis://127.0.0.1:{own_redis.port}/0") as agent:
        limiter = agent.limit("login", "5/minute")
        await limiter.ask("eve", within=PATIENT_S)
        own_redis.pause()
        try:
            task = asyncio.create_task(limiter.ask("ada", within=PATIENT_S))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        finally:
            own_redis.resume()
        assert 0 == limiter.usage("ada").own
        assert [{}] == [shard.askers for shard in agent._kernel.shards]


async def test_a_slot_on_the_thread_of_a_loop_is_advised_to_be_entered_asynchronously(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Limits of slots have no `ask`."""
    async with Agent(redis_server.url, namespace="slots-on-a-loop") as agent:
        slots = agent.concurrency("render", 5)
        with slots.slot("ada"):
            pass

    assert "enter the slot with `async with limiter.slot(...)`" in caplog.text
    assert "limiter.ask" not in caplog.text


async def test_on_the_thread_of_a_loop_memory_answers_and_that_is_said_once(
    login: Callable[..., RateLimiter], caplog: pytest.LogCaptureFixture
) -> None:
    """`slowapi` calls a synchronous storage there; to wait would hold up all other requests."""
    limiter = login()

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            limiter.ask_blocking("ada", within=PATIENT_S)

    assert 1 == sum("on the thread of an event loop" in record.message for record in caplog.records)
    assert 3 == limiter.control.enforcement.on.asking.stats.results["not_here"]


def test_in_a_signal_handler_memory_answers(login: Callable[..., RateLimiter]) -> None:
    """The interrupted code may hold what the answer needs; a method as a handler is known as well as a function."""
    limiter = login()

    class Handler:
        def handle(self, *_: object) -> None:
            limiter.ask_blocking("ada", within=PATIENT_S)

    before = signal.signal(signal.SIGUSR1, Handler().handle)
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        eventually(lambda: sum(limiter.control.enforcement.on.asking.stats.results.values()) > 0, "the handler's ask")
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert 1 == limiter.control.enforcement.on.asking.stats.results["not_here"]


def test_in_a_finalizer_memory_answers(login: Callable[..., RateLimiter]) -> None:
    """It may run in the middle of anything."""
    limiter = login()

    class Dropped:
        def __del__(self) -> None:
            limiter.ask_blocking("ada", within=PATIENT_S)

    dropped = Dropped()
    del dropped

    assert 1 == limiter.control.enforcement.on.asking.stats.results["not_here"]


def test_a_stopped_redis_is_waited_for_once(own_redis: RedisServer, make_agent: Callable[..., Agent]) -> None:
    """The second request in doubt is decided at once, and so are all until Redis has answered again."""
    agent = make_agent(f"redis://127.0.0.1:{own_redis.port}/0")
    limiter = agent.limit("login", "5/minute")
    until_near(agent, within=WITHIN_NS / SECOND_NS)
    limiter.ask_blocking("eve", within=PATIENT_S)
    own_redis.pause()
    try:
        begun = SystemClock.monotonic_ns()
        limiter.ask_blocking("ada")
        waited_ns = SystemClock.monotonic_ns() - begun
        for number in range(1000):
            limiter.ask_blocking(f"key{number}")
        results = limiter.control.enforcement.on.asking.stats.results
    finally:
        own_redis.resume()

    assert waited_ns >= WITHIN_NS
    assert 1 == results["timeout"]
    assert 1000 == results["in_vain"]
    newer = (f"newer{number}" for number in count())

    def answered() -> bool:
        limiter.ask_blocking(next(newer))
        return limiter.control.enforcement.on.asking.stats.results["admitted"] > 1

    eventually(answered, "an answer about a key")


async def test_what_was_reserved_by_asking_can_be_settled(login: Callable[..., RateLimiter]) -> None:
    """For less: the rest is free again."""
    limiter = login()

    with limiter.reserve("ada", 5, within=PATIENT_S) as reservation:
        assert reservation
        reservation.settle(2)
    assert 2 == limiter.usage("ada").own

    async with await limiter.reserve_async("eve", 5, within=PATIENT_S) as other:
        assert other
        other.settle(1)

    assert 1 == limiter.usage("eve").own


@pytest.mark.parametrize("within", [-1, float("nan"), True, "25ms", None, 11])
def test_a_time_that_makes_no_sense_is_an_error(within: object, login: Callable[..., RateLimiter]) -> None:
    """Also where the answer would be certain."""
    limiter = login()

    with pytest.raises(InvalidSetting, match="within"):
        limiter.ask_blocking("ada", within=within)  # type: ignore[arg-type]  # on purpose
    limiter.switch("off")
    with pytest.raises(InvalidSetting, match="within"):
        limiter.ask_blocking("ada", within=within)  # type: ignore[arg-type]  # on purpose


def test_mistakes_are_those_of_hit(login: Callable[..., RateLimiter]) -> None:
    """A key, a cost, and a cost that could never be admitted."""
    limiter = login()

    with pytest.raises(InvalidKey):
        limiter.ask_blocking("")
    with pytest.raises(InvalidCost):
        limiter.ask_blocking("ada", -1)
    with pytest.raises(CostExceedsQuota):
        limiter.ask_blocking("ada", 6)
    with pytest.raises(InvalidSetting, match="asks_max"):
        Agent(asks_max=-1)


def test_a_node_without_a_hub_is_never_in_doubt() -> None:
    """It is the only one: what it knows is all there is to know."""
    limiter = Agent("memory://").limit("login", "5/minute")

    assert [True] * 5 + [False] == [limiter.ask_blocking("ada").allowed for _ in range(6)]
    assert 0 == sum(limiter.control.enforcement.on.asking.stats.results.values())


def test_a_limit_in_shadow_or_off_asks_nothing(login: Callable[..., RateLimiter]) -> None:
    """It admits in any case, so there is nothing to wait for."""
    limiter = login()
    for switch in ("shadow", "off"):
        limiter.switch(switch)
        assert all(limiter.ask_blocking(f"{switch}{number}") for number in range(20))

    assert 0 == sum(limiter.control.enforcement.on.asking.stats.results.values())


@pytest.mark.parametrize(
    ("algorithm", "how"),
    [
        ("fixed-window", "given back"),
        ("fixed-window", "reset"),
        ("sliding-window", "given back"),
        ("sliding-window", "reset"),
        ("token-bucket", "given back"),
        ("token-bucket", "reset"),
        ("gcra", "given back"),
    ],
)
def test_what_another_node_frees_of_a_used_up_key_can_be_had_before_the_window_ends(algorithm: str, how: str) -> None:
    """A node that knows for certain that a key is used up hears again of it while it is asked about it."""
    hub = MemoryHub()
    with (
        Agent(hub, namespace="shop", sync_interval=0.02) as one,
        Agent(hub, namespace="shop", sync_interval=0.02) as other,
    ):
        ours, theirs = [each.limit("login", Limit(2, 3600, algorithm=algorithm)) for each in (one, other)]
        eventually(lambda: ours.ask_blocking("ada", 2, within=PATIENT_S).allowed, "the quota is used")
        eventually(lambda: theirs.ask_blocking("ada", within=PATIENT_S).certain, "the other node knows of it")
        assert not theirs.ask_blocking("ada").allowed
        if how == "reset":
            ours.reset("ada")
        else:
            ours.refund("ada", 2)

        eventually(lambda: theirs.ask_blocking("ada", within=PATIENT_S).allowed, "what is free is had there")


@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "awaited"])
@pytest.mark.parametrize("timeout", [0, 0.5], ids=["at once", "in the queue"])
def test_requests_that_wait_for_a_new_key_are_admitted_once(
    login: Callable[..., RateLimiter], blocking: bool, timeout: float
) -> None:
    """Two nodes that would each trust the key with its quota ask first, as `ask` does."""
    limiters = [login(policy="balanced") for _ in range(2)]

    async def all_wait() -> int:
        if blocking:
            waits = [
                asyncio.to_thread(each.wait_blocking, "ada", timeout=timeout, within=PATIENT_S) for each in limiters * 5
            ]
        else:
            waits = [each.wait("ada", timeout=timeout, within=PATIENT_S) for each in limiters * 5]
        return sum(decision.allowed for decision in await asyncio.gather(*waits))

    assert 5 == asyncio.run(all_wait())
    with pytest.raises(InvalidSetting, match="within=-1"):
        limiters[0].wait_blocking("ada", within=-1)


@pytest.mark.parametrize("way", ["ask_blocking", "wait_blocking"])
def test_a_refusal_by_the_hub_counts_towards_a_ban(
    redis_server: RedisServer, make_agent: Callable[..., Agent], way: str
) -> None:
    """Also of a request that would wait for its turn, and has no time for that."""
    agents = [make_agent(f"redis://127.0.0.1:{redis_server.port}/0", policy="balanced") for _ in range(2)]
    ours, theirs = (agent.limit("login", "5/minute", block_after="1/minute", block_for=60) for agent in agents)
    for _ in range(5):
        assert ours.ask_blocking("ada", within=PATIENT_S)
    terms = {"timeout": 0} if way == "wait_blocking" else {}

    refused = getattr(theirs, way)("ada", within=PATIENT_S, **terms)

    assert not refused
    assert "login/ban" == theirs.test("ada").binding
