"""Asks several servers at once, and measures the time of the answers in each phase; runs in a process of its own.

At a rate, a request's time begins when it is due, so its wait for a connection counts. Without a rate, each connection
asks again as soon as it has an answer.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from bench.child import answer, in_a_process
from reconverge.clock import MILLISECOND_NS, SECOND_NS

REQUEST: Final = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n"
LENGTH: Final = b"\r\ncontent-length: "
BROKEN: Final = "broken"
"""The status of an answer that did not come."""


@dataclass(frozen=True, slots=True)
class Phase:
    """The answers of one server in one phase."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    longest_ms: float
    gap_ms: float
    """The longest time without any answer, in milliseconds."""
    per_s: float
    answers: dict[str, int]
    """The number of answers by status."""


def drive(ports: list[int], *, connections: int, rate: float, begins_ns: list[int], ends_ns: int) -> list[list[Phase]]:
    """Asks each server until `ends_ns`, on the monotonic clock. Requests due before the first phase are left out.

    Returns the phases of each server. `rate` is in requests per second for each server; zero is for as many as
    possible.
    """
    task = {"ports": ports, "connections": connections, "rate": rate, "begins_ns": begins_ns, "ends_ns": ends_ns}
    return [[Phase(**phase) for phase in phases] for phases in in_a_process("bench.web.load", task)]


@dataclass(slots=True)
class _Server:
    """The state of one server."""

    port: int
    due: asyncio.Queue[int] = field(default_factory=asyncio.Queue)
    """The moments of requests that are due and not sent yet."""
    answered: list[tuple[int, int, str]] = field(default_factory=list)
    """The moment at which each request was due, the moment of its answer, and the status."""


async def _drive(ports: list[int], connections: int, rate: float, begins_ns: list[int], ends_ns: int) -> Any:
    gc.disable()
    servers = [_Server(port) for port in ports]
    async with asyncio.TaskGroup() as tasks:
        for server in servers:
            if rate:
                tasks.create_task(_fall_due(server, rate, ends_ns, connections))
            for _ in range(connections):
                tasks.create_task(_ask(server, ends_ns, at_a_rate=bool(rate)))
    return [_phases(server.answered, begins_ns, ends_ns) for server in servers]


async def _fall_due(server: _Server, rate: float, ends_ns: int, connections: int) -> None:
    due_ns = time.monotonic_ns()
    while due_ns < ends_ns:
        await asyncio.sleep(max(0, due_ns - time.monotonic_ns()) / SECOND_NS)
        server.due.put_nowait(due_ns)
        due_ns += round(SECOND_NS / rate)
    for _ in range(connections):
        server.due.put_nowait(ends_ns)


async def _ask(server: _Server, ends_ns: int, *, at_a_rate: bool) -> None:
    """Asks over one connection, which is made anew when it breaks."""
    connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    while (due_ns := await server.due.get() if at_a_rate else time.monotonic_ns()) < ends_ns:
        try:
            connection = connection or await asyncio.open_connection("127.0.0.1", server.port)
            status = await _answer(*connection)
        except (OSError, asyncio.IncompleteReadError):
            status, connection = BROKEN, None
        server.answered.append((due_ns, time.monotonic_ns(), status))
    if connection is not None:
        connection[1].close()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    writer.write(REQUEST)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    await reader.readexactly(int(head.partition(LENGTH)[2].partition(b"\r\n")[0]))
    return head[9:12].decode()


def _phases(answered: list[tuple[int, int, str]], begins_ns: list[int], ends_ns: int) -> list[dict[str, Any]]:
    """Returns the figures by phase: requests by the phase in which they were due, gaps by that of their beginning."""
    edges_ns = [*begins_ns, ends_ns]
    took_ns: list[list[int]] = [[] for _ in begins_ns]
    answers: list[Counter[str]] = [Counter() for _ in begins_ns]
    gaps_ns = [0 for _ in begins_ns]
    for due_ns, done_ns, status in answered:
        at = bisect_right(edges_ns, due_ns) - 1
        if 0 <= at < len(begins_ns):
            took_ns[at].append(done_ns - due_ns)
            answers[at][status] += 1
    for before_ns, after_ns in pairwise(sorted(done_ns for _, done_ns, _ in answered)):
        at = bisect_right(edges_ns, before_ns) - 1
        if 0 <= at < len(begins_ns):
            gaps_ns[at] = max(gaps_ns[at], after_ns - before_ns)
    return [
        _phase(sorted(took), dict(statuses), gap_ns, (edges_ns[at + 1] - edges_ns[at]) / SECOND_NS)
        for at, (took, statuses, gap_ns) in enumerate(zip(took_ns, answers, gaps_ns, strict=True))
    ]


def _phase(took_ns: list[int], answers: dict[str, int], gap_ns: int, length_s: float) -> dict[str, Any]:
    p50, p99, p999 = (took_ns[len(took_ns) * permille // 1000] / MILLISECOND_NS for permille in (500, 990, 999))
    return {
        "p50_ms": p50,
        "p99_ms": p99,
        "p999_ms": p999,
        "longest_ms": took_ns[-1] / MILLISECOND_NS,
        "gap_ms": gap_ns / MILLISECOND_NS,
        "per_s": len(took_ns) / length_s,
        "answers": answers,
    }


def _work(**task: Any) -> Any:
    return asyncio.run(_drive(**task))


if __name__ == "__main__":
    sys.exit(answer(_work))
