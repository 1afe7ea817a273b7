"""Answers that make no sense: a proxy that rewrites a Redis' replies, and a third-party hub object.

The lies are out of any domain: a time before the year 1970 or in the year 146,000, a value of another type, fewer or
more rows than were asked for, negative or astronomical counts, bytes that end in the middle. A lie that could be true
is not among them: a hub is trusted with what it grants, and no node could recognize such a lie.

Requests pass unchanged. So a batch is merged although its answer makes no sense, and its reports count once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final, cast

from reconverge.errors import HubUnavailable
from reconverge.hub import Hub
from reconverge.hub.report import WHOLE_MAX, Answer, Batch, CellAnswer, Totals
from reconverge_sync.codec import decode_answer, encode_answer

READ_BYTES: Final = 65_536
ABSURD_US: Final = (2**62, -(2**62), -1, 2**63 - 1)
"""Times of a hub, in microseconds since 1970."""
ABSURD_COUNTS: Final = (-(2**40), 2**62, -(2**62), WHOLE_MAX + 1)
NEVER_S: Final = 3600.0

TIME, COUNTS, ROWS, TYPES, BYTES = "time", "counts", "rows", "types", "bytes"
KINDS: Final = (TIME, COUNTS, ROWS, TYPES, BYTES)
"""The kinds of lies, by the part of an answer that is wrong."""
OTHER_TYPES: Final = (
    b"$-1\r\n",
    b"*-1\r\n",
    b":7\r\n",
    b"+OK\r\n",
    b"-WRONG nonsense\r\n",
    b"*2\r\n:1\r\n$-1\r\n",
    b"*0\r\n",
)


# -------------------------------------------------------------------- replies of a Redis


def reply_end(buffer: bytes, start: int = 0) -> int | None:
    """Returns the end of the reply that begins at `start`; None if the rest of it has yet to come."""
    line_end = buffer.find(b"\r\n", start)
    if line_end < 0:
        return None
    kind, after = buffer[start : start + 1], line_end + 2
    if kind in b"$=!":
        length = int(buffer[start + 1 : line_end])
        end = after if length < 0 else after + length + 2
        return end if end <= len(buffer) else None
    if kind in b"*~>%":
        items = max(0, int(buffer[start + 1 : line_end])) * (2 if kind == b"%" else 1)
        for _ in range(items):
            end_of_item = reply_end(buffer, after)
            if end_of_item is None:
                return None
            after = end_of_item
    return after


def bulk(payload: bytes) -> bytes:
    """Returns a string in the server's protocol."""
    return b"$%d\r\n%b\r\n" % (len(payload), payload)


def lie(reply: bytes, kind: str, random: Random) -> bytes:
    """Returns a lie in place of a reply. A reply that this kind of lie does not fit stays as it is."""
    if kind == TYPES:
        return random.choice(OTHER_TYPES)
    if kind == BYTES:
        return _broken(reply, random)
    with contextlib.suppress(HubUnavailable):
        answer = decode_answer(reply[reply.find(b"\r\n") + 2 : -2])
        return bulk(encode_answer(_absurd(answer, kind, random)))
    return b"".join(_with_absurd_numbers(reply, random))


def _broken(reply: bytes, random: Random) -> bytes:
    """Returns a reply that is cut, or has other bytes, in a right or in a wrong frame."""
    payload = reply[reply.find(b"\r\n") + 2 : -2]
    cut = random.randrange(len(payload)) if payload else 0
    return random.choice(
        (
            bulk(payload[:cut]),
            bulk(random.randbytes(len(payload))),
            bulk(payload + random.randbytes(9)),
            bulk(bytes(len(payload))),
            random.randbytes(40) + b"\r\n",
            reply[: random.randrange(1, max(2, len(reply) - 2))],
        )
    )


def _absurd(answer: Answer, kind: str, random: Random) -> Answer:
    if kind == TIME:
        return answer._replace(hub_us=random.choice(ABSURD_US))
    cells = list(answer.cells)
    if kind == ROWS or not cells:
        cells = (
            cells[1:] if cells and random.random() < 0.5 else cells + [CellAnswer(*[0] * 16)] * random.randint(1, 300)
        )
    else:
        field = random.choice(CellAnswer._fields)
        cells = [cell._replace(**{field: random.choice(ABSURD_COUNTS)}) for cell in cells]
    return answer._replace(cells=tuple(cells))


def _with_absurd_numbers(reply: bytes, random: Random) -> Iterator[bytes]:
    """Returns the reply with another number in place of each number."""
    lines = reply.split(b"\r\n")
    for at, line in enumerate(lines[:-1]):
        absurd = b"%d" % random.choice(ABSURD_COUNTS)
        if line[:1] == b":":
            yield b":" + absurd + b"\r\n"
        elif line[:1] == b"$" and lines[at + 1].isdigit():
            lines[at + 1] = absurd
            yield b"$%d\r\n" % len(absurd)
        else:
            yield line + b"\r\n"


class LyingProxy:
    """A proxy to a Redis that answers nonsense of the kinds in `kinds`, while there are any, instead of the truth.

    The first replies of a connection pass unchanged: they are about the login, and no answers of a hub.
    """

    def __init__(self, upstream_port: int, random: Random) -> None:
        self._upstream_port = upstream_port
        self._random = random
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.kinds: tuple[str, ...] = ()
        self.lied = 0
        """The number of lies that were sent."""

    async def start(self) -> None:
        """Begins to listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    @property
    def port(self) -> int:
        """Returns the port on which the proxy listens."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Closes all connections, and stops listening."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, near: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(cast("asyncio.Task[None]", task))
        far_out = None
        try:
            far, far_out = await asyncio.open_connection("127.0.0.1", self._upstream_port)
            pumps = [asyncio.create_task(_pass_on(near, far_out)), asyncio.create_task(self._answer(far, near_out))]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass  # the server is gone, which the node sees by its own connection
        finally:
            self._tasks.discard(cast("asyncio.Task[None]", task))
            for writer in (near_out, far_out):
                if writer is not None:
                    writer.close()

    async def _answer(self, far: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        waiting = b""
        while received := await far.read(READ_BYTES):
            waiting += received
            while (end := reply_end(waiting)) is not None:
                reply, waiting = waiting[:end], waiting[end:]
                near_out.write(self._said_of(reply))
            await near_out.drain()

    def _said_of(self, reply: bytes) -> bytes:
        if not self.kinds or reply == b"+OK\r\n":
            return reply
        said = lie(reply, self._random.choice(self.kinds), self._random)
        self.lied += said != reply
        return said


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while received := await reader.read(READ_BYTES):
        writer.write(received)
        await writer.drain()


# -------------------------------------------------------------------- a hub object that is not ours


class _Unspeakable(Exception):
    """Raised by a hub whose errors cannot be turned into text."""

    def __str__(self) -> str:
        raise ValueError("this error has no words")

    __repr__ = __str__


class ThirdPartyHub:
    """A third-party hub: passes on the answers of another hub, and answers nonsense while `lies` is set."""

    def __init__(self, hub: Hub, random: Random) -> None:
        self._hub = hub
        self._random = random
        self._oddities = _oddities(random)
        self.lies = False
        self.lied = 0
        """The number of answers that made no sense."""

    @property
    def shards(self) -> int:
        return self._hub.shards

    async def exchange(self, batch: Batch) -> Answer:
        """Exchanges as `Hub.exchange` does; while it lies, breaks each of these promises in turn."""
        answer = await self._hub.exchange(batch)
        if not self.lies:
            return answer
        oddity = self._oddities[self.lied % len(self._oddities)]
        self.lied += 1
        odd = oddity(answer)
        if isinstance(odd, BaseException):
            raise odd
        if odd is _HANGS:
            await _hang()
        return cast("Answer", odd)

    async def totals(self) -> dict[str, Totals]:
        return await self._hub.totals()

    async def close(self) -> None:
        await self._hub.close()

    def __repr__(self) -> str:
        return f"ThirdPartyHub({self._hub!r})"


_HANGS: Final = object()


async def _hang() -> None:
    """Does not answer, and does not end when it is first cancelled."""
    try:
        await asyncio.sleep(NEVER_S)
    except asyncio.CancelledError:
        await asyncio.sleep(0)


def _oddities(random: Random) -> list[Callable[[Answer], Any]]:
    """Yields answers that are no answers, one after the other; an exception among them is raised."""
    numbers: tuple[Any, ...] = (None, "soon", 1.5, float("nan"), True, [], *ABSURD_COUNTS)
    whole: list[Callable[[Answer], Any]] = [
        lambda _: None,
        lambda _: 42,
        lambda _: "an answer",
        lambda _: {},
        tuple,
        lambda answer: tuple(answer)[:3],
        lambda _: _HANGS,
        lambda _: ValueError("a hub must not raise this"),
        lambda _: RecursionError("nor this"),
        lambda _: _Unspeakable(),
        lambda _: asyncio.CancelledError(),
        lambda _: StopAsyncIteration(),
        lambda answer: answer._replace(status=cast("Any", 99)),
        lambda answer: answer._replace(status=cast("Any", None)),
        lambda answer: answer._replace(generation=cast("Any", None)),
        lambda answer: answer._replace(generation=cast("Any", b"\x00")),
        lambda answer: answer._replace(cells=cast("Any", None)),
        lambda answer: answer._replace(cells=cast("Any", 7)),
        lambda answer: answer._replace(cells=[*answer.cells, *answer.cells, CellAnswer(*[0] * 16)]),
        lambda answer: answer._replace(cells=tuple(cast("Any", None) for _ in answer.cells)),
        lambda answer: answer._replace(cells=tuple(cell[:5] for cell in answer.cells)),  # type: ignore[misc]
    ]
    times = [lambda answer, us=us: answer._replace(hub_us=us) for us in (*numbers, *ABSURD_US)]
    cells = [
        lambda answer, field=field, number=number: answer._replace(
            cells=tuple(cell._replace(**{field: number}) for cell in answer.cells)
        )
        for field in CellAnswer._fields
        for number in random.sample(numbers, 3)
    ]
    oddities = [*whole, *times, *cells]
    random.shuffle(oddities)
    return oddities
