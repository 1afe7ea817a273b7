"""Goal: a public function that takes a number refuses what is none, or is out of range, with the value and the remedy.

Method: each such parameter of constructors, declarations and methods gets a text, NaN, infinity, True and -1 in turn.
Some of these mean something to a few parameters, which are listed.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from reconverge import Agent, Limit
from reconverge.errors import ReconvergeError
from reconverge.hooks import LogHooks
from reconverge.integrations import Guard, Rule
from reconverge.integrations.asgi import RateLimitMiddleware as AsgiMiddleware
from reconverge.integrations.decorators import limited
from reconverge.integrations.httpx import LimitedTransport
from reconverge.integrations.opentelemetry import instrument
from reconverge.integrations.prometheus import AgentCollector
from reconverge.integrations.requests import LimitedAdapter
from reconverge.integrations.servers import Server
from reconverge.integrations.shedding import WsgiLoadSheddingMiddleware
from reconverge.integrations.wsgi import RateLimitMiddleware as WsgiMiddleware
from reconverge.shedding import (
    Aimd,
    Gains,
    Gradient2,
    LoopLag,
    Occupancy,
    RequestRate,
    Vegas,
    WorkerShedder,
)
from reconverge.testing import ManualClock
from reconverge.usage import (
    AddressBook,
    Exporter,
    Meter,
    Retention,
    UsageReporter,
    from_many_addresses,
    period_at,
    top,
)
from reconverge_sync.memory import MemoryHub
from tests.support.applications.asking import hello, hello_wsgi

pytestmark = pytest.mark.usefixtures("bare_environment")

Call = Callable[..., Any]

WRONG = {"text": "10", "nan": math.nan, "inf": math.inf, "True": True, "-1": -1}
MEANT = {
    "max_overshoot": {"inf"},  # no bound
    "timeout of a wait": {"inf"},
    "wait of a call": {"inf", "True"},  # without end
    "start": {"-1"},  # before 1970
    "seconds of a jump": {"-1"},  # back
    "cost of usage": {"-1"},  # given back
    "requests of usage": {"-1"},
    "refused of usage": {"-1"},
}
"""By parameter, the values of WRONG that are right there."""


def _agent() -> Any:
    return Agent("memory://", sigterm=False)


def _limiter(limit: str = "100/minute") -> Any:
    return _agent().limit("login", limit)


def _done(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def _one() -> int:
    return 1


def _ledger() -> Any:
    return MemoryHub().usage


def _with_all(**given: object) -> Any:
    """Returns a `Limit` with these fields, and a quota and a window."""
    fields: dict[str, Any] = {"quota": 10, "window": 60.0} | given
    return Limit(**fields)


def _all(of: Call, *names: str, kind: str = "") -> dict[str, Call]:
    """Returns a function of a value for each of these keyword parameters of `of`, by a name for the case."""
    return {name + kind: partial(_with, of, name) for name in names}


def _with(of: Call, name: str, value: object) -> Any:
    return of(**{name: value})


CALLS: dict[str, dict[str, Call]] = {
    "Agent": _all(
        lambda **given: Agent("memory://", **given),
        *("sync_interval", "min_sync_interval", "max_silence", "lease_ttl", "max_overshoot", "cold_allowance"),
        *("max_keys", "new_keys_max", "asks_max", "key_bytes_max", "exchange_timeout", "stop_timeout", "region_share"),
    ),
    "Agent.change_pace": _all(lambda **given: _agent().change_pace(**{"sync_interval": 0.1} | given), "sync_interval"),
    "Agent.check": _all(lambda **given: _agent().check(**given), "timeout"),
    "Agent.stop": _all(lambda **given: _agent().stop(**given), "timeout"),
    "Agent.forget": _all(lambda **given: _done(_agent().forget("ada", **given)), "wait"),
    "Agent.limit": _all(
        lambda **given: _agent().limit("login", "100/minute", **given),
        *("soft", "max_debt", "max_overshoot", "cold_allowance", "sync_interval", "block_after"),
    ),
    "Agent.concurrency": _all(
        lambda **given: _agent().concurrency("render", **{"limit": 5} | given),
        *("limit", "lease", "max_overshoot", "cold_allowance", "sync_interval"),
    ),
    "Limit": _all(_with_all, "quota", "window", "soft", "max_debt"),
    "Limit of a bucket": _all(lambda **given: Limit(10, 60.0, "token-bucket", **given), "burst", "initial"),
    "Limit of slices": _all(lambda **given: Limit(10, 60.0, "sliding-slices", **given), "slices"),
    "Limit that warms up": _all(lambda **given: Limit(10, 60.0, "smooth-warming-up", **given), "warmup"),
    "Limit of slots": _all(lambda **given: Limit(10, algorithm="concurrency", **given), "lease"),
    "Limit.over": _all(lambda **given: Limit(10, 60.0).over(**given), "window"),
    "RateLimiter.allow": _all(lambda **given: _limiter().allow("ada", **given), "cost"),
    "RateLimiter.ask": _all(lambda **given: _done(_limiter().ask("ada", **given)), "cost", "within"),
    "RateLimiter.ask_blocking": _all(lambda **given: _limiter().ask_blocking("ada", **given), "cost", "within"),
    "RateLimiter.wait": _all(lambda **given: _limiter().wait_blocking("ada", **given), "cost", "within", "max_queue")
    | _all(lambda **given: _limiter().wait_blocking("ada", **given), "timeout", kind=" of a wait"),
    "RateLimiter.reserve": _all(
        lambda **given: _limiter().reserve("ada", **{"estimate": 1} | given), "estimate", "within"
    ),
    "RateLimiter.refund": _all(lambda **given: _limiter().refund("ada", **given), "cost"),
    "RateLimiter.change": _all(lambda **given: _limiter().change("100/minute", **given), "soft", "max_debt"),
    "Reservation.settle": _all(lambda **given: _limiter().reserve("ada", 1).settle(**given), "actual"),
    "Reservation.spend": _all(lambda **given: _limiter().reserve("ada", 1).spend(**given), "cost"),
    "SlotLimiter.slot": _all(lambda **given: _agent().concurrency("render", 5).slot("ada", **given), "max_queue")
    | _all(lambda **given: _agent().concurrency("render", 5).slot("ada", **given), "timeout", kind=" of a wait"),
    "LogHooks": _all(LogHooks, "every"),
    "Guard": _all(lambda **given: Guard(_agent(), **given), "status"),
    "Rule": _all(
        lambda **given: WsgiMiddleware(hello_wsgi, rules=[Rule(limits="9/minute", **given)], agent=_agent()),
        *("cost", "status", "max_queue", "block_after"),
    ),
    "AsgiMiddleware": _all(lambda **given: AsgiMiddleware(hello, "9/minute", agent=_agent(), **given), "close_code"),
    "limited": _all(lambda **given: limited("9/minute", agent=_agent(), **given)(_one)(), "cost", "max_queue")
    | _all(lambda **given: limited("9/minute", agent=_agent(), **given)(_one)(), "wait", kind=" of a call"),
    "LimitedTransport": _all(lambda **given: LimitedTransport(_limiter(), **given), "max_queue")
    | _all(lambda **given: LimitedTransport(_limiter(), **given), "timeout", kind=" of a wait"),
    "LimitedAdapter": _all(lambda **given: LimitedAdapter(_limiter(), **given), "max_queue"),
    "Server": _all(lambda **given: Server("shop", **given), "pause_s"),
    "AgentCollector": _all(lambda **given: AgentCollector(_agent(), **given), "limits_max"),
    "instrument": _all(lambda **given: instrument(_agent(), **given), "limits_max"),
    "Aimd": _all(Aimd, "initial", "min_limit", "max_limit", "backoff", "timeout"),
    "Gradient2": _all(Gradient2, "initial", "max_limit", "tolerance", "queue", "smoothing", "probe_windows"),
    "Vegas": _all(Vegas, "initial", "min_limit", "max_limit", "probe_windows"),
    "Gains": _all(lambda **given: WorkerShedder(gains=Gains(**given)), "kp", "ki", "kd", "smoothing_s"),
    "LoopLag": _all(LoopLag, "target"),
    "Occupancy": _all(lambda **given: Occupancy(**{"workers": 4} | given), "workers", "target"),
    "RequestRate": _all(lambda **given: RequestRate(_limiter(), **given), "status"),
    "WsgiLoadSheddingMiddleware": _all(lambda **given: WsgiLoadSheddingMiddleware(hello_wsgi, **given), "workers"),
    "ManualClock": _all(ManualClock, "start"),
    "ManualClock.advance": _all(lambda **given: ManualClock().advance(**given), "seconds"),
    "ManualClock.advance_ns": _all(lambda **given: ManualClock().advance_ns(**given), "nanoseconds"),
    "ManualClock.jump": _all(lambda **given: ManualClock().jump(**given), "seconds", kind=" of a jump"),
    "AddressBook": _all(AddressBook, "identities_max"),
    "AddressBook.unusual": _all(lambda **given: AddressBook().unusual(**given), "least"),
    "Exporter": _all(lambda **given: Exporter(_ledger(), print, **given), "grace"),
    "Exporter, kept": _all(lambda **given: Exporter(_ledger(), print, kept=Retention(**given)), "hour", "month"),
    "Meter": _all(Meter, "rows_max", "routes_max"),
    "Meter.add": _all(lambda **given: Meter().add("ada", "login", **given), "cost", kind=" of usage"),
    "Meter.amend": _all(
        lambda **given: Meter().amend("ada", "login", **given), "cost", "requests", "refused", kind=" of usage"
    ),
    "Meter.join_requests": _all(lambda **given: Meter().join_requests(**given), "count"),
    "UsageReporter": _all(lambda **given: UsageReporter(Meter(), "memory://", **given), "interval", "timeout"),
    "UsageReporter, kept": _all(lambda **given: UsageReporter(Meter(), "memory://", kept=Retention(**given)), "day"),
    "UsageReporter.stop": _all(lambda **given: UsageReporter(Meter(), "memory://").stop(**given), "timeout"),
    "top": _all(lambda **given: _done(top(_ledger(), period_at("hour", 0), **given)), "most"),
    "from_many_addresses": _all(
        lambda **given: _done(from_many_addresses(_ledger(), period_at("hour", 0), **given)), "least"
    ),
}


@pytest.mark.parametrize(("function", "parameter"), [(each, name) for each, names in CALLS.items() for name in names])
def test_a_wrong_number_is_told_with_its_value(function: str, parameter: str) -> None:
    """Before anything is made, charged or changed."""
    for kind in WRONG.keys() - MEANT.get(parameter, set()):
        with pytest.raises(ReconvergeError) as raised:
            CALLS[function][parameter](WRONG[kind])

        assert str(WRONG[kind]) in str(raised.value), kind
