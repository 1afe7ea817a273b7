"""Goal: an agent works where gevent has replaced threads by greenlets, and is refused where eventlet has.

Method: programs and a gunicorn in processes of their own, with a real Redis that knows what was admitted.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import pytest

from tests.support.agents import net_at
from tests.support.programs.process import PROCESS_S_MAX, ROOT, Process, environment
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

CLIENTS = 20
"""A burst of so many requests at once."""
BURSTS = 5


def needs(package: str) -> None:
    """Skip a test where a package is missing, without importing it: both change what the process does at a fork."""
    if importlib.util.find_spec(package) is None:
        missing = f"{package} is not installed"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after-import", "after-agent"])
def test_decisions_and_waits_on_greenlets_hold_up_no_other_greenlet(when: str, redis_server: RedisServer) -> None:
    """Whenever gevent has patched: twenty greenlets get all they ask for, others go on, and the hub knows the sum."""
    needs("gevent")

    with Process("beside_greenlets", when, redis_server.url, module="green_threads") as process:
        status, lines = process.ends()

    assert 0 == status, process.stderr
    admitted, state, beats = lines
    assert f"admitted {1000 + (when == 'after-agent')}" == admitted
    assert "state ready failures 0 bugs 0" == state
    assert "beats True" == beats
    assert int(admitted.split()[1]) == net_at(redis_server.url, "login")


@pytest.fixture
def gevent_server(redis_server: RedisServer) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A gunicorn with one worker of greenlets, and its port."""
    needs("gevent")
    needs("gunicorn")
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "-k", "gevent", "-w", "1", "--no-control-socket"]
    command += ["--bind", f"127.0.0.1:{port}", "--log-level", "error", "tests.support.applications.green_app:app"]
    variables = environment(RECONVERGE_HUB=redis_server.url)
    with subprocess.Popen(command, cwd=ROOT, env=variables, stderr=subprocess.PIPE, text=True) as server:
        yield server, port
        server.kill()


def _ask(port: int, key: str) -> str | None:
    connection = HTTPConnection("127.0.0.1", port, timeout=PROCESS_S_MAX)
    try:
        connection.request("GET", f"/?key={key}")
        return connection.getresponse().read().decode()
    except ConnectionError:
        return None
    finally:
        connection.close()


@pytest.mark.slow
def test_a_gevent_worker_answers_its_bursts_and_says_its_last_words(
    gevent_server: tuple[subprocess.Popen[str], int], redis_server: RedisServer
) -> None:
    """Every request of every burst is answered, each of a new key; and the hub knows all of them after SIGTERM."""
    server, port = gevent_server
    eventually(lambda: _ask(port, "first"), "an answer")

    with ThreadPoolExecutor(CLIENTS) as clients:
        answers = list(clients.map(lambda number: _ask(port, f"key{number}"), range(BURSTS * CLIENTS)))
    server.send_signal(signal.SIGTERM)
    _, complaints = server.communicate(timeout=PROCESS_S_MAX)

    assert ["True True"] * BURSTS * CLIENTS == answers
    assert (0, "") == (server.returncode, complaints)
    assert BURSTS * CLIENTS + 1 == net_at(redis_server.url, "several", namespace="green")


def test_an_agent_beside_eventlet_is_refused_when_it_is_made(redis_server: RedisServer) -> None:
    """The error names the fact, and what to do."""
    needs("eventlet")

    with Process("beside_eventlet", "before", redis_server.url, module="green_threads") as process:
        status, lines = process.ends()

    assert 0 == status, process.stderr
    (line,) = lines
    assert line.startswith("refused eventlet has replaced this process's threads")
    assert "use gevent or threads instead" in line


def test_an_agent_that_eventlet_comes_upon_later_decides_and_says_so_once(redis_server: RedisServer) -> None:
    """Nothing fails for who decides; that nothing is exchanged stands in the log, once."""
    needs("eventlet")

    with Process("beside_eventlet", "after", redis_server.url, module="green_threads") as process:
        status, lines = process.ends()

    assert 0 == status, process.stderr
    assert 1 == sum(
        line.startswith("reconverge: this agent exchanges nothing with its hub: eventlet has replaced")
        for line in lines
    )
    assert "admitted 2 False" == lines[-1]


def test_without_a_hub_green_threads_of_eventlet_wait_for_their_turns() -> None:
    """There is no thread of the operating system then that eventlet would have to get along with."""
    needs("eventlet")

    with Process("beside_eventlet_alone", "memory://", module="green_threads") as process:
        status, lines = process.ends()

    assert (0, ["admitted 20"]) == (status, lines), process.stderr
