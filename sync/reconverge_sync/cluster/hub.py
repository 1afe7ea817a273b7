"""A hub on a Redis Cluster: each shard is one hash slot, and is stored on the server that owns that slot."""

from __future__ import annotations

from collections.abc import Callable
from secrets import choice, token_hex
from typing import Final

import redis.asyncio

from reconverge.clock import Clock
from reconverge.errors import InvalidSetting
from reconverge.hub.diagnosis import Diagnosis
from reconverge.hub.registry import HubSettings, redacted
from reconverge_sync.client.urls import is_number
from reconverge_sync.cluster.diagnose import diagnose_cluster
from reconverge_sync.cluster.topology import ClusterTopology
from reconverge_sync.redis.connection import Connection, Place
from reconverge_sync.redis.diagnosis.diagnose import RedisDiagnosis
from reconverge_sync.redis.hub import RedisHub, Servers

SHARDS_DEFAULT: Final = 16
"""The default number of shards, which spread well over up to six servers. More shards would cost more exchanges, as
each has exchanges of its own."""
SHARDS_MAX: Final = 1024
"""The largest number of shards. It is bounded because a node exchanges with each shard even if it has nothing to
report."""


class ClusterHub(RedisHub):
    """A hub on a Redis Cluster (6.2 or later), which may be resharded and may fail over while it is in use.

    It promises what `RedisHub` does, for each shard by itself: a shard whose server is dead or slow does not delay the
    others. While a slot moves to another server, its shard may be unavailable.

    A user for the hub alone needs these rights on each server, for the namespace `shop`:

        ACL SETUSER shop on >PASSWORD resetkeys ~shop:* resetchannels -@all +eval +evalsha
            +hget +hmget +hgetall +hset +hdel +del +pexpire +pttl +time +asking +cluster|slots

    Args:
        url: `redis+cluster://[user[:password]@]host[:port][,host[:port]...]`, or `rediss+cluster://` for TLS. One host
            is enough to find the others, and several help while one is down. As query: `shards` (16 by default; all
            nodes must agree), and for TLS the options of `RedisHub`.
        settings: the namespace, and the time that an exchange may take.
        shards: the number of shards if the URL has none.
        clock, new_name: see `RedisHub`.

    Raises:
        InvalidSetting: the URL cannot be used.
    """

    def __init__(
        self,
        url: str,
        settings: HubSettings,
        *,
        shards: int = SHARDS_DEFAULT,
        clock: Clock | None = None,
        new_name: Callable[[], str] = lambda: token_hex(8),
    ) -> None:
        super().__init__(url, settings, shards=shards, clock=clock, new_name=new_name)
        self._shards = _shards(url, self._connection.more.get("shards", str(shards)))
        if self._connection.address.database != 0:
            raise InvalidSetting("hub", redacted(url), "names a database; a cluster has only number 0, so leave it out")

    async def _listening_client(self) -> redis.asyncio.Redis:
        """Returns a client of any server in the URL: a message published at one server reaches listeners at all."""
        place = choice(self._connection.places)
        return self._connection.client(self._settings.timeout_s, connections_max=1, place=place)

    async def diagnose(self) -> Diagnosis:
        owners = self._per_loop.get()
        assert isinstance(owners, ClusterTopology)

        async def examine(place: Place, shard: int) -> Diagnosis:
            client = self._connection.client(self._settings.timeout_s, connections_max=1, place=place)
            try:
                return await RedisDiagnosis(self._target(place, client=client, shard=shard, clustered=True)).run()
            finally:
                await client.aclose()

        return await diagnose_cluster(owners, self._connection.places, examine, shards=self._shards)

    def _read(self, url: str) -> Connection:
        return Connection(url, several=True, options=("shards",))

    def _open(self) -> Servers:
        return ClusterTopology(self._connection, self._settings.timeout_s, shards=self._shards)


def _shards(url: str, wanted: str) -> int:
    if not (is_number(wanted) and 1 <= int(wanted) <= SHARDS_MAX):
        raise InvalidSetting(
            "hub",
            redacted(url),
            f"has a number of shards that is not from 1 to {SHARDS_MAX}; write one, such as shards=16",
        )
    return int(wanted)


def open_cluster(url: str, settings: HubSettings) -> ClusterHub:
    """Returns the hub of a URL that begins with `redis+cluster://`, `rediss+cluster://` or their `valkey` forms."""
    return ClusterHub(url, settings)
