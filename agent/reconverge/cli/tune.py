"""The command `reconverge tune`: finds the longest sync interval that keeps a bound, and its cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from reconverge.cli.shared import picture
from reconverge.cli.shared.options import (
    AlgorithmOption,
    InDoubtOption,
    JsonOption,
    ProcessesOption,
    SlicesOption,
    asks_within_ns,
    limit_as_said,
)
from reconverge.cli.shared.picture import COLOURS, INK, dress
from reconverge.cli.shared.terminal import percent, round_trip_ns
from reconverge.cli.simulate import joined, progress_bar
from reconverge.limiter.asking import REFUSE
from reconverge.policies import BALANCED, NAIVE, STRICT
from reconverge.simulation.studies.capacity import HUB_CPU_PCT_MAX
from reconverge.simulation.studies.experiment import PROCESSES
from reconverge.simulation.studies.tuning import (
    REFUSED_ABOVE_LEAST_PCT,
    WINDOW_INTERVALS_MAX,
    Deployment,
    Option,
    best,
    intervals_ns,
    nearest,
    often_enough,
    simulated,
    trials,
    weigh,
)

NOTHING_KEEPS_STATUS: Final = 1
NODES_MAX: Final = 1000
POLICIES: Final = (STRICT, BALANCED, NAIVE)
OURS: Final = (STRICT.name, BALANCED.name)

DemandOption: TypeAlias = Annotated[
    float, typer.Option(help="What is asked for at busy times, as a multiple of the limit.", metavar="FACTOR")
]
MaxOverOption: TypeAlias = Annotated[
    str, typer.Option(help="The most that any window may admit above the limit, such as 1%.", metavar="PERCENT")
]
MaxRefusedOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="The most that may be refused falsely, of what one central limiter would admit. By default "
        f"{REFUSED_ABOVE_LEAST_PCT:g} points more than the least that can be had.",
        metavar="PERCENT",
    ),
]
ColdKeysOption: TypeAlias = Annotated[
    int, typer.Option(help="Further keys of each process, asked about once in a window.", metavar="N", min=0)
]
RoundTripOption: TypeAlias = Annotated[
    str, typer.Option("--rtt", "--redis-rtt", help="Round trip to the hub, such as 2ms.", metavar="TIME")
]
PlotOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="Draw over-admission, refusals and traffic into FILE.png or FILE.html.", metavar="FILE"),
]


def tune(
    nodes: Annotated[int, typer.Option(help="Processes that share the limit.", metavar="N", min=1, max=NODES_MAX)],
    limit: Annotated[str, typer.Option(help="The limit, such as '1000/minute'.", metavar="LIMIT")],
    demand: DemandOption = 2.0,
    max_over: MaxOverOption = "1%",
    max_refused: MaxRefusedOption = None,
    rtt: RoundTripOption = "2ms",
    hot_keys: Annotated[int, typer.Option(help="Keys that are busy at the same time.", metavar="N", min=1)] = 1,
    cold_keys: ColdKeysOption = 0,
    algorithm: AlgorithmOption = None,
    slices: SlicesOption = None,
    seeds: Annotated[int, typer.Option(help="Runs for each figure.", metavar="N", min=1, max=1000)] = 2,
    processes: ProcessesOption = PROCESSES,
    plot: PlotOption = None,
    as_json: JsonOption = False,
    in_doubt: InDoubtOption = REFUSE,
) -> None:
    """Find the longest sync interval, and the policy, that keep a bound for this limit and this load.

    Simulates steady traffic, crowds, nodes that come and go, and a tenfold surge, and reports the worst of the four for
    each figure.

    Ends with status 1 if no interval keeps the bound.
    """
    over_pct = percent("max_over", max_over)
    refused_pct = None if max_refused is None else percent("max_refused", max_refused)
    rtt_ns = round_trip_ns("rtt", rtt)
    deployment = Deployment(
        nodes=nodes,
        limit=limit_as_said(limit, algorithm=algorithm, slices=slices),
        demand=demand,
        round_trip_ns=rtt_ns,
        hot_keys=hot_keys,
        cold_keys=cold_keys,
        asks_within_ns=asks_within_ns(in_doubt, policies=POLICIES, round_trip_ns=rtt_ns),
    )
    if plot is not None:
        picture.check_available(plot)
    with progress_bar(len(trials(deployment, POLICIES, range(seeds))), processes) as advance:
        options = weigh(deployment, POLICIES, seeds=range(seeds), processes=processes, watch=advance)
    ours = often_enough([option for option in options if option.policy in OURS], deployment.limit)
    chosen = best(ours, over_pct=over_pct, refused_pct=refused_pct)
    advice = _advice(chosen, ours, over_pct, refused_pct, asking=in_doubt if deployment.asks_within_ns else "")
    if plot is not None:
        frontier = _frontier(deployment, options, over_pct, chosen)
        table = _rows(options, asking=any(option.asked_pct for option in options))
        picture.save(frontier, plot, heading="reconverge tune", sentences=[advice], table=table)
    _print(deployment, options, chosen, advice, as_json=as_json)
    if chosen is None:
        raise typer.Exit(NOTHING_KEEPS_STATUS)


def _print(deployment: Deployment, options: list[Option], chosen: Option | None, advice: str, *, as_json: bool) -> None:
    if as_json:
        figures = {"advice": advice, "chosen": None if chosen is None else asdict(chosen)}
        print(json.dumps(figures | {"options": [asdict(option) for option in options]}, indent=2))
        return
    console = Console()
    console.print(_table(options, chosen, asking=deployment.asks_within_ns > 0))
    console.print(_explanation(deployment), highlight=False)
    console.print(advice, highlight=False)


_HEADINGS: Final = ("policy", "interval", "over mean/max", "declared", "refused", "messages/s", "Redis")
ASKED: Final = "asked"
"""The head of the last column, which the table has only if requests ask the hub."""


def _rows(options: Iterable[Option], *, asking: bool) -> list[list[str]]:
    """Returns the table's headings and a row for each option; `asking` adds a column on requests that ask the hub."""
    head: list[str] = [*_HEADINGS, ASKED][: len(_HEADINGS) + asking]
    return [head, *(_row(option)[: len(head)] for option in options)]


def _row(option: Option) -> list[str]:
    return [
        option.policy,
        f"{option.sync_interval_s:g} s",
        joined(option.over_mean_pct, option.over_max_pct),
        f"{option.bound_pct:g}" if option.policy in OURS else "none",
        f"{option.falsely_refused_pct:.2f}" if option.policy in OURS else "-",
        f"{option.messages_per_s:g}",
        f"{option.hub_cpu_pct:.2f}",
        f"{option.asked_pct:.1f}" if option.policy in OURS else "-",
    ]


def _table(options: list[Option], chosen: Option | None, *, asking: bool) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0) if asking else (0, 1),
        pad_edge=False,
        show_edge=not asking,
    )
    ordered = sorted(options, key=lambda option: (option.policy not in OURS, option.policy, option.sync_interval_s))
    head, *rows = _rows(ordered, asking=asking)
    for heading in head:
        table.add_column(heading, justify="left" if heading == "policy" else "right", no_wrap=True)
    for option, row in zip(ordered, rows, strict=True):
        table.add_row(*row, style="bold" if option == chosen else None)
    return table


def _explanation(deployment: Deployment) -> str:
    several = ", at most" if deployment.hot_keys > 1 or deployment.cold_keys else ""
    asked = " asked: of the requests for a hot key, in %." if deployment.asks_within_ns else ""
    limit = deployment.limit
    smaller = simulated(limit, WINDOW_INTERVALS_MAX * intervals_ns(limit)[-1])
    instead = "" if smaller.quota == limit.quota else f" Simulated with {smaller}, which is harder to share."
    return (
        "over: above the limit, in % of it by window. declared: the most that can ever be. refused: falsely, in % of "
        f"what one central limiter admits. messages/s: of the fleet{several}. Redis: % of a core{several}.{asked} "
        f"All are the worst of four patterns.{instead}"
    )


NEW_KEYS: Final = (
    " A key that is new to a node is refused there until the hub has answered, which is not among these refusals: where"
    " most keys are asked for once, take balanced."
)


def _advice(
    chosen: Option | None, options: Sequence[Option], over_pct: float, refused_pct: float | None, *, asking: str = ""
) -> str:
    if chosen is None:
        closest = nearest(options, over_pct=over_pct)
        assert closest is not None, "strict admits nothing above the limit"
        return (
            f"Nothing that was tried keeps at most {over_pct:g} % over and {refused_pct:g} % falsely refused. Nearest: "
            f"{_described(closest)}. Allow more, or share the limit among fewer nodes."
        )
    guarantee = ""
    if chosen.bound_pct > over_pct:
        guarantee = f" Other traffic may reach the declared {chosen.bound_pct:g} %; strict declares 0."
    new_keys = NEW_KEYS if chosen.policy == "strict" else ""
    if asking:
        new_keys = (
            f" With in_doubt={asking!r} at most {chosen.asked_pct:.2g} % of the requests for a hot key wait for the"
            f" hub, 99 of 100 of those for at most {chosen.waited_p99_ms:.2g} ms; and so does each request for a key"
            " that is new to its node."
        )
    return f"Use {_described(chosen)}.{guarantee}{new_keys} {_load(chosen)}"


def _load(option: Option) -> str:
    """Returns sentences on a Redis' traffic and memory under an option, and whether one Redis can bear the load."""
    both = option.hub_in_bytes_per_s + option.hub_out_bytes_per_s
    text = (
        f"The Redis then receives and sends {_bytes(both)}/s, and needs {_bytes(option.hub_memory_bytes)} for the keys."
    )
    if option.hubs > 1:
        text += (
            f" One Redis is not enough: at most {HUB_CPU_PCT_MAX:g} % of a core should be in use. Divide the keys "
            f"among {option.hubs}, choose a longer interval, or have fewer nodes."
        )
    return text


def _bytes(number: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"


def _described(option: Option) -> str:
    return (
        f"sync_interval={option.sync_interval_s:g} with policy={option.policy!r}: {option.over_max_pct:g} % over "
        f"and {option.falsely_refused_pct:.1f} % falsely refused at worst, for {option.messages_per_s:g} messages a "
        f"second and {option.hub_cpu_pct:.2g} % of a Redis core"
    )


def _frontier(deployment: Deployment, options: list[Option], over_pct: float, chosen: Option | None) -> Frontier:
    def by_policy(value: Callable[[Option], float], names: Iterable[str]) -> dict[str, list[float]]:
        return {name: [value(option) for option in options if option.policy == name] for name in names}

    every_policy = [policy.name for policy in POLICIES]
    return Frontier(
        title=f"{deployment.nodes} nodes share {deployment.limit}, asked for {deployment.demand:g} times as much",
        interval_s=sorted({option.sync_interval_s for option in options}),
        over_max_pct=by_policy(lambda option: option.over_max_pct, every_policy),
        refused_pct=by_policy(lambda option: option.falsely_refused_pct, OURS),
        messages_per_s=by_policy(lambda option: option.messages_per_s, OURS),
        allowed_pct=over_pct,
        chosen_s=None if chosen is None else chosen.sync_interval_s,
    )


MARKERS: Final = "os^"
LINES: Final = ("-", "--", ":")
"""The line styles, which differ because the lines of equally good policies cover each other."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """A chart of over-admission, false refusals and traffic by sync interval."""

    title: str
    interval_s: Sequence[float]
    over_max_pct: Mapping[str, Sequence[float]]
    """The over-admission of the worst window by policy, for every interval."""
    refused_pct: Mapping[str, Sequence[float]]
    """False refusals by policy, for every interval."""
    messages_per_s: Mapping[str, Sequence[float]]
    """Messages of the whole fleet by policy, for every interval."""
    allowed_pct: float
    chosen_s: float | None
    """The interval that was chosen, if one was."""

    def draw_on(self, figure: Any) -> None:
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
