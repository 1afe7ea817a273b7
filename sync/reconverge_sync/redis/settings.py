"""The published settings of a namespace at a Redis: their bytes, and a mark that changes whenever they do.

A reader sends the mark that it knows, and gets the settings only if the mark has changed. The scripts use only commands
that an agent's user may run anyway.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from reconverge.errors import ONE_VERSION, HubUnavailable
from reconverge_sync.redis.lua.scripts import script

POST: Final = script("published/post_settings")
READ: Final = script("published/read_settings")


class Posted(NamedTuple):
    """The settings that a reader has read last, and their mark (a random text that is new with each publication)."""

    mark: bytes = b""
    payload: bytes | None = None


def posted(reply: object, known: Posted) -> Posted:
    """Returns the settings in a reply of the script READ, or `known` if they are unchanged. Raises HubUnavailable."""
    match reply:
        case []:
            return Posted()
        case [bytes(mark)] if known.payload is not None and mark == known.mark:
            return known
        case [bytes(mark), bytes(payload)]:
            return Posted(mark, payload)
        case _:
            problem = f"the server's reply about published settings cannot be read; publish them anew, or {ONE_VERSION}"
            raise HubUnavailable("protocol", problem, applied=False)
