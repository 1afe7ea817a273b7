"""Goal: a command that is put together here is the one that redis-py would have put together, and is sent as it is.

Method: both are compared byte for byte; and a connection that reads nothing shows what was sent on it.
"""

from __future__ import annotations

import asyncio

import redis.asyncio
from hypothesis import given
from hypothesis import strategies as st

from reconverge_sync.redis.resp import bulk, bulks, packed, sends_packed
from tests.support.servers import RedisServer

LENGTHS = st.sampled_from([1, 1, 1, 9, 10, 99, 100, 999, 1000, 9_999, 10_000])
KEYS = st.lists(st.builds(bytes.__mul__, st.binary(min_size=1, max_size=3), LENGTHS), max_size=20)


@given(keys=KEYS)
def test_a_command_is_packed_as_redis_py_packs_it(keys: list[bytes]) -> None:
    """Of whatever bytes, and however long."""
    command = packed(3 + len(keys), bulks((b"EVALSHA", b"sha")), bulk(b"%d" % len(keys)), bulks(keys))

    assert _by_redis_py(b"EVALSHA", b"sha", len(keys), *keys) == command


def test_a_packed_command_and_others_go_through_one_client(redis_server: RedisServer) -> None:
    """What is not packed is packed by redis-py, as ever; and each hears its own answer."""

    async def heard() -> list[object]:
        client = sends_packed(redis.asyncio.Redis(port=redis_server.port, protocol=2))
        key = b"not\r\na key that needs no care"
        try:
            return [
                await client.execute_command("SET", packed(3, bulks((b"SET", key, b"1")))),
                await client.execute_command("INCRBY", key, 41),
                await client.execute_command("GET", packed(2, bulks((b"GET", key)))),
            ]
        finally:
            await client.aclose()

    assert [True, 42, b"42"] == asyncio.run(heard())


def test_a_client_leaves_all_other_clients_as_they_were() -> None:
    """Connections of one's own kind, in one's own pool."""
    sends_packed(redis.asyncio.Redis())

    assert redis.asyncio.Connection is redis.asyncio.Redis().connection_pool.connection_class


def _by_redis_py(*arguments: bytes | int) -> bytes:
    return b"".join(redis.asyncio.Connection().pack_command(*arguments))
