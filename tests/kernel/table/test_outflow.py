"""Goal: all nodes together let out what waits at the rate, and never faster; each at the part of it that it needs.

Method: real kernels, syncers and the merge rule under virtual time; every node tries once in a millisecond, so that
timers are late by that much, and exchanges when it is due. What was let out is counted over windows of every length.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from reconverge import Limit
from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.kernel import Cell, gate_of
from reconverge.policies import BALANCED, STRICT, Policy
from reconverge.simulation.explore.node import LEASE_NS
from tests.support.kernel.talker import Talker, Talkers

TICK_NS = MILLISECOND_NS
MET_S = 4.0
"""After so long the allowances are where the waiters are."""


class Outlet:
    """A node at which so many wait at any time: whoever was let out comes again at once."""

    def __init__(self, node: Talker, waiters: int, cost: int = 1) -> None:
        self.node = node
        self.cost = cost
        self.gate = gate_of(node.table)
        self.costs = node.table.costs_of(cost)
        self.places = [self.comes() for _ in range(waiters)]
        self.again_ns = 0
        self.told = 0
        self.released: list[int] = []

    def comes(self) -> list[Cell]:
        """One more waits."""
        cells: list[Cell] = []
        self.gate.queue_up("ada", self.costs, cells)
        return cells

    def tries(self) -> None:
        """The first tries if it is time, and after him the next."""
        while self.places and self.node.clock.monotonic_ns() >= self.again_ns:
            turn = self.gate.try_turn("ada", self.costs, again=True)
            self.again_ns = self.node.clock.monotonic_ns() + turn.again_ns
            if turn.decision is None:
                return
            self.released += [self.node.clock.monotonic_ns()] * self.cost
            self.gate.step_out(self.places.pop(0), self.costs)
            self.places.append(self.comes())

    def tell(self, key: str) -> None:
        self.again_ns = 0
        self.told += 1

    def part(self) -> Fraction:
        """The part of the rate that this node has."""
        cell = self.node.table.cells.get("ada")
        return Fraction(0 if cell is None else cell.allowance, self.node.table.capacity)


class Outflow:
    """A fleet of outlets, of which some may be cut off."""

    def __init__(self, limit: Limit, waiters: list[int], policy: Policy = STRICT, cost: int = 1) -> None:
        self.limit = limit
        self.world = Talkers(limit, policy, nodes=len(waiters))
        self.outlets = [Outlet(node, count, cost) for node, count in zip(self.world.nodes, waiters, strict=True)]
        for outlet in self.outlets:
            outlet.node.table.listeners["limit"] = outlet
        self.cut: set[int] = set()

    def runs(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds * SECOND_NS) // TICK_NS):
            for number, outlet in enumerate(self.outlets):
                if outlet.node.due_in_ns <= 0:
                    if number in self.cut:
                        outlet.node.sends()
                        outlet.node.gives_up()
                    else:
                        outlet.node.exchanges_with(self.world.hub)
                outlet.tries()
            self.world.clock.advance_ns(TICK_NS)

    def let_out(self, seconds: float) -> list[int]:
        """The moments at which anything was let out during so many seconds from now on."""
        begin_ns = self.world.clock.monotonic_ns()
        self.runs(seconds)
        return sorted(moment for outlet in self.outlets for moment in outlet.released if moment >= begin_ns)

    def parts(self) -> list[Fraction]:
        """The parts of the rate."""
        return [outlet.part() for outlet in self.outlets]


def most_at_once(moments: list[int], within_ns: int) -> int:
    """The most that was let out in any window of that length."""
    first = most = 0
    for last, moment in enumerate(moments):
        while moment - moments[first] >= within_ns:
            first += 1
        most = max(most, last - first + 1)
    return most


LIMITS = {
    "10/s": Limit(10, 1, algorithm="leaky-bucket"),
    "10/s burst 1": Limit(10, 1, algorithm="leaky-bucket", burst=1),
    "300/s": Limit(300, 1, algorithm="leaky-bucket"),
    "bursty": Limit(100, 1, algorithm="smooth-bursty", burst=1),
    "warming up": Limit(100, 1, algorithm="smooth-warming-up", warmup=0.5),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("waiters", [[5, 5, 5, 5], [9, 3, 2, 1]], ids=str)
def test_the_outflow_of_all_stays_at_the_rate(name: str, waiters: list[int]) -> None:
    """Within one percent over ten seconds, and over no window above it by more than one request for each node."""
    limit = LIMITS[name]
    outflow = Outflow(limit, waiters)
    outflow.runs(MET_S)

    moments = outflow.let_out(10.0)

    rate = limit.quota / limit.window
    assert 0.99 * 10 * rate - 1 <= len(moments) <= 10 * rate + len(waiters)
    for part in (0.1, 0.5, 1, 2, 5):
        slack = rate * TICK_NS / SECOND_NS + (limit.capacity if name == "bursty" else 0)
        assert most_at_once(moments, round(part * SECOND_NS)) <= rate * part + len(waiters) + slack


@pytest.mark.parametrize("policy", [STRICT, BALANCED], ids=["strict", "balanced"])
def test_parts_follow_those_who_wait(policy: Policy) -> None:
    """Where four times as many wait four times as much is let out, give or take a few steps; nothing lies idle."""
    outflow = Outflow(LIMITS["10/s"], [16, 8, 4, 4], policy)
    outflow.runs(MET_S)
    before = [len(outlet.released) for outlet in outflow.outlets]

    outflow.runs(10.0)

    assert sum(outflow.parts()) >= Fraction(999, 1000)
    released = [len(outlet.released) - count for outlet, count in zip(outflow.outlets, before, strict=True)]
    for count, expected in zip(released, (50, 25, 12.5, 12.5), strict=True):
        assert 0.8 * expected - 1 <= count <= 1.2 * expected + 1


def test_a_newcomer_gets_his_part() -> None:
    """From whoever has had everything, and nothing of the rate is lost for more than a moment."""
    outflow = Outflow(LIMITS["300/s"], [10, 0])
    outflow.runs(MET_S)
    assert outflow.parts()[0] == 1
    newcomer = outflow.outlets[1]
    newcomer.places = [newcomer.comes() for _ in range(10)]

    moments = outflow.let_out(5.0)

    assert outflow.parts()[1] >= Fraction(2, 5)
    assert len(moments) >= 0.98 * 5 * 300


def test_a_node_that_is_cut_off_goes_on_at_its_part_until_its_lease_ends() -> None:
    """And the others at theirs; what they have together is never more than the rate."""
    outflow = Outflow(LIMITS["300/s"], [5, 5, 5])
    outflow.runs(MET_S)
    parts = outflow.parts()
    outflow.cut = {2}

    outflow.runs(0.9 * LEASE_NS / SECOND_NS)
    assert parts[2] == outflow.parts()[2]
    alone = outflow.outlets[2]
    recently_ns = outflow.world.clock.monotonic_ns() - SECOND_NS
    assert sum(moment >= recently_ns for moment in alone.released) >= 300 * parts[2] - 2
    outflow.runs(0.2 * LEASE_NS / SECOND_NS)
    before = len(alone.released)
    moments = outflow.let_out(4.0)

    assert before == len(alone.released)
    assert most_at_once(moments, SECOND_NS) <= 300 + 4
    assert sum(outflow.parts()[:2]) >= Fraction(99, 100)


@pytest.mark.parametrize("name", ["300/s", "bursty", "warming up"])
def test_nothing_is_paid_off_or_stored_when_the_lease_is_over(name: str) -> None:
    """The part of the rate is another's from then on, so what is owed stays owed."""
    outflow = Outflow(LIMITS[name], [5, 5])
    outflow.runs(MET_S)
    outflow.cut = {0}
    outflow.runs(1.1 * LEASE_NS / SECOND_NS)
    (cell,) = outflow.outlets[0].node.table.all_cells()
    owed = cell.level

    outflow.runs(1.0)

    assert (owed, 0, 0) == (cell.level, cell.stored, cell.late)
    assert 0 < owed


def test_large_costs_go_on_credit() -> None:
    """A cost that no node's part of the bucket could hold is let out all the same, and paid for afterwards."""
    outflow = Outflow(LIMITS["10/s"], [3, 3, 3, 3], cost=7)
    outflow.runs(MET_S)

    moments = outflow.let_out(30.0)

    assert 300 - 4 * 7 <= len(moments) <= 300 + 4 * 7


def test_without_an_allowance_a_refusal_names_the_next_exchange() -> None:
    """Nothing is paid off until then, so nothing else can be said, however many wait already."""
    outflow = Outflow(LIMITS["10/s"], [3])
    (outlet,) = outflow.outlets
    outlet.tries()

    refused = outlet.gate.turn_away("ada", outlet.costs, ahead=(3 * outlet.costs[0],), waited=False)

    assert (False, 0.1) == (refused.allowed, refused.retry_after)


def test_an_answer_that_raises_the_allowance_wakes_the_first() -> None:
    """Whoever waits for an allowance does not sleep on when it has come."""
    outflow = Outflow(LIMITS["10/s"], [1])
    (outlet,) = outflow.outlets
    outlet.tries()
    assert ([], 0) == (outlet.released, outlet.told)
    outflow.runs(1.5)
    before = outlet.told

    outlet.node.exchanges_with(outflow.world.hub)
    outlet.tries()

    assert 0 < before == outlet.told
    assert outlet.released


def test_a_cell_is_reported_every_interval_while_somebody_waits() -> None:
    """However long it takes until the next may go, others may have something to hand on before that."""
    outflow = Outflow(Limit(4, 3600, algorithm="fixed-window"), [1, 1])
    outflow.runs(60.0)
    assert 4 == sum(len(outlet.released) for outlet in outflow.outlets)
    node = outflow.outlets[0].node
    before = node.syncer.stats(node.clock.monotonic_ns()).cells

    outflow.runs(2.0)

    assert 18 <= node.syncer.stats(node.clock.monotonic_ns()).cells - before <= 22
