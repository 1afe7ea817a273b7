"""Finds the server of a cluster that owns each shard: reads the map of slots, and notices when it has changed."""

# Theory of operation.
#
# Each shard is one hash slot, and each has a syncer of its own. A server that fails must not delay the shards of other
# servers.
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
from reconverge_sync.redis.errors import from_wrong_server

SLOTS: Final = 16384
RANGES_MAX: Final = 16384
PLACES_MAX: Final = 1000
"""The most servers of a cluster that are read from a map; Redis advises against larger clusters."""


class SlotMap(NamedTuple):
    """The servers that own the hash slots asked for, according to one server."""

    owners: dict[int, Place]
    """The server that owns each slot that was asked for, by the number of the slot."""
    places: tuple[Place, ...]
    """The places of all servers of the cluster, including replicas."""


def slot_of(shard: int) -> int:
    """Returns the hash slot of a shard, whose keys all have the shard's number as their hash tag."""
    return int(key_slot(b"%d" % shard))


def read_slots(reply: Any, asked: Place, wanted: frozenset[int]) -> SlotMap:
    """Returns the owners of the `wanted` slots, by the reply of the server `asked` to `CLUSTER SLOTS`.

    Raises ValueError if the reply is invalid.
    """
    if not isinstance(reply, list) or not 0 < len(reply) <= RANGES_MAX:
        raise ValueError(
            f"the server {asked} returned no slots, or too many ranges; check that it belongs to a cluster"
        )
    owners: dict[int, Place] = {}
    places: dict[Place, None] = {}
    for entry in reply:
        if not isinstance(entry, list) or len(entry) < 3:
            raise ValueError(
                f"the server {asked} returned a range of slots with fewer than 3 fields; check that it is a Redis"
            )
        first, last, owner, *replicas = entry
        if type(first) is not int or type(last) is not int:
            raise ValueError(
                f"the server {asked} returned a range of slots without whole numbers; check that it is a Redis"
            )
        place = _place(owner, asked)
        if place is not None:
            owners |= {slot: place for slot in wanted if first <= slot <= last}
        for server in (owner, *replicas):
            known = _place(server, asked)
            if known is not None and len(places) < PLACES_MAX:
                places[known] = None
    return SlotMap(owners, tuple(places))


def place_at(host: str, port: int, asked: Place) -> Place:
    """Returns the place to which a redirection leads; an empty `host` stands for the host of the server `asked`.

    Raises ValueError if the address is unknown.
    """
    if host == "?" or not 0 < port < 65536:
        raise ValueError(
            f"the cluster names a server by the host {host!r} and port {port}; set cluster-announce-ip there"
        )
    return Place(host or asked.host, port)


def _place(server: Any, asked: Place) -> Place | None:
    """Returns the place of one server in a reply of the server `asked`; None if the cluster does not know its address.

    Raises ValueError if the reply is invalid.
    """
    if not isinstance(server, list) or len(server) < 2 or type(server[1]) is not int:
        raise ValueError(f"the server {asked} returned an address without host and port; check that it is a Redis")
    host = server[0]
    try:
        return place_at(host.decode() if isinstance(host, bytes) else "" if host is None else "?", server[1], asked)
    except ValueError:
        return None


ANSWER_SHARE: Final = 0.8
"""The fraction of an exchange's time that one server may take to answer, so that another can be asked in the rest."""
MAP_SHARE: Final = 0.5
"""The fraction of an exchange's time that reading a map may take, over all servers that are asked for it."""
HEDGE_SHARE: Final = 0.05
"""The fraction of an exchange's time after which one more server is asked for the map."""
HOPS_MAX: Final = 4
"""The most redirections of one question. A slot that moves takes one or two; servers that disagree could redirect it in
a circle."""
MAP_AGE_S: Final = 0.5
"""A map younger than this many seconds is not read again, because all shards of a dead owner ask for a new one at
once."""
SERVERS_ASKED_MAX: Final = 16
"""The most servers that are asked for one map; the next attempt begins with other servers."""

_GONE: Final = (exceptions.ConnectionError, exceptions.TimeoutError, OSError, TimeoutError)
"""The errors after which a server counts as gone, and a new map is read."""


class ClusterTopology:
    """Sends commands to the servers of a cluster, each to the server that owns its shard. Implements `Servers`.

    Each server has connections of its own, so a slow or dead one does not delay commands to others. The map of slots is
    asked for when an owner is unknown or does not answer: servers are asked one after the other, without waiting long
    for each. A redirection corrects the map for one shard. Only commands that need the map wait for it.
    """

    def __init__(self, connection: Connection, timeout_s: float, *, shards: int, random: Random | None = None) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._slots = [slot_of(shard) for shard in range(shards)]
        self._random = random or Random()
        self._owner_of: dict[int, Place] = {}
        """The place of each slot's owner, by slot."""
        self._owners: dict[Place, NodePipeline] = {}
        self._retired: list[NodePipeline] = []
        """The pipelines to servers that the newest map does not contain, while their connections are being closed."""
        self._known: dict[Place, None] = dict.fromkeys(connection.places)
        """The servers to ask for a map: those of the last map, and those in the URL."""
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
                raise exceptions.ClusterDownError(
                    f"CLUSTERDOWN no server owns the slot {slot}; start its server, or move the slot"
                )
        before: tuple[Command, ...] = ()
        for _ in range(HOPS_MAX):
            try:
                return await self._owner(place).ask(*before, command)
            except exceptions.MovedError as error:
                place = self._owner_of[slot] = place_at(error.host, error.port, place)
                before = ()
            except exceptions.AskError as error:
                # Asked for this one command: the slot is being moved to that server.
                place = place_at(error.host, error.port, place)
                before = (("ASKING",),)
            # Another server may own the slots of this one by now. Sending the same command again is harmless: counts
            # are absolute.
            except (*_GONE, exceptions.ResponseError) as error:
                if isinstance(error, exceptions.ResponseError) and not from_wrong_server(error):
                    raise
                with contextlib.suppress(*_GONE, ValueError, exceptions.RedisError):
                    await self._map()
                successor = self._owner_of.get(slot, place)
                if successor == place:
                    raise
                place = successor
                before = ()
        raise exceptions.TryAgainError(
            f"servers redirected the command for slot {slot} {HOPS_MAX} times; wait until slots have moved"
        )

    async def places(self) -> dict[Place, list[int]]:
        """Returns the numbers of the shards that each server owns, by a newly read map. Raises the client's errors."""
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
        """Reads a map of the slots if the present one is older than `older_than_s`; if one is being read, waits for it.

        If no server returns a map, raises the error of the last server.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s < self._mapped_s + older_than_s:
            return
        if self._mapping is None or self._mapping.done():
            self._mapping = asyncio.create_task(self._make_map(), name="reconverge-map")
            self._mapping.add_done_callback(_heed)
        mapping = self._mapping
        await asyncio.wait({mapping})  # the search goes on if the caller that waits here is cancelled
        if mapping.cancelled():
            raise exceptions.ConnectionError("the hub was closed while it looked for the cluster's servers")
        mapping.result()

    async def _make_map(self) -> None:
        places = list({**self._known, **dict.fromkeys(self._connection.places)})
        self._random.shuffle(places)
        # A timeout here counts as no answer; the callers wait for the rest of their time.
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
        """Asks servers for a map, each a short while after the one before, and returns the first map that comes."""
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
    """Retrieves a task's exception, as asyncio would log one that is never retrieved, maybe with secrets in it."""
    if not task.cancelled():
        task.exception()
