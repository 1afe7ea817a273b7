"""Measures the cost of a limit for a request under a server with connections, beside the bare application.

The cost is the CPU time of the server's processes for a request, with the exchange of a Redis. All applications of one
server are served at once and driven in turn, so that other work on the machine slows all of them alike; those that are
not driven wait. All are started anew several times: two processes of the same program differ by more than a limit
costs, and as long as they run.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Final

from bench.child import Missing
from bench.decisions.peers import peer
from bench.report.found import Row, Spread
from bench.servers import START_S_MAX, redis_on_loopback
from bench.web.limited import BARE, CONSTANT, FLASK_LIMITER, LIMITED, PEERS, REFUSED, SLOWAPI, TRIVIAL
from bench.web.served import CONNECTIONS, Served, application, cpu_s

PART: Final = "middleware"
UNIT: Final = "µs"
STARTS: Final = 4
TURNS: Final = 2
"""The turns in each start."""
SECONDS: Final = 1
KNOWN_S: Final = 3
"""The seconds after which each key has been asked about, and the hub about each."""
KEYS: Final = Path(__file__).with_name("keys.lua")
"""A script that makes wrk send a key with each request."""
H11: Final = "uvicorn with h11"
HTTPTOOLS: Final = "uvicorn with httptools"
GTHREAD: Final = "gunicorn with gthread"


def case_of(framework: str, server: str) -> str:
    """Returns the name of a case in the table."""
    return f"served, {framework} under {server}"


def _of_uvicorn(framework: str, factory: str, server: str, needs: tuple[str, ...], limiters: tuple[str, ...]) -> Served:
    http = server.rpartition(" ")[2]
    command = ("uvicorn", "--factory", f"bench.web.limited:{factory}", "--log-level", "error", "--no-access-log")
    # All servers run on this loop, even if a faster one is installed.
    options = ("--http", http, "--loop", "asyncio", "--port")
    return Served(case_of(framework, server), command + options, ("uvicorn", http, *needs), limiters, ())


SERVED: Final = (
    *(
        _of_uvicorn("ASGI", "served_asgi", server, (), (BARE, CONSTANT, LIMITED, REFUSED))
        for server in (H11, HTTPTOOLS)
    ),
    *(
        _of_uvicorn("FastAPI", "served_fastapi", server, ("fastapi",), (BARE, TRIVIAL, LIMITED, REFUSED, SLOWAPI))
        for server in (H11, HTTPTOOLS)
    ),
    Served(
        case_of("Flask", GTHREAD),
        (
            "gunicorn",
            "bench.web.limited:served_flask()",
            "-k",
            "gthread",
            "--threads",
            "4",
            "--log-level",
            "error",
            "-b",
        ),
        ("flask", "gunicorn"),
        (BARE, CONSTANT, LIMITED, REFUSED, FLASK_LIMITER),
        (),
    ),
)


def measure(*, quick: bool, only: str = "", without: Collection[str] = ()) -> Iterator[Row]:
    """Measures each server with all of its applications but those that are to be left out."""
    for served in SERVED:
        if only not in served.name:
            continue
        limiters = tuple(each for each in served.limiters if each not in without)
        try:
            yield from _measure(replace(served, limiters=limiters), *((1, 1) if quick else (STARTS, TURNS)))
        except Missing as error:
            yield Row(PART, served.name, BARE, missing=str(error))
        except RuntimeError as error:  # the figures of the other servers are printed nevertheless
            print(error, file=sys.stderr, flush=True)
            yield Row(PART, served.name, BARE, missing=str(error).partition(":")[0])


def _measure(served: Served, starts: int, turns: int) -> Iterator[Row]:
    for module in served.needs:
        peer(module)
    wrk = shutil.which("wrk")
    if wrk is None:
        raise Missing("wrk is not installed")
    there: list[str] = []
    for what in served.limiters:
        try:
            if what in PEERS:
                peer(PEERS[what])
            there.append(what)
        except Missing as error:
            yield Row(PART, served.name, what, missing=str(error))
    spent_us: dict[str, list[float]] = {what: [] for what in there}
    for start in range(starts):
        order = there[::-1] if start % 2 else there
        for what, several in _started(wrk, replace(served, limiters=tuple(order)), turns).items():
            spent_us[what] += several
    bare = spent_us[BARE]
    for what, spent in spent_us.items():
        ratio = Spread.of([one / least for one, least in zip(spent, bare, strict=True)])
        costs = [one - least for one, least in zip(spent, bare, strict=True)]
        yield Row(PART, served.name, what, BARE, ratio, Spread.of(bare if what == BARE else costs), UNIT)


def _started(wrk: str, served: Served, turns: int) -> dict[str, list[float]]:
    """Returns the CPU time of a request to each application, in each turn of one start."""
    with ExitStack() as stack:
        redis = stack.enter_context(redis_on_loopback())
        running = {what: stack.enter_context(application(served, what, redis)) for what in served.limiters}
        for what, (port, process) in running.items():
            warm(wrk, port, process, 1 if what in (BARE, CONSTANT, TRIVIAL) else KNOWN_S, refused=what == REFUSED)
        spent_us: dict[str, list[float]] = {what: [] for what in running}
        for _ in range(turns):
            for what, (port, process) in running.items():
                spent_us[what].append(driven_us(wrk, port, process, SECONDS, refused=what == REFUSED))
    return spent_us


def warm(wrk: str, port: int, process: int, seconds: int, *, refused: bool) -> None:
    """Asks until imports, routes and keys are made; a server may listen long before its worker answers."""
    deadline_s = time.monotonic() + START_S_MAX
    while driven_us(wrk, port, process, seconds, refused=refused) == inf:
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"nothing has answered on port {port}")


def driven_us(wrk: str, port: int, process: int, seconds: int, *, refused: bool) -> float:
    """Returns the CPU time of a request in all of the server's processes; infinite if none was answered.

    Raises RuntimeError if an answer is not the measured one.
    """
    command = [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", str(KEYS), f"http://127.0.0.1:{port}/"]
    begun_s = cpu_s(process)
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60 + seconds).stdout
    spent_s = cpu_s(process) - begun_s
    requests = re.search(r"(\d+) requests in", said)
    if requests is None or (not refused and "Non-2xx" in said):
        raise RuntimeError(f"the application has not answered as it should:\n{said}")
    answered = int(requests.group(1))
    return spent_s * 1e6 / answered if answered else inf
