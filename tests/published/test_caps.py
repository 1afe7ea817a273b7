"""Goal: whatever is published, a limit never admits more than its cap, and otherwise what was published."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge import Agent, InvalidSetting, Limit, RateLimiter
from reconverge.published.caps import capped, quotas_as_said
from reconverge.published.settings import LimitOverride, Word
from reconverge_sync.memory import MemoryHub

QUOTA = st.integers(1, 30)
COUNTED = st.sampled_from(["fixed-window", "sliding-window", "sliding-slices", "sliding-log"])
BUCKETS = st.sampled_from(["token-bucket", "gcra", "leaky-bucket", "smooth-bursty"])


def limits(algorithm: st.SearchStrategy[str], burst: st.SearchStrategy[int | None]) -> st.SearchStrategy[list[Limit]]:
    """Two limits that count alike."""
    return algorithm.flatmap(
        lambda name: st.lists(st.builds(Limit, QUOTA, st.just(60), st.just(name), burst), min_size=2, max_size=2)
    )


@given(limits(COUNTED, st.none()) | limits(BUCKETS, st.none() | QUOTA))
def test_nothing_is_larger_than_its_cap(both: list[Limit]) -> None:
    """Neither the quota nor what fits at once; and what is within the cap is left as it is."""
    limit, cap = both
    left = capped(limit, cap)

    assert left.quota == min(limit.quota, cap.quota)
    assert left.nominal <= cap.nominal
    assert left.nominal <= limit.nominal
    if limit.quota <= cap.quota and limit.nominal <= cap.nominal:
        assert limit == left


@given(st.integers(1, 50), st.integers(1, 50), st.none() | st.integers(0, 50))
def test_a_limit_never_admits_more_than_its_cap(own: int, published: int, more: int | None) -> None:
    """Without a cap that is what the node itself says."""
    login = limiter(f"{own}/day", cap=None if more is None else f"{own + more}/day")
    kept, problem = login.control.apply_override(LimitOverride(f"{published}/day"))
    most = own + (more or 0)

    assert (published > most, "") == (kept, problem)
    assert min(published, most) == sum(login.allow("ada") for _ in range(120))


def limiter(limit: str | Limit, **settings: Any) -> RateLimiter:
    """Of an agent without a hub."""
    return Agent("memory://").limit("login", limit, **settings)


def in_force(login: RateLimiter) -> list[int]:
    """The quotas of a limit."""
    return [limit.quota for limit in login.quotas.values()]


def test_a_burst_is_capped_as_well() -> None:
    """By the cap's burst, or where that has none, by its quota."""
    api = limiter("10/s burst 20", cap="50/s burst 60")

    assert (True, "") == api.control.apply_override(LimitOverride("40/s burst 100"))
    assert (40, 60) == (api.limit.quota, api.limit.burst)
    assert (True, "") == api.control.apply_override(LimitOverride("100/s"))
    assert (50, None) == (api.limit.quota, api.limit.burst)


@pytest.mark.parametrize(("published", "left"), [("5/minute warmup 5s", 5), ("5/minute", 5), ("50/minute", 10)])
def test_a_paced_limit_is_overridden_as_any_other(published: str, left: int) -> None:
    """Within its cap, and until nothing is published any more."""
    login = limiter("10/minute warmup 5s")
    login.control.apply_override(LimitOverride(published))

    assert Limit(left, 60, "smooth-warming-up", warmup=5) == login.limit
    login.control.apply_override(LimitOverride())
    assert 10 == login.limit.quota


def test_the_burst_that_a_smooth_limit_has_by_default_is_capped() -> None:
    """It is one second's worth, so more than the quota of a shorter window."""
    api = limiter(Limit(5, 0.5, algorithm="smooth-bursty", burst=6))

    assert (True, "") == api.control.apply_override(LimitOverride("5/500ms"))
    assert (5, 6) == (api.limit.quota, api.limit.burst)


def test_every_quota_of_a_limit_has_its_cap() -> None:
    """One may be lowered and the other raised, each within its own."""
    api = limiter("10/second; 100/hour", cap="20/second; 200/hour")

    assert (True, "") == api.control.apply_override(LimitOverride("5/second; 500/hour"))
    assert [5, 200] == in_force(api)
    assert (False, "") == api.control.apply_override(LimitOverride())
    assert [10, 100] == in_force(api)


def test_all_but_quota_and_burst_is_as_the_node_says() -> None:
    """The node's declaration holds for all that a limit string cannot have, and the algorithm, which it need not."""
    login = limiter("10/minute", algorithm="fixed-window", soft=0.5, max_debt=3, costs={"GET": 2})
    before = login.limit
    login.control.apply_override(LimitOverride("4/minute"))

    assert Limit(4, 60, "fixed-window", soft=0.5, max_debt=3, costs={"GET": 2}) == login.limit
    login.control.apply_override(LimitOverride())
    assert before == login.limit


@pytest.mark.parametrize(
    ("own", "published", "problem"),
    [
        ("10/minute", "10/hour", "has another window than"),
        ("10/minute", "1/second; 10/minute", "has 2 quotas"),
        ("10/minute", "5/minute burst 3", "a burst needs a bucket"),
        ("10/minute", "5/minute as other", "names a quota"),
        ("10/minute warmup 5s", "10/minute warmup 6s", "has another warmup"),
    ],
)
def test_what_does_not_fit_is_told_and_changes_nothing(own: str, published: str, problem: str) -> None:
    """The switch beside it is obeyed all the same."""
    login = limiter(own)
    before = login.limit
    kept, found = login.control.apply_override(LimitOverride(published, switch="shadow"))

    assert not kept
    assert problem in found
    assert before == login.limit
    assert "shadow" == login.switched


def test_a_limit_with_a_cap_is_not_switched_off() -> None:
    """Off, it would admit more than its cap; but it can be switched on."""
    login = limiter("1/day", cap="2/day", switch="shadow")

    ordered: list[tuple[LimitOverride, Word | None]] = [
        (LimitOverride(switch="off"), None),
        (LimitOverride(), "off"),
        (LimitOverride(switch="on"), None),
        (LimitOverride(switch="shadow"), None),
    ]
    kept = [(login.control.apply_override(*order), login.switched) for order in ordered]

    assert [((True, ""), "shadow"), ((True, ""), "shadow"), ((False, ""), "on"), ((False, ""), "shadow")] == kept


@pytest.mark.parametrize(
    ("own", "published", "in_force"),
    [
        (0.1, 0.05, ("balanced", 0.05)),
        (0.1, 0, ("strict", 0.0)),
        (0.1, 0.0001, ("strict", 0.0)),
        (0.1, 0.2, ("balanced", 0.1)),
        (0.0, 0.1, ("strict", 0.0)),
        (inf, 0.5, ("balanced", 0.5)),
        (inf, 1000, ("balanced", 1000.0)),
    ],
)
def test_a_limit_dares_no_more_than_it_did(own: float, published: float, in_force: tuple[str, float]) -> None:
    """Less, if so published, and as ever afterwards; every quota of it does."""
    login = limiter("10/s; 100/day", max_overshoot=own, cold_allowance=0.0)
    before = login.control.policy
    kept, _ = login.control.apply_override(LimitOverride(max_overshoot=published))

    assert {in_force} == {(table.policy.name, table.policy.max_overshoot) for table in login.control.tables}
    assert in_force == (login.control.policy.name, login.control.policy.max_overshoot)
    assert (published > own) == kept
    login.control.apply_override(LimitOverride())
    assert before == login.control.policy


def test_what_the_node_says_meanwhile_is_in_force_afterwards() -> None:
    """Its own switch, and its own quota."""
    login = limiter("10/day")
    login.control.apply_override(LimitOverride("5/day", switch="shadow"))
    login.change("8/day")
    login.switch("off")

    assert (5, "shadow") == (login.limit.quota, login.switched)
    login.control.apply_override(LimitOverride())
    assert (8, "off") == (login.limit.quota, login.switched)


def test_what_the_node_says_meanwhile_may_lower_the_cap() -> None:
    """Without another cap, its own quota is the most there is."""
    login = limiter("10/day")
    login.control.apply_override(LimitOverride("5/day"))
    login.change("3/day")

    assert 3 == login.limit.quota


@pytest.mark.parametrize(
    ("own", "cap"), [("10/day", "9/day"), ("10/s burst 20", "30/s burst 19"), ("1/s; 10/day", "1/s; 9/day")]
)
def test_a_cap_is_no_lower_than_the_limit(own: str, cap: str) -> None:
    """It would forbid what the node itself says."""
    with pytest.raises(InvalidSetting, match="is lower than"):
        limiter(own, cap=cap)


@pytest.mark.parametrize("cap", ["10/hour", "10/day; 10/day", "ten", 10])
def test_a_cap_has_the_windows_of_the_limit(cap: Any) -> None:
    """And is a limit string."""
    with pytest.raises(InvalidSetting, match=r"^cap="):
        limiter("10/day", cap=cap)


def test_a_limit_can_be_declared_again_while_another_quota_is_in_force() -> None:
    """The same declaration is harmless as ever; the quota stays as published."""
    agent = Agent("memory://")
    login = agent.limit("login", "10/day")
    login.control.apply_override(LimitOverride("5/day", max_overshoot=0))

    assert login is agent.limit("login", "10/day")
    assert 5 == login.limit.quota


def test_a_quota_is_found_by_its_window() -> None:
    """A window that is no whole number of seconds is compared as it is counted."""
    own = {"api": Limit(10, 0.5)}

    assert {"api": Limit(7, 0.5)} == quotas_as_said("api", own, "7 per 500 ms")


def test_a_cap_without_published_settings_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would raise nothing. In a process without a hub, as on a developer's machine, it is left alone."""
    monkeypatch.delenv("RECONVERGE_SETTINGS_SECRET", raising=False)
    for hub, secret in (("memory://", None), (MemoryHub(), "s" * 16), (MemoryHub(), None), (MemoryHub(), None)):
        agent = Agent(hub, settings_secret=secret)
        before = caplog.text
        agent.limit("capped-in-vain", "5/minute", cap="50/minute")
        if secret:
            assert "" == before == caplog.text

    assert 1 == caplog.text.count("cap='50/minute' of the limit 'capped-in-vain' has an effect on published settings")
    assert 1 == len(caplog.messages)
