"""Which server of a cluster owns which shard: reads the map of slots, and finds out when it has changed."""

# Theory of operation.
#
# Each shard is one hash slot, and each has a syncer of its own. What becomes of one server must hold up no shard of
# another one.
#
# redis-py's client of a cluster closes all that it has when one connection fails, asks for the map again under one lock
# that every question waits for, and asks the next server only when the one before has timed out. With one of three
# masters killed, shards of the living ones paused for a second. So the map is kept here, and redis-py connects, logs in
# and speaks the protocol, with one client for each server.
#
#     MOVED                                       corrects the map for one slot; followed within the exchange
#     ASK                                         followed for this one question, with ASKING before it
#     CLUSTERDOWN, READONLY, a dead connection    a new map; if it names another owner, that one is asked
#     TRYAGAIN, and all else                      reported to the syncer, whose next exchange repeats everything
#
# A new map is asked for when an owner is unknown or did not answer. Not more often than every MAP_AGE_S, because all
# shards of a dead owner ask at once; and of one server after the other without waiting long for any (HEDGE_SHARE),
# because the first one to be asked may be the one that hangs.
from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from random import Random
from typing import Any, Final, NamedTuple

from redis import exceptions
from redis.crc import key_slot

from reconverge_sync.cluster.pipeline import FLIGHTS_MAX, Command, NodePipeline
from reconverge_sync.redis.connection import Connection, Place

SLOTS: Final = 16384
RANGES_MAX: Final = 16384
PLACES_MAX: Final = 1000
"""Redis advises against larger clusters."""


class SlotMap(NamedTuple):
    """The owners of all slots, as one server knows them."""

    owners: dict[int, Place]
    """By slot; only those that were asked for."""
    places: tuple[Place, ...]
    """All servers, replicas among them."""


def slot_of(shard: int) -> int:
    """The slot of all keys of a shard: they have its number as their hash tag."""
    return int(key_slot(b"%d" % shard))


def read_slots(reply: Any, asked: Place, wanted: frozenset[int]) -> SlotMap:
    """Reads the answer of `CLUSTER SLOTS` from the place that was asked. Raises ValueError when that makes no sense."""
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


ANSWER_SHARE: Final = 0.8
"""How much of an exchange's time a server may take; in the rest another may be asked."""
MAP_SHARE: Final = 0.5
"""How much of it the search for the owners may take, all servers that are asked for that together."""
HEDGE_SHARE: Final = 0.05
"""After so much of it without an answer, one more server is asked for the owners."""
HOPS_MAX: Final = 4
"""Servers that one question may be sent on to. A move takes one or two; disagreement may send it in a circle."""
MAP_AGE_S: Final = 0.5
"""A map is not asked for again before that: all shards of a dead owner would."""
SERVERS_ASKED_MAX: Final = 16
"""For one map; the next one begins with others."""

_GONE: Final = (exceptions.ConnectionError, exceptions.TimeoutError, OSError, TimeoutError)
"""Errors of a server that is not there any more, or not itself."""
_LOST: Final = (exceptions.ClusterDownError, exceptions.ReadOnlyError, exceptions.MasterDownError)


class ClusterTopology:
    """The servers of a cluster: asks each about the shards that it owns. See `Servers`.

    Each of them has connections of its own, so a slow or dead one delays no question to another. The map of
    slots is asked for when an owner is unknown or does not answer, of one server after the other with the answers
    overlapping; a redirection corrects it for one shard. Only questions that need the map wait for it.
    """

    def __init__(self, connection: Connection, timeout_s: float, *, shards: int, random: Random | None = None) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._slots = [slot_of(shard) for shard in range(shards)]
        self._random = random or Random()
        self._owner_of: dict[int, Place] = {}
        """By slot."""
        self._owners: dict[Place, NodePipeline] = {}
        self._retired: list[NodePipeline] = []
        """Those that are part of no map any more, while they are being closed."""
        self._known: dict[Place, None] = dict.fromkeys(connection.places)
        """The servers to ask for a map: those of the last one, and those that the URL names."""
        self._mapping: asyncio.Task[None] | None = None
        self._mapped_s = -MAP_AGE_S

    async def ask(self, shard: int, *command: object) -> object:
        async with asyncio.timeout(self._timeout_s):
            return await self._ask(self._slots[shard], command)

    async def _ask(self, slot: int, command: Command) -> object:
        place = self._owner_of.get(slot)
        if place is None:
            await self._map()
            place = self._owner_of.get(slot)
            if place is None:
                raise exceptions.ClusterDownError("CLUSTERDOWN no server owns the slot")
        before: tuple[Command, ...] = ()
        for _ in range(HOPS_MAX):
            try:
                return await self._owner(place).ask(*before, command)
            except exceptions.MovedError as error:
                place = self._owner_of[slot] = place_at(error.host, error.port, place)
                before = ()
            except exceptions.AskError as error:
                # For this one question: the slot is on its way there.
                place = place_at(error.host, error.port, place)
                before = (("ASKING",),)
            # Another server may have its slots by now. To ask that one for the same again is harmless:
            # counts are absolute.
            except (*_GONE, *_LOST):
                with contextlib.suppress(*_GONE, *_LOST, ValueError, exceptions.RedisError):
                    await self._map()
                successor = self._owner_of.get(slot, place)
                if successor == place:
                    raise
                place = successor
                before = ()
        raise exceptions.TryAgainError(f"sent on more than {HOPS_MAX} times")

    async def places(self) -> dict[Place, list[int]]:
        """Which shards each server owns, as a new map has it. Raises the client's errors."""
        async with asyncio.timeout(self._timeout_s):
            await self._map(older_than_s=0.0)
        found: dict[Place, list[int]] = {}
        for shard, slot in enumerate(self._slots):
            if slot in self._owner_of:
                found.setdefault(self._owner_of[slot], []).append(shard)
        return found

    async def close(self) -> None:
        mapping, self._mapping = self._mapping, None
        if mapping is not None:
            mapping.cancel()
            await asyncio.gather(mapping, return_exceptions=True)
        owners, self._owners = self._owners, {}
        retired, self._retired = self._retired, []
        await asyncio.gather(*(owner.close() for owner in (*owners.values(), *retired)))

    def _owner(self, place: Place) -> NodePipeline:
        owner = self._owners.get(place)
        if owner is None:
            client = self._connection.client(self._timeout_s, connections_max=FLIGHTS_MAX, place=place)
            limit_s = self._timeout_s * ANSWER_SHARE
            owner = self._owners[place] = NodePipeline(client, timeout_s=limit_s)
        return owner

    async def _map(self, *, older_than_s: float = MAP_AGE_S) -> None:
        """Waits for a new map, or for the one that is on its way. Raises the last server's error if none had one."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._mapped_s + older_than_s:
            return
        if self._mapping is None or self._mapping.done():
            self._mapping = asyncio.create_task(self._make_map(), name="reconverge-map")
            self._mapping.add_done_callback(_heed)
        mapping = self._mapping
        await asyncio.wait({mapping})  # the search goes on if the caller that waits here is cancelled
        if mapping.cancelled():
            raise exceptions.ConnectionError("closed")
        mapping.result()

    async def _make_map(self) -> None:
        places = list({**self._known, **dict.fromkeys(self._connection.places)})
        self._random.shuffle(places)
        # A timeout here is no answer either; the callers have the rest of the time for that.
        async with asyncio.timeout(self._timeout_s * MAP_SHARE):
            found = await self._first_map(places[:SERVERS_ASKED_MAX])
        self._owner_of.update(found.owners)
        self._known = dict.fromkeys(found.places)
        self._mapped_s = asyncio.get_running_loop().time()
        for place in [place for place, owner in self._owners.items() if place not in self._known and not owner.busy]:
            self._retired.append(self._owners.pop(place))
        while self._retired:
            await self._retired[-1].close()
            self._retired.pop()

    async def _first_map(self, places: Sequence[Place]) -> SlotMap:
        """Ask one after the other, without waiting long for any, until one has answered."""
        questions: set[asyncio.Task[SlotMap]] = set()
        waiting = list(places)
        problem: BaseException | None = None
        try:
            while waiting or questions:
                if waiting:
                    question = asyncio.create_task(self._map_of(waiting.pop()), name="reconverge-map-question")
                    question.add_done_callback(_heed)
                    questions.add(question)
                hedge_s = self._timeout_s * HEDGE_SHARE if waiting else None
                done, questions = await asyncio.wait(questions, timeout=hedge_s, return_when=asyncio.FIRST_COMPLETED)
                for question in done:
                    problem = question.exception()
                    if problem is None:
                        return question.result()
        finally:
            for question in questions:
                question.cancel()
        assert problem is not None
        raise problem

    async def _map_of(self, place: Place) -> SlotMap:
        reply: Any = await self._owner(place).ask(("CLUSTER", "SLOTS"))
        return read_slots(reply, place, frozenset(self._slots))


def _heed(task: asyncio.Task[Any]) -> None:
    """Retrieve the task's exception: asyncio logs one that is never retrieved, with the secrets that it may show."""
    if not task.cancelled():
        task.exception()
