"""Goal: a warning names each quota that can never refuse beside another, where it is declared, and no other quota.

Method: pairs of quotas as they are written; and drawn ones, of which an idle one must change no decision.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from reconverge import Agent, Limit
from reconverge.limit.idle import WINDOWS, idle_in
from reconverge.limit.limit import FILLED
from reconverge.limit.quotas import quotas_of
from reconverge.testing import ManualClock

COUNTING = (*WINDOWS, *FILLED)


@pytest.mark.parametrize("algorithm", COUNTING)
def test_swapped_windows_are_logged_once(algorithm: str, caplog: pytest.LogCaptureFixture) -> None:
    """Also if the limit is declared again; what is meant by them is not, nor what published settings may raise."""
    agent = Agent("memory://")
    agent.limit("right", "100/minute; 200/hour", algorithm=algorithm)
    agent.limit("capped", "100/hour; 200/minute", algorithm=algorithm, cap="1000/hour; 200/minute")
    before = caplog.text
    for _ in range(2):
        agent.limit("swapped", "100/hour; 200/minute", algorithm=algorithm)

    assert "can never refuse" not in before
    assert 1 == caplog.text.count("the quota 'swapped#2', 200/60s")
    assert "can never refuse, as 100/3600s" in caplog.text


@pytest.mark.parametrize(
    ("limit", "idle"),
    [
        ("5/minute; 5/minute", ["x#2"]),
        ("6/minute; 5/minute", ["x"]),
        ("100/hour; 103/minute", []),  # a sliding hour gives back a little after its boundary
        ("100/hour; 104/minute", ["x#2"]),
        ("100/minute; 100/hour", []),
        ("10/second burst 20; 100/minute burst 100", []),
        ("100/hour burst 300; 200/minute burst 200", []),
        ("100/hour burst 150; 200/minute", []),
        ("100/hour burst 200; 200/minute burst 200", ["x#2"]),
        ([Limit(100, 3600, soft=0.1), Limit(105, 3600)], []),
        ([Limit(100, 3600), Limit(200, 60, costs={"GET": 1})], []),
        ([Limit(100, 3600), Limit(200, 60, algorithm="sliding-log", count_refused=True)], []),
        ([Limit(100, 3600, "gcra"), Limit(200, 60, "gcra", initial=1)], []),
        ([Limit(0, 3600), Limit(200, 60)], []),
    ],
)
def test_only_a_quota_without_effect_is_idle(limit: object, idle: list[str]) -> None:
    """Bursts, kinds, extra fractions and refused requests count."""
    assert idle == [name for name, _ in idle_in(quotas_of("x", limit))]  # type: ignore[arg-type]


@st.composite
def idle_pairs(draw: st.DrawFn) -> list[Limit]:
    """Draws two quotas, the first of which is idle beside the second; in either order."""
    quota, window = draw(st.integers(1, 8)), draw(st.integers(1, 5))
    algorithm, other = draw(st.sampled_from(COUNTING)), draw(st.sampled_from(COUNTING))
    if draw(st.booleans()):
        limits = [Limit(quota + draw(st.integers(0, 3)), window, algorithm), Limit(quota, window, algorithm)]
    else:
        longer = window * draw(st.integers(2, 6)) + draw(st.integers(0, 1))
        limits = [Limit(quota + draw(st.integers(0, 2 * quota)), window, algorithm), Limit(quota, longer, other)]
    assume("x" in dict(idle_in(quotas_of("x", limits))))
    return limits


@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(
    limits=idle_pairs(),
    requests=st.lists(
        st.tuples(st.sampled_from([0, 1, 250, 499, 500, 999, 1000, 3000]), st.integers(1, 3)), max_size=60
    ),
    first=st.integers(0, 10_000),
)
def test_an_idle_quota_changes_no_decision(limits: list[Limit], requests: list[tuple[int, int]], first: int) -> None:
    """The other quota alone decides the same, at any time and for any requests."""
    clock = ManualClock()
    clock.advance(first / 1000)
    agent = Agent("memory://", clock=clock)
    both, alone = agent.limit("both", limits), agent.limit("alone", limits[1])
    for wait_ms, cost in requests:
        clock.advance(wait_ms / 1000)
        if cost <= min(limit.capacity for limit in limits):
            assert alone.allow("ada", cost) == both.allow("ada", cost)
