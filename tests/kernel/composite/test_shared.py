"""Goal: a share is guaranteed, what nobody is guaranteed can be borrowed, and the parent's quota is never exceeded.

Method: examples on one node, and any schedule, of which the parent's total is counted by brute force.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconverge import Agent, CostExceedsQuota, InvalidLimit, InvalidSetting, Limit, LimitConflict, RateLimiter
from reconverge.clock import ManualClock
from reconverge.limit import ALGORITHMS, PACED
from tests.kernel.algorithms.test_against_references import REFERENCES
from tests.support.effort import tried
from tests.support.kernel.lone import NOON_S


class Family:
    """A parent of ten in a minute, of which search has three and upload two."""

    def __init__(self, algorithm: str | None = None) -> None:
        self.clock = ManualClock(NOON_S)
        self.agent = Agent("memory://", clock=self.clock)
        self.parent = self.agent.limit("api", "10/minute", algorithm=algorithm)
        self.search = self.agent.limit("search", "3/minute", algorithm=algorithm, parent=self.parent)
        self.upload = self.agent.limit("upload", "2/minute", algorithm=algorithm, parent=self.parent)

    def admitted(self, limiter: RateLimiter, attempts: int = 20) -> int:
        """Ask so many times for one key."""
        return sum(limiter.allow("ada") for _ in range(attempts))


SUMMABLE = [name for name in ALGORITHMS if name not in PACED]


@pytest.fixture(params=SUMMABLE)
def family(request: pytest.FixtureRequest) -> Family:
    """By each algorithm in turn."""
    return Family(str(request.param))


def test_a_settlement_goes_where_the_estimate_was_charged(family: Family) -> None:
    """A borrowed charge comes back to all."""
    family.search.allow("ada", 3)
    borrowed = family.search.reserve("ada", 4)

    borrowed.settle(1)

    assert borrowed.decision.borrowed
    assert {"search": 3, "api": 1} == {name: usage.own for name, usage in family.search.usages("ada").items()}


def test_a_cost_may_be_borrowed_that_no_share_could_bear(family: Family) -> None:
    """Whole, or not at all; what neither could ever admit is a mistake."""
    assert family.search.hit("ada", 5).borrowed
    assert 3 == family.search.test("ada").remaining
    with pytest.raises(CostExceedsQuota, match="'search' admits at most 5"):
        family.search.hit("ada", 6)


def test_resets_and_refunds_concern_the_share(family: Family) -> None:
    """The common part is the parent's to reset."""
    family.search.allow("ada", 3)
    family.search.allow("ada", 4)
    family.search.refund("ada", 1)
    refunded = {name: usage.own for name, usage in family.search.usages("ada").items()}

    family.search.reset("ada")

    assert {"search": 2, "api": 4} == refunded
    assert (0, 4) == (family.search.usage("ada").own, family.parent.usage("ada").own)


def test_a_share_of_a_bucket_has_a_part_of_its_burst() -> None:
    """Rates and bursts of shares and pool add up to the parent's."""
    agent = Agent("memory://", clock=ManualClock(NOON_S))
    parent = agent.limit("api", "10/minute burst 30")
    share = agent.limit("search", "3/minute burst 20", parent=parent)

    assert (30, 10) == (sum(share.allow("ada") for _ in range(50)), parent.usage("ada").allowance)


@pytest.mark.parametrize(
    ("share", "problem"),
    [
        (Limit(5, 60), "leave a part of its quota"),
        (Limit(6, 60), "for all to borrow, and 5/60s"),
        (Limit(1, 30), "algorithm of its parent, 5/60s"),
        (Limit(1, 60, algorithm="fixed-window"), "needs the window and the algorithm"),
        (Limit(1, 60, soft=0.1), "soft cannot be combined with a parent"),
        (Limit(1, 60, algorithm="leaky-bucket"), "would not sum to the parent's quota; leave it out"),
        (Limit(1, 60, algorithm="token-bucket", initial=0), "would not sum to the parent's quota; leave it out"),
        (
            Limit(1, 60, algorithm="fixed-window", align="first-hit"),
            "would not sum to the parent's quota; leave it out",
        ),
        (Limit(1, 60, algorithm="sliding-log", count_refused=True), "count_refused cannot be combined with a parent"),
    ],
    ids=str,
)
def test_what_cannot_be_a_share_is_refused(share: Limit, problem: str) -> None:
    """And nothing is taken from the parent for it."""
    family = Family()

    with pytest.raises(InvalidLimit, match=problem):
        family.agent.limit("another", share, parent=family.parent)

    assert 5 == family.admitted(family.parent)


def test_shares_are_set_aside_before_the_first_request() -> None:
    """A part that is dealt out already cannot be guaranteed to another limit."""
    family = Family()
    family.parent.allow("ada")

    with pytest.raises(InvalidLimit, match="'api' has already decided requests; declare all shares before"):
        family.agent.limit("another", "1/minute", parent=family.parent)


def test_declaring_a_share_again_alike_is_harmless() -> None:
    """It is not taken twice; all else is a conflict."""
    family = Family()
    other = family.agent.limit("other", "10/minute")
    family.search.allow("ada")

    assert family.search is family.agent.limit("search", "3/minute", parent=family.parent)
    assert family.parent is family.agent.limit("api", "10/minute")
    for name, limit, parent in [
        ("search", "2/minute", family.parent),
        ("search", "3/minute", other),
        ("search", "3/minute", None),
        ("other", "3/minute", family.parent),
    ]:
        with pytest.raises(LimitConflict):
            family.agent.limit(name, limit, parent=parent)


def test_a_parent_is_a_plain_limit_of_the_same_agent() -> None:
    """Neither a share itself, nor several quotas, nor anybody else's."""
    family = Family()
    several = family.agent.limit("several", "10/minute; 90/hour")
    stranger = Agent("memory://").limit("api", "10/minute")

    for parent in (family.search, several, stranger):
        with pytest.raises(InvalidSetting, match="must be a limit of this agent with one quota and no parent"):
            family.agent.limit("another", "1/minute", parent=parent)
    with pytest.raises(InvalidSetting, match="does not go with several quotas: another, another#2"):
        family.agent.limit("another", "1/minute; 2/minute", parent=family.parent)


class Pause(NamedTuple):
    """A pause in hundredths of the window, and who asks for how much then."""

    pause: int
    who: int
    cost: int


STEPS = st.builds(
    Pause,
    pause=st.sampled_from([0, 0, 0, 0, 1, 7, 50, 99, 100, 130]),
    who=st.integers(0, 2),
    cost=st.sampled_from([1, 1, 1, 2, 3, 5]),
)


@pytest.mark.parametrize("algorithm", SUMMABLE)
@settings(max_examples=tried(40, long=100))
@given(steps=st.lists(STEPS, min_size=10, max_size=60))
def test_the_parents_quota_is_never_exceeded_and_no_share_ever_withheld(algorithm: str, steps: list[Pause]) -> None:
    """Whoever asks when: the sum of all is within the parent's quota, and a share admits whatever fits into it."""
    family = Family(algorithm)
    total = REFERENCES[algorithm](family.parent.limit)
    own = [REFERENCES[algorithm](each.limit) for each in (family.search, family.upload)]
    for step in steps:
        family.clock.advance_ns(family.parent.limit.window_ns * step.pause // 100)
        now_ns = family.clock.wall_ns()
        limiter = (family.search, family.upload, family.parent)[step.who]
        cost = min(step.cost, 5)
        decision = limiter.hit("ada", cost)
        if step.who < 2 and own[step.who].used(now_ns) + cost <= limiter.limit.capacity:
            assert (True, False) == (decision.allowed, decision.borrowed)
        if decision:
            total.charge(now_ns, cost)
            if step.who < 2 and not decision.borrowed:
                own[step.who].charge(now_ns, cost)
        assert total.used(now_ns) <= 10
