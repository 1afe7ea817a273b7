"""A picture of what every sync interval lets through, refuses, and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconverge.cli.picture import COLOURS, INK, dress

MARKERS: Final = "os^"
LINES: Final = ("-", "--", ":")
"""Different ones, as policies that do equally well lie upon each other."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """Over-admission, false refusals and traffic against the sync interval."""

    title: str
    interval_s: Sequence[float]
    over_max_pct: Mapping[str, Sequence[float]]
    """The worst window's over-admission by policy, for every interval."""
    refused_pct: Mapping[str, Sequence[float]]
    """False refusals by policy, for every interval."""
    messages_per_s: Mapping[str, Sequence[float]]
    """Of the whole fleet, by policy, for every interval."""
    allowed_pct: float
    chosen_s: float | None
    """The interval that was chosen, if one was."""

    def draw_on(self, figure: Any) -> None:
        """See `picture.Picture`."""
        figure.set_size_inches(11, 7)
        over, refused, traffic = figure.subplots(3, 1, sharex=True)
        self._draw(over, self.over_max_pct, "worst window, % over")
        over.axhline(self.allowed_pct, color=INK, linestyle="--", linewidth=1.2, label="allowed")
        over.set_yscale("symlog", linthresh=1.0)
        over.set_ylim(bottom=-0.1)
        self._draw(refused, self.refused_pct, "falsely refused, %")
        self._draw(traffic, self.messages_per_s, "messages per second")
        traffic.set_yscale("log")
        traffic.set_xscale("log")
        traffic.set_xticks(self.interval_s, [f"{interval:g}" for interval in self.interval_s], minor=False)
        traffic.set_xticks([], minor=True)
        traffic.set_xlabel("sync interval in seconds")
        for axes in (over, traffic):
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter("{x:g}")
        for axes, title in ((over, self.title), (refused, ""), (traffic, "")):
            if self.chosen_s is not None:
                axes.axvline(self.chosen_s, color=INK, linewidth=0.8, label="chosen")
            dress(axes, title)

    def _draw(self, axes: Any, by_policy: Mapping[str, Sequence[float]], label: str) -> None:
        for (name, values), colour, marker, line in zip(by_policy.items(), COLOURS, MARKERS, LINES, strict=False):
            axes.plot(self.interval_s, values, color=colour, marker=marker, markersize=5, linestyle=line, label=name)
        axes.set_ylabel(label)
