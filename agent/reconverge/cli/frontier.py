"""A picture of what every sync interval lets through, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconverge.cli.picture import COLOURS, INK, dress


@dataclass(frozen=True, slots=True)
class Frontier:
    """Over-admission and traffic against the sync interval."""

    title: str
    interval_s: Sequence[float]
    over_max_pct: Mapping[str, Sequence[float]]
    """The worst window's over-admission by policy, for every interval."""
    messages_per_s: Mapping[str, Sequence[float]]
    """Of the whole fleet, by policy, for every interval."""
    allowed_pct: float

    def draw_on(self, figure: Any) -> None:
        """See `picture.Picture`."""
        over, traffic = figure.subplots(2, 1, sharex=True)
        for (name, values), colour in zip(self.over_max_pct.items(), COLOURS, strict=False):
            over.plot(self.interval_s, values, color=colour, marker="o", markersize=4, label=name)
        over.axhline(self.allowed_pct, color=INK, linestyle="--", linewidth=1.2, label="allowed")
        over.set_yscale("symlog", linthresh=1.0)
        over.set_ylabel("worst window, % over")
        for (name, values), colour in zip(self.messages_per_s.items(), COLOURS, strict=False):
            traffic.plot(self.interval_s, values, color=colour, marker="o", markersize=4, label=name)
        traffic.set_xscale("log")
        traffic.set_yscale("log")
        traffic.set_xlabel("sync interval in seconds")
        traffic.set_ylabel("messages per second")
        dress(over, self.title)
        dress(traffic, "")
