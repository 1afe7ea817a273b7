"""The types of the public API, as users' type checkers see them. Never run, only checked.

Where a line is marked with `type: ignore`, the checker has to object: a mark that is not needed is an error, too.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Literal, assert_type

from reconverge import (
    Agent,
    AgentStats,
    Clock,
    CostExceedsQuota,
    Decision,
    Health,
    Hub,
    HubUnavailable,
    InvalidCost,
    InvalidKey,
    InvalidLimit,
    InvalidSetting,
    Limit,
    LimitConflict,
    Limiter,
    LimitStats,
    MissingExtra,
    RateLimiter,
    ReconvergeError,
    Reservation,
    SlotLimiter,
    UnknownHub,
    UnknownKind,
    UnknownLimit,
    Usage,
)
from reconverge.clock import ManualClock, SystemClock
from reconverge.hooks import LogHooks, Refused, SilentHooks
from reconverge.hub.report import Answer, Batch, Totals
from reconverge.integrations import Guard, Outcome, Refusal, Request, Rule, by_header, by_ip, together
from reconverge.integrations.config import load
from reconverge.integrations.decorators import limited
from reconverge.published.settings_reader import FleetSettingsStats


class OwnAgent(Agent):
    """An application's own kind of agent stays one."""


class OwnHub:
    """A hub inherits nothing: it has what the protocol asks for."""

    @property
    def shards(self) -> int:
        return 1

    async def exchange(self, batch: Batch) -> Answer:
        raise HubUnavailable("refused", f"{len(batch.cells)} cells", applied=False)

    async def totals(self) -> dict[str, Totals]:
        return {}

    async def close(self) -> None:
        """Does nothing."""


class HalfAHub:
    """An object that lacks a part is no hub."""

    async def exchange(self, batch: Batch) -> Answer:
        raise HubUnavailable("refused", f"{len(batch.cells)} cells")


def agents() -> None:
    """An agent takes a URL or a hub; all else has a name and a default."""
    assert_type(Agent(), Agent)
    assert_type(Agent("redis://localhost:6379/0", namespace="shop", sync_interval=0.1), Agent)
    assert_type(Agent(OwnHub(), clock=ManualClock(start=0.0)), Agent)
    Agent(
        hub="memory://",
        namespace="shop",
        sync_interval=1,
        min_sync_interval=None,
        max_silence=10,
        lease_ttl=60.0,
        policy="strict",
        max_overshoot=0.0,
        cold_allowance=None,
        max_keys=1_000,
        new_keys_max=500,
        key_bytes_max=64,
        exchange_timeout=0.5,
        stop_timeout=1.0,
        sigterm=False,
        switch="on",
        settings_secret=["new", b"old"],
        clock=SystemClock(),
    )

    Agent("memory://", "shop")  # type: ignore[call-arg]
    Agent(HalfAHub())  # type: ignore[arg-type]
    Agent(clock=0.0)  # type: ignore[arg-type]
    Agent(interval=0.1)  # type: ignore[call-arg]


async def waiting(limiter: RateLimiter) -> None:
    """Whoever waits is answered as `hit` would, in a coroutine as on a thread."""
    assert_type(await limiter.wait("ada"), Decision)
    assert_type(await limiter.wait("ada", 3, timeout=0.5, max_queue=100), Decision)
    assert_type(limiter.wait_blocking("ada", cost=3, timeout=None, max_queue=None), Decision)
    assert_type(Limit(10, 1, algorithm="smooth-warming-up", warmup=5.0).warmup, float | None)

    await limiter.wait("ada", 1, 0.5)  # type: ignore[call-arg]


def running(agent: OwnAgent) -> None:
    """`with` hands out the very agent; starting and stopping answer nothing."""
    with agent as entered:
        assert_type(entered, OwnAgent)
    agent.start()
    agent.stop()
    agent.stop(timeout=0.5)
    assert_type(agent.ready, bool)


class Pager(SilentHooks):
    """Hears of what it is interested in."""

    def refused(self, event: Refused, /) -> None:
        assert_type(event.count, int)


def operating(agent: Agent, limiter: RateLimiter) -> None:
    """Switches are three words, decisions say which; hooks are whatever has the methods."""
    limiter.switch("shadow")
    agent.switch("off")
    assert_type(limiter.switched, Literal["on", "shadow", "off"])
    assert_type(limiter.hit("ada").would_refuse, bool)
    assert_type(limiter.hit("ada").switch, str)
    assert_type(agent.health(), Health)
    assert_type(agent.limiters, dict[str, Limiter])
    limiter.change("200/minute", soft="10%")
    agent.change_pace(0.5)
    agent.change_pace(None, limit="login")
    agent.add_hooks(Pager())
    agent.add_hooks(LogHooks(every=1.0))
    assert_type(agent.limit("api", "10/second", cap="20/second"), RateLimiter)
    assert_type(agent.stats().orders, FleetSettingsStats | None)
    assert_type(load("shop.toml", namespace="shop").agent, Agent)

    limiter.switch("dark")  # type: ignore[arg-type]
    agent.add_hooks(print)  # type: ignore[arg-type]


async def running_in_a_loop(agent: OwnAgent) -> None:
    """`async with` does so, too."""
    async with agent as entered:
        assert_type(entered, OwnAgent)


def limits(agent: Agent) -> None:
    """A limit is declared as a string or as a `Limit`, and is a `RateLimiter` from then on."""
    assert_type(agent.limit("login", "100/minute"), RateLimiter)
    assert_type(agent.limit("login", Limit(100, 60), policy="strict"), RateLimiter)
    assert_type(
        agent.limit("login", "10/s burst 20", algorithm="gcra", max_overshoot=0.5, cold_allowance=1.0), RateLimiter
    )
    assert_type(agent.limiter("login"), RateLimiter)
    assert_type(agent.limiter("render", SlotLimiter), SlotLimiter)
    assert_type(agent.limiter("login", Limiter), Limiter)
    assert_type(agent.concurrency("render", 20, lease=10), SlotLimiter)
    assert_type(agent.concurrency("render", "20 in flight", cap="40 in flight"), SlotLimiter)
    assert_type(Limit.parse("100/minute", algorithm="fixed-window"), Limit)
    assert_type(Limit(quota=100, window=0.5, algorithm="token-bucket", burst=20, name="api"), Limit)

    assert_type(Limit.parse_all("10/s; 1000/hour"), tuple[Limit, ...])
    assert_type(agent.limit("api", "10/s; 1000/hour as hourly", soft="10%", max_debt=5, costs={"GET": 1}), RateLimiter)
    assert_type(agent.limit("api", [Limit(10, 1, soft=0.1), Limit(1000, 3600, costs={"*": 2})]), RateLimiter)
    assert_type(agent.limit("search", "3/s", parent=agent.limiter("api")), RateLimiter)

    agent.limit("search", "3/s", parent="api")  # type: ignore[arg-type]
    agent.limit("login", [10])  # type: ignore[list-item]
    agent.limit("login", "10/s", costs={"GET": 0.5})  # type: ignore[dict-item]
    agent.limit("login", 100)  # type: ignore[arg-type]
    agent.limit("login")  # type: ignore[call-arg]
    Limit(100, 60).quota = 200  # type: ignore[misc]


def deciding(login: RateLimiter) -> None:
    """A decision is a word, or an answer with its grounds; both can be asked for truth."""
    assert_type(login.allow("ada"), bool)
    assert_type(login.allow("ada", cost=3), bool)
    assert_type(login.hit("ada", 3), Decision)
    assert_type(login.test("ada"), Decision)
    assert_type(login.usage("ada"), Usage)
    assert_type(login.allow("ada", kind="GET"), bool)
    assert_type(login.hit("ada", 2, kind="GET"), Decision)
    assert_type(login.usages("ada"), dict[str, Usage])
    assert_type(login.quotas, dict[str, Limit])
    login.refund("ada")
    login.refund("ada", 2, kind="GET")
    login.reset("ada")
    login.warm(["ada", "bob"])
    login.warm(name for name in ("ada", "bob"))
    assert_type(login.name, str)
    assert_type(login.limit, Limit)

    login.allow(1815)  # type: ignore[arg-type]
    login.allow("ada", cost=0.5)  # type: ignore[arg-type]
    login.allow("ada", weight=3)  # type: ignore[call-arg]
    login.hit()  # type: ignore[call-arg]


def grounds(decision: Decision, usage: Usage) -> None:
    """Cost is a whole number, time is in seconds."""
    assert_type(decision.allowed, bool)
    assert_type(decision.limit, int)
    assert_type(decision.remaining, int)
    assert_type(decision.retry_after, float)
    assert_type(decision.reset_after, float)
    assert_type(decision.staleness, float)
    assert_type(decision.binding, str)
    assert_type(decision.over_quota, bool)
    assert_type(decision.borrowed, bool)
    assert_type(decision.certain, bool)
    assert_type(bool(decision), bool)
    assert_type(usage.own, int)
    assert_type(usage.total, int)
    assert_type(usage.limit, int)
    assert_type(usage.allowance, int)
    assert_type(usage.staleness, float)

    decision.allowed = True  # type: ignore[misc]
    usage.own = 0  # type: ignore[misc]


def reserving(login: RateLimiter) -> None:
    """A reservation is what `with` hands out, and is settled once the truth is known."""
    with login.reserve("ada", 800) as reservation:
        assert_type(reservation, Reservation)
        assert_type(reservation.allowed, bool)
        assert_type(reservation.estimate, int)
        assert_type(reservation.decision, Decision)
        reservation.settle(650)

    assert_type(login.reserve("ada", 800, kind="GET", on_abandon="return"), Reservation)

    login.reserve("ada", 800, on_abandon="burn")  # type: ignore[arg-type]
    login.reserve("ada")  # type: ignore[call-arg]
    login.reserve("ada", 800).settle(0.5)  # type: ignore[arg-type]


async def reserving_in_a_loop(login: RateLimiter) -> None:
    """`async with` hands out the same."""
    async with login.reserve("ada", 800) as reservation:
        assert_type(reservation, Reservation)


def looking(agent: Agent) -> None:
    """Statistics are a snapshot."""
    stats = agent.stats()
    assert_type(stats, AgentStats)
    assert_type(stats.hub, str)
    assert_type(stats.running, bool)
    assert_type(stats.keys, int)
    assert_type(stats.limits, dict[str, LimitStats])
    assert_type(stats.limits["login"].admitted, int)
    assert_type(stats.exchanges[0].failures, dict[str, int])
    assert_type(stats.exchanges[0].staleness, float)
    assert_type(stats.bugs, int)

    stats.keys = 0  # type: ignore[misc]


def mistakes(agent: Agent) -> None:
    """Every mistake is a `ReconvergeError` and carries its facts; most are what Python would raise as well."""
    every: list[type[ReconvergeError]] = [
        CostExceedsQuota,
        HubUnavailable,
        InvalidCost,
        InvalidKey,
        InvalidLimit,
        InvalidSetting,
        LimitConflict,
        MissingExtra,
        UnknownHub,
        UnknownKind,
        UnknownLimit,
    ]
    assert_type(every[0].__name__, str)
    try:
        agent.limiter("login").hit("ada", 101)
    except CostExceedsQuota as error:
        assert_type(error.limit, str)
        assert_type(error.cost, int)
        assert_type(error.quota, int)
        value_error: ValueError = error
        raise value_error from None
    except InvalidLimit as error:
        assert_type(error.position, int | None)
    except UnknownLimit as error:
        assert_type(error.declared, tuple[str, ...])
        lookup_error: LookupError = error
        raise lookup_error from None
    except HubUnavailable as error:
        assert_type(error.kind, str)
        assert_type(error.applied, bool | None)


def ports() -> None:
    """Hands in any objects that have the parts of a protocol."""
    clock: Clock = ManualClock()
    clock = SystemClock()
    hub: Hub = OwnHub()
    assert_type(clock.monotonic_ns(), int)
    assert_type(hub.shards, int)

    hub = HalfAHub()  # type: ignore[assignment]


def in_applications(agent: Agent, request: Request) -> None:
    """Limits an application by keys of known types."""
    guard = Guard(agent, dialect=["ietf-11", "x-ratelimit"], trusted_proxies=("10.0.0.0/8",))
    declared = guard.declare(Rule(limits="5/minute", key_func=together(by_ip, by_header("x-key")), cost=lambda: 2))
    outcome = guard.check(request, [declared])
    assert_type(outcome, Outcome)
    assert_type(outcome.refusal, Refusal | None)
    assert_type(outcome.fields, list[tuple[str, str]])

    @limited("5/minute", agent=agent)
    def charge(customer: str, amount: int) -> float:
        return amount / len(customer)

    @limited("5/minute", agent=agent, wait=2.5)
    async def fetch(url: str) -> bytes:
        return url.encode()

    assert_type(charge("ada", 3), float)
    charge(3)  # type: ignore[call-arg, arg-type]
    fetching: Coroutine[Any, Any, bytes] = fetch("here")
    fetching.close()
    Rule(limits="5/minute", costs=2)  # type: ignore[call-arg]
