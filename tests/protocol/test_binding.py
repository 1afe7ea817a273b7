"""Goal: what the production code does are steps of the model that is proved; a fault in the code is none.

Method: walks through small worlds, all short paths of events, and seeds of the fuzz, each step bound to the model. Then
guards are taken out of the code one by one.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from reconverge.clock import SECOND_NS
from reconverge.exchange.syncer import Syncer
from reconverge.kernel.engine import COMPILED
from reconverge.kernel.reporting import cell_reports
from reconverge.policies import BALANCED, STRICT
from reconverge.simulation.explore.events import COARSE, FINE, Exploration, limit_of
from reconverge.simulation.model.bound.runs import BOUND_MODES, KINDS, WALK, BoundTask, exploration_of, tried
from reconverge.simulation.model.bound.small_cases import SMALL
from reconverge.simulation.model.bound.states import BoundKey, KeyTerms
from reconverge.simulation.model.bound.watching_hub import class_of, is_bound
from reconverge.simulation.model.bound.worlds import BoundRun, bound_path
from reconverge.simulation.model.guards import MeterClass
from reconverge.simulation.model.proving import actions_of, laws
from reconverge_sync.merge import hearing, rule, windows
from reconverge_sync.merge.ledger import Entry, LedgerCell

in_python = pytest.mark.skipif(COMPILED, reason="the compiled kernel does not show what its objects hold")

FIXED = Exploration("fixed", 4, "strict", asking=False, grain=FINE)
OVERDRAWN = FIXED._replace(policy="balanced", quota=6)
SHORT = ("hits all 0", "exchanges 0", "exchanges 1", "loses data 0", "interval", "after the edge")
DEPTH = 3
WALKS, FUZZED, SMALLS = 12, 4, 40
IN_VAIN = "a node goes on after it has left in vain"
"""An action that no node of the fuzz makes: there a node that has left is replaced by another one."""
NEVER = {"a node hears a stray answer", "a name comes back"}
"""Actions that only the model without a guard has."""


def actions() -> set[str]:
    """Returns the names of all actions of the model that may happen."""
    return {action for law in laws() for action in actions_of(law)} - NEVER


def test_walks_and_fuzz_runs_are_bound_by_a_command() -> None:
    """The command binds some of each, and prints what was accepted; it takes the kernel in Python by itself."""
    command = [sys.executable, "-m", "reconverge.simulation.model", "--bind", "--runs", "4", "--start", "100"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
    assert " 0 were rejected" in done.stdout
    assert "a batch is merged" in done.stdout


@in_python
@pytest.mark.parametrize("seed", range(WALKS))
def test_walks_are_steps_of_the_model(seed: int) -> None:
    """Every step of a random walk through a small world is a step of the model."""
    _, run = tried(BoundTask(seed, WALK))

    assert run.rejected == ""
    assert run.accepted.total() > 0


@in_python
@pytest.mark.parametrize(("mode", "seed"), [*product(BOUND_MODES[1:], range(FUZZED))])
def test_fuzz_runs_are_steps_of_the_model(mode: str, seed: int) -> None:
    """Every step of a fuzz run is a step of the model, if the model has such limits."""
    _, run = tried(BoundTask(seed, mode))

    assert run.rejected == ""
    assert bool(run.accepted) is run.covered


@in_python
def test_small_cases_of_the_fuzz_are_steps_of_the_model_and_take_all_its_actions() -> None:
    """Each is of a limit that the model has, and together they miss no action."""
    runs = [tried(BoundTask(seed, SMALL))[1] for seed in range(SMALLS)]

    assert [] == [run.rejected for run in runs if run.rejected or not run.covered]
    assert actions() - {IN_VAIN} == {action for run in runs for action in run.accepted}


@in_python
@pytest.mark.parametrize("late", [(), ("late 0",), ("exchanges 0", "late 0")])
@pytest.mark.parametrize("policy", ["strict", "balanced"])
def test_a_node_that_has_left_in_vain_may_go_on(policy: str, late: tuple[str, ...]) -> None:
    """Its last report may be lost, end its name after all, or be outdated when it arrives."""
    case = FIXED._replace(policy=policy, quota=6)

    run = bound_path(case, ("hits 0", "exchanges 0", "leaves in vain 0", *late, "hits all 0", "rests 0", "hits all 0"))

    assert run.rejected == ""
    assert run.accepted[IN_VAIN] == 1


@in_python
@pytest.mark.parametrize("policy", ["strict", "balanced"])
def test_all_short_paths_are_steps_of_the_model(policy: str) -> None:
    """So is every order of a few events."""
    runs = [bound_path(FIXED._replace(policy=policy), path) for path in product(SHORT, repeat=DEPTH)]

    assert [] == [run.rejected for run in runs if run.rejected]


@in_python
def test_after_a_loss_a_node_need_not_report_requests_of_a_window_that_is_over() -> None:
    """Its lease is renewed though the new data lack them: the hub grants nothing of that window any more."""
    used = ("hits all and exchanges 0", "hits all and exchanges 0", "rests long 0")

    run = bound_path(FIXED._replace(grain=COARSE), (*used, "loses data 0", "exchanges 0", "exchanges 0"))

    assert run.rejected == ""
    assert run.accepted["a node hears of other keys"] > 0


STORIES = {
    "an answer without the key, from lost data, arrives after the wait and renews the lease of a node without any": (
        Exploration("slices", 6, "strict at nodes", asking=False, grain=FINE),
        ("sends 1", "arrives 1", "loses data 0", "hits all 0", "exchanges 0", "edge", "rests 0"),
    ),
    "a process that may be a copy ends its lease with an answer": (
        Exploration("fixed", 6, "strict", asking=True, grain=FINE),
        ("rests 1", "hits all 0", "sends 0", "loses data 0", "is restored 0", "rests 1"),
    ),
    "a node whose lease is over gives up what it holds when it hears of other keys": (
        Exploration("slots", 5, "balanced", asking=False, grain=FINE, window_s=3.0),
        (
            *("hits all 1", "rests 1", "hits 1", "rests 0", "rests 1", "rests 0", "rests 1"),
            *("silence", "sends 1", "arrives 1", "rests long 1"),
        ),
    ),
    "a node under a new name admits one request by what it heard under the old one": (
        Exploration("slots", 5, "balanced at nodes", asking=False, grain=FINE, window_s=3.0),
        ("dear hit 1", "rests 1", "is restored 1", "sends 1", "hits 1"),
    ),
}


@in_python
@pytest.mark.parametrize("name", STORIES)
def test_no_walk_that_was_once_rejected_is_rejected_again(name: str) -> None:
    """In each the code was right, and the model too narrow."""
    case, story = STORIES[name]

    assert bound_path(case, story).rejected == ""


@in_python
def test_an_answer_that_outlives_the_wait_after_a_loss_ends_the_checks() -> None:
    """Outside `strict` the proof assumes that there is none."""
    case = Exploration("fixed", 6, "balanced", asking=True, grain=FINE)

    run = bound_path(case, ("sends 1", "arrives 1", "settles 0", "loses data 1", "rests 0"))

    assert (run.rejected, run.outside) == ("", "an answer from before a loss of data arrives after the wait")


def test_a_name_that_has_left_is_followed_until_its_node_has_no_use_for_it() -> None:
    """The answer to its last report may be lost, and windows may pass before it makes that report again."""
    binding = BoundKey(KeyTerms(MeterClass.WINDOW, True, SECOND_NS, SECOND_NS, SECOND_NS, 4, 0, 0), now_ns=0)
    left, _ = binding.begin("name-1.0"), binding.begin("name-2.0")
    binding.step(left, "a node sends of other keys", {"errand.leaves": True})
    binding.step(left, "a batch of other keys is merged")
    for window in range(1, 5):
        binding.passes(window * SECOND_NS)
        binding.opens(window)

    binding.step(left, "a node gives up its batch", {"late.there": False})
    assert "name-1.0" in binding.names

    left.of_node = False
    binding.opens(5)
    assert "name-1.0" not in binding.names


def test_a_name_whose_process_has_died_is_followed_while_its_batch_may_arrive() -> None:
    """The hub may then answer it, and count what it grants."""
    binding = BoundKey(KeyTerms(MeterClass.WINDOW, True, SECOND_NS, SECOND_NS, SECOND_NS, 4, 0, 0), now_ns=0)
    died, _ = binding.begin("name-1.0"), binding.begin("name-2.0")
    binding.step(died, "a node sends of other keys", {"errand.leaves": False})
    binding.step(died, "a name ends")
    died.of_node = False

    binding.forget_old()
    assert "name-1.0" in binding.names

    binding.step(died, "a batch of other keys is merged")
    binding.forget_old()
    assert "name-1.0" not in binding.names


@in_python
def test_walks_go_through_all_classes_and_nearly_all_actions() -> None:
    """So it is not nothing that is accepted: together the walks take most actions, each class among them."""
    cases = [exploration_of(seed) for seed in range(WALKS)]
    accepted = {action for seed in range(WALKS) for action in tried(BoundTask(seed, WALK))[1].accepted}

    assert {case.kind for case in cases} == set(KINDS)
    assert len(accepted) > len(actions()) // 2
    assert accepted <= actions()


@pytest.mark.parametrize("kind", ["sliding", "tokens", "first hit", "gcra"])
def test_other_limits_are_not_followed(kind: str) -> None:
    """Limits whose use fades or drains are not of the model, nor are allowances for new keys."""
    assert class_of(limit_of(kind, 4, 2.0)) is None
    assert not is_bound(limit_of(kind, 4, 2.0), STRICT)
    assert not is_bound(limit_of("fixed", 4, 2.0), BALANCED)


def _run(case: Exploration, *names: str) -> BoundRun:
    return bound_path(case, names)


class Planted:
    """Faults in the code, each with events that show it."""

    @staticmethod
    def report_before_lowering(patch: pytest.MonkeyPatch) -> BoundRun:
        said = cell_reports._said

        def says_what_it_had(cell: Any, *rest: Any) -> Any:
            report = said(cell, *rest)
            cell.allowance += 1
            return report

        patch.setattr(cell_reports, "_said", says_what_it_had)
        return _run(FIXED, "hits 0", "exchanges 0", "exchanges 0", "sends 0")

    @staticmethod
    def lease_from_the_answer(patch: pytest.MonkeyPatch) -> BoundRun:
        merged = Syncer.merged

        def later(self: Syncer, batch: Any, answer: Any, *, sent_ns: int, now_ns: int) -> None:
            merged(self, batch, answer, sent_ns=now_ns, now_ns=now_ns)

        patch.setattr(Syncer, "merged", later)
        return _run(FIXED, "hits 0", "sends 0", "arrives 0", "interval", "hears 0")

    @staticmethod
    def lease_after_a_loss(patch: pytest.MonkeyPatch) -> BoundRun:
        patch.setattr("reconverge.kernel.kernel.Kernel.say_everything_again", lambda _, shard_index: None)
        return _run(FIXED, "hits 0", "exchanges 0", "loses data 0", "silence", "exchanges 0")

    @staticmethod
    def allowance_of_another_window(patch: pytest.MonkeyPatch) -> BoundRun:
        patch.setattr("reconverge.kernel.algorithms.windows.FixedWindow.open_window", _opens_with_the_last_allowance)
        return _run(FIXED, "hits 0", "exchanges 0", "edge", "after the edge", "hits all 0")

    @staticmethod
    def no_lowering_at_the_hub(patch: pytest.MonkeyPatch) -> BoundRun:
        def raises(cell: LedgerCell, entry: Entry, report: Any, its_rule: Any) -> None:
            hearing.lower(cell, entry, report, its_rule)
            entry.base += cell.capacity

        patch.setattr(rule, "lower", raises)
        return _run(FIXED, "hits 0", "exchanges 0", "interval", "exchanges 0", "silence", "exchanges 0")

    @staticmethod
    def bases_beyond_the_capacity(patch: pytest.MonkeyPatch) -> BoundRun:
        patch.setattr("reconverge_sync.merge.granting.raise_base", _raises_whole_base)
        return _run(FIXED, "hits 0", "exchanges 0", "hits 1", "exchanges 1")

    @staticmethod
    def base_of_the_window_before(patch: pytest.MonkeyPatch) -> BoundRun:
        patch.setattr(rule, "place_epoch", lambda limit, its, report, known, hub_us: known or _epoch(limit, hub_us))
        return _run(FIXED, "hits 0", "exchanges 0", "edge", "after the edge", "hits 0", "exchanges 0")

    @staticmethod
    def departed_without_use(patch: pytest.MonkeyPatch) -> BoundRun:
        depart = Entry.depart

        def departs(self: Entry, *rest: Any) -> None:
            self.allowance = 0
            depart(self, *rest)

        patch.setattr(Entry, "depart", departs)
        waits = ("interval", "exchanges 1")
        case = FIXED._replace(window_s=10.0)
        return _run(case, "hits 0", "exchanges 0", "dies 0", "lease", "hits 1", "exchanges 1", *waits, *waits, *waits)

    @staticmethod
    def overdraft_given_away(patch: pytest.MonkeyPatch) -> BoundRun:
        take_counts = hearing.take_counts

        def forgets_it(cell: LedgerCell, entry: Entry, *rest: Any) -> None:
            take_counts(cell, entry, *rest)
            entry.overdraft = 0

        patch.setattr(rule, "take_counts", forgets_it)
        return _run(OVERDRAWN, "hits 0", "exchanges 0", "interval", "hits all 0", "leaves 0")

    @staticmethod
    def use_beyond_an_allowance(patch: pytest.MonkeyPatch) -> BoundRun:
        patch.setattr("reconverge.kernel.table.slow_path.spare_of", lambda *_: 1)
        return _run(FIXED, "hits 0", "exchanges 0", "hits all 0")


def _opens_with_the_last_allowance(_: object, cell: Any, steps: int, epoch: int) -> None:
    del steps
    cell.counted = cell.used = cell.others_current = 0
    cell.epoch = epoch
    cell.base = cell.allowance = cell.allowance + 1


def _raises_whole_base(cell: LedgerCell, entry: Entry, report: Any, its_rule: Any, *, small_allowances: bool) -> None:
    del report, its_rule, small_allowances
    entry.base = cell.capacity


def _epoch(limit: Any, hub_us: int) -> int:
    return windows.uniform_epoch(limit, hub_us, -1)


PLANTED: dict[str, Callable[[pytest.MonkeyPatch], BoundRun]] = {
    name: getattr(Planted, name) for name in vars(Planted) if not name.startswith("_")
}


@in_python
@pytest.mark.parametrize("fault", PLANTED)
def test_a_fault_in_the_code_is_no_step_of_the_model(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a guard is missing in the code, a step is rejected; the same events are accepted with the guard."""
    assert PLANTED[fault](_Harmless()).rejected == ""  # type: ignore[arg-type]

    assert PLANTED[fault](monkeypatch).rejected != ""


class _Harmless:
    """Changes nothing."""

    def setattr(self, *_: object) -> None:
        """Leaves the code as it is."""
