"""Makes nodes leave snapshots at the hub, and reads the snapshots once for all viewers of the console."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from reconverge.agent import Agent
from reconverge.agent.snapshots.load_snapshot import LoadSnapshot
from reconverge.agent.snapshots.load_snapshot import decoded as decoded_load
from reconverge.agent.snapshots.snapshot import NodeSnapshot, decoded
from reconverge.clock import SECOND_NS
from reconverge.errors import HubUnavailable
from reconverge.hub.board import IDLE_LOOK_NS, LEFT, SNAPSHOTS_MAX, WATCH_S
from reconverge.hub.fallback.opening import hubs_in
from reconverge.hub.port import Hub, SnapshotBoard
from reconverge.integrations.console.fleet import Node, view_of
from reconverge.integrations.console.loads import view_of_loads
from reconverge.integrations.console.seen import SnapshotMemory

LOOK_NS: Final = SECOND_NS
"""The shortest time, in nanoseconds, between two readings of the snapshots, however many pages are open."""
RENEW_NS: Final = 5 * SECOND_NS
"""The nanoseconds after which the console renews its mark at the hub: nodes leave snapshots only while the hub has this
mark, a sign that a console is watching."""
ANEW_NS: Final = round(WATCH_S * SECOND_NS) - RENEW_NS
"""The nanoseconds after which the mark may have ended, so that a further reading begins to watch anew."""
FIRST_NS: Final = 3 * SECOND_NS
"""The nanoseconds within which nodes with keys leave a snapshot once watching has begun."""
FLEET: Final = "fleet"
PROCESS: Final = "process"


class Live:
    """Reads the snapshots of all nodes of an agent's fleet, once a second at most, and makes the pages' data."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._clock = agent.clock
        self._lock = asyncio.Lock()
        self._looked_ns: int | None = None
        self._begun_ns = self._clock.monotonic_ns()
        self._renewed_ns: int | None = None
        self._nodes: SnapshotMemory[NodeSnapshot] = SnapshotMemory(SNAPSHOTS_MAX)
        self._loads: SnapshotMemory[LoadSnapshot] = SnapshotMemory(SNAPSHOTS_MAX)
        self.problem = ""
        """A sentence that explains why the fleet cannot be shown; empty if it can."""
        self.scope = FLEET
        self._view: tuple[int | None, dict[str, Any]] | None = None
        """The time of the last reading, and the pages' data made from it, which all viewers share."""

    async def nodes(self) -> list[Node]:
        """Returns all known nodes, silent ones included."""
        async with self._lock:
            now_ns = self._clock.monotonic_ns()
            if self._looked_ns is None or now_ns - self._looked_ns >= LOOK_NS:
                # In a thread: to read 200 snapshots takes a tenth of a second, and the loop has requests to answer.
                before, away = self._looked_ns, self._away
                snapshots, loads = await asyncio.to_thread(self._decoded, await self._read(now_ns))
                if before is None or now_ns - before >= ANEW_NS or (away and not self._away):
                    self._begin(now_ns)
                self._nodes.take(snapshots, now_ns)
                self._loads.take(loads, now_ns)
                self._looked_ns = self._clock.monotonic_ns()
            return self._nodes.all()

    @property
    def _away(self) -> bool:
        """Returns whether the hub has not answered the last reading."""
        return self.scope == FLEET and self.problem != ""

    def _begin(self, now_ns: int) -> None:
        self._begun_ns = now_ns
        self._nodes.begin(lambda last: now_ns + FIRST_NS + (0 if last.keys else IDLE_LOOK_NS))
        self._loads.begin(lambda _: now_ns + FIRST_NS + IDLE_LOOK_NS)

    async def view(self) -> dict[str, Any]:
        """Returns the data of all console pages about the fleet, as a dict that JSON can express."""
        nodes = await self.nodes()
        if self._view is None or self._view[0] != self._looked_ns:
            looked_ns = self._looked_ns
            view = await asyncio.to_thread(view_of, nodes)
            self._view = looked_ns, view | await asyncio.to_thread(view_of_loads, self._loads.all())
        beginning = self.scope == FLEET and self._clock.monotonic_ns() - self._begun_ns < FIRST_NS
        about = {"scope": self.scope, "problem": self.problem, "beginning": beginning and not self.problem}
        return {"at": self._clock.wall_ns() / SECOND_NS, **about, **self._view[1]}

    async def _read(self, now_ns: int) -> dict[str, bytes | None]:
        """Returns the snapshots at the hub, by node.

        If the hub keeps no snapshots, returns `{"": None}`, which stands for this process.
        """
        renews = self._renewed_ns is None or now_ns - self._renewed_ns >= RENEW_NS

        async def read(hub: Hub) -> dict[str, bytes | None] | None:
            boards = [each for each in hubs_in(hub) if isinstance(each, SnapshotBoard)]
            found: dict[str, bytes | None] = {}
            for board in boards:
                if renews:
                    await board.watch(keep_s=WATCH_S)
                found |= await board.snapshots()
            return found if boards else None

        try:
            found = await self._agent.ask_hub(read)
        except HubUnavailable as error:
            self.problem = "" if error.kind == "unsupported" else f"the hub does not answer ({error.kind})"
            found = None
            self.scope = PROCESS if error.kind == "unsupported" else FLEET
        else:
            self.scope, self.problem = (PROCESS, "") if found is None else (FLEET, "")
            self._renewed_ns = now_ns if renews else self._renewed_ns
        if self.scope == PROCESS:
            self.problem = "this hub keeps no snapshots of nodes, so only this process is shown"
            return {"": None}
        return found or {}

    def _decoded(
        self, found: dict[str, bytes | None]
    ) -> tuple[dict[str, NodeSnapshot | None], dict[str, LoadSnapshot | None]]:
        """Returns the readable snapshots in two dicts, by node: those of limits, and those of load shedding.

        None stands for a node that has ended.
        """
        snapshots: dict[str, NodeSnapshot | None] = {}
        loads: dict[str, LoadSnapshot | None] = {}
        for name, payload in list(found.items())[:SNAPSHOTS_MAX]:
            if payload == LEFT:
                snapshots[name] = loads[name] = None
                continue
            if payload is None:
                snapshots[name], load = self._agent.snapshot(), self._agent.load_snapshot()
            else:
                load = decoded_load(payload)
                snapshot = decoded(payload) if load is None else None
                if snapshot is not None:
                    snapshots[name] = snapshot
            if load is not None:
                loads[name] = load
        return snapshots, loads
