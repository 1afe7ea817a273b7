"""Has the API's long work done on a thread, one piece at a time, so that neither its host nor its readers wait long."""

# Theory of operation.
#
# A document of two megabytes takes seconds to be read, checked or written, and the API shares an event loop with the
# application that it is mounted in. So such work goes to a thread, where it competes for the interpreter only; one
# piece at a time, as more of them at once would only slow down each other and the application. A few may wait. Further
# ones are refused, and may come again: what waits holds its body.
#
# A document that is read again and again is written once for each version.

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from reconverge.integrations.contracts.problems import RETRY_AFTER_S, Problem
from reconverge.runtime.owner import Owned

T = TypeVar("T")

WAITING_MAX: Final = 16
"""So many pieces of work wait at most, each with a body of two megabytes."""


class LongWork:
    """Does one piece at a time, for the event loop that asks."""

    def __init__(self) -> None:
        self._turn = Owned(asyncio.Lock)
        self._waiting = 0
        self._written: dict[str, tuple[int, bytes]] = {}
        """By what it is, the version that was written last."""

    async def do(self, work: Callable[[], T]) -> T:
        """Has a thread do the work and returns its result. Raises Problem (503) if too much waits."""
        return await self.alone(lambda: asyncio.to_thread(work))

    async def alone(self, work: Callable[[], Awaitable[T]]) -> T:
        """The same of work that finds a thread itself."""
        if self._waiting >= WAITING_MAX:
            retry = {"Retry-After": str(RETRY_AFTER_S)}
            raise Problem(503, f"{WAITING_MAX} requests wait for work that takes long; come again", fields=retry)
        self._waiting += 1
        try:
            async with self._turn.get():
                return await work()
        finally:
            self._waiting -= 1

    async def written(self, name: str, version: int, write: Callable[[], bytes]) -> bytes:
        """The bytes of something at a version, written once for as long as no other version is asked for."""
        known = self._written.get(name)
        if known is None or known[0] != version:
            # A request that has waited for another one finds it written.
            known = await self.do(lambda: self._once(name, version, write))
        return known[1]

    def _once(self, name: str, version: int, write: Callable[[], bytes]) -> tuple[int, bytes]:
        known = self._written.get(name)
        if known is None or known[0] != version:
            known = self._written[name] = version, write()
        return known
