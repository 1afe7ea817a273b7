"""Goal: in FastAPI requests are counted by what dependencies return, or by what Starlette's requests have.

Method: applications as their documentation writes them, asked as a server asks them.
"""

# Annotations are not postponed here: FastAPI reads those of a dependency, and does not find what a function contains.

from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Header, HTTPException, Request
from pydantic import BaseModel

from reconverge import Agent, InvalidSetting
from reconverge.integrations import by_header, by_user
from reconverge.integrations.asgi import RateLimitMiddleware
from reconverge.integrations.fastapi import Limits
from reconverge.integrations.web.bound_rule import MISSED_MAX
from tests.support.applications.asking import ADA, BOB, ask_asgi, statuses


class TutorialUser(BaseModel):
    """The user of FastAPI's tutorial."""

    username: str
    email: str | None = None


async def current_user(login: Annotated[str | None, Header()] = None) -> TutorialUser | None:
    """Who has that login; a forged one is answered with 401."""
    if login == "forged":
        raise HTTPException(401, "who are you?")
    return None if login is None else TutorialUser(username=login)


def api_key(login: Annotated[str, Header()]) -> str:
    return login


def claims(login: Annotated[str, Header()]) -> dict[str, object]:
    return {"iss": "https://issuer", "sub": login}


def serving(limited: Any, limits: Limits) -> FastAPI:
    app = FastAPI()
    limits.install(app)

    @app.get("/", dependencies=[Depends(limited)])
    async def answer(_user: Annotated[TutorialUser | None, Depends(current_user)]) -> str:
        return "here"

    return app


@pytest.mark.parametrize(
    "key",
    [
        Depends(current_user),
        Annotated[TutorialUser | None, Depends(current_user)],
        Depends(api_key),
        Depends(claims),
    ],
    ids=["user", "annotated", "key", "claims"],
)
@pytest.mark.parametrize("everywhere", [False, True], ids=["of a rule", "of all"])
def test_each_user_of_a_dependency_has_a_quota(agent: Agent, key: Any, everywhere: bool) -> None:
    """Whether the dependency returns a user, a key or the claims of a token, for one limit or for all of them."""
    limits = Limits(agent, key_func=key) if everywhere else Limits(agent)
    limited = limits("2/minute") if everywhere else limits("2/minute", key_func=key)
    app = serving(limited, limits)

    ada = ask_asgi(app, times=3, login="ada")
    bob = ask_asgi(app, times=3, login="bob")

    assert [200, 200, 429] == statuses(ada)
    assert [200, 200, 429] == statuses(bob)


def test_a_request_without_a_user_is_counted_by_its_address(agent: Agent) -> None:
    """Any other key function does so; an error of the dependency is answered as ever."""
    limits = Limits(agent)
    app = serving(limits("2/minute", key_func=Depends(current_user)), limits)

    assert [200, 200, 429] == statuses(ask_asgi(app, times=3, client=ADA))
    assert [200, 200, 429] == statuses(ask_asgi(app, times=3, client=BOB))
    assert [401] == statuses(ask_asgi(app, login="forged"))


def test_a_dependency_is_asked_once_for_a_request(agent: Agent) -> None:
    """Though the route and two limits depend on it."""
    asked: list[str] = []

    def user(login: Annotated[str, Header()]) -> str:
        asked.append(login)
        return login

    limits, app = Limits(agent, key_func=Depends(user)), FastAPI()

    @app.get("/", dependencies=[Depends(limits("5/minute")), Depends(limits("9/hour"))])
    async def answer(name: Annotated[str, Depends(user)]) -> str:
        return name

    assert [200] == statuses(ask_asgi(app, login="ada"))
    assert ["ada"] == asked


def test_a_dependency_that_is_none_is_an_error(agent: Agent) -> None:
    """`Depends()` alone does not say what to ask."""
    with pytest.raises(InvalidSetting, match=r"has no dependency; write for example Depends\(current_user\)"):
        Limits(agent, key_func=Depends())


@pytest.mark.parametrize("installed", ["dependency", "middleware"])
@pytest.mark.parametrize(
    ("by", "differs"),
    [
        (lambda request: request.client.host, "client"),
        (lambda request: request.headers["X-API-Key"], "header"),
        (lambda request: request.query_params["who"], "query"),
        (lambda request: request.cookies["session"], "cookie"),
    ],
    ids=["client.host", "headers", "query_params", "cookies"],
)
def test_key_functions_that_know_starlettes_requests_find_their_keys(
    agent: Agent, installed: str, by: Any, differs: str
) -> None:
    """Key functions of slowapi are written so; two clients that differ there have a quota each."""
    app = FastAPI()
    limits = Limits(agent)
    limited = [Depends(limits("1/minute", key_func=by))] if installed == "dependency" else []

    @app.get("/", dependencies=limited)
    async def answer() -> str:
        return "here"

    if installed == "middleware":
        app.add_middleware(RateLimitMiddleware, limits="1/minute", key_func=by, agent=agent)

    def ask(who: str) -> int:
        headers: dict[str, Any] = (
            {"x_api_key": who, "cookie": f"session={who}"} if differs in {"header", "cookie"} else {}
        )
        client = {"ada": ADA, "bob": BOB}[who] if differs == "client" else ADA
        return ask_asgi(app, f"/?who={who}" if differs == "query" else "/", client=client, **headers)[0].status

    assert [200, 429, 200, 429] == [ask("ada"), ask("ada"), ask("bob"), ask("bob")]


def test_a_port_is_told_of_the_peer_alone(agent: Agent) -> None:
    """The address of a client behind a proxy has none that is known."""
    ports: list[Any] = []

    def by_port(request: Request) -> str:
        assert request.client is not None
        ports.append(request.client.port)
        return request.client.host

    for proxies in ([], [ADA]):
        limits, app = Limits(agent, trusted_proxies=proxies), FastAPI()

        @app.get("/", dependencies=[Depends(limits("9/minute", key_func=by_port))])
        async def answer() -> str:
            return "here"

        ask_asgi(app, client=ADA, x_forwarded_for=BOB)

    assert isinstance(ports[0], int)
    assert [None] == ports[1:]


def test_what_a_request_does_not_have_is_named_at_the_first_request(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """With what it has instead; the request is counted by its address."""

    def misspelt(request: Any) -> str:
        name: str = request.remote_addr
        return name

    limits = Limits(agent)
    app = serving(limits("1/minute", key_func=misspelt), limits)

    assert [200, 429] == statuses(ask_asgi(app, times=2))
    assert "the request has no 'remote_addr'; its attributes are `method`, `path`, `route`, `client`" in caplog.text


def test_a_key_function_that_never_finds_a_user_is_told_of_once(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    """`by_user` where users come from a dependency: all are counted by address, and the message says what to write."""
    limits = Limits(agent)
    app = serving(limits("100/minute", key_func=by_user), limits)

    ask_asgi(app, times=MISSED_MAX - 1, login="ada")
    assert "" == caplog.text
    ask_asgi(app, times=3 * MISSED_MAX, login="ada")

    assert 1 == caplog.text.count("by_user has found no key in any of the first 10 requests")
    assert "write key_func=Depends(current_user)" in caplog.text
    assert "in Django and Starlette, put AuthenticationMiddleware above ours in the list" in caplog.text


def test_a_key_function_that_has_found_a_key_is_not_told_of(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    """Most requests of many an application have none."""
    limits = Limits(agent)
    app = serving(limits("100/minute", key_func=by_header("login")), limits)

    ask_asgi(app, login="ada")
    ask_asgi(app, times=3 * MISSED_MAX)

    assert "" == caplog.text
