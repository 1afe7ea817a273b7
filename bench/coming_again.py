"""Measures how many clients are admitted again after the wait that Flask-Limiter's Retry-After names.

python -m bench.coming_again [--quick]

Prints the table that docs/guide/migration.md sums up. Each client has a key of its own, asks until it is refused, waits
for the time in the response, and asks once. The application is served by gunicorn; each request goes over a connection
of its own, so any worker may take it.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any, Final, NamedTuple

from limits.strategies import STRATEGIES

from bench.servers import free_port, redis_on_loopback

QUOTAS: Final = ("3/5 seconds", "1/second")
CLIENTS: Final = 100
ASKED_MAX: Final = 60
"""The most requests of a client that is never refused."""
PAUSE_S: Final = 0.01
"""The pause between two requests of a client, in seconds."""
SPREAD_S: Final = 5.0
"""The time, in seconds, in which clients begin at random moments: at any place of a window."""
STARTING_S_MAX: Final = 30.0
STORAGES: Final = (
    ("theirs, Redis", "redis://127.0.0.1:{port}/0", 1),
    ("theirs, Redis", "redis://127.0.0.1:{port}/0", 2),
    ("ours, memory", "reconverge+memory://shop", 1),
    ("ours, Redis", "reconverge+redis://127.0.0.1:{port}/1", 1),
    ("ours, Redis", "reconverge+redis://127.0.0.1:{port}/1", 2),
)


class Client(NamedTuple):
    """The experience of one client."""

    admitted: int
    """The requests that were admitted before the refusal."""
    announced_s: int
    """The seconds to wait by the refusal's Retry-After; -1 if no request was refused."""
    came_again: bool
    """Whether the request after the wait was admitted."""


def application() -> Any:
    """Returns a Flask application with the limit that the environment names."""
    import flask  # noqa: PLC0415  # the client needs none
    from flask_limiter import Limiter  # noqa: PLC0415

    importlib.import_module("reconverge.integrations.limits_storage")  # this import registers the schemes
    app = flask.Flask(__name__)
    Limiter(
        lambda: flask.request.args["key"],
        app=app,
        default_limits=[os.environ["QUOTA"]],
        storage_uri=os.environ["STORAGE"],
        strategy=os.environ["STRATEGY"],
        headers_enabled=True,
    )

    @app.get("/")
    def root() -> str:
        return "here you are"

    return app


def main() -> None:
    """Makes all measurements, and prints them as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="ten clients, which shows that it works")
    quick = parser.parse_args().quick
    print(
        "| quota | strategy | storage | processes | admitted again | announced (s) | admitted at first |\n"
        + "|---" * 7
        + "|"
    )
    for quota in QUOTAS[:1] if quick else QUOTAS:
        for strategy in STRATEGIES:
            for name, uri, workers in STORAGES:
                print(row(quota, strategy, name, uri, workers, clients=10 if quick else CLIENTS), flush=True)


def row(quota: str, strategy: str, name: str, uri: str, workers: int, *, clients: int) -> str:
    """Returns one line of the table."""
    with (
        redis_on_loopback() as redis_port,
        served(quota, strategy, uri.format(port=redis_port), workers) as port,
        ThreadPoolExecutor(clients) as threads,
    ):
        found = list(threads.map(lambda number: come(port, f"client-{number}"), range(clients)))
    refused = [client for client in found if client.announced_s >= 0]
    announced = [client.announced_s for client in refused] or [0]
    again = f"{sum(client.came_again for client in refused)} of {len(refused)}"
    first = sum(client.admitted for client in found) / len(found)
    return (
        f"| {quota} | {strategy} | {name} | {workers} | {again} | {min(announced)} to {max(announced)} | {first:.1f} |"
    )


def come(port: int, key: str) -> Client:
    """Sends requests until one is refused, waits as the refusal announces, and sends one more."""
    time.sleep(random.random() * SPREAD_S)
    for admitted in range(ASKED_MAX):
        response = ask(port, key)
        if response.status != 200:
            announced_s = int(response.headers["Retry-After"])
            time.sleep(announced_s)
            return Client(admitted, announced_s, ask(port, key).status == 200)
        time.sleep(PAUSE_S)
    return Client(ASKED_MAX, -1, came_again=True)


def ask(port: int, key: str) -> HTTPResponse:
    """Sends one request over a connection of its own."""
    connection = HTTPConnection("127.0.0.1", port, timeout=STARTING_S_MAX)
    try:
        connection.request("GET", f"/?key={key}")
        response = connection.getresponse()
        response.read()
        return response
    finally:
        connection.close()


@contextmanager
def served(quota: str, strategy: str, uri: str, workers: int) -> Iterator[int]:
    """Serves the application; yields its port."""
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "--workers", str(workers), "--bind", f"127.0.0.1:{port}"]
    command += ["--log-level", "error", "--backlog", "1024", "bench.coming_again:application()"]
    said = {"QUOTA": quota, "STORAGE": uri, "STRATEGY": strategy}
    process = subprocess.Popen(command, env={**os.environ, **said})
    try:
        until_s = time.monotonic() + STARTING_S_MAX
        while True:
            try:
                ask(port, "warming")
            except OSError:
                if process.poll() is not None or time.monotonic() > until_s:
                    raise
                time.sleep(0.05)
            else:
                break
        time.sleep(1.0)  # all workers have started by then
        yield port
    finally:
        process.terminate()
        process.wait(STARTING_S_MAX)


if __name__ == "__main__":
    main()
