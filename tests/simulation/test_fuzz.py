"""The fuzz finds nothing in the first seeds, finds what is planted, and tells how to see it again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from reconverge.hub.report import Answer, Batch, CellAnswer
from reconverge.kernel import Cell, Table
from reconverge.kernel.algorithms.paced import PacedTerms
from reconverge.kernel.table import table
from reconverge.kernel.table.changes import adapt_to_quota
from reconverge.limit import ALGORITHMS
from reconverge.policies import STRICT
from reconverge.simulation import PATTERNS, Traffic, fuzz, world
from reconverge.simulation.cases import ELECTED, LIVENESS, REGIONS, SAFETY, draw_case
from reconverge.simulation.fault import FaultKind
from reconverge.simulation.fuzz import FuzzTask, Tried, try_case
from reconverge.simulation.reckless import SilenceCount
from reconverge_sync.memory import MemoryHub
from reconverge_sync.merge import granting, ledger
from tests.support.effort import tried

ALL_BUT_REGIONS = (SAFETY, LIVENESS, ELECTED)
SEEDS = range(tried(24, long=200))
SEEDS_OF_REGIONS = range(tried(36, long=0), tried(45, long=46))
"""Each takes as long as three others. A bridge that does not wait for its hub, as planted in
`test_regions.py`, is found by the seed 44, and by none of the ten before it."""


@pytest.mark.slow
@pytest.mark.timeout(1500)  # it has work for minutes, of which the others on the machine take their part
@pytest.mark.parametrize(
    ("modes", "seeds"), [(ALL_BUT_REGIONS, SEEDS), ((REGIONS,), SEEDS_OF_REGIONS)], ids=["one hub", "regions"]
)
def test_no_bound_is_broken_and_nothing_lost_in_random_fleets(modes: tuple[str, ...], seeds: range) -> None:
    """All modes, whatever the draw brings; a failing seed is printed as a command."""
    chosen = [word for mode in modes for word in ("--mode", mode)]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "reconverge.simulation.fuzz"),
            *("--start", str(seeds.start), "--seeds", str(len(seeds)), *chosen),
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stdout + done.stderr
    assert f"fuzz: {len(modes) * len(seeds)} passed, 0 failed" in done.stdout


def test_a_seed_always_draws_the_same_case() -> None:
    """A failing seed fails again."""
    for mode in fuzz.CASES:
        assert str(draw_case(mode, 11)) == str(draw_case(mode, 11))


def test_a_case_tells_the_command_that_tries_it_again() -> None:
    """Mode and seed are all that it takes."""
    assert "python -m reconverge.simulation.fuzz --mode safety --start 11 --seeds 1" == draw_case(SAFETY, 11).command()


def test_a_hub_that_grants_what_it_does_not_have_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants allowances beyond the capacity, of which nodes are told, too; that must break a bound before long."""
    monkeypatch.setattr(granting, "_raise", partial(_generous, granting._raise))
    monkeypatch.setattr(ledger, "_within", lambda amount, _sum, _room: amount)

    assert any(try_case(draw_case(SAFETY, seed)) for seed in range(10, 50))


def test_a_hub_that_calls_too_much_free_is_found_before_anything_is_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants answers that call two more free than there is; no node admits anything by that."""
    answer_of = ledger.LedgerCell.answer

    def generous(
        cell: ledger.LedgerCell, rule: ledger.LimitRule, node: str, entry: ledger.Entry, hub_us: int, lent: int = 0
    ) -> CellAnswer:
        answer = answer_of(cell, rule, node, entry, hub_us, lent)
        return answer._replace(free=answer.free + 2)

    monkeypatch.setattr(ledger.LedgerCell, "answer", generous)

    assert any("more than there is" in problem for problem in _problems(SAFETY))


def test_allowances_that_are_not_lowered_with_the_quota_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants nodes that go on by the allowances of the former quota until their next exchange."""

    def keep(limit: Table, cell: Cell, before: int, former: PacedTerms | None, now_ns: int) -> None:
        adapt_to_quota(limit, cell, min(before, limit.capacity), former, now_ns)

    monkeypatch.setattr(table, "adapt_to_quota", keep)

    assert any(try_case(draw_case(SAFETY, seed)) for seed in range(26, 30))


@pytest.mark.parametrize("mode", [SAFETY, LIVENESS])
def test_a_hub_that_counts_a_batch_twice_is_found(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants every batch again under another name, as a protocol of increments would count a repeated message."""
    monkeypatch.setattr(world, "open_merge_rule", _Doubling)

    assert any("was charged" in problem for problem in _problems(mode))


@pytest.mark.slow
def test_a_hub_that_tells_one_node_less_than_the_others_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants a view that never agrees, however long nothing happens; safety alone would not see it."""
    monkeypatch.setattr(world, "open_merge_rule", _Whispering)

    assert any("the nodes think" in problem or "hears of" in problem for problem in _problems(LIVENESS))


def test_a_seed_that_fails_in_a_way_nobody_foresaw_is_told_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants a merge that raises; the seeds after it are tried all the same."""
    monkeypatch.setattr(world, "open_merge_rule", lambda **_: _Broken())

    tried_seed = fuzz._try_seed(FuzzTask(SAFETY, 3))

    assert ["ZeroDivisionError: planted"] == tried_seed.problems


def test_nodes_agree_when_a_name_that_one_of_them_gave_up_has_ended_too() -> None:
    """Replies are lost for longer than a lease: what the former name may have used begins to count at the hub later."""
    assert [] == try_case(draw_case(LIVENESS, 51403))


@pytest.mark.parametrize("mode", [SAFETY, LIVENESS])
def test_what_the_promises_exclude_is_not_drawn(mode: str) -> None:
    """Data are lost only while every node that was ever heard of is still there, and outside strict in touch."""
    for seed in range(300):
        case = draw_case(mode, seed)
        faults = [FaultKind(text.partition("@")[0].partition(":")[0]) for text in case.experiment.faults]
        fleet = case.experiment.fleet
        if FaultKind.LOSE_DATA in faults:
            assert FaultKind.CRASH not in faults
            assert (fleet.lease_ns or 0) > case.experiment.windows * fleet.limit.window_ns
            assert case.policy is STRICT or [FaultKind.LOSE_DATA] == faults


def test_everything_that_is_to_be_tried_is_drawn_before_long() -> None:
    """Every fault, algorithm, pattern and policy, with keys and costs of more than one."""
    cases = [draw_case(mode, seed) for mode in (SAFETY, LIVENESS) for seed in range(200)]
    faults = {text.partition("@")[0].partition(":")[0] for case in cases for text in case.experiment.faults}
    traffics = [traffic for case in cases if isinstance(traffic := case.experiment.traffic, Traffic)]

    assert {kind.value for kind in FaultKind} == faults
    assert set(ALGORITHMS) == {case.experiment.fleet.limit.algorithm for case in cases}
    assert set(PATTERNS) == {traffic.pattern for traffic in traffics}
    assert {"strict", "balanced", "available"} == {case.policy.name for case in cases}
    assert {1, 2, 3} == {len(case.experiment.fleet.quotas) for case in cases}
    assert max(case.experiment.fleet.limit.soft for case in cases) > 0
    assert max(traffic.keys for traffic in traffics) > 1
    assert max(traffic.cost_max for traffic in traffics) > 1
    changed = [fleet for seed in range(400) if (fleet := draw_case(SAFETY, seed).experiment.fleet).changes]
    assert set(ALGORITHMS) == {fleet.limit.algorithm for fleet in changed}
    quotas = [(change.limit.quota, fleet.limit.quota) for fleet in changed for change in fleet.changes]
    assert any(after > before for after, before in quotas)
    assert any(after < before for after, before in quotas)


def test_a_failing_seed_ends_the_command_with_its_own_reproduction(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status is 1, and the output can be pasted."""
    monkeypatch.setattr(fuzz, "_try_seed", lambda task: Tried(task, ["planted"], SilenceCount()))

    status = fuzz.main(["--seeds", "1", "--mode", "safety", "--processes", "1"])

    assert 1 == status
    assert "--mode safety --start 0 --seeds 1\n" in capsys.readouterr().out


def _generous(grant: Callable[..., int], *arguments: object) -> int:
    """The rule for raising allowances, told that everything is free."""
    *others, _ = arguments
    return grant(*others, 10**9)


def _problems(mode: str) -> Iterator[str]:
    """All that goes wrong in twenty fleets, one fleet after the other, as far as it is asked for."""
    return (problem for seed in range(20) for problem in try_case(draw_case(mode, seed)))


class _Doubling(MemoryHub):
    """Hears everything twice."""

    def merge(self, batch: Batch) -> Answer:
        super().merge(batch._replace(node=f"{batch.node} again", account=f"{batch.account} again"))
        return super().merge(batch)


class _Whispering(MemoryHub):
    """Tells the first node half of what it knows."""

    favourite = ""

    def merge(self, batch: Batch) -> Answer:
        answer = super().merge(batch)
        self.favourite = self.favourite or batch.account
        if batch.account != self.favourite:
            return answer
        return answer._replace(cells=tuple(cell._replace(current=cell.current // 2) for cell in answer.cells))


class _Broken(MemoryHub):
    """Fails in a way that nobody has foreseen."""

    def merge(self, batch: Batch) -> Answer:
        raise ZeroDivisionError("planted")
