"""What belongs to one process and one event loop, as connections do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

T = TypeVar("T")

_inherited: Final[list[object]] = []
"""What belongs to the process that this one is a fork of. Taking connections apart would make the epoll that both share
forget them: the parent would hear nothing any more."""


class LoopResource(Protocol):
    """What can be left alone without waiting for anything."""

    def abandon(self) -> None:
        """Let go of everything at once, even where the loop is closed."""
        ...

    def abandon_in_fork(self) -> None:
        """Let go of what belongs to the parent, in a fork."""
        ...


def let_go(thing: LoopResource, inherited: bool) -> None:  # noqa: FBT001  # as `PerLoop` tells it
    """Leave it alone, as `PerLoop` has it."""
    if inherited:
        thing.abandon_in_fork()
    else:
        thing.abandon()


class PerLoop(Generic[T]):
    """Makes the thing anew for every process and loop that asks for it, and leaves alone those of others.

    `left` is told of each that is left alone, and whether it is the parent's, of which this process is a fork.
    """

    def __init__(
        self, make: Callable[[], T], left: Callable[[T, bool], None] = lambda _thing, _inherited: None
    ) -> None:
        self._make = make
        self._left = left
        self._thing: T | None = None
        self._whose: tuple[int, asyncio.AbstractEventLoop] | None = None

    @property
    def thing(self) -> T | None:
        """The resource that was made last, for whichever loop."""
        return self._thing

    def get(self) -> T:
        """This process's and this loop's."""
        whose = os.getpid(), asyncio.get_running_loop()
        if self._thing is None or self._whose != whose:
            self._leave_alone()
            self._thing = self._make()
            self._whose = whose
        return self._thing

    def take(self) -> T | None:
        """This process's and this loop's, for the caller to close; None if there is none. The next `get` makes one."""
        if self._thing is None or self._whose != (os.getpid(), asyncio.get_running_loop()):
            self._leave_alone()
            return None
        thing, self._thing = self._thing, None
        return thing

    def _leave_alone(self) -> None:
        """Forget what is another loop's; but keep what is the parent's, if this process is a fork of it."""
        thing, self._thing = self._thing, None
        if thing is None or self._whose is None:
            return
        inherited = self._whose[0] != os.getpid()
        if inherited:
            _inherited.append(thing)
        self._left(thing, inherited)
