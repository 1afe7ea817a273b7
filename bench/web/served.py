"""Measures the cost of a limiter for a web application driven by wrk: CPU time, requests per second and their p99.

The load generator, the application and the Redis share the processors, so that only the CPU time is the application's
own on a machine with few processors, or a busy one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.child import ROOT, Missing
from bench.decisions.peers import peer
from bench.report.found import Row, Spread
from bench.servers import free_port, redis_on_loopback, wait_for
from bench.web.applications import BY_HAND, GUARDED

PART: Final = "web"
NONE: Final = "no limiter"
DROP_IN: Final = " on reconverge"
"""The end of the name of a limiter whose storage is ours; see `bench.web.drop_in`."""
ROUNDS: Final = 5
SECONDS: Final = 4
CONNECTIONS: Final = 32
PERCENTILES: Final = Path(__file__).with_name("percentiles.lua")
CASES: Final = (("CPU of the application for a request", "µs"), ("requests per second", "per second"), ("p99", "ms"))
_UNITS: Final = {"us": 1e-3, "ms": 1.0, "s": 1e3}


@dataclass(frozen=True, slots=True)
class Served:
    """An application behind a server."""

    name: str
    command: tuple[str, ...]
    needs: tuple[str, ...]
    limiters: tuple[str, ...]
    workers: tuple[str, ...]
    """The command-line arguments for four workers."""


SERVED: Final = (
    Served(
        "FastAPI under uvicorn",
        ("uvicorn", "--factory", "bench.web.applications:fastapi", "--log-level", "error", "--no-access-log", "--port"),
        ("fastapi", "uvicorn"),
        (NONE, BY_HAND, GUARDED, "slowapi"),
        ("--workers", "4"),
    ),
    Served(
        "Flask under gunicorn",
        ("gunicorn", "bench.web.applications:flask()", "--threads", "4", "--log-level", "error", "--bind"),
        ("flask", "gunicorn"),
        (NONE, BY_HAND, GUARDED, "flask-limiter"),
        ("--workers", "4", "--preload", "--worker-class", "gthread"),
    ),
)


def measure(*, quick: bool, only: str = "") -> Iterator[Row]:
    """Measures each application without a limiter, with ours and with another, in turn.

    Ours is measured in two forms: a route that asks a limit itself, and the usual one, with rules and fields.
    """
    for served in SERVED:
        if only not in served.name:
            continue
        try:
            yield from _measure(served, 1 if quick else ROUNDS, 1 if quick else SECONDS)
        except Missing as error:
            yield Row(PART, served.name, NONE, missing=str(error))


def _measure(served: Served, rounds: int, seconds: int) -> Iterator[Row]:
    for module in served.needs:
        peer(module)
    wrk = shutil.which("wrk")
    if wrk is None:
        raise Missing("wrk is not installed")
    measured: dict[str, list[tuple[float, float, float]]] = {limiter: [] for limiter in served.limiters}
    for _ in range(rounds):
        for limiter, found in list(measured.items()):
            try:
                found.append(drive(wrk, served, limiter, seconds))
            except Missing as error:
                yield Row(PART, f"{served.name}, {CASES[0][0]}", limiter, missing=str(error))
                del measured[limiter]
    for limiter, found in measured.items():
        for at, (case, unit) in enumerate(CASES):
            ratios = [one[at] / none[at] for one, none in zip(found, measured[NONE], strict=True)]
            values = Spread.of([one[at] for one in found])
            yield Row(PART, f"{served.name}, {case}", limiter, NONE, Spread.of(ratios), values, unit)


@dataclass(frozen=True, slots=True)
class Driven:
    """The results of one run of wrk: the number of answered requests, in all and per second, and latencies in ms."""

    answered: int
    per_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float


def run_wrk(wrk: str, port: int, seconds: int) -> Driven:
    """Drives the application on `port`. Raises RuntimeError if it answers with an error, or not at all."""
    command = [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", "-s", str(PERCENTILES)]
    command.append(f"http://127.0.0.1:{port}/")
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60 + seconds).stdout
    requests, per_s = re.search(r"(\d+) requests in", said), re.search(r"Requests/sec: +([\d.]+)", said)
    latencies = {share: (float(took), unit) for share, took, unit in re.findall(r"(\d+)% +([\d.]+)(us|ms|s)", said)}
    rarest = re.search(r"p99\.9 (\d+)us", said)
    if "Non-2xx" in said or None in (requests, per_s, rarest) or not {"50", "99"} <= latencies.keys():
        raise RuntimeError(f"the application has not answered as it should:\n{said}")
    p50_ms, p99_ms = (took * _UNITS[unit] for took, unit in (latencies["50"], latencies["99"]))
    assert requests is not None
    assert per_s is not None
    assert rarest is not None
    return Driven(int(requests[1]), float(per_s[1]), p50_ms, p99_ms, int(rarest[1]) / 1000)


def drive(wrk: str, served: Served, limiter: str, seconds: int) -> tuple[float, float, float]:
    """Returns the CPU time of a request in µs, the requests per second, and their p99 in ms."""
    if limiter not in (NONE, BY_HAND, GUARDED):
        peer(limiter.removesuffix(DROP_IN).replace("-", "_"))
    with redis_on_loopback() as port, application(served, limiter, port) as (http_port, process):
        run_wrk(wrk, http_port, 1)  # a warm-up
        begun_s = cpu_s(process)
        driven = run_wrk(wrk, http_port, seconds)
        spent_s = cpu_s(process) - begun_s
    return spent_s * 1e6 / driven.answered, driven.per_s, driven.p99_ms


@contextmanager
def application(
    served: Served, limiter: str, redis_port: int, *options: str, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[int, int]]:
    """Serves an application, with further options and variables for the server; yields its port and process."""
    port = free_port()
    where = f"127.0.0.1:{port}" if served.command[-1] in ("-b", "--bind") else str(port)
    path = os.pathsep.join(map(str, (ROOT, ROOT / "agent", ROOT / "sync")))
    said = {"BENCH_LIMITER": limiter, "BENCH_REDIS": str(redis_port), "PYTHONPATH": path}
    command = [sys.executable, "-m", *served.command, where, *options]
    process = subprocess.Popen(command, env={**os.environ, **said, **(environment or {})}, cwd=ROOT)
    try:
        wait_for(port)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def cpu_s(process: int) -> float:
    """Returns the CPU time that a process and its children have used until now, in seconds."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ticks = 0
    for each in (process, *children):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
