"""Sends snapshots of this node to the hub while a console is open, and otherwise only looks for an open console."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from secrets import token_hex
from typing import Final, Protocol

from reconverge.agent.snapshots import load_snapshot
from reconverge.agent.snapshots.load_snapshot import LoadSnapshot, load_of
from reconverge.agent.snapshots.snapshot import (
    DENIALS_MAX,
    KEYS_OF_DENIAL_MAX,
    TEXT_MAX,
    Denial,
    NodePlace,
    NodeSnapshot,
    encoded,
    snapshot_of,
)
from reconverge.agent.snapshots.top_keys import TopKeys
from reconverge.clock import NEVER_NS, SECOND_NS, Clock
from reconverge.errors import HubUnavailable
from reconverge.hooks import Hooks, Refused, SilentHooks
from reconverge.hub.board import IDLE_LOOK_NS, LEFT, LOOK_NS, SNAPSHOT_S, WATCH_S
from reconverge.hub.fallback.opening import hubs_in
from reconverge.hub.hashing import KeyHasher
from reconverge.hub.port import Hub, SnapshotBoard
from reconverge.kernel import Kernel, Table
from reconverge.stats import AgentStats, Health

NAME_BYTES: Final = 8


class Published(Protocol):
    """The methods of an agent that provide the content of its snapshots."""

    @property
    def switched(self) -> str: ...

    def stats(self) -> AgentStats: ...

    def health(self) -> Health: ...

    def add_hooks(self, hooks: Hooks) -> None: ...

    def remove_hooks(self, hooks: Hooks) -> None: ...


class DenialFeed(SilentHooks):
    """Collects the last denials (refusals of a limit) on one node, from the events that the agent reports to hooks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.denials: deque[Denial] = deque(maxlen=DENIALS_MAX)

    def refused(self, event: Refused, /) -> None:
        keys = tuple(key for key in event.keys if len(key) <= TEXT_MAX)[:KEYS_OF_DENIAL_MAX]
        self.denials.append(Denial(self._clock.wall_ns() / SECOND_NS, event.limit, event.count, keys))

    def known(self, tables: Mapping[str, Table]) -> list[Denial]:
        """Returns the last denials, without keys that this node no longer counts.

        Hooks are called up to a second late, or later if one of them hangs. Meanwhile an identity may have been erased.
        """
        for place, denial in enumerate(list(self.denials)):
            table = tables.get(denial.limit)
            tiers = () if table is None else table.tiers
            kept = tuple(key for key in denial.keys if any(key in each.cells for each in tiers))
            if len(kept) < len(denial.keys):
                self.denials[place] = replace(denial, keys=kept)
        return list(self.denials)


class Publishing:
    """Sends one node's snapshots to the hub while a console is open there, beside the exchanges."""

    def __init__(self, agent: Published, kernel: Kernel, clock: Clock, hasher: KeyHasher | None) -> None:
        self._agent = weakref.ref(agent)  # a driven object must not keep an agent that is otherwise unused
        self._kernel = kernel
        self._clock = clock
        self._hasher = hasher
        self._feed: DenialFeed | None = None
        """Collects denials while a console is open; None while none is."""
        self._watched: list[SnapshotBoard] = []
        """The hubs with a snapshot of this node, as of the last look."""
        self.hidden = False
        """Whether this node sends no snapshots, because it is part of a console itself."""
        self.begin()

    def begin(self) -> None:
        """Gives this node a new name for consoles, at the start and in a forked child."""
        self.name = token_hex(NAME_BYTES)
        self._close()
        self._watched = []
        self._hubs = 1
        self.start_over()

    def start_over(self) -> None:
        self._next_ns = self._clock.monotonic_ns()

    @property
    def brief(self) -> bool:
        """Returns whether the next search for an open console asks one short question: so it is with a single hub.

        With two hubs, the search takes place beside the exchanges: a hub that does not answer must not delay exchanges
        with the other hub.
        """
        return self._hubs == 1

    def due_ns(self) -> int:
        return self._next_ns

    async def follow(self, hub: Hub, *, cut_off: bool, timeout_s: float) -> None:
        boards = [each for each in hubs_in(hub) if isinstance(each, SnapshotBoard)]
        if self.hidden or not boards:
            self._next_ns = NEVER_NS
            return
        in_use = self._kernel.keys or self._feed is not None
        self._next_ns = self._clock.monotonic_ns() + (LOOK_NS if in_use else IDLE_LOOK_NS)
        self._watched = []
        if cut_off:
            return
        self._hubs = len(boards)
        for board in boards:
            # Exchanges log a hub that does not answer, and the next look is soon.
            with contextlib.suppress(HubUnavailable, TimeoutError):
                async with asyncio.timeout(timeout_s):
                    if await self._look(board):
                        self._watched.append(board)
        if not self._watched:
            self._close()

    async def part(self, timeout_s: float) -> None:
        """Replaces this node's snapshots by LEFT; a hub that does not answer has none of them for long."""
        self._close()
        watched, self._watched = self._watched, []
        for board in watched:
            with contextlib.suppress(HubUnavailable, TimeoutError):
                async with asyncio.timeout(timeout_s):
                    for name in (self.name, self.name + load_snapshot.SUFFIX):
                        await board.leave_snapshot(name, LEFT, keep_s=WATCH_S)

    async def _look(self, board: SnapshotBoard) -> bool:
        """Sends a snapshot to a hub if a console is open there. Returns whether one is. Raises HubUnavailable."""
        agent = self._agent()
        if agent is None or await board.watched_s() <= 0:
            return False
        if self._feed is None:
            self._feed = DenialFeed(self._clock)
            agent.add_hooks(self._feed)
        await board.leave_snapshot(self.name, encoded(self.snapshot(agent)), keep_s=SNAPSHOT_S)
        load = self.load()
        if load is not None:
            await board.leave_snapshot(self.name + load_snapshot.SUFFIX, load_snapshot.encoded(load), keep_s=SNAPSHOT_S)
        return True

    def _close(self) -> None:
        feed, self._feed = self._feed, None
        self._top = TopKeys()
        agent = self._agent()
        if feed is not None and agent is not None:
            agent.remove_hooks(feed)

    def forget(self, is_named: Callable[[str], bool]) -> None:  # noqa: ARG002  # all are looked at anew
        """Forgets the keys that have used most (`TopKeys`), as an erased identity may be one; see `Erasing.listen`."""
        self._top = TopKeys()

    def load(self) -> LoadSnapshot | None:
        """Returns the load of this process; None if it sheds no load and no request waits."""
        return load_of(platform.node(), self._clock.wall_ns() / SECOND_NS, dict(self._kernel.tables))

    def snapshot(self, agent: Published) -> NodeSnapshot:
        """Returns the node's state: the statistics of `agent`, the keys that have used most, and the last denials."""
        place = NodePlace(
            host=platform.node(),
            pid=os.getpid(),
            at=self._clock.wall_ns() / SECOND_NS,
            switch=agent.switched,
            hashed=None if self._hasher is None else self._hasher.hashed,
        )
        tables = dict(self._kernel.tables)
        return snapshot_of(
            place,
            agent.stats(),
            agent.health(),
            tables,
            top=self._top.look(tables, self._clock.monotonic_ns()),
            denials=() if self._feed is None else self._feed.known(tables),
        )
