"""`reconverge simulate`: a fleet under virtual time, policies side by side."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from reconverge.cli import picture
from reconverge.cli.picture import Chart, Series
from reconverge.cli.quantity import seconds
from reconverge.cli.trace import read_arrivals
from reconverge.clock import SECOND_NS
from reconverge.errors import InvalidSetting
from reconverge.limit import ALGORITHMS, SLIDING_WINDOW, Limit
from reconverge.policies import Policy, choose
from reconverge.simulation import COMPARED, PATTERNS, Arrival, Experiment, Figures, Fleet, RunFigures, Traffic, run

BROKEN_STATUS: Final = 1
NODES_MAX: Final = 1000
SEEDS_MAX: Final = 100_000
ROUNDED_FROM: Final = 10.0


def simulate(
    nodes: Annotated[int, typer.Option(help="Nodes of the fleet.", min=1, max=NODES_MAX)] = 8,
    limit: Annotated[str, typer.Option(help="The limit, such as '1000/10s'.")] = "1000/10s",
    algorithm: Annotated[str, typer.Option(help=", ".join(ALGORITHMS))] = SLIDING_WINDOW,
    policy: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(COMPARED)}; may be repeated. By default all of them.")
    ] = None,
    sync_interval: Annotated[float, typer.Option(help="Seconds between exchanges.")] = 1.0,
    demand: Annotated[float, typer.Option(help="What is asked for, as a multiple of the limit.")] = 3.0,
    pattern: Annotated[
        str, typer.Option(help=f"{', '.join(PATTERNS)}; or a CSV file with t_s,node[,key][,cost].")
    ] = "uniform",
    keys: Annotated[int, typer.Option(help="Over how many keys the demand is dealt.")] = 1,
    cost_max: Annotated[int, typer.Option(help="Costs are drawn from 1 to this.")] = 1,
    fault: Annotated[
        list[str] | None,
        typer.Option(help="What goes wrong, such as cut:half@2w+5w, down@3w+1w, loss:10%@0w+9w or crash:1@3w+1w."),
    ] = None,
    windows: Annotated[int, typer.Option(help="Windows to simulate.", min=1, max=100_000)] = 30,
    warmup: Annotated[int, typer.Option(help="Windows at the beginning that the figures leave out.", min=0)] = 2,
    rtt: Annotated[str, typer.Option(help="Round trip to the hub, such as 2ms.")] = "2ms",
    lease_ttl: Annotated[float | None, typer.Option(help="Seconds; by default as an agent would choose.")] = None,
    max_overshoot: Annotated[float | None, typer.Option(help="Of balanced, in place of 0.1.")] = None,
    seeds: Annotated[int, typer.Option(help="Runs, each drawn from a seed of its own.", min=1, max=SEEDS_MAX)] = 5,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Draw the first run into FILE.png or FILE.html.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Simulate a fleet with the production kernel, syncer and merge rule under virtual time.

    Ends with status 1 when a declared bound was broken, which would be a defect of reconverge.
    """
    policies = [_policy(name, max_overshoot) for name in dict.fromkeys(policy or COMPARED)]
    parsed = Limit.parse(limit, algorithm=algorithm)
    if warmup >= windows:
        raise InvalidSetting("warmup", warmup, f"leaves nothing of {windows} windows")
    if plot is not None:
        picture.check_available(plot)
    fleet = Fleet(
        nodes=nodes,
        limit=parsed,
        sync_interval_ns=_positive_ns("sync_interval", sync_interval),
        round_trip_ns=round(seconds("rtt", rtt) * SECOND_NS),
        lease_ns=None if lease_ttl is None else _positive_ns("lease_ttl", lease_ttl),
    )
    traffic = _traffic(pattern, nodes, Traffic(pattern if pattern in PATTERNS else "uniform", demand, keys, cost_max))
    experiment = Experiment(fleet, traffic, windows, warmup, tuple(fault or ()))
    experiment.faults_of(seed)  # a mistake in them is told before anything is run
    numbers = range(seed, seed + seeds)
    with _progress_bar(len(policies) * seeds) as advance:
        figures, runs = run(experiment, policies, numbers, watch=advance)
    if plot is not None:
        first = {name: each[0] for name, each in runs.items()}
        _save(plot, _chart(experiment, policies, first, numbers[0]), figures)
    if as_json:
        print(json.dumps({"policies": {name: each.as_json() for name, each in figures.items()}}, indent=2))
    else:
        Console().print(_table(figures))
    if any(each.bound_violations for each in figures.values()):
        raise typer.Exit(BROKEN_STATUS)


def _policy(name: str, max_overshoot: float | None) -> Policy:
    if name not in COMPARED:
        raise InvalidSetting("policy", name, f"unknown; known: {', '.join(COMPARED)}")
    if name == "balanced" and max_overshoot is not None:
        return choose(name, max_overshoot=max_overshoot)
    return COMPARED[name]


def _traffic(pattern: str, nodes: int, drawn: Traffic) -> Traffic | tuple[Arrival, ...]:
    """The pattern of that name, or the arrivals in the file of that name."""
    if pattern in PATTERNS:
        return drawn
    path = Path(pattern)
    if path.suffix not in (".csv", ".gz"):
        raise InvalidSetting("pattern", pattern, f"is no CSV file, and none of {', '.join(PATTERNS)}")
    return tuple(read_arrivals(path, nodes))


def _positive_ns(name: str, value: float) -> int:
    if not 0.001 <= value <= 86_400:
        raise InvalidSetting(name, value, "must be a number of seconds from 0.001 to 86400")
    return round(value * SECOND_NS)


@contextmanager
def _progress_bar(total: int) -> Generator[Callable[[], None]]:
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)


_COLUMNS: Final[tuple[tuple[str, Callable[[Figures], str]], ...]] = (
    ("over mean/99th/max", lambda each: _joined(each.over_mean_pct, each.over_p99_pct, each.over_max_pct)),
    ("bound", lambda each: f"{each.bound_pct:g}"),
    ("broken", lambda each: str(each.bound_violations)),
    ("under mean/max", lambda each: _joined(each.under_mean_pct, each.under_max_pct)),
    ("messages", lambda each: f"{each.messages_per_node_window:.1f}"),
)


def _joined(*values: float) -> str:
    return " / ".join(f"{value:.2f}" if value < ROUNDED_FROM else f"{value:.0f}" for value in values)


def _rows(figures: dict[str, Figures]) -> list[list[str]]:
    return [[name, *(text(each) for _, text in _COLUMNS)] for name, each in figures.items()]


def _table(figures: dict[str, Figures]) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        pad_edge=False,
        caption="% of the limit by window; messages by node and window",
        caption_justify="left",
    )
    table.add_column("policy", no_wrap=True)
    for heading, _ in _COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in _rows(figures):
        table.add_row(*row)
    return table


def _chart(experiment: Experiment, policies: Sequence[Policy], runs: dict[str, RunFigures], seed: int) -> Chart:
    """What every policy admitted in the first run."""
    limit, nodes = experiment.fleet.limit, experiment.fleet.nodes
    asked = Counter(arrival.moment_ns // limit.window_ns for arrival in experiment.arrivals(seed))
    shades = [
        (fault.start_ns / SECOND_NS, fault.end_ns / SECOND_NS, fault.kind.value)
        for fault in experiment.faults_of(seed)
        if fault.end_ns > fault.start_ns
    ]
    return Chart(
        title=f"{nodes} nodes share {limit}, seed {seed}",
        moments_s=[number * limit.window for number in range(experiment.windows)],
        window_s=limit.window,
        asked=[asked[number] for number in range(experiment.windows)],
        quota=limit.quota,
        series=[
            Series(
                policy.name,
                [admitted for admitted, _ in runs[policy.name].by_window],
                limit.capacity + policy.bound(limit.capacity, nodes) if policy.max_overshoot < 1 else None,
            )
            for policy in policies
        ],
        cuts=shades,
    )


def _save(path: Path, chart: Chart, figures: dict[str, Figures]) -> None:
    """Write the chart. Raises InvalidSetting when it cannot be written."""
    try:
        if path.suffix == ".png":
            picture.save_png(chart, path)
        else:
            head = ["policy", *(heading for heading, _ in _COLUMNS)]
            picture.save_page(chart, path, heading="reconverge simulate", sentences=[], table=[head, *_rows(figures)])
    except OSError as error:
        raise InvalidSetting("plot", str(path), f"cannot be written: {error.strerror}") from None
