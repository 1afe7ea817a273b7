"""Goal: under uvicorn an agent exchanges, on a thread or as a task of either loop, and says its last words at SIGTERM.

Method: a real uvicorn that imports or makes the application, a real Redis, and a pace of an hour: what is not among the
last words is missing from the hub's total.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from http.client import HTTPConnection

import pytest

from tests.support.agents import net_at
from tests.support.programs.process import PROCESS_S_MAX, ROOT, environment
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

pytest.importorskip("uvicorn", reason="a server of ASGI")

REQUESTS = 50


def _ask(port: int) -> tuple[int, str] | None:
    connection = HTTPConnection("127.0.0.1", port, timeout=PROCESS_S_MAX)
    try:
        connection.request("GET", "/")
        response = connection.getresponse()
        return response.status, response.read().decode()
    except ConnectionError:
        return None
    finally:
        connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize(
    ("options", "runs_as"),
    [
        pytest.param(["--factory", "tests.support.applications.asgi_app:create"], "thread", id="factory"),
        pytest.param(["tests.support.applications.asgi_app:app"], "thread", id="application"),
        pytest.param(["tests.support.applications.asgi_app:app"], "thread, started", id="started"),
        pytest.param(["--factory", "tests.support.applications.asgi_app:create"], "task", id="task"),
    ],
)
def test_at_sigterm_the_hub_knows_all_that_was_admitted(
    options: list[str], runs_as: str, loop: str, redis_server: RedisServer
) -> None:
    """And the process ends by the signal, as uvicorn has it, whether its handlers came before the agent's or after."""
    pytest.importorskip(loop, reason="the loop to run in")
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--port", str(port), "--loop", loop, "--log-level", "warning", *options]
    variables = environment(RECONVERGE_HUB=redis_server.url, AS_TASK="1" if runs_as == "task" else "")
    variables |= {"STARTS": "1"} if "started" in runs_as else {}
    with subprocess.Popen(command, cwd=ROOT, env=variables, stderr=subprocess.PIPE, text=True) as server:
        try:
            eventually(lambda: _ask(port), "an answer")
            answers = [_ask(port) for _ in range(REQUESTS)]
            server.send_signal(signal.SIGTERM)
            _, complaints = server.communicate(timeout=PROCESS_S_MAX)
        finally:
            server.kill()

    assert [(200, runs_as.partition(",")[0])] * REQUESTS == answers
    assert (-signal.SIGTERM, "") == (server.returncode, complaints)
    assert REQUESTS + 1 == net_at(redis_server.url)  # of one key, which the hub was asked about with the first request
