"""A hub on one Redis whose address may change: its Sentinels name the present master."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import redis.asyncio

from reconverge.hub.diagnosis import Diagnosis, Finding, Level
from reconverge.hub.registry import HubSettings
from reconverge_sync.redis.connection import Connection, Place
from reconverge_sync.redis.diagnosis.advice import as_failure
from reconverge_sync.redis.diagnosis.checks import services_at
from reconverge_sync.redis.diagnosis.diagnose import RedisDiagnosis
from reconverge_sync.redis.hub import RedisHub, Servers
from reconverge_sync.sentinel.master import SentinelMaster

DEFAULT_PORT: Final = 26379
OPTIONS: Final = ("sentinel_username", "sentinel_password")
SENTINEL: Final = "sentinel"


class SentinelHub(RedisHub):
    """A hub on one Redis (6.2 or later) that Sentinels watch, and that is replaced when it fails.

    It promises what `RedisHub` does, and that no replica is written to. If a new master lacks reports that the old one
    had merged, the next report of each key restores them, as running counts are absolute.

    The user needs the rights of `RedisHub`, on the master and its replicas. A user of the Sentinels needs only:

        ACL SETUSER finder on >PASSWORD resetkeys resetchannels -@all +sentinel|get-master-addr-by-name

    Args:
        url: `redis+sentinel://[user[:password]@]host[:port][,host[:port]...]/SERVICE[/db]`, where the hosts are the
            Sentinels and the user is one of the Redis; or `rediss+sentinel://` for TLS to all of them. As query:
            `sentinel_username` and `sentinel_password`, and for TLS the options of `RedisHub`.
        settings, shards, clock, new_name: see `RedisHub`.

    Raises:
        InvalidSetting: the URL cannot be used.
    """

    def _read(self, url: str) -> Connection:
        return Connection(url, several=True, default_port=DEFAULT_PORT, options=OPTIONS, serves=True)

    def _open(self) -> Servers:
        return SentinelMaster(self._connection, self._settings.timeout_s)

    async def _listening_client(self) -> redis.asyncio.Redis:
        """Returns a client of the master, which is looked up at the Sentinels each time."""
        finder = SentinelMaster(self._connection, self._settings.timeout_s)
        try:
            return finder.client_at(await finder.place(), connections_max=1)
        finally:
            await finder.close()

    async def diagnose(self) -> Diagnosis:
        master = self._per_loop.get()
        assert isinstance(master, SentinelMaster)
        service = self._connection.service
        try:
            place = await master.place()
        except Exception as error:  # noqa: BLE001  # any error becomes a finding
            failure = as_failure(error, encrypted=self._connection.address.encrypted)
            fact = f"no Sentinel knows the address of the master of {service} is: {failure.text}"
            remedy = "Correct the hosts and the service in the URL; a Sentinel lists its services:\n"
            listing = services_at(self._connection.address)
            return Diagnosis([Finding(SENTINEL, Level.PROBLEM, fact, f"{remedy}{listing}")])
        diagnosis = await self._examine(place)
        found = Finding(SENTINEL, Level.OK, f"the master of {service} is at {place}")
        return replace(diagnosis, findings=[found, *diagnosis.findings])

    async def _examine(self, place: Place) -> Diagnosis:
        client = self._connection.client(self._settings.timeout_s, connections_max=1, place=place)
        try:
            return await RedisDiagnosis(self._target(place, client=client)).run()
        finally:
            await client.aclose()


def open_sentinel(url: str, settings: HubSettings) -> SentinelHub:
    """Returns the hub of a URL that begins with `redis+sentinel://`, `rediss+sentinel://` or their `valkey` forms."""
    return SentinelHub(url, settings)
