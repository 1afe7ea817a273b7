"""Goal: when a hub has lost its data, a small strict quota is admitted again as soon as no earlier use counts.

Method: as in `test_sealed_shares.py`; the hub loses all its data, or one key, while some nodes may be cut off.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from reconverge.clock import ManualClock
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import SCHEMA_VERSION, Answer, Batch
from reconverge.policies import BALANCED
from reconverge_sync.memory import MemoryHub
from reconverge_sync.redis.hub import RedisHub
from tests.protocol.test_sealed_shares import WINDOW_S, Away, shares_of
from tests.support.servers import RedisServer

FADES_S = 2 * WINDOW_S
SPEAKS_S = 3
"""Longer than the hub waits for the reports of the nodes that can reach it."""


def _dealt(quota: int = 12, nodes: int = 4) -> Away:
    """Nodes that have the whole quota as shares, at the beginning of a window."""
    world = Away(quota, nodes)
    world.goes_on(2 * WINDOW_S)
    world.to_the_next_window()
    assert quota == sum(shares_of(world))
    return world


def _lost(world: Away) -> Away:
    world.hub.lose_data()
    return world


def test_nothing_is_admitted_while_use_from_before_the_loss_may_count() -> None:
    """The hub does not know of it."""
    assert 0 == _lost(_dealt()).goes_on(FADES_S)


def test_then_the_nodes_admit_the_whole_quota_although_their_leases_last() -> None:
    """The shares that they have reported sum to it; each window admits what a central limiter would."""
    world = _lost(_dealt())
    world.goes_on(FADES_S + SPEAKS_S)
    world.to_the_next_window()

    admitted = [world.goes_on(WINDOW_S) for _ in range(4)]

    assert all(each >= 11 for each in admitted)
    assert 0 == world.most


def test_each_node_keeps_its_share_while_the_hub_learns() -> None:
    """A share that goes back could be given to no other node."""
    world = _dealt()
    shares = shares_of(world)

    _lost(world).goes_on(FADES_S + SPEAKS_S)

    assert shares == shares_of(world)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_the_share_of_a_node_that_has_not_reported_is_left_to_it(cut: int) -> None:
    """It may have opened it; the others go on with the rest."""
    world = _dealt()
    world.cut = set(world.nodes[:cut])
    theirs = sum(node.table.cells["ada"].base for node in world.cut)
    _lost(world).goes_on(FADES_S + SPEAKS_S)
    world.to_the_next_window()

    for _ in range(4):
        world.goes_on(WINDOW_S - 1)
        by_others = sum(world.admitted_by[node] for node in world.nodes if node not in world.cut)
        assert 12 - theirs - 1 <= by_others <= 12 - theirs
        world.to_the_next_window()
    assert 0 == world.most


def test_nodes_that_come_back_find_their_shares_counted() -> None:
    """A node that reports for the first time brings its share, and what it has used of it."""
    world = _dealt()
    world.cut = set(world.nodes[:2])
    _lost(world).goes_on(FADES_S + 2 * WINDOW_S)
    world.cut.clear()

    world.goes_on(6 * WINDOW_S)

    assert 0 == world.most


def test_a_key_that_is_lost_later_waits_for_its_own_use_to_fade() -> None:
    """Of one key alone, as by an eviction at the hub, while the hub still learns."""
    world = _lost(_dealt())
    world.goes_on(FADES_S + SPEAKS_S)
    world.to_the_next_window()
    world.goes_on(20)
    world.hub._shards[0].cells.clear()

    admitted = world.goes_on(FADES_S)

    assert 0 == admitted
    assert 11 <= world.goes_on(2 * WINDOW_S)
    assert 0 == world.most


def test_in_balanced_the_hub_waits_for_reports_alone() -> None:
    """As before: it grants again within seconds."""
    world = Away(12, policy=BALANCED)
    world.goes_on(2 * WINDOW_S)
    world.hub.lose_data()

    assert world.goes_on(WINDOW_S) > 0


@dataclass
class Exchanged:
    """A batch with the moment of its merge, how many times the hub had lost its data before, and the answer."""

    wall_ns: int
    losses: int
    batch: Batch
    answer: Answer


class Recording(MemoryHub):
    """A hub that records what it is asked and answers."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.recorded: list[Exchanged] = []
        self._losses = 0

    def merge(self, batch: Batch) -> Answer:
        answer = super().merge(batch)
        self.recorded.append(Exchanged(self._clock.wall_ns(), self._losses, batch, answer))
        return answer

    def lose_data(self) -> None:
        super().lose_data()
        self._losses += 1


def test_the_script_in_redis_answers_alike(shared_redis: RedisServer) -> None:
    """Batch by batch: all nodes, some that are cut off when the data are lost, and their return."""
    world = Away(12)
    world.hub = Recording(world.clock)
    world.goes_on(2 * WINDOW_S)
    world.cut = set(world.nodes[:2])
    _lost(world).goes_on(FADES_S + 2 * WINDOW_S)
    world.cut.clear()
    world.goes_on(2 * WINDOW_S)
    _lost(world).goes_on(FADES_S + WINDOW_S)

    assert [] == answered_otherwise(shared_redis, world.hub.recorded)
    assert 12 <= sum(_granted(each) for each in world.hub.recorded if each.losses == 2)


def _granted(exchanged: Exchanged) -> int:
    reports, answers = exchanged.batch.cells, exchanged.answer.cells
    return sum(max(0, answer.allowance - report.current) for report, answer in zip(reports, answers, strict=True))


def answered_otherwise(server: RedisServer, recorded: list[Exchanged]) -> list[tuple[Answer, Answer]]:
    clock = ManualClock(recorded[0].wall_ns / 1e9)
    names = [""]

    async def replay() -> list[tuple[Answer, Answer]]:
        in_lua = RedisHub(server.url, HubSettings("twins", 5.0), clock=clock, new_name=lambda: names[0])
        differing, losses = [], -1
        for each in recorded:
            clock.advance_ns(each.wall_ns - clock.wall_ns())
            names[0] = each.answer.generation
            if each.losses != losses:
                server.command("FLUSHALL")
                if each.losses == 0:
                    server.command(
                        "HSET", "twins:{0}:meta", "generation", names[0], "born", "0", "schema", str(SCHEMA_VERSION)
                    )
                losses = each.losses
            answer = await in_lua.exchange(each.batch)
            if answer != each.answer:
                differing.append((each.answer, answer))
        await in_lua.close()
        return differing

    return asyncio.run(replay())
