"""The service of `make bench-shedding`: an ASGI application under uvicorn, whose capacity changes with time."""

# A sleep on the thread of the event loop stands for a handler that computes: it blocks the loop as well, and its length
# does not depend on other work of the machine. A semaphore and a sleep of asyncio stand for a pool.

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from typing import Any, Final

from bench.child import ROOT
from bench.servers import free_port, wait_for
from bench.shedding.cases import CASES, Case, Timeline
from reconverge.clock import SECOND_NS
from reconverge.integrations.shedding import LoadSheddingMiddleware
from reconverge.shedding import AdaptiveConcurrency, Fixed, Stack, TrafficClasses

CASE: Final = "BENCH_SHEDDING_CASE"
GATE: Final = "BENCH_SHEDDING_GATE"
TIMES: Final = "BENCH_SHEDDING_TIMES"
NONE: Final = "no limiter"
FIXED: Final = "a fixed limit of 20"
OURS: Final = "reconverge"
GATES: Final = (NONE, FIXED, OURS)
FIXED_LIMIT: Final = 20
"""A limit of twice the pool's workers, which an operator might choose after measurements in calm times."""
BEGIN: Final = "/begin/"
"""The beginning of a path, before the moment at which the case begins, in nanoseconds of the monotonic clock."""


class Service:
    """An application that answers every request with the same two bytes, as soon as it can."""

    def __init__(self, case: Case, timeline: Timeline) -> None:
        self._case = case
        self._timeline = timeline
        self._pool = asyncio.Semaphore(case.workers) if case.workers else None
        self.begins_ns = time.monotonic_ns()

    async def __call__(self, _scope: Any, _receive: Any, send: Any) -> None:
        """Serves one ASGI request."""
        pool: AbstractAsyncContextManager[Any] = nullcontext() if self._pool is None else self._pool
        async with pool:
            troubled = self._timeline.troubled((time.monotonic_ns() - self.begins_ns) / SECOND_NS)
            service_s = self._case.service_s[troubled]
            if self._pool is None:
                time.sleep(service_s)  # noqa: ASYNC251  # the blocked loop is the reason to shed
            else:
                await asyncio.sleep(service_s)
        await _answer(send)


class Begun:
    """Lets the load generator set the beginning of the case, by a request that no limiter decides."""

    def __init__(self, app: Any, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serves one ASGI request."""
        if scope["type"] == "http" and scope["path"].startswith(BEGIN):
            self._service.begins_ns = int(scope["path"].removeprefix(BEGIN))
            await _answer(send)
        else:
            await self._app(scope, receive, send)


async def _answer(send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def gated(gate: str, app: Any) -> Any:
    """Returns the application behind the limiter named `gate`."""
    if gate == NONE:
        return app
    if gate == FIXED:
        classes = TrafficClasses(["all"], classify=lambda _: "all")
        return LoadSheddingMiddleware(app, Stack(AdaptiveConcurrency(Fixed(FIXED_LIMIT), classes=classes)))
    return LoadSheddingMiddleware(app, Stack(classes=TrafficClasses(trust_header=True)))


def application() -> Any:
    """Returns the application that uvicorn serves, as the environment names it."""
    service = Service(CASES[os.environ[CASE]], Timeline(*map(float, os.environ[TIMES].split(","))))
    return Begun(gated(os.environ[GATE], service), service)


@contextmanager
def served(case: str, gate: str, timeline: Timeline) -> Iterator[int]:
    """Serves a case on a loopback port, in a process of its own; yields the port."""
    port = free_port()
    times = f"{timeline.calm_s},{timeline.trouble_s},{timeline.after_s}"
    path = os.pathsep.join(map(str, (ROOT, ROOT / "agent", ROOT / "sync")))
    environment = os.environ | {CASE: case, GATE: gate, TIMES: times, "PYTHONPATH": path}
    command = [sys.executable, "-m", "uvicorn", "--factory", "bench.shedding.service:application"]
    options = ["--port", str(port), "--log-level", "error", "--no-access-log", "--lifespan", "off"]
    process = subprocess.Popen([*command, *options], env=environment, cwd=ROOT)
    try:
        wait_for(port)
        yield port
    finally:
        process.kill()  # a service without a limiter would first answer requests for which no client waits any more
        process.wait()
