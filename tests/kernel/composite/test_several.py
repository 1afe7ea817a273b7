"""Goal: of several quotas on one limit all hold, and all are charged or none.

Method: examples on both sides of every edge, and any schedule compared with one who remembers every charge and keeps
every quota by brute force.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from reconverge import (
    Agent,
    CostExceedsQuota,
    InvalidLimit,
    InvalidSetting,
    Limit,
    LimitConflict,
    RateLimiter,
    UnknownLimit,
)
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.hub.report import CellReport
from reconverge.kernel import AskGate, Cell, gate_of
from reconverge.kernel.composite.all_of import AllQuotas
from reconverge.limit.quotas import QUOTAS_MAX
from reconverge.policies import AVAILABLE, BALANCED, STRICT, Policy
from reconverge.simulation.explore.node import START_S, SmallNode
from reconverge_sync.memory import MemoryHub
from tests.kernel.algorithms.test_against_references import REFERENCES
from tests.support.effort import tried
from tests.support.kernel.lone import NOON_S, in_ns
from tests.support.kernel.reference import Reference, fits, left


def limiter_of(limit: str | list[Limit], clock: ManualClock | None = None, **settings: Any) -> RateLimiter:
    """A limiter of an agent that has nobody to meet."""
    return Agent("memory://", clock=clock or ManualClock(NOON_S)).limit("api", limit, **settings)


def test_the_first_quota_has_the_limits_name_and_the_others_their_number() -> None:
    """So a limit that gets a second quota keeps its first one's counts."""
    assert ["api", "api#2", "api#3"] == list(limiter_of("10/s; 1000/hour, 10000/day").quotas)


def test_a_quota_that_is_called_something_has_that_in_place_of_its_number() -> None:
    """Then its name stays when another quota is put before it."""
    assert ["api#burst", "api#2", "api#daily"] == list(limiter_of("10/s as burst; 9/m; 90/day as daily").quotas)


def test_a_quota_alone_has_the_limits_name_whatever_it_is_called() -> None:
    """A text and a sequence of one are one quota."""
    assert ["api"] == list(limiter_of("10/s as burst").quotas) == list(limiter_of([Limit(10, 1)]).quotas)


@pytest.mark.parametrize("limit", ["9/s as a; 9/m as a", [Limit(9, 1), Limit(9, 60, name="3"), Limit(9, 9)]])
def test_two_quotas_of_one_name_are_a_mistake(limit: str | list[Limit]) -> None:
    """One count cannot be both."""
    with pytest.raises(InvalidLimit, match="two quotas named"):
        limiter_of(limit)


def test_no_other_limit_can_have_the_name_of_a_quota() -> None:
    """The separator of its two parts is in no limit's name."""
    with pytest.raises(InvalidLimit, match="'#'"):
        Agent("memory://").limit("api#2", "10/s")


@pytest.mark.parametrize("number", [0, QUOTAS_MAX + 1])
def test_a_limit_has_one_to_sixteen_quotas(number: int) -> None:
    """Each is decided about in every request."""
    assert QUOTAS_MAX == len(limiter_of([Limit(10, 1)] * QUOTAS_MAX).quotas)

    with pytest.raises(InvalidLimit, match="1 to 16 quotas"):
        limiter_of([Limit(10, 1)] * number)


def test_the_name_of_a_quota_is_not_too_long_for_the_hub() -> None:
    """It becomes part of its keys, as a limit's does."""
    agent = Agent("memory://")
    agent.limit("a" * 62, "10/s; 9/m")

    with pytest.raises(InvalidLimit, match="at most 64 characters, not 65"):
        agent.limit("a" * 63, "10/s; 9/m")


def test_declaring_the_same_quotas_again_is_harmless() -> None:
    """It is the same limiter; all else is a conflict, in either order."""
    agent = Agent("memory://")
    api = agent.limit("api", "10/s; 9/m")
    agent.limit("single", "10/s")

    assert api is agent.limit("api", "10/s; 9/m") is agent.limiter("api")
    for name, limit, policy in [
        ("api", "10/s", None),
        ("api", "10/s; 8/m", None),
        ("api", "10/s; 9/m; 9/h", None),
        ("api", "10/s; 9/m", "strict"),
        ("single", "10/s; 9/m", None),
    ]:
        with pytest.raises(LimitConflict):
            agent.limit(name, limit, policy=policy)
    with pytest.raises(UnknownLimit):
        agent.limiter("api#2")


def test_the_algorithm_is_for_all_quotas_and_otherwise_follows_the_burst() -> None:
    """A single quota does the same."""
    assert ["sliding-window", "token-bucket"] == [
        each.algorithm for each in limiter_of("10/s; 9/m burst 20").quotas.values()
    ]
    assert {"gcra"} == {each.algorithm for each in Limit.parse_all("10/s; 9/m burst 20", algorithm="gcra")}
    with pytest.raises(InvalidSetting, match=r"algorithm .* already"):
        limiter_of([Limit(10, 1), Limit(9, 60)], algorithm="gcra")


def test_only_the_quotas_that_refuse_count_a_refusal() -> None:
    """Which limit fires how often is in the statistics, quota by quota."""
    agent = Agent("memory://", clock=ManualClock(NOON_S))
    api = agent.limit("api", "100/minute; 3/minute")

    for _ in range(5):
        api.allow("ada")

    limits = agent.stats().limits
    assert (3, 0) == (limits["api"].admitted, limits["api"].refused)
    assert (3, 2) == (limits["api#2"].admitted, limits["api#2"].refused)


BY_THE_MINUTE = Limit(2, 60)
EVERY_ATTEMPT = Limit(5, 3600, algorithm="sliding-log", count_refused=True)


@pytest.mark.parametrize("way", ["allow", "hit", "reserve", "allow_many"])
def test_however_a_limit_is_asked_an_attempt_that_another_quota_refuses_counts(way: str) -> None:
    """By every way that charges; a test charges nothing and counts nothing."""
    api = limiter_of([BY_THE_MINUTE, EVERY_ATTEMPT])
    for _ in range(3):
        getattr(api, way)(*((["ada"],) if way == "allow_many" else ("ada", 1)))

    api.test("ada")

    assert 3 == api.usages("ada")["api#2"].own


def test_what_no_quota_that_is_used_up_refuses_is_no_attempt_to_count() -> None:
    """A node without an allowance has to refuse while the quotas have room: no caller can be blamed for that."""
    clock = ManualClock(START_S)
    hub, node, other = MemoryHub(clock=clock), SmallNode(clock), SmallNode(clock)
    quotas = {"api": Limit(6, 60), "api#2": EVERY_ATTEMPT}
    here, there = (each.kernel.composites.all_of("api", quotas, STRICT) for each in (node, other))
    for _ in range(20):
        there.allow("ada")
        other.exchanges_with(hub)
        clock.advance_ns(SECOND_NS // 10)
    assert not here.allow("ada")  # before the hub has answered
    used = here.usages("ada")["api#2"].own
    node.exchanges_with(hub, rounds=3)

    assert not here.allow("ada")
    assert 0 == used
    assert 1 == here.usages("ada")["api#2"].own  # all is used by now, and so this attempt counts


def test_a_cost_above_any_quota_is_a_mistake_that_names_it() -> None:
    """And leaves nothing behind, not even an empty count."""
    api = limiter_of("100/minute; 3/minute")

    with pytest.raises(CostExceedsQuota, match="'api#2' admits at most 3"):
        api.allow("ada", 4)

    assert [0, 0] == [len(table.cells) for table in api.control.tables]


def test_usage_is_that_of_the_scarcest_quota_and_usages_are_all() -> None:
    """Both are of a single moment."""
    api = limiter_of("10/10s; 8/hour")
    api.allow("ada", 5)

    assert (5, 8) == (api.usage("ada").own, api.usage("ada").limit)
    assert {"api": (5, 10), "api#2": (5, 8)} == {
        name: (usage.own, usage.limit) for name, usage in api.usages("ada").items()
    }


@pytest.mark.parametrize("actual", [0, 2, 9])
def test_settling_corrects_every_quota(actual: int) -> None:
    """Down or up; and a refund does, too."""
    api = limiter_of("10/10s; 8/hour")

    api.reserve("ada", 5).settle(actual)
    settled = {usage.own for usage in api.usages("ada").values()}
    api.refund("ada", 1)

    assert {actual} == settled
    assert {max(0, actual - 1)} == {usage.own for usage in api.usages("ada").values()}


@pytest.mark.parametrize("paced", ["leaky-bucket", "smooth-bursty"])
def test_a_paced_quota_counts_in_its_own_unit(paced: str) -> None:
    """So it goes with others that count whole requests: it counts as it would alone, and the other as it would."""
    limit = Limit(120, 60, algorithm=paced, burst=3)
    alone, both = limiter_of([limit]), limiter_of([limit, Limit(9, 3600)])
    for limiter in (alone, both):
        limiter.reserve("ada", 2).settle(1)
    answers = [limiter.allow("ada", 1) for limiter in (alone, both)]

    usages = both.usages("ada")

    assert answers[0] == answers[1]
    assert (alone.usage("ada"), 1 + answers[0]) == (usages["api"], usages["api#2"].own)
    assert alone.test("ada", 3).retry_after == both.test("ada", 3).retry_after


def test_a_window_that_begins_with_the_first_hit_is_opened_by_what_all_quotas_admit() -> None:
    """And by nothing else."""
    clock = ManualClock(NOON_S)
    api = limiter_of([Limit(5, 60, algorithm="fixed-window", align="first-hit"), Limit(2, 10)], clock)
    refused = api.reserve("bob", 2), api.hit("bob", 1)
    clock.advance(30)
    api.allow("ada", 2)
    clock.advance(45)

    counted = api.usages("ada")["api"].own
    clock.advance(15)

    assert [True, False] == [bool(each) for each in refused]
    assert (2, 0) == (counted, api.usages("ada")["api"].own)


def test_a_refusal_tells_the_hub_of_those_that_refused_and_of_no_others() -> None:
    """Each asks for what it lacked; one that had room asks for nothing."""
    clock = ManualClock(START_S)
    hub, node = MemoryHub(clock=clock), SmallNode(clock)
    quotas = {"api": Limit(100, 60), "api#2": Limit(4, 60)}
    api = node.kernel.composites.all_of("api", quotas, STRICT)
    for _ in range(4):
        api.allow("ada")
        node.exchanges_with(hub)
        clock.advance_ns(SECOND_NS // 10)
    node.exchanges_with(hub, rounds=3)
    clock.advance_ns(SECOND_NS)

    assert not api.allow("ada", 3)
    reports = said_by(node)

    assert {"api#2": 3} == {name: report.ask for name, report in reports.items() if report.ask}


def said_by(node: SmallNode) -> dict[str, CellReport]:
    """Returns a node's report on each quota of its only key."""
    batch = node.sends()
    assert batch is not None
    return {batch.limits[report.limit].name: report for report in batch.cells}


def test_a_quota_that_had_room_is_reported_all_the_same() -> None:
    """It was asked about: a cell that is never reported would never be granted an allowance, nor ever leave."""
    node = SmallNode(ManualClock(START_S))
    api = node.kernel.composites.all_of("api", {"api": Limit(4, 60), "api#2": Limit(100, 60)}, BALANCED)
    api.tables[0].allow("ada", 4)

    assert not api.allow("ada", 3)
    reports = said_by(node)

    assert {"api", "api#2"} == set(reports)
    assert (3, 0) == (reports["api"].ask, reports["api#2"].ask)


class StepOfSeveral(NamedTuple):
    """How long nothing happens, and what is asked then."""

    pause: str
    part: int
    way: str
    cost: int


STEPS = st.builds(
    StepOfSeveral,
    pause=st.sampled_from(["none"] * 8 + ["tick", "part", "part", "edge", "before told", "told", "told"]),
    part=st.sampled_from([1, 20, 333, 999, 1000, 2000]),
    way=st.sampled_from(["allow"] * 8 + ["hit"] * 6 + ["test", "usage", "reset", "reserve"]),
    cost=st.sampled_from([1, 1, 1, 2, 3, 0]) | st.integers(0, 8),
)
SIZES = {"quota": st.sampled_from([1, 2, 3, 7, 10, 60]), "window": st.sampled_from([0.5, 1.000_001, 3, 60])}
QUOTAS = st.one_of(
    st.builds(Limit, algorithm=st.sampled_from(sorted(REFERENCES)), **SIZES),
    st.builds(Limit, algorithm=st.just("sliding-log"), count_refused=st.just(True), **SIZES),
)


class RunOfSeveral:
    """One schedule, played to a limiter with several quotas and to a reference of each."""

    def __init__(self, limits: list[Limit]) -> None:
        self.clock = ManualClock(NOON_S)
        self.limiter = limiter_of(limits, self.clock)
        self.references: list[Reference] = [REFERENCES[limit.algorithm](limit) for limit in limits]
        self.names = list(self.limiter.quotas)
        self.limits = limits
        self.told_ns = self.clock.wall_ns()
        self.bound: set[str] = set()

    @property
    def now_ns(self) -> int:
        """The moment."""
        return self.clock.wall_ns()

    def check(self, steps: list[StepOfSeveral]) -> None:
        """Take all steps; after each, every quota has counted what it should."""
        for step in steps:
            self.clock.advance_ns(max(0, self.pause_ns(step)))
            self.ask(step.way, min(step.cost, *(reference.capacity for reference in self.references)))
            for limit, reference, usage in zip(
                self.limits, self.references, self.limiter.usages("ada").values(), strict=True
            ):
                used = -(-reference.used(self.now_ns) // 1)
                if limit.count_refused and used > limit.capacity:  # by how much is not remembered
                    assert limit.capacity < usage.own
                else:
                    assert used == usage.own
        event(f"quotas that refused: {len(self.bound)}")

    def pause_ns(self, step: StepOfSeveral) -> int:
        """How long to wait before the step."""
        window_ns = self.limits[step.part % len(self.limits)].window_ns
        return {
            "none": 0,
            "tick": 1,
            "part": window_ns * step.part // 1000,
            "edge": window_ns - self.now_ns % window_ns,
            "before told": self.told_ns - 1 - self.now_ns,
            "told": self.told_ns - self.now_ns,
        }[step.pause]

    def ask(self, way: str, cost: int) -> None:
        """Ask in that way, and compare."""
        expected = all(fits(reference, self.now_ns, cost) for reference in self.references)
        before = [left(reference, self.now_ns) for reference in self.references]
        if way in ("allow", "hit", "reserve") and not expected:
            for limit, reference in zip(self.limits, self.references, strict=True):
                if limit.count_refused:
                    reference.charge(self.now_ns, cost)
        if way == "allow":
            assert expected == self.limiter.allow("ada", cost)
        elif way == "reserve":
            assert expected == self.limiter.reserve("ada", cost).allowed
        elif way in ("hit", "test"):
            decision = getattr(self.limiter, way)("ada", cost)
            assert expected == decision.allowed
            number = self.names.index(decision.binding)
            assert self.limits[number].capacity == decision.limit
            if expected:
                charged = cost if way == "hit" else 0
                assert min(before) - charged == before[number] - charged == decision.remaining
            else:
                self.judge_refusal(cost, number, in_ns(decision.retry_after))
        elif way == "reset":
            self.limiter.reset("ada")
            for reference in self.references:
                reference.forget()
        if way in ("allow", "hit", "reserve") and expected:
            for reference in self.references:
                reference.charge(self.now_ns, cost)

    def judge_refusal(self, cost: int, number: int, retry_after_ns: int) -> None:
        """Refused until the moment it named, by the quota that it named, and not by any afterwards."""
        self.told_ns = self.now_ns + retry_after_ns
        self.bound.add(self.names[number])
        assert not fits(self.references[number], self.told_ns - 1, cost)
        assert all(fits(reference, self.told_ns, cost) for reference in self.references)


@settings(max_examples=tried(60, long=300))
@given(limits=st.lists(QUOTAS, min_size=2, max_size=4), steps=st.lists(STEPS, min_size=15, max_size=50))
def test_several_quotas_decide_as_one_who_keeps_each_of_them(limits: list[Limit], steps: list[StepOfSeveral]) -> None:
    """All quotas of any algorithms are charged or none; the moment that a refusal names is the first that admits."""
    RunOfSeveral(limits).check(steps)


# ---------------------------------------------------------------- in company


CLOSE: Final = st.lists(
    st.builds(
        Limit,
        quota=st.sampled_from([4, 5, 6, 8, 12]),
        window=st.sampled_from([5, 60, 3600]),
        algorithm=st.sampled_from(["fixed-window", "sliding-window", "token-bucket"]),
        soft=st.sampled_from([0.0, 0.0, 0.5]),
    ),
    min_size=2,
    max_size=3,
)
"""Quotas of which any can be the one with the least left, with the same left as another, or over its own."""
EVENTS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("hit"), st.integers(0, 1), st.sampled_from([1, 1, 1, 2, 0])),
        st.tuples(st.just("hit"), st.integers(0, 1), st.sampled_from([1, 1, 1, 2, 0])),
        st.tuples(st.just("exchange"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("pause"), st.just(0), st.sampled_from([1, 700, 2500])),
    ),
    min_size=10,
    max_size=40,
)
"""Kinds, nodes, and costs or milliseconds."""


@pytest.mark.usefixtures("compiled_kernel")
@settings(max_examples=tried(200, long=1000))
@given(limits=CLOSE, policy=st.sampled_from([BALANCED, STRICT, AVAILABLE]), events=EVENTS)
def test_one_call_answers_as_python_does_which_weighs_each_quota(
    limits: list[Limit], policy: Policy, events: list[tuple[str, int, int]]
) -> None:
    """Two nodes have two equal limits each, of which one is decided without the call. So the answers are the same."""
    clock = ManualClock(START_S)
    hub = MemoryHub()
    nodes = [SmallNode(clock) for _ in range(2)]
    pairs = [tuple(_all_of(node, name, limits, policy) for name in ("once", "each")) for node in nodes]
    for _, each in pairs:
        each._stores = ()  # as where Python decides
    for kind, number, amount in events:
        if kind == "pause":
            clock.advance_ns(amount * SECOND_NS // 1000)
        elif kind == "exchange":
            nodes[number].exchanges_with(hub)
        else:
            decision, expected = (limit.hit("ada", amount) for limit in pairs[number])
            assert replace(expected, binding=expected.binding.replace("each", "once")) == decision


def _all_of(node: SmallNode, name: str, limits: list[Limit], policy: Policy) -> AllQuotas:
    quotas = {name if number == 0 else f"{name}#{number + 1}": limit for number, limit in enumerate(limits)}
    return node.kernel.composites.all_of(name, quotas, policy)


@pytest.mark.parametrize("asks", [False, True])
def test_who_is_interrupted_while_queueing_up_leaves_no_cell_with_a_wrong_number(
    asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a signal handler that raises when the first quota is through and the second is being looked at."""
    node = SmallNode(ManualClock(START_S))
    quotas = [node.limit(Limit(2, window, algorithm="fixed-window"), STRICT, f"l{window}") for window in (10, 60)]
    several = AllQuotas("several", quotas)
    asking = AskGate(several)
    cells: list[Cell] = []

    def interrupts(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(quotas[1].waiter, "evaluate", interrupts)
    waits = asking.join if asks else gate_of(several).queue_up
    with pytest.raises(KeyboardInterrupt):
        waits("ada", (1, 1), cells)
    asking.leave(cells, (1, 1))

    assert [0, 0] == [quota.cells["ada"].waiters for quota in quotas]
