"""Goal: the compiled kernel is the kernel in Python.

Method: both live through the same lives, each in a process of its own: requests, corrections, time, exchanges, and all
that can go wrong with those. Every answer, every report and everything they know is compared, fractions bit for bit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from reconverge import InvalidLimit, Limit
from reconverge.limit import (
    ALGORITHMS,
    BURSTING,
    FILLED,
    FIXED_WINDOW,
    METERED,
    PACED,
    QUOTA_MAX,
    SLIDING_LOG,
    SLIDING_SLICES,
    SLIDING_WINDOW,
    SMOOTH_WARMING_UP,
    TOKEN_BUCKET,
)
from reconverge.policies import POLICIES
from tests.support.effort import tried
from tests.support.twin import OtherTwin, trace_of
from tests.support.twin_world import Data, Step

COMPILED_ALGORITHMS = (FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET)
"""About which C decides; the others are decided in Python, on cells in C."""
TEN_YEARS_S = 3660 * 86_400
DAY_S = 86_400
WAYS: list[Data] = [
    *({"name": name} for name in POLICIES),
    {"max_overshoot": 0.5},
    {"name": "strict", "when_hub_is_away": "admit"},
    {"when_hub_is_away": "admit"},
]
"""The settings of a limit's policy."""

# -------------------------------------------------------------------- worlds


@st.composite
def limits(draw: st.DrawFn, algorithm: str) -> Data:
    """The fields of a limit of that algorithm, with whatever goes with it."""
    fields: Data = {"quota": draw(st.sampled_from([1, 7, 40, 300, 300, 99_999, QUOTA_MAX])), "algorithm": algorithm}
    fields["window"] = draw(st.sampled_from([0.001, 2.0, 2.0, 2.0, 9.0, 3.333_333, 3600, 100 * DAY_S, TEN_YEARS_S]))
    fields["soft"] = draw(st.sampled_from([0.0, 0.0, 0.0, 0.3])) if algorithm in METERED else 0.0
    fields["max_debt"] = draw(st.sampled_from([None, None, 0, 11, QUOTA_MAX])) if algorithm in METERED else None
    if algorithm in BURSTING:
        fields["burst"] = draw(st.sampled_from([None, None, 1, 12, 500, QUOTA_MAX]))
    if algorithm in FILLED:
        fields["initial"] = draw(st.sampled_from([None, None, None, 0, 1]))
        fields["refill"] = draw(st.sampled_from(["greedy", "greedy", "greedy", "interval"]))
    if algorithm == SLIDING_SLICES:
        fields["slices"] = draw(st.sampled_from([1, 3, 10]))
    if algorithm == SLIDING_LOG:
        fields["count_refused"] = draw(st.booleans())
    if algorithm == SMOOTH_WARMING_UP:
        fields["warmup"] = draw(st.sampled_from([0.5, 3.0]))
    if algorithm == FIXED_WINDOW:
        fields["align"] = draw(st.sampled_from(["clock", "clock", "clock", "first-hit", "calendar"]))
        if fields["align"] == "calendar":
            fields["window"] = draw(st.sampled_from([DAY_S, 7 * DAY_S, 30 * DAY_S, 360 * DAY_S]))
            fields["timezone"] = draw(st.sampled_from(["UTC", "Europe/Berlin"]))
    if draw(st.integers(0, 3)) == 0:
        fields["costs"] = {"GET": 1, "POST": min(3, fields.get("burst") or 1), "*": 0}
    return fields


def is_valid(fields: Data) -> bool:
    """Whether there is such a limit."""
    try:
        Limit(**fields)
    except InvalidLimit:
        return False
    return True


@st.composite
def worlds(draw: st.DrawFn, algorithm: str, *, alone: bool, several: bool = False) -> Data:
    """Nodes with a limit of that algorithm, or with several quotas, or with a share of it."""
    first = draw(limits(algorithm).filter(is_valid))
    all_limits, share = [first], None
    if several:
        all_limits.append(draw(st.sampled_from(ALGORITHMS).flatmap(limits).filter(is_valid)))
    elif draw(st.integers(0, 5)) == 0 and _can_be_shared(first):
        share = {**first, "quota": first["quota"] // 3, "costs": None}
    tier = None
    if not several and share is None and algorithm not in PACED and draw(st.integers(0, 2)) == 0:
        tier = draw(tiers_of(first).filter(is_valid))
    return {
        "tier": tier,
        "alone": alone,
        "limits": all_limits,
        "share": share,
        "policy": draw(st.sampled_from(WAYS)),
        "shards": draw(st.sampled_from([1, 1, 1, 3])),
        "keys_max": draw(st.sampled_from([1000, 1000, 3, 2])),
        "hub_ahead": draw(st.sampled_from([0.0, 0.000_000_123, -0.7, 1.9])),
    }


@st.composite
def tiers_of(draw: st.DrawFn, fields: Data) -> Data:
    """The fields of a limit with another quota, whose keys count with those of that one."""
    quota = draw(st.sampled_from([1, 7, 40, 300, 99_999]))
    burst = draw(st.sampled_from([None, 1, 12, 500])) if fields["algorithm"] in BURSTING else None
    return {**fields, "quota": quota, "burst": burst, "costs": None}


def _can_be_shared(fields: Data) -> bool:
    return (
        fields["quota"] >= 40
        and fields["algorithm"] in (FIXED_WINDOW, SLIDING_WINDOW)
        and fields.get("align") != "first-hit"
        and not fields["soft"]
    )


# -------------------------------------------------------------------- steps

NODE = st.integers(0, 3)
SOME = st.integers(0, 7)
KEYS = st.sampled_from(
    ["ada"] * 12 + ["bob"] * 6 + ["é", "日本", "\U0001f600", "cy", "", "\x00x", "k" * 257, 7, None, "\ud800"]
)
COSTS: st.SearchStrategy[Any] = st.sampled_from([1] * 8 + [2, 3, 5, 0]) | st.tuples(
    st.sampled_from([1, 1, 2, 3]), st.sampled_from([1, 2, 3, 7, 10]), st.sampled_from([0, 0, 0, 1, -1])
).map(list)
LARGE_COSTS = [10**12 - 1, 10**12, 10**12 + 1, 10**15, 2**50, 2**50 + 1, 2**53, 2**62, 2**63 - 1, 2**63, 10**30]
ODD_COSTS: st.SearchStrategy[Any] = st.sampled_from([-1, True, 1.5, "1", None, *LARGE_COSTS])
ANY_COSTS = st.one_of(COSTS, COSTS, COSTS, COSTS, COSTS, COSTS, ODD_COSTS)
TIMES = st.sampled_from([1, 1, 2, 7, 40, 130])
KINDS = st.sampled_from([None, None, None, "GET", "POST", "PUT"])
PARTS = st.sampled_from([0.0, 0.003, 0.03, 0.1, 0.33, 0.999, 1.0, 1.3, 2.5, 12.0])
SHORT = st.sampled_from([0.0, 0.003, 0.03, 0.06])
NANOSECONDS = st.sampled_from([0, 0, 1, -1, 999, 1_000_000])
LAGS = st.sampled_from([0, 0, 1, 500_000, 3_000_001, 40_000_000])
JUMPS = st.sampled_from([-0.0015, 0.2, -0.2, 1.05, -1.05, -1.05, -1.9, 15.0, -15.0, 20_000.0])


def step(name: str, *parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    """That step, with its arguments."""
    return st.tuples(st.just(name), *parts).map(list)


ASKING = [
    step("allow", NODE, KEYS, ANY_COSTS, TIMES),
    step("allow", NODE, KEYS, COSTS, TIMES),
    step("allow", NODE, KEYS, COSTS, st.just(3), KINDS),
    step("hit", NODE, KEYS, ANY_COSTS, KINDS),
    step("hit", NODE, KEYS, COSTS),
    step("hits", NODE, KEYS, COSTS, TIMES),
    step("hits", NODE, st.sampled_from(["ada", "bob"]), st.just(1), st.sampled_from([2, 7])),
    step("test", NODE, KEYS, ANY_COSTS, KINDS),
    step("usages", NODE, KEYS),
    step("many", NODE, st.lists(KEYS, max_size=5), st.none()),
    step("many", NODE, st.lists(st.sampled_from(["ada", "bob", "é"]), max_size=9), st.none()),
    step("many", NODE, st.just(["ada", "bob", "cy"]), st.lists(ANY_COSTS, min_size=3, max_size=3)),
    step("looks"),
]
LOOKING = [
    step("test_each", NODE, st.sampled_from(["ada", "ada", "bob"]), COSTS, KINDS),
    step("test_each", NODE, st.just("ada"), st.just(0)),
    step("hits", NODE, st.sampled_from(["ada", "bob"]), st.just(1), st.sampled_from([2, 7])),
]
"""At each quota of a limit, as responses do that show them all."""
CORRECTING = [
    step("reserve", NODE, KEYS, ANY_COSTS, st.sampled_from(["keep", "keep", "return"])),
    step("settle", SOME, ANY_COSTS),
    step("spend", SOME, ANY_COSTS),
    step("leave", SOME),
    step("refund", NODE, KEYS, ANY_COSTS),
    step("reset", NODE, KEYS),
    step("warm", NODE, st.lists(KEYS, max_size=3)),
]
WAITING = [
    step("wait", NODE, KEYS, ANY_COSTS, st.sampled_from([None, 0, 0.5, 30.0]), st.sampled_from([None, None, 0, 1])),
    step("turn", SOME),
]
CHANGES = st.sampled_from([0.1, 0.5, 1.0, 1.0, 2.0, 7.0])
CHANGING = [step("changes", NODE, CHANGES, CHANGES)]
"""With what is asked and what is under way; the limit is as it was declared with `1.0`."""
PASSING = [
    step("passes", PARTS, NANOSECONDS.map(abs)),
    step("passes", SHORT),
    step("rush", st.just("ada"), TIMES, st.just(1), PARTS),
    step("edge", NANOSECONDS),
    step("jump", JUMPS),
]
EXCHANGING = [
    step("goes_on", st.integers(1, 4), SHORT, LAGS),
    step("goes_on", st.integers(1, 4), PARTS, LAGS),
    step("rush", st.sampled_from(["ada", "ada", "bob"]), TIMES, st.integers(1, 4), PARTS),
    step("rush", st.just("ada"), TIMES, st.just(4), PARTS),
    step("lease_ends", NODE, NANOSECONDS),
    step("sends", NODE),
    step("reaches", NODE),
    step("hears", NODE),
    step("gives_up", NODE),
    step("fails", NODE, st.sampled_from(["ada", "bob"]), PARTS),
    step("late_ones_arrive"),
    step("attends", NODE, PARTS),
    step("sleeps", NODE),
    step("sleeps", NODE),
    step("awakes", NODE),
]
MISFORTUNES = [
    step("hub_jumps", JUMPS),
    step("lose_data"),
    step("departs", NODE),
    step("parts", NODE),
    step("forks", NODE),
]


def life_of(*kinds: list[st.SearchStrategy[Step]]) -> st.SearchStrategy[list[Step]]:
    """A short life, or a long one, of steps of those kinds."""
    steps = st.one_of(*(each for kind in kinds for each in kind))
    return st.sampled_from([2, 12, 24, 48]).flatmap(lambda most: st.lists(steps, min_size=most // 2, max_size=most))


LONE_LOOKS = life_of(LOOKING, LOOKING, PASSING, CHANGING)
LOOKS = life_of(LOOKING, LOOKING, PASSING, CHANGING, EXCHANGING, MISFORTUNES)
LONE_LIFE = life_of(ASKING, ASKING, CORRECTING, WAITING, PASSING, CHANGING)
LIFE = life_of(ASKING, ASKING, CORRECTING, WAITING, PASSING, CHANGING, EXCHANGING, EXCHANGING, MISFORTUNES)


# -------------------------------------------------------------------- comparing


@pytest.fixture(scope="module")
def other() -> Iterator[OtherTwin]:
    """The kernel in Python, in a process of its own."""
    with OtherTwin() as other:
        yield other


def compare(other: OtherTwin, world: Data, steps: list[Step]) -> None:
    """Runs the steps in both. Raises AssertionError where they first differ, with the difference."""
    here, there = _both(other, world, steps, whole_at=-1)
    if here != there:
        place = next(number for number, (one, two) in enumerate(zip(here, there, strict=True)) if one != two)
        here, there = _both(other, world, steps, whole_at=place)
        raise AssertionError(_difference(steps, place, here[place], there[place]))
    admitted = sum(answer.count(True) for answer, _ in here if isinstance(answer, list))
    event(f"admitted: {10 ** len(str(admitted)) // 10}+")


def _both(other: OtherTwin, world: Data, steps: list[Step], *, whole_at: int) -> tuple[list[Any], list[Any]]:
    """The traces of both, at the same time."""
    other.begins(world, steps, whole_at)
    try:
        here: list[Any] = json.loads(json.dumps(trace_of(world, steps, whole_at)))
    finally:
        there = other.answers()
    return here, there


def _difference(steps: list[Step], place: int, native: list[Any], pure: list[Any]) -> str:
    done = steps[place] if place < len(steps) else "the end"
    said = "" if native[0] == pure[0] else f"; compiled, it says {native[0]}, and in Python {pure[0]}"
    knows = {name: (native[1].get(name), pure[1].get(name)) for name in sorted({**native[1], **pure[1]})}
    differs = {name: both for name, both in knows.items() if both[0] != both[1]}
    return f"after step {place}, {done}{said}; what they know, compiled and in Python, differs in {differs}"


@pytest.mark.usefixtures("compiled_kernel")
@pytest.mark.parametrize("algorithm", COMPILED_ALGORITHMS)
@settings(max_examples=tried(60, long=250, brief=15))
@given(data=st.data())
def test_both_decide_alike_without_a_hub(algorithm: str, other: OtherTwin, data: st.DataObject) -> None:
    """Limits about which C decides, on a node that meets nobody."""
    compare(other, data.draw(worlds(algorithm, alone=True)), data.draw(LONE_LIFE))


@pytest.mark.usefixtures("compiled_kernel")
@pytest.mark.parametrize("algorithm", COMPILED_ALGORITHMS)
@settings(max_examples=tried(90, long=400, brief=20))
@given(data=st.data())
def test_both_decide_and_report_alike(algorithm: str, other: OtherTwin, data: st.DataObject) -> None:
    """Limits about which C decides, on two nodes, a hub, and a network that loses and delays."""
    compare(other, data.draw(worlds(algorithm, alone=False)), data.draw(LIFE))


@pytest.mark.usefixtures("compiled_kernel")
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "in company"])
@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name not in COMPILED_ALGORITHMS])
@settings(max_examples=tried(20, long=50, brief=6))
@given(data=st.data())
def test_what_is_decided_in_python_goes_alike_on_compiled_cells(
    algorithm: str, alone: bool, other: OtherTwin, data: st.DataObject
) -> None:
    """The other algorithms keep their numbers in cells in C, which have to hold them all."""
    compare(other, data.draw(worlds(algorithm, alone=alone)), data.draw(LONE_LIFE if alone else LIFE))


@pytest.mark.usefixtures("compiled_kernel")
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "in company"])
@settings(max_examples=tried(40, long=120, brief=10))
@given(data=st.data())
def test_several_quotas_go_alike(alone: bool, other: OtherTwin, data: st.DataObject) -> None:
    """A limit with two quotas of any kind, each of which is a table of its own."""
    algorithm = data.draw(st.sampled_from(ALGORITHMS))
    compare(other, data.draw(worlds(algorithm, alone=alone, several=True)), data.draw(LONE_LIFE if alone else LIFE))


@pytest.mark.usefixtures("compiled_kernel")
@pytest.mark.parametrize("several", [False, True], ids=["one quota", "two quotas"])
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "in company"])
@settings(max_examples=tried(60, long=200, brief=15))
@given(data=st.data())
def test_looks_that_charge_nothing_go_alike(several: bool, alone: bool, other: OtherTwin, data: st.DataObject) -> None:
    """They bring a key up to date as a decision does, and ask the hub about it; C looks at the limits it decides."""
    algorithm = data.draw(st.sampled_from(COMPILED_ALGORITHMS))
    world = data.draw(worlds(algorithm, alone=alone, several=several))
    compare(other, world, data.draw(LONE_LOOKS if alone else LOOKS))
