"""The interface to a member's connection, for messages that the broker retains and also sends back to the member.

A broker of MQTT 3.1.1 confirms also messages that its access list drops. So a retained message counts as stored when it
has come back to the member that sent it, and not when the broker has confirmed it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol

from reconverge.errors import HubUnavailable
from reconverge_sync.mqtt.messages import CONNECTION_LOST


class Wire(Protocol):
    """A member's connection, for messages below the namespace's topic. Its methods raise HubUnavailable on failure."""

    def post(self, topic: str, payload: bytes, *, retain: bool, keep_s: float | None = None) -> None:
        """Sends a message as soon as the broker takes it."""
        ...

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribes to further topics."""
        ...

    def unsubscribe(self, topics: Sequence[str]) -> None:
        """Unsubscribes from topics."""
        ...

    async def echoed(self) -> None:
        """Sends an echo, a message to this member itself, and waits for it: all earlier messages have come by then."""
        ...

    def shown(self, topic: str) -> str:
        """Returns the whole topic, with the namespace, to be shown to people."""
        ...


class Awaited:
    """Messages that a member has sent and whose return it awaits."""

    def __init__(self) -> None:
        self._futures: set[tuple[bytes, asyncio.Future[None]]] = set()

    @property
    def waits(self) -> bool:
        """Returns whether this member still awaits the return of any message."""
        return bool(self._futures)

    def hear(self, message: bytes) -> None:
        """Completes the futures that await this message, which has come."""
        for awaited, back in self._futures:
            if awaited == message and not back.done():
                back.set_result(None)

    @contextlib.contextmanager
    def back(self, message: bytes) -> Iterator[asyncio.Future[None]]:
        """Yields a future that is done when `message` has come; it fails with HubUnavailable on a lost connection."""
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
        """Fails all futures that wait for messages with `problem`, because the connection is lost."""
        for _, future in self._futures:
            if not future.done():
                future.set_exception(HubUnavailable(problem.kind, CONNECTION_LOST))
