"""Work is shared among processes, and nobody can tell by the results."""

from __future__ import annotations

import os
import signal

import pytest

from reconverge.policies import BALANCED, STRICT
from reconverge.simulation import Experiment, Traffic, run
from reconverge.simulation.studies.experiment import mapped
from tests.simulation.test_world import FLEET


def where(number: int) -> tuple[int, int]:
    """The number, and the process that has seen it; for the first of them it takes longest."""
    assert sum(range(3_000_000 if number == 0 else 1)) >= 0
    return number, os.getpid()


def deaf_to_interrupts(number: int) -> bool:
    """Whether Ctrl-C would pass this process by."""
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_results_come_in_the_order_of_the_tasks() -> None:
    """Whichever process was quicker."""
    results = list(mapped(where, range(20), processes=2))

    assert list(range(20)) == [number for number, _ in results]
    assert os.getpid() not in {process for _, process in results}


@pytest.mark.parametrize(("tasks", "processes"), [(range(5), 1), (range(1), 8), (range(0), 8)])
def test_no_process_is_started_for_nothing(tasks: range, processes: int) -> None:
    """One process, or one task, is for this one."""
    assert [(number, os.getpid()) for number in tasks] == list(mapped(where, tasks, processes=processes))


def test_ctrl_c_is_for_the_parent_alone() -> None:
    """It ends its workers; they need not say so, too."""
    assert [True, True] == list(mapped(deaf_to_interrupts, range(2), processes=2))


def test_two_processes_find_what_one_finds() -> None:
    """To the last figure."""
    experiment = Experiment(FLEET, Traffic("onoff", 3.0), 3, 1, ("loss:20%@0w+2w",))
    alone = run(experiment, [STRICT, BALANCED], range(2))

    assert alone == run(experiment, [STRICT, BALANCED], range(2), processes=2)


def test_every_run_is_watched() -> None:
    """For whoever wants to show how far it is."""
    seen: list[int] = []
    experiment = Experiment(FLEET, Traffic("uniform", 1.0), 2, 0)
    run(experiment, [STRICT, BALANCED], range(3), watch=lambda: seen.append(1))

    assert 6 == len(seen)
