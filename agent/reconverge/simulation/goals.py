"""Compares measured figures of policies with their goals. Run as `python -m reconverge.simulation.goals`.

Prints a page in Markdown: a row for each chapter (group of simulated situations), or with `--only` a row for each
situation and policy. The runs have other seeds than those by which constants were tuned.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from reconverge.clock import MILLISECOND_NS, SECOND_NS, SystemClock
from reconverge.limit.limit import CALENDAR, FIRST_HIT, FIXED_WINDOW, INTERVAL, SLIDING_WINDOW, TOKEN_BUCKET, Limit
from reconverge.simulation.fleet import COMPARED, AskSettings, Fleet
from reconverge.simulation.pattern import Traffic
from reconverge.simulation.studies.chapters import NEVER_OVER, POLICIES, Chapter, Found, Goal, page, summary, unmet
from reconverge.simulation.studies.experiment import PROCESSES, Experiment, mapped, run
from reconverge.simulation.studies.figures import Figures, commit_of

FIRST_SEED: Final = 7_000
WINDOW_S: Final = 10.0
DAY_S: Final = 86_400
STANDARD: Final = ("uniform", "zipf", "single", "rotating", "onoff", "flash")
PERIODIC_PER_WINDOW: Final = 10.0
"""The number of exchanges in a window of a node that never exchanges ahead of time, at a sync interval of a tenth of
the window."""
MESSAGES_FACTOR_MAX: Final = 1.4
CUT: Final = "cut:half@3.3w+3w"
WITHIN_NS: Final = 25 * MILLISECOND_NS
NEAR_NS: Final = 2 * MILLISECOND_NS
"""A round trip to the hub, in nanoseconds, that is short enough for requests to wait for."""


HARDLY_REFUSED: Final = Goal("strict", "falsely_refused_pct", 0.3)


def chapters() -> list[Chapter]:
    """Returns the chapters of the page: each is a group of simulated situations with the goals that it has to meet."""
    return [
        *_hot(),
        *_surges(),
        *_outages(),
        _enough_for_all(),
        *_other_algorithms(),
        *_other_beginnings(),
        *_on_top(),
        _weak_spots(),
        *_small_limits(),
    ]


def _fleet(
    nodes: int = 8, quota: int = 1000, algorithm: str = FIXED_WINDOW, share: float = 0.1, burst: int | None = None
) -> Fleet:
    """Returns a fleet whose sync interval is `share` of the limit's window, with a round trip of 0.002 windows."""
    limit = Limit(quota, WINDOW_S, algorithm=algorithm, burst=burst)
    return Fleet(nodes, limit, int(share * WINDOW_S * SECOND_NS), 20 * MILLISECOND_NS)


def _standard(fleet: Fleet, demand: float) -> dict[str, Experiment]:
    return {pattern: Experiment(fleet, Traffic(pattern, demand), 10) for pattern in STANDARD}


def _hot() -> list[Chapter]:
    bars = {8: (0.1, 0.5), 32: (0.2, 1.0), 128: (0.5, 3.0)}
    messages = Goal("balanced", "messages_per_node_window", PERIODIC_PER_WINDOW * MESSAGES_FACTOR_MAX)
    return [
        Chapter(
            f"3 L, {nodes} nodes",
            _standard(_fleet(nodes), 3.0),
            (NEVER_OVER, Goal("balanced", "over_mean_pct", mean), Goal("balanced", "over_max_pct", worst), messages),
            seeds=3 if nodes == 8 else 1,
        )
        for nodes, (mean, worst) in bars.items()
    ]


def _surges() -> list[Chapter]:
    return [
        Chapter(
            f"From 0.5 to 5 L, all at once, {nodes} nodes",
            {"surge": Experiment(_fleet(nodes), Traffic("surge", 5.0), 10)},
            (NEVER_OVER, Goal("balanced", "over_max_pct", worst)),
            seeds=5 if nodes == 8 else 2,
        )
        for nodes, worst in ((8, 1.0), (32, 5.0))
    ]


def _outages() -> list[Chapter]:
    shared = {"uniform": 1, "zipf": 1}

    def trouble(fault: str, windows: int = 14) -> dict[str, Experiment]:
        return {pattern: Experiment(_fleet(), Traffic(pattern, 3.0), windows, 4, (fault,)) for pattern in shared}

    away = [
        Chapter(
            f"The hub is away for {windows} windows, 3 L",
            trouble(f"down@5.3w+{windows}w"),
            (NEVER_OVER, Goal("balanced", "over_max_pct", 1.0), Goal("balanced", "under_mean_pct", under)),
        )
        for windows, under in ((1, 1.0), (5, 5.0))
    ]
    cut = [
        Chapter(
            f"Cut off for five windows: {part} of the nodes, 3 L",
            trouble(f"cut:{part}@5.3w+5w"),
            (NEVER_OVER, Goal("balanced", "over_max_pct", 1.0)),
        )
        for part in ("one", "half", "all")
    ]
    faults = ("loss:30%@0w+12w", "slow:100@5.3w+3w", "crash:2@5.3w+2w", "lose-data@5.35w")
    others = Chapter(
        "Other faults, 3 L",
        {fault: Experiment(_fleet(), Traffic("uniform", 3.0), 12, 2, (fault,)) for fault in faults},
        (NEVER_OVER, Goal("balanced", "over_mean_pct", 0.5)),
        apart=True,
    )
    return [*away, *cut, others]


def _enough_for_all() -> Chapter:
    return Chapter(
        "0.8 L",
        _standard(_fleet(), 0.8),
        (NEVER_OVER, Goal("balanced", "under_mean_pct", 0.5)),
        seeds=5,
    )


def _other_algorithms() -> list[Chapter]:
    fleets = {
        "sliding window": _fleet(algorithm=SLIDING_WINDOW),
        "token bucket of L": _fleet(algorithm=TOKEN_BUCKET),
        "token bucket of L/5": _fleet(algorithm=TOKEN_BUCKET, burst=200),
    }
    return [
        Chapter(
            f"Another algorithm: {name}, {demand:g} L",
            _standard(fleet, demand),
            (NEVER_OVER, Goal("strict", "under_mean_pct", 4.0)),
        )
        for name, fleet in fleets.items()
        for demand in (0.8, 3.0)
    ]


def _other_beginnings() -> list[Chapter]:
    """Returns the chapters on windows that begin with a request or by a calendar, and buckets filled at intervals."""
    windows = _fleet()
    first_hit = replace(windows, limit=replace(windows.limit, align=FIRST_HIT))
    day = Limit(1000, DAY_S, algorithm=FIXED_WINDOW, align=CALENDAR, timezone="Europe/Berlin")
    days = replace(windows, limit=day, sync_interval_ns=DAY_S * SECOND_NS // 100)
    fleets = {
        "windows that begin with the first request": first_hit,
        "days in Berlin, one of them of 25 hours, and T/W = 0.01": days,
        **{
            f"token bucket of {name}, filled at each window's edge": replace(
                fleet, limit=replace(fleet.limit, refill=INTERVAL)
            )
            for name, fleet in (
                ("L", _fleet(algorithm=TOKEN_BUCKET)),
                ("L/5", _fleet(algorithm=TOKEN_BUCKET, burst=200)),
            )
        },
    }
    return [
        Chapter(
            f"Another beginning: {name}",
            {**_few(fleet, 3.0), "uniform, 0.8 L": Experiment(fleet, Traffic("uniform", 0.8), 10)},
            (NEVER_OVER, Goal("balanced", "over_max_pct", 1.0), Goal("strict", "under_mean_pct", 4.0)),
        )
        for name, fleet in fleets.items()
    ]


def _on_top() -> list[Chapter]:
    """Returns the chapters about options that any algorithm can have: several quotas, soft quotas and shares."""
    plain = _fleet()
    # The second quota admits two windows' worth in three windows, so that each quota refuses at times.
    several = replace(plain, further=(replace(plain.limit, quota=2000, window=3 * WINDOW_S),))
    goals = (NEVER_OVER, Goal("balanced", "over_max_pct", 1.0), Goal("strict", "under_mean_pct", 4.0))
    return [
        Chapter(
            "Two quotas: L per window, and 2 L per three windows",
            {
                f"{name}, {which}": replace(experiment, windows=12, warmup=3, judged=number)
                for number, which in enumerate(("the first quota", "the second"))
                for name, experiment in _few(several, 3.0).items()
            },
            # A crowd after a window that the second quota has kept empty takes about half of the first one's overdraft.
            (NEVER_OVER, Goal("balanced", "over_mean_pct", 0.5), Goal("strict", "under_mean_pct", 4.0)),
        ),
        Chapter(
            "Soft by a tenth, in % of the capacity, which is 1.1 L",
            _few(replace(plain, limit=replace(plain.limit, soft=0.1)), 3.0),
            goals,
        ),
        Chapter(
            "Guaranteed shares, and all of them together",
            {
                **{f"one of L/2: {name}": experiment for name, experiment in _few(_shared(2), 3.0).items()},
                "two of L/4: uniform, 3 L": Experiment(_shared(4, 4), Traffic("uniform", 3.0, keys=2), 10),
            },
            goals,
        ),
    ]


def _few(fleet: Fleet, demand: float) -> dict[str, Experiment]:
    """Returns four experiments by name: calm, moving and sudden traffic, and half of the nodes cut off for a while."""
    calm = {pattern: Experiment(fleet, Traffic(pattern, demand), 10) for pattern in ("uniform", "rotating", "flash")}
    cut = Experiment(fleet, Traffic("uniform", demand), 10, faults=(CUT,))
    return {f"{name}, {demand:g} L": tried for name, tried in {**calm, "uniform, half cut off": cut}.items()}


def _shared(*parts: int) -> Fleet:
    """Returns a fleet whose limit has a guaranteed share of 1/n for each n in `parts`; all may use what is left."""
    fleet = _fleet()
    return replace(fleet, shares=tuple(replace(fleet.limit, quota=fleet.limit.quota // part) for part in parts))


def _weak_spots() -> Chapter:
    """Returns the chapter of known situations in which every policy that decides without a round trip does badly."""
    return Chapter(
        "Known weak spots",
        {
            "20 per window on 8 nodes, 3 L": Experiment(_fleet(quota=20), Traffic("uniform", 3.0), 20),
            "20 per window on 32 nodes, 3 L": Experiment(_fleet(32, quota=20), Traffic("uniform", 3.0), 20),
            "0.8 L at one moment on one node": Experiment(_fleet(), Traffic("spike", 0.8), 20),
            "3 L at one moment on all nodes": Experiment(_fleet(), Traffic("spray", 3.0), 10),
            "T/W = 1, 3 L": Experiment(_fleet(share=1.0), Traffic("uniform", 3.0), 20),
            "the hub away for 5 windows while demand moves, 0.8 L": Experiment(
                _fleet(), Traffic("rotating", 0.8), 14, 4, ("down@5.3w+5w",)
            ),
            "L/4 is set aside for an idle share, 3 L": Experiment(_shared(4, 4), Traffic("uniform", 3.0), 10),
        },
        (NEVER_OVER,),
        apart=True,
    )


def _small_limits() -> list[Chapter]:
    """Returns the chapters on small limits, with and without asking the hub, if half or nearly all must be refused."""
    fleets = {
        f"{quota} per window on {nodes} nodes, {algorithm}": _fleet(nodes, quota, algorithm)
        for algorithm in (FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET)
        for quota, nodes in ((5, 4), (5, 32), (20, 32), (60, 8), (300, 8))
    }
    ways = {
        "decided from memory": None,
        f"asking the hub for {WITHIN_NS // MILLISECOND_NS} ms in doubt": AskSettings(WITHIN_NS),
    }
    return [
        Chapter(
            f"Small limits, {way}; {demand:g} L",
            {
                name: Experiment(replace(fleet, round_trip_ns=NEAR_NS, asks=asks), Traffic("uniform", demand), windows)
                for name, fleet in fleets.items()
            },
            (NEVER_OVER, *((HARDLY_REFUSED,) if asks is not None else ())),
            in_doubt=True,
        )
        for demand, windows in ((2.0, 12), (20.0, 6))
        for way, asks in ways.items()
    ]


def _figures_of(what: tuple[Experiment, int]) -> dict[str, Figures]:
    experiment, seeds = what
    figures, _ = run(experiment, [COMPARED[name] for name in POLICIES], range(FIRST_SEED, FIRST_SEED + seeds))
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the page of figures. Returns the exit status: 1 if a goal was not met or a bound was broken."""
    parser = argparse.ArgumentParser(prog="python -m reconverge.simulation.goals", description=__doc__)
    parser.add_argument("--only", default="", help="only chapters whose name contains this, in detail")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    options = parser.parse_args(arguments)
    chosen = [chapter for chapter in chapters() if options.only in chapter.name]
    if not chosen:
        names = "; ".join(chapter.name for chapter in chapters())
        parser.error(f"no chapter's name contains {options.only!r}; there are: {names}")
    tasks = [(experiment, chapter.seeds) for chapter in chosen for experiment in chapter.situations.values()]
    made_at = commit_of()  # before the runs, as the clone may change meanwhile
    clock = SystemClock()
    began_ns = clock.monotonic_ns()
    figures = iter(list(mapped(_figures_of, tasks, processes=options.processes)))
    found: Found = [(chapter, {name: next(figures) for name in chapter.situations}) for chapter in chosen]
    print((page if options.only else summary)(found, made_at), end="")
    missed = sum(len(unmet(chapter, situations)) for chapter, situations in found)
    broken = sum(
        each.bound_violations for _, situations in found for one in situations.values() for each in one.values()
    )
    took_s = (clock.monotonic_ns() - began_ns) / SECOND_NS
    print(f"{len(tasks)} situations, {missed} goals not met, {broken} bounds broken, {took_s:.0f} s", file=sys.stderr)
    return 1 if missed or broken else 0


if __name__ == "__main__":
    sys.exit(main())
