"""Runs long work of the contracts API in a thread, one piece at a time, so that no other request waits long."""

# Theory of operation.
#
# Reading, checking or writing a document of two megabytes takes seconds, and the API shares an event loop with the
# application that it is mounted in. So such work runs in a thread, where it does not block the loop, and only one piece
# at a time, because several at once would slow down each other and the application. Up to `WAITING_MAX` requests may
# wait. A further request is refused and may retry, because each waiting request holds its body in memory.
#
# A document that is read repeatedly is serialized once for each version.

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from reconverge.integrations.contracts.problems import RETRY_AFTER_S, Problem
from reconverge.runtime.owner import Owned

T = TypeVar("T")

WAITING_MAX: Final = 16
"""The most requests that may wait for their work; each may have a body of up to two megabytes in memory."""


class LongWork:
    """Runs long work for the API, one piece at a time; requests wait for their turn without blocking the event loop."""

    def __init__(self) -> None:
        self._turn = Owned(asyncio.Lock)
        self._waiting = 0
        self._written: dict[str, tuple[int, bytes]] = {}
        """The serialized documents by name, each with its version."""

    async def do(self, work: Callable[[], T]) -> T:
        """Calls `work` in a thread, in its turn, and returns the result.

        Raises Problem (503) if too many requests wait already.
        """
        return await self.alone(lambda: asyncio.to_thread(work))

    async def alone(self, work: Callable[[], Awaitable[T]]) -> T:
        """Awaits `work` in its turn and returns the result. Raises Problem (503) if too many requests wait.

        Unlike `do`, it starts no thread: it is for work that starts one itself.
        """
        if self._waiting >= WAITING_MAX:
            retry = {"Retry-After": str(RETRY_AFTER_S)}
            raise Problem(503, f"{WAITING_MAX} requests are waiting for long work already; retry later", fields=retry)
        self._waiting += 1
        try:
            async with self._turn.get():
                return await work()
        finally:
            self._waiting -= 1

    async def written(self, name: str, version: int, write: Callable[[], bytes]) -> bytes:
        """Returns the bytes of the document `name` as `write` makes them, cached until another version is requested."""
        known = self._written.get(name)
        if known is None or known[0] != version:
            # A request that has waited for another one finds the bytes cached.
            known = await self.do(lambda: self._once(name, version, write))
        return known[1]

    def _once(self, name: str, version: int, write: Callable[[], bytes]) -> tuple[int, bytes]:
        known = self._written.get(name)
        if known is None or known[0] != version:
            known = self._written[name] = version, write()
        return known
