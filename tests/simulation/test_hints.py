"""Goal: a simulated fleet can hint, and one that does not is as it was.

Method: the same traffic with hints, with hints that are all lost, and without.
"""

from __future__ import annotations

from dataclasses import replace

from reconverge.clock import SECOND_NS
from reconverge.limit import Limit
from reconverge.policies import STRICT
from reconverge.simulation.experiment import Experiment, run
from reconverge.simulation.figures import Figures
from reconverge.simulation.fleet import Fleet, Hinted
from reconverge.simulation.pattern import Traffic

FLEET = Fleet(8, Limit(200, 10.0, algorithm="sliding-window"), 5 * SECOND_NS)
BURST = Traffic("burst", 3.0)


def figures(hinted: Hinted | None) -> Figures:
    """Of a burst of requests for a key that is new to all."""
    experiment = Experiment(replace(FLEET, hinted=hinted), BURST, windows=1, warmup=0)
    return run(experiment, [STRICT], range(5))[0][STRICT.name]


def test_hints_that_never_arrive_change_nothing() -> None:
    """To the last request."""
    assert figures(None) == figures(Hinted(lost=1.0))


def test_hints_bring_lines_to_where_they_are_needed() -> None:
    """Of a burst on a new key much less is refused too early, and nothing is admitted above the limit."""
    without, hinted = figures(None), figures(Hinted())

    assert 0 == hinted.bound_violations == hinted.over_max_pct
    assert hinted.under_mean_pct < without.under_mean_pct / 2
