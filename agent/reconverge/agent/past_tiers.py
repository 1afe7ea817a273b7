"""Removes limits that an agent declared by `Agent.tier` and no longer needs, as soon as they count no key.

See `kernel/table/dropping.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import RLock
from typing import Final

from reconverge.clock import NEVER_NS, SECOND_NS, Clock
from reconverge.hub.port import Hub
from reconverge.kernel import Kernel
from reconverge.limiter.faces.limiter import Limiter

LOOK_NS: Final = SECOND_NS
"""The nanoseconds between two searches for limits without keys."""


class PastTiers:
    """Removes limits, declared by `Agent.tier`, that an agent no longer needs. The exchanges run it as a `Follower`.

    It removes the tables (counts by key) of these limits on the thread of the exchanges, between two exchanges; on a
    node without a hub, at once.
    """

    brief = True
    """True: `follow` asks the hub nothing."""

    def __init__(self, kernel: Kernel, clock: Clock, limiters: dict[str, Limiter], lock: RLock) -> None:
        self._kernel = kernel
        self._clock = clock
        self._limiters = limiters
        self._lock = lock
        """The lock that a thread holds while it declares limits."""
        self._names: dict[str, None] = {}
        self.start_over()

    def start_over(self) -> None:
        self._next_ns = self._clock.monotonic_ns()

    def add(self, names: Iterable[str]) -> None:
        """Marks the limits called `names` for removal: each is removed as soon as it counts no key."""
        with self._lock:
            self._names.update(dict.fromkeys(names))
        if self._kernel.alone:
            self.look()

    def keep(self, name: str) -> None:
        """Cancels the removal of the limit `name`, because it is declared again.

        The caller holds the lock of declarations.
        """
        self._names.pop(name, None)

    def look(self) -> None:
        """Removes each limit that `add` has marked and that counts no key."""
        with self._lock:
            while self._kernel.dropped.back:
                self._names.setdefault(self._kernel.dropped.back.pop())
            for name in self._kernel.dropped.drop(self._names):
                del self._names[name]
                self._limiters.pop(name, None)

    def due_ns(self) -> int:
        return self._next_ns if self._names or self._kernel.dropped.back else NEVER_NS

    async def follow(self, hub: Hub, *, cut_off: bool, timeout_s: float) -> None:  # noqa: ARG002  # see `Follower`
        self.look()
        self._next_ns = self._clock.monotonic_ns() + LOOK_NS
