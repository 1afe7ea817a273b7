"""The admissions of one busy key in a replay, by window and by phase: before, during and after an outage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Final

from rich.table import Table

from reconverge.cli.replay.fleet import ReplayOutcome
from reconverge.cli.replay.judgement import arrivals_of
from reconverge.cli.shared.picture import Chart, Series
from reconverge.clock import SECOND_NS
from reconverge.limit.limit import Limit
from reconverge.policies import POLICIES
from reconverge.simulation.truth import DecidedRequest, ideal_admissions

CENTRAL: Final = "one for all"
PARTED: Final = "a part each"
"""The name of limiters that are shown beside the policies: one on each node, each with an equal part of the limit. A
sliding window of whole requests is never quite filled: the last request fits only when nothing is left of the window
before, which is at the window's end. So one limiter misses about one request, and a limiter on each node misses
about one on each: the least that nodes without a hub can miss."""


@dataclass(frozen=True, slots=True)
class _Window:
    """One window of a crowd of clients that share one key: how many requests they made, and how many were admitted."""

    moment_s: float
    phase: int
    asked: int
    admitted: tuple[int, ...]
    """The admissions by policy."""
    central: int
    """The admissions of one limiter that all requests ask."""
    parted: int
    """The admissions of separate limiters, one on each node, each with an equal part of the limit."""


class Crowd:
    """The admissions of a crowd of clients that share one key, by window and by phase of the replay."""

    def __init__(self, outcome: ReplayOutcome, key: str, phases: Sequence[str], phase_s: float) -> None:
        self._setup = outcome.setup
        self._phases = phases
        self._phase_s = phase_s
        arrivals = [
            [one for one in arrivals_of(outcome, number) if one.key == key]
            for number in range(len(outcome.setup.policies))
        ]
        self._central = _admitted(outcome.setup.limit, arrivals[0])
        self._parted = _admitted_in_parts(outcome.setup.limit, arrivals[0], outcome.setup.nodes)
        self._windows = self._by_window(arrivals)
        limit = outcome.setup.limit
        self._bounds = [
            None
            if POLICIES[name].merged_only
            else limit.capacity + POLICIES[name].bound(limit.capacity, outcome.setup.nodes)
            for name in outcome.setup.policies
        ]

    def _by_window(self, arrivals: list[list[DecidedRequest]]) -> list[_Window]:
        window_s = self._setup.limit.window
        begin_s = min(
            one.hub_ns / SECOND_NS - self._setup.requests[one.number].t_s / self._setup.speed for one in arrivals[0]
        )
        epochs = sorted({one.epoch for each in arrivals for one in each})[:-1]  # the last was cut short
        windows = []
        for epoch in epochs:
            moment_s = epoch * window_s - begin_s
            asked = sum(one.epoch == epoch for one in arrivals[0])
            admitted = tuple(sum(one.allowed for one in each if one.epoch == epoch) for each in arrivals)
            phase = min(max(int((moment_s + window_s / 2) // self._phase_s), 0), len(self._phases) - 1)
            floors = self._central.get(epoch, 0), self._parted.get(epoch, 0)
            windows.append(_Window(moment_s, phase, asked, admitted, *floors))
        return windows

    def worst(self, policy_number: int, phase: int) -> int:
        """Returns the most requests that any window in a phase of the replay admitted under one policy."""
        return max(window.admitted[policy_number] for window in self._windows if window.phase == phase)

    def usual(self, phase: int) -> dict[str, int]:
        """Returns how many requests the median window of a phase admitted, by the limiter's name.

        The limiters are the policies, one limiter for all requests, and a set of separate limiters, one on each node.
        """
        windows = [window for window in self._windows if window.phase == phase]
        return {
            CENTRAL: median_low(window.central for window in windows),
            PARTED: median_low(window.parted for window in windows),
        } | {
            name: median_low(window.admitted[number] for window in windows)
            for number, name in enumerate(self._setup.policies)
        }

    def table(self) -> Table:
        """Returns a table with the admissions of the median and of the fullest window in each phase of the replay."""
        table = Table(box=None, padding=(0, 1), title="the crowd's windows, in requests", title_justify="left")
        table.add_column("", no_wrap=True)
        for name in ("limit", CENTRAL, PARTED, *self._setup.policies):
            table.add_column(name, justify="right")
        for phase, name in enumerate(self._phases):
            quota = str(self._setup.limit.quota)
            fullest = [str(self.worst(number, phase)) for number in range(len(self._setup.policies))]
            table.add_row(f"{name}: usual", quota, *map(str, self.usual(phase).values()))
            table.add_row(f"{name}: fullest", quota, "", "", *fullest)
        return table

    def verdict(self) -> str:
        """Returns a sentence that compares the two policies by their fullest windows during the outage."""
        ours, others = (self.worst(number, 1) for number in range(2))
        quota = self._setup.limit.quota
        return (
            f"With two of four nodes cut off, a window of {quota} admitted at most {ours} under "
            f"{self._setup.policies[0]}, and {others} under naive."
        )

    def as_json(self) -> dict[str, object]:
        """Returns an object for `--json`, with the admissions of all windows.

        It also has the fullest window of each phase, by policy, and the median window, by limiter.
        """
        return {
            "quota": self._setup.limit.quota,
            "bound": dict(zip(self._setup.policies, self._bounds, strict=True)),
            "fullest_window": {
                name: {phase: self.worst(number, at) for at, phase in enumerate(self._phases)}
                for number, name in enumerate(self._setup.policies)
            },
            "usual_window": {name: self.usual(at) for at, name in enumerate(self._phases)},
            "windows": [
                {
                    "t_s": round(window.moment_s, 3),
                    "asked": window.asked,
                    "admitted": dict(zip(self._setup.policies, window.admitted, strict=True)),
                }
                for window in self._windows
            ],
        }

    def chart(self, title: str) -> Chart:
        """Returns a chart of the crowd's requests and of their admissions by each policy, window by window."""
        return Chart(
            title=title,
            moments_s=[window.moment_s for window in self._windows],
            window_s=self._setup.limit.window,
            asked=[window.asked for window in self._windows],
            quota=self._setup.limit.quota,
            series=[
                Series(name, [window.admitted[number] for window in self._windows], self._bounds[number])
                for number, name in enumerate(self._setup.policies)
            ],
            cuts=[(cut.start_s, cut.end_s, self._phases[1]) for cut in self._setup.cuts],
        )


def _admitted(limit: Limit, arrivals: list[DecidedRequest]) -> dict[int, int]:
    """Returns the admissions, by window, of one limiter that decides all these requests."""
    ideal, _ = ideal_admissions(limit, arrivals, settle_after_ns=0)
    return {epoch: cost for (_, epoch), cost in ideal.items()}


def _admitted_in_parts(limit: Limit, arrivals: list[DecidedRequest], nodes: int) -> dict[int, int]:
    """Returns the admissions, by window, of separate limiters on each node, each with an equal part of the limit."""
    admitted: dict[int, int] = {}
    for node in range(nodes):
        part = replace(limit, quota=limit.quota // nodes + (node < limit.quota % nodes))
        for epoch, cost in _admitted(part, [one for one in arrivals if one.node == node]).items():
            admitted[epoch] = admitted.get(epoch, 0) + cost
    return admitted
