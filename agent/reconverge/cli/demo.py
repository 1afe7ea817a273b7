"""The command `reconverge demo`: four processes with real requests and a partition, compared with a naive limiter."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from importlib.resources import as_file, files
from pathlib import Path
from random import Random
from typing import Annotated, Final

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reconverge.cli.console import OpenConsole, check_console, console_beside
from reconverge.cli.replay import fleet
from reconverge.cli.replay.crowd import Crowd
from reconverge.cli.replay.figures import as_figures, figures_rows, figures_table, verdict_on
from reconverge.cli.replay.fleet import Progress, ReplayOutcome, Setup
from reconverge.cli.replay.judgement import Judgement, judge
from reconverge.cli.replay.link import Cut
from reconverge.cli.replay.replay import BROKEN_STATUS, compressed
from reconverge.cli.replay.trace import Columns, RecordedRequest, read_trace, without_gaps
from reconverge.cli.shared import picture
from reconverge.cli.shared.options import InDoubtOption, JsonOption, MeetingOption, asks_within_ns
from reconverge.errors import InvalidSetting, MissingExtra
from reconverge.limit.limit import Limit
from reconverge.limiter.asking import REFUSE
from reconverge.policies import POLICIES

NODES: Final = 4
SPEED: Final = 60.0
LIMIT: Final = "60/minute"
POLICIES_SHOWN: Final = ("balanced", "naive")
PHASE_S: Final = 15.0
"""The length of each phase in seconds: healthy, cut, healed."""
GAP_S: Final = 2.0
"""Longer idle stretches of the recording are shortened to this, in seconds."""
CROWD: Final = "flash-crowd"
CROWD_FACTOR: Final = 3.0
"""The demand of the crowd, as a multiple of the limit."""
DIRECTORY: Final = Path("reconverge-demo")
REFRESHES_PER_S: Final = 8
PHASES: Final = ("healthy", "two nodes cut off", "healed")


def demo(
    hub: MeetingOption = "embedded://",
    policy: Annotated[str, typer.Option(help="What to show beside naive.", metavar="NAME")] = POLICIES_SHOWN[0],
    seed: Annotated[
        int, typer.Option(help="Draws the crowd's arrivals, and which nodes are cut off.", metavar="N")
    ] = 0,
    as_json: JsonOption = False,
    in_doubt: InDoubtOption = REFUSE,
    keeps_console: Annotated[
        bool, typer.Option("--console", help="Go on with the fleet and its console until interrupted.")
    ] = False,
) -> None:
    """Watch four processes share a limit, through a partition; takes about a minute.

    Replays recorded requests to a web site, where each client may make 60 a minute; a crowd that counts as one client
    tries 180. A minute passes in a second. Two of the four processes are cut off from the hub for a while. Every
    request is decided twice: by reconverge, and by a limiter that trusts the last merged total.
    """
    setup = _setup(hub, policy, in_doubt, Random(seed))
    unopened = _why_missing(lambda: check_console("the console of the demo's fleet"))
    if unopened is not None and keeps_console:
        raise unopened
    undrawn = _why_missing(picture.check_available)
    if undrawn is None:
        _make_directory()
    console = Console(stderr=as_json)
    console.print(_introduction(setup), highlight=False)
    if undrawn is not None:
        console.print(f"No picture is drawn: {undrawn}", highlight=False, markup=False)
    if unopened is not None:
        console.print(f"No console is open: {unopened}", highlight=False, markup=False)
    with ExitStack() as stack:
        opened = None
        if unopened is None:
            opened = stack.enter_context(console_beside(setup.hub_url, setup.namespace(setup.policies[0])))
            said = f"The console of this fleet, while it runs: {opened.address} (token: {opened.token})"
            console.print(said, highlight=False, soft_wrap=True)
        with _live_table(console, setup) as watch:
            outcome = fleet.run(setup, watch)
        kept = _tell(console, outcome, draws=undrawn is None, as_json=as_json)
        if opened is not None and keeps_console:
            _go_on(console, setup, opened)
        elif opened is not None:
            said = f"The console of this fleet was at {opened.address}; reconverge demo --console keeps one open."
            console.print(said, highlight=False, soft_wrap=True)
    if not kept:
        raise typer.Exit(BROKEN_STATUS)


def _go_on(console: Console, setup: Setup, opened: OpenConsole) -> None:
    """Replays the recording again and again, so that the console has a fleet to show, until the user interrupts it."""
    said = f"The fleet goes on, and so does its console, until Ctrl-C: {opened.address} (token: {opened.token})"
    console.print(said, highlight=False, soft_wrap=True)
    with suppress(KeyboardInterrupt):
        while True:
            fleet.run(setup, lambda _progress: None)


def _tell(console: Console, outcome: ReplayOutcome, *, draws: bool, as_json: bool) -> bool:
    """Prints and draws the outcome. Returns whether all promises were kept."""
    judgements = judge(outcome)
    crowd = Crowd(outcome, CROWD, PHASES, PHASE_S)
    sentences = [crowd.verdict(), *map(verdict_on, judgements)]
    paths = _save(crowd, judgements, sentences) if draws else []
    if as_json:
        said = as_figures(outcome, judgements) | {"crowd": crowd.as_json(), "files": paths}
        print(json.dumps(said, indent=2), flush=True)
    else:
        console.print(figures_table(judgements), crowd.table())
        for sentence in sentences:
            console.print(sentence, highlight=False)
        if paths:
            console.print("saved: " + ", ".join(paths), highlight=False)
    return all(judgement.kept for judgement in judgements)


def _setup(hub: str, policy: str, in_doubt: str, random: Random) -> Setup:
    """Returns the requests, the limit and the fleet of the demonstration. Raises InvalidSetting."""
    if policy not in POLICIES:
        raise InvalidSetting("policy", policy, f"is no policy; known: {', '.join(POLICIES)}")
    limit = Limit.parse(LIMIT)
    return Setup(
        requests=_requests(limit, random),
        limit=compressed(limit, SPEED),
        policies=tuple(dict.fromkeys((policy, "naive"))),
        nodes=NODES,
        speed=SPEED,
        hub_url=hub,
        sync_interval_s=0.1,
        cuts=(Cut(frozenset(random.sample(range(NODES), 2)), PHASE_S, PHASE_S),),
        asks_within_ns=asks_within_ns(in_doubt, policies=[POLICIES[policy]]),
    )


def _requests(limit: Limit, random: Random) -> list[RecordedRequest]:
    """Returns some minutes of a web site's recorded requests, and those of a made-up crowd, which shares one key."""
    duration_s = len(PHASES) * PHASE_S * SPEED
    with as_file(files("reconverge.cli") / "access-2015.csv.gz") as path:
        recorded = without_gaps(read_trace(path, Columns(key="client")), GAP_S)
    requests = [request for request in recorded if request.t_s < duration_s]
    moment_s = 0.0
    while (moment_s := moment_s + random.expovariate(CROWD_FACTOR * limit.quota / limit.window)) < duration_s:
        requests.append(RecordedRequest(moment_s, CROWD, 1, 0))
    return sorted(requests, key=lambda request: request.t_s)


def _introduction(setup: Setup) -> str:
    clients = len({request.key for request in setup.requests}) - 1
    may = LIMIT.replace("/", " requests a ")
    return (
        f"{setup.nodes} processes, {len(setup.requests)} requests of {clients} clients and of a crowd. "
        f"Each client, and the crowd, may make {may}; a minute passes in a second."
    )


@contextmanager
def _live_table(console: Console, setup: Setup) -> Generator[Callable[[Progress], None]]:
    """Shows a table of the nodes, and yields the function that updates it while they run."""
    with Live(console=console, refresh_per_second=REFRESHES_PER_S, transient=True) as live:

        def watch(progress: Progress) -> None:
            live.update(_picture_of(setup, progress))

        yield watch


def _picture_of(setup: Setup, progress: Progress) -> Group:
    phase = PHASES[min(int(progress.elapsed_s // PHASE_S), len(PHASES) - 1)]
    table = Table(box=None, padding=(0, 2))
    for heading in ("node", "link to the hub", "requests", *(f"admitted by {name}" for name in setup.policies)):
        table.add_column(heading, justify="left" if heading in ("node", "link to the hub") else "right")
    for node, (done, admitted) in enumerate(zip(progress.done, progress.admitted, strict=True)):
        link = Text("cut", style="bold red") if node in progress.cut else Text("up", style="green")
        table.add_row(str(node), link, str(done), *map(str, admitted))
    sums = [sum(each) for each in zip(*progress.admitted, strict=True)]
    table.add_row("all", "", str(sum(progress.done)), *map(str, sums), style="bold")
    clock = Text(f"{progress.elapsed_s:5.1f} of {progress.duration_s:.0f} s: {phase}")
    return Group(clock, table)


def _why_missing(check: Callable[[], None]) -> MissingExtra | None:
    """Returns the error that `check` raises if an extra is missing, or None: the demo also runs without extras."""
    try:
        check()
    except MissingExtra as error:
        return error
    return None


def _make_directory() -> None:
    """Makes the directory of results, before the demo runs for a minute. Raises InvalidSetting if that fails."""
    try:
        DIRECTORY.mkdir(exist_ok=True)
    except OSError as error:
        raise InvalidSetting(
            "directory",
            str(DIRECTORY),
            f"cannot be made: {error.strerror}; start the command in a directory in which you may write",
        ) from None


def _save(crowd: Crowd, judgements: list[Judgement], sentences: list[str]) -> list[str]:
    title = f"A crowd asks for {CROWD_FACTOR:g} times the limit, and two of four nodes are cut off for a while"
    chart = crowd.chart(title)
    png, page = DIRECTORY / "admitted.png", DIRECTORY / "admitted.html"
    try:
        picture.save_png(chart, png)
        head = ["", *(judgement.policy for judgement in judgements)]
        picture.save_page(
            chart, page, heading="reconverge demo", sentences=sentences, table=[head, *figures_rows(judgements)]
        )
    except OSError as error:
        raise InvalidSetting(
            "directory",
            str(DIRECTORY),
            f"cannot be written to: {error.strerror}; start the command in another directory",
        ) from None
    return [str(png), str(page)]
