"""Calls to others stay inside the quota, and what the others say lowers it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from reconverge import Agent, InvalidCost, InvalidSetting, RateLimiter
from reconverge.integrations.clients.outgoing import Outgoing, used_up
from reconverge.limiter.pauses import HEARD_MAX
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


@pytest.mark.parametrize(
    ("fields", "resource"),
    [
        ({"RateLimit": '"api";r=2;t=30', "RateLimit-Policy": '"api";q=10;w=60'}, None),
        ({"RateLimit": '"core";r=2;t=30'}, "core"),
        ({"X-RateLimit-Remaining": "2", "X-RateLimit-Resource": "Core"}, "core"),
        ({"X-RateLimit-Remaining": "2"}, ""),
    ],
    ids=["by name, quota and window", "by resource", "by X-RateLimit-Resource", "without a name"],
)
def test_what_the_server_has_left_is_all_that_is_sent(
    limiter: RateLimiter, fields: dict[str, str], resource: str | None
) -> None:
    """Others used up the quota, too: of ten calls two are left, here and for every worker that shares the limit."""
    outgoing, worker = Outgoing(limiter, timeout=0, resource=resource), Outgoing(limiter, timeout=0)
    assert admitted(outgoing)

    outgoing.learn("server", 200, fields)

    assert [True, True, False] == [admitted(worker) for _ in range(3)]
    assert 0 == outgoing.not_placed


@pytest.mark.parametrize(
    ("fields", "resource"),
    [
        ({"RateLimit": '"api";r=2;t=30'}, None),
        ({"RateLimit": '"search";r=2;t=30', "RateLimit-Policy": '"search";q=10;w=60'}, None),
        ({"RateLimit": '"api";r=2;t=30', "RateLimit-Policy": '"api";q=10;w=3600'}, None),
        ({"RateLimit": '"api";r=2;t=30', "RateLimit-Policy": '"api";q=30;w=60'}, None),
        ({"X-RateLimit-Remaining": "2", "X-RateLimit-Limit": "10"}, None),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "30"}, None),
        ({"X-RateLimit-Remaining": "2", "X-RateLimit-Resource": "search"}, "core"),
        ({"X-RateLimit-Remaining": "2"}, "core"),
    ],
)
def test_numbers_that_may_be_of_another_quota_change_nothing(
    limiter: RateLimiter, fields: dict[str, str], resource: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """They are counted, and logged once with the remedy."""
    caplog.set_level("INFO", logger="reconverge")
    outgoing = Outgoing(limiter, timeout=0, resource=resource)
    assert admitted(outgoing)

    for _ in range(3):
        outgoing.learn("server", 200, fields)

    assert (9, 3) == (limiter.test("server").remaining, outgoing.not_placed)
    assert ["resource=" in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize(
    "algorithm", ["fixed-window", "sliding-window", "sliding-log", "sliding-slices", "token-bucket"]
)
def test_what_others_have_used_comes_back_when_the_server_renews_it(clock: ManualClock, algorithm: str) -> None:
    """And not a window later: after the server's midnight the rest of a day is left again."""
    limiter = Agent("memory://", clock=clock).limit("api", "1000/day", algorithm=algorithm)
    outgoing = Outgoing(limiter, timeout=0, resource="api")
    assert admitted(outgoing)
    outgoing.learn("server", 200, {"RateLimit": '"api";r=1;t=60'})
    assert [True, False] == [admitted(outgoing) for _ in range(2)]

    clock.advance(60)

    assert admitted(outgoing)
    assert limiter.test("server").remaining >= 995


def test_one_quota_of_several_is_lowered(clock: ManualClock) -> None:
    """The server's quota of a minute is charged to ours of a minute."""
    limiter = Agent("memory://", clock=clock).limit("api", ["10/minute", "1000/day"])
    outgoing = Outgoing(limiter, timeout=0, resource="api")

    outgoing.learn("server", 200, {"RateLimit": '"api";r=2;t=60', "RateLimit-Policy": '"api";q=10;w=60'})

    assert [2, 1000] == [table.test("server").remaining for table in limiter.control.tables]


def test_a_quota_with_nothing_left_pauses_until_it_is_renewed(limiter: RateLimiter, clock: ManualClock) -> None:
    """Nothing is charged for that, so no window has to pass as well."""
    outgoing = Outgoing(limiter, timeout=0, resource="core")

    outgoing.learn(
        "server", 200, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "9", "X-RateLimit-Resource": "core"}
    )

    assert not admitted(outgoing)
    clock.advance(9)
    assert admitted(outgoing)
    assert 1 == limiter.usage("server").total


def test_a_server_that_has_more_left_raises_nothing(limiter: RateLimiter) -> None:
    """The declared quota is a bound of our own."""
    outgoing = Outgoing(limiter, timeout=0, resource="api")
    assert admitted(outgoing)

    outgoing.learn("server", 200, {"RateLimit": '"api";r=5000;t=30'})

    assert (9, 0) == (limiter.test("server").remaining, outgoing.failures.total)


@pytest.mark.parametrize("fields", [{}, {"Retry-After": "1"}], ids=["without a time", "for a second"])
def test_a_refusal_takes_nothing_from_the_quota(
    limiter: RateLimiter, clock: ManualClock, fields: dict[str, str]
) -> None:
    """A 429 pauses for a second, whatever the window, and leaves what was left."""
    outgoing = Outgoing(limiter, timeout=0)
    assert admitted(outgoing)

    outgoing.learn("server", 429, fields)

    assert not admitted(outgoing)
    clock.advance(1)
    assert admitted(outgoing)
    assert 8 == limiter.test("server").remaining


def test_a_refused_call_names_the_server_as_the_reason(limiter: RateLimiter) -> None:
    """The quota has room, and the message does not blame it."""
    outgoing = Outgoing(limiter, timeout=0)
    outgoing.learn("server", 429, {"Retry-After": "30"})

    refusal = outgoing.admit_blocking("server")

    assert refusal is not None
    assert "api/pause" == refusal.binding
    assert "the server has refused calls" in used_up("server", refusal)


async def test_a_pause_that_begins_while_a_call_waits_holds_that_call_too(clock: ManualClock) -> None:
    """It is not sent, and gives back what it was charged."""
    limiter = Agent("memory://").limit("api", "1/second", algorithm="leaky-bucket")
    outgoing = Outgoing(limiter, timeout=10)
    assert await outgoing.admit("server")

    waiting = asyncio.create_task(outgoing.admit("server"))
    await asyncio.sleep(0.1)
    outgoing.learn("server", 429, {"Retry-After": "60"})
    refusal = await waiting

    assert refusal is not None
    assert (False, "api/pause") == (refusal.allowed, refusal.binding)
    assert limiter.usage("server").total <= 1


@pytest.mark.parametrize("algorithm", ["sliding-log", "sliding-slices"])
async def test_a_call_that_meets_a_pause_gives_back_its_own_charge(clock: ManualClock, algorithm: str) -> None:
    """Were it that of an earlier call, which expires during the pause, its own would keep others waiting after it."""
    limiter = Agent("memory://", clock=clock).limit("api", "2/minute", algorithm=algorithm)
    outgoing = Outgoing(limiter, timeout=20)
    assert await outgoing.admit("server")
    clock.advance(50)
    assert await outgoing.admit("server")

    waiting = asyncio.create_task(outgoing.admit("server"))
    await asyncio.sleep(0)
    outgoing.learn("server", 429, {"Retry-After": "60"})
    clock.advance(10)
    assert not await waiting
    clock.advance(50)

    assert 0 == limiter.usage("server").own


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


def test_so_many_servers_are_remembered_and_no_more(clock: ManualClock) -> None:
    """Who makes us call a million servers that refuse does not fill our memory."""
    agent = Agent("memory://", clock=clock, max_keys=10)
    outgoing = Outgoing(agent.limit("api", "10/minute", algorithm="fixed-window"), timeout=0)
    for number in range(20 + HEARD_MAX):
        outgoing.learn(f"server {number}", 503, {"Retry-After": "90"})

    assert admitted(outgoing, "server 15")
    assert not admitted(outgoing, f"server {19 + HEARD_MAX}")


def test_calls_go_on_without_a_limiter_that_fails(
    limiter: RateLimiter, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure inside is logged once, counted always, and stops no call."""

    def broken(*_: object, **__: object) -> None:
        raise ArithmeticError("a bug")

    outgoing = Outgoing(limiter, timeout=0)
    for method in ("wait", "wait_blocking"):
        monkeypatch.setattr(limiter, method, broken)
    monkeypatch.setattr(limiter.control.pauses, "begin", broken)

    assert outgoing.admit_blocking("server") is None
    assert asyncio.run(outgoing.admit("server")) is None
    outgoing.learn("server", 429, {"Retry-After": "30"})
    assert {"ArithmeticError": 3} == outgoing.failures.counts()
    assert "Failures({'ArithmeticError': 3})" == repr(outgoing.failures)
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


@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "awaited"])
def test_a_call_that_may_not_wait_asks_nevertheless(used_up: str, blocking: bool) -> None:
    """With a timeout of zero: it is not sent by a guess."""
    with Agent(used_up) as agent:
        outgoing = Outgoing(agent.limit("requests", "5/hour"), timeout=0, in_doubt="ask:10s")

        answer = outgoing.admit_blocking(ADA) if blocking else asyncio.run(outgoing.admit(ADA))

        assert answer is not None
        assert not answer.allowed


@pytest.mark.parametrize("policy", ["strict", "balanced"])
def test_calls_that_may_not_wait_send_the_quota_of_a_new_server(redis_server: RedisServer, policy: str) -> None:
    """No more and no less, also in `strict`, where memory alone would send none."""
    agents = [Agent(redis_server.url) for _ in range(2)]
    limits = [agent.limit("api", "5/day", algorithm="sliding-log", policy=policy) for agent in agents]
    workers = [Outgoing(limit, timeout=0, in_doubt="ask:10s") for limit in limits]

    with ThreadPoolExecutor(10) as threads:
        sent = sum(map(bool, threads.map(lambda worker: worker.admit_blocking("server"), workers * 5)))
    for agent in agents:
        agent.stop()

    assert 5 == sent
