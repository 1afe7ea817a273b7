"""Goal: a request that memory cannot settle asks the hub: briefly, once for all its limits, and charged to all or none.

Method: nodes on one Redis, of which one has used a limit up and the others have never heard of the key; or the Redis is
stopped, so that a question is left without an answer. What a request waited is told by how often its limits asked.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

import reconverge
from reconverge import Agent, Decision, InvalidSetting, RateLimiter
from reconverge.integrations import Guard, Outcome, PlainRequest, Rule
from reconverge.integrations.clients.outgoing import Outgoing
from reconverge.integrations.decorators import limited
from reconverge.integrations.web.bound_rule import Declared
from reconverge.integrations.web.outcome import RateLimited
from reconverge.integrations.web.refusal import problem_of
from tests.support.applications.asking import ADA, BOB
from tests.support.applications.storages import storage_at
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

REQUEST = PlainRequest(client=ADA)
OTHER = PlainRequest(client=BOB)
PATIENT = "ask:10s"
"""Far more than an answer takes; only a failing test waits so long."""
BRIEF = "ask:50ms"
PACKAGE: Final = str(Path(reconverge.__file__).parent)


@pytest.fixture
def stopped(own_redis: RedisServer, make_agent: Callable[..., Agent]) -> Iterator[Callable[[], None]]:
    """Stops the Redis of its own, which goes on after the test, before the agents that it has made say goodbye."""
    yield own_redis.pause
    own_redis.resume()


def asks_of(agent: Agent) -> dict[str, int]:
    found: dict[str, int] = {}
    for limit in agent.stats().limits.values():
        for result, count in limit.asks.results.items():
            found[result] = found.get(result, 0) + count
    return {result: count for result, count in found.items() if count}


def in_a_loop(guard: Guard, rules: list[Declared], request: PlainRequest = REQUEST) -> Outcome:
    return asyncio.run(guard.check_async(request, rules))


def on_a_thread(guard: Guard, rules: list[Declared], request: PlainRequest = REQUEST) -> Outcome:
    return guard.check(request, rules)


BOTH = pytest.mark.parametrize("check", [in_a_loop, on_a_thread], ids=["awaited", "blocking"])


@BOTH
def test_a_new_key_admits_its_quota_on_all_workers_together(redis_server: RedisServer, check: Any) -> None:
    """At the default policy, which would trust each of them with all of it."""
    agents = [Agent(redis_server.url) for _ in range(4)]
    guards = [Guard(agent, in_doubt=PATIENT) for agent in agents]
    rules = [guard.declare(Rule(limits="5/day", name="login")) for guard in guards]

    admitted = sum(check(guard, [rule]).allowed for _ in range(5) for guard, rule in zip(guards, rules, strict=True))
    for agent in agents:
        agent.stop()

    assert 5 == admitted


def test_by_default_a_request_asks_for_25_ms() -> None:
    """The rule, else the guard, else the agent sets another time."""
    agent = Agent("memory://")
    assert "ask:25ms" == agent.in_doubt
    said = [
        (agent, None, None),
        (Agent("memory://", in_doubt="ask:40ms"), None, None),
        (Agent("memory://", in_doubt="ask:40ms"), "refuse", None),
        (agent, "refuse", "ask:1.5 s"),
    ]

    declared = [
        Guard(each, in_doubt=of_guard).declare(Rule(limits="1/minute", in_doubt=of_rule))
        for each, of_guard, of_rule in said
    ]

    assert [0.025, 0.04, 0.0, 1.5] == [each.within_s for each in declared]


@BOTH
@pytest.mark.parametrize(("in_doubt", "asked"), [(BRIEF, 1), (PATIENT, 3)])
def test_all_limits_of_a_request_have_one_deadline(
    check: Callable[..., Outcome], in_doubt: str, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait for one is missing from that for the next; when nothing is left, the others do not ask."""
    agents = [Agent(f"redis://127.0.0.1:1/{number}") for number in range(3)]
    limiters = [agent.limit("requests", "5/hour") for agent in agents]
    left: list[float] = []

    def wait_blocking(limiter: RateLimiter, key: str, cost: int, *, within: float, kind: str | None) -> Decision:
        left.append(within)
        threading.Event().wait(0.05)
        return limiter.hit(key, cost, kind)

    async def wait(limiter: RateLimiter, key: str, cost: int, *, within: float, kind: str | None) -> Decision:
        return wait_blocking(limiter, key, cost, within=within, kind=kind)

    monkeypatch.setattr(RateLimiter, "ask_blocking", wait_blocking)
    monkeypatch.setattr(RateLimiter, "ask", wait)
    guard = Guard(agents[0], in_doubt=in_doubt)

    assert check(guard, [guard.declare(limiter) for limiter in limiters])

    for agent in agents:
        agent.stop()
    assert asked == len(left)
    assert all(before - after >= 0.05 for before, after in pairwise(left))


@BOTH
def test_a_request_is_charged_to_all_its_limits_or_to_none(used_up: str, check: Callable[..., Outcome]) -> None:
    """The charge of the first is given back when the hub refuses by the second; also one that can be settled."""
    with Agent(used_up) as agent:
        guard = Guard(agent, in_doubt=PATIENT)
        rules = [
            guard.declare(Rule(limits="9/hour", name="wide")),
            guard.declare(Rule(limits="9/hour", name="bytes", cost=3, settle=lambda _: 5)),
            guard.declare(Rule(limits="5/hour", name="requests")),
        ]

        outcome = check(guard, rules)

        assert not outcome
        assert ["requests"] == [each.name for each in outcome.rulings if not each.decision.allowed]
        assert [0, 0] == [agent.limiter(name).usage(ADA).own for name in ("wide", "bytes")]


@BOTH
def test_all_limits_that_are_in_doubt_are_asked_about_at_once(
    own_redis: RedisServer, make_agent: Callable[..., Agent], check: Callable[..., Outcome]
) -> None:
    """A new user of a new organisation, at a new address, does not wait for three round trips."""
    agent = make_agent(own_redis.url, sync_interval=10)
    guard = Guard(agent, in_doubt=PATIENT)
    rules = [guard.declare(Rule(limits="9/hour", name=name)) for name in ("user", "organisation", "address")]
    assert check(guard, rules, OTHER)
    eventually(lambda: agent.stats().exchanges[0].pending == 0, "all is said")
    before = agent.stats().exchanges[0].exchanges

    assert check(guard, rules)

    assert agent.stats().exchanges[0].exchanges - before <= 2  # the first batch may be under way with one of them
    assert 6 == asks_of(agent)["admitted"]


@BOTH
def test_a_request_that_one_limit_refuses_for_certain_does_not_ask_about_the_others(
    used_up: str, check: Callable[..., Outcome]
) -> None:
    """It would wait in vain."""
    with Agent(used_up) as agent:
        guard = Guard(agent, in_doubt=PATIENT)
        requests, other = (
            guard.declare(Rule(limits="5/hour", name="requests")),
            guard.declare(Rule(limits="9/hour", name="o")),
        )
        assert not check(guard, [requests])  # now it knows
        before = asks_of(agent)

        assert not check(guard, [other, requests])

        assert before == asks_of(agent)
        assert 0 == agent.limiter("o").usage(ADA).own


async def test_a_request_that_is_cancelled_while_it_asks_has_charged_nothing(
    own_redis: RedisServer, stopped: Callable[[], None], make_agent: Callable[..., Agent]
) -> None:
    """Neither where it asked nor where it had been admitted before."""
    agent = make_agent(own_redis.url)
    guard = Guard(agent, in_doubt=PATIENT)
    known = guard.declare(Rule(limits="900/hour", name="known"))  # of which a single node has a line
    new = guard.declare(Rule(limits="9/hour", name="new"))
    assert guard.check(REQUEST, [known])
    stopped()

    waiting = asyncio.create_task(guard.check_async(REQUEST, [known, new]))
    cells = agent.limiter("new").control.table.cells
    while (cell := cells.get(ADA)) is None or not cell.waiters:  # noqa: ASYNC110  # no event tells of it
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert [1, 0] == [agent.limiter(name).usage(ADA).own for name in ("known", "new")]


def test_no_request_waits_for_a_rule_in_the_shadow(used_up: str) -> None:
    """It refuses nothing."""
    with Agent(used_up) as agent:
        guard = Guard(agent, in_doubt=PATIENT)

        assert guard.check(REQUEST, [guard.declare(Rule(limits="5/hour", name="requests", shadow=True))])
        assert {} == asks_of(agent)


@BOTH
def test_a_refusal_in_doubt_does_not_say_that_the_quota_is_used_up(
    own_redis: RedisServer, stopped: Callable[[], None], make_agent: Callable[..., Agent], check: Callable[..., Outcome]
) -> None:
    """It says that it cannot be told, and what is left as far as the node knows; and when to come again."""
    agent = make_agent(own_redis.url, policy="strict")
    guard = Guard(agent, in_doubt=BRIEF, dialect="ietf-11, x-ratelimit")
    rule = guard.declare(Rule(limits="5/hour", name="requests"))
    stopped()

    refusal = check(guard, [rule]).refusal

    assert refusal is not None
    told = json.loads(refusal.body)
    assert told["detail"].startswith("Too many requests. Try again in ")
    assert ["requests"] == told["violated-policies"]
    fields = dict(refusal.fields)
    assert fields["RateLimit"].startswith('"requests";r=5;t=')
    assert "5" == fields["X-RateLimit-Remaining"]
    assert int(fields["Retry-After"]) > 0


def test_of_quotas_that_refuse_those_are_used_up_that_are_known_to_be() -> None:
    """Of the others nothing is said but their names."""
    one = problem_of(429, violated=["a", "b"], used_up=["b"], retry_after=None)
    none = problem_of(429, violated=["a", "b"], used_up=[], retry_after=None)

    assert "The quota b is used up." == one["detail"]
    assert "Too many requests." == none["detail"]


# ------------------------------------------------------------ functions


def test_a_limited_function_asks(used_up: str) -> None:
    """Be it an ordinary one or a coroutine function; what it raises says whether the limit is used up for certain."""
    with Agent(used_up, in_doubt=PATIENT) as agent:

        @limited("5/hour", agent=agent, name="requests", key=ADA)
        def call() -> None:
            """Do nothing."""

        @limited("5/hour", agent=agent, name="requests", key=ADA)
        async def call_slowly() -> None:
            """Do nothing."""

        with pytest.raises(RateLimited, match=r"'requests' is used up"):
            call()
        with pytest.raises(RateLimited, match=r"'requests' is used up"):
            asyncio.run(call_slowly())
        assert {"refused": 1} == asks_of(agent)


@pytest.mark.parametrize(("in_doubt", "asked"), [(PATIENT, {"refused": 1}), ("refuse", {})])
def test_a_function_that_waits_for_its_turn_asks_first(used_up: str, in_doubt: str, asked: dict[str, int]) -> None:
    """With a key that is new to this process; without asking, memory lets it go at once."""
    with Agent(used_up) as agent:

        @limited("5/hour", agent=agent, name="requests", key=ADA, in_doubt=in_doubt, wait=0.01)
        def call() -> str:
            return "called"

        with pytest.raises(RateLimited) if asked else nullcontext():
            assert "called" == call()
        assert asked == asks_of(agent)


def test_a_limited_function_may_be_told_not_to_ask(used_up: str) -> None:
    """Then memory decides."""
    with Agent(used_up) as agent:

        @limited("5/hour", agent=agent, name="requests", key=ADA, in_doubt="refuse")
        def call() -> str:
            return "called"

        assert "called" == call()
        assert {} == asks_of(agent)


# ------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("in_doubt", "problem"),
    [
        ("ask", "neither 'refuse' nor a time"),
        ("ask:", "neither 'refuse' nor a time"),
        ("ask:25", "neither 'refuse' nor a time"),
        ("ask:-1s", "neither 'refuse' nor a time"),
        ("wait:25ms", "neither 'refuse' nor a time"),
        ("decide", "neither 'refuse' nor a time"),
        (0.025, "neither 'refuse' nor a time"),
        ("", "neither 'refuse' nor a time"),
        ("ask:0ms", "is not between 0 and 10 s"),
        ("ask:10.1s", "is not between 0 and 10 s"),
    ],
)
@pytest.mark.parametrize(
    "give",
    [
        lambda said: Rule(limits="1/minute", in_doubt=said),
        lambda said: Guard("memory://", in_doubt=said),
        lambda said: Agent("memory://", in_doubt=said),
        lambda said: limited("1/minute", agent=Agent("memory://"), in_doubt=said),
        lambda said: Outgoing(Agent("memory://").limit("calls", "1/minute"), in_doubt=said),
        lambda said: storage_at("reconverge+memory://", in_doubt=said),
    ],
    ids=["rule", "guard", "agent", "function", "calls", "storage"],
)
def test_what_is_no_time_to_ask_within_is_an_error(give: Callable[[Any], object], in_doubt: Any, problem: str) -> None:
    """Which names it, and says what can be written."""
    with pytest.raises(InvalidSetting, match=problem) as raised:
        give(in_doubt)

    assert "in_doubt" == raised.value.name


def calls_for(guard: Guard, rules: list[Declared]) -> Counter[str]:
    """Returns how often a request and its response fields call each of the package's functions."""
    calls = Counter[str]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls[frame.f_code.co_qualname] += 1

    sys.setprofile(note)
    try:
        assert guard.check(REQUEST, rules).fields
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.usefixtures("compiled_kernel")
def test_a_request_that_memory_settles_costs_no_call_more_than_without_a_hub(redis_server: RedisServer) -> None:
    """The check whether memory settles it is a call of the compiled store, and no call of a function of Python."""
    with Agent(redis_server.url) as agent:
        alone, shared = Guard(Agent("memory://")), Guard(agent)
        of_alone, of_shared = [alone.declare("1000000/hour")], [shared.declare("1000000/hour")]
        calls_for(alone, of_alone)  # the first request for a key calls more
        calls = calls_for(alone, of_alone)

        eventually(lambda: calls == calls_for(shared, of_shared), "a request calls the same functions as without a hub")
