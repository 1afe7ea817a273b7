"""Runs a gunicorn with a worker of gevent and a Flask application, and clients that ask it in bursts.

The process that gets the orders asks; the worker, which gevent has patched before anything of ours was imported,
decides and records its decisions (`gevent_app`). A request that gets no answer within its timeout is unanswered.
"""

from __future__ import annotations

import http.client
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from chaos.fleet.child import Child
from reconverge.clock import SECOND_NS
from tests.support.servers import free_port, wait_until

if TYPE_CHECKING:
    from chaos.fleet.node import Node
    from chaos.fleet.plan import Request

PLAN: Final = "CHAOS_PLAN"
"""The environment variable from which the worker reads its plan."""
ALIVE: Final = "/alive"
HOST: Final = "127.0.0.1"
BURST_NS: Final = SECOND_NS // 2
"""The time whose requests come at once, in nanoseconds."""
ANSWER_S: Final = 6.0
"""The timeout of a request, in seconds."""
STOP_S: Final = 8.0
ROOT: Final = Path(__file__).parents[3]


def in_gevent_worker(node: Node) -> None:
    """Starts the server, asks it in bursts, and ends it. A server that leaves a burst unanswered is asked no more."""
    port = free_port()
    child = _server(node, port)
    wait_until(lambda: _asked(port, ALIVE, timeout_s=1.0) == http.HTTPStatus.NO_CONTENT, "gunicorn")
    node.say_ready()
    node.listen()
    node.await_go()
    asked, answered = 0, 0
    for burst in _bursts(node.due_requests()):
        if not node.wait_until(burst[0].moment_ns):
            break
        statuses = _asked_at_once(port, burst)
        asked += len(burst)
        answered += sum(status in (http.HTTPStatus.OK, http.HTTPStatus.TOO_MANY_REQUESTS) for status in statuses)
        if answered < asked:
            break
    while not node.ended:
        time.sleep(0.02)
    child.end(STOP_S)
    facts = {"asked": asked, "answered": answered, "keys": 0, "keys_max": node.plan.keys_max}
    for name in node.plan.contestants:
        node.recorder.write("end", who=name, t=time.monotonic_ns(), facts=facts)


def _server(node: Node, port: int) -> Child:
    command = [sys.executable, "-m", "gunicorn", "--worker-class", "gevent", "--workers", "1", "--log-level", "warning"]
    command += [
        "--bind",
        f"{HOST}:{port}",
        "--graceful-timeout",
        "5",
        "--timeout",
        "60",
        "--no-control-socket",
        "chaos.fleet.workers.gevent_app:application",
    ]
    log = Path(node.plan.directory) / f"gunicorn-{node.plan.node}.log"
    environment = {PLAN: replace(node.plan, requests=()).as_line()}
    return Child(command, log=log, directory=ROOT, environment=environment)


def _bursts(requests: Sequence[Request]) -> list[list[Request]]:
    """Yields the requests, in groups that come at once."""
    groups: dict[int, list[Request]] = {}
    for request in requests:
        groups.setdefault(request.moment_ns // BURST_NS, []).append(request)
    return list(groups.values())


def _asked_at_once(port: int, burst: Sequence[Request]) -> list[int]:
    """Returns the status of the answer to each request of a burst; 0 for a request without an answer."""
    statuses = [0] * len(burst)
    together = threading.Barrier(len(burst))

    def ask(number: int, request: Request) -> None:
        query = urlencode({"key": request.key, "cost": request.cost})
        together.wait()
        statuses[number] = _asked(port, f"/?{query}", timeout_s=ANSWER_S)

    threads = [threading.Thread(target=ask, args=(number, one)) for number, one in enumerate(burst)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


def _asked(port: int, path: str, *, timeout_s: float) -> int:
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()
