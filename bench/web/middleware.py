"""Measures the cost of a limit for a request: an idle application is called directly, and under servers.

Called directly, there is no server and no event loop: the coroutine of a request is driven by hand, as nothing in it
waits. So the figure is the time of the limit's Python alone, with warm caches; under a server each of these costs about
two and a half times as much (`bench.web.under_servers`). The floors are an application with two constant response
fields, a middleware that counts keys in a dictionary, and for FastAPI a dependency that does nothing. Each case is
measured in turn with the bare application, and its cost is the difference.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Final, TypeAlias

from bench.child import Missing
from bench.decisions.peers import peer
from bench.decisions.timing import no_collector
from bench.report.found import Row, Spread
from bench.web import under_servers
from bench.web.limited import (
    BARE,
    CONSTANT,
    COUNTING,
    COUNTING_ALONE,
    FLASK_LIMITER,
    HEADER,
    KEYS,
    LIMITED,
    REFUSED,
    ROOMY,
    THREE_RULES,
    TRIVIAL,
    TWO_RULES,
    aiohttp_app,
    asgi_app,
    django_app,
    fastapi_app,
    flask_app,
    key_of,
    wsgi_app,
)
from bench.web.under_servers import PART, UNIT
from reconverge.integrations.web.request.keys import by_ip
from reconverge.integrations.web.rules import Rule

ROUNDS: Final = 15
CALLS: Final = 1000
BY_ADDRESS: Final = "a limit, key from the client's address"
NO_FIELDS: Final = "a limit without response fields"
TWO: Final = "two quotas"
ONE_PATH: Final = "a limit of another path beside"
Request: TypeAlias = dict[str, Any]
Call: TypeAlias = Callable[[Any], object]
Made: TypeAlias = tuple[Call, Callable[[int], Any]]


def case_of(framework: str) -> str:
    """Returns the name of a case in the table."""
    return f"called directly, {framework}"


def measure(*, quick: bool, only: str = "") -> Iterator[Row]:
    """Measures each case in turn with the bare application of its framework; then under servers."""
    yield from directly(quick=quick, only=only)
    yield from under_servers.measure(quick=quick, only=only)


def directly(*, quick: bool, only: str = "") -> Iterator[Row]:
    """Measures direct calls: each case in turn with the bare application of its framework."""
    rounds, calls = (3, 200) if quick else (ROUNDS, CALLS)
    for framework, cases in FRAMEWORKS.items():
        if only in case_of(framework):
            yield from _measure(case_of(framework), cases, rounds, calls)


def _measure(case: str, cases: dict[str, Callable[[], Made]], rounds: int, calls: int) -> Iterator[Row]:
    try:
        bare = cases[BARE]()
    except Missing as error:
        yield Row(PART, case, BARE, missing=str(error))
        return
    for what, make in cases.items():
        try:
            made = make()
        except Missing as error:
            yield Row(PART, case, what, missing=str(error))
            continue
        for number in range(KEYS):  # each key is known by then, and has used up a quota of one
            made[0](made[1](number))
        pairs = [(cost_us(made, calls), cost_us(bare, calls)) for _ in range(rounds)]
        cost = Spread.of([least if what == BARE else mine - least for mine, least in pairs])
        yield Row(PART, case, what, BARE, Spread.of([mine / least for mine, least in pairs]), cost, UNIT)


def cost_us(made: Made, calls: int) -> float:
    """Returns the CPU time of one call, in microseconds."""
    call, request_of = made
    requests = [request_of(number) for number in range(calls)]
    with no_collector():
        begun_ns = time.process_time_ns()
        for request in requests:
            call(request)
        return (time.process_time_ns() - begun_ns) / calls / 1000


# -------------------------------------------------------------------- requests of ASGI


async def _receive() -> Request:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _send(_message: Request) -> None:
    return None


def scope_of(number: int) -> Request:
    """Returns a scope as servers make it for a client like a browser, with each kind of field that a limit reads."""
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
            (b"x-api-key", key_of(number).encode()),
        ],
        "state": {},
    }


def driven(app: Any) -> Made:
    """Returns a function that calls an ASGI application, and one that makes its scopes."""
    return lambda scope: _drive(app(scope, _receive, _send)), scope_of


def _drive(coroutine: Coroutine[Any, Any, object]) -> None:
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("the application has waited")


# -------------------------------------------------------------------- requests of WSGI


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
        "HTTP_X_API_KEY": key_of(number),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }


def _start_response(_status: str, _headers: Any, _exc_info: Any = None) -> None:
    return None


def _called(app: Any) -> Made:
    def call(environment: Any) -> None:
        for _ in app(environment, _start_response):
            pass

    return call, _environment


# -------------------------------------------------------------------- requests of Django and aiohttp


def _django(what: str) -> Made:
    app = django_app(what)
    return app, lambda number: peer("django.core.handlers.wsgi").WSGIRequest(
        _environment(number) | {"wsgi.input": io.BytesIO()}
    )


def _aiohttp(what: str) -> Made:
    app, serve = aiohttp_app(what)
    mocked = peer("aiohttp.test_utils").make_mocked_request

    return lambda request: _drive(serve(request)), lambda number: mocked(
        "GET", "/", headers={HEADER: key_of(number)}, app=app
    )


# -------------------------------------------------------------------- what is measured


def _asgi(what: str, **settings: Any) -> Made:
    return driven(asgi_app(what, **settings))


def _fastapi(what: str) -> Made:
    return driven(fastapi_app(what))


def _wsgi(what: str, **settings: Any) -> Made:
    return _called(wsgi_app(what, **settings))


def _flask(what: str) -> Made:
    return _called(flask_app(what).wsgi_app)


def _several(make: Callable[[str], Made], *what: str) -> dict[str, Callable[[], Made]]:
    return {each: partial(make, each) for each in what}


FRAMEWORKS: Final[dict[str, dict[str, Callable[[], Made]]]] = {
    "ASGI": {
        **_several(_asgi, BARE, CONSTANT, COUNTING, COUNTING_ALONE, LIMITED),
        BY_ADDRESS: partial(_asgi, LIMITED, key_func=by_ip),
        NO_FIELDS: partial(_asgi, LIMITED, headers_enabled=False),
        REFUSED: partial(_asgi, REFUSED),
        TWO: partial(_asgi, LIMITED, limits=f"{ROOMY}; 2000000000/day"),
        **_several(_asgi, TWO_RULES, THREE_RULES),
        ONE_PATH: partial(_asgi, LIMITED, rules=[Rule(limits=ROOMY, paths=["/other"])]),
    },
    "FastAPI": _several(_fastapi, BARE, TRIVIAL, LIMITED, TWO_RULES, REFUSED),
    "WSGI": {
        **_several(_wsgi, BARE, CONSTANT, LIMITED),
        BY_ADDRESS: partial(_wsgi, LIMITED, key_func=by_ip),
        REFUSED: partial(_wsgi, REFUSED),
    },
    "Flask": _several(_flask, BARE, CONSTANT, LIMITED, REFUSED, FLASK_LIMITER),
    "Django": _several(_django, BARE, CONSTANT, LIMITED),
    "aiohttp": _several(_aiohttp, BARE, CONSTANT, LIMITED),
}
