"""Goal: a rule is about a place of the application, however its path is written, and says so if there is none.

Method: requests made of values, and applications of every framework that are asked without a server. Real servers are
in `test_spellings.py`.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import flask
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient as AiohttpClient
from aiohttp.test_utils import TestServer as AiohttpServer
from fastapi import APIRouter, FastAPI
from hypothesis import given
from hypothesis import strategies as st
from litestar import Litestar, get
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.routing import BaseConverter
from werkzeug.test import Client as WerkzeugClient

from reconverge.integrations import Guard, PlainRequest, Rule
from reconverge.integrations import wsgi as wsgi_limits
from reconverge.integrations.aiohttp import Limits as AiohttpLimits
from reconverge.integrations.asgi import RateLimitMiddleware
from reconverge.integrations.web.request.paths import Places, takes_nothing, takes_slashes
from reconverge.integrations.web.request.read_path import normal_forms
from reconverge.integrations.web.unmatched import nearest

LONG: Final = 8_000


def falls_under(rule: str, path: str, **of_request: Any) -> bool:
    return Places([rule]).find(PlainRequest(path=path, **of_request)) == rule


@pytest.mark.parametrize(
    ("rule", "paths"),
    [
        (
            "/login",
            ["/login", "/login/", "//login", "/LOGIN", "/login\n", "/x/../login", "/lo%67in", "login", "/login;a"],
        ),
        ("/login/", ["/login", "/login/", "/login//"]),
        ("/", ["/", "//", "/.", "/x/..", ""]),
        ("/items/{id}", ["/items/7", "/items/a b", "/items//7", "//items/7/", "/Items/7\n", "/items/./7"]),
        ("/items/{id:int}", ["/items/7"]),
        ("/items/<int:id>", ["/items/7"]),
        ("/files/{name:path}", ["/files/a", "/files/a/b", "//files//a/b/", "/files/"]),
        ("/{rest:path}", ["/", "/a", "/a/b"]),
        ("/files/{name:.*}", ["/files/", "/files/a/b"]),
        ("/files/(?P<name>.*)", ["/files/", "/files/a", "/files/a/b"]),
        ("/files/(?P<name>[a-z/]+)/edit", ["/files/a/edit", "/files/a/b/edit"]),
        ("/files/<path:name>/edit", ["/files/a/edit", "/files/a/edit/b/edit", "/files/a/b/edit/"]),
        ("/{a}/{b:path}/{c}", ["/a/b/c", "/a/b/c/d"]),
        ("/api/*", ["/api", "/api/", "/api/x", "/api/x/y\nz", "//api/x", "/API/x", "/x/../api/y"]),
        ("/*", ["/", "/x", "x", "http://host/x"]),
        ("/a b", ["/a b", "/a%20b"]),
        ("/Ä", ["/ä", "/%C3%84", "/A\u0308"]),
    ],
)
def test_a_path_is_found_in_every_spelling(rule: str, paths: Sequence[str]) -> None:
    """In any way in which a router may take one for the other."""
    assert [] == [path for path in paths if not falls_under(rule, path)]


@pytest.mark.parametrize(
    ("rule", "paths"),
    [
        ("/login", ["/", "/logins", "/xlogin", "/login/x", "/log/in", "/login.html", "/login-2"]),
        ("/items/{id}", ["/items", "/items/", "/items/7/x", "/item/7"]),
        ("/api/*", ["/apis", "/ap", "/v1/api"]),
        ("/files/{name:path}", ["/files", "/file/x"]),
        ("/files/<path:name>", ["/files", "/files/", "/file/x"]),
        ("/files/{name:.+}", ["/files", "/files/"]),
        ("/files/(?P<name>[^/]+)", ["/files/", "/files/a/b"]),
        (r"/prices/(?P<price>[0-9]+\.[0-9]{2})", ["/prices/", "/prices/1/2.00"]),
    ],
)
def test_a_plain_path_falls_under_no_rule_for_another(rule: str, paths: Sequence[str]) -> None:
    """Nothing is limited too often but what is spelled strangely."""
    assert [] == [path for path in paths if falls_under(rule, path)]


def test_what_an_application_is_mounted_at_may_be_said_or_not() -> None:
    """The whole path, and the one below."""
    below = {"inner_paths": ["/login"]}

    assert falls_under("/login", "/api/login", **below)
    assert falls_under("/api/login", "/api/login", **below)
    assert not falls_under("/other", "/api/login", **below)
    assert falls_under("/login", "/api//login", inner_paths=["//login"])


def test_the_routers_word_counts() -> None:
    """A route with the same pattern is the place, whatever the path says; names of values do not matter."""
    assert falls_under("/items/{id}", "/items/a/b", templates=["/items/{number}"])
    assert falls_under("/items/{id}", "/items/a/b", templates=["^items/(?P<pk>[0-9]+)/$"])
    assert falls_under("/items/*", "/somewhere", templates=["/items/<int:id>"])
    assert not falls_under("/items/{id}", "/other", templates=["/items/{id}/x"])


def test_values_have_slashes_where_the_route_says_so() -> None:
    """A rule that names the route learns it from the application's routes."""
    places = Places(["/files/{name}", "/items/{id}"])
    request = PlainRequest(path="/files/a/b")
    before = places.find(request)
    places.learn(["/files/{file:path}", "/items/{id}"])

    assert before is None
    assert "/files/{name}" == places.find(request)
    assert None is places.find(PlainRequest(path="/items/a/b"))


@pytest.mark.parametrize(
    ("expression", "slashes", "nothing"),
    [
        (".*", True, True),
        (".+?", True, False),
        ("[^/]+", False, False),
        (r"[0-9]+(\.[0-9]+)?", False, False),
        ("[a-z]*", False, True),
        ("[+-9]+", True, False),
        (r"\S+", True, False),
        (r"\w+/\w+", True, False),
        ("[^]/]+", False, False),
        (r"(a)\1", True, False),
        ("(", False, True),
    ],
)
def test_what_an_expression_takes_is_known(expression: str, slashes: bool, nothing: bool) -> None:
    """Or supposed, where it cannot be told."""
    assert slashes == takes_slashes(expression)
    assert nothing == takes_nothing(expression)


@pytest.mark.parametrize(
    "part", ["/", "//", "/.", "/..", "%25", "%2525", ";", "\n", "{", "/x/..", "\ufdfa", "a:/", "?", "-"]
)
def test_a_long_path_is_read_in_one_go(part: str) -> None:
    """Eight thousand characters, of every kind that has a meaning, are a path like any, but where they become more."""
    places = Places(["/login", "/{a}-{b}", "/files/{name:path}/edit", "/api/*"])
    path = (part * LONG)[:LONG]

    assert places.find(PlainRequest(path=f"/{path}")) in ({"/login"} if part == "\ufdfa" else {None, "/{a}-{b}"})
    assert (0 if part == "\ufdfa" else 4 if part == "?" else 2) == len(list(normal_forms(path)))


@given(st.text(st.characters(), max_size=40) | st.text("/.%;?#\\25fe0a\n:{}<>ab", max_size=40))
def test_whatever_a_client_writes_is_a_path_or_none(text: str) -> None:
    """Nothing in it makes a comparison fail, and what is plain is its own normal form."""
    places = Places(["/login", "/{a}-{b}", "/files/{name:path}/edit", "/api/*"])
    found = places.find(PlainRequest(path=text, inner_paths=[text]))

    assert found in {None, *(place.path for place in places.all)}
    assert all(form.startswith("/") for form in normal_forms(text))


@given(st.lists(st.text("abcXYZ019_-", min_size=1, max_size=5), min_size=1, max_size=4), st.integers(0, 5))
def test_a_plain_path_is_its_own_normal_form(segments: list[str], again: int) -> None:
    """And remains that, however often it is encoded up to a bound that no router reaches."""
    path = "/" + "/".join(segments)
    text = path.replace(segments[0][0], f"%{'25' * min(again, 2)}{ord(segments[0][0]):02x}")

    assert {path} == set(normal_forms(path)) == set(normal_forms(text))


def test_a_router_that_fails_when_asked_leaves_the_request_limited(guard: Guard) -> None:
    """A strange path that nothing else can tell is taken for one that the rule is about; that is counted."""

    class Failing(PlainRequest):
        def seek_templates(self) -> Any:
            raise KeyError("a converter's mistake")

    declared = guard.declare(Rule(limits="1/hour", paths=["/login"]))
    allowed = [bool(guard.check(Failing(path="/odd%", client="192.0.2.1"), [declared])) for _ in range(2)]

    assert [True, False] == allowed
    assert {"KeyError": 2} == guard.stats().failures


# -------------------------------------------------------------------- a path that leads nowhere


def rules(*paths: str) -> list[Rule]:
    return [Rule(limits="1/hour", name="login", paths=paths)]


async def endpoint(_request: Any) -> PlainTextResponse:
    return PlainTextResponse("yes")


async def live(app: Any, *paths: str, root_path: str = "") -> None:
    """Let an application of ASGI begin, answer requests, and end."""
    events = iter(["lifespan.startup", "lifespan.shutdown"])

    async def of_server() -> dict[str, Any]:
        return {"type": next(events)}

    async def of_client() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_message: Any) -> None:
        """Nobody listens."""

    await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, of_server, send)
    for path in paths:
        scope: dict[str, Any] = {"type": "http", "method": "GET", "path": path, "root_path": root_path, "headers": []}
        scope |= {"query_string": b"", "raw_path": path.encode(), "http_version": "1.1", "scheme": "http"}
        await app({**scope, "client": ("192.0.2.1", 1), "server": ("host", 80)}, of_client, send)


def plain_wsgi(_environment: Any, _start_response: Any) -> list[bytes]:
    return []


async def plain_asgi(_scope: Any, _receive: Any, _send: Any) -> None:
    """An application without routes to be seen."""


def starlette(prefix: str = "") -> Starlette:
    """With a login, below a mount if there is a prefix."""
    routes: list[Any] = [Route("/login", endpoint), Route("/files/{name:path}", endpoint)]
    return Starlette(routes=[Mount(prefix, routes=routes)] if prefix else routes)


def fastapi() -> FastAPI:
    """With a login in a router, in a router."""
    inner, outer, app = APIRouter(), APIRouter(), FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @inner.get("/login")
    async def login() -> str:
        return "yes"

    outer.include_router(inner, prefix="/v1")
    app.include_router(outer, prefix="/api")
    return app


def litestar() -> Litestar:
    @get("/login")
    async def login() -> str:
        return "yes"

    return Litestar([login])


def limited(app: Any, *paths: str) -> RateLimitMiddleware:
    return RateLimitMiddleware(app, rules=rules(*paths), agent="memory://")


def flask_app(prefix: str = "") -> flask.Flask:
    app = flask.Flask("reached")
    app.add_url_rule(f"{prefix}/login", "login", lambda: "yes")
    return app


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "limits nothing at its path" in record.getMessage()]


@pytest.mark.parametrize(
    ("app", "near"),
    [
        (limited(starlette("/api"), "/login"), "/api/login"),
        (limited(fastapi(), "/login", "/api/v1/login"), "/api/v1/login"),
        (limited(litestar(), "/signin", "/login"), "/login"),
        (limited(starlette(), "/login", "/loging"), "/login"),
    ],
    ids=["a mount", "a router in a router", "litestar", "a typing error"],
)
def test_a_path_without_a_route_is_told_of_at_the_start(app: Any, near: str, caplog: pytest.LogCaptureFixture) -> None:
    """Once, with the rule, the path and the nearest route, before there is a request."""
    asyncio.run(live(app))
    asyncio.run(live(app, "/", "/"))

    (said,) = warnings_of(caplog)
    assert "rule 'login'" in said
    assert f"the nearest route is {near!r}" in said


@pytest.mark.parametrize(
    "app",
    [
        limited(starlette("/api"), "/api/login", "/api/files/{x}", "/api/*"),
        limited(fastapi(), "/api/v1/login", "/api/{version}/login"),
        limited(litestar(), "/login", "/*"),
        limited(Starlette(routes=[Mount("/static", app=plain_asgi)]), "/static/login"),
        limited(plain_asgi, "/anything"),
    ],
    ids=["a mount", "a router in a router", "litestar", "something else mounted", "no routes to be seen"],
)
def test_nothing_is_told_of_a_path_that_leads_somewhere(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Also where that cannot be known."""
    asyncio.run(live(app))

    assert [] == warnings_of(caplog)


def test_what_an_application_is_mounted_at_is_known_with_the_first_request(caplog: pytest.LogCaptureFixture) -> None:
    """A server tells it no sooner: until then, a path with a prefix may be right."""
    apps = [limited(starlette(), "/api/login") for _ in range(2)]
    asyncio.run(live(apps[0], "/api/login", root_path="/api"))
    before = warnings_of(caplog)
    asyncio.run(live(apps[1], "/login"))

    assert [] == before
    assert 1 == len(warnings_of(caplog))


def test_a_value_with_slashes_is_learned_from_the_routes_of_an_application() -> None:
    """So a rule that names the route is about all that the route serves."""
    guard = Guard("memory://")
    app = RateLimitMiddleware(starlette(), rules=rules("/files/{x}"), guard=guard)
    asyncio.run(live(app, "/files/a/b", "/files/a/c"))

    assert 1 == guard.stats().refused


@pytest.mark.parametrize("rule", ["/files/{x}", "/files/{name:path}"])
def test_a_value_that_may_be_empty_is_one(rule: str) -> None:
    """Starlette sends `/files/` to `/files/{name:path}`, so a rule that names the route is about that path, too."""
    guard = Guard("memory://")
    app = RateLimitMiddleware(starlette(), rules=rules(rule), guard=guard)
    asyncio.run(live(app, "/files/", "/files/a", "/files/"))

    assert 2 == guard.stats().refused


class Rest(Convertor[str]):
    """A type of an application's own, for Starlette: what is left of the path."""

    regex = ".*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


class RestOfWerkzeug(BaseConverter):
    """The same for Werkzeug."""

    regex = ".+?"
    part_isolating = False


@pytest.mark.parametrize("rule", ["/rest/{x}", "/rest/{name:rest}"])
def test_a_type_of_the_applications_own_may_have_slashes_in_starlette(rule: str) -> None:
    """The expression that it matches values with tells that, and not the name of the type."""
    register_url_convertor("rest", Rest())
    guard = Guard("memory://")
    inner = Starlette(routes=[Route("/rest/{name:rest}", endpoint), Route("/items/{id:int}", endpoint)])
    app = RateLimitMiddleware(inner, rules=rules(rule), guard=guard)
    asyncio.run(live(app, "/rest/a", "/rest/a/b", "/rest/", "/items/1"))

    assert 2 == guard.stats().refused


@pytest.mark.parametrize("rule", ["/rest/{x}", "/rest/<rest:name>"])
def test_a_type_of_the_applications_own_may_have_slashes_in_flask(rule: str) -> None:
    """Flask does as Starlette."""
    inner = flask.Flask("typed")
    inner.url_map.converters["rest"] = RestOfWerkzeug
    inner.add_url_rule("/rest/<rest:name>", "rest", lambda name: name)
    client = WerkzeugClient(wsgi_limits.RateLimitMiddleware(inner, rules=rules(rule), agent="memory://"))

    assert [200, 429, 429] == [client.get(path).status_code for path in ("/rest/a", "/rest/a/b", "/rest/a/c")]


@pytest.mark.parametrize(
    ("make", "path", "near"),
    [
        (lambda: flask_app("/api"), "/login", "/api/login"),
        (flask_app, "/login", None),
        (lambda: DispatcherMiddleware(flask_app(), {"/api": flask_app("/v1")}), "/v1/login", "/api/v1/login"),
        (lambda: DispatcherMiddleware(flask_app(), {"/api": flask_app("/v1")}), "/api/v1/login", None),
        (lambda: DispatcherMiddleware(flask_app(), {"/api": plain_wsgi}), "/api/anything", None),
    ],
)
def test_of_wsgi_it_is_told_with_the_first_request(
    make: Callable[[], Any], path: str, near: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """WSGI has no other beginning."""
    app = wsgi_limits.RateLimitMiddleware(make(), rules=rules(path), agent="memory://")
    client = WerkzeugClient(app)
    client.get("/login")
    client.get("/login")

    assert (1 if near else 0) == len(warnings_of(caplog))
    assert all(f"the nearest route is {near!r}" in said for said in warnings_of(caplog))


@pytest.mark.parametrize(
    ("outside", "path", "told"),
    [(True, "/login", 1), (True, "/api/login", 0), (False, "/login", 0), (False, "/api/login", 0), (False, "/x", 1)],
)
async def test_aiohttp_tells_it_of_mounted_applications(
    outside: bool, path: str, told: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Outside, paths are whole; within, the prefix may be left out."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="yes")

    with caplog.at_level(logging.WARNING, "reconverge"):
        inner, outer = web.Application(), web.Application()
        inner.router.add_get("/login", answer)
        limits = AiohttpLimits(rules=rules(path), agent="memory://")
        limits.install(outer if outside else inner)
        outer.add_subapp("/api", inner)
        async with AiohttpClient(AiohttpServer(outer)) as client:
            status = [(await client.get("/api/login")).status for _ in range(2)][1]

    assert told == len(warnings_of(caplog))
    assert (200 if told else 429) == status


DJANGO: Final = """
import sys, types, django
from django.conf import settings
settings.configure(SECRET_KEY="x", ROOT_URLCONF="urls", ALLOWED_HOSTS=["*"], USE_I18N=True, RECONVERGE={
    "HUB": "memory://", "RULES": [{"PATHS": PATHS, "LIMITS": "1/hour", "NAME": "login"}]},
    MIDDLEWARE=["reconverge.integrations.django.RateLimitMiddleware"])
from django.conf.urls.i18n import i18n_patterns
from django.http import HttpResponse
from django.urls import include, path, re_path, register_converter
class Rest:
    regex = ".+"
    def to_python(self, value):
        return value
    to_url = to_python
register_converter(Rest, "rest")
view = lambda request, **_: HttpResponse("yes")
urls = types.ModuleType("urls")
urls.urlpatterns = [path("api/", include([path("login/", view), re_path(r"^items/(?P<id>[0-9]+)/$", view)])),
                    re_path(r"^odd/(a|b)$", view), *i18n_patterns(path("home", view)),
                    path("rest/<rest:name>", view), re_path("^any/(?P<name>.*)$", view)]
sys.modules["urls"] = urls
django.setup()
from django.core.wsgi import get_wsgi_application
from werkzeug.test import Client
client = Client(get_wsgi_application())
print("started", file=sys.stderr)
print(*(client.get(f"/{part}/{name}").status_code for part in ["rest", "any"] for name in ["a", "a/b", "a/c"]))
"""


def served_by_django(*paths: str) -> subprocess.CompletedProcess[str]:
    """Returns the answers of Django, in a process of its own, with a rule about these paths."""
    script = DJANGO.replace("PATHS,", f"{paths!r},")
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)


@pytest.mark.parametrize(
    ("paths", "near"),
    [
        (["/login"], "/api/login/"),
        (["/api/login", "/api/items/{id}", "/api/*", "/odd/a", "/de/home", "/shop/api/login"], None),
    ],
)
def test_django_tells_it_when_the_server_starts(paths: list[str], near: str | None) -> None:
    """An expression that is no plain path, and a prefix of the server, may be right."""
    at_the_start, _, later = served_by_django(*paths).stderr.partition("started")

    assert (1 if near else 0, 0) == tuple(said.count("limits nothing at its path") for said in (at_the_start, later))
    assert near is None or f"the nearest route is {near!r}" in at_the_start


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "statuses"),
    [
        ("/rest/<rest:name>", "200 429 429 200 200 200"),
        ("/rest/{x}", "200 429 429 200 200 200"),
        ("/any/(?P<name>.*)", "200 200 200 200 429 429"),
        ("/any/{x}", "200 200 200 200 429 429"),
    ],
)
def test_a_type_of_the_applications_own_may_have_slashes_in_django(path: str, statuses: str) -> None:
    """An expression in a route is such a type, too."""
    assert statuses == served_by_django(path).stdout.strip()


def test_the_nearest_route_is_the_one_that_ends_as_the_path_does() -> None:
    """Or else the one that looks most like it; none where there is no route."""
    assert "/api/v1/login" == nearest("/login", ["/logins", "/api/v1/login", "/"])
    assert "/logins" == nearest("/login", ["/", "/logins", "/admin"])
    assert None is nearest("/login", [])
