"""Goal: nobody who reads logs, errors, tracebacks or reprs learns a password.

Method: hubs and agents with a password fail in all the ways in which a login can; then everything that they have left
is searched for it, tracebacks with all their locals included.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest

from reconverge import Agent
from reconverge.clock import SystemClock
from reconverge.errors import HubUnavailable
from reconverge.hub import Hub
from reconverge.hub.registry import HubSettings, open_hub
from reconverge.hub.report import Batch
from reconverge.testing.claims.scenes.scene import Scene
from reconverge_sync.redis.hub import RedisHub
from tests.support.certificates import Certificates
from tests.support.fixtures.servers import TLSRedis, allow
from tests.support.hubs.parrot import Parrot
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

SECRET = "hunter2/&@x"  # noqa: S105  # a test's own
USER = "margaret"
LOGIN = f"{USER}:{quote(SECRET, safe='')}@"


TELLTALES = {
    "no redis": f"I do not know AUTH {USER} {SECRET}",
    "no such command": f"-ERR unknown command 'AUTH', with args beginning with: '{USER}' '{SECRET}'",
    "wrong type": f"-WRONGTYPE {SECRET}",
}
"""Errors of servers that repeat a text that they do not understand."""


SEVERAL = [
    "no cluster",
    "cluster refused",
    "cluster that repeats",
    "no sentinel",
    "sentinel refused",
    "sentinel repeats",
]
"""Hubs of several servers that fail."""


@pytest.fixture(
    params=["wrong password", "refused", "hangs up", "unknown authority", "no such host", *TELLTALES, *SEVERAL]
)
def failing(
    request: pytest.FixtureRequest,
    own_redis: RedisServer,
    acl_line: str,
    tls_redis: TLSRedis,
    certificates: Certificates,
) -> Iterator[tuple[str, str]]:
    """The URL of a hub that fails, and the kind of its failures."""
    allow(own_redis, acl_line)
    words = TELLTALES.get(request.param, TELLTALES["no such command"])
    finder = f"/mymaster?sentinel_username={USER}&sentinel_password={quote(SECRET, safe='')}"
    with Parrot() as silent, Parrot(f"{words}\r\n".encode()) as telltale:
        yield {
            "wrong password": (f"redis://{LOGIN}127.0.0.1:{own_redis.port}/0", "auth"),
            "refused": (f"redis://{LOGIN}127.0.0.1:{free_port()}/0", "refused"),
            "hangs up": (f"redis://{LOGIN}127.0.0.1:{silent.port}/0", "connection"),
            "unknown authority": (
                f"rediss://{LOGIN}127.0.0.1:{tls_redis.port}/0?ssl_ca_certs={certificates.stranger}",
                "tls",
            ),
            "no redis": (f"redis://{LOGIN}127.0.0.1:{telltale.port}/0", "client"),
            "no such command": (f"redis://{LOGIN}127.0.0.1:{telltale.port}/0", "script"),
            "wrong type": (f"redis://{LOGIN}127.0.0.1:{telltale.port}/0", "script"),
            "no such host": (f"redis://{LOGIN}nosuch.invalid/0", "refused"),
            "no cluster": (f"redis+cluster://{LOGIN}127.0.0.1:{own_redis.port}", "auth"),
            "cluster refused": (f"redis+cluster://{LOGIN}127.0.0.1:{free_port()}", "refused"),
            "cluster that repeats": (f"redis+cluster://{LOGIN}127.0.0.1:{telltale.port}", "script"),
            "no sentinel": (f"redis+sentinel://{LOGIN}127.0.0.1:{own_redis.port}{finder}", "auth"),
            "sentinel refused": (f"redis+sentinel://{LOGIN}127.0.0.1:{free_port()}{finder}", "refused"),
            "sentinel repeats": (f"redis+sentinel://{LOGIN}127.0.0.1:{telltale.port}{finder}", "script"),
        }[request.param]


@pytest.mark.slow
def test_a_hub_that_fails_does_not_tell_its_password(
    failing: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Neither its repr, nor what it raises, nor any frame of that, nor what led to it, nor any log."""
    caplog.set_level(logging.DEBUG)
    hub, kind = open_hub(failing[0], HubSettings("shop", 2.0)), failing[1]
    batch = Scene(hub, SystemClock(), join=lambda known: known).voice().batch()

    for told in (asyncio.run(_told_by(hub, batch)), caplog.text):
        _check(told)
    assert kind in asyncio.run(_told_by(hub, batch))


def test_an_agent_that_fails_does_not_tell_its_password(
    failing: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Neither its repr, nor its figures, nor any log, of whatever level."""
    caplog.set_level(logging.DEBUG)
    url, kind = failing
    agent = Agent(url, namespace="shop", sync_interval=0.02)
    with agent:
        agent.limit("login", "100/day").allow("ada")
        eventually(lambda: agent.stats().exchanges[0].failures.get(kind, 0) > 1, "several failures")

    for told in (repr(agent), repr(agent.stats()), caplog.text):
        _check(told)
    assert "***@" in repr(agent)
    assert "is unavailable" in caplog.text


def test_an_agent_that_succeeds_does_not_tell_its_password_either(
    own_redis: RedisServer, acl_line: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does the server's list of clients name it."""
    caplog.set_level(logging.DEBUG)
    own_redis.command("ACL", "SETUSER", USER, *acl_line.replace(">PASSWORD", f">{SECRET}").split())
    agent = Agent(f"redis://{LOGIN}127.0.0.1:{own_redis.port}/0", namespace="shop", sync_interval=0.02)
    with agent:
        agent.limit("login", "100/day").allow("ada")
        eventually(lambda: agent.ready, "an exchange")

    for told in (repr(agent), repr(agent.stats()), caplog.text):
        _check(told)


def test_the_search_finds_what_it_looks_for(own_redis: RedisServer) -> None:
    """A traceback through the client itself does show the password, which is why none is let out."""
    hub = RedisHub(f"redis://{LOGIN}127.0.0.1:{own_redis.port}/0", HubSettings("shop", 2.0))

    async def careless() -> str:
        try:
            await hub._connection.client(2.0, connections_max=1).execute_command("PING")
        except Exception as error:  # noqa: BLE001  # whatever it is, its traceback is what matters
            return _everything_about(error)
        finally:
            await hub.close()
        return ""

    with pytest.raises(AssertionError, match="the password is told"):
        _check(asyncio.run(careless()))


async def _told_by(hub: Hub, batch: Batch) -> str:
    """Everything that a hub says about itself and its failures."""
    told = [repr(hub), str(hub)]
    questions: list[Callable[[], object]] = [lambda: hub.exchange(batch), hub.totals]
    for question in questions:
        told += await _failure_of(question)
    await hub.close()
    return "\n".join(told)


async def _failure_of(question: Callable[[], object]) -> list[str]:
    answer = question()
    assert asyncio.iscoroutine(answer)
    try:
        await answer
    except HubUnavailable as error:
        return [_everything_about(error)]
    raise AssertionError("it did not fail")


def _everything_about(error: BaseException) -> str:
    """An error, its traceback with all locals, and the same of all that it came from."""
    told = [str(error), repr(error), repr(error.args), repr(vars(error))]
    told += traceback.TracebackException.from_exception(error, capture_locals=True).format()
    for origin in (error.__cause__, error.__context__):
        if origin is not None:
            told.append(_everything_about(origin))
    return "\n".join(told)


def _check(told: str) -> None:
    """Raise AssertionError if that tells the password or the user's name."""
    assert SECRET not in told, "the password is told"
    assert quote(SECRET, safe="") not in told, "the password is told, quoted"
    assert "hunter2" not in told, "a part of the password is told"
    assert USER not in told, "the user's name is told"
