"""Hints from a Redis that the contracts have changed: messages on a channel that has the name of the index's key.

Plain channels work in a cluster as well, which sends each message to all of its servers: changes are few, and sharded
channels need Redis 7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import redis.asyncio
from redis.asyncio.client import PubSub

from reconverge.errors import HubUnavailable
from reconverge_sync.redis.errors import as_unavailable

READ_S: Final = 3600.0
"""For how many seconds one read waits for a message; then the next read begins."""


class RedisHints:
    """A connection that listens for hints on one channel. Implements `IndexHints`.

    Args:
        connect: makes a client for this connection alone, not connected yet.
        channel: the channel of the hints.
        secrets: returns the texts that no message may show.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[redis.asyncio.Redis]],
        channel: str,
        *,
        secrets: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self._connect = connect
        self._channel = channel
        self._secrets = secrets
        self._client: redis.asyncio.Redis | None = None
        self._messages: PubSub | None = None

    async def changed(self) -> None:
        problem: HubUnavailable | None = None
        try:
            if self._messages is None:
                await self._subscribe()
            else:
                await self._next("message")
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  # after any error of the client nothing is heard any more
            problem = (
                error.with_traceback(None)
                if isinstance(error, HubUnavailable)
                else as_unavailable(error, secrets=self._secrets())
            )
        if problem is not None:
            await self.close()
            raise problem  # outside of the `except`: the client's traceback has the password

    async def close(self) -> None:
        messages, self._messages = self._messages, None
        client, self._client = self._client, None
        try:
            if messages is not None:
                await messages.aclose()
            if client is not None:
                await client.aclose()
        except Exception:  # noqa: BLE001, S110  # a connection that is broken is let go of anyway
            pass

    async def _subscribe(self) -> None:
        client = self._client = await self._connect()
        messages = client.pubsub()
        self._messages = messages
        await messages.subscribe(self._channel)
        await self._next("subscribe")

    async def _next(self, kind: str) -> None:
        """Waits until the connection receives a message of `kind`, such as "message" or "subscribe"."""
        messages = self._messages
        assert messages is not None
        while True:
            message = await messages.get_message(timeout=READ_S)
            if message is not None and message.get("type") == kind:
                return
