"""Reads all that a Redis stores, for tests that search it."""

from __future__ import annotations

import redis


def stored(url: str) -> bytes:
    """Returns the names of all keys, and all fields and values."""
    found: list[bytes | str] = []
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter():
            found.append(key)
            kind = client.type(key)
            if kind == b"none":  # a node has dropped it since
                continue
            assert b"hash" == kind
            found += [part for pair in client.hgetall(key).items() for part in pair]
    return b"\n".join(each for each in found if isinstance(each, bytes))
