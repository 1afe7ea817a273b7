"""What is sent to a Redis: scripts from their files, a command as bytes, a client that sends these as they are.

redis-py makes an object of each key, looks at each and joins them all again, which took most of an exchange. So the
command is put together here, and handed to redis-py for what it knows better: connecting, logging in, time limits, and
letting go of a connection on which an answer may still be under way.
"""

# Packing takes 65 to 86 us of CPU for a batch of 256 keys, where redis-py takes 177 to 201. A connection of our own out
# of its pool, with `send_packed_command` and `read_response`, would save another 4 to 15 us. It would have to know how
# each version of redis-py lends connections, and when it lets go of one after an interruption; a connection that is
# kept with an answer under way hands that answer to the next exchange (`test_a_cancelled_exchange_does_no_harm`).
#
# Keys stay declared as keys, for Redis Cluster and for users with rights to some keys only.

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, NamedTuple

import redis.asyncio


def script(*names: str) -> bytes:
    """A script for a Redis, from the files in this folder with these names, in their order."""
    folder = files("reconverge_sync.redis")
    return b"".join(folder.joinpath(f"{name}.lua").read_bytes() for name in names)


class Script(NamedTuple):
    """A script, and what a server knows it by once it has run."""

    text: bytes
    sha: str


def script_of(*names: str) -> Script:
    """As `script`, with its name."""
    text = script(*names)
    return Script(text, sha1(text, usedforsecurity=False).hexdigest())


class Packed(bytes):
    """A whole command, as it travels."""

    __slots__ = ()


def bulk(value: bytes) -> bytes:
    """One argument of a command, as it travels."""
    return b"$%d\r\n%b\r\n" % (len(value), value)


def bulks(values: Iterable[bytes]) -> bytes:
    """Several arguments, one after the other."""
    return b"".join(map(bulk, values))


def packed(arguments: int, *parts: bytes) -> Packed:
    """A command of so many arguments, from parts of which each has one or several of them."""
    return Packed(b"".join((b"*%d\r\n" % arguments, *parts)))


def sends_packed(client: redis.asyncio.Redis) -> redis.asyncio.Redis:
    """The same client, which has connected nowhere yet, made to send packed commands as they are."""
    pool: Any = client.connection_pool
    pool.connection_class = _sending_packed(pool.connection_class)
    return client


@cache
def _sending_packed(kind: type[Any]) -> type[Any]:
    def pack_command(self: Any, *arguments: Any) -> list[bytes]:
        if type(arguments[-1]) is Packed:
            return [arguments[-1]]
        packed: list[bytes] = kind.pack_command(self, *arguments)
        return packed

    return type(kind.__name__, (kind,), {"pack_command": pack_command})
