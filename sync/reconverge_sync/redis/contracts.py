"""The contracts of a namespace at a Redis: the index is stored like settings, and each page under its digest.

Pages are spread over the shards by their digest, so in a cluster over its servers; every script is about one shard. The
scripts use only commands that an agent's user may run anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from reconverge.errors import HubUnavailable
from reconverge_sync.redis.scripts import script

SWAP: Final = script("swap_index")
PUT: Final = script("put_page")
GET: Final = script("get_page")
KEEP: Final = script("keep_pages")
PAGES_AT_ONCE: Final = 256
"""The most pages of one script, so that no node waits for longer than these take."""
_HASHED_DIGITS: Final = 8


def shard_of(digest: str, shards: int) -> int:
    """Returns the shard of a page. Raises HubUnavailable if `digest` is no digest."""
    try:
        return int(digest[:_HASHED_DIGITS], 16) % shards
    except ValueError:
        raise HubUnavailable("protocol", f"{digest[:80]!r} is no digest of a page", applied=False) from None


def by_shard(digests: Sequence[str], shards: int) -> list[tuple[int, list[str]]]:
    """Groups digests of pages by shard, at most PAGES_AT_ONCE in a group. Raises HubUnavailable."""
    groups: dict[int, list[str]] = {}
    for digest in digests:
        groups.setdefault(shard_of(digest, shards), []).append(digest)
    return [
        (shard, group[start : start + PAGES_AT_ONCE])
        for shard, group in groups.items()
        for start in range(0, len(group), PAGES_AT_ONCE)
    ]


def was_swapped(reply: object) -> bool:
    """Reads the reply of SWAP. Raises HubUnavailable for any other."""
    if reply not in (0, 1):
        raise HubUnavailable("protocol", "the server's reply about the index of contracts cannot be read")
    return reply == 1


def page_in(reply: object) -> bytes | None:
    """Reads the reply of GET. Raises HubUnavailable for any other."""
    if reply is not None and type(reply) is not bytes:
        raise HubUnavailable("protocol", "the server's reply for a page of contracts cannot be read", applied=False)
    return reply


def missing_in(reply: object, asked: list[str]) -> list[str]:
    """Reads the reply of KEEP, as digests. Raises HubUnavailable for any other."""
    positions: list[Any] = reply if isinstance(reply, list) else [None]
    if not all(type(each) is int and 0 <= each < len(asked) for each in positions):
        raise HubUnavailable("protocol", "the server's reply about pages of contracts cannot be read")
    return [asked[each] for each in positions]
