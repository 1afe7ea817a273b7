"""Goal: a program that needs its hub finds out when it starts that the hub does not answer, and why.

Method: a real Redis, hubs that are named wrongly in each way, and agents that exchange on a thread and as a task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from reconverge import Agent, HubUnavailable, InvalidSetting, WrongMoment
from reconverge.hub.report import Answer, Batch
from reconverge.integrations.fastapi import Limits as FastAPILimits
from reconverge.integrations.flask import Limits as FlaskLimits
from reconverge_sync.memory import MemoryHub
from tests.support.agents import exchange_threads
from tests.support.fixtures.agents import MakeAgent
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

PASSWORD = "hunter2-and-more"  # noqa: S105  # nobody's
NO_FILE = "/nosuch/ca.pem"
NOWHERE = "redis://nosuch.invalid"

Name = Callable[[RedisServer], str]
WRONG: dict[str, tuple[Name, str, str]] = {
    "a password": (lambda redis: redis.url.replace("://", f"://ada:{PASSWORD}@"), "auth", "username-password"),
    "a database": (lambda redis: redis.url.rpartition("/")[0] + "/99999", "script", "DB index"),
    "a host": (lambda _: NOWHERE, "refused", "nosuch.invalid"),
    "a file": (lambda redis: f"rediss://127.0.0.1:{redis.port}?ssl_ca_certs={NO_FILE}", "tls", NO_FILE),
    "a broker's file": (lambda redis: f"mqtts://127.0.0.1:{redis.port}?ssl_ca_certs={NO_FILE}", "tls", NO_FILE),
}


def nobody_listens() -> str:
    """The URL of a Redis that is not there."""
    return f"redis://127.0.0.1:{free_port()}/0"


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_setting_ends_a_check_at_once_and_is_named(
    what: str, redis_server: RedisServer, make_agent: MakeAgent
) -> None:
    """The error says what is wrong and what finds out more, and shows no password."""
    name, kind, fact = WRONG[what]

    with pytest.raises(HubUnavailable) as caught:
        make_agent(name(redis_server)).check(timeout=60)

    assert kind == caught.value.kind
    assert fact in str(caught.value)
    assert "reconverge doctor --hub " in str(caught.value)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("what", WRONG)
def test_the_log_tells_a_wrong_setting_from_an_outage(
    what: str, redis_server: RedisServer, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, as an error, with the cause and with what finds out more."""
    name, _, fact = WRONG[what]
    agent = make_agent(name(redis_server))

    agent.limit("login", "5/minute").allow("ada")
    eventually(lambda: sum(agent.stats().exchanges[0].failures.values()) > 2, "several failures")

    (told,) = [record for record in caplog.records if "is unavailable" in record.getMessage()]
    assert logging.ERROR == told.levelno
    assert "a wrong setting" in told.getMessage()
    assert fact in told.getMessage()
    assert "reconverge doctor --hub " in told.getMessage()


def test_an_outage_is_told_as_one(make_agent: MakeAgent, caplog: pytest.LogCaptureFixture) -> None:
    """A server that is not there may come: that is a warning."""
    agent = make_agent(nobody_listens())

    agent.start()
    eventually(lambda: agent.stats().exchanges[0].failures_in_a_row, "a failure")

    (told,) = [record for record in caplog.records if "is unavailable" in record.getMessage()]
    assert logging.WARNING == told.levelno
    assert "a wrong setting" not in told.getMessage()


@pytest.mark.parametrize("content", ["ssl_ca_certs", "ssl_certfile"])
def test_a_file_with_something_else_in_it_is_named(
    content: str, redis_server: RedisServer, make_agent: MakeAgent, tmp_path: Path
) -> None:
    """OpenSSL itself says "PEM lib"."""
    path = tmp_path / "shopping.pem"
    path.write_text("butter\n")

    with pytest.raises(HubUnavailable, match=f"the file that {content} names, {path}, does not hold a? ?certificate"):
        make_agent(f"rediss://127.0.0.1:{redis_server.port}?{content}={path}").check()


def test_a_check_passes_when_the_hub_answers(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """The agent has begun then, and is ready."""
    agent = make_agent(redis_server.url)

    agent.check()

    assert agent.ready
    assert 1 == len(exchange_threads())


def test_each_check_waits_for_an_answer_of_its_own(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """An agent that was answered a moment ago, and has nothing to say, still finds out that the server has stopped."""
    agent = make_agent(redis_server.url, exchange_timeout=0.3)
    agent.check()
    answered = agent.stats().exchanges[0].exchanges

    agent.check()

    assert answered < agent.stats().exchanges[0].exchanges
    redis_server.pause()
    try:
        with pytest.raises(HubUnavailable, match=r"has not answered within 0\.5 s"):
            agent.check(timeout=0.5)
    finally:
        redis_server.resume()


def test_a_check_waits_for_a_server_that_comes_a_little_later(make_agent: MakeAgent) -> None:
    """Containers that start together come in any order."""
    hub = LateHub(failures=3)

    make_agent(hub).check(timeout=60)

    assert 0 == hub.failures


def test_a_server_that_is_not_there_is_waited_for_as_long_as_said(make_agent: MakeAgent) -> None:
    """No longer, and the error says what was the matter."""
    agent = make_agent(nobody_listens())

    with pytest.raises(HubUnavailable, match=r"within 0\.2 s.*connecting to 127\.0\.0\.1") as caught:
        agent.check(timeout=0.2)

    assert "refused" == caught.value.kind


@pytest.mark.parametrize("begin", ["start", "with", "async with"])
def test_an_agent_that_requires_its_hub_does_not_begin_without(begin: str, make_agent: MakeAgent) -> None:
    """Whichever way it begins; afterwards nothing of it runs."""
    agent = make_agent(NOWHERE, require_hub=True)

    with pytest.raises(HubUnavailable):
        BEGIN[begin](agent)

    eventually(lambda: not agent.stats().running, "the agent's end")
    eventually(lambda: [] == exchange_threads(), "the end of its thread")


@pytest.mark.parametrize("begin", ["start", "with", "async with"])
def test_an_agent_that_requires_its_hub_begins_with_it(
    begin: str, redis_server: RedisServer, make_agent: MakeAgent
) -> None:
    """And has been answered by then."""
    agent = make_agent(redis_server.url, require_hub=True)

    BEGIN[begin](agent)

    assert agent.stats().exchanges[0].exchanges > 0


@pytest.mark.parametrize("guard", [FastAPILimits, FlaskLimits])
def test_a_guard_of_an_agent_that_requires_its_hub_is_not_made_without(guard: type, make_agent: MakeAgent) -> None:
    """So the application does not start: servers import what makes it."""
    with pytest.raises(HubUnavailable):
        guard(agent=make_agent(NOWHERE, require_hub=True))


@pytest.mark.parametrize("guard", [FastAPILimits, FlaskLimits])
def test_a_guard_of_an_agent_that_requires_its_hub_starts_it(
    guard: type, redis_server: RedisServer, make_agent: MakeAgent
) -> None:
    """Where the hub answers, the agent is ready before the first request."""
    agent = make_agent(redis_server.url, require_hub=True)

    guard(agent=agent)

    assert agent.ready


def test_a_decision_before_the_start_is_told_of_once(
    redis_server: RedisServer, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    """A decision waits for no hub, so what is required was not checked."""
    login = make_agent(redis_server.url, require_hub=True).limit("login", "5/minute")

    assert login.allow("ada")
    assert login.allow("eve")

    assert 1 == sum("require_hub=True" in record.getMessage() for record in caplog.records)


def test_an_agent_that_is_told_to_meet_nobody_has_nothing_to_check(make_agent: MakeAgent) -> None:
    """It does require no hub, though, and an agent that must have one is not made."""
    make_agent("memory://").check()

    with pytest.raises(InvalidSetting, match="require_hub=True: needs a hub"):
        make_agent("memory://", require_hub=True)
    with pytest.raises(InvalidSetting, match="require_hub='yes'"):
        make_agent("memory://", require_hub="yes")


def test_a_hub_that_was_forgotten_does_not_pass_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Agent()` has no hub, and a program that checks its hub meant to have one."""
    monkeypatch.delenv("RECONVERGE_HUB", raising=False)

    with pytest.raises(InvalidSetting, match="RECONVERGE_HUB"):
        Agent().check()


async def test_a_check_that_would_block_its_own_loop_says_what_to_write(
    redis_server: RedisServer, make_agent: MakeAgent
) -> None:
    """And `check_async` does not block it."""
    async with make_agent(redis_server.url) as agent:
        with pytest.raises(RuntimeError, match="check_async"):
            agent.check()
        await agent.check_async()


@pytest.mark.parametrize("hub", ["memory://", "redis"])
def test_a_check_in_any_coroutine_says_what_to_write(
    hub: str, redis_server: RedisServer, make_agent: MakeAgent
) -> None:
    """It would block a loop that the agent does not exchange in, too, and a lifespan is an asynchronous generator."""
    agent = make_agent(redis_server.url if hub == "redis" else hub)

    async def check() -> None:
        agent.check()

    async def lifespan() -> AsyncIterator[None]:
        agent.check()
        yield

    async def begins() -> None:
        await anext(lifespan())

    for begin in (check, begins):
        with pytest.raises(WrongMoment, match=r"write `await agent.check_async"):
            asyncio.run(begin())


async def test_a_check_of_a_module_that_a_running_loop_imports_is_none_of_a_coroutine(
    redis_server: RedisServer, make_agent: MakeAgent
) -> None:
    """Servers such as uvicorn import an application while their loop runs, and a module cannot await."""
    agent = make_agent(redis_server.url)
    module = compile("agent.check()", "app.py", "exec")

    exec(module, {"agent": agent})  # noqa: S102  # as an import does
    agent.start()

    assert agent.ready


class LateHub(MemoryHub):
    """Cannot be reached at first."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    async def exchange(self, batch: Batch) -> Answer:
        if self.failures:
            self.failures -= 1
            raise HubUnavailable("refused", "nobody listens")
        return await super().exchange(batch)


def _enter(agent: Agent) -> None:
    with agent:
        pass


def _enter_async(agent: Agent) -> None:
    async def enter() -> None:
        async with agent:
            pass

    asyncio.run(enter())


BEGIN: dict[str, Callable[[Agent], None]] = {"start": Agent.start, "with": _enter, "async with": _enter_async}
