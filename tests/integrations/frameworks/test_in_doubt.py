"""Goal: a request in doubt asks the hub if its framework's settings say so; wrong ones are told, nothing else waits.

Method: a Redis knows of a node which has used up the limit of a client that the application under test has never heard
of. Or the Redis is stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import flask
import pytest
from django.core.exceptions import ImproperlyConfigured
from fastapi import Depends, FastAPI

from reconverge import Agent
from reconverge.integrations import fastapi as of_fastapi
from reconverge.integrations import flask as of_flask
from reconverge.integrations.config import load
from reconverge.integrations.config.positions import InvalidConfiguration
from reconverge.integrations.django.settings import configured as what_is_said
from reconverge.integrations.grpc.interceptors import by_metadata
from tests.integrations.frameworks import test_django, test_every_framework, test_grpc
from tests.support.agents import until_near
from tests.support.applications.asking import ADA, BOB, HERE, asgi_answer, ask_wsgi, http_scope
from tests.support.servers import RedisServer

PATIENT = test_every_framework.PATIENT
BRIEF = "ask:50ms"
BRIEF_S = 0.05


@pytest.mark.parametrize("serving", [test_grpc.on_threads, test_grpc.in_a_loop])
def test_calls_that_come_at_once_and_fit_exactly_are_all_admitted_by_grpc(
    serving: test_grpc.Serves, redis_server: RedisServer
) -> None:
    """Of one new client after the other, as many as the server has threads; and of the next ones none."""
    calls = test_grpc.THREADS
    by_client = by_metadata("x-client")
    start = Barrier(calls)

    def call(_: int) -> list[str]:
        found = []
        for number in range(5):
            start.wait()
            found += test_grpc.codes(address, "unary_unary", metadata=(("x-client", f"client {number}"),))
        return found

    with (
        Agent(redis_server.url) as agent,
        serving(f"{calls}/day", agent=agent, key_func=by_client, in_doubt=PATIENT) as address,
        ThreadPoolExecutor(calls) as threads,
    ):
        burst, more = (zip(*threads.map(call, range(calls)), strict=True) for _ in range(2))

        assert [{"OK"}] * 5 == [set(of_one) for of_one in burst]
        assert [{"RESOURCE_EXHAUSTED"}] * 5 == [set(of_one) for of_one in more]


def test_a_wrong_setting_of_django_is_told_with_its_place() -> None:
    """Of all rules, and of one."""
    rule = {"LIMITS": "5/hour", "IN_DOUBT": "wait:5ms"}
    with test_django.configured(IN_DOUBT="25ms", LIMITS="5/hour"), pytest.raises(ImproperlyConfigured) as of_all:
        what_is_said()
    with test_django.configured(RULES=[rule]), pytest.raises(ImproperlyConfigured) as of_one:
        what_is_said()

    assert str(of_all.value).startswith("RECONVERGE['IN_DOUBT']: in_doubt='25ms': is neither")
    assert str(of_one.value).startswith("RECONVERGE['RULES'][0]['IN_DOUBT']: in_doubt='wait:5ms': is neither")


def test_a_file_says_what_is_done_in_doubt(used_up: str, tmp_path: Path) -> None:
    """For all that its agent decides."""
    path = tmp_path / "limits.toml"
    found: list[bool] = []
    for said in (PATIENT, "refuse"):
        path.write_text(f"hub = '{used_up}'\nin_doubt = '{said}'\n")
        agent = load(path).agent
        with test_every_framework.asgi("5/hour", agent=agent) as ask:
            found.append(ask({}) == [200])
        agent.stop()

    assert [False, True] == found


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("'ask'", "is neither 'refuse' nor a time"),
        ("'ask:11s'", "is not between 0 and 10 s"),
        ("25", "must be a string"),
    ],
)
def test_a_wrong_file_is_told_with_its_line(said: str, problem: str, tmp_path: Path) -> None:
    """And the field."""
    path = tmp_path / "limits.toml"
    path.write_text(f"namespace = 'shop'\nin_doubt = {said}\n")

    with pytest.raises(InvalidConfiguration, match=rf"^limits\.toml, line 2: in_doubt.*{problem}"):
        load(path)


async def test_requests_that_are_certain_go_on_while_one_asks(
    own_redis: RedisServer, make_agent: Callable[..., Agent]
) -> None:
    """The loop of a FastAPI application is not held up by a hub that does not answer."""
    agent = make_agent(own_redis.url)
    app, limits = FastAPI(), of_fastapi.Limits(agent, in_doubt=BRIEF)
    limits.install(app)

    @app.get("/", dependencies=[Depends(limits("100000/second", name="requests"))])
    async def answer() -> str:
        return "here"

    before: list[int] = []

    def asked() -> Mapping[Any, int]:
        return agent.stats().limits["requests"].asks.results

    try:
        assert (await asgi_answer(app, http_scope("/", client=BOB))).status == 200
        while agent.stats().exchanges[0].pending:  # noqa: ASYNC110  # no event tells of it
            await asyncio.sleep(0.01)
        before.append(asked()["timeout"])
        own_redis.pause()
        asking = asyncio.create_task(asgi_answer(app, http_scope("/", client=ADA)))
        served = 0
        while not asking.done():
            served += (await asgi_answer(app, http_scope("/", client=BOB))).status == 200
            await asyncio.sleep(0)
        assert asking.result().status == 200
        assert served > 3
    finally:
        own_redis.resume()

    assert before[0] + 1 == asked()["timeout"]


def test_a_stopped_hub_is_waited_for_once_by_all_threads(
    own_redis: RedisServer, make_agent: Callable[..., Agent]
) -> None:
    """Flask under a server with threads: requests that come after the first question was in vain do not ask."""
    agent = make_agent(own_redis.url)
    app = flask.Flask(__name__)
    limits = of_flask.Limits(app=app, agent=agent, in_doubt=BRIEF)
    app.add_url_rule("/", "root", limits.limit("5/hour", name="requests")(lambda: "here"))
    assert ask_wsgi(app, client=HERE)[0].status == 200
    until_near(agent, within=BRIEF_S)
    before = agent.stats().limits["requests"].asks.results
    own_redis.pause()
    try:
        assert ask_wsgi(app, client=ADA)[0].status == 200
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda number: ask_wsgi(app, client=f"198.51.100.{number}")[0], range(100)))
        results = agent.stats().limits["requests"].asks.results
    finally:
        own_redis.resume()

    assert {200} == {answer.status for answer in answers}
    assert (1, 100) == tuple(results[result] - before[result] for result in ("timeout", "in_vain"))
