"""What the policies are meant to reach, and what they do reach. Run as `python -m reconverge.simulation.goals`.

Prints a page in Markdown: a row for each situation, every policy's figures beside the goals, and whether they are met.
The seeds are not those that any constant was tuned on.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reconverge.clock import MILLISECOND_NS, SECOND_NS, SystemClock
from reconverge.limit import FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET, Limit
from reconverge.simulation.experiment import Experiment, run
from reconverge.simulation.figures import Figures
from reconverge.simulation.pattern import Traffic
from reconverge.simulation.rival import COMPARED
from reconverge.simulation.world import Fleet

FIRST_SEED: Final = 7_000
WINDOW_S: Final = 10.0
STANDARD: Final = ("uniform", "zipf", "single", "rotating", "onoff", "flash")
POLICIES: Final = ("strict", "balanced", "available", "naive", "predictive")
PERIODIC_PER_WINDOW: Final = 10.0
"""Exchanges of a node that never asks ahead of time, at a sync interval of a tenth of the window."""
MESSAGES_FACTOR_MAX: Final = 1.4


@dataclass(frozen=True, slots=True)
class Goal:
    """At most so much of a figure, for one policy."""

    policy: str
    figure: str
    at_most: float

    def met_by(self, figures: dict[str, Figures]) -> bool:
        """Whether it is reached."""
        return figures[self.policy].as_json()[self.figure] <= self.at_most

    def __str__(self) -> str:
        words = self.figure.removesuffix("_pct").replace("_", " ")
        return f"{self.policy}: {words} ≤ {self.at_most:g}"


@dataclass(frozen=True, slots=True)
class Situation:
    """A fleet in some traffic, with faults, and what is to be reached there."""

    chapter: str
    name: str
    experiment: Experiment
    goals: tuple[Goal, ...]
    seeds: int = 3


def situations() -> list[Situation]:
    """All of them."""
    return [*_steady(), *_surges(), *_outages(), *_enough_for_all(), *_other_algorithms(), *_weak_spots()]


NEVER_OVER: Final = Goal("strict", "over_max_pct", 0.0)


def _fleet(
    nodes: int = 8, quota: int = 1000, algorithm: str = FIXED_WINDOW, share: float = 0.1, burst: int | None = None
) -> Fleet:
    """T/W = 0.1 and a round trip of 0.002 W, unless said otherwise."""
    limit = Limit(quota, WINDOW_S, algorithm=algorithm, burst=burst)
    return Fleet(nodes, limit, int(share * WINDOW_S * SECOND_NS), 20 * MILLISECOND_NS)


def _steady() -> list[Situation]:
    bars = {8: (0.1, 0.5), 32: (0.2, 1.0), 128: (0.5, 3.0)}
    return [
        Situation(
            "Three times the limit is asked for",
            f"{nodes} nodes, {pattern}",
            Experiment(_fleet(nodes), Traffic(pattern, 3.0), 10),
            (
                NEVER_OVER,
                Goal("balanced", "over_mean_pct", mean),
                Goal("balanced", "over_max_pct", worst),
                *_messages(pattern, nodes),
            ),
            seeds=3 if nodes == 8 else 1,
        )
        for nodes, (mean, worst) in bars.items()
        for pattern in STANDARD
    ]


def _messages(pattern: str, nodes: int) -> tuple[Goal, ...]:
    """The goal for messages is one for the mean of all patterns; steady traffic has to stay below it by itself."""
    if pattern not in ("uniform", "zipf", "single") or nodes != 8:
        return ()
    return (Goal("balanced", "messages_per_node_window", PERIODIC_PER_WINDOW * MESSAGES_FACTOR_MAX),)


def _surges() -> list[Situation]:
    return [
        Situation(
            "Ten times as much, all at once: from 0.5 to 5 times the limit",
            f"{nodes} nodes",
            Experiment(_fleet(nodes), Traffic("surge", 5.0), 10),
            (NEVER_OVER, Goal("balanced", "over_max_pct", worst)),
            seeds=5 if nodes == 8 else 2,
        )
        for nodes, worst in ((8, 1.0), (32, 5.0))
    ]


def _outages() -> list[Situation]:
    bars = {1: 1.0, 5: 5.0}
    found = [
        Situation(
            "The hub is away, three times the limit is asked for",
            f"{windows} windows, {pattern}",
            Experiment(_fleet(), Traffic(pattern, 3.0), 14, 4, (f"down@5.3w+{windows}w",)),
            (NEVER_OVER, Goal("balanced", "over_max_pct", 1.0), Goal("balanced", "under_mean_pct", under)),
        )
        for windows, under in bars.items()
        for pattern in ("uniform", "zipf")
    ]
    partial = [
        Situation(
            "Some nodes are cut off for five windows, three times the limit is asked for",
            f"{who}, {pattern}",
            Experiment(_fleet(), Traffic(pattern, 3.0), 14, 4, (f"cut:{who}@5.3w+5w",)),
            (NEVER_OVER, Goal("balanced", "over_max_pct", 1.0)),
        )
        for who in ("one", "half", "all")
        for pattern in ("uniform", "zipf")
    ]
    others = [
        Situation(
            "Other faults, three times the limit is asked for",
            fault,
            Experiment(_fleet(), Traffic("uniform", 3.0), 12, 2, (fault,)),
            (NEVER_OVER, Goal("balanced", "over_max_pct", 1.0)),
        )
        for fault in ("loss:30%@0w+12w", "slow:100@5.3w+3w", "lose-data@5.35w", "crash:2@5.3w+2w")
    ]
    return found + partial + others


def _enough_for_all() -> list[Situation]:
    return [
        Situation(
            "Less than the limit is asked for: 0.8 of it",
            pattern,
            Experiment(_fleet(), Traffic(pattern, 0.8), 10),
            (NEVER_OVER, Goal("balanced", "under_mean_pct", 0.1 if pattern in ("uniform", "zipf", "single") else 0.5)),
            seeds=5,
        )
        for pattern in STANDARD
    ]


def _other_algorithms() -> list[Situation]:
    fleets = {
        "sliding-window": _fleet(algorithm=SLIDING_WINDOW),
        "token-bucket, burst L": _fleet(algorithm=TOKEN_BUCKET),
        "token-bucket, burst L/5": _fleet(algorithm=TOKEN_BUCKET, burst=200),
    }
    return [
        Situation(
            "Other algorithms",
            f"{name}, {demand:g} L, {pattern}",
            Experiment(fleet, Traffic(pattern, demand), 10),
            (NEVER_OVER, Goal("strict", "under_mean_pct", 4.0)),
            seeds=2,
        )
        for name, fleet in fleets.items()
        for demand in (0.8, 3.0)
        for pattern in ("uniform", "onoff")
    ]


def _weak_spots() -> list[Situation]:
    """Where no policy without a round trip is good; told so that nobody has to find out."""
    cases = [
        ("20 per window on 8 nodes, 3 L", Experiment(_fleet(quota=20), Traffic("uniform", 3.0), 20)),
        ("20 per window on 32 nodes, 3 L", Experiment(_fleet(32, quota=20), Traffic("uniform", 3.0), 20)),
        ("0.8 L at one moment on one node", Experiment(_fleet(), Traffic("spike", 0.8), 20)),
        ("3 L at one moment on all nodes", Experiment(_fleet(), Traffic("spray", 3.0), 10)),
        ("T/W = 1, 3 L", Experiment(_fleet(share=1.0), Traffic("uniform", 3.0), 20)),
        (
            "the hub away for 5 windows, demand moves, 0.8 L",
            Experiment(_fleet(), Traffic("rotating", 0.8), 14, 4, ("down@5.3w+5w",)),
        ),
    ]
    return [Situation("Known weak spots", name, experiment, (NEVER_OVER,)) for name, experiment in cases]


def _figures_of(number: int) -> dict[str, Figures]:
    situation = situations()[number]
    seeds = range(FIRST_SEED, FIRST_SEED + situation.seeds)
    figures, _ = run(situation.experiment, [COMPARED[name] for name in POLICIES], seeds)
    return figures


def page(found: Sequence[tuple[Situation, dict[str, Figures]]]) -> str:
    """All figures in Markdown."""
    lines = [
        "# Figures",
        "",
        "Over-admission as mean / max and, in brackets, under-admission as mean, in % of the limit by window, after",
        "the warm-up; *messages* by node and window. One key, 8 nodes, a window of 10 s, a limit of 1000, a sync",
        "interval of 1 s and a round trip of 20 ms, unless said otherwise; leases, back-off and all else are a fleet's",
        "defaults. Made by `make figures`; the simulated fleet runs the production kernel, syncer and merge rule.",
    ]
    chapter = ""
    for situation, figures in found:
        if situation.chapter != chapter:
            chapter = situation.chapter
            lines += ["", f"## {chapter}", "", f"| | {' | '.join(POLICIES)} | messages, balanced | goals |"]
            lines.append("|---" * (len(POLICIES) + 3) + "|")
        cells = [
            f"{each.over_mean_pct:.2f} / {each.over_max_pct:.1f} [{each.under_mean_pct:.2f}]"
            for each in (figures[name] for name in POLICIES)
        ]
        unmet = [str(goal) for goal in situation.goals if not goal.met_by(figures)]
        verdict = f"{len(situation.goals)} met" if not unmet else "NOT MET: " + "; ".join(unmet)
        messages = f"{figures['balanced'].messages_per_node_window:.1f}"
        lines.append(f"| {situation.name} | {' | '.join(cells)} | {messages} | {verdict} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the page; status 1 when a goal was not met or a bound was broken."""
    parser = argparse.ArgumentParser(prog="python -m reconverge.simulation.goals", description=__doc__)
    parser.add_argument("--only", default="", help="only situations whose chapter or name contains this")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    options = parser.parse_args(arguments)
    every = situations()
    numbers = [number for number, one in enumerate(every) if options.only in f"{one.chapter}: {one.name}"]
    clock = SystemClock()
    began_ns = clock.monotonic_ns()
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        found = [
            (every[number], figures) for number, figures in zip(numbers, pool.imap(_figures_of, numbers), strict=True)
        ]
    print(page(found), end="")
    unmet = sum(not goal.met_by(figures) for situation, figures in found for goal in situation.goals)
    broken = sum(each.bound_violations for _, figures in found for each in figures.values())
    took_s = (clock.monotonic_ns() - began_ns) / SECOND_NS
    print(f"{len(found)} situations, {unmet} goals not met, {broken} bounds broken, in {took_s:.0f} s", file=sys.stderr)
    return 1 if unmet or broken else 0


if __name__ == "__main__":
    sys.exit(main())
