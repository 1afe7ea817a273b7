"""`reconverge tune`: the longest sync interval that keeps a bound, and what it costs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from reconverge.cli import picture
from reconverge.cli.frontier import Frontier
from reconverge.cli.quantity import percent, seconds
from reconverge.clock import SECOND_NS
from reconverge.errors import InvalidSetting
from reconverge.limit import ALGORITHMS, SLIDING_WINDOW, Limit
from reconverge.policies import BALANCED, NAIVE, STRICT
from reconverge.simulation.tuning import Deployment, Option, best, intervals_ns, weigh

NOTHING_KEEPS_STATUS: Final = 1
NODES_MAX: Final = 1000
POLICIES: Final = (STRICT, BALANCED, NAIVE)
OURS: Final = (STRICT.name, BALANCED.name)


def tune(
    nodes: Annotated[int, typer.Option(help="Processes that share the limit.", min=1, max=NODES_MAX)],
    limit: Annotated[str, typer.Option(help="The limit, such as '1000/minute'.")],
    demand: Annotated[float, typer.Option(help="What is asked for at busy times, as a multiple of the limit.")] = 2.0,
    max_over: Annotated[str, typer.Option(help="The most that a window may admit above the limit, such as 1%.")] = "1%",
    max_under: Annotated[str, typer.Option(help="The most that may be refused falsely, in the mean.")] = "2%",
    redis_rtt: Annotated[str, typer.Option(help="Round trip to Redis, such as 2ms.")] = "2ms",
    hot_keys: Annotated[int, typer.Option(help="Keys that are busy at the same time.", min=1)] = 1,
    algorithm: Annotated[str, typer.Option(help=", ".join(ALGORITHMS))] = SLIDING_WINDOW,
    seeds: Annotated[int, typer.Option(help="Runs for each figure.", min=1, max=1000)] = 2,
    plot: Annotated[
        Path | None, typer.Option(help="Draw over-admission and traffic into FILE.png or FILE.html.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Find the longest sync interval, and the policy, that keep a bound for these numbers.

    Simulates steady traffic, crowds, nodes that come and go, and a tenfold surge, and takes the worst of each. Ends
    with status 1 when nothing keeps the bound.
    """
    over_pct, under_pct = percent("max_over", max_over), percent("max_under", max_under)
    if plot is not None:
        picture.check_available(plot)
    deployment = Deployment(
        nodes=nodes,
        limit=Limit.parse(limit, algorithm=algorithm),
        demand=demand,
        round_trip_ns=round(seconds("redis_rtt", redis_rtt) * SECOND_NS),
        hot_keys=hot_keys,
    )
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=len(intervals_ns(deployment.limit)) * len(POLICIES))
        options = weigh(deployment, POLICIES, seeds=range(seeds), watch=lambda: bar.advance(task))
    chosen = best((option for option in options if option.policy in OURS), over_pct=over_pct, under_pct=under_pct)
    advice = _advice(chosen, over_pct, under_pct)
    if plot is not None:
        _save(plot, _frontier(deployment, options, over_pct), advice, options)
    if as_json:
        figures = {"advice": advice, "chosen": None if chosen is None else asdict(chosen)}
        print(json.dumps(figures | {"options": [asdict(option) for option in options]}, indent=2))
    else:
        console = Console()
        console.print(_table(options, chosen))
        console.print(advice, highlight=False)
    if chosen is None:
        raise typer.Exit(NOTHING_KEEPS_STATUS)


_HEADINGS: Final = ("policy", "interval", "over mean / max", "declared", "under", "messages/s", "Redis")


def _row(option: Option) -> list[str]:
    return [
        option.policy,
        f"{option.sync_interval_s:g} s",
        f"{option.over_mean_pct:.2f} / {option.over_max_pct:.2f}",
        f"{option.bound_pct:g}" if option.policy in OURS else "none",
        f"{option.under_mean_pct:.2f}",
        f"{option.messages_per_s:g}",
        f"{option.hub_cpu_pct:.2f}",
    ]


def _table(options: list[Option], chosen: Option | None) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        pad_edge=False,
        caption="the worst of four patterns, in % of the limit by window; messages of the fleet; Redis in % of a core",
        caption_justify="left",
    )
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading == "policy" else "right", no_wrap=True)
    for option in sorted(
        options, key=lambda option: (option.policy not in OURS, option.policy, option.sync_interval_s)
    ):
        table.add_row(*_row(option), style="bold" if option == chosen else None)
    return table


def _advice(chosen: Option | None, over_pct: float, under_pct: float) -> str:
    asked = f"at most {over_pct:g} % over and {under_pct:g} % under"
    if chosen is None:
        return f"Nothing that was tried keeps {asked}; allow more, or share the limit among fewer nodes."
    return (
        f"Use sync_interval={chosen.sync_interval_s:g} with policy={chosen.policy!r}: {asked} in every pattern, for "
        f"{chosen.messages_per_s:g} messages a second and {chosen.hub_cpu_pct:.2g} % of a Redis core."
    )


def _frontier(deployment: Deployment, options: list[Option], over_pct: float) -> Frontier:
    return Frontier(
        title=f"{deployment.nodes} nodes share {deployment.limit}, asked for {deployment.demand:g} times as much",
        interval_s=sorted({option.sync_interval_s for option in options}),
        over_max_pct={
            policy.name: [option.over_max_pct for option in options if option.policy == policy.name]
            for policy in POLICIES
        },
        messages_per_s={name: [option.messages_per_s for option in options if option.policy == name] for name in OURS},
        allowed_pct=over_pct,
    )


def _save(path: Path, frontier: Frontier, advice: str, options: list[Option]) -> None:
    try:
        if path.suffix == ".png":
            picture.save_png(frontier, path)
        else:
            table = [list(_HEADINGS), *map(_row, options)]
            picture.save_page(frontier, path, heading="reconverge tune", sentences=[advice], table=table)
    except OSError as error:
        raise InvalidSetting("plot", str(path), f"cannot be written: {error.strerror}") from None
