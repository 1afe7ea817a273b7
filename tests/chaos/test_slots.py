"""Goal: the judge of what is in progress finds what is wrong with it, and nothing wrong with what is allowed.

Method: histories made by hand of nodes that take slots of a limit of two, with leases of one second.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.judge.case import Case
from chaos.judge.history import ONLY, Held, Lease, Recorder, read_lives
from chaos.judge.slots import (
    IN_PROGRESS,
    KEPT,
    LEFT_IN_USE,
    PAST_LEASE,
    come_back_from_the_killed,
    lapses,
    slot_figures,
    slot_violations,
)
from chaos.scenarios.catalogue import ALL
from reconverge.clock import NEVER_NS
from tests.chaos.stories import Story, ns

SLOTS = 2
EXCHANGES_S = (0.0, 0.5, 1.0, 1.5)
"""After these each node has a lease until 2.5 s."""


class Work(Story):
    """Nodes that take slots, and exchange at the same moments."""

    def __init__(self, nodes: int = 2, exchanges_s: tuple[float, ...] = EXCHANGES_S) -> None:
        super().__init__(nodes)
        for node in range(nodes):
            self.lives[node].last_ns = ns(9.0)
            self.lives[node].slots = []
            for at_s in exchanges_s:
                self.exchanges(node, at_s, charged=None)

    def works(
        self, node: int, from_s: float, until_s: float | None, *, asked_s: float | None = None, lease: Lease = ONLY
    ) -> None:
        """A node has something in progress for so long."""
        asked_ns = ns(from_s if asked_s is None else asked_s)
        self.lives[node].slots.append(Held(asked_ns, ns(from_s), None if until_s is None else ns(until_s), lease))

    def is_killed(self, node: int, at_s: float) -> None:
        """A node wrote its last line then, and said nothing in the end."""
        self.lives[node].last_ns = ns(at_s)
        self.lives[node].facts = None

    def case_of_slots(self, **changes: object) -> Case:
        for life in self.lives:
            if not life.views and life.facts is not None:
                self.knows(life.node, 5.5, 0)
        return self.case(0, **{"slots": SLOTS, "slots_lease_ns": ns(1.0), **changes})


def found(work: Work, **changes: object) -> list[str]:
    """The kinds of what is wrong."""
    return [violation.kind for violation in slot_violations(work.case_of_slots(**changes))]


def test_the_limit_is_allowed_and_one_more_is_not() -> None:
    """Work that ends at the moment at which other work begins is not in progress beside it."""
    work = Work()
    work.works(0, 0.1, 0.6)
    work.works(1, 0.2, 0.8)
    work.works(0, 0.6, 0.7)
    before = found(work)
    work.works(1, 0.3, 0.31)

    assert [] == before
    assert [IN_PROGRESS] == found(work)
    assert [] == found(work, slots_beyond=1)
    assert {"at_once_max": 2, "taken": 4, "at_once": 3, "outlived_lease": 0} == slot_figures(work.case_of_slots())


def test_what_outlives_its_lease_counts_apart_until_it_ends() -> None:
    """Also when its node has another lease by then; others may have all slots meanwhile."""
    work = Work()
    for at_s in (2.0, 2.4, 2.9, 3.4):
        work.exchanges(0, at_s, charged=None)
    work.exchanges(1, 4.0, charged=None)
    work.works(1, 0.1, 4.5)
    work.works(0, 2.6, 4.2)
    work.works(0, 2.7, 4.2)

    assert [(ns(2.5), ns(4.01))] == lapses(work.lives[1], ns(1.0))[:-1]
    assert [] == found(work)
    work.works(1, 4.1, 4.2)
    assert [IN_PROGRESS] == found(work)


def test_an_answer_that_comes_in_time_is_another_lease() -> None:
    """A lease counts from when the batch was sent, and ends at that moment if no later one was answered."""
    work = Work(nodes=1, exchanges_s=(0.0,))
    work.exchanges(0, 0.9, took_s=0.09, charged=None)
    work.exchanges(0, 1.5, charged=None, outcome="unknown")
    work.exchanges(0, 1.8, took_s=0.2, charged=None)

    assert [(ns(1.9), ns(2.0))] == lapses(work.lives[0], ns(1.0))[:-1]


def test_each_shard_and_each_agent_of_a_process_has_a_lease_of_its_own() -> None:
    """An answer about one shard prolongs no lease of another, and an answer to one agent none of another's."""
    work = Work(nodes=1)
    work.exchanges(0, 0.0, charged=None, shard=1)
    work.exchanges(0, 2.4, charged=None, shard=0)
    work.works(0, 1.4, 1.6, lease=(0, 1), asked_s=0.9)
    before = found(work)
    work.works(0, 2.6, 2.7)

    assert [(ns(1.0), NEVER_NS)] == lapses(work.lives[0], ns(1.0), (0, 1))
    assert [] == lapses(work.lives[0], ns(1.0), (1, 0))
    assert [] == before == found(work)
    work.works(0, 1.4, 1.6, lease=(0, 1))
    assert [PAST_LEASE] == found(work)


def test_nothing_begins_after_a_lease() -> None:
    """A slot that was asked for before the end may have been granted in time."""
    work = Work()
    work.works(0, 2.6, 2.7, asked_s=2.4)
    before = found(work)
    work.works(0, 2.6, 2.7)

    assert [] == before
    assert [PAST_LEASE] == found(work)


def test_slots_that_were_not_given_back_are_told() -> None:
    """Of a node that was there in the end; one that was killed says nothing."""
    work = Work()
    work.lives[0].facts = {"slots_in_use": 1}

    assert [LEFT_IN_USE] == found(work)


@pytest.mark.parametrize(("full_at_s", "wrong"), [(2.1, []), (2.7, [KEPT])])
def test_slots_of_a_killed_node_are_back_within_its_lease(full_at_s: float, wrong: list[str]) -> None:
    """And one interval and one exchange: at 2.6 s, as it was killed at 1 s."""
    work = Work()
    work.exchanges(1, 2.2, charged=None)
    work.works(0, 0.5, None)
    work.is_killed(0, 1.0)
    work.works(1, 0.2, 2.9)
    work.works(1, full_at_s, 2.9)
    case = work.case_of_slots(timeout_ns=ns(0.5))

    assert [] == slot_violations(case)
    assert wrong == [violation.kind for violation in come_back_from_the_killed(case)]


def test_where_no_slots_are_taken_none_is_judged() -> None:
    """The histories of the nodes make no difference."""
    work = Work()
    work.works(0, 2.6, 2.7)

    assert [] == found(work, slots=0)


def test_slots_are_written_down_and_read(tmp_path: Path) -> None:
    """One that was taken and not given back is in progress as long as its process is known to live."""
    recorder = Recorder(tmp_path, 3)
    moments = iter(range(100, 200))
    recorder.now_ns = lambda: next(moments)
    first, second = (recorder.took("ours", asked_ns=asked, lease=(1, 2)) for asked in (90, 95))
    recorder.gives("ours", first)
    recorder.write("born", t=150)
    (life,) = read_lives(sorted(tmp_path.glob("*.jsonl")))

    assert [Held(90, first, 102, (1, 2)), Held(95, second, None, (1, 2))] == life.slots
    assert 150 == life.last_ns


def test_nodes_of_all_scenarios_take_slots_and_a_lease_is_shorter_than_the_load() -> None:
    """Of any program and at any hub; so a lease can end in each of them."""
    assert all(scenario.slots and scenario.slots_lease_s < scenario.load_s for scenario in ALL)
