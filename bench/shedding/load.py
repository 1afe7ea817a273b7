"""Sends the traffic of a case, and records the answer to each request; runs in a process of its own."""

# Requests are sent when they are due, even if the service is slow: clients do not slow down because it is slow. A
# request that has no answer within its timeout is lost, and its connection closed, as clients do. The report also has
# the delay of late requests: a generator that could not keep its times has measured the machine, and not the service.

from __future__ import annotations

import asyncio
import gc
import sys
import time
from dataclasses import dataclass
from typing import Any, Final

from bench.child import answer, in_a_process
from bench.shedding.cases import CASES, TIMEOUT_S, USER, Timeline
from bench.shedding.service import BEGIN
from reconverge.clock import SECOND_NS

HEAD: Final = b"GET / HTTP/1.1\r\nHost: bench\r\n"
REQUESTS: Final = {True: HEAD + b"X-Traffic-Class: critical\r\n\r\n", False: HEAD + b"\r\n"}
"""The bytes of a request, by whether a user has made it."""
LENGTH: Final = b"\r\ncontent-length: "
LOST: Final = 0
"""The status of a request without an answer in time."""
LEAD_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request.

    `due_s` is in seconds since the beginning; `status` is 0 if no answer came in time.
    """

    due_s: float
    user: bool
    status: int
    took_s: float


@dataclass(frozen=True, slots=True)
class Heard:
    """The report of a generator; `late_s` is the delay of the latest request."""

    answers: list[Answer]
    late_s: float


def drive(case: str, port: int, timeline: Timeline, seed: int) -> Heard:
    """Sends the whole traffic of a case."""
    times = [timeline.calm_s, timeline.trouble_s, timeline.after_s]
    found = in_a_process("bench.shedding.load", {"case": case, "port": port, "times": times, "seed": seed})
    return Heard([Answer(*each) for each in found["answers"]], found["late_s"])


class _Connection(asyncio.Protocol):
    """A connection, which has one request at a time."""

    def __init__(self, generator: _Generator) -> None:
        self._generator = generator
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._due_s = 0.0
        self._user = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def ask(self, due_s: float, *, user: bool) -> None:
        """Sends a request that was due at this moment."""
        self._due_s, self._user, self._buffer = due_s, user, b""
        assert self._transport is not None
        left_s = max(0.0, due_s + TIMEOUT_S - self._generator.now_s())
        self._timer = asyncio.get_running_loop().call_later(left_s, self._give_up)
        self._transport.write(REQUESTS[user])

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        if end and len(body) >= int((head.lower() + b"\r\n").partition(LENGTH)[2].partition(b"\r\n")[0] or 0):
            self._done(int(head[9:12]))
            self._generator.idle.append(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # the protocol has this argument
        if self in self._generator.idle:
            self._generator.idle.remove(self)
        self._done(LOST)

    def _give_up(self) -> None:
        self._done(LOST)
        self.close()

    def _done(self, status: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._generator.note(self._due_s, status, user=self._user)

    def close(self) -> None:
        """Closes the connection, even if a request is under way."""
        if self._transport is not None:
            self._transport.abort()


class _Generator:
    """Sends requests when they are due, over as many connections as they need."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.begins_ns = 0
        self.idle: list[_Connection] = []
        self.answers: list[tuple[float, bool, int, float]] = []
        self.late_s = 0.0
        self._opening: set[asyncio.Task[None]] = set()

    def now_s(self) -> float:
        """Returns the seconds since the beginning."""
        return (time.monotonic_ns() - self.begins_ns) / SECOND_NS

    def note(self, due_s: float, status: int, *, user: bool) -> None:
        """Notes that a request has ended."""
        self.answers.append((due_s, user, status, self.now_s() - due_s))

    async def run(self, case: str, timeline: Timeline, seed: int) -> None:
        """Sends the traffic of a case."""
        self.begins_ns = time.monotonic_ns() + round(LEAD_S * SECOND_NS)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"GET %s%d HTTP/1.1\r\nHost: bench\r\n\r\n" % (BEGIN.encode(), self.begins_ns))
        await reader.readuntil(b"ok")
        writer.close()
        for due_s, stream in CASES[case].due(timeline, seed):
            wait_s = due_s - self.now_s()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            self.late_s = max(self.late_s, self.now_s() - due_s)
            self._send(due_s, user=stream == USER)
        await asyncio.sleep(TIMEOUT_S + 0.1)
        if self._opening:
            await asyncio.wait(self._opening, timeout=TIMEOUT_S)

    def _send(self, due_s: float, *, user: bool) -> None:
        if self.idle:
            self.idle.pop().ask(due_s, user=user)
            return
        task = asyncio.get_running_loop().create_task(self._open(due_s, user=user))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, due_s: float, *, user: bool) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(max(0.0, due_s + TIMEOUT_S - self.now_s())):
                _, connection = await loop.create_connection(lambda: _Connection(self), "127.0.0.1", self.port)
        except (OSError, TimeoutError):
            self.note(due_s, LOST, user=user)
            return
        connection.ask(due_s, user=user)


def _work(case: str, port: int, times: list[float], seed: int) -> Any:
    gc.disable()
    generator = _Generator(port)
    asyncio.run(generator.run(case, Timeline(*times), seed))
    return {"answers": sorted(generator.answers), "late_s": generator.late_s}


if __name__ == "__main__":
    sys.exit(answer(_work))
