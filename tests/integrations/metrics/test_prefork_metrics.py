"""Goal: behind a prefork server, a scrape tells of all workers, whichever answers it, and of those that are gone.

Method: a real gunicorn with four workers, of which one is killed and replaced; the text that is scraped is read back.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.applications.served import ROOT, Served
from tests.support.waiting import eventually

WORKERS: Final = 4
CLIENTS: Final = 8
REQUESTS: Final = 200
ADMITTED: Final = ("reconverge_requests_total", (("limit", "login"), ("result", "admitted")))
Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Prefork(Served):
    """A gunicorn whose workers count what they decide."""

    def __init__(self, files: Path) -> None:
        command = [
            "-m",
            "gunicorn",
            "--preload",
            "--workers",
            str(WORKERS),
            "--no-control-socket",
            "--log-level",
            "error",
        ]
        command += ["--config", "python:tests.support.applications.metrics_config", "--bind", "127.0.0.1:{port}"]
        command += ["tests.support.applications.metrics_app:app"]
        super().__init__(*command, cwd=ROOT, PROMETHEUS_MULTIPROC_DIR=str(files))
        self.sent = 0

    def body(self, path: str) -> str:
        """Returns the body of an answer, on a connection of its own; empty if that is an error."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read().decode()
            return body if response.status == HTTPStatus.OK else ""
        finally:
            connection.close()

    def processes(self, requests: int = REQUESTS) -> set[int]:
        """Who has answered so many requests, all at once."""
        self.sent += requests
        with ThreadPoolExecutor(CLIENTS) as threads:
            return {int(body) for body in threads.map(lambda _: self.body("/"), range(requests))}

    def scraped(self) -> Series:
        """Scrapes a worker; that fails while a worker makes its file.

        A scrape fails while a worker makes its file, which is empty for a moment (prometheus_client, issue 1199).
        """
        told: list[str] = []

        def is_told() -> bool:
            told.append(self.body("/metrics"))
            return told[-1] != ""

        eventually(is_told, "a scrape that is answered")
        families = text_string_to_metric_families(told[-1])
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families
            for sample in family.samples
        }


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Prefork]:
    with Prefork(tmp_path) as started:
        started.sent = 2 + started.sent  # the request that it was found to listen by, and the one before the fork
        yield started


def test_a_scrape_tells_of_all_workers_and_of_one_that_was_killed(server: Prefork) -> None:
    """Counters never fall, and end at what was sent, which counts once; gauges are those of the processes that live."""
    scrapes = [server.scraped()]
    seen: set[int] = set()

    def all_have_answered() -> bool:
        seen.update(server.processes(CLIENTS))
        scrapes.append(server.scraped())
        return len(seen) == WORKERS

    def all_is_told() -> bool:
        scrapes.append(server.scraped())
        return scrapes[-1].get(ADMITTED) == server.sent

    eventually(all_have_answered, "an answer from every worker")
    server.processes()
    eventually(all_is_told, "every request is told")
    killed = min(seen)
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: len(server.processes(CLIENTS) - seen) == 1, "another worker in its place")
    server.processes()
    eventually(all_is_told, "every request is told, those of the killed one, too")
    eventually(lambda: ready(server.scraped()) == 1 + WORKERS, "as many are ready as live: the master, too")

    for before, after in pairwise(scrapes):
        falling = [name for name, value in before.items() if name[0].endswith("_total") and after.get(name, 0) < value]
        assert [] == falling


def ready(series: Series) -> float:
    return series["reconverge_health", (("state", "ready"),)]
