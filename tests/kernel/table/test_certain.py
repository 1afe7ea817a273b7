"""Goal: `Decision.certain` is true where no word of the hub would change the answer, and false wherever one might.

Method: nodes with a hub that answers when it is told to, by every algorithm of which that is known; what is refused as
certain is asked for again on every node, after all have exchanged, until the moment that was named.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge import Agent, Decision
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.kernel import Table
from reconverge.kernel.algorithms.dated import history_of
from reconverge.kernel.composite.all_of import binding
from reconverge.kernel.table.explain import nothing_free_ns
from reconverge.limit import Limit
from reconverge.policies import AVAILABLE, BALANCED, STRICT, Policy
from reconverge.simulation.explore.node import START_S, SmallNode
from reconverge_sync.memory import MemoryHub

QUOTA: Final = 8
ALGORITHMS: Final = ("fixed-window", "sliding-window", "token-bucket", "gcra", "sliding-slices", "sliding-log")
DATED: Final = ("sliding-slices", "sliding-log")


class CertainNodes:
    """Nodes with one limit and one hub."""

    def __init__(self, algorithm: str, nodes: int = 2, policy: Policy = STRICT) -> None:
        self.clock = ManualClock(START_S)
        self.hub = MemoryHub(clock=self.clock)
        self.nodes = [SmallNode(self.clock) for _ in range(nodes)]
        limit = Limit(QUOTA, 60.0, algorithm=algorithm)
        self.tables: list[Table] = [node.limit(limit, policy) for node in self.nodes]

    def speak(self, numbers: Iterable[int]) -> None:
        """Those nodes exchange, if they have something to say."""
        for number in numbers:
            self.nodes[number].exchanges_with(self.hub)

    def all_speak(self, rounds: int = 3) -> None:
        """Every node exchanges, several times, as time passes."""
        for _ in range(rounds):
            self.speak(range(len(self.nodes)))
            self.clock.advance_ns(SECOND_NS // 5)

    def meets(self) -> None:
        """Every node has heard of the key, and the hub is done with learning."""
        for table in self.tables:
            table.warm(["ada"])
        self.all_speak(20)

    def uses_up(self) -> None:
        """All of the quota is used, wherever there is a part of it, and all nodes have heard of that."""
        for _ in range(4 * QUOTA):
            for table in self.tables:
                table.allow("ada")
            self.all_speak(1)
        self.all_speak()


@pytest.fixture(params=ALGORITHMS)
def algorithm(request: pytest.FixtureRequest) -> str:
    """Each of them in turn."""
    name: str = request.param
    return name


def test_a_node_without_a_hub_is_never_in_doubt(algorithm: str) -> None:
    """There is nothing to hear."""
    limiter = Agent("memory://", clock=ManualClock(START_S)).limit("limit", Limit(2, 60.0, algorithm=algorithm))

    answers = [limiter.hit("ada") for _ in range(4)]

    assert [(True, True)] * 2 + [(False, True)] * 2 == [(each.allowed, each.certain) for each in answers]


@pytest.mark.parametrize(("policy", "allowed"), [(STRICT, False), (BALANCED, True)])
def test_a_key_that_the_hub_has_not_answered_about_is_in_doubt(algorithm: str, policy: Policy, allowed: bool) -> None:
    """No policy changes that."""
    table = CertainNodes(algorithm, policy=policy).tables[0]

    answer = table.hit("ada")

    assert (allowed, False) == (answer.allowed, answer.certain)


def test_a_refusal_of_a_new_key_is_in_doubt_though_this_node_has_used_the_quota_up(algorithm: str) -> None:
    """When that is over is not known before the hub has told its time."""
    table = CertainNodes(algorithm, policy=BALANCED).tables[0]

    answers = [table.hit("ada") for _ in range(QUOTA + 1)]

    assert [(True, False)] * QUOTA + [(False, False)] == [(each.allowed, each.certain) for each in answers]


def test_what_is_admitted_past_the_allowance_is_in_doubt(algorithm: str) -> None:
    """The policy dares it on what the node believes of the others."""
    fleet = CertainNodes(algorithm, policy=AVAILABLE)
    fleet.meets()
    table = fleet.tables[0]
    allowance = table.cells["ada"].allowance

    answers = [table.hit("ada") for _ in range(allowance + 1)]

    assert 0 < allowance < QUOTA
    assert [True] * (allowance + 1) == [each.allowed for each in answers]
    assert [True] * allowance + [False] == [each.certain for each in answers]


def test_what_is_admitted_within_the_allowance_is_certain(algorithm: str) -> None:
    """It is this node's own part of the limit."""
    fleet = CertainNodes(algorithm)
    fleet.meets()

    for table in fleet.tables:
        assert table.cells["ada"].allowance > 0
        assert (True, True) == (table.test("ada").allowed, table.test("ada").certain)
        answer = table.hit("ada")
        assert (True, True) == (answer.allowed, answer.certain)


def test_a_refusal_is_in_doubt_while_another_node_may_have_room(algorithm: str) -> None:
    """The other one has used nothing of its part."""
    fleet = CertainNodes(algorithm)
    fleet.meets()
    table = fleet.tables[0]
    while table.allow("ada"):
        pass

    answer = table.hit("ada")

    assert fleet.tables[1].test("ada").allowed
    assert (False, False) == (answer.allowed, answer.certain)


def test_a_refusal_is_certain_when_all_is_used_up(algorithm: str) -> None:
    """On every node, once all have said so."""
    fleet = CertainNodes(algorithm)
    fleet.meets()
    fleet.uses_up()

    answers = [table.hit("ada") for table in fleet.tables]

    assert [(False, True)] * 2 == [(each.allowed, each.certain) for each in answers]
    assert [(False, True)] * 2 == [
        (each.allowed, each.certain) for each in (table.test("ada") for table in fleet.tables)
    ]


@pytest.mark.parametrize("dated", DATED)
def test_once_a_charge_of_another_node_may_have_expired_only_own_use_is_certain(dated: str) -> None:
    """The hub counts what another node has used until that node reports that it has expired."""
    fleet, lone = CertainNodes(dated), CertainNodes(dated, nodes=1)
    for each in (fleet, lone):
        each.meets()
        each.uses_up()
    first_ns = min(history_of(table.cells["ada"]).others_from_ns for table in fleet.tables)

    fleet.clock.advance_ns(first_ns - fleet.clock.monotonic_ns())

    assert not all(table.hit("ada").certain for table in fleet.tables)
    assert (False, True) == (lone.tables[0].hit("ada").allowed, lone.tables[0].hit("ada").certain)
    assert (False, True) == (lone.tables[0].test("ada").allowed, lone.tables[0].test("ada").certain)


def test_nothing_is_certain_of_a_refusal_after_the_hub_has_lost_its_data(algorithm: str) -> None:
    """Room that was used up there may be free; nodes are granted it when all can have reported."""
    fleet = CertainNodes(algorithm)
    fleet.meets()
    fleet.uses_up()
    fleet.hub = MemoryHub(clock=fleet.clock)
    fleet.all_speak(8)  # a node with nothing to report exchanges once a second

    answers = [table.hit("ada") for table in fleet.tables]

    assert {(False, False)} == {(each.allowed, each.certain) for each in answers}


@given(
    algorithm=st.sampled_from(ALGORITHMS),
    asks=st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(0, 20), st.sets(st.integers(0, 2))),
        min_size=8,
        max_size=40,
    ),
    all_speak=st.booleans(),
)
def test_what_is_refused_as_certain_is_not_free_until_then(
    algorithm: str, asks: list[tuple[int, int, int, set[int]]], all_speak: bool
) -> None:
    """Just before the moment that was named the node refuses it, all having spoken; so do all if they always speak.

    A node that falls silent for longer than its lease is believed to have used all it might; what others were granted
    before they may still use, when by what is believed nothing is free.
    """
    fleet = CertainNodes(algorithm, nodes=3)
    fleet.meets()
    for number, cost, pause_s, speak in asks:
        for _ in range(pause_s):
            fleet.clock.advance_ns(SECOND_NS)
            fleet.speak(range(3) if all_speak else sorted(speak))
        answer = fleet.tables[number].hit("ada", cost)
        if not answer.allowed and answer.certain:
            break
    else:
        return
    table, now_ns = fleet.tables[number], fleet.clock.monotonic_ns()
    wait_ns = nothing_free_ns(table, table.cells["ada"], cost, now_ns)

    fleet.all_speak()
    fleet.clock.advance_ns(max(0, now_ns + wait_ns - 2_000_000 - fleet.clock.monotonic_ns()))
    for _ in range(3):
        fleet.speak(range(3))

    if fleet.clock.monotonic_ns() < now_ns + wait_ns:
        assert not table.test("ada", cost).allowed
        assert not all_speak or [False] * 3 == [each.test("ada", cost).allowed for each in fleet.tables]


@pytest.mark.parametrize(
    ("allowed", "certain", "together"),
    [
        (False, (True, False), True),
        (False, (False, False), False),
        (True, (True, False), False),
        (True, (True, True), True),
    ],
)
def test_of_several_quotas_one_that_is_certain_to_refuse_will_do(
    allowed: bool, certain: tuple[bool, bool], together: bool
) -> None:
    """All have to admit; so an admission is certain if all quotas are."""
    answers = [Decision(allowed, 8, 4, retry_s, 60.0, 0.0, certain=each) for retry_s, each in enumerate(certain)]

    for order in (answers, answers[::-1]):
        assert together == binding(order).certain


def test_it_is_a_field_like_the_others() -> None:
    """Of the last place, so that decisions that were pickled before can be read."""
    made = Decision(True, 1, 2, 0.5, 0.25, 0.0, "name")

    assert made.certain
    assert made != replace(made, certain=False)
    assert "certain=False" in repr(replace(made, certain=False))
    assert replace(made, certain=False) == pickle.loads(pickle.dumps(replace(made, certain=False)))  # noqa: S301  # our own
