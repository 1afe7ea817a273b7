"""The command `reconverge simulate`: simulates a fleet under virtual time, with several policies side by side."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer
from rich import box
from rich.console import Console
from rich.progress import MofNCompleteColumn
from rich.table import Table

from reconverge.cli.replay.trace import InvalidTrace, read_arrivals
from reconverge.cli.shared import picture
from reconverge.cli.shared.options import (
    AlgorithmOption,
    InDoubtOption,
    InitialOption,
    JsonOption,
    ProcessesOption,
    RefillOption,
    SlicesOption,
    asks_within_ns,
    limits_as_said,
)
from reconverge.cli.shared.picture import Chart, Series
from reconverge.cli.shared.terminal import progress_shown, round_trip_ns
from reconverge.clock import SECOND_NS
from reconverge.errors import InvalidSetting, asked
from reconverge.limit.limit import ALIGNMENTS, CLOCK, GREEDY, UTC, Limit
from reconverge.limiter.asking import REFUSE
from reconverge.policies import BALANCED, Policy, choose
from reconverge.settings import LEASE_INTERVALS_MIN, SYNC_INTERVAL_MAX, SYNC_INTERVAL_MIN
from reconverge.simulation import (
    COMPARED,
    PATTERNS,
    AskSettings,
    Experiment,
    Figures,
    Fleet,
    RunFigures,
    SimulatedArrival,
    Traffic,
    run,
)
from reconverge.simulation.studies.experiment import PROCESSES

BROKEN_STATUS: Final = 1
NODES_MAX: Final = 1000
WINDOWS: Final = 30
WINDOWS_MAX: Final = 100_000
LEASE_MIN: Final = 3.0
"""The shortest lease in seconds: an agent requires three times its timeout of one second."""
LEASE_MAX: Final = 86_400.0
SEEDS_MAX: Final = 100_000
ROUNDED_FROM: Final = 10.0

Result: TypeAlias = tuple[dict[str, Figures], dict[str, list[RunFigures]]]
"""The result of `run`: the figures by policy over all seeds, and the figures of every run."""

LimitOption: TypeAlias = Annotated[
    str, typer.Option(help="The limit, such as '1000/10s', or several quotas: '10/s; 100/minute'.", metavar="LIMIT")
]
PolicyOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help=f"{', '.join(COMPARED)}; may be repeated. By default all of them.", metavar="NAME"),
]
DemandOption: TypeAlias = Annotated[
    float,
    typer.Option(help="What is asked for in a window, as a multiple of the (first) quota.", metavar="FACTOR"),
]
PatternOption: TypeAlias = Annotated[
    str,
    typer.Option(
        help=f"{', '.join(PATTERNS)}; or a CSV file of requests with t_s,node[,key][,cost].", metavar="NAME|FILE"
    ),
]
FaultOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="An outage, such as cut:half@2w+5w (half of the nodes, two windows after the start, for five), "
        "down@3w+1w, loss:10%@0w+9w or crash:1@3w+1w; may be repeated.",
        metavar="FAULT",
    ),
]
WindowsOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        help=f"Windows to simulate, of the first quota. By default {WINDOWS}, or as many as there are in the file "
        "of requests.",
        metavar="N",
        min=1,
        max=WINDOWS_MAX,
    ),
]
WarmupOption: TypeAlias = Annotated[
    int, typer.Option(help="Windows at the beginning that the figures leave out.", metavar="N", min=0)
]
LeaseOption: TypeAlias = Annotated[
    float | None, typer.Option(help="By default as an agent would choose it.", metavar="SECONDS")
]
SeedsOption: TypeAlias = Annotated[
    int, typer.Option(help="Runs, each drawn from a seed of its own.", metavar="N", min=1, max=SEEDS_MAX)
]
PlotOption: TypeAlias = Annotated[
    Path | None, typer.Option(help="Draw the first run into FILE.png or FILE.html.", metavar="FILE")
]
AlignOption: TypeAlias = Annotated[
    str, typer.Option(help=f"Where fixed windows begin: {', '.join(ALIGNMENTS)}.", metavar="NAME")
]


def simulate(
    nodes: Annotated[int, typer.Option(help="Nodes of the fleet.", metavar="N", min=1, max=NODES_MAX)] = 8,
    limit: LimitOption = "1000/10s",
    algorithm: AlgorithmOption = None,
    slices: SlicesOption = None,
    policy: PolicyOption = None,
    sync_interval: Annotated[float, typer.Option(help="Seconds between exchanges.", metavar="SECONDS")] = 1.0,
    demand: DemandOption = 3.0,
    pattern: PatternOption = "uniform",
    keys: Annotated[int, typer.Option(help="Over how many keys the demand is dealt.", metavar="N")] = 1,
    cost_max: Annotated[int, typer.Option(help="Costs are drawn from 1 to this.", metavar="N")] = 1,
    fault: FaultOption = None,
    windows: WindowsOption = None,
    warmup: WarmupOption = 2,
    rtt: Annotated[str, typer.Option(help="Round trip to the hub, such as 2ms.", metavar="TIME")] = "2ms",
    lease_ttl: LeaseOption = None,
    max_overshoot: Annotated[float | None, typer.Option(help="Of balanced, in place of 0.1.", metavar="SHARE")] = None,
    seeds: SeedsOption = 5,
    seed: Annotated[int, typer.Option(help="The first seed.", metavar="N")] = 0,
    processes: ProcessesOption = PROCESSES,
    plot: PlotOption = None,
    as_json: JsonOption = False,
    align: AlignOption = CLOCK,
    timezone: Annotated[str, typer.Option(help="Whose calendar, such as Europe/Berlin.", metavar="ZONE")] = UTC,
    initial: InitialOption = None,
    refill: RefillOption = GREEDY,
    in_doubt: InDoubtOption = REFUSE,
) -> None:
    """Simulate a fleet with the production kernel, syncer and merge rule under virtual time.

    All policies get the same requests and the same faults.

    Ends with status 1 if a declared bound was broken, which is a defect of reconverge.
    """
    policies = _policies(policy or list(COMPARED), max_overshoot)
    quotas = limits_as_said(
        limit, algorithm=algorithm, slices=slices, align=align, timezone=timezone, initial=initial, refill=refill
    )
    fleet = _asking(_fleet(nodes, quotas, sync_interval, rtt, lease_ttl), in_doubt, policies)
    traffic, windows = _traffic(pattern, fleet, demand, keys, cost_max, windows)
    experiment = Experiment(fleet, traffic, windows, warmup, tuple(fault or ()))
    _check(experiment, seed)
    if plot is not None:
        picture.check_available(plot)
    results = _run(experiment, policies, range(seed, seed + seeds), processes)
    if plot is not None:
        _save_first_run(plot, experiment, policies, results[0], seed)
    _print(experiment, [figures for figures, _ in results], as_json=as_json)
    if any(each.bound_violations for figures, _ in results for each in figures.values()):
        raise typer.Exit(BROKEN_STATUS)


def _fleet(nodes: int, quotas: tuple[Limit, ...], sync_interval: float, rtt: str, lease_ttl: float | None) -> Fleet:
    """Returns the fleet to simulate. Raises InvalidSetting for times that an agent would not accept."""
    limit, *further = quotas
    interval_ns = _checked_ns("sync_interval", sync_interval, SYNC_INTERVAL_MIN, SYNC_INTERVAL_MAX)
    lease_min = max(LEASE_INTERVALS_MIN * sync_interval, LEASE_MIN)
    return Fleet(
        nodes=nodes,
        limit=limit,
        sync_interval_ns=interval_ns,
        round_trip_ns=round_trip_ns("rtt", rtt),
        lease_ns=None if lease_ttl is None else _checked_ns("lease_ttl", lease_ttl, lease_min, LEASE_MAX),
        further=tuple(further),
    )


def _asking(fleet: Fleet, in_doubt: str, policies: Sequence[Policy]) -> Fleet:
    """Returns the fleet, in which requests in doubt wait for the hub's answer as long as `in_doubt` allows.

    Raises InvalidSetting, also if no request would ever wait.
    """
    within_ns = asks_within_ns(in_doubt, policies=policies, round_trip_ns=fleet.round_trip_ns)
    return replace(fleet, asks=AskSettings(within_ns)) if within_ns else fleet


def _by_quota(experiment: Experiment) -> list[Experiment]:
    """Returns copies of the experiment; each is judged by another one of the limit's quotas."""
    return [replace(experiment, judged=number) for number in range(len(experiment.fleet.quotas))]


def _run(experiment: Experiment, policies: list[Policy], seeds: range, processes: int) -> list[Result]:
    judged = _by_quota(experiment)
    with progress_bar(len(judged) * len(policies) * len(seeds), processes) as advance:
        return [run(each, policies, seeds, processes=processes, watch=advance) for each in judged]


def _print(experiment: Experiment, results: list[dict[str, Figures]], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(_as_json(experiment.fleet, results), indent=2))
        return
    console = Console()
    for each, figures in zip(_by_quota(experiment), results, strict=True):
        console.print(_table(_COLUMNS, figures))
        if each.fleet.asks is not None:
            console.print(_table(_ASK_COLUMNS, figures))
        console.print(_explanation(each), highlight=False)


def _as_json(fleet: Fleet, results: Sequence[dict[str, Figures]]) -> dict[str, object]:
    """Returns the results of every policy; if the limit has several quotas, a list of these, in the quotas' order."""
    every = [{name: each.as_json() for name, each in figures.items()} for figures in results]
    if len(every) == 1:
        return {"policies": every[0]}
    limits = map(str, fleet.quotas.values())
    return {"quotas": [{"limit": limit, "policies": each} for limit, each in zip(limits, every, strict=True)]}


def _policies(names: Sequence[str], max_overshoot: float | None) -> list[Policy]:
    for name in names:
        if name not in COMPARED:
            raise InvalidSetting("policy", name, f"is no policy; known: {', '.join(COMPARED)}{asked(name, COMPARED)}")
    if max_overshoot is not None and BALANCED.name not in names:
        raise InvalidSetting(
            "max_overshoot", max_overshoot, "is for balanced, which is not simulated; add --policy balanced"
        )
    own = {} if max_overshoot is None else {BALANCED.name: choose(BALANCED.name, max_overshoot=max_overshoot)}
    return [own.get(name, COMPARED[name]) for name in dict.fromkeys(names)]


def _traffic(
    pattern: str, fleet: Fleet, demand: float, keys: int, cost_max: int, windows: int | None
) -> tuple[Traffic | tuple[SimulatedArrival, ...], int]:
    """Returns the traffic, which is a named pattern or the requests in a file, and the number of windows."""
    limit = fleet.limit
    if pattern in PATTERNS:
        if cost_max > limit.capacity:
            raise InvalidSetting(
                "cost_max", cost_max, f"is more than {limit} can ever admit; lower it, or raise the limit"
            )
        return Traffic(pattern, demand, keys, cost_max), windows or WINDOWS
    path = Path(pattern)
    if path.suffix not in (".csv", ".gz"):
        raise InvalidSetting(
            "pattern", pattern, f"is neither a CSV file nor a pattern; known patterns: {', '.join(PATTERNS)}"
        )
    arrivals = read_arrivals(path, fleet.nodes)
    dearest = max(arrival.cost for arrival in arrivals)
    if dearest > limit.capacity:
        raise InvalidTrace(
            path,
            f"has a request that costs {dearest}, more than {limit} can ever admit; lower the cost, or raise the limit",
        )
    windows = windows or min(arrivals[-1].moment_ns // limit.window_ns + 1, WINDOWS_MAX)
    end_ns = windows * limit.window_ns
    return tuple(arrival for arrival in arrivals if arrival.moment_ns < end_ns), windows


def _check(experiment: Experiment, seed: int) -> None:
    """Raises InvalidSetting if the warm-up or a fault lies outside the windows; called before anything is run."""
    if experiment.warmup >= experiment.windows:
        raise InvalidSetting(
            "warmup",
            experiment.warmup,
            f"leaves none of {experiment.windows} windows to measure; simulate more windows, or warm up for fewer",
        )
    end_ns = experiment.windows * experiment.fleet.limit.window_ns
    for text, fault in zip(experiment.faults, experiment.faults_of(seed), strict=True):
        if fault.start_ns >= end_ns:
            raise InvalidSetting(
                "fault",
                text,
                f"begins after the {experiment.windows} windows that are simulated; let it begin earlier",
            )


def _checked_ns(name: str, value: float, least: float, most: float) -> int:
    if not least <= value <= most:
        raise InvalidSetting(name, value, f"must be a number of seconds from {least:g} to {most:g}")
    return round(value * SECOND_NS)


@contextmanager
def progress_bar(total: int, processes: int) -> Generator[Callable[[], None]]:
    """Shows how many of `total` runs are done. Yields a function to be called after each run."""
    done = count(1)
    with progress_shown(f"simulating {total} runs on {min(processes, total)} processes", MofNCompleteColumn()) as show:
        show("simulating", 0, total)
        yield lambda: show("simulating", next(done), total)


_Columns: TypeAlias = tuple[tuple[str, Callable[[Figures], str]], ...]
_COLUMNS: Final[_Columns] = (
    ("over mean/99th/max", lambda each: joined(each.over_mean_pct, each.over_p99_pct, each.over_max_pct)),
    ("bound", lambda each: f"{each.bound_pct:g}"),
    ("broken", lambda each: str(each.bound_violations)),
    ("under mean/max", lambda each: joined(each.under_mean_pct, each.under_max_pct)),
    ("refused", lambda each: joined(each.falsely_refused_pct)),
    ("messages", lambda each: f"{each.messages_per_node_window:.1f}"),
)


_ASK_COLUMNS: Final[_Columns] = (
    ("asked", lambda each: f"{each.asked_pct:.1f}"),
    ("waited median/99th/max", lambda each: joined(each.waited_median_ms, each.waited_p99_ms, each.waited_max_ms)),
)
"""The columns about requests that ask, in a table of their own, as one table would be too wide."""
_ASKED: Final = " asked: waited for the hub's answer, in % of all requests; waited: so long, in ms."


def joined(*values: float) -> str:
    """Returns several numbers as the text of one cell of a table, divided by slashes."""
    return " / ".join(f"{value:.2f}" if value < ROUNDED_FROM else f"{value:.0f}" for value in values)


def _rows(columns: _Columns, figures: dict[str, Figures]) -> list[list[str]]:
    rows = []
    for name, each in figures.items():
        texts = {heading: text(each) for heading, text in columns}
        if COMPARED[name].merged_only and "bound" in texts:
            texts["bound"] = "none"
        rows.append([name, *texts.values()])
    return rows


def _table(columns: _Columns, figures: dict[str, Figures]) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    table.add_column("policy", no_wrap=True)
    for heading, _ in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in _rows(columns, figures):
        table.add_row(*row)
    return table


def _explanation(experiment: Experiment) -> str:
    limit, windows = list(experiment.fleet.quotas.values())[experiment.judged], experiment.judged_windows
    return (
        f"{experiment.fleet.nodes} nodes share {limit}, simulated for {windows} windows, of which the first "
        f"{experiment.judged_warmup} count for `broken` alone. In % of the limit, by window: over, what was "
        "admitted above it; bound, the most that is declared for that; under, how much less was admitted than by one "
        "central limiter, also where the next window makes up for it. refused: falsely, over the whole run, in % of "
        "what a central limiter admits. broken: windows above the bound. messages: by node and window."
        f"{_ASKED if experiment.fleet.asks is not None else ''}"
    )


def _chart(experiment: Experiment, policies: Sequence[Policy], runs: dict[str, RunFigures], seed: int) -> Chart:
    """Returns a chart of the admissions of every policy in its first run, for the key with the most requests."""
    limit, arrivals = experiment.fleet.limit, experiment.arrivals(seed)
    key = next(iter(runs.values())).busiest
    several = f", key {key!r}" if len({arrival.key for arrival in arrivals}) > 1 else ""
    asked: Counter[int] = Counter()
    for arrival in arrivals:
        if arrival.key == key:
            asked[arrival.moment_ns // limit.window_ns] += arrival.cost
    shades = [
        (fault.start_ns / SECOND_NS, fault.end_ns / SECOND_NS, fault.kind.value)
        for fault in experiment.faults_of(seed)
        if fault.end_ns > fault.start_ns
    ]
    return Chart(
        title=f"{experiment.fleet.nodes} nodes share {limit}{several}, seed {seed}",
        moments_s=[number * limit.window for number in range(experiment.windows)],
        window_s=limit.window,
        asked=[asked[number] for number in range(experiment.windows)],
        quota=limit.quota,
        series=[
            Series(
                policy.name,
                runs[policy.name].busiest_by_window,
                limit.capacity * (1 + runs[policy.name].bound_pct / 100) if policy.max_overshoot < 1 else None,
            )
            for policy in policies
        ],
        cuts=shades,
    )


def _save_first_run(path: Path, experiment: Experiment, policies: Sequence[Policy], result: Result, seed: int) -> None:
    figures, runs = result
    first = {name: each[0] for name, each in runs.items()}
    columns = _COLUMNS if experiment.fleet.asks is None else (*_COLUMNS, *_ASK_COLUMNS)
    chart = _chart(experiment, policies, first, seed)
    table = [["policy", *(heading for heading, _ in columns)], *_rows(columns, figures)]
    picture.save(chart, path, heading="reconverge simulate", sentences=[_explanation(experiment)], table=table)
