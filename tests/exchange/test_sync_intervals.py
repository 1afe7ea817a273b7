"""Goal: a limit with a sync interval of its own is exchanged at that one, and its rules reckon with it.

Method: the real syncer, driven over whole spells of time with a request to every limit in between; noted is when which
limit was reported.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from reconverge.clock import SECOND_NS
from reconverge.hub.report import Batch
from reconverge.kernel import LimitInterval, Table
from reconverge.kernel.table.slow_path import view_of
from reconverge.limit import Limit
from reconverge.policies import BALANCED, STRICT, Policy
from reconverge.simulation.explore.node import INTERVAL_NS
from tests.support.kernel.talker import Talkers

LIMIT = Limit(100_000, 60)
SLOW = LimitInterval(4 * INTERVAL_NS, INTERVAL_NS)
FAST = LimitInterval(INTERVAL_NS // 4, INTERVAL_NS // 20)
STEP_NS = INTERVAL_NS // 40


class Mixed(Talkers):
    """One node with a limit at its own interval beside one at the node's."""

    def __init__(self, pace: LimitInterval | None, *, policy: Policy = BALANCED) -> None:
        super().__init__(LIMIT, policy, nodes=1)
        (self.node,) = self.nodes
        self.plain = self.node.table
        self.own = self.node.limit(LIMIT, policy, name="own")
        self.node.kernel.change_own_pace([self.own], pace)
        self.spends(2 * SECOND_NS)

    def spends(self, passed_ns: int, *asked: Table) -> list[tuple[int, Batch]]:
        """Let time pass, with a request every moment; returns which batches were sent, and when."""
        sent: list[tuple[int, Batch]] = []
        node, until_ns = self.node, self.clock.monotonic_ns() + passed_ns
        while self.clock.monotonic_ns() < until_ns:
            for table in asked:
                table.allow("ada")
            if node.due_in_ns == 0:
                batch = node.sends()
                if batch is not None:
                    sent.append((self.clock.monotonic_ns(), batch))
                    node.reaches(self.hub)
                    node.hears()
            self.clock.advance_ns(STEP_NS)
        return sent


def reported(sent: list[tuple[int, Batch]], name: str) -> list[int]:
    """When cells of a limit were reported."""
    return [now_ns for now_ns, batch in sent if any(batch.limits[report.limit].name == name for report in batch.cells)]


@pytest.mark.parametrize("pace", [SLOW, FAST], ids=["slow", "fast"])
def test_a_limit_is_exchanged_at_its_own_interval(pace: LimitInterval) -> None:
    """The other limit is exchanged at the node's."""
    mixed = Mixed(pace)
    mixed.spends(2 * SECOND_NS, mixed.own, mixed.plain)

    sent = mixed.spends(8 * INTERVAL_NS, mixed.own, mixed.plain)

    assert 8 * INTERVAL_NS // pace.interval_ns == pytest.approx(len(reported(sent, "own")), abs=2)
    assert 8 == pytest.approx(len(reported(sent, "limit")), abs=1)


def test_a_limit_that_is_not_due_causes_no_exchange() -> None:
    """Nothing is sent in between, not even its totals; the node only says each second that it is there."""
    mixed = Mixed(LimitInterval(10 * INTERVAL_NS, INTERVAL_NS))
    mixed.spends(2 * SECOND_NS, mixed.own)

    sent = mixed.spends(30 * INTERVAL_NS, mixed.own)

    assert 3 == pytest.approx(len(reported(sent, "own")), abs=1)
    assert len(sent) <= 6


def test_of_a_limit_that_is_not_due_only_a_key_in_a_hurry_is_reported() -> None:
    """An exchange of other limits takes nothing else along."""
    mixed = Mixed(LimitInterval(20 * INTERVAL_NS, 2 * INTERVAL_NS))
    mixed.spends(4 * SECOND_NS, mixed.own, mixed.plain)
    while not reported(mixed.spends(STEP_NS, mixed.own, mixed.plain), "own"):
        pass

    assert mixed.own.allow("bob")
    reports = [
        report.key
        for _, batch in mixed.spends(INTERVAL_NS, mixed.own)
        for report in batch.cells
        if batch.limits[report.limit].name == "own"
    ]

    assert ["bob"] == reports


def test_a_key_in_a_hurry_waits_for_the_least_distance_of_its_limit() -> None:
    """However often other limits are exchanged meanwhile."""
    mixed = Mixed(LimitInterval(100 * INTERVAL_NS, 5 * INTERVAL_NS))
    own, kernel = mixed.own, mixed.node.kernel
    mixed.spends(11 * SECOND_NS, own, mixed.plain)
    sent = mixed.spends(SECOND_NS, mixed.plain)
    own.cells["ada"].low_water = 1 << 40

    assert own.allow("ada")
    own.cells["ada"].room = -1
    sent = mixed.spends(20 * INTERVAL_NS, own, mixed.plain)
    moments = reported(sent, "own")

    assert all(later - sooner >= 5 * INTERVAL_NS - STEP_NS for sooner, later in pairwise(moments))
    assert kernel.soonest_ns == kernel.interval_min_ns


def test_the_overdraft_ends_three_of_its_own_intervals_after_the_last_answer() -> None:
    """Not three of the agent's."""
    mixed = Mixed(SLOW)
    own, plain = mixed.own, mixed.plain
    mixed.spends(2 * SECOND_NS, own, plain)
    now_ns = mixed.clock.monotonic_ns()

    views = [view_of(table, table.cells["ada"], 0, 1, now_ns) for table in (own, plain)]

    assert [SLOW.interval_ns, INTERVAL_NS] == [view.interval_ns for view in views]


def test_the_hub_hears_of_an_interval_only_where_it_is_the_limits_own() -> None:
    """The messages about all other limits are unchanged."""
    mixed = Mixed(SLOW)

    sent = mixed.spends(2 * SECOND_NS, mixed.own, mixed.plain)
    told = {limit.name: limit.interval_us for _, batch in sent for limit in batch.limits}

    assert {"own": SLOW.interval_ns // 1000, "limit": 0} == told


def test_whoever_leaves_says_what_was_not_due() -> None:
    """The last word holds every count."""
    mixed = Mixed(LimitInterval(1000 * INTERVAL_NS, INTERVAL_NS))
    mixed.spends(SECOND_NS, mixed.own, mixed.plain)
    used = mixed.own.usage("ada").own

    mixed.node.syncer.leave(mixed.clock.monotonic_ns())
    while not mixed.node.syncer.left:
        mixed.node.exchanges_with(mixed.hub)

    assert used == asyncio.run(mixed.hub.totals())["own"].charged


def test_whoever_hears_that_the_data_are_lost_says_what_was_not_due() -> None:
    """All of it, at once."""
    mixed = Mixed(LimitInterval(1000 * INTERVAL_NS, INTERVAL_NS), policy=STRICT)
    mixed.spends(SECOND_NS, mixed.own, mixed.plain)
    mixed.hub.lose_data()

    sent = mixed.spends(2 * SECOND_NS, mixed.plain)

    assert reported(sent, "own")


def test_after_a_failure_everything_is_due() -> None:
    """The reports under way are sent again with the next try, at any interval."""
    mixed = Mixed(LimitInterval(1000 * INTERVAL_NS, INTERVAL_NS))
    mixed.spends(SECOND_NS, mixed.own, mixed.plain)
    mixed.node.sends()
    mixed.node.gives_up()

    sent = mixed.spends(2 * SECOND_NS, mixed.plain)

    assert reported(sent, "own")


@pytest.mark.parametrize("pace", [None, FAST], ids=["as the agent's", "fast"])
def test_an_interval_that_becomes_shorter_is_heeded_at_once(pace: LimitInterval | None) -> None:
    """Keys that wait for the longer one are due after the shorter one."""
    mixed = Mixed(LimitInterval(1000 * INTERVAL_NS, INTERVAL_NS))
    mixed.spends(SECOND_NS, mixed.own, mixed.plain)

    mixed.node.kernel.change_own_pace([mixed.own], pace)
    mixed.node.syncer.take_pace()
    sent = mixed.spends(2 * INTERVAL_NS, mixed.plain)

    assert reported(sent, "own")


def test_the_agents_interval_changes_without_those_of_limits() -> None:
    """Whoever has an interval of his own keeps it."""
    mixed = Mixed(SLOW)

    mixed.node.kernel.change_pace(LimitInterval(2 * INTERVAL_NS, INTERVAL_NS))

    assert (SLOW.interval_ns, 2 * INTERVAL_NS) == (mixed.own.interval_ns, mixed.plain.interval_ns)
    assert (2 * INTERVAL_NS, SLOW.interval_ns) == mixed.node.kernel.intervals_ns


@pytest.mark.slow
def test_so_many_cells_that_are_not_due_neither_block_nor_are_lost() -> None:
    """Thousands of keys of a slow limit are put aside, and each is reported when its limit is due."""
    mixed = Mixed(SLOW)
    keys = {f"key-{number}" for number in range(3000)}
    mixed.node.kernel.keys_max = 10_000
    mixed.spends(2 * SECOND_NS, mixed.plain)
    for key in keys:
        assert mixed.own.allow(key)

    sent = mixed.spends(3 * SLOW.interval_ns, mixed.plain)
    told = {report.key for _, batch in sent for report in batch.cells if batch.limits[report.limit].name == "own"}

    assert keys == told
