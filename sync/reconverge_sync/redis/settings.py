"""What is posted for all nodes of a namespace, as a Redis keeps it: the payload, and a mark that changes with it.

A reader says which mark it knows, and is told the payload only if that is not the one any more. The scripts use no
command that an agent needs no right for anyway.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from reconverge.errors import HubUnavailable

POST: Final = b"""\
redis.call('HSET', KEYS[1], 'payload', ARGV[1], 'mark', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
"""
READ: Final = b"""\
local mark = redis.call('HGET', KEYS[1], 'mark')
if not mark then return {} end
if mark ~= '' and mark == ARGV[1] then return {mark} end
local payload = redis.call('HGET', KEYS[1], 'payload') or ''
return {string.sub(mark, 1, 64), string.sub(payload, 1, tonumber(ARGV[2]))}
"""


class Posted(NamedTuple):
    """What was posted last, as far as one reader knows."""

    mark: bytes = b""
    payload: bytes | None = None


def posted(reply: object, known: Posted) -> Posted:
    """What is posted after such a reply. Raises HubUnavailable if it is none of ours."""
    match reply:
        case []:
            return Posted()
        case [bytes(mark)] if known.payload is not None and mark == known.mark:
            return known
        case [bytes(mark), bytes(payload)]:
            return Posted(mark, payload)
        case _:
            raise HubUnavailable("protocol", "what is posted cannot be read", applied=False)
