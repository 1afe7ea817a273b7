"""Goal: all nodes together admit little more than the quota of a key that is new to each of them.

Method: the production kernel and client in virtual time; all nodes have had an answer of the hub about another key.
"""

from __future__ import annotations

import math

import pytest

from reconverge.clock import ManualClock
from reconverge.hub.report import Status
from reconverge.kernel import Table
from reconverge.limit import FIXED_WINDOW, LEAKY_BUCKET, SLIDING_WINDOW, TOKEN_BUCKET, Limit
from reconverge.policies import BALANCED, choose
from reconverge.simulation.explore.node import START_S, SmallNode
from reconverge_sync.memory import MemoryHub

ALGORITHMS = [FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET, LEAKY_BUCKET]


def nodes_of(
    count: int, limit: Limit, *, knowing_each_other: bool = True
) -> tuple[MemoryHub, list[tuple[SmallNode, Table]]]:
    """Some nodes with one limit, which have all exchanged with one hub, twice if they know how many they are."""
    clock = ManualClock(START_S)
    hub = MemoryHub(clock=clock)
    nodes = [SmallNode(clock) for _ in range(count)]
    tables = [node.limit(limit, BALANCED) for node in nodes]
    for _ in range(2 * knowing_each_other):
        for node, table in zip(nodes, tables, strict=True):
            table.allow("known")
            node.exchanges_with(hub)
        clock.advance(1.0)
    return hub, list(zip(nodes, tables, strict=True))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("count", "quota"), [(16, 5), (32, 5), (16, 100), (3, 100), (1, 7)])
def test_nodes_that_know_of_each_other_share_a_new_key(count: int, quota: int, algorithm: str) -> None:
    """Each node is asked for all of it at once: together they admit the quota and one request for each node at most."""
    _, nodes = nodes_of(count, Limit(quota, 60, algorithm=algorithm))

    admitted = sum(table.allow("new") for _, table in nodes for _ in range(2 * quota))

    assert count * (quota // count) <= admitted <= quota + count


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_new_key_is_admitted_one_request_however_much_it_costs(algorithm: str) -> None:
    """Otherwise requests that cost more than a node's share would all wait for the hub's first answer."""
    _, nodes = nodes_of(8, Limit(40, 60, algorithm=algorithm))

    for _, table in nodes:
        assert [True, False] == [table.allow("new", 30) for _ in range(2)]


def test_a_node_without_an_answer_admits_the_quota() -> None:
    """It does not know that there are others."""
    _, ((_, table),) = nodes_of(1, Limit(5, 60), knowing_each_other=False)

    assert 5 == sum(table.allow("new") for _ in range(20))


def test_a_node_counts_on_the_number_in_the_last_answer() -> None:
    """After nodes have left it admits more of a new key; an answer without a number changes nothing."""
    hub, nodes = nodes_of(4, Limit(8, 60))
    (first, table), *others = nodes
    assert 2 == sum(table.allow("of four") for _ in range(20))
    for node, _ in others:
        node.syncer.leave(node.clock.monotonic_ns())
        node.exchanges_with(hub, rounds=3)
    first.reports_everything_to(hub)

    assert 8 == sum(table.allow("of one") for _ in range(20))

    while first.sends() is None:
        first.clock.advance(1.0)
        table.allow("another")
    first.reaches(hub)
    assert first.flight is not None
    assert first.flight.answer is not None
    assert Status.MERGED == first.flight.answer.status
    first.flight.answer = first.flight.answer._replace(nodes=0)
    first.hears()

    assert 8 == sum(table.allow("of one again") for _ in range(20))


@pytest.mark.parametrize(("part", "most"), [(0.0, 0), (0.25, 5), (1.0, 20)])
def test_a_part_of_the_limit_is_admitted_by_each_node(part: float, most: int) -> None:
    """By `cold_allowance`, however many nodes there are."""
    clock = ManualClock(START_S)
    table = SmallNode(clock).limit(Limit(20, 60), choose(cold_allowance=part))

    assert most == sum(table.allow("new") for _ in range(50))


def test_a_forked_child_is_one_node_more() -> None:
    """It knows the number of its parent's last answer before it has had one of its own."""
    _, ((node, table), *_) = nodes_of(3, Limit(12, 60))
    node.kernel.start_over()

    assert math.ceil(12 / 4) == sum(table.allow("new") for _ in range(20))
