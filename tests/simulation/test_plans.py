"""Goal: the fuzz changes plans and charges limits jointly, and finds what is planted there; accounts are judged right.

Method: faults planted in production code, each tried in the first seeds that find it; the judge by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from reconverge.clock import SECOND_NS
from reconverge.exchange.syncer import Syncer
from reconverge.kernel import Cell, Claimed, Kernel, Part, Table, hit_at_once, settle_jointly
from reconverge.kernel.algorithms.paced import PacedTerms
from reconverge.kernel.table import tiers
from reconverge.kernel.table.changes import adapt_to_quota
from reconverge.limit import ALGORITHMS, FIRST_HIT, FIXED_WINDOW, Limit
from reconverge.limit.limit import PACED
from reconverge.policies import STRICT
from reconverge.simulation import Traffic, asked, fuzz
from reconverge.simulation.asked import Beside, Plans
from reconverge.simulation.cases import ELECTED, SAFETY, Case, draw_case
from reconverge.simulation.changing import on_one_plan
from reconverge.simulation.fleet import Fleet
from reconverge.simulation.fuzz import try_case
from reconverge.simulation.studies.experiment import Experiment
from reconverge.simulation.truth import DecidedRequest
from tests.support.judged import at, request, ten

SMALLER = replace(ten(), quota=2)
PLANS = Plans(SMALLER, 10 * SECOND_NS, 2 * SECOND_NS)
DAY_NS = 86_400 * SECOND_NS


def plan_of(*periods: int) -> list[bool]:
    """Whether "ada" has the smaller plan in each of those periods."""
    return [PLANS.drawn("ada", number) for number in periods]


def test_plans_of_every_algorithm_are_drawn_and_joint_limits_with_and_without_them() -> None:
    """Also paced ones, and steep falls as well as small ones."""
    fleets = [draw_case(SAFETY, seed).experiment.fleet for seed in range(1200)]
    with_plans = [(fleet.limit, fleet.plans.smaller) for fleet in fleets if fleet.plans is not None]
    falls = [smaller.quota / limit.quota for limit, smaller in with_plans]

    assert set(ALGORITHMS) == {limit.algorithm for limit, _ in with_plans}
    assert set(PACED) <= {limit.algorithm for limit, _ in with_plans}
    assert min(falls) < 0.05
    assert max(falls) > 0.8
    assert {True, False} == {fleet.plans is not None for fleet in fleets if fleet.beside is not None}


def test_a_limit_beside_counts_by_groups_of_keys() -> None:
    """So two keys may share a count there, and have one each here."""
    beside = Beside(ten(), 2)

    assert ["group-0", "group-1", "group-0"] == [beside.key_of(f"key-{number}") for number in range(3)]


def test_all_nodes_know_a_plan_once_the_last_one_has_heard_of_it() -> None:
    """In the first two seconds of a period with another plan than the one before, some do not."""
    number = next(number for number in range(1, 100) if PLANS.drawn("ada", number) != PLANS.drawn("ada", number - 1))
    begins_ns = number * PLANS.period_ns

    assert [None, number, number] == [
        PLANS.known_since("ada", begins_ns + late_ns)
        for late_ns in (PLANS.spread_ns, PLANS.spread_ns + 1, 9 * SECOND_NS)
    ]


def test_a_stretch_on_one_plan_is_judged_by_the_quota_of_that_plan() -> None:
    """Requests of several periods in a row belong to one stretch, and those in between to none."""
    small = next(number for number in range(1, 100) if plan_of(number - 1, number, number + 1) == [False, True, True])
    moments = [at(10 * small + late_s) for late_s in (-1, 1, 3, 11)]
    requests = [request(1, moment_ns) for moment_ns in moments]

    ((larger, before), (smaller, after)) = on_one_plan(ten(), PLANS, requests, 0)

    assert (ten(), requests[:1]) == (larger, before)
    assert (SMALLER, requests[2:]) == (smaller, after)


def test_a_request_that_waited_over_a_change_of_plan_belongs_to_no_stretch() -> None:
    """Its node has gone by the plan that it knew when the request came."""
    small = next(number for number in range(1, 100) if plan_of(number - 1, number) == [False, True])
    waited: Sequence[DecidedRequest] = [request(1, at(10 * small + 5))._replace(waited_ns=6 * SECOND_NS)]

    assert [] == on_one_plan(ten(), PLANS, waited, 0)


def test_without_plans_there_is_nothing_to_judge_by_plans() -> None:
    """Nor where windows begin with the first hit, which several stretches may share."""
    first_hit = Limit(10, 10, algorithm=FIXED_WINDOW, align=FIRST_HIT)

    assert [] == on_one_plan(ten(), None, [request(1, at(1))], 0)
    assert [] == on_one_plan(first_hit, PLANS, [request(1, at(9))], 0)


def keep_allowances(target: Table, cell: Cell, before: int, former: PacedTerms | None, now_ns: int) -> None:
    """Go on by the allowances of the larger plan."""
    adapt_to_quota(target, cell, min(before, target.capacity), former, now_ns)


def raise_allowances(target: Table, cell: Cell, before: int, former: PacedTerms | None, now_ns: int) -> None:
    """Raise allowances with the capacity, without the hub's word."""
    adapt_to_quota(target, cell, before, former, now_ns)
    if target.capacity > before:
        cell.allowance = cell.allowance * target.capacity // before
        cell.base = cell.base * target.capacity // before


def forget_use(target: Table, cell: Cell, before: int, former: PacedTerms | None, now_ns: int) -> None:
    """Begin anew with what was used."""
    adapt_to_quota(target, cell, before, former, now_ns)
    cell.used = 0
    cell.level = 0


@pytest.mark.slow
@pytest.mark.parametrize(("adapts", "seed"), [(keep_allowances, 42), (raise_allowances, 52), (forget_use, 42)])
def test_a_change_of_plan_that_forgives_is_found(
    adapts: Callable[..., None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By allowances that are not lowered, allowances that are raised, or use that is forgotten."""
    assert [] == try_case(draw_case(SAFETY, seed))

    monkeypatch.setattr(tiers, "adapt_to_quota", adapts)

    assert any("more than declared" in problem for problem in try_case(draw_case(SAFETY, seed)))


def test_plans_that_tell_the_hub_what_each_of_them_has_charged_by_itself_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hub keeps one account for the name, so it would keep the larger number."""
    monkeypatch.setattr(
        Kernel,
        "_limit_report",
        lambda self, table, shard, now_ns: self._declared(table, shard, now_ns)._replace(
            **dict(zip(("charged", "refunded"), table.lock.run(table.tallies[shard.index].report), strict=True))
        ),
    )

    assert any("was charged" in problem for problem in try_case(draw_case(SAFETY, 12)))


def test_a_joint_charge_that_takes_one_key_for_all_limits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of the group would be kept by each of its keys, and not by all together."""

    def at_once(real: Callable[..., object], claims: Sequence[Claimed], *, certain: bool) -> object:
        return real([claim._replace(key=claims[0].key) for claim in claims], certain=certain)

    def settled(real: Callable[..., object], parts: Sequence[Part]) -> object:
        return real([part._replace(key=parts[0].key) for part in parts])

    monkeypatch.setattr(asked, "hit_at_once", partial(at_once, hit_at_once))
    monkeypatch.setattr(asked, "settle_jointly", partial(settled, settle_jointly))

    assert any(problem.startswith("group-") for problem in try_case(draw_case(SAFETY, 971)))


def test_a_node_that_opens_a_new_account_is_no_defect() -> None:
    """A run of eight days, in which the members of a ledger part for longer than half a day."""
    assert [] == try_case(draw_case(ELECTED, 760692))


def test_an_account_that_comes_back_after_the_hub_has_closed_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub is down for six days, and the lease of its nodes lasts for fifty."""
    fleet = Fleet(3, Limit(80, 86_400), 3600 * SECOND_NS, SECOND_NS // 2, lease_ns=50 * DAY_NS)
    away = Case(SAFETY, 7, STRICT, Experiment(fleet, Traffic("uniform", 2.0), 10, 0, ("down@2w+6w",)))
    assert [] == try_case(away)

    monkeypatch.setattr(Syncer, "_renew_account", lambda *_: None)

    assert any("was charged" in problem for problem in try_case(away))


def test_the_fuzz_says_on_which_plan_too_much_was_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the quota of that plan, and not of the larger one."""
    monkeypatch.setattr(fuzz, "broken_windows", lambda *_, **__: {("key-0", 3): 7})

    case = draw_case(SAFETY, 33)
    plans = case.experiment.fleet.plans

    assert plans is not None
    assert f"key-0 on the plan of {plans.smaller}: 7 above it, more than declared" in try_case(case)
