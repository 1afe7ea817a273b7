"""The contracts of a namespace at a Redis: the index is stored like settings, and each page under its digest.

Pages are spread over the shards by their digest, so in a cluster over its servers; every script is about one shard. The
scripts use only commands that an agent's user may run anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from reconverge.errors import ONE_VERSION, HubUnavailable
from reconverge_sync.redis.lua.scripts import script

SWAP: Final = script("published/swap_index")
PUT: Final = script("published/put_page")
GET: Final = script("published/get_page")
KEEP: Final = script("published/keep_pages")
PAGES_AT_ONCE: Final = 256
"""The most pages in one run of a script, so that no node has to wait for long until the server is free again."""
_HASHED_DIGITS: Final = 8


def shard_of(digest: str, shards: int) -> int:
    """Returns the number of the shard that stores a page. Raises HubUnavailable if `digest` has no valid form."""
    try:
        return int(digest[:_HASHED_DIGITS], 16) % shards
    except ValueError:
        problem = f"{digest[:80]!r} is no digest of a page of contracts, which has hexadecimal digits; {ONE_VERSION}"
        raise HubUnavailable("protocol", problem, applied=False) from None


def by_shard(digests: Sequence[str], shards: int) -> list[tuple[int, list[str]]]:
    """Returns pairs of a shard and at most PAGES_AT_ONCE of its `digests`. Raises HubUnavailable for an invalid one."""
    groups: dict[int, list[str]] = {}
    for digest in digests:
        groups.setdefault(shard_of(digest, shards), []).append(digest)
    return [
        (shard, group[start : start + PAGES_AT_ONCE])
        for shard, group in groups.items()
        for start in range(0, len(group), PAGES_AT_ONCE)
    ]


def was_swapped(reply: object) -> bool:
    """Returns whether the script SWAP has replaced the index, by its reply. Raises HubUnavailable for another reply."""
    if reply not in (0, 1):
        problem = (
            f"the server's reply to a change of the index of contracts is {reply!r:.80}, not 0 or 1; {ONE_VERSION}"
        )
        raise HubUnavailable("protocol", problem)
    return reply == 1


def page_in(reply: object) -> bytes | None:
    """Returns the page in the reply of GET; None if there is none. Raises HubUnavailable for an invalid reply."""
    if reply is not None and type(reply) is not bytes:
        problem = (
            f"the server's reply for a page of contracts is of type {type(reply).__name__}, not bytes; {ONE_VERSION}"
        )
        raise HubUnavailable("protocol", problem, applied=False)
    return reply


def missing_in(reply: object, asked: list[str]) -> list[str]:
    """Returns those of the `asked` digests whose pages are missing, by the reply of the script KEEP.

    Raises HubUnavailable for an invalid reply.
    """
    positions: list[Any] = reply if isinstance(reply, list) else [None]
    if not all(type(each) is int and 0 <= each < len(asked) for each in positions):
        problem = (
            f"the server's reply about {len(asked)} pages of contracts, {reply!r:.80}, cannot be read; {ONE_VERSION}"
        )
        raise HubUnavailable("protocol", problem)
    return [asked[each] for each in positions]
