"""Applications that do nothing: bare, behind a limit, and behind the least work that a limit needs.

`bench.web.middleware` calls them directly; in `bench.web.under_servers` servers serve them. For a server,
`BENCH_LIMITER` names the application, and `BENCH_REDIS` is the port of the Redis.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Final

from bench.decisions.peers import peer
from reconverge import Agent
from reconverge.integrations import asgi, wsgi
from reconverge.integrations.web.request.keys import by_header, by_ip
from reconverge.integrations.web.rules import Rule

ROOMY: Final = "1000000000/hour"
TIGHT: Final = "1/hour"
HEADER: Final = "x-api-key"
KEYS: Final = 1000
IN_MEMORY: Final = "memory://"

BARE: Final = "the bare application"
CONSTANT: Final = "two constant fields"
COUNTING: Final = "a dictionary that counts keys, two constant fields"
COUNTING_ALONE: Final = "a dictionary that counts keys, no fields"
TRIVIAL: Final = "a trivial dependency"
LIMITED: Final = "a limit, key from a header"
TWO_RULES: Final = "two rules, keys from a header and the address"
THREE_RULES: Final = "three rules"
REFUSED: Final = "refused"
SLOWAPI: Final = "slowapi"
FLASK_LIMITER: Final = "Flask-Limiter"
PEERS: Final = {SLOWAPI: "slowapi", FLASK_LIMITER: "flask_limiter"}
"""The modules of other limiters, by the limiter's name."""
FIELDS: Final = [
    (b"ratelimit-policy", b'"requests";q=1000000000;w=3600'),
    (b"ratelimit", b'"requests";r=999999999;t=3600'),
]
QUOTAS: Final = {LIMITED: ROOMY, REFUSED: TIGHT}
SETTINGS: Final[list[Any]] = [
    {"limits": ROOMY, "name": "by-header", "key_func": by_header(HEADER)},
    {"limits": "2000000000/day", "name": "by-address", "key_func": by_ip},
    {"limits": "3000000000/day", "name": "by-header-too", "key_func": by_header(HEADER)},
]
"""The settings of rules that decide together."""


def key_of(number: int) -> str:
    """Returns the key in the header of a request."""
    return f"customer-{number % KEYS:04}"


# -------------------------------------------------------------------- ASGI


async def nothing(_scope: Any, _receive: Any, send: Any) -> None:
    """Answers a request at once."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def two_fields(_scope: Any, _receive: Any, send: Any) -> None:
    """Answers a request at once, with constant fields like those of a limit."""
    headers = [(b"content-type", b"text/plain"), *FIELDS]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


class Counting:
    """The least work of a middleware: it counts keys in a dictionary, and adds constant fields."""

    def __init__(self, app: Any, fields: list[tuple[bytes, bytes]]) -> None:
        self._app = app
        self._fields = fields
        self._counts: dict[bytes, int] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        """Serves a connection."""
        for name, value in scope["headers"]:
            if name == b"x-api-key":
                self._counts[value] = self._counts.get(value, 0) + 1
                break
        fields = self._fields
        if not fields:
            return await self._app(scope, receive, send)

        async def adding(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *fields]
            await send(message)

        return await self._app(scope, receive, adding)


def asgi_app(what: str, hub: str = IN_MEMORY, **settings: Any) -> Any:
    """Returns the application, or the middleware around it."""
    if what in QUOTAS:
        settings.setdefault("key_func", by_header(HEADER))
        limits = settings.pop("limits", QUOTAS[what])
        return asgi.RateLimitMiddleware(nothing, limits, agent=_agent(what, hub), **settings)
    if what in (TWO_RULES, THREE_RULES):
        rules = [Rule(**settings) for settings in SETTINGS[: 2 if what == TWO_RULES else 3]]
        return asgi.RateLimitMiddleware(nothing, rules=rules, agent=_agent(what, hub))
    if what in (COUNTING, COUNTING_ALONE):
        return Counting(nothing, FIELDS if what == COUNTING else [])
    return two_fields if what == CONSTANT else nothing


def fastapi_app(what: str, hub: str = IN_MEMORY) -> Any:
    """Returns an application with one route and its dependencies: one or two limits, one that does nothing, or none."""
    fastapi = peer("fastapi")
    app = fastapi.FastAPI()
    dependencies = list[Any]()
    if what in QUOTAS:
        limits = import_module("reconverge.integrations.fastapi").Limits(_agent(what, hub), key_func=by_header(HEADER))
        limits.install(app)
        dependencies = [fastapi.Depends(limits(QUOTAS[what]))]
    elif what == TWO_RULES:
        limits = import_module("reconverge.integrations.fastapi").Limits(_agent(what, hub))
        limits.install(app)
        dependencies = [fastapi.Depends(limits(**settings)) for settings in SETTINGS[:2]]
    elif what == TRIVIAL:

        async def trivial() -> None:
            return None

        dependencies = [fastapi.Depends(trivial)]

    async def route() -> str:
        return "ok"

    async def limited(request: Any) -> str:  # noqa: ARG001  # slowapi requires this argument
        return "ok"

    if what in PEERS:
        limited.__annotations__["request"] = peer("starlette.requests").Request
        limiter = peer("slowapi").Limiter(lambda request: request.headers[HEADER], storage_uri=hub)
        app.state.limiter = limiter
        app.get("/")(limiter.limit(ROOMY)(limited))
    else:
        app.get("/", dependencies=dependencies)(route)
    return app


# -------------------------------------------------------------------- WSGI and Flask


def nothing_wsgi(_environment: Any, start_response: Any) -> list[bytes]:
    """Answers a request at once."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"ok"]


def two_fields_wsgi(_environment: Any, start_response: Any) -> list[bytes]:
    """Answers a request at once, with constant fields like those of a limit."""
    fields = [(name.decode(), value.decode()) for name, value in FIELDS]
    start_response("200 OK", [("Content-Type", "text/plain"), *fields])
    return [b"ok"]


def wsgi_app(what: str, hub: str = IN_MEMORY, **settings: Any) -> Any:
    """Returns the application, or the middleware around it."""
    if what in QUOTAS:
        settings.setdefault("key_func", by_header(HEADER))
        return wsgi.RateLimitMiddleware(nothing_wsgi, QUOTAS[what], agent=_agent(what, hub), **settings)
    return two_fields_wsgi if what == CONSTANT else nothing_wsgi


def flask_app(what: str, hub: str = IN_MEMORY) -> Any:
    """Returns an application whose view has a limit, or two constant fields, or neither."""
    flask = peer("flask")
    app = flask.Flask("bench")

    def route() -> str:
        return "ok"

    if what in QUOTAS:
        limits = import_module("reconverge.integrations.flask").Limits(
            by_header(HEADER), app=app, agent=_agent(what, hub)
        )
        route = limits.limit(QUOTAS[what])(route)
    elif what == CONSTANT:

        def with_fields(response: Any) -> Any:
            for name, value in FIELDS:
                response.headers.add(name.decode(), value.decode())
            return response

        app.after_request(with_fields)
    elif what in PEERS:
        of_flask = peer("flask_limiter")
        limits = of_flask.Limiter(lambda: flask.request.headers[HEADER], app=app, storage_uri=hub, headers_enabled=True)
        route = limits.limit(ROOMY)(route)
    app.get("/")(route)
    return app


# -------------------------------------------------------------------- Django and aiohttp, below their own servers


def django_app(what: str) -> Any:
    """Returns a view, or the middleware around it, which Django calls with a request. A process has settings once."""
    conf, http = peer("django.conf"), peer("django.http")
    if not conf.settings.configured:
        limited = {"HUB": IN_MEMORY, "LIMITS": ROOMY, "KEY_FUNC": by_header(HEADER)}
        conf.settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], RECONVERGE=limited)
        peer("django").setup()

    def view(_request: Any) -> Any:
        return http.HttpResponse(b"ok", content_type="text/plain")

    def with_fields(request: Any) -> Any:
        response = view(request)
        for name, value in FIELDS:
            response.headers[name.decode()] = value.decode()
        return response

    if what == LIMITED:
        return import_module("reconverge.integrations.django").RateLimitMiddleware(view)
    return with_fields if what == CONSTANT else view


def aiohttp_app(what: str) -> tuple[Any, Any]:
    """Returns an application with one route, and the function that aiohttp's server calls for a request."""
    web = peer("aiohttp.web")
    app = web.Application()

    async def route(_request: Any) -> Any:
        return web.Response(text="ok")

    async def with_fields(request: Any) -> Any:
        response = await route(request)
        for name, value in FIELDS:
            response.headers.add(name.decode(), value.decode())
        return response

    app.router.add_get("/", route)
    if what != LIMITED:
        return app, with_fields if what == CONSTANT else route
    limits = import_module("reconverge.integrations.aiohttp").Limits(
        ROOMY, agent=_agent(what, IN_MEMORY), key_func=by_header(HEADER)
    )
    limits.install(app)

    async def limited(request: Any) -> Any:
        response = await limits.middleware(request, route)
        await limits.add_fields(request, response)
        return response

    return app, limited


def _agent(what: str, hub: str) -> Agent:
    return Agent(hub, namespace=f"bench-{what == REFUSED}")  # several applications may share a Redis


# -------------------------------------------------------------------- for servers


def _served(make: Any) -> Any:
    return make(os.environ["BENCH_LIMITER"], f"redis://127.0.0.1:{os.environ['BENCH_REDIS']}/0")


def served_asgi() -> Any:
    """Returns the application for uvicorn: `--factory bench.web.limited:served_asgi`."""
    return _served(asgi_app)


def served_fastapi() -> Any:
    """Returns the application for uvicorn: `--factory bench.web.limited:served_fastapi`."""
    return _served(fastapi_app)


def served_flask() -> Any:
    """Returns the application for gunicorn: `bench.web.limited:served_flask()`."""
    return _served(flask_app)
