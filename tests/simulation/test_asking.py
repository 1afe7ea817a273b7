"""Simulated requests that ask the hub in doubt: the production code asks, and virtual time passes while they wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from reconverge import Limit
from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.kernel import Cell
from reconverge.kernel.algorithms import windows
from reconverge.kernel.composite import asking
from reconverge.kernel.table.slow_path import commit
from reconverge.limit import FIXED_WINDOW, SLIDING_WINDOW
from reconverge.limiter.asking import AskedCost, Asking, Steps
from reconverge.limiter.waiting.queue import Waker
from reconverge.policies import BALANCED, STRICT, Policy
from reconverge.simulation import AskSettings, Experiment, Fleet, RunFigures, SimulatedArrival, Traffic, World, run_once
from reconverge.simulation.cases import LIVENESS, SAFETY, draw_case
from reconverge.simulation.fuzz import CASES, try_case
from reconverge.simulation.studies.figures import summed_up, waits_ms
from reconverge.simulation.truth import DecidedRequest, ideal_admissions
from reconverge_sync.merge import ledger
from reconverge_sync.merge.asking import SMALL, HubAsk
from tests.simulation.test_figures import QUIET
from tests.support.judged import at, request, ten

WITHIN_NS = 25 * MILLISECOND_NS
ROUND_TRIP_NS = 2 * MILLISECOND_NS
LIMIT = Limit(5, 60.0, algorithm="fixed-window")
FLEET = Fleet(4, LIMIT, SECOND_NS // 10, ROUND_TRIP_NS)
ASKING = replace(FLEET, asks=AskSettings(WITHIN_NS))
SCARCE_SEEDS = range(55, 160)
"""In which all that is planted in the rule for scarce keys is found: each by two to four of the first 120 seeds, of
which the first is one from 34 to 69."""
LATER_SCARCE_SEEDS = range(72, 160)
"""For what the seeds before these do not find, and take eight seconds for."""
READY_NS = SECOND_NS
"""By then every node has heard the hub once."""


def once(
    fleet: Fleet, arrivals: Sequence[SimulatedArrival], *faults: str, policy: Policy = STRICT, seed: int = 1
) -> World:
    """A world in which those requests have been decided."""
    experiment = Experiment(fleet, tuple(arrivals), 2, faults=faults)
    world = World(fleet, policy, experiment.faults_of(seed), seed=seed)
    world.run(arrivals, until_ns=40 * SECOND_NS)
    return world


def decided(
    fleet: Fleet, arrivals: Sequence[SimulatedArrival], *faults: str, policy: Policy = STRICT
) -> list[DecidedRequest]:
    return once(fleet, arrivals, *faults, policy=policy)._decided[0]


def asked_at(*seconds: float, node: int = 0, cost: int = 1) -> list[SimulatedArrival]:
    """Requests of one key at one node."""
    return [SimulatedArrival(READY_NS + round(second * SECOND_NS), node, "ada", cost) for second in seconds]


def everywhere(nodes: int, second: float = 0.0) -> list[SimulatedArrival]:
    """A request of the same key at every node in one moment."""
    return [each for node in range(nodes) for each in asked_at(second, node=node)]


def test_production_code_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no second copy of it: a limiter's own steps are what the world drives."""
    called: list[str] = []
    steps = Asking.steps

    def noted(self: Asking, about: AskedCost, waker: Waker) -> Steps:
        called.append(about.key)
        return steps(self, about, waker)

    monkeypatch.setattr(Asking, "steps", noted)
    decided(ASKING, asked_at(0.0))

    assert ["ada"] == called


def test_a_request_about_a_new_key_waits_for_one_round_trip() -> None:
    """From memory a strict node refuses it; asking, it is admitted when the hub has answered."""
    (unasked,), (asked,) = decided(FLEET, asked_at(0.0)), decided(ASKING, asked_at(0.0))

    assert (False, False, 0) == (unasked.allowed, unasked.asked, unasked.waited_ns)
    assert (True, True) == (asked.allowed, asked.asked)
    assert 0.8 * ROUND_TRIP_NS <= asked.waited_ns <= 1.2 * ROUND_TRIP_NS


def test_what_is_certain_does_not_wait() -> None:
    """The second request fits into what the first one's answer has brought."""
    first, second = decided(replace(ASKING, limit=replace(LIMIT, quota=500)), asked_at(0.0, 1.0))

    assert first.asked
    assert (True, False, 0) == (second.allowed, second.asked, second.waited_ns)


def test_a_request_waits_no_longer_than_it_may_and_the_next_does_not_wait_at_all() -> None:
    """The hub hears nothing any more: memory answers the first at its deadline, and all others at once."""
    found = decided(ASKING, asked_at(1.0, 1.1, 2.0), "cut:all@1.5s+60s")

    assert [(False, WITHIN_NS), (False, 0), (False, 0)] == [(one.allowed, one.waited_ns) for one in found]
    assert [True, False, False] == [one.asked for one in found]


def test_a_new_key_asked_on_many_nodes_at_once_is_admitted_its_quota() -> None:
    """From memory all sixteen nodes of a balanced fleet admit it; asking, no more do than the limit's five."""
    fleet = replace(FLEET, nodes=16)
    unasked = decided(fleet, everywhere(16), policy=BALANCED)
    asked = decided(replace(fleet, asks=ASKING.asks), everywhere(16), policy=BALANCED)

    assert 16 == sum(one.allowed for one in unasked)
    assert 5 == sum(one.allowed for one in asked)


def test_a_request_that_is_cancelled_while_it_waits_is_not_charged_nor_decided() -> None:
    """Nothing is left of it, at the node or at the hub; requests that have not waited are none of those."""
    fleet = replace(ASKING, asks=AskSettings(WITHIN_NS, cancelled=1.0))
    world = once(fleet, asked_at(0.0, 0.0, 0.0))

    cancelled = [number for number in range(3) if number not in {one.number for one in world._decided[0]}]
    assert cancelled
    assert {} == world.askers
    charged = sum(one.allowed for one in world._decided[0])
    assert charged == sum(table.charged for table in world.hub.sums().values())
    assert charged == world.nodes[0].table.cells["ada"].used


def test_a_request_whose_process_dies_while_it_waits_is_not_decided() -> None:
    """The process that is started in its place knows nothing of it."""
    at_s = (READY_NS + ROUND_TRIP_NS // 2) / SECOND_NS
    world = once(ASKING, asked_at(0.0), f"crash:4@{at_s}s+1s")

    assert [] == world._decided[0]
    assert {} == world.askers


def test_nodes_and_requests_that_do_not_know_asking_never_wait() -> None:
    """Only the first two nodes ask; and where half of the requests may, about half of them do."""
    some = decided(replace(ASKING, asks=AskSettings(WITHIN_NS, nodes=2)), everywhere(4))
    half = decided(
        replace(ASKING, asks=AskSettings(WITHIN_NS, share=0.5)),
        [arrival._replace(key=f"key-{number}") for number in range(40) for arrival in asked_at(0.1 * number)],
    )

    assert {0, 1} == {one.node for one in some if one.asked}
    assert 10 <= sum(one.asked for one in half) <= 30


def test_the_same_seed_leads_to_the_same_asks() -> None:
    """To the last request, with some of them cancelled."""
    fleet = replace(ASKING, asks=AskSettings(WITHIN_NS, share=0.7, cancelled=0.3))
    arrivals = Experiment(fleet, Traffic("uniform", 3.0, keys=3), 2).arrivals(5)
    first, second, other = (once(fleet, arrivals, seed=seed)._decided for seed in (5, 5, 6))

    assert any(one.asked for one in first[0])
    assert first == second
    assert first != other


@pytest.mark.parametrize("shares", [(), (LIMIT, LIMIT)], ids=["quotas", "shares"])
def test_every_quota_and_share_has_a_verdict(shares: tuple[Limit, ...]) -> None:
    """Of several quotas all say the same; of a share of five in twelve, two more are borrowed of what is for all."""
    whole = replace(ASKING, limit=Limit(12, 60.0, algorithm="fixed-window"))
    fleet = replace(whole, shares=shares) if shares else replace(whole, further=(Limit(7, 120.0),))
    world = once(fleet, [each for number in range(4) for each in everywhere(4, second=float(number))])

    assert ([7] if shares else [7, 7]) == [sum(one.allowed for one in of_quota) for of_quota in world._decided]
    assert any(one.asked for one in world._decided[0])


def test_a_central_limiter_decides_at_the_instant_of_arrival() -> None:
    """One of ten a window arrived before its end and was decided after: a central one has charged it to that window."""
    full = [request(1, at(1)) for _ in range(9)]
    late = request(1, at(10, late_ns=ROUND_TRIP_NS))._replace(asked=True, waited_ns=2 * ROUND_TRIP_NS)
    then = [request(1, at(11)) for _ in range(10)]

    admitted, count = ideal_admissions(ten(), [*full, *then, late], settle_after_ns=0)

    assert 20 == count
    assert {("ada", 0): 9, ("ada", 1): 11} == admitted


def test_requests_are_told_of_in_the_order_in_which_they_arrived_not_decided() -> None:
    """Of two for the last place the first to come gets it from a central limiter, though the fleet decided it later."""
    late = request(5, at(1, late_ns=ROUND_TRIP_NS))._replace(asked=True, waited_ns=ROUND_TRIP_NS)
    quick = request(6, at(1, late_ns=ROUND_TRIP_NS // 2))

    assert ({("ada", 0): 5}, 1) == ideal_admissions(ten(), [quick, late], settle_after_ns=0)


def test_the_share_that_asked_and_what_it_waited_are_told() -> None:
    """Of two hundred requests a half asked, for one to a hundred milliseconds."""
    waited = [number * MILLISECOND_NS for number in range(1, 101)]
    run = replace(QUIET, requests=200, waited_ns=waited[::-1])
    figures = summed_up([run])

    assert 50.0 == figures.asked_pct
    assert (50.0, 99.0, 100.0) == (figures.waited_median_ms, figures.waited_p99_ms, figures.waited_max_ms)
    assert (0.0, 0.0, 0.0) == waits_ms([])


def test_a_run_tells_what_its_requests_waited_after_the_warm_up() -> None:
    """Those of the warm-up are neither asked nor counted."""
    tried = Experiment(replace(ASKING, limit=replace(LIMIT, window=1.0)), Traffic("uniform", 2.0), 6, 2)
    run = run_once(tried, STRICT, tried.arrivals(1), seed=1)
    later = [each for each in tried.arrivals(1) if each.moment_ns >= 2 * SECOND_NS]

    assert 0 < len(run.waited_ns) < run.requests
    assert abs(len(later) - run.requests) <= 1
    assert max(run.waited_ns) <= WITHIN_NS


@pytest.mark.slow
def test_asking_lowers_what_is_refused_falsely_and_admits_nothing_above_the_limit() -> None:
    """Five a minute on four nodes, asked for twice, with the sync interval that an agent has by default."""
    unasked, asked = (summed_up(_runs(fleet)) for fleet in (FLEET, ASKING))

    assert asked.falsely_refused_pct < unasked.falsely_refused_pct
    assert 0.0 == asked.over_max_pct
    assert (0.0, 0.0) == (unasked.asked_pct, unasked.waited_max_ms)
    assert 0.0 < asked.asked_pct < 100.0


def _runs(fleet: Fleet) -> list[RunFigures]:
    tried = Experiment(fleet, Traffic("uniform", 2.0), 12)
    return [run_once(tried, STRICT, tried.arrivals(seed), seed=seed) for seed in range(2)]


@pytest.mark.parametrize("mode", CASES)
def test_the_fuzz_draws_asks_in_every_mode(mode: str) -> None:
    """With and without; on all nodes or some, for all requests or some, cancelled or not, in time or too late."""
    cases = [draw_case(mode, seed) for seed in range(60)]
    asks = [case.experiment.fleet.asks for case in cases]
    drawn = [(each, case.experiment.fleet) for each, case in zip(asks, cases, strict=True) if each is not None]

    assert 15 <= asks.count(None) <= 45
    assert {True, False} == {each.nodes is None for each, _ in drawn}
    assert {True, False} == {each.share == 1.0 for each, _ in drawn}
    assert {True, False} == {each.cancelled > 0 for each, _ in drawn}
    assert {True, False} == {each.within_ns > 1.4 * fleet.round_trip_ns for each, fleet in drawn}


def test_a_node_that_admits_whatever_the_hub_answers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants a wait that ends in an admission, with room or without; that must break a bound before long."""
    weigh, decide = asking._within_allowance, asking.Together._decide
    answered: list[bool] = [False]

    def generous(*about: Any) -> tuple[int, bool]:
        spare, fits = weigh(*about)
        return spare, fits or answered[0]

    def decide_by(self: Any, key: str, costs: Any, rule: asking.DecidingRule, *rest: Any) -> Any:
        answered[0] = rule is asking.DecidingRule.ALLOWANCE
        try:
            return decide(self, key, costs, rule, *rest)
        finally:
            answered[0] = False

    monkeypatch.setattr(asking, "_within_allowance", generous)
    monkeypatch.setattr(asking.Together, "_decide", decide_by)

    assert any("more than declared" in problem for problem in _problems(SAFETY, range(40)))


@pytest.mark.slow
def test_a_request_that_is_charged_before_it_is_answered_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants a charge when it joins the batch: what is cancelled, or refused in the end, has been used all the same."""
    join = asking.Together._join

    def charge_at_once(self: Any, key: str, costs: Any, cells: Any, now_ns: int) -> bool:
        asked: bool = join(self, key, costs, cells, now_ns)
        for table, cell, cost in zip(self.tables, cells[-len(self.tables) :], costs, strict=True):
            commit(table, cell, cost, 0, True, now_ns)
        return asked

    monkeypatch.setattr(asking.Together, "_join", charge_at_once)

    assert any("but the hub reports" in problem for problem in _problems(LIVENESS, range(8, 30)))


def test_small_limits_about_which_requests_ask_are_drawn_often() -> None:
    """In *safety* more than a quarter: of the algorithms that are kept at the hub, on fleets of two nodes and more."""
    drawn = [draw_case(SAFETY, seed).experiment.fleet for seed in range(100)]
    scarce = [fleet for fleet in drawn if fleet.asks is not None and fleet.limit.capacity < SMALL * fleet.nodes]

    assert len(scarce) > 25
    assert {FIXED_WINDOW, SLIDING_WINDOW} <= {fleet.limit.algorithm for fleet in scarce}
    assert {2, 8} <= {fleet.nodes for fleet in scarce}


@pytest.mark.slow
def test_a_grant_that_is_not_booked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants a hub that grants what waits and does not write it down: the next node that asks is granted it, too."""
    grant = HubAsk.grant

    def unbooked(
        self: HubAsk, cell: ledger.LedgerCell, node: str, entry: ledger.Entry, *rest: Any, **more: Any
    ) -> None:
        before = entry.allowance, entry.vouchers
        grant(self, cell, node, entry, *rest, **more)
        if self.granted:
            entry.allowance, entry.vouchers = before

    monkeypatch.setattr(HubAsk, "grant", unbooked)

    assert any("more than declared" in problem for problem in _problems(SAFETY, SCARCE_SEEDS))


@pytest.mark.slow
def test_vouchers_of_others_that_are_not_reckoned_with_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants a hub for which a node that floats has in use what it has reported, whatever it was granted since."""

    def add(self: ledger.Floating, entry: ledger.Entry) -> None:
        self.held += entry.allowance + entry.debt
        self.current += entry.current
        self.previous += entry.previous

    monkeypatch.setattr(ledger.Floating, "add", add)

    assert any("more than declared" in problem for problem in _problems(SAFETY, SCARCE_SEEDS))


@pytest.mark.slow
def test_use_that_fades_before_its_window_is_over_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants a hub for which use of a node that floats ends with the window, as if the limit had fixed ones."""
    monkeypatch.setattr(ledger.Floating, "rights", lambda self, *_: self.current)

    assert any("more than declared" in problem for problem in _problems(SAFETY, LATER_SCARCE_SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("meter", "seeds"),
    [(windows.SlidingWindow, SCARCE_SEEDS), (windows.FixedWindow, LATER_SCARCE_SEEDS)],
    ids=["SlidingWindow", "FixedWindow"],
)
def test_a_grant_that_outlives_its_window_is_found(
    meter: type[windows.SlidingWindow | windows.FixedWindow], seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plants a node that goes on with what it was granted for the window before.

    It is planted in Python alone: also where the kernel is compiled, Python opens the window for a request in doubt.
    """
    open_window = meter.open_window

    def keep(self: Any, cell: Cell, steps: int, epoch: int) -> None:
        allowance = cell.allowance
        open_window(self, cell, steps, epoch)
        if cell.at_hub and steps == 1:
            cell.allowance = allowance

    monkeypatch.setattr(meter, "open_window", keep)

    assert any("more than declared" in problem for problem in _problems(SAFETY, seeds))


def _problems(mode: str, seeds: range) -> Iterator[str]:
    """All that goes wrong in so many fleets, one fleet after the other, as far as it is asked for."""
    return (problem for seed in seeds for problem in try_case(draw_case(mode, seed)))
