"""The command `reconverge replay`: replays a recording of real requests on real processes, and judges the result."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Annotated, Final, TypeAlias

import typer
from rich.console import Console
from rich.progress import TextColumn

from reconverge.cli.replay import fleet
from reconverge.cli.replay.figures import as_figures, figures_table, verdict_on
from reconverge.cli.replay.fleet import NODES_MAX, ReplayOutcome, Setup
from reconverge.cli.replay.judgement import Judgement, judge
from reconverge.cli.replay.link import Cut
from reconverge.cli.replay.plot import save_plot
from reconverge.cli.replay.trace import Columns, RecordedRequest, read_trace, without_gaps
from reconverge.cli.shared import picture
from reconverge.cli.shared.options import (
    AlgorithmOption,
    InDoubtOption,
    InitialOption,
    JsonOption,
    MeetingOption,
    RefillOption,
    SlicesOption,
    asks_within_ns,
    limit_as_said,
)
from reconverge.cli.shared.terminal import progress_shown
from reconverge.errors import InvalidSetting
from reconverge.limit.limit import (
    CALENDAR,
    CLOCK,
    FIRST_HIT,
    GREEDY,
    WINDOW_MIN_NS,
    Limit,
)
from reconverge.limiter.asking import REFUSE
from reconverge.policies import POLICIES
from reconverge.settings import SYNC_INTERVAL_MAX

BROKEN_STATUS: Final = 1
SPEED_MAX: Final = 1e6


class SpreadName(StrEnum):
    """The ways to assign requests to the nodes."""

    ROUND_ROBIN = "round-robin"
    HASH = "hash"


LimitOption: TypeAlias = Annotated[
    str, typer.Option(help="The limit, such as '30/minute', in the recording's own time.", metavar="LIMIT")
]
KeyOption: TypeAlias = Annotated[
    str, typer.Option(help="The column with the key; '*' for one shared key.", metavar="COLUMN")
]
CostOption: TypeAlias = Annotated[
    str | None, typer.Option(help="The column with what a request costs; by default 1.", metavar="COLUMN")
]
SettleOption: TypeAlias = Annotated[
    str | None,
    typer.Option(help="The column with the cost that is added when a request is over.", metavar="COLUMN"),
]
SpreadOption: TypeAlias = Annotated[
    SpreadName, typer.Option(help="Which node gets a request: round-robin or hash.", metavar="NAME")
]
SettleAfterOption: TypeAlias = Annotated[
    float, typer.Option(help="Seconds that a request takes, in the recording's time.", metavar="SECONDS")
]
SpeedOption: TypeAlias = Annotated[
    float, typer.Option(help="How many seconds of the recording, and of the limit, pass in one.", metavar="FACTOR")
]
MaxGapOption: TypeAlias = Annotated[
    float | None,
    typer.Option(help="Cut idle stretches down to this many seconds, in the recording's time.", metavar="SECONDS"),
]
PolicyOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help=f"{', '.join(POLICIES)}; several are compared in the same run. By default balanced.", metavar="NAME"
    ),
]
CutOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="Cut nodes off from the hub: NODES@START+LENGTH in real seconds, like 2@30s+20s or all@8s+6s.",
        metavar="CUT",
    ),
]
PlotOption: TypeAlias = Annotated[
    Path | None, typer.Option(help="Draw the busiest key into FILE.png or FILE.html.", metavar="FILE")
]
AlignOption: TypeAlias = Annotated[
    str, typer.Option(help=f"Where fixed windows begin: {CLOCK}, {FIRST_HIT}.", metavar="NAME")
]


def replay(
    trace: Annotated[Path, typer.Argument(help="A CSV or CSV.gz file with a column t_s (seconds).", metavar="TRACE")],
    limit: LimitOption,
    key: KeyOption,
    cost: CostOption = None,
    settle: SettleOption = None,
    settle_after: SettleAfterOption = 5.0,
    nodes: Annotated[int, typer.Option(help="Processes.", metavar="N", min=1, max=NODES_MAX)] = 4,
    speed: SpeedOption = 60.0,
    max_gap: MaxGapOption = None,
    hub: MeetingOption = "embedded://",
    algorithm: AlgorithmOption = None,
    slices: SlicesOption = None,
    policy: PolicyOption = None,
    sync_interval: Annotated[float, typer.Option(help="Real seconds between exchanges.", metavar="SECONDS")] = 0.1,
    spread: SpreadOption = SpreadName.ROUND_ROBIN,
    cut: CutOption = None,
    plot: PlotOption = None,
    seed: Annotated[int, typer.Option(help="Which nodes are cut off.", metavar="N")] = 0,
    as_json: JsonOption = False,
    align: AlignOption = CLOCK,
    initial: InitialOption = None,
    refill: RefillOption = GREEDY,
    in_doubt: InDoubtOption = REFUSE,
) -> None:
    """Replay a recording of requests across real processes, and judge what they admitted.

    One of the processes decides each request at its own time; each process has an agent of its own. Ends with status 1
    when a promise was broken.
    """
    _check_options(plot, speed=speed, settle_after=settle_after, sync_interval=sync_interval)
    policies = _policies(policy or ["balanced"])
    setup = Setup(
        requests=_requests(trace, Columns(key, cost, settle), max_gap),
        limit=compressed(
            limit_as_said(limit, algorithm=algorithm, slices=slices, align=align, initial=initial, refill=refill), speed
        ),
        policies=policies,
        nodes=nodes,
        speed=speed,
        hub_url=hub,
        sync_interval_s=sync_interval,
        spread=spread.value,
        cuts=_cuts(cut or [], nodes, seed),
        settle_after_s=settle_after if settle is not None else 0.0,
        asks_within_ns=asks_within_ns(in_doubt, policies=[POLICIES[name] for name in policies]),
    )
    if not _run_and_show(setup, trace, limit, plot, as_json=as_json):
        raise typer.Exit(BROKEN_STATUS)


def _check_options(plot: Path | None, *, speed: float, settle_after: float, sync_interval: float) -> None:
    """Raises InvalidSetting or MissingExtra for options that cannot work, before the replay, which takes a minute."""
    if plot is not None:
        picture.check_available(plot)
    _check_positive("speed", speed, SPEED_MAX)
    _check_positive("settle_after", settle_after, 86_400.0)
    _check_positive("sync_interval", sync_interval, SYNC_INTERVAL_MAX)


def _policies(names: list[str]) -> tuple[str, ...]:
    """Returns the policies called `names`, each once. Raises InvalidSetting for a name of no policy."""
    for name in names:
        if name not in POLICIES:
            raise InvalidSetting("policy", name, f"is no policy; known: {', '.join(POLICIES)}")
    return tuple(dict.fromkeys(names))


def _requests(trace: Path, columns: Columns, max_gap: float | None) -> list[RecordedRequest]:
    """Returns the requests of the recording, with idle stretches shortened to `max_gap` seconds if that is given."""
    requests = read_trace(trace, columns)
    if max_gap is None:
        return requests
    _check_positive("max_gap", max_gap, math.inf)
    return without_gaps(requests, max_gap)


def _cuts(texts: list[str], nodes: int, seed: int) -> tuple[Cut, ...]:
    random = Random(seed)
    return tuple(Cut.parse(text, nodes=nodes, random=random) for text in texts)


def _run_and_show(setup: Setup, trace: Path, limit: str, plot: Path | None, *, as_json: bool) -> bool:
    """Replays the recording, draws it, and prints the results. Returns whether every promise was kept."""
    with _progress_bar(setup) as watch:
        outcome = fleet.run(setup, watch)
    judgements = judge(outcome)
    if plot is not None:
        save_plot(plot, outcome, judgements)
    if as_json:
        print(json.dumps(as_figures(outcome, judgements), indent=2))
    else:
        _show(Console(), trace, limit, outcome, judgements)
    return all(judgement.kept for judgement in judgements)


def compressed(limit: Limit, speed: float) -> Limit:
    """Returns the limit with its window divided by `speed`, for a replay at that speed. Raises InvalidSetting."""
    if limit.align == CALENDAR:
        raise InvalidSetting(
            "align", CALENDAR, "cannot be replayed, as a calendar cannot run faster; use `reconverge simulate`"
        )
    window = limit.window / speed
    if window * 1e9 < WINDOW_MIN_NS:
        raise InvalidSetting("speed", speed, f"leaves a window of {window * 1000:.3g} ms; at least 1 ms must remain")
    return limit.over(window)


def _check_positive(name: str, value: float, most: float) -> None:
    if not 0 < value <= most:
        raise InvalidSetting(name, value, f"must be above 0 and at most {most:g}")


@contextmanager
def _progress_bar(setup: Setup) -> Generator[Callable[[fleet.Progress], None]]:
    what = f"replaying {len(setup.requests)} requests on {setup.nodes} processes takes about {setup.duration_s():.0f} s"
    with progress_shown(what, TextColumn("{task.percentage:>3.0f} %")) as show:

        def watch(progress: fleet.Progress) -> None:
            cut = f", {len(progress.cut)} cut off" if progress.cut else ""
            show(f"{sum(progress.done)} requests{cut}", progress.elapsed_s, progress.duration_s)

        yield watch


def _show(console: Console, trace: Path, limit: str, outcome: ReplayOutcome, judgements: list[Judgement]) -> None:
    setup = outcome.setup
    console.print(
        f"{trace.name}: {limit} ({setup.limit.algorithm}) on {setup.nodes} nodes, {setup.speed:g} times as fast, "
        f"exchanging every {setup.sync_interval_s:g} s",
        highlight=False,
    )
    console.print(figures_table(judgements))
    for judgement in judgements:
        console.print(verdict_on(judgement), highlight=False)
