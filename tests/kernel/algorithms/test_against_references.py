"""Goal: every answer of a lone node is exact.

Method: random schedules, compared with a brute-force reference that keeps the whole history and counts in fractions; no
tolerance anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from reconverge import Decision, Limit
from reconverge.limit import LOG_QUOTA_MAX
from tests.support.effort import tried
from tests.support.kernel.lone import Lone, in_ns
from tests.support.kernel.reference import (
    FixedWindow,
    Reference,
    SlidingLog,
    SlidingSlices,
    SlidingWindow,
    TokenBucket,
    VirtualScheduling,
    fits,
    left,
    used_up,
)

REFERENCES: dict[str, Callable[[Limit], Reference]] = {
    "fixed-window": FixedWindow,
    "sliding-window": SlidingWindow,
    "sliding-slices": SlidingSlices,
    "sliding-log": SlidingLog,
    "token-bucket": TokenBucket,
    "gcra": VirtualScheduling,
    "leaky-bucket": TokenBucket,
}


class Step(NamedTuple):
    """How long nothing happens, and what is asked then."""

    pause: str
    part: int
    """How much of a window passes, in thousandths, if it is a part of one."""
    way: str
    cost: int


STEPS = st.builds(
    Step,
    pause=st.sampled_from(
        ["none"] * 9 + ["tick", "part", "part", "part", "before edge", "edge", "before told", "told", "dry"]
    ),
    part=st.sampled_from([1, 7, 20, 100, 333, 500, 999, 1000, 1001, 2000]) | st.integers(0, 1500),
    way=st.sampled_from(["allow"] * 12 + ["hit"] * 6 + ["test", "test", "usage", "stranger", "warm", "reset"]),
    cost=st.sampled_from([1, 1, 1, 1, 2, 3, 0, 10**12 // 3, 10**12]) | st.integers(0, 60),
)

LIMITS = st.builds(
    Limit,
    quota=st.sampled_from([1, 2, 3, 3, 7, 7, 10, 60, 10**12]),
    window=st.sampled_from([0.001, 0.5, 1.000_001, 3, 60, 86_400]),
)

SCHEDULES = st.lists(STEPS, min_size=15, max_size=50)


class Run:
    """One schedule, played to a node and to the reference at once."""

    def __init__(self, limit: Limit, reference: Reference) -> None:
        self.limit = limit
        self.reference = reference
        self.node = Lone(limit, keys_max=10)
        self.told_ns = self.node.clock.wall_ns()
        """The moment that the last refusal named."""
        self.strangers = 0
        self.refusals = 0

    @property
    def now_ns(self) -> int:
        """The moment, by the wall clock."""
        return self.node.clock.wall_ns()

    def check(self, steps: list[Step]) -> None:
        """Take all steps."""
        for step in steps:
            self.node.clock.advance_ns(max(0, self.pause_ns(step)))
            self.ask(step.way, min(step.cost, self.limit.capacity))
        event(f"refusals: {min(self.refusals, 5)}+")

    def pause_ns(self, step: Step) -> int:
        """How long to wait before the step. The node is asked only if need be: a question brings its cell forward."""
        if step.pause == "dry":
            return in_ns(self.node.limiter.test("ada", 0).reset_after)
        to_edge_ns = self.limit.window_ns - self.now_ns % self.limit.window_ns
        pauses_ns = {
            "none": 0,
            "tick": 1,
            "part": self.limit.window_ns * step.part // 1000,
            "before edge": to_edge_ns - 1,
            "edge": to_edge_ns,
            "before told": self.told_ns - 1 - self.now_ns,
            "told": self.told_ns - self.now_ns,
        }
        return pauses_ns[step.pause]

    def ask(self, way: str, cost: int) -> None:
        """Ask in that way, and compare."""
        limiter = self.node.limiter
        expected = fits(self.reference, self.now_ns, cost)
        if self.limit.count_refused and not expected and way in ("allow", "hit"):
            self.reference.charge(self.now_ns, cost)
        if way == "allow":
            assert expected == limiter.allow("ada", cost)
        elif way == "hit":
            before = left(self.reference, self.now_ns)
            self.judge(limiter.hit("ada", cost), cost, expected, remaining=before - cost)
        elif way == "test":
            self.judge(limiter.test("ada", cost), cost, expected, remaining=left(self.reference, self.now_ns))
        elif way == "usage":
            usage = limiter.usage("ada")
            expected_use = used_up(self.reference, self.now_ns)
            if self.limit.count_refused and expected_use > self.limit.capacity:  # by how much is not remembered
                expected_use = usage.own
                assert self.limit.capacity < usage.own
            assert (expected_use, expected_use, self.limit.capacity) == (usage.own, usage.total, usage.allowance)
        elif way == "stranger":
            self.strangers += 1
            limiter.allow(f"stranger {self.strangers}", cost)
        elif way == "warm":
            limiter.warm(["ada"])
        else:
            limiter.reset("ada")
            self.reference.forget()
        if way in ("allow", "hit") and expected:
            self.reference.charge(self.now_ns, cost)
            if way == "hit":
                self.judge_reset(limiter.test("ada", 0).reset_after)

    def judge(self, decision: Decision, cost: int, expected: bool, *, remaining: int) -> None:
        """Compare all that the answer says with what then comes true."""
        assert expected == decision.allowed
        assert self.limit.capacity == decision.limit
        if expected:
            assert (remaining, 0.0) == (decision.remaining, decision.retry_after)
            return
        self.refusals += 1
        self.told_ns = self.now_ns + in_ns(decision.retry_after)
        assert left(self.reference, self.now_ns) == decision.remaining
        assert not fits(self.reference, self.told_ns - 1, cost)
        assert fits(self.reference, self.told_ns, cost)

    def judge_reset(self, reset_after: float) -> None:
        """Something counts until the moment named, and nothing from then on."""
        reset_ns = self.now_ns + in_ns(reset_after)
        assert 0 == self.reference.used(reset_ns)
        assert reset_after == 0.0 or self.reference.used(reset_ns - 1) > 0


@pytest.mark.parametrize("algorithm", ["fixed-window", "sliding-window"])
@settings(max_examples=tried(40, long=150))
@given(limit=LIMITS, steps=SCHEDULES)
def test_windows_decide_as_the_whole_history_does(algorithm: str, limit: Limit, steps: list[Step]) -> None:
    """Every decision, and every moment it names, is that of one who remembers every charge."""
    limit = Limit(limit.quota, limit.window, algorithm=algorithm)

    Run(limit, REFERENCES[algorithm](limit)).check(steps)


@settings(max_examples=tried(40, long=150))
@given(limit=LIMITS, slices=st.sampled_from([1, 2, 3, 7, 10, 1000]), steps=SCHEDULES)
def test_slices_decide_as_the_whole_history_does(limit: Limit, slices: int, steps: list[Step]) -> None:
    """Also where the window does not divide into slices of whole nanoseconds."""
    limit = Limit(limit.quota, limit.window, algorithm="sliding-slices", slices=slices)

    Run(limit, SlidingSlices(limit)).check(steps)


@pytest.mark.parametrize("count_refused", [False, True])
@settings(max_examples=tried(40, long=150))
@given(limit=LIMITS, steps=SCHEDULES)
def test_the_log_decides_as_the_whole_history_does(count_refused: bool, limit: Limit, steps: list[Step]) -> None:
    """To the nanosecond, whether refused requests are part of that history or not."""
    quota = min(limit.quota, LOG_QUOTA_MAX)
    limit = Limit(quota, limit.window, algorithm="sliding-log", count_refused=count_refused)

    Run(limit, SlidingLog(limit)).check(steps)


@pytest.mark.parametrize("algorithm", ["token-bucket", "gcra", "leaky-bucket"])
@pytest.mark.parametrize("explanation", ["token-bucket", "gcra"])
@settings(max_examples=tried(25, long=60))
@given(limit=LIMITS, burst=st.sampled_from([None, 1, 2, 5, 50]), steps=SCHEDULES)
def test_buckets_decide_as_tokens_and_as_virtual_scheduling_do(
    algorithm: str, explanation: str, limit: Limit, burst: int | None, steps: list[Step]
) -> None:
    """All names of the bucket mean the same decisions, whichever of its two explanations one prefers."""
    limit = Limit(limit.quota, limit.window, algorithm=algorithm, burst=burst)

    Run(limit, REFERENCES[explanation](limit)).check(steps)
