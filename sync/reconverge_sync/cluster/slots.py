"""What the servers of a cluster say about who owns which slot."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from redis.crc import key_slot

from reconverge_sync.redis.connection import Place

SLOTS: Final = 16384
RANGES_MAX: Final = 16384
PLACES_MAX: Final = 1000
"""Redis advises against larger clusters."""


class SlotMap(NamedTuple):
    """Who owns what, as one server has it."""

    owners: dict[int, Place]
    """By slot; only those that were asked for."""
    places: tuple[Place, ...]
    """All servers, replicas among them."""


def slot_of(shard: int) -> int:
    """The slot of all keys of a shard: they have its number as their hash tag."""
    return int(key_slot(b"%d" % shard))


def read_slots(reply: Any, asked: Place, wanted: frozenset[int]) -> SlotMap:
    """What `CLUSTER SLOTS` has answered at the place that was asked. Raises ValueError when that makes no sense."""
    if not isinstance(reply, list) or not 0 < len(reply) <= RANGES_MAX:
        raise ValueError("it knows of no slots")
    owners: dict[int, Place] = {}
    places: dict[Place, None] = {}
    for entry in reply:
        if not isinstance(entry, list) or len(entry) < 3:
            raise ValueError("a range of slots cannot be read")
        first, last, owner, *replicas = entry
        if type(first) is not int or type(last) is not int:
            raise ValueError("a range of slots cannot be read")
        place = _place(owner, asked)
        if place is not None:
            owners |= {slot: place for slot in wanted if first <= slot <= last}
        for server in (owner, *replicas):
            known = _place(server, asked)
            if known is not None and len(places) < PLACES_MAX:
                places[known] = None
    return SlotMap(owners, tuple(places))


def place_at(host: str, port: int, asked: Place) -> Place:
    """Where a redirection leads; without a host, to the same one. Raises ValueError when it leads nowhere."""
    if host == "?" or not 0 < port < 65536:
        raise ValueError("the cluster does not know the address of one of its servers")
    return Place(host or asked.host, port)


def _place(server: Any, asked: Place) -> Place | None:
    """None when the server's address is not known."""
    if not isinstance(server, list) or len(server) < 2 or type(server[1]) is not int:
        raise ValueError("a server's address cannot be read")
    host = server[0]
    try:
        return place_at(host.decode() if isinstance(host, bytes) else "" if host is None else "?", server[1], asked)
    except ValueError:
        return None
