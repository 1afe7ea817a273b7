"""A rival with a limit on work in progress, which it keeps in the usual way: in a set on the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import Any, Final

import redis

from chaos.fleet.plan import Plan
from chaos.judge.history import ONLY, Lease, Recorder
from chaos.names import SLOTS_NAME
from chaos.rivals.usual import Requeueing
from reconverge.clock import Clock

TAKE: Final = """
if redis.call('SCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
return redis.call('SADD', KEYS[1], ARGV[2])
"""


class Reconnecting(Requeueing):
    """Has its slots in a set on the server, and frees its own when it connects again, so that none is left behind."""

    def __init__(self, name: str, plan: Plan, recorder: Recorder, clock: Clock) -> None:
        super().__init__(name, plan, recorder, clock)
        self._mine: set[str] = set()
        """The slots of this process in the set, as far as it knows."""
        self._lost = False
        """Whether the connection was lost since the server last answered."""

    @property
    def slots_lease(self) -> Lease:
        return ONLY

    @contextmanager
    def slot(self, timeout_s: float) -> Iterator[bool]:  # noqa: ARG002  # it does not wait, and asks again later
        mark = token_hex(8)
        with self.lock:
            self._mine.add(mark)
        taken = self._tell("eval", TAKE, 1, self._set, self.plan.slots, mark) == 1
        try:
            yield taken
        finally:
            if taken and self._tell("srem", self._set, mark) is not None:
                with self.lock:
                    self._mine.discard(mark)

    @property
    def _set(self) -> str:
        return f"{self.name}:{SLOTS_NAME}"

    def _tell(self, command: str, *words: Any) -> Any:
        """Sends a command to the server. Returns None if it does not answer."""
        try:
            if self._lost:
                with self.lock:
                    left = set(self._mine)
                self.client.srem(self._set, "", *left)
                with self.lock:
                    self._mine -= left
                self._lost = False
            return getattr(self.client, command)(*words)
        except (redis.RedisError, OSError):
            self._lost = True
            return None
