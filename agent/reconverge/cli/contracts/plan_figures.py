"""Shows, in numbers, the effect of a change of contracts on recorded requests: as tables, or as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Final

from rich import box
from rich.table import Table
from rich.text import Text

from reconverge.clock import SECOND_NS
from reconverge.contracts.rehearsal import Effect, RehearsalOutcome
from reconverge.contracts.writing import written_moment

CUSTOMER_WIDTH_MAX: Final = 40
"""The width of the column of customers in characters; the table shows the beginning of longer names."""
DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class Shown:
    """The effect of a change of contracts on a recording, the names of the files, and settings for the display."""

    outcome: RehearsalOutcome
    recording: str
    candidate: str
    current: str | None
    top: int
    began_s: float
    """The date of the recording's time 0, in seconds since 1970."""
    dated: bool
    """Whether moments are shown as dates; otherwise as the time since the recording's beginning."""
    most: Fraction | None = None
    """The most requests that may be newly refused; None for any number."""

    @property
    def too_many(self) -> bool:
        """Whether more requests are newly refused than allowed."""
        return self.most is not None and self.outcome.newly_refused > self.most

    def moment(self, moment_ns: int) -> str:
        """Returns a moment as a date; if `dated` is False, as the time since the recording's beginning."""
        if self.dated:
            return f"{datetime.fromtimestamp(moment_ns // SECOND_NS, UTC):%Y-%m-%d %H:%M}"
        return since_beginning(moment_ns // SECOND_NS)

    def hour(self, effect: Effect) -> str:
        """Returns the hour in which most requests of `effect` were made, and their number, as a cell of the table."""
        return f"{self.moment(effect.busiest_ns)} ({effect.in_busiest})"

    def as_json(self) -> dict[str, object]:
        """Returns all numbers, and the customers that the change affects most. Times are those of the recording."""
        outcome = self.outcome
        return {
            "requests": outcome.requests,
            "customers": outcome.customers,
            "newly_refused": outcome.newly_refused,
            "newly_refused_pct": percent_of(outcome.newly_refused, outcome.requests),
            "newly_refused_customers": customers_in(outcome.refused),
            "newly_admitted": outcome.newly_admitted,
            "newly_admitted_pct": percent_of(outcome.newly_admitted, outcome.requests),
            "newly_admitted_customers": customers_in(outcome.admitted),
            "refused_by_both": outcome.refused_by_both,
            "admitted_by_both": admitted_by_both(outcome),
            "began": written_moment(self.began_s) if self.dated else None,
            "refused": [self._effect(effect) for effect in outcome.refused[: self.top]],
            "refused_left_out": len(outcome.refused[self.top :]),
            "admitted": [self._effect(effect) for effect in outcome.admitted[: self.top]],
            "admitted_left_out": len(outcome.admitted[self.top :]),
            "limits": {
                name: {
                    "refuses_now": each.refuses_now,
                    "would_refuse": each.would_refuse,
                    "newly_refused": each.newly_refused,
                    "newly_admitted": each.newly_admitted,
                }
                for name, each in outcome.limits.items()
            },
            "max_newly_refused": None if self.most is None else float(self.most),
            "too_many": self.too_many,
        }

    def _effect(self, effect: Effect) -> dict[str, object]:
        return {
            "customer": effect.customer,
            "limits": list(effect.limits),
            "requests": effect.requests,
            "of": effect.asked,
            "first_s": self._own_s(effect.first_ns),
            "last_s": self._own_s(effect.last_ns),
            "busiest_hour_s": self._own_s(effect.busiest_ns),
            "in_busiest_hour": effect.in_busiest,
        }

    def _own_s(self, moment_ns: int) -> float:
        """Converts a moment, in nanoseconds since 1970, to the recording's own time, in seconds."""
        return (moment_ns - round(self.began_s * SECOND_NS)) / SECOND_NS


def totals_table(shown: Shown) -> Table:
    """Returns a table of how many requests a change affects."""
    outcome = shown.outcome
    table = _table()
    for name in ("", "requests", "%", "customers"):
        table.add_column(name, justify="right" if name else "left")
    for name, count, customers in (
        ("newly refused", outcome.newly_refused, str(customers_in(outcome.refused))),
        ("newly admitted", outcome.newly_admitted, str(customers_in(outcome.admitted))),
        ("refused by both", outcome.refused_by_both, ""),
        ("admitted by both", admitted_by_both(outcome), ""),
    ):
        table.add_row(name, str(count), f"{percent_of(count, outcome.requests):g}", customers)
    return table


def effects_table(shown: Shown, title: str, effects: Sequence[Effect]) -> Table:
    """Returns a table of the customers that a change affects most, and of the times of the affected requests."""
    table = _table(title)
    for name in ("customer", "requests", "limit", "first", "last", "busiest hour"):
        table.add_column(name, justify="right" if name == "requests" else "left")
    for effect in effects[: shown.top]:
        table.add_row(
            Text(readable(effect.customer)),
            f"{effect.requests} of {effect.asked}",
            ", ".join(effect.limits),
            shown.moment(effect.first_ns),
            shown.moment(effect.last_ns),
            shown.hour(effect),
        )
    return table


def limits_table(outcome: RehearsalOutcome) -> Table:
    """Returns a table of the requests that each limit refuses now, and would refuse after the change."""
    table = _table("by limit")
    for name in ("limit", "refuses now", "would refuse", "newly refused", "newly admitted"):
        table.add_column(name, justify="left" if name == "limit" else "right")
    for name, each in outcome.limits.items():
        counts = (each.refuses_now, each.would_refuse, each.newly_refused, each.newly_admitted)
        table.add_row(name, *map(str, counts))
    return table


def heading(shown: Shown, first_ns: int, last_ns: int) -> str:
    """Returns a sentence that names the recording, its requests, and the files of contracts that are compared."""
    outcome = shown.outcome
    return (
        f"{shown.recording}: {outcome.requests} requests of {outcome.customers} customers, "
        f"{shown.moment(first_ns)} to {shown.moment(last_ns)}; "
        f"{shown.candidate} in place of {shown.current or 'no limits'}"
    )


def left_out(shown: Shown, effects: Sequence[Effect]) -> str:
    """Returns a sentence with the number of customers that are not in the table; empty if it shows all."""
    more = effects[shown.top :]
    if not more:
        return ""
    requests = sum(effect.requests for effect in more)
    return f"not shown: {len(more)} more, with {requests} of the requests (--top)"


def verdict(shown: Shown) -> str:
    """Returns a sentence on whether too many requests are newly refused; empty if no maximum was given."""
    if shown.most is None:
        return ""
    refused, most = shown.outcome.newly_refused, int(shown.most)
    if shown.too_many:
        return f"Newly refused are {refused} requests, and at most {most} may be."
    return f"Newly refused are {refused} requests, of {most} that may be."


def _table(title: str | None = None) -> Table:
    return Table(
        box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", show_edge=False, pad_edge=False
    )


def customers_in(effects: Sequence[Effect]) -> int:
    """Returns the number of customers whose requests these effects describe."""
    return len({effect.customer for effect in effects})


def admitted_by_both(outcome: RehearsalOutcome) -> int:
    """Returns how many requests are admitted by both the present and the changed contracts."""
    return outcome.requests - outcome.newly_refused - outcome.newly_admitted - outcome.refused_by_both


def percent_of(count: int, whole: int) -> float:
    """Returns `count` in percent of `whole`, with four significant digits."""
    return float(f"{100 * count / whole:.4g}")


def readable(name: str) -> str:
    """Returns a name as a table shows it: short, and without characters that would steer a terminal."""
    text = name if name.isprintable() else ascii(name)
    return text if len(text) <= CUSTOMER_WIDTH_MAX else text[: CUSTOMER_WIDTH_MAX - 3] + "..."


def since_beginning(seconds: int) -> str:
    """Returns a number of seconds as days, hours, minutes and seconds."""
    days, rest = divmod(seconds, DAY_S)
    return f"{days}d {rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
