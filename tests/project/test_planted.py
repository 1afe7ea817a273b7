"""Goal: the table of planted faults stays true: each fault can still be planted, and a finder still finds one.

Method: the texts that are replaced are counted in the code as it is, and one fault is planted that exploration finds
within seconds.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bench.planted.catalogue import FAULTS
from bench.planted.fault import Patch, PlantedFault
from bench.planted.finders import BINDING, EXPLORATION, FINDERS, MODEL, command_of, is_followed
from bench.planted.page import RESULTS, KeptOutcome, kept, page
from bench.planted.trying import FOUND, NOT_FOUND, NOT_TRIED, WHOLE, planted, try_finder
from chaos.scenarios.catalogue import NAMES
from reconverge.clock import SECOND_NS
from reconverge.simulation.explore.events import Exploration, named
from reconverge.simulation.model.bound.runs import BoundTally, BoundTask
from reconverge.simulation.model.bound.small_cases import SMALL
from reconverge.simulation.model.bound.states import BoundKey, KeyTerms, UnboundStep
from reconverge.simulation.model.guards import MeterClass

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "bench" / "results"
SECONDS_MAX = 120.0

by_name = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)


def fault_of(name: str) -> PlantedFault:
    """The fault of that name."""
    return next(fault for fault in FAULTS if fault.name == name)


def test_there_are_faults_enough_and_no_two_of_one_name() -> None:
    """At least 25; and no guard is taken out twice."""
    guards = [fault.guard for fault in FAULTS if fault.guard is not None]

    assert 25 <= len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert len(set(guards)) == len(guards)


@by_name
def test_the_code_has_each_text_that_a_fault_replaces_once(fault: PlantedFault) -> None:
    """Code that was changed since needs another patch; and each patch changes something."""
    for patch in fault.patches:
        assert 1 == patch.occurrences(ROOT), f"{patch.file}: {patch.old}"
        assert patch.old != patch.new


@by_name
def test_a_search_begins_with_events_that_there_are(fault: PlantedFault) -> None:
    """Of its kind of limit and its grain."""
    case = fault.case
    explored = Exploration(case.kind, case.quota, case.policy, case.asking, case.grain, more=case.more)

    assert set(case.start) <= set(named(explored.events()))


def test_a_patch_whose_text_is_gone_is_not_applied(tmp_path: Path) -> None:
    """Nothing would be planted, and a finder would find nothing."""
    (tmp_path / "one.py").write_text("a = 1\na = 1\n")

    for old in ("a = 2\n", "a = 1\n"):
        with pytest.raises(ValueError, match=r"one\.py does not have this exactly once"):
            Patch("one.py", old, "").apply(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("finder", "words"), [(EXPLORATION, "beyond the limit"), (BINDING, "a precondition of the action")]
)
def test_a_finder_finds_a_fault_within_seconds_and_without_it_none(finder: str, words: str) -> None:
    """A node that admits one too many; the code as it is shows nothing in as many seconds."""
    fault = fault_of("one too many")
    sound = fault._replace(patches=())
    with planted(fault) as root:
        outcome = try_finder(finder, fault, root, SECONDS_MAX)
    with planted(sound) as root:
        nothing = try_finder(finder, sound, root, 2 * outcome.seconds)

    assert FOUND == outcome.status
    assert words in outcome.words
    assert NOT_FOUND == nothing.status


def test_the_finder_by_binding_knows_a_rejected_step_by_its_message() -> None:
    """A line for the step and why it is rejected, among lines of the case, of progress and of the table."""
    terms = KeyTerms(
        MeterClass.WINDOW,
        strict=True,
        window_ns=SECOND_NS,
        counts_ns=SECOND_NS,
        lease_ns=SECOND_NS,
        capacity=4,
        overdrafts=0,
        request=0,
    )
    binding = BoundKey(terms, now_ns=0)
    with pytest.raises(UnboundStep) as rejected:
        binding.step(binding.begin("name-1.0"), "a node admits a request", {"node.used": 1})
    task, tally = BoundTask(7, SMALL), BoundTally(runs=1, covered=1, steps=Counter({"time passes": 2}))
    command = command_of(BINDING, FAULTS[0])
    assert command is not None

    assert command.shows.search(str(rejected.value))
    assert not command.shows.search("\n".join((str(task), str(task.case()), str(tally), *tally.lines())))


@by_name
def test_a_fault_names_scenarios_of_chaos_that_there_are_or_the_reason_why_there_is_none(fault: PlantedFault) -> None:
    """The page states the reason."""
    assert {fault.chaos, *fault.followed} - {""} <= set(NAMES)
    assert bool(fault.chaos) != bool(fault.beyond_chaos)


def test_a_finder_that_has_nothing_to_try_is_left_out() -> None:
    """The model, of a fault that takes no guard out; the binding, of a limit that the model lacks."""
    fault = fault_of("one too many")._replace(guard=None, modelled=False)

    assert NOT_TRIED == try_finder(MODEL, fault, ROOT, SECONDS_MAX).status
    assert NOT_TRIED == try_finder(BINDING, fault, ROOT, SECONDS_MAX).status


def test_the_page_has_a_row_for_each_fault_and_the_kept_one_is_of_these_results() -> None:
    """Also of faults that no finder has tried."""
    outcome = KeptOutcome(status=WHOLE, seconds=1.0, within=9.0, words="")
    found = {FAULTS[0].name: {MODEL: outcome}}
    rows = [row for row in page(found).splitlines() if row.startswith("| ")]

    assert all(any(row.startswith(f"| {fault.name} |") for row in rows) for fault in FAULTS)
    assert "proved without it" in page(found)
    uncovered = sum((not fault.modelled) + (not fault.chaos) + (not is_followed(fault)) for fault in FAULTS)
    assert uncovered == page(found).count(" uncovered")
    assert set(kept(KEPT)) <= {fault.name for fault in FAULTS}, RESULTS
    assert all(set(outcomes) <= set(FINDERS) for outcomes in kept(KEPT).values())
