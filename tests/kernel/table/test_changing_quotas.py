"""Goal: while nodes change a quota one after the other, allowances sum to all of it at most, also of paced limits.

Method: a few real nodes and the real merge rule, with single exchanges before, during and after the change; both sides
of the moment at which the next request may go.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from reconverge.clock import SECOND_NS
from reconverge.limit import FIXED_WINDOW, LEAKY_BUCKET, SLIDING_WINDOW, SMOOTH_BURSTY, TOKEN_BUCKET, Limit
from reconverge.policies import STRICT, choose
from tests.support.kernel.lone import in_ns
from tests.support.kernel.talker import Talker, Talkers

ALGORITHMS = (FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET, LEAKY_BUCKET, SMOOTH_BURSTY)
"""Of the first three C takes in the answers where it is in use, of the others Python does."""


def fleet_of(limit: Limit, *, nodes: int = 2) -> Talkers:
    """Nodes that have divided the limit among themselves."""
    world = Talkers(limit, choose(max_overshoot=0.5), nodes=nodes)
    for _ in range(30):
        for node in world.nodes:
            node.admitted_of(2)
            node.exchanges_with(world.hub)
        world.passes(0.1)
    return world


def parts(world: Talkers) -> Fraction:
    """Returns the sum of the nodes' allowances, as parts of their capacities."""
    return sum((Fraction(node.table.cells["ada"].allowance, node.table.capacity) for node in world.nodes), Fraction(0))


def rate(node: Talker) -> Fraction:
    """The rate of a node, in requests a second."""
    allowance = Fraction(node.table.cells["ada"].allowance, node.table.capacity)
    return allowance * node.table.limit.quota * SECOND_NS / node.table.window_ns


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_lowered_quota_lowers_every_allowance_and_an_answer_on_the_way_does_not_raise_it(algorithm: str) -> None:
    """The hub's grant of the larger quota counts as the same part of the smaller one; so does the overdraft."""
    world = fleet_of(Limit(100, 10, algorithm=algorithm))
    cells = [node.table.cells["ada"] for node in world.nodes]
    for node in world.nodes:
        node.admitted_of(2)
        node.says()
        node.reaches(world.hub)
    granted = [(cell.allowance, cell.overdraft) for cell in cells]
    for node in world.nodes:
        node.table.change(replace(world.limit, quota=10))
    lowered = [(cell.allowance, cell.overdraft) for cell in cells]
    for node in world.nodes:
        node.hears()

    assert [(allowance // 10, overdraft // 10) for allowance, overdraft in granted] == lowered
    assert sum(cell.allowance for cell in cells) > 0
    assert parts(world) <= 1
    assert sum(cell.overdraft for cell in cells) <= world.nodes[0].table.capacity // 2


@pytest.mark.parametrize("algorithm", [LEAKY_BUCKET, SMOOTH_BURSTY])
def test_a_raised_quota_is_there_when_the_last_node_has_it(algorithm: str) -> None:
    """Until then the rates of all nodes sum to the smaller one at most; then the hub raises their allowances."""
    world = fleet_of(Limit(10, 1, algorithm=algorithm))
    first, second = world.nodes
    raised = replace(world.limit, quota=40)
    first.table.change(raised)
    during: list[Fraction] = []
    for _ in range(30):
        for node in world.nodes:
            node.admitted_of(3)
            node.exchanges_with(world.hub)
            during.append(rate(first) + rate(second))
        world.passes(0.1)
    second.table.change(raised)
    for _ in range(60):
        for node in world.nodes:
            node.admitted_of(3)
            node.exchanges_with(world.hub)
        world.passes(0.1)

    assert max(during) <= 10
    assert 30 < rate(first) + rate(second) <= 40


def test_a_node_pays_for_a_large_request_at_its_part_of_the_rate() -> None:
    """A node with a quarter of five a second has eight on credit for four times as long as all of them would."""
    world = fleet_of(Limit(5, 1, algorithm=SMOOTH_BURSTY))
    node = world.nodes[0]
    cell = node.table.cells["ada"]
    cell.allowance = node.table.capacity // 4
    world.passes(100.0)
    node.exchanges_with(world.hub)
    cell.allowance, cell.stored, cell.share = node.table.capacity // 4, 0, node.table.capacity // 4

    assert node.table.hit("ada", 8).allowed
    refused = node.table.hit("ada")
    assert 8 / (5 / 4) == refused.retry_after
    node.clock.advance_ns(1)
    assert in_ns(refused.retry_after) - 1 == in_ns(node.table.hit("ada").retry_after)


def test_every_node_goes_on_credit_once_and_no_further_until_that_is_paid_for() -> None:
    """Four nodes with five a second admit 505 each, and together no more than the bound says at any later moment."""
    world = fleet_of(Limit(5, 1, algorithm=SMOOTH_BURSTY), nodes=4)
    admitted = 0
    for passed in range(1, 420):
        admitted += sum(505 * node.admitted_of(1, cost=505) for node in world.nodes)
        world.all_speak(every_s=1.0)

        assert admitted <= 5 * passed + 5 + 4 * 505
        assert not 20 < passed < 300 or 4 * 505 == admitted


def test_what_a_node_owes_is_there_after_the_change_and_not_a_nanosecond_longer() -> None:
    """Both sides of the moment at which the next request may go, for a smaller and for a larger quota."""
    for quota in (5, 500):
        world = Talkers(Limit(50, 1, algorithm=SMOOTH_BURSTY), STRICT)
        (node,) = world.nodes
        for _ in range(30):
            node.admitted_of(1)
            node.exchanges_with(world.hub)
            world.passes(0.1)
        assert node.admitted_of(1, cost=75)
        node.clock.advance_ns(7)
        before_ns = in_ns(node.table.test("ada").retry_after)
        node.table.change(replace(world.limit, quota=quota))
        node.clock.advance_ns(before_ns - 1)
        early = node.table.test("ada").allowed
        node.clock.advance_ns(1)

        assert (False, True) == (early, node.table.test("ada").allowed)


def test_a_change_of_the_unit_is_refused_with_the_reason() -> None:
    """Allowances in thousandths mean nothing to a limit that counts in tenths."""
    world = Talkers(Limit(10**9, 1, algorithm=LEAKY_BUCKET), STRICT)
    table = world.nodes[0].table

    assert table.why_not(Limit(1, 1, algorithm=LEAKY_BUCKET)) is None
    problem = table.why_not(Limit(10**9 + 1, 1, algorithm=LEAKY_BUCKET))
    assert problem is not None
    assert "(1000 make one)" in problem
    assert "(100 make one)" in problem
