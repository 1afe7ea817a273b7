"""Goal: a login that changes is asked for before each connection, shown nowhere, and never left out in silence.

Method: a Redis whose password changes, and whose connections are cut, while an agent is at work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
import redis
from redis.credentials import UsernamePasswordCredentialProvider

from reconverge import Agent
from reconverge.errors import HubUnavailable, InvalidSetting
from reconverge.integrations.config import load
from reconverge_sync.memory import MemoryHub
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

FIRST, SECOND = "first-hunter2", "second-hunter2"
CHECK_S = 5.0


@pytest.mark.parametrize("user", [(), ("default",)])
def test_an_agent_logs_in_with_the_present_password(own_redis: RedisServer, user: tuple[str, ...]) -> None:
    """The function is asked anew for the new connection, with or without a user's name."""
    present = [FIRST]
    with closing(redis.Redis(unix_socket_path=str(own_redis.socket))) as admin:
        admin.config_set("requirepass", FIRST)
        with Agent(own_redis.url, sync_interval=0.02, credentials=lambda: (*user, present[0])) as agent:
            agent.check(CHECK_S)
            admin.config_set("requirepass", SECOND)
            admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            eventually(lambda: agent.stats().exchanges[0].failures.get("auth"), "the old password is refused")
            present[0] = SECOND
            eventually(lambda: not agent.stats().exchanges[0].failures_in_a_row, "the new password is used")


def test_a_provider_of_the_client_is_such_a_function(own_redis: RedisServer) -> None:
    """Applications that have one for redis-py pass its method."""
    own_redis.command("CONFIG", "SET", "requirepass", FIRST)
    provider = UsernamePasswordCredentialProvider("default", FIRST)
    with Agent(own_redis.url, credentials=provider.get_credentials) as agent:
        agent.check(CHECK_S)


def test_an_agent_with_a_file_of_settings_takes_such_a_function(own_redis: RedisServer) -> None:
    """The program passes it beside the file, which cannot name a function."""
    own_redis.command("CONFIG", "SET", "requirepass", FIRST)
    with load(hub=own_redis.url, credentials=lambda: (FIRST,)).agent as agent:
        agent.check(CHECK_S)


def _raises() -> tuple[str]:
    raise RuntimeError(FIRST)


@pytest.mark.parametrize(
    ("credentials", "words"),
    [
        (_raises, "has raised RuntimeError"),
        (lambda: FIRST, "neither"),
        (lambda: ("default", FIRST, FIRST), "neither"),
        (lambda: ("nobody", FIRST), "invalid username-password"),
    ],
)
def test_a_function_that_gives_no_login_is_a_wrong_setting_and_nothing_is_shown(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture, credentials: Callable[[], Any], words: str
) -> None:
    """The failure is of the kind `auth`; neither it nor the log shows the password, or the function's own error."""
    caplog.set_level(logging.DEBUG, "reconverge")
    own_redis.command("CONFIG", "SET", "requirepass", SECOND)
    with Agent(own_redis.url, credentials=credentials) as agent, pytest.raises(HubUnavailable) as caught:
        agent.check(CHECK_S)

    assert "auth" == caught.value.kind
    assert words in caught.value.problem
    assert FIRST not in f"{caught.value}{caplog.text}"


@pytest.mark.parametrize(
    ("hub", "credentials", "words"),
    [
        ("memory://", lambda: (FIRST,), "memory:// has no changing login"),
        ("embedded://", lambda: (FIRST,), "embedded:// has no changing login"),
        ("mqtt://localhost", lambda: (FIRST,), "mqtt:// has no changing login"),
        (MemoryHub(), lambda: (FIRST,), "the hub is an object"),
        (f"redis://:{SECOND}@localhost", lambda: (FIRST,), "leave one out"),
        ("redis://localhost", (FIRST,), "pass it without calling it"),
    ],
)
def test_credentials_that_would_not_be_used_are_an_error(hub: Any, credentials: Any, words: str) -> None:
    """Rather than a hub that is asked without them; the message shows no password."""
    with pytest.raises(InvalidSetting, match="credentials") as caught:
        Agent(hub, credentials=credentials)

    assert words in str(caught.value)
    assert FIRST not in str(caught.value)
    assert SECOND not in str(caught.value)


def test_a_fallback_has_the_login_of_its_own_url(own_redis: RedisServer) -> None:
    """The function is for the hub alone, so it goes together with any fallback."""
    own_redis.command("CONFIG", "SET", "requirepass", FIRST)
    other = f"redis://:{FIRST}@127.0.0.1:{own_redis.port}/1"
    with Agent(own_redis.url, credentials=lambda: (FIRST,), fallback=other) as agent:
        agent.check(CHECK_S)
