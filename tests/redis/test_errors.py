"""Goal: whatever goes wrong between a hub and Redis has its kind, and tells whether it may have been applied.

Method: a server that answers with each error reply that Redis knows, so that the client in use makes of it what it
makes of it; and the errors of the network and of the system.
"""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest
from redis import exceptions

from reconverge.clock import SystemClock
from reconverge.errors import HubUnavailable
from reconverge.hub.registry import HubSettings
from reconverge.testing.claims.scenes.scene import Scene
from reconverge_sync.redis.errors import as_unavailable
from reconverge_sync.redis.hub import RedisHub
from tests.support.hubs.parrot import Parrot
from tests.support.servers import free_port

IN_A_SCRIPT = "-ERR Error running script (call to f_0123): @user_script:7: @user_script: 7: "
REPLIES = [
    ("-NOSCRIPT No matching script. Please use EVAL.", "noscript", False),
    ("-OOM command not allowed when used memory > 'maxmemory'.", "out-of-memory", False),
    (f"{IN_A_SCRIPT}-OOM command not allowed when used memory > 'maxmemory'.", "out-of-memory", False),
    ("-READONLY You can't write against a read only replica.", "read-only", False),
    (f"{IN_A_SCRIPT}-READONLY You can't write against a read only replica.", "read-only", False),
    ("-LOADING Redis is loading the dataset in memory", "loading", False),
    ("-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", "busy", False),
    ("-MISCONF Redis is configured to save RDB snapshots, but it's unable to persist on disk.", "misconfigured", False),
    ("-NOREPLICAS Not enough good replicas to write.", "no-replicas", False),
    ("-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", "master-down", False),
    ("-CLUSTERDOWN Hash slot not served", "cluster-down", False),
    ("-CLUSTERDOWN The cluster is down", "cluster-down", False),
    ("-TRYAGAIN Multiple keys request during rehashing of slot", "moving", False),
    ("-MOVED 3999 127.0.0.1:6381", "moving", False),
    ("-ASK 3999 127.0.0.1:6381", "moving", False),
    ("-NOAUTH Authentication required.", "auth", False),
    ("-WRONGPASS invalid username-password pair or user is disabled.", "auth", False),
    ("-ERR AUTH <password> called without any password configured for the default user.", "auth", False),
    ("-NOPERM this user has no permissions to run the 'evalsha' command", "permission", False),
    ("-NOPERM User shop has no permissions to run the 'evalsha' command", "permission", False),
    ("-NOPERM No permissions to access a key", "permission", False),
    (f"{IN_A_SCRIPT}-NOPERM this user has no permissions to run the 'hset' command", "permission", False),
    ("-ERR The user executing the script can't run this command or subcommand script: 01, on @1", "permission", False),
    ("-ERR max number of clients reached", "too-many-clients", False),
    ("-DENIED Redis is running in protected mode because protected mode is enabled", "denied", False),
    ("-RCINVALID the batch is malformed: header", "protocol", False),
    ("-ERR unknown command 'EVALSHA', with args beginning with: 'x'", "script", None),
    ("-WRONGTYPE Operation against a key holding the wrong kind of value", "script", None),
    (f"{IN_A_SCRIPT}bad data format in input.", "script", None),
]


@pytest.mark.parametrize(("reply", "kind", "applied"), REPLIES, ids=lambda value: str(value)[:40])
def test_each_error_reply_has_its_kind(reply: str, kind: str, applied: bool | None) -> None:
    """The client may make any class of it, and a script may have wrapped it."""
    with Parrot(reply.encode() + b"\r\n") as parrot:
        problem = _problem_of(RedisHub(parrot.url, HubSettings("shop", 2.0)))

    assert (kind, applied) == (problem.kind, problem.applied)
    assert str(problem).startswith(f"{kind}: ")


OTHERS = [
    (exceptions.TimeoutError("Timeout reading from 10.0.0.111:6379"), "timeout", None),
    (TimeoutError(), "timeout", None),
    (exceptions.ConnectionError("Connection closed by server."), "connection", None),
    (exceptions.ConnectionError("Error 104 connecting to 10.111.0.101:6379. Connection reset."), "connection", None),
    (
        exceptions.ConnectionError("Error while reading from 10.0.0.111:6379 : (104, 'reset by peer')"),
        "connection",
        None,
    ),
    (exceptions.ConnectionError("Error 32 while writing to socket. Broken pipe."), "connection", None),
    (exceptions.ConnectionError("Error 111 connecting to redis:6379. Connection refused."), "refused", False),
    (exceptions.ConnectionError("Error 101 connecting to redis:6379. Network is unreachable."), "refused", False),
    (exceptions.ConnectionError("Error 113 connecting to redis:6379. No route to host."), "refused", False),
    (exceptions.ConnectionError("Error 2 connecting to /redis.sock. No such file or directory."), "refused", False),
    (exceptions.ConnectionError("Error -2 connecting to nosuch:6379. Name or service not known."), "refused", False),
    (exceptions.ConnectionError("Error -3 connecting to redis:6379. Temporary failure."), "refused", False),
    (ConnectionRefusedError(111, "Connect call failed"), "refused", False),
    (
        OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 111] Connect call failed"),
        "refused",
        False,
    ),
    (ConnectionResetError(104, "Connection reset by peer"), "connection", None),
    (socket.gaierror(-2, "Name or service not known"), "refused", False),
    (ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"), "tls", False),
    (exceptions.ConnectionError("Error 1 connecting to redis:6379. [SSL: WRONG_VERSION_NUMBER]."), "tls", False),
    (exceptions.AuthenticationError("invalid"), "auth", False),
    (exceptions.AuthorizationError("not allowed"), "auth", False),
    (exceptions.ResponseError("ERR something new"), "script", None),
    (exceptions.InvalidResponse("Protocol Error: b'HTTP/1.1 400'"), "client", None),
    (RuntimeError("Event loop is closed"), "client", None),
    (UnicodeError("label too long"), "client", None),
]


@pytest.mark.parametrize(("error", "kind", "applied"), OTHERS, ids=lambda value: str(value)[:50])
def test_each_other_error_has_its_kind(error: Exception, kind: str, applied: bool | None) -> None:
    """An address with the same digits as an error's number is not taken for that."""
    problem = as_unavailable(error)

    assert (kind, applied) == (problem.kind, problem.applied)


def test_a_message_is_not_longer_than_a_line_can_be() -> None:
    """A server's message goes into a log; it does not flood it."""
    assert len(str(as_unavailable(exceptions.ResponseError("x" * 10_000)))) < 300


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("redis://127.0.0.1:{port}/0", "refused"),
        ("redis://localhost:{port}/0", "refused"),
        ("redis://nosuch.invalid:6379/0", "refused"),
        ("redis+unix:///nosuch/redis.sock", "refused"),
        ("rediss://127.0.0.1:{port}/0", "refused"),
    ],
)
def test_a_server_that_is_not_there_is_refused(url: str, kind: str) -> None:
    """Then nothing can have been applied."""
    problem = _problem_of(RedisHub(url.format(port=free_port()), HubSettings("shop", 2.0)))

    assert (kind, False) == (problem.kind, problem.applied)


def test_a_server_that_hangs_up_may_have_applied_it() -> None:
    """Nobody can know."""
    with Parrot() as parrot:
        problem = _problem_of(RedisHub(parrot.url, HubSettings("shop", 2.0)))

    assert ("connection", None) == (problem.kind, problem.applied)


def _problem_of(hub: RedisHub) -> HubUnavailable:
    async def ask() -> None:
        scene = Scene(hub, SystemClock(), join=lambda known: known)
        try:
            await scene.voice().says_hello()
        finally:
            await hub.close()

    with pytest.raises(HubUnavailable) as raised:
        asyncio.run(ask())
    return raised.value
