"""The command `reconverge status`: shows the state of a fleet and its hub, once."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final, TypeAlias

import typer

from reconverge.cli.doctor.checkup import Checkup, CheckupIntervals, check_up
from reconverge.cli.shared.asking import ask_hub
from reconverge.cli.shared.options import HubOption, JsonOption, NamespaceOption
from reconverge.cli.shared.tables import plain, tell_table
from reconverge.cli.watch.look import LIMIT, WatchLook, look
from reconverge.cli.watch.top import MOST, MOST_MAX
from reconverge.clock import SystemClock
from reconverge.hub.adopting import HubData
from reconverge.hub.checking.probe import scratch_namespace
from reconverge.hub.diagnosis import Diagnosable, Level
from reconverge.hub.port import Adoptable, Hub
from reconverge.hub.registry import HubSettings, open_hub, redacted

PROBLEM_STATUS: Final = 1
PACE: Final = CheckupIntervals(sync_interval_s=0.1, timeout_s=1.0)
"""The sync interval and timeout of agents with default settings; `doctor` has options for others."""
ALWAYS_SHOWN: Final = ("memory", "durability", "keys", "round trip")
"""The names of the checks whose findings are shown even if there is no problem."""
MostOption: TypeAlias = Annotated[int, typer.Option(help="How many limits to show.", min=1, max=MOST_MAX, metavar="N")]


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """The state of a fleet and its hub at one moment."""

    checkup: Checkup
    shards: list[HubData]
    """The data of each shard; empty if the hub does not report them."""
    limits: WatchLook

    @property
    def waits(self) -> int:
        """Returns how many shards grant nothing of strict limits now, because they have lost data or are new."""
        return sum(each.holds_back for each in self.shards)

    @property
    def lost(self) -> int:
        """Returns how many of the shards that grant nothing now have lost data for certain.

        It is certain if nodes remember earlier data.
        """
        return sum(each.waits and each.lost for each in self.shards)

    @property
    def ok(self) -> bool:
        """Whether the hub has no problem, and no shard has stopped granting because it has lost data."""
        return self.checkup.ok and not self.lost


def status(
    hub: HubOption,
    namespace: NamespaceOption = "default",
    most: MostOption = MOST,
    as_json: JsonOption = False,
) -> None:
    """Show the state of a fleet: its hub, with memory and persistence, its live nodes, and the totals of each limit.

    Ends with status 1 if there is a problem with the hub, as `doctor` finds it, or if the hub has lost data and waits.
    """

    async def ask(opened: Hub) -> FleetStatus:
        limits = await look(opened, SystemClock(), by=LIMIT, most=most)
        found: object = opened
        shards = [await found.data(each) for each in range(found.shards)] if isinstance(found, Adoptable) else []
        # A hub that cannot examine itself is tried in a namespace of its own.
        scratch = None if isinstance(opened, Diagnosable) else _scratch(hub, namespace)
        try:
            checkup = await check_up(scratch or opened, PACE, SystemClock())
        finally:
            if scratch is not None:
                await scratch.close()
        return FleetStatus(checkup, shards, limits)

    found = ask_hub(hub, namespace, ask, what="there is no fleet")
    shown = plain(redacted(hub))
    if as_json:
        typer.echo(json.dumps(_as_json(found, shown, namespace), indent=2))
    else:
        show(found, shown, namespace)
    if not found.ok:
        raise typer.Exit(PROBLEM_STATUS)


def _scratch(url: str, namespace: str) -> Hub:
    return open_hub(url, HubSettings(scratch_namespace(namespace), PACE.timeout_s))


def show(found: FleetStatus, shown: str, namespace: str) -> None:
    """Prints the state of a fleet; `shown` is the URL of its hub without a password."""
    problems, warnings = (found.checkup.count(each) for each in (Level.PROBLEM, Level.WARNING))
    verdict = "healthy" if not problems and not warnings else f"problems: {problems}, warnings: {warnings}"
    advice = "" if verdict == "healthy" else "; `reconverge doctor` has the remedies"
    typer.echo(f"hub     {shown}: {verdict}{advice}")
    for each in found.checkup.findings:
        if each.level is not Level.OK or each.check in ALWAYS_SHOWN:
            typer.echo(f"        {each.level}: {each.check}: {plain(each.fact)}")
    nodes = "the hub does not report their number" if found.limits.nodes is None else str(found.limits.nodes)
    typer.echo(f"nodes   {nodes}")
    if found.waits:
        waiting = max((each for each in found.shards if each.holds_back), key=lambda each: (each.lost, each.begun_us))
        why = "data were lost; see `reconverge hub adopt`" if found.lost else "the hub is new, and nodes report to it"
        at = "" if len(found.shards) == 1 else f" at {found.waits} of {len(found.shards)} shards"
        typer.echo(f"data    strict limits admit no new keys{at} {waiting.until}: {why}")
    typer.echo(f"limits  of namespace {namespace}" + ("" if found.limits.rows else ": no node has reported any yet"))
    heads, rows = found.limits.table()
    tell_table(tuple(heads), rows)
    if found.limits.left_out:
        typer.echo(f"and {found.limits.left_out} more")


def _as_json(found: FleetStatus, shown: str, namespace: str) -> dict[str, Any]:
    return {
        "hub": shown,
        "namespace": namespace,
        "ok": found.ok,
        "findings": [asdict(each) for each in found.checkup.findings],
        "round_trip_ms": found.checkup.round_trip_ms,
        "nodes": found.limits.nodes,
        "shards_waiting": found.waits,
        "shards_lost": found.lost,
        "limits": [{name: each for name, each in row.items() if name != "charged/s"} for row in found.limits.rows],
        "left_out": found.limits.left_out,
    }
