"""Goal: a dependency that decides by the scope says what the guard's general way says, to the last byte and count.

Method: two applications with the same routes are asked the same by turns, under clocks that agree. The guard of one
goes the general way for each request, and what adds its fields is the object that can settle. Rules of all kinds, one
or two of them; installed or not; routes of their own, of included routers and of mounted applications; websockets.
What is sent and raised, what is left in the scope, what is counted and what is used is compared. And where a request
is to be decided by the scope, no object is made for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final
from uuid import UUID

import fastapi
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from reconverge import Agent
from reconverge.integrations import Guard, Outcome, by_header, by_ip
from reconverge.integrations.asgi import AsgiRequest
from reconverge.integrations.asgi import sending as of_asgi
from reconverge.integrations.asgi.routes import route_of
from reconverge.integrations.asgi.sending import BEGINNING, Decided, Sending, serve_deciding
from reconverge.integrations.fastapi import Limits
from reconverge.integrations.fastapi import limits as for_fastapi
from reconverge.integrations.web.outcome import OUTCOME
from reconverge.integrations.web.request.keys import by_ip_network, by_user
from reconverge.integrations.web.straight import Admitted, Refused
from tests.integrations.straight.compared import (
    ALL_BETWEEN,
    BANS,
    BETWEEN,
    GUARDS,
    ODD,
    Compared,
    General,
    made_of,
    plain,
    seen_in,
    with_one_of,
)
from tests.integrations.straight.test_scope import CLIENTS, HEADERS
from tests.support.applications.asking import asgi_answer, http_scope
from tests.support.effort import tried


async def _user(request: fastapi.Request = None) -> Any:  # type: ignore[assignment]
    return None if request is None else request.scope.get("user")


KEY_FUNCTIONS: Final[tuple[Any, ...]] = (
    by_header("x-key"),
    by_ip,
    by_ip_network(48),
    by_user,
    fastapi.Depends(_user),
    lambda request: request.headers.get("x-key"),
)
PLAIN: Final = plain(KEY_FUNCTIONS)
PARTS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "scope": st.sampled_from(["web", "a|b%", "web"]),
    "per_route": st.booleans(),
}
RULE: Final = st.fixed_dictionaries(PLAIN, optional=PARTS) | with_one_of(ODD, PLAIN)
RULES: Final = st.lists(RULE, min_size=1, max_size=1) | st.lists(RULE, min_size=2, max_size=2)
PATHS: Final = (
    "/",
    "/",
    "/items/1",
    "/items/2",
    "/items/a|b%",
    "/items/{number}",
    "/\n",
    "/shops/ada/items",
    "/stores/ada/items",
    "/shops/bob/items",
    "/mounted/ada/things/7",
    "/free",
    "/nowhere",
)
"""Of routes with limits; then one without, and one that leads nowhere."""
USERS: Final[tuple[Any, ...]] = (None, "ada", "ada", "", 7, UUID(int=7), "~nobody", {"sub": "eve"}, object)
ANSWERS: Final = (
    "text",
    "text",
    "fields",
    "no fields",
    "retry later",
    "stream",
    "half a stream",
    "refused",
    "fails",
    "a generator",
)
SCOPES: Final = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["http"] * 8 + ["websocket"]),
        "path": st.sampled_from(PATHS),
        "root_path": st.sampled_from(["", "", "", "/api"]),
        "method": st.sampled_from(["GET", "GET", "GET", "POST"]),
        "headers": HEADERS.filter(lambda headers: all(type(value) is bytes for _, value in headers)),
        "client": st.sampled_from([*[CLIENTS[0]] * 6, *CLIENTS[:21]]),
        "user": st.sampled_from(USERS),
    }
)
STEPS: Final = st.lists(st.tuples(BETWEEN, SCOPES, st.sampled_from(ANSWERS)), min_size=4, max_size=tried(10, long=16))


class _Bare(Response):
    """A response that says its beginning as it is told."""

    def __init__(self, headers: Any) -> None:
        super().__init__()
        self._begin = headers

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        begin = {} if self._begin is None else {"headers": self._begin}
        await send({"type": BEGINNING, "status": 203, **begin})
        await send({"type": "http.response.body", "body": b"bare"})


async def _parts(*, whole: bool) -> AsyncIterator[bytes]:
    yield b"one"
    if not whole:
        raise RuntimeError("half of it")
    yield b"two"


def answered(how: str) -> Any:
    """What a route returns."""
    if how in ("stream", "half a stream"):
        return StreamingResponse(_parts(whole=how == "stream"))
    if how == "refused":
        raise fastapi.HTTPException(429, headers={"Retry-After": "5"})
    if how == "fails":
        raise RuntimeError("as it happens")
    if how == "no fields":
        return _Bare(None)
    if how == "a generator":
        return _Bare((name, value) for name, value in [(b"x-own", b"1")])
    if how == "retry later":
        return _Bare([(b"Retry-After", b"9")])
    if how == "fields":
        return Response("own", headers={"RateLimit": '"other";r=1', "x-ratelimit-limit": "9"})
    return "text"


async def serve_generally(app: Any, scope: Any, receive: Any, send: Any, decided: Decided) -> None:
    """As an application is served whose requests may leave something to settle."""
    await Sending(send, decided).serve(app, scope, receive)


class Side(Compared):
    """An application with limits, that answers as it is told to."""

    def __init__(
        self, guard: type[Guard], rules: list[dict[str, Any]], common: dict[str, Any], *, installed: bool
    ) -> None:
        super().__init__(guard, common)
        self.serve = serve_deciding if guard is Guard else serve_generally
        self.answer = "text"
        limits = Limits(guard=self.guard)
        self.app = fastapi.FastAPI()
        if installed:
            limits.install(self.app)
        self._declare([fastapi.Depends(limits(**rule, name=f"rule-{at}")) for at, rule in enumerate(rules)])
        self.limiters = [self.agent.limiter(f"rule-{at}") for at in range(len(rules))]

    def _declare(self, limited: list[Any]) -> None:
        router, below = fastapi.APIRouter(), fastapi.FastAPI()

        @self.app.api_route("/", methods=["GET", "POST"], dependencies=limited)
        @self.app.get("/items/{number}", dependencies=limited)
        @self.app.get("/free")
        @router.get("/items", dependencies=limited)
        @below.get("/things/{number}", dependencies=limited)
        async def answer() -> Any:
            return answered(self.answer)

        @self.app.websocket("/", dependencies=limited)
        async def converse(socket: fastapi.WebSocket) -> None:
            await socket.accept()
            await socket.close()

        self.app.include_router(router, prefix="/shops/{name}")
        self.app.include_router(router, prefix="/stores/{name}")
        self.app.mount("/mounted/{name}", below)

    def said(self, drawn: dict[str, Any], answer: str) -> Any:
        """What becomes of a connection: what is sent, or the error; and what the scope says that was decided."""
        self.answer = answer
        scope: dict[str, Any] = http_scope("/", method=drawn["method"])
        scope |= {**drawn, "headers": list(drawn["headers"])}
        if drawn["user"] is None:
            del scope["user"]
        if drawn["type"] == "websocket":
            scope["subprotocols"] = []
            del scope["method"]
        sent, asked = list[Any](), False

        async def receive() -> Any:
            nonlocal asked
            if asked:
                await asyncio.Event().wait()  # for ever: the client is still there
            asked = True
            return {"type": "websocket.connect"} if drawn["type"] == "websocket" else {"type": "http.request"}

        async def send(message: Any) -> None:
            headers = message.get("headers")
            sent.append({**message, "headers": None if headers is None else list(headers)})
            if isinstance(headers, list):
                headers.clear()  # as others may do that send it on

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(for_fastapi, "serve_deciding", self.serve)
            try:
                asyncio.run(self.app(scope, receive, send))
            except Exception as error:  # noqa: BLE001  # of the application
                sent.append(repr(error))
        outcome = scope.get(OUTCOME)
        return sent, None if outcome is None else seen_in(outcome)


@settings(deadline=None, max_examples=tried(100, long=1500), suppress_health_check=[HealthCheck.too_slow])
@given(rules=RULES, bans=BANS, common=GUARDS, installed=st.sampled_from([True, True, False]), steps=STEPS)
def test_by_the_scope_and_the_general_way_the_same_is_said(
    rules: list[dict[str, Any]],
    bans: dict[str, Any],
    common: dict[str, Any],
    installed: bool,
    steps: list[tuple[str, dict[str, Any], str]],
) -> None:
    """Sent, raised, left in the scope, charged and counted, whatever comes, and whatever changes meanwhile."""
    rules = [{key: value for key, value in {**rule, **bans}.items() if key != "name"} for rule in rules]
    sides = [Side(guard, rules, common, installed=installed) for guard in (Guard, General)]
    for between, scope, answer in steps:
        for side in sides:
            side.meanwhile(between)
        by_scope, general = [side.said(scope, answer) for side in sides]

        assert general == by_scope

    assert sides[1].counted() == sides[0].counted()


def _drawn(**differently: Any) -> dict[str, Any]:
    usual = {"type": "http", "path": "/", "root_path": "", "method": "GET", "client": ("192.0.2.1", 1), "user": "ada"}
    return {**usual, "headers": [(b"x-key", b"ada")], **differently}


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("key_func", KEY_FUNCTIONS)
@pytest.mark.parametrize("parts", [{}, {"scope": "web"}, {"scope": "a|b%"}, {"per_route": False}])
def test_of_each_route_and_answer_the_same_is_said(key_func: Any, parts: dict[str, Any], installed: bool) -> None:
    """Routes that count together or on their own, whatever they are mounted at, and whatever they answer."""
    rules = [{"limits": "2/minute", "key_func": key_func, **parts}]
    sides = [Side(guard, rules, {}, installed=installed) for guard in (Guard, General)]
    drawn = [_drawn(path=path, root_path=root) for path in PATHS for root in ("", "/api")]
    drawn += [_drawn(user=user) for user in USERS] + [_drawn(type="websocket")] * 2
    drawn += [_drawn(headers=[(b"x-key", value)]) for value in (b"", b"a|b", b"a%b", b"~nobody", b"\x00", b"\xff")]
    steps = [(each, "text") for each in drawn]
    steps += [(_drawn(path=path), how) for how in ANSWERS for path in ("/", "/items/9", "/free")]
    for at, (scope, answer) in enumerate(steps):
        if at % 6 == 0:
            for side in sides:
                side.meanwhile("a minute")
        by_scope, general = [side.said(scope, answer) for side in sides]

        assert general == by_scope
    assert sides[1].counted() == sides[0].counted()


@pytest.mark.parametrize("between", ALL_BETWEEN)
@pytest.mark.parametrize("key_func", [by_header("x-key"), fastapi.Depends(_user)])
def test_what_happens_between_two_requests_is_heeded(between: str, key_func: Any) -> None:
    """From the next one on: admitted and refused."""
    rules = [{"limits": "2/minute", "key_func": key_func, "block_after": "2/minute", "block_for": "2 minutes"}]
    sides = [Side(guard, rules, {}, installed=True) for guard in (Guard, General)]
    for number in range(9):
        if number == 2:
            for side in sides:
                side.meanwhile(between)
        by_scope, general = [side.said(_drawn(), "text") for side in sides]

        assert general == by_scope
    assert sides[1].counted() == sides[0].counted()


def test_a_route_that_is_known_by_another_pattern_is_not_told_by_that() -> None:
    """One object may stand for several: what was found for one path holds for those that its pattern is about."""
    for pattern, about in [("/here", "/here"), ("/items/{number}", "/items/1")]:
        route, paths = Route(pattern, _endpoint), (about, "/elsewhere", about, "/elsewhere", pattern)
        told = [route_of({"route": route, "path": path, "endpoint": _endpoint}) for path in paths]

        assert [*[pattern, f"{pattern}#{__name__}._endpoint"] * 2, pattern] == told


async def _endpoint(_request: Any) -> Any:
    return None


# -------------------------------------------------------------------- what is not to be done


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The objects that were made for requests, or to send their responses."""
    return made_of(monkeypatch, AsgiRequest, of_asgi.Sending)


@pytest.mark.parametrize("key_func", KEY_FUNCTIONS[:-1])
@pytest.mark.parametrize("parts", [{}, {"scope": "web"}, {"per_route": False}])
def test_for_a_request_that_says_its_key_no_object_is_made(
    key_func: Any, parts: dict[str, Any], made: list[Any]
) -> None:
    """Else the comparison above would compare nothing: admitted, and refused."""
    side = Side(Guard, [{"limits": "1/minute", "key_func": key_func, **parts}], {}, installed=True)
    scopes = [{**http_scope("/", x_key="ada"), "user": "ada"} for _ in range(2)]
    statuses = [asyncio.run(asgi_answer(side.app, scope)).status for scope in scopes]

    assert [200, 429] == statuses
    assert [Admitted, Refused] == [type(scope[OUTCOME]) for scope in scopes]
    assert [] == made


# -------------------------------------------------------------------- what is decided when the response has begun


class _Settles(Outcome):
    """An outcome that notes what it is settled with."""

    def __init__(self, guard: Guard) -> None:
        super().__init__(guard)
        self.seen = list[Any]()

    @property
    def unsettled(self) -> bool:
        return True

    def finish(self, response: Any) -> None:
        self.seen.append(response)


@pytest.mark.parametrize("when", ["before", "begun", "between", "at the end"])
@pytest.mark.parametrize("ends", ["well", "badly"])
@pytest.mark.parametrize("kind", [BEGINNING, "websocket.accept"])
def test_what_turns_up_late_is_settled_as_ever(when: str, ends: str, kind: str) -> None:
    """With the status and the fields that the application has begun with."""
    messages: list[dict[str, Any]] = [
        {"type": kind, "status": 201, "headers": [(b"X-Own", b"1")]},
        {"type": "http.response.body", "body": b"one", "more_body": True},
        {"type": "http.response.body", "body": b"three"},
    ]
    served: list[Callable[..., Awaitable[None]]] = [serve_deciding, serve_generally]
    results = list[Any]()
    for serve in served:
        decided, outcome, sent = Decided(), _Settles(Guard(Agent("memory://"))), list[Any]()

        async def app(
            _scope: Any, _receive: Any, send: Any, decided: Decided = decided, outcome: _Settles = outcome
        ) -> None:
            for at, message in enumerate(messages):
                if at == ["before", "begun", "between"].index(when) if when != "at the end" else False:
                    decided.add(outcome)
                await send(message)
            if when == "at the end":
                decided.add(outcome)
            if ends == "badly":
                raise RuntimeError(ends)

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        try:
            asyncio.run(serve(app, {}, None, send, decided))  # type: ignore[arg-type]
        except RuntimeError as error:
            sent.append(repr(error))
        results.append((sent, outcome.seen))

    assert results[1] == results[0]
    assert results[0][1]
