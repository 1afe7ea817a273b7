"""Goal: a path costs a server the same whether one rule asks about it or thirty, and no more than its length.

Method: applications of every framework, in this process, behind thirty rules about other paths. How often a path is
read is counted by the calls of the normalization of Unicode that the package makes: each reading makes one.
"""

from __future__ import annotations

import asyncio
import sys
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final
from urllib.parse import quote

import flask
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient as AiohttpClient
from aiohttp.test_utils import TestServer as AiohttpServer
from django.test import Client as DjangoClient
from django.test import override_settings
from fastapi import FastAPI
from werkzeug.exceptions import NotFound

import reconverge
from reconverge.errors import InvalidSetting
from reconverge.integrations import Guard, PlainRequest, Rule
from reconverge.integrations.aiohttp import Limits as AiohttpLimits
from reconverge.integrations.asgi import RateLimitMiddleware
from reconverge.integrations.web.request.read_path import MARKS_MAX, PATH_CHARACTERS_MAX, normal_forms
from reconverge.integrations.wsgi import RateLimitMiddleware as WsgiMiddleware
from tests.support.applications import django_project
from tests.support.applications.asking import ask_asgi, ask_wsgi, converse, statuses, websocket_scope

RULES: Final = 30
STRANGE: Final = "/strange/\u00e9//x"
"""It leads nowhere, and may be spelled otherwise."""
PACKAGE: Final = str(Path(reconverge.__file__).parent)
TOO_LONG: Final = f"/{'x' * PATH_CHARACTERS_MAX}"


def rules(number: int = RULES) -> list[Rule]:
    """Rules about other paths."""
    return [Rule(limits="1/hour", name=f"r{each}", paths=[f"/thing/{each}"]) for each in range(number)]


def readings_in(work: Callable[[], object]) -> int:
    """How often the package normalizes a text in the course of some work."""
    count = 0

    def note(frame: FrameType, event: str, called: Any) -> None:
        nonlocal count
        if event == "c_call" and called is unicodedata.normalize and frame.f_code.co_filename.startswith(PACKAGE):
            count += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


async def nowhere(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 404, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def by_asgi(path: str, declared: Sequence[Rule], times: int) -> list[int]:
    return statuses(ask_asgi(RateLimitMiddleware(nowhere, rules=declared, agent="memory://"), path, times=times))


def by_fastapi(path: str, declared: Sequence[Rule], times: int) -> list[int]:
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, rules=declared, agent="memory://")
    return statuses(ask_asgi(app, path, times=times))


def by_wsgi(path: str, declared: Sequence[Rule], times: int) -> list[int]:
    limited = WsgiMiddleware(NotFound(), rules=declared, agent="memory://")
    return statuses(ask_wsgi(limited, path.encode().decode("latin-1"), times=times))


def by_flask(path: str, declared: Sequence[Rule], times: int) -> list[int]:
    app = flask.Flask(__name__)
    limited: Any = WsgiMiddleware(app.wsgi_app, rules=declared, agent="memory://")
    app.wsgi_app = limited  # type: ignore[method-assign]
    client = app.test_client()
    return [client.get(quote(path)).status_code for _ in range(times)]


def by_django(path: str, declared: Sequence[Rule], times: int) -> list[int]:
    said = [{"LIMITS": "1/hour", "NAME": rule.name, "PATHS": rule.paths} for rule in declared]
    with override_settings(RECONVERGE={"HUB": "memory://", "RULES": said}, ROOT_URLCONF=django_project.HERE):
        client = DjangoClient(raise_request_exception=False)
        return [client.get(quote(path)).status_code for _ in range(times)]


def by_aiohttp(path: str, declared: Sequence[Rule], times: int) -> list[int]:
    async def run() -> list[int]:
        app = web.Application()
        AiohttpLimits(rules=declared, agent="memory://").install(app)
        server = AiohttpServer(app)
        async with AiohttpClient(server) as client:
            return [(await client.get(path)).status for _ in range(times)]

    return asyncio.run(run())


WAYS: Final = [by_asgi, by_fastapi, by_wsgi, by_flask, by_django, by_aiohttp]
Way = Callable[[str, Sequence[Rule], int], list[int]]


@pytest.mark.parametrize("way", WAYS)
def test_a_path_is_read_once_for_all_rules(way: Way) -> None:
    """And not once for each of thirty, whatever framework has received it."""
    answers: list[int] = []
    readings = readings_in(lambda: answers.extend(way(STRANGE, rules(), 1)))

    assert [404] == answers
    assert 1 == readings


@pytest.mark.parametrize("way", [by_asgi, by_fastapi, by_wsgi, by_flask, by_django])
def test_a_path_beyond_the_bound_counts_under_each_rule(way: Way) -> None:
    """It is not read, and passes no limit: of the second request there is none left, and of one for a plain path, too.

    aiohttp's own server accepts no such path.
    """
    assert [404, 429] == way(TOO_LONG, rules(), 2)


def rules_about(guard: Guard, path: str, *paths: str) -> list[str]:
    """The names of those rules, about one path each, that a request falls under."""
    declared = [guard.declare(Rule(limits="1/hour", name=each.strip("/"), paths=[each])) for each in paths]
    return [ruling.name for ruling in guard.check(PlainRequest(path=path, client="192.0.2.1"), declared).rulings]


def test_the_longest_path_is_read(guard: Guard) -> None:
    """Of 8192 characters; one more, and it is under each rule."""
    longest = f"/a{'/' * (PATH_CHARACTERS_MAX - 2)}"

    assert ["a"] == rules_about(guard, longest, "/a", "/b")
    assert ["a", "b"] == rules_about(guard, f"{longest}/", "/a", "/b")


def test_a_path_that_becomes_too_long_counts_under_each_rule(guard: Guard) -> None:
    """One character may stand for eighteen others."""
    grows = "\ufdfa" * (PATH_CHARACTERS_MAX // 18)

    assert [] == rules_about(guard, f"/{grows}", "/a", "/b")
    assert ["a", "b"] == rules_about(guard, f"/{grows}{grows}", "/a", "/b")


@pytest.mark.parametrize("mark", ["\u0301", "\u0323", "\uff9e", "\u0f73"])
def test_a_row_of_marks_is_not_sorted(guard: Guard, mark: str) -> None:
    """More than thirty accents in a row: sorting them takes the square of their number."""
    assert [] == rules_about(guard, f"/x{mark * MARKS_MAX}", "/a", "/b")
    assert ["a", "b"] == rules_about(guard, f"/x{mark * (MARKS_MAX + 1)}", "/a", "/b")


def test_no_character_that_becomes_a_mark_is_missed() -> None:
    """Of all that there are, whatever Unicode this Python knows; a row of any makes no form longer than its bound."""
    becoming = [
        chr(number)
        for number in range(sys.maxunicode + 1)
        if unicodedata.combining(unicodedata.normalize("NFKD", chr(number))[0])
    ]
    read = [mark for mark in becoming if list(normal_forms(f"/{mark * (MARKS_MAX + 1)}"))]

    assert [] == read
    assert len(becoming) > 900


def test_a_router_is_asked_once_for_all_rules(guard: Guard) -> None:
    """Also one that fails, of which each rule is told."""
    asked = 0

    class Asking(PlainRequest):
        def seek_templates(self) -> Sequence[str]:
            nonlocal asked
            asked += 1
            if self.path.startswith("/failing"):
                raise KeyError("a converter's mistake")
            return ("/other",)

    declared = [guard.declare(rule) for rule in rules()]
    guard.check(Asking(path="/odd%"), declared)
    of_odd, asked = asked, 0
    guard.check(Asking(path="/failing%", client="192.0.2.1"), declared)

    assert (1, 1) == (of_odd, asked)
    assert {"KeyError": RULES} == guard.stats().failures


def test_the_messages_of_a_websocket_do_not_read_its_path_again() -> None:
    """A client writes a path once, and messages as long as it likes."""
    messages = 5
    sent: list[str] = []

    async def echo(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        sent.extend([(await receive())["type"] for _ in range(messages)])

    app = RateLimitMiddleware(echo, messages=Rule(limits="9/hour", paths=["/elsewhere"]), agent="memory://")
    readings = readings_in(lambda: asyncio.run(converse(app, websocket_scope(STRANGE), *["x"] * messages)))

    assert ["websocket.receive"] * messages == sent
    assert 1 == readings


def test_nor_do_those_of_aiohttp() -> None:
    """Whose handlers count them."""
    messages = 5

    async def run() -> list[str]:
        limits = AiohttpLimits(agent="memory://")
        counted = limits.messages("9/hour", paths=["/elsewhere"])

        async def echo(request: web.Request) -> web.WebSocketResponse:
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            async for message in counted(request, socket):
                await socket.send_str(message.data)
            return socket

        app = web.Application()
        app.router.add_get(STRANGE, echo)
        limits.install(app)
        async with AiohttpClient(AiohttpServer(app)) as client, client.ws_connect(STRANGE) as socket:
            for number in range(messages):
                await socket.send_str(str(number))
            return [(await socket.receive()).data for _ in range(messages)]

    said: list[str] = []
    readings = readings_in(lambda: said.extend(asyncio.run(run())))

    assert list(map(str, range(messages))) == said
    assert 1 == readings


@pytest.mark.parametrize("method", ["X" * 65, "X" * 64])
def test_of_a_method_only_so_much_is_read_as_a_rule_may_name(guard: Guard, method: str) -> None:
    """A rule names one of at most 64 characters, and a longer one is none of these."""
    limited = RateLimitMiddleware(nowhere, rules=[Rule(limits="1/hour", methods=["X" * 64])], guard=guard)
    answers = ask_asgi(limited, method=method, times=2)

    assert [404, 429 if len(method) == 64 else 404] == statuses(answers)
    with pytest.raises(InvalidSetting, match="is not a valid method"):
        Rule(limits="1/hour", methods=["X" * 65])


def test_a_rule_has_no_path_that_is_not_read() -> None:
    """It would be about every request of that length, and no other."""
    with pytest.raises(InvalidSetting, match="longer than 8192"):
        Guard("memory://").declare(Rule(limits="1/hour", paths=[TOO_LONG]))
