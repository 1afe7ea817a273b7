"""Goal: limits of past quotas leave a node, and nothing that was charged, or is charged to them yet, is lost.

Method: examples on a node without a hub and on nodes that share one, and tables that are asked after they were dropped.
"""

from __future__ import annotations

import sys
import threading

import pytest

from reconverge import Limit
from reconverge.clock import ManualClock
from reconverge.kernel import Kernel, Table
from reconverge.kernel.table.tiers import fetch
from reconverge.policies import STRICT
from reconverge.simulation.explore.node import INTERVAL_NS, START_S, SmallNode
from reconverge_sync.memory import MemoryHub
from tests.kernel.table.test_tiers import ALGORITHMS, admitted, lone_tiers, tiers_of


def drop(*tables: Table) -> list[str]:
    """Drops tables that have no key; returns the names of those that are gone."""
    kernel = tables[0].kernel
    assert isinstance(kernel, Kernel)
    return sorted(kernel.dropped.drop([table.name for table in tables]))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_table_without_keys_is_dropped_and_one_with_keys_stays(algorithm: str) -> None:
    """Of three quotas, only the one that a key is in; its use counts on."""
    free, standard, pro = lone_tiers(algorithm, "5/hour", "50/hour", "100/hour")
    admitted(pro, 60)

    assert ["requests@5/hour", "requests@50/hour"] == drop(pro, free, standard)
    assert {"requests@100/hour"} == set(pro.kernel.tables)  # type: ignore[attr-defined]
    assert 40 == admitted(pro, 100)


def test_the_last_table_of_a_limit_stays() -> None:
    """The node's account at the hub goes on in it."""
    free, pro = lone_tiers("fixed-window", "5/hour", "50/hour")

    assert ["requests@5/hour"] == drop(free, pro)
    assert [] == drop(pro)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_dropped_table_that_is_asked_is_taken_in_again(algorithm: str) -> None:
    """By whatever a caller has kept of it; what another table has of the key comes along, and is not forgiven."""
    free, pro = lone_tiers(algorithm, "5/hour", "50/hour")
    allow, hit, settles = free.allow, free.hit, free.settles
    admitted(pro, 3)
    drop(free)

    assert not settles("ada")
    assert [True, True, False] == [allow("ada"), hit("ada").allowed, allow("ada")]
    assert {free.name, pro.name} == set(free.kernel.tables)  # type: ignore[attr-defined]
    assert [1, 0] == [len(table.cells) for table in (free, pro)]
    assert [free.name] == free.kernel.dropped.back  # type: ignore[attr-defined]


@pytest.mark.parametrize("ask", ["allow", "hit"])
def test_a_decision_that_waits_while_its_table_is_dropped_counts_where_the_key_is(
    ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread saw a table in use, and has the lock once that is dropped: all that the key uses is in one cell."""
    free, pro = lone_tiers("fixed-window", "5/hour", "50/hour")
    kernel = free.kernel
    assert isinstance(kernel, Kernel)
    admitted(pro, 3)
    take_out = kernel.dropped._take_out
    threads: list[threading.Thread] = []
    known: list[object] = []
    newer: list[Table] = []
    gone: list[str] = []

    def take_out_while_a_thread_waits(*args: object) -> bool:
        threads.append(threading.Thread(target=lambda: known.append(getattr(free, ask)("ada"))))
        threads[0].start()
        threading.Event().wait(0.05)  # until it waits for the lock, which is held here
        is_out = take_out(*args)  # type: ignore[arg-type]
        newer.extend(tiers_of(kernel, "fixed-window", "60/hour"))
        fetch(newer[0], "ada", newer[0].now_ns())
        return is_out

    monkeypatch.setattr(kernel.dropped, "_take_out", take_out_while_a_thread_waits)

    exchanges = threading.Thread(target=lambda: gone.extend(drop(free)))
    exchanges.start()
    exchanges.join()
    threads[0].join()

    assert [free.name] == gone
    assert known[0]
    assert (1, 4) == (kernel.keys, pro.usage("ada").own)


@pytest.mark.parametrize("way", ["usage", "reset", "refund", "test", "warm", "take_over", "hit_and_mark"])
def test_whatever_a_dropped_table_is_asked_counts_where_the_key_is(way: str) -> None:
    """A look, a correction or a mark, too, and the node has one cell of the key."""
    free, pro = lone_tiers("sliding-log", "5/hour", "50/hour")
    admitted(pro, 3)
    drop(free)

    getattr(free, way)(*{"refund": ("ada", 1), "warm": (["ada"],), "hit_and_mark": ("ada", 1)}.get(way, ("ada",)))

    used = {"reset": 0, "refund": 2, "hit_and_mark": 4}.get(way, 3)
    assert (1, used) == (free.kernel.keys, pro.usage("ada").own)


def test_a_table_that_is_declared_again_is_the_one_that_is_held() -> None:
    """There are never two tables of one name, or one key would have two cells."""
    free, pro = lone_tiers("fixed-window", "5/hour", "50/hour")
    kernel = free.kernel
    assert isinstance(kernel, Kernel)
    drop(free)

    again = kernel.tier(free.name, free.limit, STRICT, reported_as="requests")

    assert again is free
    assert [True, 4, 45] == [free.allow("ada"), admitted(again, 9), admitted(pro, 60)]


def test_a_limit_that_is_counted_otherwise_finds_those_that_are_held() -> None:
    """The only table of a window is dropped and held; another quota of that window shares its keys with it."""
    (hourly,) = lone_tiers("fixed-window", "5/hour")
    kernel = hourly.kernel
    assert isinstance(kernel, Kernel)
    tiers_of(kernel, "fixed-window", "50/minute")
    assert [hourly.name] == drop(hourly)

    more = kernel.tier(
        "requests@9/hour", Limit.parse("9/hour", algorithm="fixed-window"), STRICT, reported_as="requests"
    )

    assert [5, 4] == [admitted(hourly, 9), admitted(more, 9)]


def test_what_was_charged_to_a_dropped_table_stays_in_the_nodes_account() -> None:
    """The hub is told the sum, whichever table it was charged to, and no less when one has gone or is back."""
    clock = ManualClock(START_S)
    node, hub = SmallNode(clock), MemoryHub(clock=clock)
    free, pro = tiers_of(node.kernel, "fixed-window", "500/hour", "600/hour")
    told: list[int] = []
    free.warm(["ada"])
    node.exchanges_with(hub, rounds=3)
    for table, other in ((free, pro), (pro, free), (free, pro)):
        other.take_over("ada")
        assert [table.name] == drop(table)
        while not other.allow("ada"):
            node.exchanges_with(hub)
            clock.advance_ns(INTERVAL_NS)
        node.reports_everything_to(hub)
        told.append(hub._shards[0].totals()["requests"].charged)

    assert [1, 2, 3] == told


def test_no_table_is_dropped_while_a_batch_is_under_way() -> None:
    """The batch names it, and its answer is for its keys."""
    (free, pro) = lone_tiers("fixed-window", "5/hour", "50/hour")
    kernel = free.kernel
    kernel.flights[0] = None  # type: ignore[assignment]  # a batch

    assert [] == drop(free, pro)

    kernel.flights.clear()
    assert [free.name] == drop(free)


def test_idle_keys_of_a_past_table_leave_a_node_without_a_hub() -> None:
    """No request asks for them there, and nothing else would look at them."""
    free, pro = lone_tiers("fixed-window", "5/minute", "50/minute")
    for number in range(300):
        free.allow(str(number))
    assert [] == drop(free)

    free.clock.advance(61)  # type: ignore[attr-defined]
    for _ in range(3):
        drop(free)

    assert {pro.name} == set(free.kernel.tables)  # type: ignore[attr-defined]
    assert 0 == free.kernel.keys


def test_the_tables_that_are_held_are_found_while_others_are_dropped() -> None:
    """Between any two steps of the look, as another thread may."""
    *past, _ = lone_tiers("fixed-window", *(f"{quota}/hour" for quota in range(1, 50)))
    kernel = past[0].kernel
    assert isinstance(kernel, Kernel)
    drop(*past[:2])
    left = past[2:]

    def elsewhere(frame: object, event: str, arg: object) -> object:  # as `sys.settrace` has it
        if left:
            drop(left.pop())
        return elsewhere

    before = sys.gettrace()
    sys.settrace(elsewhere)  # type: ignore[arg-type]
    try:
        held = kernel.dropped.held_of("requests")
    finally:
        sys.settrace(before)

    assert {table.name for table in past[:2]} <= {table.name for table in held}
    assert 0 < len(left) < len(past) - 2
