"""Chapters (groups of simulated situations) with their goals, and documents in Markdown of the measured figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from reconverge.simulation.studies.experiment import Experiment
from reconverge.simulation.studies.figures import IN_DOUBT, Figures, row_in_doubt

POLICIES: Final = ("strict", "balanced", "available", "naive", "predictive")
SHOWN: Final = ("strict", "balanced", "naive")
"""The names of the policies that a summary shows."""
MESSAGES: Final = "messages, balanced"


@dataclass(frozen=True, slots=True)
class Goal:
    """The highest value that one figure (measured number) of one policy may have in each situation of a chapter."""

    policy: str
    figure: str
    at_most: float

    def met_by(self, figures: dict[str, Figures]) -> bool:
        """Whether the goal is met in one situation; `figures` are by the name of the policy."""
        return figures[self.policy].as_json()[self.figure] <= self.at_most

    def __str__(self) -> str:
        words = self.figure.removesuffix("_pct").replace("_", " ")
        return f"{self.policy}: {words} ≤ {self.at_most:g}"


@dataclass(frozen=True, slots=True)
class Chapter:
    """A group of simulated situations that belong together, and the goals for all of them."""

    name: str
    situations: dict[str, Experiment]
    goals: tuple[Goal, ...]
    seeds: int = 2
    in_doubt: bool = False
    """Whether the chapter's rows show false refusals over the whole run, and how many requests asked the hub."""
    apart: bool = False
    """Whether each situation has a row of its own even in a summary, because situations differ in kind."""


NEVER_OVER: Final = Goal("strict", "over_max_pct", 0.0)


Found = list[tuple[Chapter, dict[str, dict[str, Figures]]]]
"""Each chapter, with the figures of each of its situations by policy."""


def together(situations: Iterable[dict[str, Figures]]) -> dict[str, Figures]:
    """Returns one set of figures for a chapter by policy: the mean of each mean, and the largest of each maximum."""
    situations = list(situations)
    count = len(situations)
    summed: dict[str, Figures] = {}
    for name in POLICIES:
        each = [figures[name] for figures in situations]
        summed[name] = replace(
            each[0],
            over_mean_pct=sum(one.over_mean_pct for one in each) / count,
            over_max_pct=max(one.over_max_pct for one in each),
            under_mean_pct=sum(one.under_mean_pct for one in each) / count,
            under_max_pct=max(one.under_max_pct for one in each),
            messages_per_node_window=sum(one.messages_per_node_window for one in each) / count,
            falsely_refused_pct=sum(one.falsely_refused_pct for one in each) / count,
            asked_pct=sum(one.asked_pct for one in each) / count,
            waited_median_ms=max(one.waited_median_ms for one in each),
            waited_p99_ms=max(one.waited_p99_ms for one in each),
            waited_max_ms=max(one.waited_max_ms for one in each),
            bound_violations=sum(one.bound_violations for one in each),
        )
    return summed


def unmet(chapter: Chapter, situations: dict[str, dict[str, Figures]]) -> list[str]:
    """Returns a sentence for each goal of the chapter that was not met."""
    figures = together(situations.values())
    return [str(goal) for goal in chapter.goals if not goal.met_by(figures)]


def page(found: Found, made_at: str = "") -> str:
    """Returns a Markdown document with a row for each situation and policy.

    It names the commit `made_at`, unless that is "".
    """
    lines = _beginning(made_at)
    for chapter, situations in found:
        row, heads = (row_in_doubt, IN_DOUBT) if chapter.in_doubt else (_row, (*POLICIES, MESSAGES))
        lines += ["", f"## {chapter.name}", "", f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
        lines += [row(name, figures) for name, figures in situations.items()]
        if len(situations) > 1:
            lines.append(row("**all**", together(situations.values())))
        lines += ["", f"Goals: {'; '.join(map(str, chapter.goals))}. {_verdict(chapter, situations) or 'All met.'}"]
    return "\n".join(lines) + "\n"


def summary(found: Found, made_at: str = "") -> str:
    """Returns a table in Markdown with a row for each chapter: its goals, the mean of its means, its worst values.

    `made_at` is the commit that the text names; "" for none.
    """
    lines = [
        *_beginning(made_at),
        "",
        f"*{SHOWN[-1]}* believes the last merged total. Each row sums up several kinds of traffic, which",
        "`python -m reconverge.simulation.goals --only NAME` prints one by one, with two more policies.",
        "`agent/reconverge/simulation/goals.py` defines the goals; the last line of this page lists those not met.",
        *_table(found, in_doubt=False, heads=(*SHOWN, MESSAGES)),
    ]
    if any(chapter.in_doubt for chapter, _ in found):
        lines += ["", "Small limits, whose requests are decided from memory or ask:"]
        lines += _table(found, in_doubt=True, heads=IN_DOUBT)
    missed = [f"{chapter.name}: {said}" for chapter, situations in found if (said := _verdict(chapter, situations))]
    return "\n".join([*lines, "", "; ".join(missed) or "All goals are met."]) + "\n"


def _table(found: Found, *, in_doubt: bool, heads: Sequence[str]) -> Iterator[str]:
    yield from ("", f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|")
    for chapter, situations in found:
        if chapter.in_doubt != in_doubt:
            continue
        rows = {chapter.name: together(situations.values())}
        if chapter.apart:
            rows = {f"{chapter.name}: {name}": figures for name, figures in situations.items()}
        yield from (
            row_in_doubt(name, figures) if in_doubt else _row(name, figures, SHOWN) for name, figures in rows.items()
        )


def _beginning(made_at: str) -> list[str]:
    lines = ["# Figures", ""]
    if made_at:
        lines += [f"Last made at commit {made_at}.", ""]
    return [
        *lines,
        "`make figures` simulates a fleet with the production kernel, syncer and merge rule: one key, 8 nodes, a limit",
        "L of 1000 in a fixed window of 10 s, a sync interval T of 1 s and a round trip of 20 ms, unless a row names",
        "another. *3 L* means that clients ask for three times the limit. Each field shows over-admission as",
        "mean/max and, in brackets, mean under-admission, in % of the limit for each window after the warm-up;",
        "*messages* are those of a node in a window.",
    ]


def _verdict(chapter: Chapter, situations: dict[str, dict[str, Figures]]) -> str:
    """Returns a sentence about the goals that were not met; an empty string if all were met."""
    missed = unmet(chapter, situations)
    return f"NOT MET: {'; '.join(missed)}" if missed else ""


def _row(name: str, figures: dict[str, Figures], policies: Sequence[str] = POLICIES) -> str:
    cells = [
        f"{each.over_mean_pct:.2f}/{each.over_max_pct:.1f} [{each.under_mean_pct:.2f}]"
        for each in (figures[policy] for policy in policies)
    ]
    return f"| {name} | {' | '.join(cells)} | {figures['balanced'].messages_per_node_window:.1f} |"
