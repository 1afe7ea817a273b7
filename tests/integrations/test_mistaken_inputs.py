"""Goal: an input that a tired engineer gets wrong is answered by a sentence with the fact, the value and the remedy.

Method: one table of wrong inputs across functions, files, contracts, commands and frameworks, each with the words that
its message must have. The message is that of an error, of the log, or of a command. No input limits nothing in silence.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import aiohttp.web
import flask
import httpx
import pytest
import redis
import redis.asyncio
import requests
from celery import Celery  # type: ignore[import-untyped]
from django.core.handlers.wsgi import WSGIHandler
from django.test import override_settings
from fastapi import Depends, FastAPI, Header
from limits.storage import MemoryStorage, storage_from_string
from prometheus_client import CollectorRegistry

from reconverge import Agent, Limit, RateLimiter
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.following import follow_hub
from reconverge.contracts.model import Document
from reconverge.contracts.store.changing import with_customer
from reconverge.contracts.store.hub_book import HubBook
from reconverge.hooks import SilentHooks
from reconverge.hub import HubSettings, open_hub
from reconverge.integrations import Rule, by_header, by_ip, by_user
from reconverge.integrations.aiohttp import Limits as AiohttpLimits
from reconverge.integrations.asgi import RateLimitMiddleware as AsgiMiddleware
from reconverge.integrations.config import load
from reconverge.integrations.customer_links import customer_token
from reconverge.integrations.decorators import limited
from reconverge.integrations.django import RateLimitMiddleware as DjangoMiddleware
from reconverge.integrations.django import exempt as django_exempt
from reconverge.integrations.django import limit as django_limit
from reconverge.integrations.django.cache import ReconvergeCache
from reconverge.integrations.fastapi import Limits as FastapiLimits
from reconverge.integrations.flask import Limits as FlaskLimits
from reconverge.integrations.grpc import RateLimitInterceptor
from reconverge.integrations.httpx import AsyncLimitedTransport, LimitedTransport
from reconverge.integrations.limits_storage import AsyncReconvergeStorage
from reconverge.integrations.opentelemetry import instrument
from reconverge.integrations.prometheus import AgentCollector
from reconverge.integrations.requests import LimitedAdapter
from reconverge.integrations.usage_prometheus import UsageCollector
from reconverge.integrations.wsgi import RateLimitMiddleware as WsgiMiddleware
from reconverge.limiter.faces.slot_limiter import SlotLimiter
from reconverge.published.envelope import Secrets
from reconverge.published.settings import checked as settings_checked
from reconverge.shedding import AdaptiveConcurrency, RequestRate, Stack, TrafficClasses
from reconverge.testing import ManualClock
from reconverge.usage import Exporter, Meter, UsageReporter, fleet_load, period_at, totals
from reconverge_sync.memory import MemoryHub
from tests.support.applications import django_project
from tests.support.applications.asking import ask_wsgi, hello_wsgi
from tests.support.commands.checked import said_by

pytestmark = pytest.mark.usefixtures("bare_environment")


AGENT: Any = Agent
LIMIT: Any = Limit
FASTAPI: Any = FastapiLimits
FLASK: Any = FlaskLimits
AIOHTTP: Any = AiohttpLimits
DJANGO: Any = django_limit
DJANGO_MIDDLEWARE: Any = DjangoMiddleware
EXEMPT: Any = django_exempt
RULE: Any = Rule
ASGI: Any = AsgiMiddleware
WSGI: Any = WsgiMiddleware
SESAME = "sesame"
Words = tuple[str, ...]


def limit(text: Any, *further: Any, **settings: Any) -> Any:
    return AGENT("memory://").limit("login", text, *further, **settings)


async def user(x_user: Annotated[str, Header()]) -> str:
    return x_user


async def signed_in(name: Annotated[str, Depends(user)]) -> str:
    return name


def slots() -> SlotLimiter:
    return Agent("memory://").concurrency("render", 2)


def tier(plan: str) -> str:
    return "5/minute"


def where() -> str:
    return "192.0.2.1"


async def waiting_key() -> str:
    return "ada"


def called_dependency() -> None:
    FASTAPI("memory://")("5/minute")()


class OnRefused(SilentHooks):
    """Its method is named as in other libraries."""

    def on_refused(self, _event: object) -> None:
        """Is never called."""


class HookWithoutEvent(SilentHooks):
    """Its method does not take the event."""

    def refused(self) -> None:  # type: ignore[override]
        """Would raise TypeError at each event."""


class WaitingHook(SilentHooks):
    """Its method is a coroutine function."""

    async def refused(self, _event: object) -> None:  # type: ignore[override]
        """Would be awaited by nothing."""


def switch_again() -> None:
    agent = Agent("memory://")
    agent.limit("login", "2/minute")
    agent.limit("login", "2/minute", switch="shadow")


def settle_again() -> None:
    reservation = Agent("memory://").limit("settled-twice", "20/minute").reserve("ada", 8)
    reservation.settle(5)
    reservation.settle(3)


def run_without_a_slot() -> None:
    render = Agent("memory://").concurrency("rendered-blindly", 1)
    with render.slot("ada"), render.slot("ada"):
        pass


def run_without_an_estimate() -> None:
    limiter = Agent("memory://").limit("spent-blindly", "10/minute")
    for _ in range(2):
        with limiter.reserve("ada", 8) as reservation:
            reservation.spend(5)


def run_though_shed() -> None:
    stack = Stack(RequestRate(Agent("memory://").limit("shed-blindly", "1/minute")))
    for _ in range(2):
        with stack.enter("ada", "GET"):
            pass


def capped_in_vain() -> None:
    Contracts(Agent("memory://"), {"plans": {"free": {"limits": {"api": "5/minute"}}}}, caps={"apis": "3/minute"})


def fetch_by_a_class() -> None:
    session = requests.Session()
    session.mount("http://", _any(LimitedAdapter))
    session.get("http://localhost/")


def command_with_a_limit_of_views() -> None:
    limited_command = FLASK(where, agent="memory://").limit("5/minute")(where)
    limited_command()


def fetch_by_a_limiter() -> None:
    session = requests.Session()
    session.mount("http://", limit("9/s"))
    session.get("http://localhost/")


def limit_twice() -> None:
    app, agent = flask.Flask("x"), Agent("memory://")
    for _ in range(2):
        FLASK(where, app=app, agent=agent, default_limits=["5/minute"])


def task(self: object, customer: str) -> None:
    """Is the function of a task that gets itself first."""


def job() -> None:
    """Is a function to which a queue has added its method, as rq does."""


job.delay = job  # type: ignore[attr-defined]


def meter_without_reporter() -> None:
    clock = ManualClock()
    meter = Meter(clock)
    UsageReporter(meter, MemoryHub(clock=clock), clock=clock)
    for _ in range(2):
        meter.add("ada", "login")
        clock.advance(60)


def guard_without_reporter() -> None:
    clock = ManualClock()
    meter = Meter(clock)
    served = WsgiMiddleware(hello_wsgi, "5/minute", agent="memory://", meter=meter)
    for _ in range(2):
        ask_wsgi(served)
        clock.advance(60)


async def asgi_app(_scope: Any, _receive: Any, _send: Any) -> None:
    """Answers nothing."""


FUNCTIONS: dict[str, tuple[Callable[[], object], Words]] = {
    "fractions": (lambda: limit("1.5/second"), ("'1.5' is no whole number", "write 3/2 second", "character 1")),
    "half": (lambda: limit("0.5 per minute"), ("'0.5' is no whole number", "write 1/2 minute")),
    "thousands": (lambda: limit("10k/minute"), ("found 'k'", "write the number in digits, as 10000")),
    "millions": (lambda: limit("2M per day"), ("found 'M'", "as 2000000")),
    "exponent": (lambda: limit("1e3/minute"), ("found 'e3'", "as 1000")),
    "underscore": (lambda: limit("10_000/minute"), ("'10_000' is not written in digits alone", "write 10000")),
    "comma": (lambda: limit("1,000,000/day"), ("found ','", "without a comma, as 1000000")),
    "blank": (lambda: limit("10 000/minute"), ("found '000'", "without a blank, as 10000")),
    "point": (lambda: limit("10.000/minute"), ("'10.000' is not written", "write 10 or 10000")),
    "requests": (lambda: limit("100 req/hr"), ("found 'req'", "leave 'req' out, as in 100/hr")),
    "decimal comma": (lambda: limit("1,5/second"), ("'1.5' is no whole number", "write 3/2 second", "character 1")),
    "unlimited": (lambda: limit("unlimited"), ("found 'unlimited'", "leave the limit out", "None from a function")),
    "key before the window": (lambda: limit("5 per user per minute"), ("'user'", "leave 'user' out", "key_func")),
    "no window": (lambda: limit("100"), ("the text ends", "write for example 100/minute", "character 4")),
    "key in the limit": (lambda: limit("5/minute/user"), ("found '/'", "leave this out", "key_func")),
    "per user": (lambda: limit("5 per minute per user"), ("found 'per'", "pass the key to allow()")),
    "and": (lambda: limit("5/minute and 9/hour"), ("found 'and'", "write ','")),
    "colon": (lambda: limit("5:minute"), ("unexpected ':'", "write '/' or 'per'")),
    "equals": (lambda: limit("10/s burst=20"), ("unexpected '='", "10/s burst 20", "character 11")),
    "minus": (lambda: limit("-5/minute"), ("unexpected '-'", "0 or more")),
    "half a window": (lambda: limit("5/1.5 minutes"), ("'1.5' is no whole number", "1500 ms for 1.5 seconds")),
    "Limit of a text": (lambda: LIMIT("5/minute"), ("'5/minute'", "write Limit.parse('5/minute')")),
    "Limit by a unit": (lambda: LIMIT(5, "minute"), ("the window 'minute'", "Limit(5, 60)")),
    "Limit without a window": (lambda: LIMIT(5), ("needs a window", "Limit(5, 60)")),
    "window in nanoseconds": (
        lambda: LIMIT(5, 60_000_000_000),
        ("60000000000 s", "between 1 ms and ten years", "in seconds"),
    ),
    "prices of nothing": (lambda: limit("5/minute", costs={"GET": 0, "*": 0}), ("all kinds cost 0", "at least 1")),
    "window by position": (lambda: limit(5, 60), ("=60", "part of the limit", "Limit(100, 60)")),
    "algorithm of limits": (
        lambda: limit("5/minute", algorithm="moving-window"),
        ("unknown algorithm 'moving-window'", "it is called 'sliding-log' here"),
    ),
    "algorithm by position": (lambda: limit("5/minute", "gcra"), ("'gcra'", "algorithm=")),
    "name and limit swapped": (
        lambda: AGENT("memory://").limit("5/minute", "login"),
        ("'5/minute'", "in place of the name", "write agent.limit('login', '5/minute')"),
    ),
}
HUBS: dict[str, tuple[Callable[[], object], Words]] = {
    "client": (lambda: Agent(_any(redis.Redis(port=7000, db=2))), ("client of Redis", "redis://localhost:7000/2")),
    "password": (lambda: Agent(_any(redis.Redis(password=SESAME))), ("write the URL", "redis://localhost:6379/0")),
    "asyncio": (lambda: Agent(_any(redis.asyncio.Redis())), ("client of Redis", "Agent('redis://localhost:6379/0')")),
    "pool": (lambda: Agent(_any(redis.ConnectionPool(host="db"))), ("client of Redis", "redis://db:6379/0")),
    "fallback": (
        lambda: Agent("redis://localhost", fallback=_any(redis.Redis())),
        ("fallback=", "client of Redis", "write the URL"),
    ),
    "slash in a password": (
        lambda: Agent("redis://ada:pa/ses@me@localhost:6379/0"),
        ("cannot be read", "localhost:6379/0", "in a password", "%2F %3F %23"),
    ),
    "hash in a password": (lambda: Agent("rediss://ada:se#same@localhost"), ("cannot be read", "%23")),
    "slash in a password of MQTT": (lambda: Agent("mqtt://ada:ses/ame@localhost"), ("cannot be read", "%2F")),
    "fallback twice": (
        lambda: Agent("redis://localhost", fallback="redis://localhost"),
        ("fallback='redis://localhost'", "is the hub itself", "name another server"),
    ),
    "hook": (
        lambda: Agent("memory://").add_hooks(_any(OnRefused())),
        ("OnRefused.on_refused", "never called", "did you mean 'refused'?"),
    ),
    "hook that waits": (
        lambda: Agent("memory://").add_hooks(WaitingHook()),
        ("WaitingHook.refused", "is a coroutine function, which nothing awaits", "write a plain one"),
    ),
    "dependency that was not made": (
        lambda: FastAPI().get("/", dependencies=[Depends(FastapiLimits("memory://").shared_limit)])(where),
        ("makes dependencies, but is not one itself", "write Depends(limits.shared_limit('5/minute', 'scope'))"),
    ),
    "hook without its event": (
        lambda: Agent("memory://").add_hooks(HookWithoutEvent()),
        ("HookWithoutEvent.refused", "is called with the event", "write def refused(self, event)"),
    ),
    "hook that is a function": (
        lambda: Agent("memory://").add_hooks(_any(print)),
        ("<built-in function print>", "has no method refused()", "inherits SilentHooks"),
    ),
    "switch again": (switch_again, ("'login'", "from 'on' to 'shadow'", "limiter.switch('shadow')")),
    "settled again": (settle_again, ("settled for 5", "again for 3", "settle() once")),
    "slot not looked at": (run_without_a_slot, ("'rendered-blindly' has refused a block, which ran", "if slot:")),
    "estimate not looked at": (run_without_an_estimate, ("'spent-blindly' has refused a block", "if reservation:")),
    "admission not looked at": (run_though_shed, ("has refused a block, which ran", "if admission:")),
    "quotation marks": (lambda: Agent('"redis://db"'), ("has a quotation mark", "leave the marks out")),
    "blank behind": (
        lambda: Agent("redis://:sesame@db "),
        ("redis://***@db ", "a blank at its end", "leave it out"),
    ),
    "blank before": (lambda: Agent(" redis://db"), ("' redis://db'", "a blank at its beginning", "leave it out")),
    "comment": (lambda: Agent("redis://db  # the limiter"), ("# the limiter", "a comment behind it", "leave it out")),
    "scheme of a storage": (
        lambda: Agent("redis+reconverge://:sesame@db/0"),
        ("'redis+reconverge'", "is called redis here", "write redis://***@db/0"),
    ),
    "storage of limits": (
        lambda: storage_from_string("redis+reconverge://:sesame@db/0"),
        ("'redis+reconverge'", "is called reconverge+redis here", "write reconverge+redis://***@db/0"),
    ),
    "storage of limits.aio": (
        lambda: AsyncReconvergeStorage("async+redis+reconverge://db/0"),
        ("is called reconverge+redis here", "write reconverge+redis://db/0"),
    ),
    "variable": (lambda: Agent("${REDIS_URL}"), ("'${REDIS_URL}'", "placeholder that nothing has replaced")),
    "template": (lambda: Agent("{{ redis_url }}"), ("placeholder that nothing has replaced", "pass its value")),
    "link of Docker": (lambda: Agent("tcp://redis:6379"), ("'tcp'", "write redis://redis:6379")),
    "socket": (lambda: Agent("unix:///run/redis.sock"), ("'unix'", "write redis+unix:///run/redis.sock")),
    "socket of Celery": (
        lambda: Agent("redis+socket://:sesame@/run/redis.sock"),
        ("'redis+socket'", "write redis+unix://***@/run/redis.sock"),
    ),
    "servers": (
        lambda: Agent("redis://one:6379,two:6379/0"),
        ("one:6379,two:6379", "names several servers", "redis+sentinel://HOST,HOST/SERVICE", "redis+cluster://"),
    ),
    "servers of a secret": (
        lambda: Agent("valkeys://ada:ses,ame@one,two"),
        ("names several servers", "valkeys+cluster://"),
    ),
    "usage without a customer": (
        lambda: Meter().add("", "login"),
        ("('', 'login') cannot be counted as usage", "name the customer and the limit"),
    ),
    "overshoot as text": (
        lambda: limit("9/minute", max_overshoot="0.1"),
        ("max_overshoot='0.1'", "must be a number of 0 or more", "0.1 allows 10 %"),
    ),
    "no reporter": (
        guard_without_reporter,
        ("its Meter has no UsageReporter", "with UsageReporter(meter, hub, namespace=...)"),
    ),
    "unstarted": (meter_without_reporter, ("UsageReporter was never started", "call reporter.start()")),
    "storage": (lambda: Agent(_any(MemoryStorage())), ("storage of the package limits", "Agent('redis://")),
    "table": (lambda: Agent(_any({"url": "redis://localhost"})), ("is a dict", "Agent(URL, name=value)")),
    "limit": (lambda: Agent("100/minute"), ("'100/minute'", "is a limit", "agent.limit('login', '100/minute')")),
    "host": (lambda: AGENT(host="db", port=7000), ("host='db'", "part of the hub's URL", "redis://localhost:6379/0")),
    "port": (lambda: AGENT("localhost", 6379), ("=6379", "stands without a name", "redis://localhost:6379/0")),
    "url": (lambda: AGENT(redis_url="redis://db"), ("redis_url='redis://db'", "is called hub here")),
    "limits": (lambda: AGENT("memory://", limits="5/minute"), ("limits='5/minute'", "agent.limit('login', ")),
    "book at a URL": (
        lambda: HubBook(_any("redis://ada:sesame@db"), "shop", Secrets(16 * "s")),
        ("store='redis://***@db'", "is a URL", "HubBook(open_hub(url, HubSettings(namespace)), namespace, secrets)"),
    ),
    "secrets of a book": (
        lambda: HubBook(_any(open_hub("redis://db", HubSettings("shop", 1.0))), "shop", _any(SESAME)),
        ("secrets='***'", "is no Secrets", "Secrets(text)"),
    ),
    "namespace of a book": (
        lambda: HubBook(_any(open_hub("redis://db", HubSettings("shop", 1.0))), "shops", Secrets(16 * "s")),
        ("namespace='shops'", "is not the namespace of the hub, 'shop'", "write this"),
    ),
    "namespace of a book of MQTT": (
        lambda: HubBook(_any(open_hub("mqtt://db", HubSettings("shop", 1.0))), "shops", Secrets(16 * "s")),
        ("namespace='shops'", "is not the namespace of the hub, 'shop'"),
    ),
    "lease": (lambda: AGENT("memory://", lease_ttl="30s"), ("lease_ttl='30s'", "must be", "seconds")),
    "overshoot": (lambda: AGENT("memory://", max_overshoot="10%"), ("max_overshoot='10%'", "0.1 allows 10 %")),
    "overshoot in per cent": (
        lambda: limit("5/minute", max_overshoot=10),
        ("max_overshoot=10", "a share of the limit", "0.1 for 10 %", "raise the limit"),
    ),
    "ask": (lambda: AGENT("memory://", in_doubt="ask:25"), ("in_doubt='ask:25'", "ask:25ms")),
}
PLAN: dict[str, Any] = {"plans": {"free": {"limits": {"api": "1/minute"}}}, "unknown": "free"}
STAMPED = {"namespace": "shop", "version": 1, "issued": 1_750_000_000, "expires": 1_750_003_600}
OBJECTS: dict[str, tuple[Callable[[], object], Words]] = {
    "limiter by hand": (
        lambda: _any(RateLimiter)("5/minute"),
        ("RateLimiter('5/minute')", "an agent makes its limiters", "agent.limit('login', '100/minute')"),
    ),
    "limiter by hand, with a name": (
        lambda: _any(SlotLimiter)(quota=5),
        ("SlotLimiter(quota=5)", "agent.concurrency('render', 20)"),
    ),
    "limit of a limiter": (
        lambda: setattr(limit("5/minute"), "limit", "9/minute"),
        ("'limit' of RateLimiter cannot be assigned", "write limiter.change('100/minute')"),
    ),
    "kind as a cost": (
        lambda: limit("9/minute", costs={"GET": 1, "POST": 5}).allow("ada", "POST"),
        ("cost 'POST' is of type str", "kind='POST'"),
    ),
    "limiter as a transport": (
        lambda: httpx.Client(transport=limit("9/s")).get("http://localhost"),
        ("'login' is no transport", "write LimitedTransport(limiter)"),
    ),
    "limiter as an adapter": (fetch_by_a_limiter, ("'login' is no adapter", "LimitedAdapter(limiter)")),
    "retries of a transport": (
        lambda: LimitedTransport(limit("9/s"), retries=3),  # type: ignore[call-arg]
        ("retries=3", "of the transport that sends", "httpx.HTTPTransport(retries=...)"),
    ),
    "retries of an adapter": (
        lambda: LimitedAdapter(limit("9/s"), retries=3),
        ("retries=3", "is called max_retries here"),
    ),
    "retries by position": (
        lambda: _any(LimitedAdapter)(limit("9/s"), 3),
        ("=3", "stands without a name", "LimitedAdapter(limiter, max_retries=3)"),
    ),
    "waiting key of a transport": (
        lambda: LimitedTransport(limit("9/s"), key=_any(waiting_key)),
        ("key=<function waiting_key", "is a coroutine function, which nothing awaits", "write a plain one"),
    ),
    "waiting cost of an adapter": (
        lambda: LimitedAdapter(limit("9/s"), cost=_any(waiting_key)),
        ("cost=<function waiting_key", "is a coroutine function, which nothing awaits"),
    ),
    "state of a health": (
        lambda: _any(Agent("memory://").health()) == "ready",
        ("compared with 'ready'", "health.state == 'ready'"),
    ),
    "period by name": (
        lambda: asyncio.run(totals(MemoryHub().usage, _any("month"))),
        ("period='month'", "is no Period", "period_at('month', time.time())"),
    ),
    "totals of a hub": (
        lambda: asyncio.run(totals(_any(MemoryHub()), period_at("month", 0))),
        ("is a hub", "write totals(hub.usage, ...)"),
    ),
    "totals of a URL": (
        lambda: asyncio.run(fleet_load(_any("redis://:sesame@db"))),
        ("is no usage ledger", "write fleet_load(hub.usage, ...)"),
    ),
    "moment as a datetime": (
        lambda: period_at("hour", _any(datetime(2026, 1, 1, tzinfo=UTC))),
        ("is no number of seconds since 1970", "write moment.timestamp()"),
    ),
    "moment in milliseconds": (
        lambda: period_at("month", 1_796_000_000_000),
        ("at_s=1796000000000", "past the year 9999", "not milliseconds"),
    ),
    "exporter of a hub": (lambda: Exporter(_any(MemoryHub()), print), ("is a hub", "write Exporter(hub.usage, ...)")),
    "exporter to a file": (
        lambda: Exporter(MemoryHub().usage, _any("usage.jsonl")),
        ("deliver='usage.jsonl'", "is no function", "delivers them"),
    ),
    "exporter of one period": (
        lambda: Exporter(MemoryHub().usage, print, period="2026-11"),
        ("period='2026-11'", "is one period", "write one of minute, hour, day, month"),
    ),
    "namespace by position": (
        lambda: _any(UsageReporter)(Meter(), "memory://", "shop"),
        ("namespace='shop'", "write UsageReporter(namespace=...)"),
    ),
    "lifetime of a link": (
        lambda: customer_token("a-secret-of-links", "ada", 7 * 86_400),
        ("expires=604800", "1970-01-08 00:00 UTC, which is over", "datetime.now(UTC) + timedelta(days=7)"),
    ),
    "class of a collector": (
        lambda: CollectorRegistry().register(_any(AgentCollector)),
        ("AgentCollector", "is a class", "register an object: AgentCollector(agent)"),
    ),
    "option of TLS": (
        lambda: Agent("redis://localhost:6379/0?ssl_ca_certs=/etc/ca.crt"),
        ("ssl_ca_certs", "options of TLS belong to rediss://"),
    ),
    "slot of a rate": (lambda: _any(limit("5/minute")).slot("ada"), ("'login'", "no slots", "agent.concurrency")),
    "rate of slots": (lambda: _any(slots()).allow("ada"), ("'allow'", "in progress", "with limiter.slot(key)")),
    "called dependency": (called_dependency, ("leave the last () out",)),
    "method of aiolimiter": (lambda: _any(limit("5/minute")).acquire("ada"), ("'acquire'", "await limiter.wait(key)")),
    "method of limits": (
        lambda: _any(limit("5/minute")).get_window_stats("ada"),
        ("'get_window_stats'", "limiter.test(key).remaining"),
    ),
    "method of a limiter, of contracts": (
        lambda: _any(Contracts(Agent("memory://"), PLAN)).allow("ada"),
        ("no attribute 'allow'", "decide about customers", "write contracts.hit(customer)"),
    ),
    "method of pyrate-limiter, of slots": (
        lambda: _any(slots()).try_acquire("ada"),
        ("'try_acquire'", "in progress", "with limiter.slot(key)"),
    ),
    "block of a limiter": (
        lambda: _any(limit("5/minute")).__aenter__(),
        ("'login' cannot be used as a block", "if limiter.allow(key)"),
    ),
    "Limits of Flask as a decorator": (
        lambda: _any(FLASK(where, agent="memory://"))("5/minute"),
        ("limits is no decorator", "@limits.limit('5/minute')"),
    ),
    "key that is an argument": (
        lambda: limited("5/minute", agent=Agent("memory://"), key="customer")(task),
        ("key='customer'", "counts all calls together", "key=lambda self, customer: customer"),
    ),
    "limiter as a decorator": (
        lambda: _any(limit("5/minute"))(where),
        ("'login'", "no function, decorator or dependency", "@limited(limiter)"),
    ),
    "limiter as a dependency": (
        lambda: FastAPI().get("/", dependencies=[Depends(_any(limit("5/minute")))])(where),
        ("'login'", "Depends(limits(limiter)) in FastAPI"),
    ),
    "cap": (capped_in_vain, ("'apis' caps nothing", "the plans have api", "did you mean 'api'?")),
    "key of a transport": (
        lambda: LimitedTransport(limit("9/s"), key=_any("api.github.com")),
        ("key='api.github.com'", "a function of the request", "key=lambda request"),
    ),
    "cost of a transport": (
        lambda: AsyncLimitedTransport(limit("9/s"), cost=_any(3)),
        ("cost=3", "a function of the request", "cost=lambda request"),
    ),
    "key of an adapter": (lambda: LimitedAdapter(limit("9/s"), key=_any("host")), ("key='host'", "key=lambda request")),
    "class of a transport": (
        lambda: httpx.Client(transport=_any(LimitedTransport)).get("http://localhost/"),
        ("LimitedTransport", "is a class", "LimitedTransport(limiter)"),
    ),
    "class of an adapter": (fetch_by_a_class, ("LimitedAdapter", "is a class", "LimitedAdapter(limiter)")),
    "task of Celery": (
        lambda: limited("5/minute", agent=Agent("memory://"))(Celery("shop", broker="memory://").task(where)),
        ("is what celery calls already, without this limit", "next to the function, below all other decorators"),
    ),
    "job of a queue": (
        lambda: limited("5/minute", agent=Agent("memory://"))(job),
        ("is what its queue calls already, without this limit", "below all other decorators"),
    ),
    "key of a trace": (lambda: by_header("X-Request-ID"), ("'X-Request-ID'", "another value in each request")),
    "key of a proxy": (
        lambda: by_header("X-Forwarded-For"),
        ("'X-Forwarded-For'", "a client could choose its key", "write by_ip", "trusted_proxies=["),
    ),
    "key with an underscore": (
        lambda: by_header("x_api_key"),
        ("by_header('x_api_key') has an underscore", "write by_header('x-api-key')"),
    ),
    "key of other arguments": (
        lambda: limited("5/minute", agent=Agent("memory://"), key=lambda customer: customer)(task),
        ("key=", "takes others", "key=lambda self, customer: ..."),
    ),
    "cost of other arguments": (
        lambda: limited("5/minute", agent=Agent("memory://"), cost=lambda: 2)(task),
        ("cost=", "takes others", "cost=lambda self, customer: ..."),
    ),
    "block of a decorator": (
        lambda: _any(FLASK(where, agent="memory://").limit("5/minute")).__enter__(),
        ("decorates views, and has no block", "ask_blocking(key)"),
    ),
    "reporter of a hub": (
        lambda: UsageReporter(_any("redis://localhost"), _any(Meter())),
        ("meter='redis://localhost'", "is no Meter", "write UsageReporter(meter, hub)"),
    ),
    "class of a clock": (
        lambda: Agent("memory://", clock=_any(ManualClock)),
        ("clock=<class", "is a class", "write ManualClock()"),
    ),
    "time as a text": (lambda: ManualClock().advance(_any("60s")), ("seconds='60s'", "write advance(60)")),
    "settings in place of a file": (
        lambda: load(_any({"limits": {"login": "5/minute"}})),
        ("is no path of a file", "load(limits={...})"),
    ),
    "class under limited": (
        lambda: limited("5/minute", agent=Agent("memory://"))(OnRefused),
        ("OnRefused", "is a class", "limit its __init__, or its methods"),
    ),
    "static method under limited": (
        lambda: limited("5/minute", agent=Agent("memory://"))(staticmethod(where)),
        ("is no function but a staticmethod", "put @limited(...) next to the function"),
    ),
    "property under limited": (
        lambda: limited("5/minute", agent=Agent("memory://"))(_any(property(_any(where)))),
        ("is no function but a property", "below all other decorators"),
    ),
    "class of a request before its key": (
        lambda: Stack(AdaptiveConcurrency()).enter("POST", "ada"),
        ("traffic class='ada'", "the key is 'POST'", "write enter(key, traffic_class)"),
    ),
    "messages of FastAPI": (
        lambda: aiter(FASTAPI("memory://").messages("5/minute")),
        ("belong to a websocket", "messages(socket)"),
    ),
    "messages of FastAPI as a dependency": (
        lambda: FastAPI().get("/", dependencies=[Depends(FASTAPI("memory://").messages("5/minute"))])(where),
        ("messages='messages'", "is no dependency", "async for text in messages(socket)"),
    ),
    "called middleware of aiohttp": (
        lambda: AIOHTTP("5/minute", agent="memory://").middleware(),
        ("is the middleware itself", "leave the last () out", "middlewares=[limits.middleware]"),
    ),
    "interceptor that is no list": (
        lambda: [*_any(RateLimitInterceptor("5/minute", agent="memory://"))],
        ("interceptors=", "is not a list", "write interceptors=[interceptor]"),
    ),
    "messages of aiohttp": (
        lambda: aiter(AIOHTTP(agent="memory://").messages("5/minute")),
        ("belong to a websocket", "messages(request, socket)"),
    ),
    "sync transport": (
        lambda: httpx.AsyncClient(transport=_any(LimitedTransport(limit("9/s")))).__aenter__().send(None),
        ("'LimitedTransport'", "is for httpx.Client", "AsyncLimitedTransport"),
    ),
    "async transport": (
        lambda: httpx.Client(transport=_any(AsyncLimitedTransport(limit("9/s")))).get("http://localhost"),
        ("'AsyncLimitedTransport'", "is for httpx.AsyncClient", "write LimitedTransport"),
    ),
    "transport of a session": (
        lambda: _any(LimitedTransport(limit("9/s"))).send(None),
        ("'send'", "it is for httpx", "write LimitedAdapter"),
    ),
    "async transport in a sync one": (
        lambda: LimitedTransport(limit("9/s"), _any(httpx.AsyncHTTPTransport())),
        ("inner=", "no transport with handle_request()", "write httpx.HTTPTransport()"),
    ),
    "sync transport in an async one": (
        lambda: AsyncLimitedTransport(limit("9/s"), _any(httpx.HTTPTransport())),
        ("inner=", "no transport with handle_async_request()", "write httpx.AsyncHTTPTransport()"),
    ),
    "adapter of a client": (
        lambda: httpx.Client(transport=_any(LimitedAdapter(limit("9/s")))).get("http://localhost"),
        ("'LimitedAdapter'", "it is for requests", "write LimitedTransport"),
    ),
    "connector": (
        lambda: _any(AsyncLimitedTransport(limit("9/s")))._loop,
        ("'AsyncLimitedTransport'", "it is for httpx", "await limiter.wait(key)"),
    ),
    "class of an interceptor": (
        lambda: _any(RateLimitInterceptor.intercept_service)(lambda _details: None, object()),
        ("interceptors=<class", "is a class", "RateLimitInterceptor('100/minute')"),
    ),
    "coroutine function of a class": (
        lambda: TrafficClasses(classify=_any(waiting_key)),
        ("classify=<function", "is a coroutine function", "write a plain one"),
    ),
    "class of traffic": (
        lambda: TrafficClasses().rank("vip"),
        ("traffic class='vip'", "is none of critical, POST, GET, test", "add it to TrafficClasses"),
    ),
    "size of pages": (
        lambda: follow_hub(Contracts(Agent("memory://"), PLAN), page_bytes=_any("32M")),
        ("page_bytes='32M'", "whole number of bytes, such as 33554432"),
    ),
    "key of an object": (
        lambda: limit("9/s").allow(object()),
        ("not object", "such as its id or its address", "differs for each object"),
    ),
    "key of a number": (lambda: limit("9/s").allow(_any(5)), ("not int", "turn 5 into a string")),
    "function in a pickle": (
        lambda: pickle.dumps(limit("9/s").allow),
        ("limiter.allow", "pass the limiter", "RateLimiter.allow, limiter, key"),
    ),
    "setting in a URL": (
        lambda: Agent("redis://localhost/0?namespace=shop"),
        ("not known: namespace", "is a setting of the agent", "write Agent('redis://...', namespace=...)"),
    ),
    "customer by address": (
        lambda: WSGI(
            flask.Flask("shop"), agent=(agent := Agent("memory://")), rules=[RULE(limits=Contracts(agent, PLAN))]
        ),
        ("decides by contracts and has no key function", "add key_func=, which returns the customer"),
    ),
    "policy of a cache": (
        lambda: ReconvergeCache("memory://", {"OPTIONS": {"policy": "strict"}}),
        ("OPTIONS['policy']='strict'", "has no effect", "leave it out"),
    ),
    "namespace beside options": (
        lambda: ReconvergeCache("memory://", {"NAMESPACE": "shop"}),
        ("NAMESPACE='shop'", "belongs in OPTIONS", "{'namespace': ...}"),
    ),
    "locations": (
        lambda: ReconvergeCache(_any(["redis://a", "redis://b"]), {}),
        ("LOCATION=['redis://a'", "is not one URL", "'redis://localhost:6379/0'"),
    ),
    "settings of a text": (
        lambda: settings_checked({**STAMPED, "limits": {"login": "5/minute"}}),
        ("limits.login", "not '5/minute'", "write {limit = '5/minute'}"),
    ),
    "switch of YAML": (
        lambda: settings_checked({**STAMPED, "switch": False}),
        ("switch: must be 'on', 'shadow', 'off', not False", "write it in quotes: YAML reads on, off"),
    ),
    "no plans yet": (
        lambda: with_customer(Document({}), "ada", "gold", now_s=0.0),
        ("'gold'", "none yet", "publish contracts with plans first"),
    ),
    "layer": (lambda: Stack(_any(AdaptiveConcurrency)), ("is a class", "Stack(AdaptiveConcurrency(...))")),
    "cache": (lambda: ReconvergeCache("", {}), ("LOCATION=''", "'LOCATION': 'redis://localhost:6379/0'")),
    "server": (lambda: LimitedTransport(limit("9/s"), server=_any("github")), ("server='github'", "as GITHUB")),
    "contracts swapped": (
        lambda: Contracts(_any({"plans": {}}), _any(Agent("memory://"))),
        ("agent={'plans'", "is no Agent", "Contracts(agent, document)"),
    ),
    "contracts path": (
        lambda: Contracts(Agent("memory://"), _any("plans.yaml")),
        ("document='plans.yaml'", "must be a dict", "yaml.safe_load"),
    ),
    "collector": (lambda: AgentCollector(_any(limit("9/s"))), ("RateLimiter('login'", "is no Agent", "pass the agent")),
    "instrument": (lambda: instrument(_any(limit("9/s"))), ("RateLimiter('login'", "is no Agent", "pass the agent")),
    "usage collector": (lambda: UsageCollector(_any(Meter())), ("is no UsageReporter", "pass the reporter")),
    "clock": (
        lambda: ManualClock(_any(datetime(2026, 1, 1, tzinfo=UTC))),
        ("seconds since 1970", "moment.timestamp()"),
    ),
    "key of a web request": (
        lambda: limited("5/minute", agent=Agent("memory://"), key=by_ip),
        ("key='by_ip'", "takes a web request", "key=lambda request"),
    ),
    "key of a header": (
        lambda: limited("5/minute", agent=Agent("memory://"), key=by_header("x-key")),
        ("key=", "takes a web request", "key=lambda request"),
    ),
    "aiohttp middleware": (
        lambda: AIOHTTP("5/minute", agent="memory://")(None, None),
        ("middlewares=", "is no middleware", "limits.install(app)"),
    ),
}
FILES: dict[str, tuple[str, str, Words]] = {
    "unit": ("a.toml", "[limits]\nlogin = '5/minuet'\n", ("line 2", "login", "did you mean 'minute'?")),
    "table": ("a.toml", "[limit]\nlogin = '5/minute'\n", ("line 1", "limit", "did you mean 'limits'?")),
    "hub": ("a.toml", "hub = 'localhost'\n", ("line 1", "hub", "'localhost'", "redis://localhost:6379/0")),
    "number": ("a.yaml", "limits:\n  login: 10_000/minute\n", ("line 2", "10_000", "write 10000")),
    "suffix": ("a.json", '{"limits": {"login": "10k/minute"}}', ("login", "'k'", "as 10000")),
    "duration": ("a.toml", "sync_interval = '100ms'\n", ("line 1", "sync_interval", "not '100ms'", "write 0.1")),
    "parent": ("a.toml", "[limits.a]\nlimit = '5/s'\nparent = 'b'\n", ("line 3", "'b'", "declared above; add one")),
    "marks": ("a.toml", "[limits]\nlogin = 5/minute\n", ("line 2", "quotation marks, as in login = '5/minute'")),
    "tab": ("a.yaml", "limits:\n\tlogin: 5/minute\n", ("line 2", "indent with spaces, not with a tab")),
    "ending": ("a.ini", "[limits]\nlogin = 5/minute\n", ("a.ini", ".toml")),
}
PLANS = "plans:\n  free:\n    limits:\n      {}\nunknown: free\n"
CONTRACTS: dict[str, tuple[str, Words]] = {
    "unit": (PLANS.format("requests: 10/mounth"), ("mounth", "did you mean 'month'?")),
    "suffix": (PLANS.format("requests: 10k/minute"), ("'k'", "as 10000")),
    "number": (PLANS.format("requests: 100"), ("requests", "100/minute")),
    "no plans": ("customers:\n  ada: free\n", ("plans: is missing", "plans: {free: {limits: {calls: 100/minute}}}")),
    "plan": ("plans:\n  free: {limits: {a: 5/minute}}\nunknown: fre\n", ("'fre'", "free")),
    "list": ("plans:\n  - free\nunknown: free\n", ("plans", "table")),
    "word": (PLANS.format("requests: 5/minute").replace("limits", "limit"), ("limit", "did you mean 'limits'?")),
}
COMMANDS: dict[str, tuple[tuple[str, ...], Words]] = {
    "view": (("top", "--by", "user", "--hub", "redis://localhost"), ("--by='user'", "limit, node, key")),
    "no file": (
        ("contracts", "validate", "nowhere.yaml"),
        ("nowhere.yaml", "there is no such file", "give the path"),
    ),
    "memory": (("top", "--hub", "memory://"), ("memory://", "give the URL")),
    "limit": (
        ("inspect", "ada", "--limit", "login", "--hub", "redis://localhost"),
        ("--limit='login'", "as in login=5/minute"),
    ),
    "suffix": (("tune", "--nodes", "4", "--limit", "10k/minute"), ("'k'", "as 10000")),
    "nothing": (("simulate", "--nodes", "4", "--limit", "0/minute"), ("refuses everything", "at least 1")),
    "policy": (("simulate", "--nodes", "4", "--limit", "9/s", "--policy", "strickt"), ("did you mean 'strict'?",)),
    "switch": (("switch", "disabled", "--hub", "redis://localhost"), ("disabled", "off")),
    "option first": (("--hub", "redis://localhost", "status"), ("No such option", "options stand after the command")),
    "period of an export": (
        ("usage", "export", "--hub", "redis://localhost", "--period", "2026-11"),
        ("'2026-11'", "is one period", "write one of minute, hour, day, month"),
    ),
    "period": (
        ("usage", "show", "--hub", "redis://localhost", "--period", "last month"),
        ("'last month'", "as 2026-11"),
    ),
    "hub without its option": (
        ("doctor", "redis://:sesame@db/0"),
        ("redis://***@db/0 stands without its option", "write --hub"),
    ),
    "limit without its option": (
        ("switch", "shadow", "login", "--hub", "redis://localhost"),
        ("login stands without its option", "write --limit login"),
    ),
    "limit of a key without its option": (
        ("reset", "ada", "login=5/s", "--hub", "redis://localhost"),
        ("login=5/s stands without its option", "write --limit"),
    ),
    "scheme": (("doctor", "--hub", "http://localhost:6379"), ("'http'", "redis://")),
    "nodes": (
        ("simulate", "--nodes", "0", "--limit", "5/minute"),
        ("'--nodes'", "or equal to 1, not '0'"),
    ),
}
FRAMEWORKS: dict[str, tuple[Callable[[], object], Words]] = {
    "fastapi key as hub": (lambda: FASTAPI(by_ip), ("is a function, not a hub", "key_func=")),
    "fastapi client": (lambda: FASTAPI(redis.Redis()), ("client of Redis", "redis://localhost:6379/0")),
    "fastapi limit as hub": (lambda: FASTAPI("5/minute"), ("'5/minute'", "is a limit")),
    "fastapi key second": (lambda: FASTAPI("memory://", by_user), ("by_user", "key_func=by_user")),
    "fastapi key by position": (lambda: FASTAPI("memory://")("5/minute", by_user), ("by_user", "key_func=by_user")),
    "fastapi algorithm": (
        lambda: FASTAPI("memory://")("5/minute", algorithm="gcra"),
        ("algorithm='gcra'", "Limit.parse('5/minute', algorithm='gcra')"),
    ),
    "fastapi burst": (lambda: FASTAPI("memory://")("5/minute", burst=9), ("burst=9", "'5/minute burst 9'")),
    "fastapi window": (lambda: FASTAPI("memory://")("5/minute", window=60), ("window=60", "as in '5/minute'")),
    "rule algorithm": (
        lambda: RULE(limits="5/minute", algorithm="gcra"),
        ("'gcra'", "Limit.parse('5/minute', algorithm=...)"),
    ),
    "fastapi window by position": (
        lambda: FASTAPI("memory://")(5, 60),
        ("=60", "a window is a part of the limit", "write '5/minute'"),
    ),
    "fastapi times": (lambda: FASTAPI("memory://")(times=5, seconds=60), ("limits", "'5/minute'")),
    "fastapi seconds": (lambda: FASTAPI("memory://")("5/minute", seconds=60), ("seconds=60", "'5/minute'")),
    "fastapi header": (lambda: FASTAPI("memory://", key_func=user), ("'x_user'", "key_func=Depends(that_function)")),
    "fastapi depends": (
        lambda: FASTAPI("memory://")("5/minute", key_func=signed_in),
        ("signed_in", "'name'", "key_func=Depends(that_function)"),
    ),
    "fastapi tier": (lambda: FASTAPI("memory://")(tier), ("limits=<function tier", "'plan'", "take the request alone")),
    "fastapi cost": (lambda: FASTAPI("memory://")("5/minute", cost=user), ("cost=", "'x_user'", "the request alone")),
    "asgi header": (lambda: ASGI(asgi_app, "5/minute", agent="memory://", key_func=user), ("'x_user'", "FastAPI's")),
    "asgi limit first": (lambda: ASGI("5/minute", asgi_app), ("app='5/minute'", "give the application first")),
    "wsgi limit first": (lambda: WSGI("5/minute", flask.Flask("x")), ("app='5/minute'", "give the application first")),
    "asgi limit": (lambda: ASGI(asgi_app, limit="5/minute"), ("limit='5/minute'", "did you mean 'limits'?")),
    "asgi name that is far from any": (
        lambda: ASGI(asgi_app, "5/minute", wxyz=1),
        ("there is no such setting; known:", "close_code", "messages", "rules", "trusted_proxies"),
    ),
    "fastapi message of a dict": (
        lambda: FASTAPI("memory://")("5/minute", error_message={"code": "slow-down"}),
        ("error_message={'code': 'slow-down'}", "is no text", "on_breach="),
    ),
    "django message of bytes": (
        lambda: _django(RULES=[{"LIMITS": "5/minute", "ERROR_MESSAGE": b"slow down"}], HUB="memory://"),
        ("b'slow down'", "is no text", "on_breach="),
    ),
    "ban of contracts": (
        lambda: RULE(limits=Contracts(Agent("memory://"), PLAN), block_after="5/minute", block_for=600),
        ("block_for=600", "contracts ban no customer", "agent.limit(..., block_after=..., block_for=...)"),
    ),
    "wsgi in Django": (
        lambda: WSGI(lambda request: request, "5/minute"),
        ("takes one argument", "'reconverge.integrations.django.RateLimitMiddleware'"),
    ),
    "asgi in Django": (
        lambda: ASGI(signed_in, "5/minute"),
        ("takes one argument", "'reconverge.integrations.django.RateLimitMiddleware'"),
    ),
    "asgi key by position": (lambda: ASGI(asgi_app, "5/minute", by_ip), ("by_ip", "key_func=by_user")),
    "wsgi key by position": (lambda: WSGI(flask.Flask("x"), "5/minute", by_ip), ("by_ip", "key_func=by_user")),
    "flask twice": (lambda: FLASK(flask.Flask("x"), key_func=where), ("key_func=", "write Limits(key_func, app=app)")),
    "flask app first": (lambda: FLASK(flask.Flask("x"), where), ("where", "write Limits(key_func, app=app)")),
    "flask app second": (lambda: FLASK(where, flask.Flask("x")), ("<Flask 'x'>", "write Limits(key_func, app=app)")),
    "flask key by position": (lambda: FLASK(where, agent="memory://").limit("5/minute", where), ("where", "key_func=")),
    "flask algorithm": (
        lambda: FLASK(where, agent="memory://").limit("5/minute", align="calendar"),
        ("align='calendar'", "Limit.parse('5/minute', align='calendar')"),
    ),
    "flask key": (lambda: FLASK(where, agent="memory://").limit("5/minute", key="ip"), ("key='ip'", "key_func")),
    "flask twice for all": (
        limit_twice,
        ("<Flask 'x'> has two Limits for all requests", "each of which charges them", "make one"),
    ),
    "flask redis": (lambda: FLASK(where, redis=redis.Redis()), ("redis=", "is called agent here")),
    "flask default": (
        lambda: FLASK(where, agent="memory://", default_limits=100),
        ("default_limits=100", "'100/minute'"),
    ),
    "flask waiting key": (
        lambda: FLASK(waiting_key, agent="memory://").limit("5/minute")(where),
        ("key_func='waiting_key'", "is a coroutine function, which WSGI cannot await", "use a plain function"),
    ),
    "flask waiting limits": (
        lambda: FLASK(where, agent="memory://").limit(waiting_key)(where),
        ("limits='waiting_key'", "is a coroutine function, which WSGI cannot await", "use a plain function"),
    ),
    "grpc waiting exemption": (
        lambda: RateLimitInterceptor(rules=[Rule(limits="5/minute", exempt_when=waiting_key)], agent="memory://"),
        ("exempt_when='waiting_key'", "which a server on threads cannot await", "use a plain function"),
    ),
    "flask function of a command": (
        command_with_a_limit_of_views,
        ("where", "was called outside of a request", "@limited('5/minute', agent=agent)"),
    ),
    "flask command": (
        lambda: FLASK(where, agent="memory://").limit("5/minute")(flask.Flask("x").cli.command("sync")(where)),
        ("is what click calls", "@limited('5/minute', agent=agent)"),
    ),
    "fastapi class as a middleware": (
        lambda: FASTAPI(FastAPI(), agent="memory://"),
        ("agent='memory://'", "is given twice", "write limits.install(app)"),
    ),
    "fastapi proxies of all addresses": (
        lambda: FASTAPI("memory://", trusted_proxies=["::ffff:0:0/96"]),
        ("trusts every address", "name the networks of your proxies"),
    ),
    "flask parentheses of exempt": (
        lambda: FLASK(where, agent="memory://").exempt(),
        ("view", "write @limits.exempt without parentheses"),
    ),
    "django parentheses of exempt": (
        EXEMPT,
        ("view", "write @exempt without parentheses"),
    ),
    "fastapi header of no proxy": (
        lambda: FASTAPI("memory://", forwarded_header="X-Real-IP"),
        ("forwarded_header='X-Real-IP'", "no proxy is trusted to write it", "name yours: trusted_proxies="),
    ),
    "grpc service": (
        lambda: RateLimitInterceptor(rules=[Rule(limits="5/minute", paths=["/shop.Orders"])], agent="memory://"),
        ("paths='/shop.Orders'", "is no full method", "write /shop.Orders/*"),
    ),
    "aiohttp hub as limit": (lambda: AIOHTTP("redis://:sesame@db"), ("redis://...", "is a URL", "agent=")),
    "aiohttp class": (lambda: AIOHTTP("5/minute").install(aiohttp.web.Application), ("write limits.install(app)",)),
    "aiohttp key by position": (lambda: AIOHTTP().limit("5/minute", by_header("x")), ("by_header", "key_func=")),
    "django rate": (lambda: DJANGO("5/minute", rate="5/m"), ("rate='5/m'", "first argument")),
    "django key": (lambda: DJANGO("5/minute", key="ip", block=True), ("key='ip'", "key_func")),
    "django key by position": (lambda: DJANGO("5/minute", by_ip), ("by_ip", "key_func=")),
    "django setting": (lambda: _django(LIMIT="5/minute"), ("LIMIT", "did you mean 'LIMITS'?")),
    "django throttle": (DJANGO_MIDDLEWARE, ("belongs into MIDDLEWARE", "write a throttle class")),
    "django client": (lambda: _django(LIMITS="5/minute", HUB=redis.Redis()), ("HUB", "URL")),
}


def _any(value: object) -> Any:
    return value


def _django(**setting: Any) -> None:
    with override_settings(RECONVERGE=setting, MIDDLEWARE=django_project.MIDDLEWARE):
        WSGIHandler()


def told(do: Callable[[], object], caplog: pytest.LogCaptureFixture) -> str:
    """Returns the answer to an input: the message of an error, or the log."""
    with caplog.at_level(logging.WARNING, "reconverge"):
        try:
            do()
        except Exception as error:  # noqa: BLE001  # of several classes, and of Django's
            return f"{type(error).__name__}: {error}"
    return caplog.text


def lacking(message: str, words: Words) -> list[str]:
    """Returns the words that a message has not; with the message if any is missing."""
    missing = [word for word in words if word not in message]
    return [*missing, message] if missing else []


@pytest.mark.parametrize("what", FUNCTIONS)
def test_a_wrong_limit_is_corrected(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """Where it is declared; numbers that people write otherwise are written in digits."""
    do, words = FUNCTIONS[what]

    assert [] == lacking(told(do, caplog), words)


@pytest.mark.parametrize("what", HUBS)
def test_a_wrong_hub_or_setting_of_an_agent_is_corrected(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """A client of Redis by the URL that it connects to, without its password."""
    do, words = HUBS[what]
    message = told(do, caplog)

    assert [] == lacking(message, words)
    assert SESAME not in message


@pytest.mark.parametrize("what", OBJECTS)
def test_a_wrong_object_is_corrected(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """An error of this library names the right one, before one of Python's does."""
    do, words = OBJECTS[what]

    assert [] == lacking(told(do, caplog), words)


@pytest.mark.parametrize("what", FILES)
def test_a_wrong_file_of_settings_is_corrected(what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With its line."""
    name, text, words = FILES[what]
    (tmp_path / name).write_text(text)

    assert [] == lacking(told(lambda: load(tmp_path / name), caplog), words)


def test_a_file_of_settings_in_another_encoding_is_corrected(tmp_path: Path) -> None:
    """Windows writes UTF-16."""
    (tmp_path / "a.toml").write_text("hub = 'memory://'", "utf-16")
    with pytest.raises(ValueError, match=r"cannot be read: .*; save it as UTF-8"):
        load(tmp_path / "a.toml")


def test_a_directory_in_place_of_a_file_of_settings_is_named(tmp_path: Path) -> None:
    """It has no ending either."""
    with pytest.raises(ValueError, match="is a directory; give the path of a file in it"):
        load(tmp_path)


@pytest.mark.parametrize("what", CONTRACTS)
def test_a_wrong_file_of_contracts_is_corrected(what: str, tmp_path: Path) -> None:
    """By the command that validates them."""
    text, words = CONTRACTS[what]
    (tmp_path / "plans.yaml").write_text(text)
    done = said_by("contracts", "validate", tmp_path / "plans.yaml")

    assert 0 != done.status
    assert [] == lacking(done.all, words)


@pytest.mark.parametrize("what", COMMANDS)
def test_a_wrong_command_is_corrected(what: str) -> None:
    """With a status that a script notices."""
    command, words = COMMANDS[what]
    done = said_by(*command)

    assert 0 != done.status
    assert [] == lacking(done.all, words)


@pytest.mark.parametrize("what", FRAMEWORKS)
def test_a_wrong_declaration_in_a_web_application_is_corrected(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """Where the application is made, and not with the first request."""
    do, words = FRAMEWORKS[what]
    message = told(do, caplog)

    assert [] == lacking(message, words)
    assert SESAME not in message
