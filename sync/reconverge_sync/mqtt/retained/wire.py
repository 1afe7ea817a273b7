"""A member's connection, for messages that the broker retains, which are waited for until they are back.

A broker of MQTT 3.1.1 confirms also what its access list throws away. So whatever is retained counts as done when it
has come back to the member that sent it, and not when the broker has confirmed it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol

from reconverge.errors import HubUnavailable


class Wire(Protocol):
    """Sends and subscribes, by topics below the namespace's. Raises HubUnavailable where it cannot."""

    def post(self, topic: str, payload: bytes, *, retain: bool, keep_s: float | None = None) -> None:
        """Sends a message as soon as the broker takes it."""
        ...

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Hear of these topics, too."""
        ...

    def unsubscribe(self, topics: Sequence[str]) -> None:
        """Hear of them no more."""
        ...

    async def echoed(self) -> None:
        """Wait until a message to oneself is back: what the broker had for this member before has come by then."""
        ...

    def shown(self, topic: str) -> str:
        """The whole topic, to be shown."""
        ...


class Awaited:
    """Messages that were sent, and are waited for until they are back."""

    def __init__(self) -> None:
        self._futures: set[tuple[bytes, asyncio.Future[None]]] = set()

    @property
    def waits(self) -> bool:
        """Whether anything is waited for."""
        return bool(self._futures)

    def hear(self, message: bytes) -> None:
        """That has come."""
        for awaited, back in self._futures:
            if awaited == message and not back.done():
                back.set_result(None)

    @contextlib.contextmanager
    def back(self, message: bytes) -> Iterator[asyncio.Future[None]]:
        """Is done when that has come; fails with HubUnavailable if the connection is lost before."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        awaited = message, future
        self._futures.add(awaited)
        try:
            yield future
        finally:
            self._futures.discard(awaited)
            if not future.cancel() and not future.cancelled():
                future.exception()  # or asyncio logs that it was never retrieved

    def fail(self, problem: HubUnavailable) -> None:
        """The connection is gone."""
        for _, future in self._futures:
            if not future.done():
                future.set_exception(HubUnavailable(problem.kind, "the connection is gone"))
