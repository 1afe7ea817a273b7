"""Goal: several interpreters in one process, such as mod_wsgi has, each decide and exchange for themselves.

Method: a process with two of them and a real Redis; the second one ends before the first.
"""

from __future__ import annotations

import importlib.util

import pytest

from reconverge.runtime.threads import in_main_interpreter
from tests.support.agents import net_at
from tests.support.programs.process import Process
from tests.support.servers import RedisServer

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("_xxsubinterpreters") is None, reason="this Python has no module to make interpreters with"
)


def _run(hub: str, second: str) -> list[str]:
    with Process("has_two_interpreters", hub, second, module="interpreters") as process:
        status, lines = process.ends()
    assert 0 == status, process.stderr
    return lines


def test_a_second_interpreter_comes_and_goes_and_the_first_goes_on(redis_server: RedisServer) -> None:
    """The first one's exchanges neither fail nor meet a bug; the second decides with the kernel in Python."""
    lines = _run(redis_server.url, "memory://")

    assert ["before 5 0 0 ready", "beside 5 0 0 ready", "after 5 0 0 ready"] == lines
    assert 15 == net_at(redis_server.url)
    assert 15 == net_at(redis_server.url, "dated")


def test_a_second_interpreter_exchanges_and_says_its_last_words(redis_server: RedisServer) -> None:
    """It has a thread of its own, which is gone before the interpreter is; the hub knows all that each admitted."""
    lines = _run(redis_server.url, redis_server.url)

    assert ["before 5 0 0 ready", "beside 5 0 0 ready", "after 5 0 0 ready"] == lines
    assert 15 == net_at(redis_server.url)
    assert 70 == net_at(redis_server.url, namespace="second")
    assert 70 == net_at(redis_server.url, "dated", namespace="second")


def test_this_is_the_main_interpreter() -> None:
    """Where nothing but threads and signals of the main one is at stake."""
    assert in_main_interpreter()
