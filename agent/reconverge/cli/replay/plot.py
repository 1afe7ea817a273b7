"""Draws a replay: the requested cost of the busiest key, and the cost that each policy admitted, window by window."""

# Theory of operation.
#
# Only the key with the highest demand is drawn: the sum over all keys would hide the effect of a limit on each. The
# windows follow the hub's clock, one after the other, as fixed windows do. Other algorithms may rightly admit more than
# the quota in one of these windows, such as a bucket, which admits its burst and its refill. So the declared bound is
# drawn for fixed windows only; the judgement beside the picture applies to all algorithms.

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from reconverge.cli.replay.figures import figures_rows, verdict_on
from reconverge.cli.replay.fleet import ReplayOutcome
from reconverge.cli.replay.judgement import Judgement, arrivals_of
from reconverge.cli.shared import picture
from reconverge.cli.shared.picture import Chart, Series
from reconverge.clock import SECOND_NS
from reconverge.contracts.explaining import printable
from reconverge.limit.limit import CLOCK, FIXED_WINDOW
from reconverge.policies import POLICIES
from reconverge.simulation.truth import DecidedRequest

KEY_LENGTH_MAX: Final = 60
"""The number of characters of a key that the title shows."""
WINDOWS_MAX: Final = 5000
"""The number of windows that are drawn, from the start; a picture has fewer dots across."""


def save_plot(path: Path, outcome: ReplayOutcome, judgements: list[Judgement]) -> None:
    """Draws a replay into the file `path`: only the chart if it ends in .png; a page with all results if in .html.

    Raises InvalidSetting if the file cannot be written.
    """
    table = [["", *(judgement.policy for judgement in judgements)], *figures_rows(judgements)]
    sentences = [verdict_on(judgement) for judgement in judgements]
    picture.save(chart_of(outcome), path, heading="reconverge replay", sentences=sentences, table=table)


def chart_of(outcome: ReplayOutcome) -> Chart:
    """Returns a chart of the requests and admissions of a replay's busiest key, by window."""
    setup = outcome.setup
    by_policy = [arrivals_of(outcome, number) for number in range(len(setup.policies))]
    asked = Counter[str]()
    for one in by_policy[0]:
        asked[one.key] += one.cost
    key = max(asked, key=lambda each: (asked[each], each), default="")
    of_key = [[one for one in arrivals if one.key == key] for arrivals in by_policy]
    begin_ns = min((one.hub_ns for one in of_key[0]), default=0)
    first = begin_ns // setup.limit.window_ns
    last = max((one.hub_ns for one in of_key[0]), default=0) // setup.limit.window_ns
    windows = range(first, min(last, first + WINDOWS_MAX - 1) + 1)
    start_ns = _start_ns(outcome, by_policy[0])
    return Chart(
        title=f"{printable(key)[:KEY_LENGTH_MAX]} on {setup.nodes} nodes, {setup.limit}",
        moments_s=[(window * setup.limit.window_ns - start_ns) / SECOND_NS for window in windows],
        window_s=setup.limit.window,
        asked=_sums(of_key[0], windows, setup.limit.window_ns, admitted=False),
        quota=setup.limit.quota,
        series=[
            Series(name, _sums(arrivals, windows, setup.limit.window_ns, admitted=True), _bound(outcome, name))
            for name, arrivals in zip(setup.policies, of_key, strict=True)
        ],
        cuts=[(cut.start_s, cut.end_s, f"{len(cut.nodes)} cut off") for cut in setup.cuts],
    )


def _start_ns(outcome: ReplayOutcome, arrivals: Sequence[DecidedRequest]) -> int:
    """Returns when the replay began, by the hub's clock: the times of cuts are seconds after that."""
    setup = outcome.setup
    begun = (one.hub_ns - round(setup.requests[one.number].t_s / setup.speed * SECOND_NS) for one in arrivals)
    return min(begun, default=0)


def _sums(arrivals: Sequence[DecidedRequest], windows: range, window_ns: int, *, admitted: bool) -> list[int]:
    """Returns the cost of the requests in each of `windows`: of all, or only of the admitted ones if `admitted`."""
    sums = Counter[int]()
    for one in arrivals:
        if one.allowed or not admitted:
            sums[one.hub_ns // window_ns] += one.cost
    return [sums[window] for window in windows]


def _bound(outcome: ReplayOutcome, name: str) -> float | None:
    """Returns the most that a window may admit under the policy `name`: the capacity and the declared excess.

    Returns None if the policy declares no bound, or if the limit has no fixed windows by the clock.
    """
    limit, policy = outcome.setup.limit, POLICIES[name]
    if policy.merged_only or limit.counts_as != FIXED_WINDOW or limit.align != CLOCK:
        return None
    return limit.capacity + policy.bound(limit.capacity, outcome.setup.nodes)
