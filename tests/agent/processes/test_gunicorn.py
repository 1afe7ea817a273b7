"""Goal: behind a prefork server that has loaded the application before it forks, every worker is a node of its own.

Method: gunicorn with eight workers, a decision in its master before they are forked, requests from many threads at
once, and a graceful stop; then the hub's total is compared with the answers that were given.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import pytest

from tests.support.agents import NEVER_FULL, net_at
from tests.support.programs.process import PROCESS_S_MAX, ROOT, environment
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

pytest.importorskip("gunicorn", reason="a server to fork")

WORKERS = 8
CLIENTS = 16
REQUESTS = 400
Answer = dict[str, object]


class Gunicorn:
    """A gunicorn of the test's application, on a port of its own."""

    def __init__(self, hub: str, limit: str) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", str(WORKERS), "--no-control-socket"]
        command += ["--bind", f"127.0.0.1:{self.port}", "--log-level", "error"]
        command += ["tests.support.applications.wsgi_app:app"]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(RECONVERGE_HUB=hub, LIMIT=limit),
            stderr=subprocess.PIPE,
            text=True,
        )

    def answers(self) -> Answer | None:
        """Its answer to one request; None when it does not listen yet."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PROCESS_S_MAX)
        try:
            connection.request("GET", "/")
            return dict(json.loads(connection.getresponse().read()))
        except ConnectionError:
            return None
        finally:
            connection.close()

    def ends(self) -> tuple[int, str]:
        """Stop it gracefully; returns its status, and what it complained of."""
        self._process.send_signal(signal.SIGTERM)
        _, stderr = self._process.communicate(timeout=PROCESS_S_MAX)
        return self._process.returncode, stderr

    def kill(self) -> None:
        """End it in any case, when its test has failed."""
        self._process.kill()
        self._process.communicate(timeout=PROCESS_S_MAX)


@pytest.fixture
def gunicorn(redis_server: RedisServer) -> Iterator[Callable[[str], Gunicorn]]:
    """Start gunicorns on the empty Redis."""
    started: list[Gunicorn] = []

    def start(limit: str) -> Gunicorn:
        started.append(Gunicorn(redis_server.url, limit))
        return started[-1]

    yield start
    for server in started:
        server.kill()


@pytest.mark.slow
def test_eight_workers_are_eight_nodes_and_the_sum_is_exact(
    gunicorn: Callable[[str], Gunicorn], redis_server: RedisServer
) -> None:
    """The pace is an hour, so that almost all of it is told by last words; the master's own admission is in it once."""
    server = gunicorn(NEVER_FULL)
    answers = _ask_until_all_workers_have_answered(server)

    assert (0, "") == server.ends()

    assert {True} == {answer["master"] for answer in answers}
    assert WORKERS == len({answer["node"] for answer in answers})
    assert 1 + sum(bool(answer["allowed"]) for answer in answers) == net_at(redis_server.url)


def _ask_until_all_workers_have_answered(server: Gunicorn) -> list[Answer]:
    """Many requests at once, and more of them while some worker has had none."""
    answers: list[Answer] = []

    def ask(_number: int) -> bool:
        answer = server.answers()
        if answer is not None:
            answers.append(answer)
        return answer is not None

    eventually(lambda: ask(0), "an answer")
    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(ask, range(REQUESTS)))
        eventually(
            lambda: (
                list(clients.map(ask, range(CLIENTS))) and len({answer["process"] for answer in answers}) == WORKERS
            ),
            "an answer from every worker",
        )
    return answers
