"""The figures of a run, compared with what comes out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconverge.limit import SLIDING_WINDOW, TOKEN_BUCKET, Limit
from reconverge.policies import BALANCED, STRICT, Policy
from reconverge.simulation.studies.figures import RunFigures, judge_run, summed_up
from reconverge.simulation.truth import DecidedRequest
from tests.support.judged import WINDOW_NS, at, crowd, request, ten

PROMISED = {
    "over_mean_pct",
    "over_p99_pct",
    "over_max_pct",
    "under_mean_pct",
    "under_max_pct",
    "messages_per_node_window",
    "bound_pct",
    "bound_violations",
}
"""The figures of `reconverge simulate --json` for every policy."""


def judged(
    *requests: DecidedRequest,
    limit: Limit | None = None,
    policy: Policy = STRICT,
    messages: tuple[int, ...] = (),
    windows: int = 3,
    warmup: int = 0,
    first: int = 0,
    restarts: int = 0,
) -> RunFigures:
    """The figures of four nodes that share ten per ten seconds."""
    return judge_run(
        limit or ten(),
        policy,
        list(requests),
        messages,
        nodes=4,
        restarts=restarts,
        windows=windows,
        warmup=warmup,
        begin_ns=first * WINDOW_NS,
    )


QUIET = RunFigures(
    over_pct=[0.0],
    under_pct=[0.0],
    messages_per_node=[1.0],
    bound_pct=0.0,
    broken={},
    admitted=100,
    exceeding=0,
    ideal=100,
    busiest="ada",
    busiest_by_window=[100],
)


def test_over_admission_is_what_was_admitted_above_the_limit_in_percent_of_it() -> None:
    """Twelve of ten are a fifth too many, window by window."""
    figures = judged(*crowd(12, at(1)), *crowd(10, at(11)), *crowd(13, at(21)))

    assert [20.0, 0.0, 30.0] == figures.over_pct


def test_of_a_bucket_the_percentage_is_of_its_capacity() -> None:
    """Five in a bucket of four are a quarter too many, whatever the quota."""
    figures = judged(*crowd(5, at(0)), limit=ten(TOKEN_BUCKET, burst=4), windows=1)

    assert [25.0] == figures.over_pct


def test_under_admission_is_never_negative() -> None:
    """The excess of one window does not make up for the lack in another."""
    refused = crowd(4, at(12), allowed=False)
    figures = judged(*crowd(13, at(1)), *crowd(6, at(11)), *refused, windows=2)

    assert [0.0, 40.0] == figures.under_pct


def test_the_warm_up_is_left_out_of_every_figure_but_the_broken_bounds() -> None:
    """A promise has no warm-up."""
    requests = [*crowd(12, at(1)), *crowd(11, at(11)), *crowd(10, at(21))]
    figures = judged(*requests, messages=(40, 8, 4), warmup=2)

    assert [0.0] == figures.over_pct
    assert [0.0] == figures.under_pct
    assert [1.0] == figures.messages_per_node
    assert (10, 0, 10) == (figures.admitted, figures.exceeding, figures.ideal)
    assert {("ada", 0): 2, ("ada", 1): 1} == figures.broken


def test_windows_are_counted_from_when_the_run_begins() -> None:
    """Which is not when the hub's clock began."""
    requests = [*crowd(12, at(51)), *crowd(11, at(61))]

    assert [10.0] == judged(*requests, first=5, windows=2, warmup=1).over_pct


def test_windows_after_the_end_are_left_out() -> None:
    """A run of two windows has two."""
    requests = [*crowd(11, at(1)), *crowd(11, at(11)), *crowd(15, at(21))]

    assert [10.0, 10.0] == judged(*requests, windows=2).over_pct


def test_a_window_in_which_nothing_was_asked_for_does_not_count() -> None:
    """Nor does one of another key; otherwise rare keys would make every mean look good."""
    requests = [*crowd(12, at(1)), request(1, at(21)), *crowd(11, at(21), key="bob")]

    assert [20.0, 0.0, 10.0] == judged(*requests).over_pct


def test_messages_are_counted_by_node_and_window_and_silence_counts_as_none() -> None:
    """Nobody sent anything in the last window, so it is missing from the history."""
    assert [10.0, 2.0, 0.0] == judged(request(1, at(1)), messages=(40, 8)).messages_per_node


def test_a_window_that_admits_its_bound_keeps_it_and_one_that_admits_more_does_not() -> None:
    """A tenth of ten and one for each of four nodes: five more than ten are declared."""
    assert {} == judged(*crowd(15, at(1)), policy=BALANCED).broken
    assert {("ada", 0): 6} == judged(*crowd(16, at(1)), policy=BALANCED).broken


def test_a_node_that_was_restarted_is_another_node_for_the_bound() -> None:
    """Each process may be over by a request of its own."""
    requests = crowd(16, at(1))

    assert {} == judged(*requests, policy=BALANCED, restarts=1).broken
    assert 60.0 == judged(*requests, policy=BALANCED, restarts=1).bound_pct


def test_what_was_above_the_limit_is_known_apart_from_what_was_admitted() -> None:
    """So that it cannot hide what was refused in other windows."""
    refused = crowd(4, at(12), allowed=False)
    figures = judged(*crowd(13, at(1)), *crowd(6, at(11)), *refused, windows=2)

    assert (19, 3, 20) == (figures.admitted, figures.exceeding, figures.ideal)


def test_the_busiest_key_is_told_with_its_windows() -> None:
    """For a picture, which has room for one: warm-up and silence included, the others left out."""
    requests = [
        request(5, at(1), key="bob"),
        *crowd(2, at(2), key="ada"),
        *crowd(3, at(21), key="ada"),
    ]
    figures = judged(*requests, warmup=1)

    assert "ada" == figures.busiest
    assert [2, 0, 3] == figures.busiest_by_window


def test_a_run_without_requests_has_figures_too() -> None:
    """All are zero."""
    figures = summed_up([judged()])

    assert (0.0, 0.0, 0) == (figures.over_max_pct, figures.under_max_pct, figures.bound_violations)
    assert 0.0 == figures.falsely_refused_pct


def test_the_figures_that_are_promised_are_there() -> None:
    """By name, as JSON."""
    assert set(summed_up([QUIET]).as_json()) >= PROMISED


def test_means_and_extremes_are_those_of_all_windows_of_all_runs() -> None:
    """A run with more windows counts for more."""
    short = replace(QUIET, over_pct=[9.0], under_pct=[2.0], messages_per_node=[4.0], bound_pct=5.0)
    long = replace(QUIET, over_pct=[1.0, 1.0, 1.0], under_pct=[0.0, 0.0, 6.0], messages_per_node=[8.0, 8.0, 8.0])
    figures = summed_up([short, long])

    assert (3.0, 9.0) == (figures.over_mean_pct, figures.over_max_pct)
    assert (2.0, 6.0) == (figures.under_mean_pct, figures.under_max_pct)
    assert (7.0, 5.0) == (figures.messages_per_node_window, figures.bound_pct)


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (99, 99), (100, 99), (101, 100), (200, 198)])
def test_ninety_nine_of_a_hundred_windows_are_not_above_the_99th_percentile(count: int, expected: int) -> None:
    """The smallest value that at least so many do not exceed, in whatever order they come."""
    values = [float(value) for value in range(count, 0, -1)]

    assert expected == summed_up([replace(QUIET, over_pct=values)]).over_p99_pct


def test_bounds_that_were_broken_are_counted_over_all_runs() -> None:
    """By window."""
    broken = replace(QUIET, broken={("ada", 1): 3, ("bob", 1): 1})

    assert 3 == summed_up([broken, QUIET, replace(QUIET, broken={("ada", 1): 3})]).bound_violations


def test_what_is_admitted_one_window_later_was_not_refused_falsely() -> None:
    """Under-admission by window counts it; false refusals are those that nothing made up for."""
    shifted = replace(QUIET, under_pct=[20.0, 0.0])

    assert (10.0, 0.0) == (summed_up([shifted]).under_mean_pct, summed_up([shifted]).falsely_refused_pct)


def test_what_is_admitted_above_the_limit_does_not_make_up_for_false_refusals() -> None:
    """A tenth too little and a fifth too much are not a tenth too much."""
    figures = summed_up([replace(QUIET, admitted=110, exceeding=20)])

    assert (110.0, 10.0) == (figures.admitted_pct, figures.falsely_refused_pct)


def test_false_refusals_are_never_negative() -> None:
    """A fleet that happens to admit more than a central limiter has refused nothing falsely."""
    assert 0.0 == summed_up([replace(QUIET, admitted=105)]).falsely_refused_pct


def test_a_sliding_window_is_judged_as_one() -> None:
    """Ten at the end of a window, and two a second into the next, are one too many."""
    figures = judged(*crowd(10, at(9)), *crowd(2, at(11)), limit=ten(SLIDING_WINDOW), windows=2)

    assert [0.0, 10.0] == figures.over_pct
