"""The settings of all nodes of a namespace, as a Redis keeps them: the payload, and a mark that changes with it.

A reader sends the mark that it knows, and gets the payload only if that is not the one any more. The scripts use no
command that an agent needs no right for anyway.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from reconverge.errors import HubUnavailable
from reconverge_sync.redis.scripts import script

POST: Final = script("post_settings")
READ: Final = script("read_settings")


class Posted(NamedTuple):
    """The last post, as far as one reader knows."""

    mark: bytes = b""
    payload: bytes | None = None


def posted(reply: object, known: Posted) -> Posted:
    """Returns the post after such a reply. Raises HubUnavailable if it is none of ours."""
    match reply:
        case []:
            return Posted()
        case [bytes(mark)] if known.payload is not None and mark == known.mark:
            return known
        case [bytes(mark), bytes(payload)]:
            return Posted(mark, payload)
        case _:
            raise HubUnavailable("protocol", "the posted settings cannot be read", applied=False)
