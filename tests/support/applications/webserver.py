"""Real servers of real applications, and clients that check every response."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any, Final

from http_sfv.list import List

from tests.support.programs.process import PROCESS_S_MAX, ROOT, environment
from tests.support.servers import free_port
from tests.support.waiting import eventually

WORKERS: Final = 4
LOOK_PAUSE_S: Final = 0.1
"""The seconds between two checks whether all workers have started: each is sixteen requests, which delay the start."""
FASTAPI: Final = "FastAPI under uvicorn"
FLASK: Final = "Flask under gunicorn"
KEY: Final = "x-key"


def command_of(name: str, port: int) -> list[str]:
    """Returns the command that serves an application with four workers."""
    if name == FASTAPI:
        server = ["uvicorn", "tests.support.applications.fastapi_app:app"]
        server += ["--workers", str(WORKERS), "--port", str(port)]
        # uvicorn would believe forwarding headers from this address itself, before the application sees them.
        server += ["--no-proxy-headers", "--log-level", "warning", "--no-access-log"]
        # Another parser, which is used if it is installed, lets fields of any size through.
        server += ["--http", "h11"]
        return [sys.executable, "-m", *server, "--host", "127.0.0.1"]
    server = ["gunicorn", "--preload", "--workers", str(WORKERS), "--worker-class", "gthread", "--threads", "4"]
    server += ["--no-control-socket", "--bind", f"127.0.0.1:{port}", "--log-level", "error"]
    return [sys.executable, "-m", *server, "tests.support.applications.flask_app:app"]


class WebServer:
    """An application under a server with four workers, on a port of its own."""

    def __init__(self, name: str, hub: str, *, limit: str, policy: str = "balanced") -> None:
        self.port = free_port()
        self._process = subprocess.Popen(
            command_of(name, self.port),
            cwd=ROOT,
            env=environment(RECONVERGE_HUB=hub, LIMIT=limit, POLICY=policy),
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_for_all_workers(self) -> None:
        """Waits until each worker has answered, and has an answer of the hub."""
        ready: set[int] = set()

        def look() -> bool:
            # Many requests at once, as the last worker is no likelier than others to get the next one.
            with ThreadPoolExecutor(2 * WORKERS) as threads:
                answers = list(threads.map(lambda _: self._stats(), range(4 * WORKERS)))
            ready.update(answer["process"] for answer in answers if answer and answer["ready"])
            return len(ready) == WORKERS

        eventually(look, "an answer from every worker, with a hub", pause_s=LOOK_PAUSE_S)

    def _stats(self) -> dict[str, Any] | None:
        try:
            response = get(self.port, "/stats", "stats")
        except OSError:
            return None
        return dict(json.loads(response.body))

    def stop(self) -> str:
        """Stops the server in good order. Returns the errors that it has printed."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.communicate(timeout=PROCESS_S_MAX)[1]

    def kill(self) -> None:
        """Kills the server and its workers."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate(timeout=PROCESS_S_MAX)


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes = field(repr=False)


def get(port: int, path: str, key: str, connection: HTTPConnection | None = None) -> Reply:
    own = connection or HTTPConnection("127.0.0.1", port, timeout=PROCESS_S_MAX)
    try:
        own.request("GET", path, headers={KEY: key})
        response = own.getresponse()
        return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())
    finally:
        if connection is None:
            own.close()


def ask_often(port: int, key: str, *, clients: int, requests: int) -> list[Reply]:
    """Makes requests for each client, all at once."""

    def ask(_client: int) -> list[Reply]:
        connection = HTTPConnection("127.0.0.1", port, timeout=PROCESS_S_MAX)
        try:
            return [get(port, "/", key, connection) for _ in range(requests)]
        finally:
            connection.close()

    with ThreadPoolExecutor(clients) as threads:
        return [answer for answers in threads.map(ask, range(clients)) for answer in answers]


def statuses(answers: list[Reply]) -> Counter[int]:
    return Counter(answer.status for answer in answers)


def check_fields(headers: dict[str, str], *, refused: bool) -> None:
    """Raises AssertionError unless the fields parse as structured fields, and fit together."""
    policies, limits = parsed(headers["ratelimit-policy"]), parsed(headers["ratelimit"])
    assert limits, "nothing is said"
    assert limits[0].value == policies[0].value, "the binding one is not the first"
    for item in policies:
        assert isinstance(item.params["q"], int)
        assert item.params["w"] > 0
    for item in limits:
        assert item.value in [policy.value for policy in policies]
        assert item.params["r"] >= 0
    waits = [item.params["t"] for item in limits if "t" in item.params]
    assert refused == ("retry-after" in headers)
    if refused:
        assert int(headers["retry-after"]) >= max(1, *waits, 0)


def parsed(text: str) -> Any:
    """Returns a List of structured fields, read by another project's parser."""
    found = List()
    found.parse(text.encode("ascii"))
    return found
