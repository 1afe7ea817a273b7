"""Connections to Redis that are replaced after a reply that shows that the server is the wrong one (READONLY)."""

# Theory of operation.
#
# An address outlives the server behind it. After a failover by DNS, by a Service of Kubernetes or by a proxy, which is
# how managed Redis fails over, new connections reach the new master. The old ones stay open to the old master, which is
# a replica now and answers READONLY for ever. The same is true of a server that was moved into a cluster (MOVED), that
# loads its data, or that has got another password.
#
# Such a reply is an ordinary error to redis-py, which keeps the connection. Here it ends all connections of its client:
# each stores how many such replies the client had got when it connected, and connects anew at its next use if there are
# more. No connection is closed in the middle of a pipeline. A reply while a connection is being made changes nothing:
# such a connection fails by itself, and the others may still be good.

from __future__ import annotations

from functools import cache
from typing import Any

import redis.asyncio
from redis import exceptions
from redis.asyncio.connection import AbstractConnection

from reconverge_sync.redis.errors import from_wrong_server


class WrongReplies:
    """The number of replies to one client's connections which show that the server is the wrong one."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class RenewedConnection(AbstractConnection):
    """A connection that is made anew at its next use, after a reply that shows that the server is the wrong one."""

    def __init__(self, *arguments: Any, wrong_replies: WrongReplies, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._wrong_replies = wrong_replies
        self._made_at: int | None = None
        """The number of wrong replies so far when this connection was made; None while it is being made."""

    async def connect(self) -> None:
        if self._made_at is not None and self._made_at != self._wrong_replies.count:
            await self.disconnect(nowait=True)
        if not self.is_connected:
            self._made_at = None
        await super().connect()  # type: ignore[no-untyped-call]  # in some versions of the client
        if self._made_at is None:
            self._made_at = self._wrong_replies.count

    async def read_response(self, *arguments: Any, **options: Any) -> Any:
        try:
            return await super().read_response(*arguments, **options)
        except exceptions.RedisError as error:
            if self._made_at == self._wrong_replies.count and from_wrong_server(error):
                self._wrong_replies.count += 1
            raise


def renew(client: redis.asyncio.Redis) -> None:
    """Makes a client that has not connected yet use `RenewedConnection`s."""
    pool: Any = client.connection_pool
    pool.connection_class = _renewed(pool.connection_class)
    pool.connection_kwargs["wrong_replies"] = WrongReplies()


@cache
def _renewed(kind: type[Any]) -> type[Any]:
    return type(kind.__name__, (RenewedConnection, kind), {})
