"""Goal: allowances go to where they are needed, whole where they are asked for whole, and to the last unit.

Method: a few nodes that ask as much as they can, round after round.
"""

from __future__ import annotations

import pytest

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.limit import Limit
from reconverge.policies import BALANCED, STRICT, Policy
from reconverge.simulation.explore.node import INTERVAL_NS, START_S, SmallNode
from reconverge_sync.memory import MemoryHub
from tests.support.kernel.talker import Talkers, reported


class Idler(Talkers):
    """A node that sits on a large unused allowance, and another one that could use it; little is left for either."""

    def __init__(self) -> None:
        super().__init__(Limit(1000, 60, algorithm="fixed-window"), STRICT, nodes=2, lease_ns=600 * SECOND_NS)
        self.idler, self.other = self.nodes
        for _ in range(10):
            self.all_speak()
            for node in self.nodes:
                node.admitted_of(40)
        self.idler.exchanges_with(self.hub)
        self.unused = self.idler.allowance() - self.idler.table.usage("ada").own
        assert self.unused > 30


def test_an_allowance_that_nobody_fills_comes_back_with_the_next_regular_exchange() -> None:
    """A node that was asked for nothing since looks after an interval whether it holds too much."""
    world = Idler()

    (batch, *_) = world.idler.speaks_when_due(world.hub, 0.2)

    assert reported(batch).allowance < reported(batch).current + world.unused


@pytest.mark.parametrize(("part", "goes_along"), [(0.3, False), (0.4, True)])
def test_a_large_unused_allowance_goes_along_with_an_early_exchange(part: float, goes_along: bool) -> None:
    """From a third of the interval on, whatever key it was that asked for it."""
    world = Idler()
    world.clock.advance_ns(int(part * INTERVAL_NS))
    world.idler.table.usage("bob")

    batch = world.idler.says()

    assert goes_along == ("ada" in {cell.key for cell in batch.cells})


def four_that_share(limit: Limit, *, asks: bool) -> Talkers:
    """Four nodes that have exchanged twenty times, and have had a request each time, which asked or did not."""
    world = Talkers(limit, STRICT, nodes=4, lease_ns=600 * SECOND_NS)
    for _ in range(20):
        for node in world.nodes:
            if asks:
                node.asks(node.table, "ada", 1)
            node.exchanges_with(world.hub)
            node.admitted_of(1)
            list(node.stops_asking(node.table))
        world.passes(0.1)
    return world


@pytest.mark.parametrize(
    ("algorithm", "window_s", "asks", "least", "most"),
    [
        ("fixed-window", 60, False, 0.4, 0.8),
        ("sliding-window", 60, False, 0.55, 0.85),
        ("token-bucket", 60, False, 0.55, 1.0),
        ("sliding-window", 3, True, 0.85, 1.0),
        ("token-bucket", 3, True, 0.85, 1.0),
        ("sliding-window", 60, True, 0.55, 0.85),
        ("token-bucket", 60, True, 0.85, 1.0),
    ],
)
def test_what_no_node_needs_lies_on_nodes_where_use_fades(
    algorithm: str, window_s: int, asks: bool, least: float, most: float
) -> None:
    """A bucket drains by its allowances, so what lies at the hub drains nothing; of a fixed window half stays free.

    While plenty is left of a window that is long enough to be silent in, no more lies on nodes whose requests ask.
    """
    world = four_that_share(Limit(1000, window_s, algorithm=algorithm), asks=asks)

    part = sum(node.allowance() for node in world.nodes) / 1000
    assert least <= part <= most


@pytest.mark.parametrize(("window_s", "asks"), [(3, False), (3, True), (60, False), (60, True)])
def test_a_fixed_window_about_which_requests_ask_lies_on_no_node_that_does_not_need_it(
    window_s: int, asks: bool
) -> None:
    """It can be asked for, and what another node holds at the window's end is lost.

    Unless plenty is left of a window that is long enough for nodes to be silent.
    """
    world = four_that_share(Limit(1000, window_s, algorithm="fixed-window"), asks=asks)

    unused = sum(node.allowance() - node.table.usage("ada").own for node in world.nodes)
    assert (unused < 100) == (asks and window_s < 60)


def test_the_allowance_with_which_a_window_begins_goes_back_from_a_quiet_node_if_requests_ask() -> None:
    """An interval after the window has begun, however long the node has been quiet."""
    world = Talkers(Limit(1000, 3, algorithm="fixed-window"), STRICT, nodes=1, lease_ns=600 * SECOND_NS)
    (node,) = world.nodes
    for _ in range(5):
        node.asks(node.table, "ada", 1)
        node.exchanges_with(world.hub)
        list(node.stops_asking(node.table))
        world.passes(0.1)
    node.speaks_when_due(world.hub, 2.4)
    begins_with = node.table.cells["ada"].base
    assert begins_with > 100

    said = [reported(batch).allowance for batch in node.speaks_when_due(world.hub, 1.5) if batch.cells]

    assert [True] == [allowance < begins_with / 2 for allowance in said][:1]
    assert node.allowance() < begins_with / 2


@pytest.mark.parametrize("policy", [STRICT, BALANCED], ids=lambda policy: policy.name)
def test_a_key_that_was_warmed_has_an_allowance_to_begin_with(policy: Policy) -> None:
    """A burst on a key that nobody has used yet finds more than nothing, and all nodes' allowances sum to the limit."""
    clock = ManualClock(START_S)
    hub = MemoryHub(clock=clock)
    nodes = [SmallNode(clock) for _ in range(4)]
    tables = [node.limit(Limit(1000, 60.0), policy) for node in nodes]
    for table in tables:
        table.warm(["ada"])
    for _ in range(5):
        for node in nodes:
            node.exchanges_with(hub)
        clock.advance(0.1)

    allowances = [table.cells["ada"].allowance for table in tables]

    assert all(allowance >= 10 for allowance in allowances)
    assert sum(allowances) <= 1000
    assert all(tables[0].allow("ada") for _ in range(allowances[0]))
