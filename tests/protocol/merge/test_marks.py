"""Goal: reports of keys about which requests in doubt wait for the hub say so, and what waits; all others do not.

Method: real nodes and the real merge rule, each exchanging when it is told to.
"""

from __future__ import annotations

import pytest

from reconverge.hub.report import ASKS, FORGOTTEN, WAITING_MAX, CellReport
from reconverge.kernel import Cell, gate_of
from reconverge.limit import ALGORITHMS, PACED, SMOOTH_WARMING_UP, Limit
from reconverge.policies import STRICT
from tests.support.kernel.talker import Talker, Talkers


def world_of(algorithm: str = "sliding-window", *, asks: bool = True, quota: int = 5) -> Talkers:
    """A node that has exchanged about a key."""
    warmup = 10 if algorithm == SMOOTH_WARMING_UP else None
    world = Talkers(Limit(quota, 60, algorithm=algorithm, warmup=warmup), STRICT)
    node = world.nodes[0]
    node.table.asks = asks
    node.table.warm(["ada"])
    node.exchanges_with(world.hub)
    return world


def waits(node: Talker, cost: int = 1) -> list[Cell]:
    cells: list[Cell] = []
    gate_of(node.table).queue_up("ada", node.table.costs_of(cost), cells)
    return cells


def said(node: Talker, world: Talkers) -> CellReport:
    world.passes(0.1)
    (report,) = node.says().cells
    node.reaches(world.hub)
    node.hears()
    return report


@pytest.mark.parametrize("algorithm", sorted(set(ALGORITHMS) - set(PACED)))
def test_a_report_says_what_waits(algorithm: str) -> None:
    """In the parts of a request in which the limit counts, and for as long as any waits."""
    world = world_of(algorithm)
    node = world.nodes[0]
    places = [waits(node, 2), waits(node)]

    report = said(node, world)

    assert report.asks
    assert ASKS + 3 * node.table.unit == report.asked
    assert 3 * node.table.unit == report.waiting
    for place, cost in zip(places, (2, 1), strict=True):
        gate_of(node.table).step_out(place, node.table.costs_of(cost))
    node.table.allow("ada")
    assert said(node, world).asks


@pytest.mark.parametrize("algorithm", PACED)
def test_a_paced_limit_does_not_say_that_it_is_asked(algorithm: str) -> None:
    """An allowance is a part of the rate, and cannot be kept at the hub."""
    world = world_of(algorithm)
    waits(world.nodes[0])

    assert not said(world.nodes[0], world).asks


def test_a_limit_that_is_not_asked_says_nothing_of_asking() -> None:
    """Though requests wait for it, as long as they like."""
    world = world_of(asks=False)
    node = world.nodes[0]
    waits(node)

    report = said(node, world)

    assert not report.asks
    assert 0 == report.waiting


def test_a_key_without_asks_for_two_windows_is_reported_as_any_other() -> None:
    """So a key that is only hit is granted allowances ahead, on a limit of which other keys are asked about."""
    world = world_of()
    node = world.nodes[0]
    gate_of(node.table).step_out(waits(node), node.table.costs_of(1))
    node.table.allow("ada")
    assert said(node, world).asks

    node.speaks_when_due(world.hub, 121)
    node.table.allow("ada")

    assert not said(node, world).asks


def test_what_was_refused_waits_if_nothing_else_does() -> None:
    """A request that was refused without waiting may come again."""
    world = world_of()
    node = world.nodes[0]
    gate_of(node.table).step_out(waits(node), node.table.costs_of(1))
    said(node, world)
    cell = node.table.cells["ada"]
    cell.ask = 3

    assert 3 == said(node, world).waiting


def test_a_report_that_is_lost_leaves_no_mark_among_what_was_asked_for() -> None:
    """The next report repeats what waits."""
    world = world_of()
    node = world.nodes[0]
    waits(node, 2)
    world.passes(0.1)
    for _ in range(3):
        node.fails()
    world.passes(2)

    assert node.table.cells["ada"].asked < FORGOTTEN
    assert ASKS + 2 == said(node, world).asked


@pytest.mark.parametrize("asks", [False, True])
def test_no_demand_passes_for_a_mark(asks: bool) -> None:
    """However much was asked for, or waits."""
    world = world_of(asks=asks, quota=10**12)
    node = world.nodes[0]
    waits(node, 10**11)

    report = said(node, world)

    assert asks == report.asks
    assert (ASKS + WAITING_MAX if asks else FORGOTTEN - 1) == report.asked
    assert not report.forgotten
