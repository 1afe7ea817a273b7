"""Several quotas, and shares of one, in simulated fleets: each keeps its bound, and the figures are about each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconverge import Limit
from reconverge.clock import SECOND_NS
from reconverge.policies import BALANCED, NAIVE, STRICT, Policy
from reconverge.simulation import Experiment, Fleet, RunFigures, Traffic, World, run_once
from reconverge.simulation.asked import LIMIT_NAME
from reconverge.simulation.truth import charge_of, excess_by_place

LIMITS = (Limit(50, 5.0), Limit(150, 30.0, algorithm="fixed-window"))
FLEET = Fleet(nodes=4, limit=LIMITS[0], sync_interval_ns=SECOND_NS // 2, further=LIMITS[1:])
FAULTS = ("cut:half@2.3w+4w", "loss:20%@0w+9w", "crash:1@5w+1w", "repeat:20%@0w+18w")


def experiment(*faults: str, demand: float = 3.0, windows: int = 18) -> Experiment:
    """Four nodes share 50 per five seconds and 150 per thirty."""
    return Experiment(FLEET, Traffic("uniform", demand), windows, 2, faults)


def figures(policy: Policy, *faults: str, seed: int = 3) -> list[RunFigures]:
    """The figures of one run, quota by quota."""
    tried = experiment(*faults)
    return [run_once(replace(tried, judged=number), policy, tried.arrivals(seed), seed=seed) for number in (0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("faults", [(), FAULTS])
def test_strict_is_never_above_any_quota(faults: tuple[str, ...]) -> None:
    """While who believes merged totals is above both."""
    assert [0.0, 0.0] == [max(each.over_pct) for each in figures(STRICT, *faults)]
    assert [True, True] == [max(each.over_pct) > 0 for each in figures(NAIVE, *faults)]


@pytest.mark.parametrize("faults", [(), FAULTS])
def test_balanced_keeps_the_bound_of_each_quota(faults: tuple[str, ...]) -> None:
    """Which is declared for each by itself."""
    assert [{}, {}] == [each.broken for each in figures(BALANCED, *faults)]


def test_a_quota_is_judged_by_its_own_windows() -> None:
    """Eighteen windows of five seconds are three of thirty, of which the warm-up takes one."""
    first, second = figures(STRICT)

    assert (16, 2) == (len(first.over_pct), len(second.over_pct))
    assert (18, 3) == (len(first.busiest_by_window), len(second.busiest_by_window))
    assert sum(first.busiest_by_window) == sum(second.busiest_by_window)


def test_the_scarcer_quota_is_what_a_central_limiter_would_keep_as_well() -> None:
    """A request that the other quota forbids is no under-admission: both together judge the first."""
    first, second = figures(STRICT)

    assert first.ideal <= 3 * 150 < 16 * 50
    assert second.ideal <= 2 * 150


def test_nothing_is_lost_or_doubled_of_any_quota() -> None:
    """The hub's totals are what was charged, under every name."""
    tried = experiment("loss:30%@0w+9w", "repeat:30%@0w+9w")
    world = World(FLEET, BALANCED, tried.faults_of(1), seed=1)
    world.run(tried.arrivals(1), until_ns=90 * SECOND_NS)
    world.pass_until(100 * SECOND_NS)

    assert [] == world.miscounted()
    assert {LIMIT_NAME, f"{LIMIT_NAME}#2"} == set(world.hub.sums())
    assert 1 == len({totals.net for totals in world.hub.sums().values()})


PARENT = Limit(100, 10.0)
SHARES = (Limit(30, 10.0), Limit(20, 10.0))
FAMILY = Fleet(nodes=4, limit=PARENT, sync_interval_ns=SECOND_NS, shares=SHARES)


def excess_of_the_parent(policy: Policy, *faults: str, seed: int = 5) -> int:
    """By how much all admissions together are above the parent's quota, at worst."""
    tried = Experiment(FAMILY, Traffic("uniform", 4.0, keys=2), 8, 0, faults)
    world = World(FAMILY, policy, tried.faults_of(seed), seed=seed)
    history = world.run(tried.arrivals(seed), until_ns=80 * SECOND_NS)
    charges = [charge_of(one) for one in history.decided if one.allowed]
    assert sum(charge.cost for charge in charges) > 5 * PARENT.quota
    return max(excess_by_place(PARENT, charges, settling=False).values(), default=0)


@pytest.mark.parametrize("faults", [(), ("cut:half@1.3w+3w", "loss:20%@0w+8w", "crash:1@5w+1w")])
def test_shares_and_what_is_for_all_never_exceed_the_parents_quota(faults: tuple[str, ...]) -> None:
    """In strict, whatever goes wrong; who believes merged totals does."""
    assert 0 == excess_of_the_parent(STRICT, *faults)
    assert 0 < excess_of_the_parent(NAIVE, *faults)


def test_the_bound_of_a_parent_is_that_of_its_shares_and_the_rest_together() -> None:
    """Each adds one request for every node, and their overdrafts add up to the parent's."""
    parts = (*SHARES, Limit(50, 10.0))
    policy = replace(BALANCED, cold_allowance=0.0)

    assert excess_of_the_parent(policy) <= sum(policy.bound(part.capacity, FAMILY.nodes) for part in parts)


@pytest.mark.parametrize("faults", [(), ("cut:half@1.3w+3w", "loss:20%@0w+8w", "crash:1@5w+1w")])
def test_the_figures_of_shares_are_the_parents_and_keep_its_bound(faults: tuple[str, ...]) -> None:
    """Declared are a tenth of a hundred, and a request of each node, restarts included, for each of the three parts."""
    tried = Experiment(FAMILY, Traffic("uniform", 4.0, keys=2), 8, 2, faults)
    judged = run_once(tried, BALANCED, tried.arrivals(5), seed=5)

    assert 10 + 3 * (4 + (1 if faults else 0)) == judged.bound_pct
    assert {} == judged.broken
