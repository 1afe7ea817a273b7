"""Goal: a limit that is changed while it is in use admits as the new one does, and forgets nothing.

Method: compared with a limit that was always so and has used as much, on every algorithm; then two nodes and a hub.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from reconverge import Agent, InvalidLimit, InvalidSetting, Limit, RateLimiter, UnknownLimit
from reconverge.clock import SECOND_NS
from reconverge.testing import ManualClock
from tests.support.agents import admitted_of, introduce, net_at
from tests.support.fixtures.agents import MakeAgent
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

ALGORITHMS: dict[str, dict[str, Any]] = {
    "fixed-window": {"algorithm": "fixed-window"},
    "first-hit": {"algorithm": "fixed-window", "align": "first-hit"},
    "calendar": {"algorithm": "fixed-window", "align": "calendar", "window": 86_400},
    "sliding-window": {"algorithm": "sliding-window"},
    "sliding-slices": {"algorithm": "sliding-slices"},
    "sliding-log": {"algorithm": "sliding-log"},
    "token-bucket": {"algorithm": "token-bucket"},
    "token-bucket, step by step": {"algorithm": "token-bucket", "refill": "interval"},
    "gcra": {"algorithm": "gcra"},
    "leaky-bucket": {"algorithm": "leaky-bucket"},
}


def limit_of(quota: int, settings: dict[str, Any]) -> Limit:
    """A limit of that quota a minute, if nothing else is said."""
    return Limit(quota, settings.get("window", 60), **{key: each for key, each in settings.items() if key != "window"})


def lone(limit: str | Limit, **settings: Any) -> tuple[RateLimiter, ManualClock]:
    """A limiter of a node without a hub."""
    clock = ManualClock(start=0)
    return Agent("memory://", clock=clock).limit("login", limit, **settings), clock


@pytest.mark.parametrize("settings", ALGORITHMS.values(), ids=ALGORITHMS)
@pytest.mark.parametrize(("before", "after"), [(10, 30), (30, 10), (10, 4)])
def test_whatever_was_used_counts_on(settings: dict[str, Any], before: int, after: int) -> None:
    """Six of so many were used; then as much is left as of a limit that was always the new one, now and later."""
    changed, clock = lone(limit_of(before, settings))
    assert 6 == admitted_of(changed, 6)
    changed.change(limit_of(after, settings))
    left = [admitted_of(changed, 50)]
    kept = changed.usage("ada")
    clock.advance(2 * settings.get("window", 60))
    left.append(admitted_of(changed, 50))

    assert [max(0, after - 6), after] == left
    assert (max(6, after), after) == (kept.own, kept.limit)
    assert limit_of(after, settings) == changed.limit


@pytest.mark.parametrize("settings", ALGORITHMS.values(), ids=ALGORITHMS)
def test_a_changed_limit_goes_on_as_if_it_had_always_been_so(settings: dict[str, Any]) -> None:
    """Every decision of a minute is the same as that of one with the same past."""
    changed, clock = lone(limit_of(20, settings))
    always, other_clock = lone(limit_of(12, settings))
    for limiter in (changed, always):
        assert 6 == admitted_of(limiter, 6)
    changed.change(limit_of(12, settings))
    answers: list[tuple[object, object]] = []
    for _ in range(90):
        clock.advance(1.1)
        other_clock.advance(1.1)
        answers.append((changed.hit("ada"), always.hit("ada")))

    assert [] == [pair for pair in answers if pair[0] != pair[1]]


def test_keys_of_which_there_is_no_object_change_as_well() -> None:
    """A node without a hub keeps most keys as bare numbers; ten thousand of them, all used up."""
    limiter, _ = lone("2/minute")
    keys = [str(number) for number in range(10_000)]
    for _ in range(3):
        limiter.allow_many(keys)
    limiter.change("3/minute")

    assert 10_000 == sum(limiter.allow_many(keys))
    assert 0 == sum(limiter.allow_many(keys))


def test_whoever_kept_allow_asks_the_changed_limit() -> None:
    """A change is no switch."""
    limiter, _ = lone("1/minute")
    kept = limiter.allow
    answers = [kept("ada"), kept("ada")]
    limiter.change("2/minute")

    assert [True, False, True, False] == [*answers, kept("ada"), kept("ada")]


def test_burst_soft_and_costs_change_too() -> None:
    """All that says how much is admitted, and not how it is counted."""
    limiter, _ = lone("10/minute", soft=0.1, costs={"GET": 1})
    assert 6 == admitted_of(limiter, 6)
    limiter.change("10/minute", soft="50%", costs={"GET": 2, "POST": 3})
    decision = limiter.hit("ada", kind="POST")

    assert limiter.allow("ada", kind="GET")
    assert decision.allowed
    assert not decision.over_quota
    assert limiter.hit("ada", kind="GET").over_quota
    bucket, _ = lone("10/minute burst 20")
    assert 20 == admitted_of(bucket, 30)
    bucket.change("10/minute burst 25")
    assert 5 == admitted_of(bucket, 30)


def test_several_quotas_change_in_one() -> None:
    """By their names, each as far as it has changed."""
    limiter, _ = lone("2/second; 10/hour as hourly")
    assert 2 == admitted_of(limiter, 5)
    limiter.change("5/second; 4/hour as hourly")

    assert 2 == admitted_of(limiter, 5)
    assert "login#hourly" == limiter.hit("ada").binding
    assert 5 == limiter.limit.quota


@pytest.mark.parametrize(
    ("declared", "changed", "problem"),
    [
        ("10/minute", "10/hour", "window=60"),
        ("10/minute", Limit(10, 60, algorithm="fixed-window"), "algorithm='sliding-window'"),
        (
            Limit(10, 60, algorithm="leaky-bucket"),
            Limit(10**10, 60, algorithm="leaky-bucket"),
            r"counted in parts of a request \(1000 make one\), and .* \(100 make one\)",
        ),
        (Limit(10**8, 1, algorithm="smooth-bursty"), Limit(10**12, 1, algorithm="smooth-bursty"), "in whole requests"),
        (Limit(5, 1, algorithm="smooth-warming-up", warmup=2), "5/s warmup 3s", "warmup=2"),
        (Limit(5, 1, algorithm="smooth-warming-up", warmup=2), "6/s", "needs a warmup"),
        ("10/minute; 100/hour", "10/minute", "must keep its quotas"),
        ("10/minute; 100/hour", "100/hour; 10/minute", "window=60"),
        ("10/minute", "none", "none"),
    ],
)
def test_what_cannot_change_is_refused_and_has_not_changed(declared: Any, changed: Any, problem: str) -> None:
    """With the reason; also of several quotas of which only the last cannot."""
    limiter, _ = lone(declared)
    before = limiter.quotas

    with pytest.raises(InvalidLimit, match=problem):
        limiter.change(changed)
    assert before == limiter.quotas


def test_shares_keep_what_was_set_aside() -> None:
    """Neither a share can change nor what it was taken from; to what it is already, each may."""
    agent = Agent("memory://")
    parent = agent.limit("all", "10/minute")
    share = agent.limit("vip", "4/minute", parent=parent)
    share.change("4/minute")
    parent.change("10/minute")

    with pytest.raises(InvalidLimit, match="is a share"):
        share.change("5/minute")
    with pytest.raises(InvalidLimit, match="is the parent of shares of its quota"):
        parent.change("12/minute")


@pytest.mark.parametrize("algorithm", ["leaky-bucket", "smooth-bursty", "fixed-window"])
def test_a_limit_string_means_the_algorithm_of_the_limit(algorithm: str) -> None:
    """A quota that is typed at a prompt says how much, and not how it is counted."""
    limiter, _ = lone("10/s", algorithm=algorithm)
    limiter.change("20/s")

    assert Limit(20, 1, algorithm=algorithm) == limiter.limit


@pytest.mark.parametrize(
    ("limit", "changed", "lets_out"),
    [
        ("10/s", "20/s", [0.05, 0.05, 0.05]),
        ("10/s", "5/s", [0.2, 0.2, 0.2]),
    ],
)
async def test_what_waits_in_a_leaky_bucket_is_let_out_at_the_new_pace(
    limit: str, changed: str, lets_out: list[float]
) -> None:
    """In its order; the first of them as soon as the bucket has run dry, which it does at the new rate as well."""
    limiter, clock = lone(limit, algorithm="leaky-bucket")
    let_out: list[tuple[str, float]] = []

    async def one(name: str) -> None:
        await limiter.wait("ada")
        let_out.append((name, clock.monotonic_ns() / SECOND_NS))

    async with asyncio.TaskGroup() as tasks:
        for name in "abcd":
            tasks.create_task(one(name))
            await asyncio.sleep(0)
        limiter.change(changed)
        while len(let_out) < 4:
            await asyncio.sleep(0)
            clock.advance_ns(SECOND_NS // 1000)

    assert list("abcd") == [name for name, _ in let_out]
    assert lets_out == [round(later - earlier, 2) for (_, earlier), (_, later) in pairwise(let_out)]


async def test_a_smooth_limit_lets_the_next_waiter_out_when_it_could_before() -> None:
    """It pays for the request before it, at the rate of that; those behind it go at the new rate."""
    limiter, clock = lone("1/s", algorithm="smooth-bursty")
    let_out: list[float] = []

    async def one() -> None:
        await limiter.wait("ada")
        let_out.append(clock.monotonic_ns() / SECOND_NS)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(one())
            await asyncio.sleep(0)
        limiter.change("10/s")
        while len(let_out) < 4:
            await asyncio.sleep(0)
            clock.advance_ns(SECOND_NS // 1000)

    assert [0.0, 1.0, 1.1, 1.2] == [round(moment, 2) for moment in let_out]


async def test_a_raised_quota_lets_waiters_go_at_once() -> None:
    """They have slept for as long as the former quota said; of any limit, not of paced ones alone."""
    limiter, clock = lone("1/hour", algorithm="fixed-window")
    assert limiter.allow("ada")
    waited: list[int] = []

    async def one() -> None:
        await limiter.wait("ada")
        waited.append(clock.monotonic_ns())

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(one())
        await asyncio.sleep(0)
        limiter.change("2/hour")

    assert [clock.monotonic_ns()] == waited


def test_another_pace_is_in_force_at_once(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """An agent that was about to wait for an hour exchanges every few milliseconds."""
    agent = make_agent(redis_server.url, sync_interval=100.0, lease_ttl=1000.0)
    limiter = agent.limit("login", "1000000/hour")
    introduce(limiter)
    agent.change_pace(0.01)

    def exchanges() -> int:
        limiter.allow("ada")
        return agent.stats().exchanges[0].exchanges

    eventually(lambda: exchanges() > 20, "twenty exchanges")
    with pytest.raises(InvalidSetting, match="needs a lease of at least 1200 s"):
        agent.change_pace(200.0)
    with pytest.raises(InvalidSetting, match="must be a number of seconds"):
        agent.change_pace(-1)


def test_a_limit_may_have_an_interval_of_its_own(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """Where the agent would wait for minutes, it exchanges for that limit alone; then with the others again."""
    agent = make_agent(redis_server.url, sync_interval=100.0, lease_ttl=1000.0)
    hourly = agent.limit("hourly", "1000000/hour")
    often = agent.limit("often", "1000000/minute", sync_interval=0.01)
    for limiter in (hourly, often):
        introduce(limiter)

    def told(limiter: RateLimiter, goal: int) -> bool:
        limiter.allow("ada")
        return net_at(redis_server.url, limiter.name) >= goal

    eventually(lambda: told(often, 20), "what was counted of the limit in a hurry")
    with pytest.raises(InvalidSetting, match="needs a lease of at least 1200 s"):
        agent.change_pace(200.0, limit="hourly")
    with pytest.raises(UnknownLimit):
        agent.change_pace(1.0, limit="yearly")
    with pytest.raises(InvalidSetting, match="must be a number of seconds"):
        agent.limit("yearly", "1/minute", sync_interval=0.0)
    assert "yearly" not in agent.limiters
    agent.change_pace(0.01, limit="hourly")
    eventually(lambda: told(hourly, 20), "what was counted of the other one")
    agent.change_pace(None, limit="often")

    assert [100.0, 0.01] == [limiter.control.table.interval_ns / SECOND_NS for limiter in (often, hourly)]
