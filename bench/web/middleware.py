"""What a limit costs a request, when an application that does nothing is called directly, beside nothing at all.

No server and no event loop: the coroutine of a request is driven by hand, as nothing in it waits. So what is measured
is the Python of the limit alone, with warm caches; under a server each of these costs about two and a half times as
much. The floors are an application with two constant response fields, and for FastAPI a dependency that does nothing.
Each case is measured by turns with the bare application, and its cost is the difference.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final, TypeAlias

from bench.child import Missing
from bench.decisions.peers import peer
from bench.decisions.timing import no_collector
from bench.report.found import Row, Spread
from reconverge import Agent
from reconverge.integrations import asgi, wsgi
from reconverge.integrations.web.request.keys import by_header, by_ip
from reconverge.integrations.web.rules import Rule

PART: Final = "middleware"
UNIT: Final = "µs"
BARE: Final = "the bare application"
ROUNDS: Final = 15
CALLS: Final = 4000
KEYS: Final = 1000
ROOMY: Final = "1000000000/hour"
TIGHT: Final = "1/hour"
HEADER: Final = "x-api-key"
NONE: Final = "none"
TRIVIAL: Final = "trivial"
OURS: Final = "ours"
FIELDS: Final = [
    (b"ratelimit-policy", b'"requests";q=1000000000;w=3600'),
    (b"ratelimit", b'"requests";r=999999999;t=3600'),
]
Request: TypeAlias = dict[str, Any]
Call: TypeAlias = Callable[[Any], object]


def measure(*, quick: bool, only: str = "") -> Iterator[Row]:
    """Each case by turns with the bare application of its framework."""
    rounds, calls = (3, 200) if quick else (ROUNDS, CALLS)
    for framework, cases in FRAMEWORKS.items():
        bare: tuple[Call, Callable[[int], Any]] | None = None
        for what, make in cases.items():
            if bare is not None and only not in f"{framework}: {what}":
                continue
            try:
                made = make()
            except Missing as error:
                yield Row(PART, framework, what, missing=str(error))
                if bare is None:
                    break
                continue
            if bare is None:
                bare = made
                continue
            costs = [cost_us(made, calls) - cost_us(bare, calls) for _ in range(rounds)]
            floor = Spread.of([cost_us(bare, calls) for _ in range(rounds)])
            spread = Spread.of(costs)
            ratio = Spread.of([(cost + floor.median) / floor.median for cost in costs])
            yield Row(PART, framework, what, BARE, ratio, spread, UNIT)


def cost_us(made: tuple[Call, Callable[[int], Any]], calls: int) -> float:
    """The CPU time of one call."""
    call, request_of = made
    requests = [request_of(number) for number in range(calls)]
    with no_collector():
        begun_ns = time.process_time_ns()
        for request in requests:
            call(request)
        return (time.process_time_ns() - begun_ns) / calls / 1000


# -------------------------------------------------------------------- ASGI


async def _receive() -> Request:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _send(_message: Request) -> None:
    return None


async def nothing(_scope: Any, _receive: Any, send: Any) -> None:
    """The bare application: two bytes of text."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def _two_fields(_scope: Any, _receive: Any, send: Any) -> None:
    headers = [(b"content-type", b"text/plain"), *FIELDS]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


def scope_of(number: int) -> Request:
    """As a server makes it for a browser-like client, with a header field of each kind that matters here."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 40000 + number % 1000),
        "scheme": "http",
        "root_path": "",
        "method": "GET",
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "headers": [
            (b"host", b"localhost:8000"),
            (b"user-agent", b"bench/1.0"),
            (b"accept", b"*/*"),
            (b"x-api-key", f"customer-{number % KEYS:04}".encode()),
        ],
        "state": {},
    }


def driven(app: Any) -> tuple[Call, Callable[[int], Any]]:
    """How to call an ASGI application, and how to make its scopes."""

    def call(scope: Any) -> None:
        coroutine = app(scope, _receive, _send)
        try:
            coroutine.send(None)
        except StopIteration:
            return
        raise AssertionError("the application has waited")

    return call, scope_of


def _asgi(quota: str, app: Any = nothing, **settings: Any) -> tuple[Call, Callable[[int], Any]]:
    settings.setdefault("key_func", by_header(HEADER))
    made = driven(asgi.RateLimitMiddleware(app, quota, agent=Agent("memory://"), **settings))
    for number in range(KEYS):  # each key is known, and has used up a quota of one
        made[0](scope_of(number))
    return made


# -------------------------------------------------------------------- FastAPI


def _fastapi(dependency: str, quota: str = ROOMY) -> tuple[Call, Callable[[int], Any]]:
    """A route with that dependency: `OURS`, one that does nothing (`TRIVIAL`), or none (`NONE`)."""
    fastapi = peer("fastapi")
    app = fastapi.FastAPI()
    dependencies = []
    if dependency == OURS:
        module = import_module("reconverge.integrations.fastapi")
        limits = module.Limits(Agent("memory://"), key_func=by_header(HEADER))
        limits.install(app)
        dependencies = [fastapi.Depends(limits(quota))]
    elif dependency == TRIVIAL:

        async def trivial() -> None:
            return None

        dependencies = [fastapi.Depends(trivial)]

    async def route() -> str:
        return "ok"

    app.get("/", dependencies=dependencies)(route)
    made = driven(app)
    for number in range(KEYS):
        made[0](scope_of(number))
    return made


# -------------------------------------------------------------------- WSGI and Flask


def _environment(number: int) -> Request:
    return {
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/",
        "QUERY_STRING": "",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "8000",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": "localhost:8000",
        "HTTP_USER_AGENT": "bench/1.0",
        "HTTP_ACCEPT": "*/*",
        "HTTP_X_API_KEY": f"customer-{number % KEYS:04}",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }


def _start_response(_status: str, _headers: Any, _exc_info: Any = None) -> None:
    return None


def _nothing_wsgi(_environment: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"ok"]


def _called(app: Any) -> tuple[Call, Callable[[int], Any]]:
    def call(environment: Any) -> None:
        for _ in app(environment, _start_response):
            pass

    return call, _environment


def _wsgi(quota: str, **settings: Any) -> tuple[Call, Callable[[int], Any]]:
    settings.setdefault("key_func", by_header(HEADER))
    made = _called(wsgi.RateLimitMiddleware(_nothing_wsgi, quota, agent=Agent("memory://"), **settings))
    for number in range(KEYS):
        made[0](_environment(number))
    return made


def _flask(limiter: str, quota: str = ROOMY) -> tuple[Call, Callable[[int], Any]]:
    flask = peer("flask")
    app = flask.Flask("bench")

    def key() -> str:
        return str(flask.request.headers[HEADER])

    def route() -> str:
        return "ok"

    if limiter == "ours":
        module = import_module("reconverge.integrations.flask")
        limits = module.Limits(by_header(HEADER), app=app, agent=Agent("memory://"))
        route = limits.limit(quota)(route)
    elif limiter == "flask-limiter":
        limits = peer("flask_limiter").Limiter(key, app=app, storage_uri="memory://", headers_enabled=True)
        route = limits.limit(quota)(route)
    app.get("/")(route)
    made = _called(app.wsgi_app)
    for number in range(KEYS):
        made[0](_environment(number))
    return made


FRAMEWORKS: Final[dict[str, dict[str, Callable[[], tuple[Call, Callable[[int], Any]]]]]] = {
    "ASGI": {
        BARE: lambda: driven(nothing),
        "two constant fields": lambda: driven(_two_fields),
        "key from a header": lambda: _asgi(ROOMY),
        "key from the client's address": lambda: _asgi(ROOMY, key_func=by_ip),
        "without response fields": lambda: _asgi(ROOMY, headers_enabled=False),
        "refused": lambda: _asgi(TIGHT),
        "two limits": lambda: _asgi(f"{ROOMY}; 2000000000/day"),
        "a limit of one path": lambda: _asgi(ROOMY, rules=[Rule(limits=ROOMY, paths=["/other"])]),
    },
    "FastAPI": {
        BARE: lambda: _fastapi(NONE),
        "a trivial dependency": lambda: _fastapi(TRIVIAL),
        "a limit as a dependency": lambda: _fastapi(OURS),
        "refused": lambda: _fastapi(OURS, TIGHT),
    },
    "WSGI": {
        BARE: lambda: _called(_nothing_wsgi),
        "key from a header": lambda: _wsgi(ROOMY),
        "key from the client's address": lambda: _wsgi(ROOMY, key_func=by_ip),
        "refused": lambda: _wsgi(TIGHT),
    },
    "Flask": {
        BARE: lambda: _flask("none"),
        "a limit of a view": lambda: _flask("ours"),
        "refused": lambda: _flask("ours", TIGHT),
        "Flask-Limiter, in memory": lambda: _flask("flask-limiter"),
    },
}
