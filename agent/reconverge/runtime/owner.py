"""Gives each process, or each of its event loops, an object of its own, such as a connection or a counter."""

# Theory of operation.
#
# A connection belongs to the event loop that opened it, and a task to the loop that runs it. An application may use one
# hub from several loops in turn (`asyncio.run` twice, a loop for each test), and a fork leaves the child with copies of
# all that its parent holds, connections on the parent's sockets among them.
#
# So a caller asks `Owned` for the resource each time it needs it. If process and loop are the same as last time, it
# gets the same resource; if not, `Owned` abandons the old one and makes another. So neither a fork nor the closing of
# a loop has to be announced.
#
# A resource that a fork has inherited is never closed, and never freed: closing the copy of a socket removes the socket
# from the epoll object that both processes share, so that the parent would not notice its answers any more. The child
# keeps it until the process ends.
#
# `embedded/hub.py` compares processes by itself: it has to keep the lock that it inherited until it has one of its own,
# or the server would end between the two.

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

T = TypeVar("T")

_inherited: Final[list[object]] = []
"""Objects of the parent process, kept so that this forked child does not close them."""


class Owner(NamedTuple):
    """The owner of a resource: a process, and an event loop in it if the resource belongs to a loop."""

    pid: int
    loop: asyncio.AbstractEventLoop | None = None


def this_loop() -> Owner:
    """Returns this process and the running event loop as an owner. Raises RuntimeError if no loop runs."""
    return Owner(os.getpid(), asyncio.get_running_loop())


def this_process() -> Owner:
    """Returns this process as an owner, for all of its event loops."""
    return Owner(os.getpid())


class LoopResource(Protocol):
    """A resource of an event loop that can be released without waiting."""

    def abandon(self) -> None:
        """Releases the resource at once, even if its event loop is closed."""
        ...

    def abandon_in_fork(self) -> None:
        """Releases a forked child's copy of the resource, and leaves the parent's resource as it is."""
        ...


def let_go(thing: LoopResource, inherited: bool) -> None:  # noqa: FBT001  # as `Owned` passes it
    """Releases a resource; if `inherited`, it is the copy of a resource of the parent process.

    Pass this function to `Owned` as `left`.
    """
    if inherited:
        thing.abandon_in_fork()
    else:
        thing.abandon()


class Owned(Generic[T]):
    """A holder of one resource: when another process or event loop asks for it, a new resource is made.

    `make` makes a resource. `left` is called with each abandoned resource, and with whether it belongs to the parent
    process of this forked one. `whose` returns the owner that asks: by default this process and its running event loop.
    """

    def __init__(
        self,
        make: Callable[[], T],
        left: Callable[[T, bool], None] = lambda _thing, _inherited: None,
        *,
        whose: Callable[[], Owner] = this_loop,
    ) -> None:
        self._make = make
        self._left = left
        self._asking = whose
        self._thing: T | None = None
        self._owner: Owner | None = None

    @property
    def thing(self) -> T | None:
        """Returns the resource that was made last, for any process or loop; None if there is none."""
        return self._thing

    def get(self) -> T:
        """Returns the resource of the calling process and event loop; makes one if they have none."""
        asking = self._asking()
        if self._thing is None or self._owner != asking:
            self._leave_alone()
            self._thing = self._make()
            self._owner = asking
        return self._thing

    def take(self) -> T | None:
        """Returns the resource of the calling process and event loop, for the caller to close; None if there is none.

        The next `get` makes another resource.
        """
        if self._thing is None or self._owner != self._asking():
            self._leave_alone()
            return None
        thing, self._thing = self._thing, None
        return thing

    def _leave_alone(self) -> None:
        thing, self._thing = self._thing, None
        if thing is None or self._owner is None:
            return
        inherited = self._owner.pid != os.getpid()
        if inherited:
            _inherited.append(thing)
        self._left(thing, inherited)
