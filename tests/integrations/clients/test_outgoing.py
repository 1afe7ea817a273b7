"""Calls to others stay inside the quota, and what the others say lowers it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from reconverge import Agent, InvalidCost, InvalidSetting, RateLimiter
from reconverge.integrations.clients.outgoing import HELD_KEYS_MAX, Outgoing
from reconverge.testing import ManualClock
from tests.support.applications.asking import ADA
from tests.support.servers import RedisServer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start=1_800_000_000)


@pytest.fixture
def limiter(clock: ManualClock) -> RateLimiter:
    return Agent("memory://", clock=clock).limit("api", "10/minute", algorithm="fixed-window")


def admitted(outgoing: Outgoing, key: str = "server") -> bool:
    return bool(outgoing.admit_blocking(key))


def test_calls_stay_inside_the_quota(limiter: RateLimiter) -> None:
    """The eleventh call of the minute is not sent; another server has a quota of its own."""
    outgoing = Outgoing(limiter, timeout=0)

    assert [True] * 10 + [False] == [admitted(outgoing) for _ in range(11)]
    assert admitted(outgoing, "another")


def test_a_server_that_wants_to_be_left_alone_is(limiter: RateLimiter, clock: ManualClock) -> None:
    """Until Retry-After is over nothing is sent, to the nanosecond; then it is."""
    outgoing = Outgoing(limiter, timeout=0)
    outgoing.learn("server", 503, {"Retry-After": "90"})

    refusal = outgoing.admit_blocking("server")
    assert refusal is not None
    assert (False, 90.0) == (refusal.allowed, refusal.retry_after)
    clock.advance_ns(90 * 10**9 - 1)
    assert not admitted(outgoing)
    clock.advance_ns(1)
    assert admitted(outgoing)


def test_what_the_server_has_left_is_all_that_is_sent(limiter: RateLimiter) -> None:
    """Others used up the quota, too: of ten calls two are left, here and for every worker that shares the limit."""
    outgoing, worker = Outgoing(limiter, timeout=0), Outgoing(limiter, timeout=0)
    assert admitted(outgoing)

    outgoing.learn("server", 200, {"RateLimit": '"api";r=2;t=30'})

    assert [True, True, False] == [admitted(worker) for _ in range(3)]


def test_a_server_that_has_more_left_raises_nothing(limiter: RateLimiter) -> None:
    """The declared quota is a bound of our own."""
    outgoing = Outgoing(limiter, timeout=0)
    assert admitted(outgoing)

    outgoing.learn("server", 200, {"RateLimit": '"api";r=5000;t=30'})

    assert (9, 0) == (limiter.test("server").remaining, outgoing.failures.total)


def test_a_refusal_by_the_server_ends_the_window(limiter: RateLimiter, clock: ManualClock) -> None:
    """A 429 that says nothing else means that nothing is left until the window ends."""
    outgoing = Outgoing(limiter, timeout=0)
    assert admitted(outgoing)

    outgoing.learn("server", 429, {})

    assert not admitted(outgoing)
    clock.advance(60)
    assert admitted(outgoing)


def test_who_does_not_listen_is_told_nothing(limiter: RateLimiter) -> None:
    """With `listen=False` only our own quota counts."""
    outgoing = Outgoing(limiter, timeout=0, listen=False)

    outgoing.learn("server", 429, {"Retry-After": "90", "RateLimit": '"api";r=0;t=30'})

    assert admitted(outgoing)


def test_a_call_waits_for_its_turn() -> None:
    """With time to wait the call is sent when the server may be asked again, in a coroutine and in a thread."""
    outgoing = Outgoing(Agent("memory://").limit("api", "1000/second"), timeout=10)

    outgoing.learn("server", 503, {"Retry-After": "1"})

    assert asyncio.run(outgoing.admit("server"))
    assert admitted(outgoing)


async def test_who_is_cancelled_in_its_turn_has_not_been_charged(limiter: RateLimiter) -> None:
    """A call that is given up while it waits uses nothing."""
    outgoing = Outgoing(limiter, timeout=None)
    outgoing.learn("server", 503, {"Retry-After": "3600"})

    waiting = asyncio.create_task(outgoing.admit("server"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])

    assert waiting.cancelled()
    assert 0 == limiter.usage("server").own


def test_so_many_servers_are_remembered_and_no_more(limiter: RateLimiter) -> None:
    """Who makes us call a million servers that hold us off does not fill our memory."""
    outgoing = Outgoing(limiter, timeout=0)
    for number in range(HELD_KEYS_MAX + 1):
        outgoing.learn(f"server {number}", 503, {"Retry-After": "90"})

    assert admitted(outgoing, "server 0")
    assert not admitted(outgoing, "server 1")


def test_calls_go_on_without_a_limiter_that_fails(
    limiter: RateLimiter, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure inside is logged once, counted always, and stops no call."""

    def broken(*_: object, **__: object) -> None:
        raise ArithmeticError("a bug")

    outgoing = Outgoing(limiter, timeout=0)
    for method in ("wait", "wait_blocking", "reserve"):
        monkeypatch.setattr(limiter, method, broken)

    assert outgoing.admit_blocking("server") is None
    assert asyncio.run(outgoing.admit("server")) is None
    outgoing.learn("server", 200, {"RateLimit": '"api";r=2;t=30'})
    assert {"ArithmeticError": 3} == outgoing.failures.counts()
    assert 1 == len(caplog.records)


def test_mistakes_are_told(limiter: RateLimiter) -> None:
    """A setting or a cost that makes no sense is an exception, and not a call that is let pass."""
    with pytest.raises(InvalidSetting, match="timeout=-1"):
        Outgoing(limiter, timeout=-1)
    with pytest.raises(InvalidSetting, match="max_queue=-1"):
        Outgoing(limiter, max_queue=-1)
    with pytest.raises(InvalidSetting, match="is no RateLimiter"):
        Outgoing("100/minute")  # type: ignore[arg-type]
    with pytest.raises(InvalidCost):
        Outgoing(limiter).admit_blocking("server", -1)


@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "awaited"])
@pytest.mark.parametrize(("in_doubt", "admitted_"), [("ask:10s", False), ("refuse", True)])
def test_a_call_on_a_key_that_is_new_asks_the_hub(used_up: str, blocking: bool, in_doubt: str, admitted_: bool) -> None:
    """Another worker has used the quota up; a call that does not ask goes on trust."""
    with Agent(used_up) as agent:
        outgoing = Outgoing(agent.limit("requests", "5/hour"), timeout=1.0, in_doubt=in_doubt)

        answer = outgoing.admit_blocking(ADA) if blocking else asyncio.run(outgoing.admit(ADA))

        assert answer is not None
        assert admitted_ == answer.allowed


def test_a_new_server_is_sent_the_quota_by_all_workers_together(redis_server: RedisServer) -> None:
    """At the default policy, which would trust each of them with all of it."""
    agents = [Agent(redis_server.url) for _ in range(4)]
    workers = [Outgoing(agent.limit("api", "5/day"), timeout=0.5, in_doubt="ask:10s") for agent in agents]

    with ThreadPoolExecutor(20) as threads:
        sent = sum(map(bool, threads.map(lambda worker: worker.admit_blocking("server"), workers * 5)))
    for agent in agents:
        agent.stop()

    assert 5 == sent


def test_a_call_that_may_not_wait_does_not_ask(used_up: str) -> None:
    """With a timeout of zero."""
    with Agent(used_up) as agent:
        outgoing = Outgoing(agent.limit("requests", "5/hour"), timeout=0)

        assert outgoing.admit_blocking(ADA)
        assert 0 == sum(agent.stats().limits["requests"].asks.results.values())
