"""A connection to one Redis for a thread that does nothing else: it sends a command, and waits for the reply."""

# Theory of operation.
#
# An agent that has a thread for its exchanges needs no event loop to wait for an answer: nothing else runs in that
# thread. The loop costs more than the exchange. Of 1,036 calls of functions that one exchange took, 265 were asyncio's,
# and each of its seven turns gives up the interpreter and asks for it again, while requests wait for it. So in such a
# thread the hub has one connection of redis-py's blocking kind, whose reads let other threads run meanwhile.
#
# What has to stay. An exchange ends after its time, however slowly the bytes come: `TimedSocket`. While a batch is
# under way, the thread calls back every TURN_S, so that requests which wait can distinguish a slow hub from a process
# that stood still (`kernel/reporting/asks.py`). And connecting may hang in a name server, so a helper thread of the
# event loop does it: without a connection, the caller goes through the loop (`ask`). Both ways share `_talk`.
#
# Where it is not used: in an application's own event loop, in processes with green threads, with TLS, whose contexts
# redis-py makes for each blocking connection anew (`client/tls.py`), with several shards, which are exchanged side by
# side, and with clusters and Sentinels.

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache
from typing import Any, Final, Protocol

import redis
from redis.exceptions import ResponseError

from reconverge.clock import SECOND_NS, SystemClock
from reconverge.runtime.threads import thread_id
from reconverge_sync.redis.errors import from_wrong_server

TURN_S: Final = 0.002
"""How long one wait for the answer takes at most, in seconds."""
CONNECT_TURN_S: Final = 0.05
"""How long one wait for a connection takes at most, in seconds."""


def packed(command: Sequence[object]) -> bytes:
    """Returns a command as the bytes that a Redis reads: an array of its parts, each with its length before it.

    redis-py's own packing in Python takes eight calls for each part.
    """
    parts = [part if type(part) is bytes else str(part).encode() for part in command]
    lengths = map(len, parts)
    return b"*%d\r\n" % len(parts) + b"".join([b"$%d\r\n%b\r\n" % part for part in zip(lengths, parts, strict=True)])


class TimedSocket:
    """A connected socket whose reads and writes all end at the time `until_s` of the monotonic clock at the latest."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._timeout_s = connected.gettimeout()
        self.until_s = _now_s() + (self._timeout_s or 0.0)

    def settimeout(self, timeout_s: float | None) -> None:
        """Sets how long one read or write may wait, in seconds."""
        self._timeout_s = timeout_s

    def recv(self, *arguments: Any) -> bytes:
        """Receives bytes as `socket.recv` does, and returns them. Raises TimeoutError if the time is over."""
        self._hurry()
        return self._socket.recv(*arguments)

    def recv_into(self, *arguments: Any) -> int:
        """Receives bytes into a buffer as `socket.recv_into` does; returns how many. Raises TimeoutError."""
        self._hurry()
        return self._socket.recv_into(*arguments)

    def sendall(self, content: bytes) -> None:
        """Sends all of `content`. Raises TimeoutError if the time is over."""
        self._hurry()
        self._socket.sendall(content)

    def _hurry(self) -> None:
        """Sets the socket's timeout; raises TimeoutError if the time is over."""
        left_s = self.until_s - _now_s()
        if left_s <= 0:
            raise TimeoutError("the time for this answer is over")
        timeout_s = self._timeout_s
        self._socket.settimeout(left_s if timeout_s is None or timeout_s > left_s else timeout_s)

    def is_quiet(self) -> bool:
        """Returns whether nothing can be read now: neither a late reply nor the end of the connection."""
        self._socket.settimeout(0.0)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


class TimedConnection(Protocol):
    """A connection of redis-py whose socket is a `TimedSocket`."""

    timed: TimedSocket

    def connect(self) -> None: ...

    def disconnect(self) -> None:
        """Closes the connection."""

    def send_packed_command(self, command: Sequence[bytes], /) -> None:
        """Sends a command, which `packed` has made into bytes. Raises the client's errors."""

    def can_read(self, timeout: float) -> bool:
        """Returns whether there is something to read, after waiting for up to `timeout` seconds."""
        ...

    def read_response(self) -> object:
        """Reads one reply, and returns it. Raises the client's errors."""
        ...


@cache
def timed_kind(kind: type[Any]) -> type[Any]:
    """Returns a class like `kind`, a class of connections, whose connections are `TimedConnection`s."""

    def connect(self: Any) -> TimedSocket:
        self.timed = TimedSocket(kind._connect(self))  # noqa: SLF001  # the client's hook for a way to connect
        timed: TimedSocket = self.timed
        return timed

    return type(kind.__name__, (kind,), {"_connect": connect})


READERS: Final[Mapping[object, Callable[[Any], object]]] = redis.Redis(protocol=2).response_callbacks
"""Redis-py's functions that make of a raw reply what its clients return, by command; few commands have one. Collected
when this module is imported, as redis-py imports further modules for it, which an exchange must not."""


class BlockingServer:
    """A single server, for one thread. Implements `Servers`; `talk` works without an event loop.

    `make` makes a connection that has not connected yet; a command may take `timeout_s` seconds.
    """

    def __init__(self, make: Callable[[], TimedConnection], timeout_s: float) -> None:
        self._make = make
        self._connection = make()
        self._timeout_s = timeout_s
        self._turns = asyncio.Lock()
        self._connected = False
        self._owner = _this_thread()

    def ready(self) -> bool:
        """Returns whether this thread may call `talk`: it has a connection, which the server has not closed."""
        if not self._connected or self._owner != _this_thread():
            return False
        if self._connection.timed.is_quiet():
            return True
        self._drop()
        return False

    def talk(self, turn: Callable[[], None], *command: object) -> object:
        """Runs a command and returns the reply; calls `turn` every TURN_S while it waits. Raises the client's errors.

        To be called only while `ready`.
        """
        steps = self._talk(command)
        try:
            while True:
                next(steps)
                turn()
        except StopIteration as end:
            return end.value

    async def ask(self, shard: int, *command: object) -> object:  # noqa: ARG002  # it has all of them
        """Runs a command on the server, after connecting if necessary, and returns the reply."""
        async with self._turns:
            if not self.ready():
                await self._connect()
            steps = self._talk(command)
            try:
                while True:
                    next(steps)
                    await asyncio.sleep(0)
            except StopIteration as end:
                return end.value
            finally:
                steps.close()

    async def close(self) -> None:
        """Closes the connection."""
        self._drop()

    async def _connect(self) -> None:
        """Connects in a helper thread, as looking up a name may take long."""
        connection, given_up = self._connection, False

        def connect() -> None:
            connection.connect()
            if given_up:
                connection.disconnect()

        connecting = asyncio.get_running_loop().run_in_executor(None, connect)
        try:
            # In turns, as the helper wakes the loop by a socket, which may fail as any other.
            while not connecting.done():
                await asyncio.wait((connecting,), timeout=CONNECT_TURN_S)
            connecting.result()
        except BaseException:
            connecting.cancel()
            given_up = True
            self._connection = self._make()  # the helper may still use the old one
            raise
        self._connected = True

    def _talk(self, command: tuple[object, ...]) -> Generator[None, None, object]:
        """Sends a command, and returns the reply as redis-py's clients do; yields after each TURN_S of waiting.

        If no reply comes, closes the connection, as a late reply would be taken for the reply to a later command.
        """
        connection = self._connection
        connection.timed.until_s = until_s = _now_s() + self._timeout_s
        try:
            connection.send_packed_command((packed(command),))
            while not connection.can_read(TURN_S):
                if _now_s() >= until_s:
                    raise TimeoutError("no answer within the time for it")
                yield
            reply = connection.read_response()
            read = READERS.get(command[0])
            return reply if read is None else read(reply)
        except ResponseError as error:
            if from_wrong_server(error):
                self._drop()
            raise
        except BaseException:
            self._drop()
            raise

    def _drop(self) -> None:
        self._connected = False
        self._connection.disconnect()


def _now_s() -> float:
    return SystemClock.monotonic_ns() / SECOND_NS


def _this_thread() -> tuple[int, int]:
    return os.getpid(), thread_id()
