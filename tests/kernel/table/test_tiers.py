"""Goal: keys that change between limits that count together keep what they have used, in all that one can do with them.

Method: examples on a node without a hub, and two nodes that share a hub, for each algorithm that can change.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest

from reconverge import Limit
from reconverge.clock import ManualClock
from reconverge.errors import LimitConflict
from reconverge.kernel import Kernel, Table
from reconverge.kernel.store import LISTED_MAX
from reconverge.policies import BALANCED, STRICT
from reconverge.simulation.explore.node import INTERVAL_NS, START_S, SmallNode
from reconverge_sync.memory import MemoryHub

ALGORITHMS = ["fixed-window", "sliding-window", "token-bucket", "sliding-log", "sliding-slices", "gcra"]


def lone_tiers(algorithm: str, *quotas: str, keys_max: int = 1000) -> list[Table]:
    """Limits that count together, on a node without a hub."""
    kernel = Kernel(
        ManualClock(START_S),
        namespace="test",
        interval_ns=INTERVAL_NS,
        interval_min_ns=INTERVAL_NS // 10,
        keys_max=keys_max,
        key_bytes_max=256,
        alone=True,
    )
    return tiers_of(kernel, algorithm, *quotas)


def tiers_of(kernel: Kernel, algorithm: str, first: str, *others: str) -> list[Table]:
    """The first limit, and those that count with it."""
    return [
        kernel.tier(f"requests@{each}", Limit.parse(each, algorithm=algorithm), STRICT, reported_as="requests")
        for each in (first, *others)
    ]


def admitted(table: Table, times: int, key: str = "ada") -> int:
    """How many of so many requests."""
    return sum(table.allow(key) for _ in range(times))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_use_moves_with_the_key(algorithm: str) -> None:
    """Free, standard and pro within a moment admit no more than the largest, and going back admits nothing."""
    free, standard, pro = lone_tiers(algorithm, "5/hour", "50/hour", "100/hour")

    assert [5, 45, 50] == [admitted(each, 200) for each in (free, standard, pro)]
    assert [0, 0, 0] == [admitted(each, 3) for each in (free, standard, pro)]
    assert 100 == pro.usage("ada").own


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_key_is_in_one_of_the_tables(algorithm: str) -> None:
    """It counts once among the keys of the node, wherever it is asked about."""
    tables = lone_tiers(algorithm, "5/hour", "50/hour")
    for table in (*tables, *reversed(tables)):
        table.allow("ada")

    assert [1, 0] == [len(table.cells) for table in tables]
    assert 1 == tables[0].kernel.keys


def test_a_look_and_a_correction_leave_the_key_where_it_is() -> None:
    """Either table tells the use and gives it back, and no plan changes with that."""
    free, pro = lone_tiers("fixed-window", "5/hour", "50/hour")
    admitted(pro, 20)
    free.refund("ada", 4)
    seen = free.usage("ada").own
    free.reset("ada")

    assert (16, 0) == (seen, pro.usage("ada").own)
    assert [0, 1] == [len(table.cells) for table in (free, pro)]
    assert 50 == admitted(pro, 60)


def test_a_reservation_is_settled_where_the_key_is() -> None:
    """A request that was admitted on one plan ends on another one."""
    free, pro = lone_tiers("fixed-window", "5/hour", "50/hour")
    _, (charge,) = free.hit_and_mark("ada", 4, None)
    admitted(pro, 1)
    charge.table.correct("ada", charge.mark.epoch, -3, at=charge.mark)

    assert 2 == pro.usage("ada").own
    assert 48 == admitted(pro, 60)


def test_keys_beyond_the_cap_are_counted_by_plan() -> None:
    """A node that has room for one key counts the others of each plan together, apart from those of another plan."""
    free, pro = lone_tiers("fixed-window", "5/hour", "50/hour", keys_max=1)
    admitted(free, 3)

    assert [0, 0] == [admitted(table, 3, "bob") for table in (free, pro)]
    assert [1, 1] == [len(table.all_cells()) - len(table.cells) for table in (free, pro)]
    assert free.overflow_key != pro.overflow_key


@pytest.mark.parametrize("other", ["10/minute", "10/hour burst 3"])
def test_a_limit_that_is_counted_otherwise_counts_apart(other: str) -> None:
    """Another window, or another algorithm: its use would be in other units. The hub keeps one account for both."""
    clock = ManualClock(START_S)
    node, hub = SmallNode(clock), MemoryHub(clock=clock)
    one, two = [
        node.kernel.tier(name, Limit.parse(text), STRICT, reported_as="requests")
        for name, text in (("requests@one", "5/hour"), ("requests@two", other))
    ]
    counts = [0, 0]
    for _ in range(3):
        counts = [count + admitted(table, 1) for count, table in zip(counts, (one, two), strict=True)]
        node.exchanges_with(hub)

    own = [table.usage("ada").own for table in (one, two)]
    node.reports_everything_to(hub)

    assert [2, 2] == counts == own
    assert 4 == hub._shards[0].totals()["requests"].charged


def test_a_name_stands_for_one_limit() -> None:
    """Declaring it again alike returns the same table, and otherwise is an error."""
    kernel = SmallNode(ManualClock(START_S)).kernel
    _, pro = tiers_of(kernel, "sliding-window", "5/hour", "50/hour")

    assert pro is kernel.tier("requests@50/hour", Limit.parse("50/hour"), STRICT, reported_as="requests")
    with pytest.raises(LimitConflict):
        kernel.tier("requests@50/hour", Limit.parse("60/hour"), STRICT, reported_as="requests")
    with pytest.raises(LimitConflict):
        kernel.tier("requests@other", Limit.parse("60/hour"), BALANCED, reported_as="requests")
    with pytest.raises(LimitConflict):
        kernel.tier("other", Limit.parse("60/hour"), STRICT, reported_as=kernel.declare("x", pro.limit, STRICT).name)


class NodesWithPlans:
    """Two nodes and a hub, with two plans."""

    def __init__(self) -> None:
        self.clock = ManualClock(START_S)
        self.hub = MemoryHub(clock=self.clock)
        self.nodes = [SmallNode(self.clock), SmallNode(self.clock)]
        self.plans = [tiers_of(node.kernel, "fixed-window", "100/hour", "40/hour") for node in self.nodes]

    def exchange(self, rounds: int = 4) -> None:
        for _ in range(rounds):
            for node in self.nodes:
                node.exchanges_with(self.hub)
            self.clock.advance_ns(INTERVAL_NS)

    def ask(self, plan: int, times: int) -> int:
        """Ask on both nodes by turns, with exchanges in between; returns how many were admitted."""
        total = 0
        for _ in range(times):
            total += sum(admitted(plans[plan], 1) for plans in self.plans)
            self.exchange(1)
        return total


def test_lines_shrink_at_once_with_the_plan() -> None:
    """In the proportion of the quotas, without an exchange; and they do not grow back by themselves."""
    pair = NodesWithPlans()
    pair.ask(0, 3)
    large, small = pair.plans[0]
    before = large.usage("ada").allowance
    small.allow("ada")
    lowered = small.usage("ada").allowance
    large.allow("ada")

    assert before >= 5
    assert [before * 40 // 100] * 2 == [lowered, large.usage("ada").allowance]


def test_the_hub_counts_both_plans_as_one_limit() -> None:
    """Two nodes admit the smaller quota, and then what the larger one has left; the hub knows of each by one name."""
    pair = NodesWithPlans()
    first = pair.ask(1, 60)
    pair.ask(0, 2)
    second = pair.ask(0, 150)
    pair.exchange()
    (shard,) = pair.hub._shards
    totals = shard.totals()

    assert 40 == first
    assert ["requests"] == list(totals)
    assert sum(table.admitted for plans in pair.plans for table in plans) == totals["requests"].charged == 100
    assert second <= 60


def test_the_smaller_plan_holds_until_the_last_node_has_changed() -> None:
    """One node asks under the larger plan, the other one still holds the smaller one."""
    pair = NodesWithPlans()
    used = pair.ask(1, 60)
    (large, _), (_, small) = pair.plans
    late = 0
    for _ in range(30):
        late += admitted(large, 1) + admitted(small, 1)
        pair.exchange(1)

    assert (40, 0) == (used, late)


def test_all_policies_keep_their_bound_of_the_larger_plan() -> None:
    """A policy that dares something dares a share of the capacity of the plan that the key is on."""
    clock = ManualClock(START_S)
    node = SmallNode(clock)
    free, pro = [
        node.kernel.tier(name, Limit.parse(text, algorithm="fixed-window"), BALANCED, reported_as="requests")
        for name, text in (("requests@free", "10/hour"), ("requests@pro", "20/hour"))
    ]

    assert 20 >= admitted(free, 100) + admitted(pro, 100)
    assert pro.policy is free.policy


def steps_of(what: Callable[[], object]) -> int:
    """How many lines of Python are run for it."""
    steps = 0

    def trace(_frame: object, event: str, _argument: object) -> Any:
        nonlocal steps
        steps += event == "line"
        return trace

    before = sys.gettrace()
    gc.collect()
    gc.disable()  # finalizers of what other tests have left are steps as well
    sys.settrace(trace)
    try:
        what()
    finally:
        sys.settrace(before)
        gc.enable()
    return steps


@pytest.mark.parametrize("what", ["declaring", "meeting", "moving", "dropping"])
def test_one_table_more_costs_the_same_however_many_there_are(what: str) -> None:
    """A thousand customers with quotas of their own cost ten times what a hundred do, and no decision waits for all."""
    steps = []
    for count in (10, 100):
        tables = lone_tiers("fixed-window", *(f"{number}/hour" for number in range(5, 5 + count)))
        for number, table in enumerate(tables[:-2]):
            table.allow(f"c{number}")
        kernel, last = tables[0].kernel, tables[-1]
        acts: dict[str, Callable[[], object]] = {
            "declaring": lambda kernel=kernel: tiers_of(kernel, "fixed-window", "900/hour"),  # type: ignore[misc]
            "meeting": lambda last=last: last.allow("new"),  # type: ignore[misc]
            "moving": lambda last=last: last.allow("c5"),  # type: ignore[misc]
            "dropping": lambda kernel=kernel, last=last: kernel.dropped.drop([last.name]),  # type: ignore[misc]
        }
        steps.append(steps_of(acts[what]))
        assert [] == last.cells.beside  # no store is looked through, which is what the compiled kernel would do

    assert steps[0] == steps[1]


def test_a_table_with_many_keys_is_looked_through() -> None:
    """Its further keys are not listed, move all the same, and leave nothing behind."""
    few, many, other = lone_tiers("fixed-window", "5/hour", "6/hour", "7/hour")
    keys = [f"key{number}" for number in range(2 * LISTED_MAX)]
    for key in keys:
        many.allow(key)
    listed = len(few.cells.homes or ())
    for key in keys:
        other.allow(key)
        few.allow(key)

    assert LISTED_MAX == listed
    assert [2 * LISTED_MAX, 0, 0] == [len(each.cells) for each in (few, many, other)]
    assert 2 * LISTED_MAX == few.kernel.keys
    assert {3} == {few.usage(key).own for key in keys}


def test_nothing_is_listed_of_a_key_that_has_left() -> None:
    """The index of places grows with the keys that there are, and no further."""
    free, pro = lone_tiers("fixed-window", "5/hour", "50/hour")
    for number in range(10):
        free.allow(f"c{number}")
        pro.allow(f"c{number}")
    for table in (free, pro):
        for cell in table.cells.in_order():
            table.cells.drop(cell)

    assert {} == free.cells.homes


@pytest.mark.parametrize("keys", [3, 2 * LISTED_MAX])
def test_a_table_that_goes_is_in_no_list(keys: int) -> None:
    """Not among those that are looked through, either."""
    free, pro = lone_tiers("fixed-window", "5/hour", "50/hour")
    for number in range(keys):
        pro.allow(f"c{number}")
        free.allow(f"c{number}")
    kernel = free.kernel
    assert isinstance(kernel, Kernel)
    gone = kernel.dropped.drop([pro.name])

    assert {pro.name} == gone
    assert pro.cells not in (free.cells.beside or [])
    assert pro.cells not in list((free.cells.homes or {}).values())
