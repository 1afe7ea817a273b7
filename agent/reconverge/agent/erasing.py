"""Erases an identity, such as a customer: orders all nodes to erase it, and carries out such orders on this node.

Orders are stored at the hub, and nodes read them there. The interface to the hub is in `hub/erasing.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar
from weakref import WeakMethod

from reconverge.agent.lifecycle import Lifecycle
from reconverge.clock import NEVER_NS, SECOND_NS, Clock
from reconverge.errors import HubUnavailable
from reconverge.hub.erasing import LOOK_NS, NAME_BYTES_MAX, Erased, OrderLog, erasure_mark, names_in, names_of
from reconverge.hub.fallback.opening import eraser_in, hubs_in
from reconverge.hub.hashing import KeyHasher
from reconverge.hub.port import Eraser, Hub
from reconverge.hub.reading import READ_MAX, KeyQuestion
from reconverge.kernel import Kernel, Table
from reconverge.kernel.keys import plain_key
from reconverge.runtime.log_throttle import LoggedOnce

logger = logging.getLogger("reconverge")

T = TypeVar("T")

WAIT_S: Final = 10.0
"""The seconds that `Agent.forget` waits for all nodes: each looks for orders once a second, and then needs some
exchanges."""
AGAIN_S: Final = 0.25
"""The seconds between two searches of a hub that still keeps keys because nodes have them."""
IDLE_LOOK_NS: Final = 10 * SECOND_NS
"""The nanoseconds between two looks for orders at the hub, on a node that has no keys."""
IN_USE_NS: Final = 60 * SECOND_NS
"""The nanoseconds for which a node tries to drop a key that is in use; then the key stays, which is logged."""
KEYS_AT_ONCE: Final = 1000
"""The number of keys to compare with orders before the event loop does other work: about a millisecond."""
STEPS_MAX: Final = 1_000_000
"""The largest number of steps of a search at the hub. More would mean a thousand million keys there, and so a fault."""
Names = Callable[[str], bool]
"""A predicate: called with a name, it returns True if the identity with this name is to be erased."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The result of an order to erase an identity: how much was removed, and how much is left."""

    cells: int
    """The number of keys of limits that this search removed from the hub; without a hub, from this node.

    Nodes remove their dropped keys from the hub themselves, and may do so before this search."""
    kept: int
    """The number of keys of limits that stay at the hub, because nodes still have them."""
    rows: int
    """The number of rows and events of usage that were removed from the hub."""
    problem: str = ""
    """A sentence about the part of the order that could not be carried out; empty if all was."""

    @property
    def complete(self) -> bool:
        """Returns whether nothing is left of the identity at the hub, as far as the search could find out."""
        return not (self.kept or self.problem)


class Erasing:
    """Erases identities on one node, as orders at the hub demand, and sends such orders to all nodes.

    The exchanges run it as a `Follower`.
    """

    def __init__(
        self, kernel: Kernel, clock: Clock, *, namespace: str, hasher: KeyHasher | None, interval_ns: Callable[[], int]
    ) -> None:
        self._kernel = kernel
        self._clock = clock
        self._namespace = namespace
        self._hasher = hasher
        self._interval_ns = interval_ns
        self._logged = LoggedOnce()
        self._listeners: list[WeakMethod[Callable[[Names], None]]] = []
        self.forget_keys: Callable[[set[tuple[str, str]]], None] = lambda _keys: None
        """A function that is called with the keys that this node has dropped, as pairs (limit, key)."""
        self.leaving: dict[tuple[str, str], int] = {}
        """The keys that this node has yet to drop, as pairs (limit, key), each with the time at which it gives up."""
        self._to_drop: list[tuple[str, str]] = []
        """The keys that this node has dropped and the hub still has, as pairs (limit, key)."""
        self._tables: dict[str, Table] = {}
        """The tables of the keys to drop, by limit; kept here as the node may drop a limit meanwhile."""
        self.begin()

    def begin(self) -> None:
        """Forgets all orders, and all keys to be erased. Called at the start and in a forked child."""
        self.leaving.clear()
        self._to_drop.clear()
        self._tables.clear()
        self._marks: set[str] = set()
        """The hashes of identities in orders that this node has read and not carried out yet."""
        self._hubs = 1
        """The number of hubs that can erase, as of the last read; 1 before the first."""
        self._began_ns = self._clock.monotonic_ns()
        self._logs: dict[int, OrderLog] = {}
        """The orders that were read, by the index of the hub: if there are two hubs, each has orders of its own."""
        self.start_over()

    def start_over(self) -> None:
        self._next_ns = self._clock.monotonic_ns()

    def listen(self, method: Callable[[Names], None]) -> None:
        """Registers a bound method to be called at each erasure, as long as the method's object lives.

        The method gets a function that returns whether a name is to be erased.
        """
        self._listeners = [each for each in self._listeners if each() is not None]
        self._listeners.append(WeakMethod(method))

    def _mark(self, name: str) -> str:
        return erasure_mark(name if self._hasher is None else self._hasher.hashed(name), self._namespace)

    # ------------------------------------------------------------ here

    def begin_here(self, is_named: Names) -> int:
        """Erases on this node all identities for which `is_named` returns True. Returns the number of their keys."""
        keys = [
            (table, key)
            for table in list(self._kernel.tables.values())
            for key in list(table.cells)
            if any(map(is_named, names_in(key)))
        ]
        self._begin(keys, is_named)
        return len(keys)

    async def _begin_slowly(self, marks: frozenset[str]) -> None:
        """Erases on this node the identities whose hashes are in `marks`; orders at the hub contain only hashes.

        Hashes each key of the node to find the identities, and lets the event loop do other work meanwhile.
        """

        def is_named(name: str) -> bool:
            return self._mark(name) in marks

        keys: list[tuple[Table, str]] = []
        for table in list(self._kernel.tables.values()):
            for number, key in enumerate(list(table.cells), start=1):
                if any(map(is_named, names_in(key))):
                    keys.append((table, key))
                if number % KEYS_AT_ONCE == 0:
                    await asyncio.sleep(0)
        self._begin(keys, is_named)

    def _begin(self, keys: list[tuple[Table, str]], is_named: Names) -> None:
        until_ns = self._clock.monotonic_ns() + IN_USE_NS
        self._tables.update((table.name, table) for table, _ in keys)
        self.leaving.update(((table.name, key), until_ns) for table, key in keys)
        self._let_leave()
        for reference in list(self._listeners):
            listener = reference()
            if listener is not None:
                listener(is_named)

    def _let_leave(self) -> None:
        now_ns = self._clock.monotonic_ns()
        gone = [each for each in list(self.leaving) if self._kernel.let_leave(self._tables[each[0]], each[1])]
        given_up = [each for each, until_ns in list(self.leaving.items()) if until_ns <= now_ns and each not in gone]
        for each in (*gone, *given_up):
            self.leaving.pop(each, None)
        self.forget_keys({*gone})
        if not self._kernel.alone:
            self._to_drop += gone
        if not self.leaving and not self._to_drop:
            self._tables.clear()
        if given_up and self._logged.is_new("in use"):
            logger.warning(
                "reconverge: %d keys that are to be erased stay on this node and at the hub, because requests on this"
                " node still use them; end these requests, and order the erasure again. Further cases are not logged",
                len(given_up),
            )

    # ------------------------------------------------------------ what others have ordered

    @property
    def brief(self) -> bool:
        """Returns whether the next read at the hub is one short question, as with one hub and nothing to erase.

        If False, the read takes place beside the exchanges: a hub that does not answer must not delay exchanges with
        the other hub.
        """
        return self._hubs == 1 and not (self._marks or self.leaving or self._to_drop)

    def due_ns(self) -> int:
        return self._next_ns

    async def follow(self, hub: Hub, *, cut_off: bool, timeout_s: float) -> None:
        now_ns = self._clock.monotonic_ns()
        hubs = [each for each in hubs_in(hub) if isinstance(each, Eraser)]
        if not hubs:
            self._next_ns = NEVER_NS
            return
        self._next_ns = now_ns + (LOOK_NS if self._kernel.keys else IDLE_LOOK_NS)
        if cut_off:
            return
        self._hubs, was_brief = len(hubs), self.brief
        for number, each in enumerate(hubs):
            # Exchanges log a hub that does not answer, and the next look is soon. The look has no task of its own, as
            # `wait_for` would make one, which the end of a loop may leave before it has begun.
            with contextlib.suppress(HubUnavailable, TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._look(number, each)
        if was_brief and not self.brief:
            self._next_ns = now_ns  # longer work is done beside exchanges
            return
        if self._marks:
            marks = frozenset(self._marks)
            await self._begin_slowly(marks)
            self._marks -= marks
        self._let_leave()
        with contextlib.suppress(HubUnavailable, TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._drop(hubs)
        if self.leaving or self._to_drop:
            self._next_ns = self._clock.monotonic_ns() + min(LOOK_NS, self._interval_ns())

    async def _look(self, number: int, hub: Eraser) -> None:
        log = self._logs.setdefault(number, OrderLog(self._began_ns))
        self._marks |= await log.news(hub, self._clock.monotonic_ns())

    async def _drop(self, hubs: Sequence[Eraser]) -> None:
        """Erases at the hubs the keys that this node has dropped from its memory.

        If it raises HubUnavailable, this node remembers the keys for another attempt.
        """
        by_shard: dict[int, list[tuple[str, str]]] = {}
        for name, key in self._to_drop:
            shard = self._kernel.shard_of(self._tables[name].reported_as, key)
            by_shard.setdefault(shard.index, []).append((name, key))
        for index, keys in by_shard.items():
            for first in range(0, len(keys), READ_MAX):
                some = [self._question(index, *each) for each in keys[first : first + READ_MAX]]
                for hub in hubs:
                    await hub.drop_keys(index, some)
        dropped = {each for keys in by_shard.values() for each in keys}
        self._to_drop = [each for each in self._to_drop if each not in dropped]

    def _question(self, shard: int, table_name: str, key: str) -> KeyQuestion:
        return KeyQuestion(self._kernel.declared(self._tables[table_name], shard), key)

    # ------------------------------------------------------------ orders

    async def forget(self, identity: str, lifecycle: Lifecycle, *, wait_s: float) -> Forgotten:
        names = names_of(identity)
        here = self.begin_here(lambda name: name in names)
        if lifecycle.hub is None:
            kept = len(self.leaving.keys() & {each for each in self.leaving if each[1] in names})
            return Forgotten(here - kept, kept, 0, "a request that waits on this node still uses it" if kept else "")
        hub = lifecycle.hub
        for each in hubs_in(hub):
            eraser_in(each, lifecycle.hub_name)

        async def ask(number: int, question: Callable[[Eraser], Awaitable[T]]) -> T:
            def put(hub: Hub) -> Awaitable[T]:
                return question(eraser_in(hubs_in(hub)[number], lifecycle.hub_name))

            return await lifecycle.answer(put, undone="the hub has not answered", advice="try to erase again")

        return await erase_at(
            [partial(ask, number) for number in range(len(hubs_in(hub)))],
            hub.shards,
            identity,
            namespace=self._namespace,
            hasher=self._hasher,
            wait_s=wait_s,
        )


class HubQuestion(Protocol):
    """A function that calls `question` with one hub, and returns the answer. Raises HubUnavailable."""

    def __call__(self, question: Callable[[Eraser], Awaitable[T]], /) -> Awaitable[T]: ...


def plain_identity(identity: object) -> str:
    """Returns the identity as a plain string. Raises InvalidKey for a value that cannot be an identity."""
    return plain_key(identity, NAME_BYTES_MAX)


async def erase_at(
    hubs: Sequence[HubQuestion],
    shards: int,
    identity: str,
    *,
    namespace: str,
    hasher: KeyHasher | None,
    wait_s: float,
) -> Forgotten:
    """Orders all nodes, through the hubs, to erase an identity. Searches the hubs and erases, until no key is left.

    Stops after `wait_s` seconds, but not before the first search. Returns how much was erased and how much is left.
    Raises HubUnavailable.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + wait_s
    names = names_of(identity)
    marks = [erasure_mark(name if hasher is None else hasher.hashed(name), namespace) for name in names]
    for ask in hubs:
        await ask(lambda hub: hub.order_erasure(marks))
    cells = rows = 0
    while True:
        found = [await erase_all(ask, shards, identity) for ask in hubs]
        cells, rows = cells + sum(each.cells for each in found), rows + sum(each.rows for each in found)
        kept = sum(each.kept for each in found)
        if not kept or loop.time() >= until_s:
            return Forgotten(cells, kept, rows)
        await asyncio.sleep(AGAIN_S)


async def erase_all(ask: HubQuestion, shards: int, identity: str) -> Erased:
    """Erases an identity from a hub, shard by shard. Returns how many keys were erased, and how many are left.

    Raises HubUnavailable.
    """
    names, done = names_of(identity), Erased(0, 0, 0, 0)
    for shard in range(shards):
        cursor = 0
        for _ in range(STEPS_MAX):
            step = await ask(partial(_erase, shard, identity, names, cursor))
            cursor = step.cursor
            done = Erased(0, done.cells + step.cells, done.kept + step.kept, done.rows + step.rows)
            if cursor == 0:
                break
        else:
            problem = (
                f"the search of the hub's keys for an identity did not end after {STEPS_MAX} steps; try to erase again"
            )
            raise HubUnavailable("protocol", problem)
    return done


def _erase(shard: int, identity: str, names: Sequence[str], cursor: int, hub: Eraser) -> Awaitable[Erased]:
    return hub.erase(shard, identity, names, cursor=cursor)
