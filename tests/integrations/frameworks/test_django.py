"""Goal: a Django project is limited as its setting says, under WSGI and under ASGI, and nothing else of it changes.

Method: requests through Django's own handlers, synchronous and asynchronous, with a real database; then uvicorn.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
from django.contrib.auth import get_user_model
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIHandler, ASGIRequest
from django.core.handlers.wsgi import WSGIHandler, WSGIRequest
from django.test import AsyncClient, Client, override_settings
from django.urls import clear_url_caches, include
from django.utils.decorators import method_decorator
from django.utils.functional import SimpleLazyObject
from django.views import View

from reconverge.errors import InvalidLimit, InvalidSetting
from reconverge.integrations import Addresses, by_ip, by_user, together
from reconverge.integrations.django import exemptions
from reconverge.integrations.django import middleware as django_middleware
from reconverge.integrations.django.middleware import DjangoRequest, ServingRequest, guard, limit, outcome_of
from reconverge.integrations.django.settings import configured as what_is_said
from reconverge.integrations.web.request.request import CANCELLED
from reconverge.runtime.log_throttle import LoggedOnce
from reconverge.runtime.threads import Latch
from tests.support.applications import django_project
from tests.support.applications.asking import environment_of
from tests.support.applications.threaded import running, uvicorn_of
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[3]
PROCESS_S_MAX = 30.0
PROBLEM = "application/problem+json"
Get = Callable[..., Any]


def sync_get(url: str, user: Any = None, method: str = "get", **headers: str) -> Any:
    client = Client(raise_request_exception=False)
    if user is not None:
        client.force_login(user)
    return getattr(client, method)(url, headers=headers)


def async_get(url: str, user: Any = None, method: str = "get", **headers: str) -> Any:
    return asyncio.run(_get_slowly(url, user, method, headers))


async def _get_slowly(url: str, user: Any, method: str, headers: dict[str, str]) -> Any:
    client = AsyncClient(raise_request_exception=False)
    if user is not None:
        await client.aforce_login(user)
    response = await getattr(client, method)(url, headers=headers)
    if response.streaming:
        response.body = b"".join([part async for part in response])
        response.close()
    return response


def test_a_check_finds_that_the_middleware_is_missing() -> None:
    """`manage.py check` runs it if the package is in INSTALLED_APPS. A limit on views alone needs no middleware."""
    ours, other = "reconverge.integrations.django.RateLimitMiddleware", "django.middleware.common.CommonMiddleware"
    found = {}
    for said in ({"LIMITS": "2/minute"}, {"RULES": [{"LIMITS": "2/minute"}]}, {"NAMESPACE": "shop"}, None):
        for middleware in ([other], [other, ours]):
            with override_settings(RECONVERGE=said, MIDDLEWARE=middleware):
                warned = [each for each in checks.run_checks() if "RECONVERGE has LIMITS or RULES" in each.msg]
                found[str(said), ours in middleware] = [each.hint for each in warned]

    hint = [f"add '{ours}' to MIDDLEWARE"]
    assert [hint, [], hint, [], [], [], [], []] == [*found.values()]


ASYNCHRONY = pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
"""Django says so of every stream that is made for the other kind of server, as files are."""


@pytest.fixture(params=[sync_get, async_get], ids=["wsgi", "asgi"])
def get(request: pytest.FixtureRequest) -> Get:
    found: Get = request.param
    return found


@pytest.fixture(autouse=True)
def nothing_settled() -> None:
    django_project.settled.clear()


@pytest.fixture(scope="session")
def users() -> list[Any]:
    django_project.prepare()
    return [get_user_model().objects.create_user(name) for name in ("ada", "bob")]


@contextlib.contextmanager
def configured(**setting: Any) -> Iterator[None]:
    with override_settings(RECONVERGE=setting):
        yield


def remaining(response: Any) -> dict[str, int]:
    return {name: int(left) for name, left in re.findall(r'"([^"]+)";r=(\d+)', response.headers.get("RateLimit", ""))}


# -------------------------------------------------------------------- the middleware


@pytest.mark.parametrize("setting", [{}, {"HUB": "memory://"}, {"RULES": []}])
def test_a_middleware_that_limits_nothing_is_an_error(setting: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes when the server starts; a view with a limit, or ENABLED=False, is reason enough."""
    with configured(**setting):
        WSGIHandler()
        monkeypatch.setattr(django_middleware, "LIMITED", WeakSet())
        with pytest.raises(ImproperlyConfigured, match="nothing is limited; write 'LIMITS'"):
            WSGIHandler()
    with configured(**setting, ENABLED=False):
        WSGIHandler()


def test_a_middleware_that_is_named_twice_charges_once(get: Get) -> None:
    """Whoever has put it into MIDDLEWARE a second time still has the whole quota."""
    twice = [*django_project.MIDDLEWARE, django_project.MIDDLEWARE[-1]]
    with override_settings(MIDDLEWARE=twice), configured(LIMITS="4/hour"):
        assert [200] * 4 + [429] == [get("/").status_code for _ in range(5)]


def test_a_limit_of_included_urls_says_that_they_are_no_view() -> None:
    """`limit("2/minute")(include(...))`: there are parentheses, and no view."""
    included: Any = include((django_project.shop, "shop"))
    with pytest.raises(
        InvalidSetting, match=r"applied to the result of include\(\.\.\.\), which is not a view; .* 'PATHS'"
    ):
        limit("2/minute")(included)


@ASYNCHRONY
def test_every_response_says_what_is_left_and_the_last_one_refuses(get: Get) -> None:
    """Whether it is there, not found, broken or a file; the refusal has problem details and says when to come back."""
    with configured(LIMITS="4/hour"):
        responses = [get(url) for url in ("/", "/nowhere/", "/broken/", "/file/", "/")]

    assert [200, 404, 500, 200, 429] == [response.status_code for response in responses]
    assert [3, 2, 1, 0, 0] == [remaining(response)["requests"] for response in responses]
    assert PROBLEM == responses[-1].headers["Content-Type"]
    assert 429 == json.loads(responses[-1].content)["status"]
    assert int(responses[-1].headers["Retry-After"]) > 0


def test_a_stream_is_a_stream_still() -> None:
    """It has the fields, and its parts come one by one; so do those of an asynchronous one."""

    async def stream() -> tuple[Any, list[bytes]]:
        response: Any = await AsyncClient().get("/count-slowly/3/")
        return response, [part async for part in response]

    with configured(LIMITS="9/hour"):
        response: Any = Client().get("/count/3/")
        slow, slow_parts = asyncio.run(stream())

    assert [b"0\n", b"1\n", b"2\n"] == list(response) == slow_parts
    assert ({"requests": 8}, {"requests": 7}) == (remaining(response), remaining(slow))
    assert response.streaming
    assert slow.is_async


def test_rules_are_about_paths_views_and_methods(get: Get) -> None:
    """Each counts what it is about; the names of views are those of the URLs, with their namespaces."""
    rules = [
        {"LIMITS": "9/hour", "PATHS": ["/shop/*"], "NAME": "shop"},
        {"LIMITS": "5/hour", "VIEWS": ["shop:item", "slow"]},
        {"LIMITS": "3/hour", "METHODS": ["POST"], "NAME": "writing"},
    ]
    with configured(RULES=rules):
        found = [remaining(get(url)) for url in ("/", "/slow/", "/shop/items/1/", "/shop/items/2/", "/shop/x/")]
        written = remaining(get("/shelf/", method="post"))

    slow = {"shop:item": 4} if "shop:item" in found[1] else {next(iter(found[1])): 4}
    name = next(iter(slow))
    assert [{}, slow, {"shop": 8, name: 3}, {"shop": 7, name: 2}, {"shop": 6}] == found
    assert 2 == written["writing"]


@pytest.mark.parametrize("name", ["home", "slow", "gate", "slow-gate"])
def test_a_view_may_be_exempt_from_the_middleware(get: Get, name: str) -> None:
    """Function, coroutine function or class; it says nothing of limits, and other uses of the same view are limited."""
    with configured(LIMITS="1/hour", RULES=[{"LIMITS": "1/hour", "PATHS": ["/free/*"], "NAME": "paths"}]):
        found = [get(url) for url in (f"/free/{name}/", f"/free/{name}/", "/", "/", f"/free/{name}/")]

    assert [200, 200, 200, 429, 200] == [response.status_code for response in found]
    assert {} == remaining(found[0]) == remaining(found[-1])


def test_the_first_request_may_be_for_an_exempt_view(get: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it nobody had imported the view, so nobody knew that any was exempt."""
    monkeypatch.setattr(exemptions, "_used", Latch())
    sys.modules.pop("tests.support.applications.late_urls", None)
    clear_url_caches()
    with configured(LIMITS="1/hour"), override_settings(ROOT_URLCONF="tests.support.applications.late_urls"):
        found = [get(url) for url in ("/free/", "/", "/", "/free/")]

    assert [200, 200, 429, 200] == [response.status_code for response in found]
    assert {} == remaining(found[0])


@pytest.mark.parametrize("name", ["shelf", "limited", "exempt-limited"])
def test_an_exempt_view_keeps_limits_of_its_own(get: Get, name: str) -> None:
    """Whichever of both decorators stands above the other."""
    with configured(LIMITS="1/hour"):
        found = [get(f"/free/{name}/") for _ in range(3)]

    assert [200, 200, 429] == [response.status_code for response in found]
    assert [[1], [0], [0]] == [list(remaining(response).values()) for response in found]


def test_urls_that_are_broken_are_an_error_as_ever(get: Get) -> None:
    """Who is exempt is not known then; the middleware does not say so before Django does."""
    broken = override_settings(ROOT_URLCONF="tests.integrations.no_such_module")
    with configured(LIMITS="9/hour"), broken, pytest.raises(ModuleNotFoundError):
        get("/")


def test_users_are_counted_each_on_his_own(get: Get, users: list[Any]) -> None:
    """Wherever they come from, and though asking the database must not hold up an event loop."""
    with configured(LIMITS="2/hour", KEY_FUNC="reconverge.integrations.by_user"):
        statuses = [get("/", user=users[number]).status_code for number in (0, 0, 1, 0, 1)]
        stranger = get("/")
        failures = guard().stats().failures

    assert [200, 200, 200, 429, 200] == statuses
    assert (200, {"requests": 1}) == (stranger.status_code, remaining(stranger))
    assert {} == failures


def test_users_that_are_found_below_our_middleware_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """When the server starts, also where a user is a part of the key; other keys may be counted there."""
    below = [django_project.MIDDLEWARE[-1], *django_project.WITHOUT_OURS]
    for order, key in (
        (django_project.MIDDLEWARE, by_user),
        (below, by_ip),
        (below, by_user),
        (below, together(by_ip, by_user)),
    ):
        with override_settings(MIDDLEWARE=order), configured(LIMITS="2/hour", KEY_FUNC=key):
            WSGIHandler()

    assert 2 == len(caplog.messages)
    assert all(
        "requests is by_user, but RateLimitMiddleware stands above AuthenticationMiddleware" in each
        for each in caplog.messages
    )


def test_whoever_cannot_be_loaded_is_counted_by_address(users: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    """A database that fails is counted and logged, and the request goes on."""

    async def broken() -> Any:
        raise ConnectionError("no database")

    with configured(LIMITS="2/hour", KEY_FUNC="reconverge.integrations.by_user"):
        request = ASGIRequest({"type": "http", "method": "GET", "path": "/", "headers": []}, None)
        request.user, request.auser = SimpleLazyObject(lambda: 1 / 0), broken
        answer = asyncio.run(ServingRequest(request).check_slowly(what_is_said().rules))
        failures = guard().stats().failures

    assert answer is None
    assert outcome_of(request)
    assert {"ConnectionError": 1} == failures
    assert "'user' failed" in caplog.text


@ASYNCHRONY
def test_what_depends_on_the_response_is_settled_when_it_has_ended(get: Get) -> None:
    """With the bytes that were sent: of a plain one, a stream of either kind, a file, and a failure."""
    django_project.settled.clear()
    with configured(LIMITS="1000/hour", RULES=[{"LIMITS": "900/hour", "NAME": "bytes", "SETTLE": SETTLE}]):
        for url in ("/", "/count/5/", "/count-slowly/5/", "/file/", "/broken/"):
            response = get(url)
            if response.streaming and not hasattr(response, "body"):
                b"".join(response)
                response.close()
        left = remaining(get("/"))["bytes"]
    ended = [(response.status, response.bytes_sent, response.complete) for response in django_project.settled]

    assert [(200, 7, True), (200, 10, True), (200, 10, True), (200, 6, True)] == ended[:4]
    assert 500 == ended[4][0]
    assert 900 - sum(sent for _, sent, _ in ended[:5]) - 1 == left


SETTLE = f"{django_project.HERE}.settle"


def test_a_setting_that_is_empty_limits_nothing(get: Get) -> None:
    """The middleware is there, and says nothing."""
    with configured():
        response = get("/")

    assert (200, {}) == (response.status_code, remaining(response))


# -------------------------------------------------------------------- the decorator


@pytest.mark.parametrize("url", ["/limited/", "/limited-slowly/", "/shelf/", "/drawer/", "/box/"])
@pytest.mark.parametrize(
    "middleware", [django_project.MIDDLEWARE, django_project.WITHOUT_OURS], ids=["with", "without"]
)
def test_views_are_limited_whatever_they_are(url: str, middleware: list[str], get: Get) -> None:
    """Functions, coroutine functions, classes; with the middleware and without it."""
    with override_settings(MIDDLEWARE=middleware), configured():
        responses = [get(url) for _ in range(3)]

    assert [200, 200, 429] == [response.status_code for response in responses]
    assert [[1], [0], [0]] == [list(remaining(response).values()) for response in responses]
    assert PROBLEM == responses[-1].headers["Content-Type"]


def test_limits_without_the_middleware_are_logged_by_a_limited_view(
    get: Get, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once. With the middleware, or without LIMITS and RULES, there is nothing to log."""
    monkeypatch.setattr(django_middleware, "_logged", LoggedOnce())
    for middleware, setting in [(django_project.MIDDLEWARE, {"LIMITS": "9/hour"}), (django_project.WITHOUT_OURS, {})]:
        with override_settings(MIDDLEWARE=middleware), configured(**setting):
            get("/limited/")
    assert "without the middleware" not in caplog.text

    with override_settings(MIDDLEWARE=django_project.WITHOUT_OURS), configured(LIMITS="1/hour"):
        assert [200, 200] == [get("/limited/").status_code for _ in range(2)]

    assert 1 == caplog.text.count("a request came to a view without the middleware that obeys them")
    assert "add 'reconverge.integrations.django.RateLimitMiddleware' to MIDDLEWARE" in caplog.text


def test_a_limited_view_of_django_that_is_dropped_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The project routes the view that has no limit. One that is kept may wait for its first request."""

    def view(_request: object) -> None:
        """Answers nothing."""

    with override_settings(RECONVERGE={"HUB": "memory://"}):
        kept = limit("2/minute", name="kept")(view)
        limit("2/minute", name="dropped")(view)

    assert callable(kept)
    assert 1 == caplog.text.count("the function that limit(...) has returned for the limit 'dropped' was dropped")
    assert 1 == len(caplog.records)


def test_a_limit_in_the_place_of_a_throttle_class_is_an_error() -> None:
    """Django REST framework makes an object of it for each request."""
    throttle: Any = limit("2/minute")

    with pytest.raises(InvalidSetting, match=r"is no throttle class; write @method_decorator\(limit\(\.\.\.\), name="):
        throttle()


def test_a_decorator_of_django_that_decorates_nothing_is_logged(get: Get, caplog: pytest.LogCaptureFixture) -> None:
    """Once, with the first request that comes after all views were imported. Django reads no list of decorators."""
    limit("2/minute")
    with override_settings(MIDDLEWARE=django_project.MIDDLEWARE), configured(LIMITS="9/hour"):
        for _ in range(3):
            get("/limited/")

    assert 1 == caplog.text.count("limit('2/minute') decorates nothing, so it limits nothing; write @limit('5/minute')")
    assert "@method_decorator(limit('5/minute')) on a method" in caplog.text


def test_a_view_that_refuses_costs_the_others_nothing(get: Get) -> None:
    """The charge of the middleware, or of a limit of the class, is given back."""
    with configured(LIMITS="9/hour"):
        first = [get("/box/", method="post").status_code for _ in range(3)]
        shown = get("/box/")

    assert [200, 429, 429] == first
    assert {0, 7} == set(remaining(shown).values())


def test_a_decorated_view_makes_one_limit_however_often_it_is_called() -> None:
    """Django decorates methods anew for each call; that declares nothing anew."""
    with configured():
        for _ in range(5):
            sync_get("/shelf/")
            sync_get("/box/", method="post")
        method_decorator(limit("2/hour"), name="get")(type("Late", (View,), {"get": lambda view, request: None}))
        names = {name.rpartition(".")[2] for name in guard().agent.stats().limits}

    assert {"Shelf", "Box", "post"} == names & {"Shelf", "Box", "post", "dispatch", "dummy"}


def test_a_limit_that_cannot_be_read_is_no_decorator() -> None:
    """The mistake is told where it is made."""
    with pytest.raises(InvalidLimit, match="often"):
        limit("often")


def test_a_method_that_is_decorated_as_a_function_is_told() -> None:
    """It takes itself first, and no request; the error says what to do."""

    class Wrong(View):  # type: ignore[misc]  # Django has no types
        @limit("1/hour")
        def get(self, request: Any) -> Any:
            raise AssertionError

    with configured(), pytest.raises(TypeError, match="method_decorator"):
        Wrong().get(None)


# -------------------------------------------------------------------- what is wrong is told at the start


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"LIMIT": "1/hour"}, r"RECONVERGE\['LIMIT'\]: there is no such setting; known: .*LIMITS"),
        ({"LIMITS": "often"}, r"RECONVERGE\['LIMITS'\]: .*often"),
        ({"FAIL": "maybe"}, r"RECONVERGE\['FAIL'\]: .*'maybe'.*'open'"),
        ({"STATUS": 418}, r"RECONVERGE\['STATUS'\]"),
        ({"DIALECT": "klingon"}, r"RECONVERGE\['DIALECT'\]"),
        ({"TRUSTED_PROXIES": ["10.0.0.0/99"]}, r"RECONVERGE\['TRUSTED_PROXIES'\]"),
        ({"MISSING": "perhaps"}, r"RECONVERGE\['MISSING'\]"),
        ({"COLD": "slowly"}, r"RECONVERGE\['COLD'\]"),
        ({"HUB": "carrier-pigeon://"}, r"RECONVERGE\['HUB'\].*carrier-pigeon"),
        ({"NAMESPACE": "a b"}, r"RECONVERGE\['NAMESPACE'\]"),
        ({"KEY_FUNC": "no.such.function"}, r"RECONVERGE\['KEY_FUNC'\]: cannot be imported"),
        ({"KEY_FUNC": "by_ip"}, r"RECONVERGE\['KEY_FUNC'\].*not a function"),
        ({"AGENT": "os.path"}, r"RECONVERGE\['AGENT'\]"),
        ({"AGENT": "os.path", "HUB": "memory://"}, r"RECONVERGE\['HUB'\].*'AGENT'"),
        ({"RULES": {"PATHS": ["/"]}}, r"RECONVERGE\['RULES'\]: is dict, not a list"),
        ({"RULES": ["1/hour"]}, r"RECONVERGE\['RULES'\]\[0\]: is str, neither"),
        ({"RULES": [{"PATHS": ["/"]}]}, r"RECONVERGE\['RULES'\]\[0\]: has no 'LIMITS'"),
        ({"RULES": [{"LIMITS": "1/hour", "PATH": "/"}]}, r"RECONVERGE\['RULES'\]\[0\]\['PATH'\]"),
        ({"RULES": [{"LIMITS": "1/hour", "PATHS": "/"}]}, r"RECONVERGE\['RULES'\]\[0\]\['PATHS'\]"),
        (
            {"RULES": [{"LIMITS": "1/hour", "VIEWS": "home"}]},
            r"RECONVERGE\['RULES'\]\[0\]\['VIEWS'\]: is str, not a list",
        ),
        (
            {"RULES": [{"LIMITS": "1/hour", "VIEWS": ["hone"]}]},
            r"\['VIEWS'\]: no URL has a view named 'hone'.*home.*shop:item",
        ),
        ("1/hour", "RECONVERGE: is str, not a dictionary"),
    ],
)
@pytest.mark.parametrize("handler", [WSGIHandler, ASGIHandler])
def test_a_wrong_setting_is_named_when_the_server_starts(handler: Any, setting: Any, message: str) -> None:
    """Before any request, whichever server it is."""
    with override_settings(RECONVERGE=setting), pytest.raises(ImproperlyConfigured, match=message):
        handler()


# -------------------------------------------------------------------- hostile input


def test_an_underscore_is_no_hyphen() -> None:
    """In an event loop Django has both for one header field; ours does not, so a proxy's field cannot be smuggled."""
    headers = [
        (b"x_forwarded_for", b"192.0.2.1"),
        (b"x-forwarded-for", b"192.0.2.2"),
        (b"x-forwarded-for", b"192.0.2.3"),
    ]
    request = ASGIRequest({"type": "http", "method": "GET", "path": "/", "headers": headers}, None)

    assert "192.0.2.2, 192.0.2.3" == DjangoRequest(request, Addresses()).header("X-Forwarded-For")


# -------------------------------------------------------------------- real servers


def test_a_client_that_goes_away_has_used_what_it_was_sent() -> None:
    """In the middle of a stream without an end: it ends, and what was sent is settled."""
    rules = [{"LIMITS": "1000000000/hour", "NAME": "bytes", "SETTLE": SETTLE}]
    with configured(RULES=rules), running(uvicorn_of(ASGIHandler())) as port:
        connection = HTTPConnection("127.0.0.1", port, timeout=PROCESS_S_MAX)
        connection.request("GET", "/count-slowly/1000000000/")
        connection.getresponse().read(100)
        connection.close()
        eventually(lambda: django_project.settled, "the stream is settled")
    (response,) = django_project.settled

    assert response.status in {200, CANCELLED}
    assert not response.complete
    assert response.bytes_sent >= 100


def django_request() -> DjangoRequest:
    """A request of Ada's, as Django's middlewares leave it."""
    request: Any = WSGIRequest(environment_of("/", client="192.0.2.9", X_TENANT="shop"))
    request.user = "ada"
    request.tenant = "of a middleware"
    return DjangoRequest(request, Addresses())


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (lambda request: request.META["REMOTE_ADDR"], "192.0.2.9"),
        (lambda request: request.headers["X-Tenant"], "shop"),
        (lambda request: request.user, "ada"),
        (lambda request: request.tenant, "of a middleware"),
        (lambda request: request.GET.get("tenant", "none"), "none"),
    ],
    ids=["META", "headers", "user", "of a middleware", "GET"],
)
def test_what_djangos_requests_have_is_there(key: Callable[[Any], object], expected: str) -> None:
    """Django's users write key functions so."""
    assert expected == key(django_request())


def test_what_djangos_requests_do_not_have_is_told() -> None:
    """With what there is."""
    with pytest.raises(
        AttributeError,
        match=r"has no 'remote_addr'; its attributes are `method`.*and the attributes of Django's own request",
    ):
        django_request().remote_addr  # noqa: B018  # which raises
