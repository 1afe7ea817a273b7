"""Goal: limits are dependencies like any other, and every response says what they say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, HTTPException, Request, WebSocket
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from reconverge import Agent, InvalidSetting, Limit
from reconverge.clock import ManualClock
from reconverge.integrations import (
    SPENT,
    Outcome,
    by_header,
    by_ip,
    by_ip_network,
    by_path_parameter,
    by_route,
    together,
)
from reconverge.integrations.asgi import RateLimitMiddleware
from reconverge.integrations.fastapi import Limits, TooManyRequests
from tests.integrations.frameworks.test_asgi import tokens
from tests.support.applications.asking import (
    ADA,
    BOB,
    asgi_answer,
    ask_asgi,
    converse,
    http_scope,
    statuses,
    websocket_scope,
)
from tests.support.applications.webserver import check_fields


@pytest.fixture
def limits(agent: Agent) -> Limits:
    """Limits that are not installed in any application yet."""
    return Limits(agent)


@pytest.fixture
def app(limits: Limits) -> FastAPI:
    app = FastAPI()
    limits.install(app)
    return app


@pytest.mark.parametrize("kind", ["async", "sync", "own response", "stream"])
def test_endpoints_of_any_kind_are_limited(app: FastAPI, limits: Limits, kind: str) -> None:
    """Each response has fields that parse, with any return value, and a refusal has problem details."""
    limited = [Depends(limits("2/minute"))]
    if kind == "async":

        @app.get("/", dependencies=limited)
        async def answer() -> str:
            return "here"
    elif kind == "sync":

        @app.get("/", dependencies=limited)
        def answer_in_a_thread() -> str:
            return "here"
    elif kind == "own response":

        @app.get("/", dependencies=limited)
        async def answer_itself() -> PlainTextResponse:
            return PlainTextResponse("here")
    else:

        @app.get("/", dependencies=limited)
        async def stream() -> StreamingResponse:
            return StreamingResponse(iter(["he", "re"]))

    answers = [*ask_asgi(app, times=3), *ask_asgi(app, client=BOB)]

    assert [200, 200, 429, 200] == statuses(answers)
    assert b'"violated-policies":["2/minute"]' in answers[2].body
    assert "application/problem+json" == answers[2].headers["content-type"]
    for answered in answers:
        check_fields(answered.headers, refused=answered.status == 429)


def test_each_route_counts_on_its_own_and_those_of_a_scope_together(app: FastAPI, limits: Limits) -> None:
    """One dependency on many routes is one limit, counted for each of them, by its pattern; a scope is one count."""
    each, all_of_them = Depends(limits("1/minute")), Depends(limits.shared_limit("2/minute", "api"))

    @app.get("/one/{number}", dependencies=[each])
    @app.get("/two", dependencies=[each])
    @app.get("/three", dependencies=[all_of_them])
    @app.get("/four", dependencies=[all_of_them])
    async def answer() -> str:
        return "here"

    paths = ["/one/1", "/two", "/one/2", "/three", "/four", "/three"]

    assert [200, 200, 429, 200, 200, 429] == [ask_asgi(app, path)[0].status for path in paths]


def test_routers_and_applications_take_limits_too(agent: Agent) -> None:
    """And those of a route come on top: all are told in one field, the binding one first."""
    limits = Limits(agent)
    app = FastAPI(dependencies=[Depends(limits.shared_limit("9/minute", "everything"))])
    limits.install(app)
    router = APIRouter(dependencies=[Depends(limits("5/minute"))])

    @router.get("/", dependencies=[Depends(limits("2/minute"))])
    async def answer() -> str:
        return "here"

    app.include_router(router)
    answers = ask_asgi(app, times=3)

    assert [200, 200, 429] == statuses(answers)
    assert '"2/minute";r=1' == answers[0].headers["ratelimit"].partition(";t=")[0]
    assert 3 == answers[0].headers["ratelimit"].count(";r=")
    check_fields(answers[2].headers, refused=True)
    assert 2 == agent.limiter("everything").usage(f"everything|{ADA}").own  # what was refused later was given back


def test_a_key_function_may_say_that_nobody_is_logged_in(agent: Agent) -> None:
    """FastAPI's own exceptions pass."""

    async def user(request: Any) -> str:
        if request.header("authorization") is None:
            raise HTTPException(401)
        return "ada"

    limits, app = Limits(agent, key_func=user), FastAPI()

    @app.get("/", dependencies=[Depends(limits("1/minute"))])
    async def answer() -> str:
        return "here"

    assert [401] == statuses(ask_asgi(app))
    assert [200, 429] == statuses(ask_asgi(app, times=2, authorization="x"))


def test_the_outcome_is_the_value_of_the_dependency(app: FastAPI, limits: Limits, agent: Agent) -> None:
    """An endpoint spends by it, also in a stream and in a background task; what is left is given back after both."""
    model = limits("100/minute", name="tokens", cost=50, settle=SPENT, per_route=False)
    given = Depends(model)

    @app.get("/")
    async def generate(tasks: BackgroundTasks, outcome: Outcome = given) -> StreamingResponse:
        async def words() -> AsyncIterator[str]:
            for word in ("a", "b", "c"):
                outcome.spend(2)
                yield word

        tasks.add_task(lambda: outcome.spend(77))
        return StreamingResponse(words(), background=tasks)

    ask_asgi(app)

    assert 83 == tokens(agent)


def test_a_handler_of_the_application_may_answer_refusals(app: FastAPI, limits: Limits) -> None:
    """Any exception may have one; the fields are there all the same."""

    @app.exception_handler(TooManyRequests)
    async def answer_refusal(_request: Request, error: TooManyRequests) -> JSONResponse:
        return JSONResponse({"sorry": True}, error.status_code, headers=dict(error.headers or {}))

    @app.get("/", dependencies=[Depends(limits("1/minute"))])
    async def answer() -> str:
        return "here"

    refused = ask_asgi(app, times=2)[1]

    assert (429, b'{"sorry":true}') == (refused.status, refused.body)
    check_fields(refused.headers, refused=True)


def test_limits_that_are_not_installed_limit_all_the_same(limits: Limits) -> None:
    """FastAPI's own responses have the fields, refusals too; settling by the response is not possible."""
    app = FastAPI()

    @app.get("/", dependencies=[Depends(limits("1/minute"))])
    async def answer() -> str:
        return "here"

    @app.get("/settled", dependencies=[Depends(limits("1/minute", deduct_when=lambda _response: True))])
    async def answer_settled() -> str:
        return "here"

    answers = ask_asgi(app, times=2)

    assert [200, 429] == statuses(answers)
    for answered in answers:
        check_fields(answered.headers, refused=answered.status == 429)
    with pytest.raises(InvalidSetting, match=r"needs limits\.install"):
        ask_asgi(app, "/settled")


def test_websockets_are_limited_by_a_dependency(app: FastAPI, limits: Limits) -> None:
    """Before they are accepted."""

    @app.websocket("/ws", dependencies=[Depends(limits("1/minute"))])
    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        await socket.close()

    accepted = asyncio.run(converse(app, websocket_scope()))
    refused = asyncio.run(converse(app, websocket_scope()))

    assert "websocket.accept" == accepted[0]["type"]
    assert [("websocket.close", 1008)] == [(message["type"], message["code"]) for message in refused]


def test_names_do_not_depend_on_the_order_of_imports(agent: Agent) -> None:
    """In another process dependencies may be made in another order, and must be the same limits."""
    limits = Limits(agent)
    for made in ("5/minute", "1 per second; 9/hour", "5/minute"):
        limits(made)
    limits("5/minute", key_func=by_header("x-key"))
    limits("7/minute", key_func=by_path_parameter("tenant"), scope="tenants")

    assert {
        "5/minute",
        "1-per-second-9/hour",
        "1-per-second-9/hour#2",
        "5/minute.by_header.x-key",
        "tenants",
    } == set(agent.stats().limits)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (by_header("x-tenant"), by_header("x-user")),
        (together(by_header("x-tenant"), by_route), together(by_header("x-user"), by_route)),
        (by_ip_network(64), by_ip_network(48)),
    ],
    ids=["headers", "several things", "networks"],
)
def test_limits_that_count_by_different_things_share_no_keys(
    app: FastAPI, limits: Limits, one: Any, other: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that chooses what one of them counts by spends nobody's quota of the other."""

    @app.get("/", dependencies=[Depends(limits("2/minute", key_func=one)), Depends(limits("2/minute", key_func=other))])
    async def answer() -> str:
        return "here"

    stranger = [*ask_asgi(app, x_tenant="a", x_user="acme"), *ask_asgi(app, x_tenant="b", x_user="acme")]
    customer = ask_asgi(app, client=BOB, x_tenant="acme", x_user="ann")

    assert [200, 200, 200] == statuses([*stranger, *customer])
    assert "two limits with different key functions" not in caplog.text


def test_the_key_function_of_a_limit_is_told_from_that_of_all(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    """An address that somebody sends as his key is not the address that another limit counts by."""
    limits = Limits(agent, key_func=by_header("x-key"))
    limits("5/minute", key_func=by_ip)
    limits("5/minute")

    assert {"5/minute", "5/minute.by_ip"} == set(agent.stats().limits)
    assert "two limits with different key functions" not in caplog.text


def tenant() -> str:
    return "acme"


def test_two_key_functions_of_one_name_are_told_of(limits: Limits, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing but their code tells them apart, and it is another one with every version of the application."""
    for _ in range(2):
        limits("5/minute", key_func=lambda request: request.header("x-tenant"))
        limits("5/minute", key_func=Depends(tenant))
    before = caplog.text
    limits("5/minute", key_func=lambda request: request.header("x-user"))

    assert "two limits with different key functions" not in before
    assert "'5/minute.key'" in caplog.text


def test_routes_of_routers_are_told_apart_by_their_prefixes(agent: Agent) -> None:
    """Whether a middleware asks, before FastAPI has looked for them, or a dependency: the pattern is whole."""
    limits, app, outer, inner = Limits(agent), FastAPI(), APIRouter(prefix="/shop"), APIRouter()

    @inner.get("/items/{number}", dependencies=[Depends(limits("2/minute", name="inner"))])
    @outer.get("/items/{number}", dependencies=[Depends(limits("2/minute", name="outer"))])
    async def answer(number: int) -> int:
        return number

    outer.include_router(inner, prefix="/{tenant}/one")
    outer.include_router(inner, prefix="/two")
    app.include_router(outer)
    app.add_middleware(RateLimitMiddleware, limits="9/minute", agent=agent, key_func=by_route)
    paths = ["/shop/ada/one/items/1", "/shop/bob/one/items/2", "/shop/two/items/1", "/shop/items/1"]

    assert [200, 200, 429, 200, 200] == [
        ask_asgi(app, path)[0].status for path in (*paths[:2], "/shop/eve/one/items/3", *paths[2:])
    ]
    patterns = ["/shop/items/{number}", "/shop/two/items/{number}", "/shop/{tenant}/one/items/{number}"]
    assert patterns == sorted(agent.limiter("requests").control.table.cells)
    assert [f"GET {pattern}|{ADA}" for pattern in patterns[1:]] == sorted(agent.limiter("inner").control.table.cells)


def test_mounted_applications_have_routes_of_their_own(agent: Agent) -> None:
    """With the path that they are mounted at."""
    limits = Limits(agent)
    app, mounted = FastAPI(), FastAPI()

    @mounted.get("/items", dependencies=[Depends(limits("1/minute", name="items"))])
    @app.get("/items", dependencies=[Depends(limits("1/minute", name="items"))])
    async def answer() -> str:
        return "here"

    app.mount("/sub", mounted)

    assert [200, 200, 429] == [ask_asgi(app, path)[0].status for path in ("/items", "/sub/items", "/sub/items")]


def test_what_clients_write_is_no_part_of_where_an_application_is_mounted(agent: Agent) -> None:
    """Else each would have a count of his own for whatever he makes up, as often as he likes."""
    limits, app, inner, innermost = Limits(agent), FastAPI(), FastAPI(), FastAPI()

    @inner.get("/items/{number}", dependencies=[Depends(limits("2/minute"))])
    @innermost.get("/items", dependencies=[Depends(limits("2/minute"))])
    async def items() -> None: ...

    inner.mount("/parts/{part:int}", innermost)
    app.mount("/shops/{tenant}", inner)
    limits.install(app)
    answers = [ask_asgi(app, f"/shops/{number}/items/{number}")[0] for number in range(3)]
    answers += [ask_asgi(app, f"/shops/{number}/parts/0{number}/items")[0] for number in range(3)]

    assert [200, 200, 429] * 2 == statuses(answers)
    routes = {key.rpartition("|")[0] for key in agent.limiter("2/minute").control.table.cells}
    assert {"GET /{tenant}/items/{number}", "GET /{tenant}/{part}/items"} == routes


def test_limits_that_are_not_installed_are_charged_together_or_not_at_all(agent: Agent) -> None:
    """The charge of one dependency is given back when the next one refuses."""
    limits, app = Limits(agent), FastAPI()
    wide, tight = limits("9/minute", name="wide"), limits("1/minute", name="tight")

    @app.get("/", dependencies=[Depends(wide), Depends(tight)])
    async def items() -> None: ...

    assert [200, 429, 429] == statuses(ask_asgi(app, times=3))
    assert {1} == {agent.limiter(name).usage(f"GET /|{ADA}").own for name in ("wide", "tight")}


async def test_a_cancelled_endpoint_is_settled(app: FastAPI, limits: Limits, agent: Agent) -> None:
    """Its client has gone before it began to answer."""
    begun = asyncio.Event()

    @app.get(
        "/", dependencies=[Depends(limits("9/minute", name="tokens", per_route=False, cost=5, settle=lambda _: 1))]
    )
    async def answer() -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    task = asyncio.create_task(asgi_answer(app, http_scope("/")))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert 1 == tokens(agent)


def test_what_needs_to_be_installed_charges_nothing_without_that(agent: Agent) -> None:
    """The request fails, and says what to write; what other limits have charged is given back, too."""
    limits = Limits(agent)
    app = FastAPI(dependencies=[Depends(limits("9/minute", name="all"))])

    @app.get("/", dependencies=[Depends(limits("9/minute", name="own", settle=SPENT))])
    async def answer() -> str:
        return "here"

    with pytest.raises(InvalidSetting, match=r"limits\.install"):
        ask_asgi(app)

    assert [0, 0] == [agent.limiter(name).usage(f"GET /|{ADA}").own for name in ("all", "own")]


def test_an_attempt_that_the_minute_refuses_counts_in_an_hour_that_counts_every_attempt(
    app: FastAPI, limits: Limits, clock: ManualClock
) -> None:
    """A client that goes on after two a minute has used up its five an hour; one that waits has not."""
    every_attempt = Limit(5, 3600, algorithm="sliding-log", count_refused=True)

    @app.get("/", dependencies=[Depends(limits([Limit(2, 60), every_attempt], key_func=by_header("x-key")))])
    async def answer() -> str:
        return "here"

    def ask(key: str, times: int) -> list[tuple[int, str | None]]:
        answers = ask_asgi(app, times=times, x_key=key)
        return [(each.status, each.headers.get("retry-after")) for each in answers]

    first = {key: ask(key, times) for key, times in {"goes on": 5, "waits": 2}.items()}
    clock.advance(300)
    later = {key: ask(key, 1) for key in first}

    assert [200, 200, 429, 429, 429] == [status for status, _ in first["goes on"]]
    assert {"goes on": [(429, "3300")], "waits": [(200, None)]} == later


def test_a_rule_of_several_quotas_needs_no_name_however_long_they_are(app: FastAPI, limits: Limits) -> None:
    """A name that is made up of all they say is cut, so that each quota's number still fits behind it."""
    quotas = [Limit(2 + number, 3600 + number, algorithm="sliding-log", count_refused=True) for number in range(16)]

    @app.get("/", dependencies=[Depends(limits(quotas))])
    async def answer() -> str:
        return "here"

    assert [200, 200, 429] == statuses(ask_asgi(app, times=3))
