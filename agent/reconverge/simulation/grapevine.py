"""How hints go from node to node of a simulated fleet: late, or never, and past the hub."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from reconverge.report import Batch

if TYPE_CHECKING:
    from reconverge.simulation.member import Member
    from reconverge.simulation.world import World


class Grapevine:
    """Carries the hints of all nodes of a world, if its fleet has any. No fault keeps one from coming."""

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._hinted = world.fleet.hinted
        self._random = random
        self._flushing: set[int] = set()
        """Nodes that will give their next hint at a known moment."""

    def answered(self, node: Member, batch: Batch) -> None:
        """A node has taken in the answer to that batch."""
        if self._hinted is not None:
            node.hints.answered(batch, self._world.now_ns)
            self._plan(node)

    def pass_on(self, node: Member, hint: bytes | None) -> None:
        """A node hears that, or may give a hint itself."""
        world, hinted = self._world, self._hinted
        assert hinted is not None
        if hint is not None:
            if node.alive:
                node.hints.hear(hint, world.now_ns)
                if node.woken:
                    world.look_at(node)
            return
        self._flushing.discard(node.index)
        said = node.hints.take(world.now_ns) if node.alive else None
        if said is not None:
            for other in world.nodes:
                if self._random.random() >= hinted.lost:
                    latency_ns = int(hinted.latency_ns * (0.5 + self._random.random()))
                    world.push_hint(world.now_ns + latency_ns, other.index, said)
        if node.alive:
            self._plan(node)

    def _plan(self, node: Member) -> None:
        due_ns = node.hints.due_ns
        if due_ns is not None and node.index not in self._flushing:
            self._flushing.add(node.index)
            self._world.push_hint(max(due_ns, self._world.now_ns), node.index, None)
