"""Counts connections that wait in the kernel until the event loop accepts them; on Linux, for TCP."""

# Theory of operation.
#
# A connection is made by the kernel, and waits in the backlog of the listening socket until the process accepts it.
# uvloop accepts one connection in each round of its loop. So where each request has a connection of its own, the whole
# queue of an overloaded worker is in the backlog: a round is as short as one request, and the loop runs a callback at
# once, while clients wait for seconds. No measurement inside the loop can distinguish this worker from one that is busy
# and keeps up.
#
# Linux reports the length of the backlog: TCP_INFO of a listening socket has it in the field of unacknowledged segments
# (`ss -l` shows it as Recv-Q). By Little's law the wait in the backlog is its length divided by the rate at which
# requests leave it, which the shedder counts.
#
# Only ports through which requests came in are read, as a process may have inherited listening sockets that it does not
# serve. A socket is read by its descriptor, without a duplicate, which would keep the port open after the server has
# closed it; if the descriptor belongs to another file by now, the state that is read shows it. Workers that share a
# socket share its backlog, and each counts it as its own: they shed a little early.

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PORTS_MAX: Final = 16
"""The most ports whose backlog is read."""
DESCRIPTORS_MAX: Final = 4096
"""Only file descriptors below this number are searched for sockets: a server opens its listening sockets early."""
DIRECTORY: Final = Path("/proc/self/fd")
LISTENING: Final = 10
"""The state of a listening socket in TCP_INFO."""
STATE_AND_WAITING: Final = struct.Struct("=B23xI")
_TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None) if DIRECTORY.is_dir() else None


class Backlog:
    """The listening sockets through which requests reach a process. Several threads may add ports, and read."""

    def __init__(self) -> None:
        self._ports: set[int] = set()
        self._searched: set[int] = set()
        self._descriptors: tuple[int, ...] = ()

    def add(self, port: int) -> None:
        """Adds a port through which requests come in."""
        if len(self._ports) < PORTS_MAX:
            self._ports.add(port)

    def waiting(self) -> int | None:
        """Returns how many connections wait to be accepted; None if the kernel does not report it."""
        if _TCP_INFO is None:
            return None
        if len(self._searched) < len(self._ports):
            ports = set(self._ports)
            self._descriptors = _listening_on(ports)
            self._searched = ports  # only now: another thread that reads meanwhile would find no socket
        found = [waiting for each in self._descriptors if (waiting := _waiting_at(each)) is not None]
        return sum(found) if found else None

    def start_over(self) -> None:
        """Forgets the sockets that were found, as another server may listen at the same ports."""
        self._searched = set()
        self._descriptors = ()


def _waiting_at(descriptor: int) -> int | None:
    """Returns how many connections wait at the socket with this file descriptor; None if it does not listen."""
    assert _TCP_INFO is not None
    try:
        with _borrowed(descriptor) as found:
            info = found.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, STATE_AND_WAITING.size)
            state, waiting = STATE_AND_WAITING.unpack(info)
    except (OSError, struct.error):  # it is closed, or its number belongs to another file by now
        return None
    return waiting if state == LISTENING else None


def _listening_on(ports: set[int]) -> tuple[int, ...]:
    descriptors = sorted(int(each.name) for each in DIRECTORY.iterdir())
    return tuple(each for each in descriptors[:DESCRIPTORS_MAX] if _is_on(each, ports))


def _is_on(descriptor: int, ports: set[int]) -> bool:
    try:
        with _borrowed(descriptor) as found:
            if not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return False
            name: object = found.getsockname()
    except OSError:  # most are no sockets
        return False
    return isinstance(name, tuple) and name[1] in ports


@contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """Yields a socket object for a descriptor of the server, without closing it. Raises OSError if it is no socket."""
    borrowed = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=descriptor)
    try:
        yield borrowed
    finally:
        borrowed.detach()
