"""The command `reconverge usage`: shows a fleet's usage, largest consumers and load, and exports usage for billing."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final, TypeVar

import typer

from reconverge.cli.shared.asking import check_shared
from reconverge.cli.shared.options import HubOption, JsonOption, NamespaceOption, example
from reconverge.cli.shared.tables import tell_table
from reconverge.cli.usage.output import Output
from reconverge.clock import SECOND_NS, SystemClock
from reconverge.errors import HubUnavailable, InvalidSetting
from reconverge.hub.port import UsageHub, UsageLedger
from reconverge.hub.registry import HubSettings, open_hub, redacted
from reconverge.hub.usage import DAY, HOUR, Counts, Period, UsageKey
from reconverge.usage.addresses import MANY
from reconverge.usage.export import GRACE_S, LEASE_S, Exporter, ExportRun
from reconverge.usage.periods import period_at, period_name, period_named
from reconverge.usage.reading import FIELDS, TOP, fleet_load, from_many_addresses
from reconverge.usage.reading import top as top_of
from reconverge.usage.reading import totals as totals_of

T = TypeVar("T")
PATIENCE_S: Final = 5.0
PAUSE_S: Final = 30.0
"""Seconds between two runs of `usage export --follow`."""
OVER_S: Final = 0.05
"""Seconds to wait beyond the end of a lease, so that the hub has ended it, too."""
HELD_STATUS: Final = 1
"""The exit status of a command that has exported nothing because another exporter is at work."""

usage = typer.Typer(
    name="usage",
    help="What a fleet has used, by identity, limit, route and period of UTC.",
    no_args_is_help=True,
)
PeriodOption = Annotated[
    str,
    typer.Option(
        help="Which period: 2026-11, 2026-11-23, 2026-11-23T14Z or 2026-11-23T14:05Z; or minute, hour, day or month for"
        " the present one.",
        metavar="PERIOD",
    ),
]
LimitOption = Annotated[str | None, typer.Option(help="Of one limit alone.", metavar="NAME")]


class Form(StrEnum):
    """The formats in which events are written."""

    CLOUDEVENTS = "cloudevents"
    JSONL = "jsonl"
    CSV = "csv"


@usage.command(epilog=example("usage show --period day --hub redis://localhost --namespace shop"))
def show(
    hub: HubOption,
    namespace: NamespaceOption = "default",
    period: PeriodOption = DAY,
    identity: Annotated[str | None, typer.Option(help="Of one customer alone.", metavar="IDENTITY")] = None,
    limit: LimitOption = None,
    by: Annotated[
        str, typer.Option(help=f"Fields to list separately: {', '.join(FIELDS)}, with commas.", metavar="NAMES")
    ] = "identity,limit",
    as_json: JsonOption = False,
) -> None:
    """Print the usage in a period, as far as nodes have reported it."""
    which = _period(period)
    names = [name for name in by.split(",") if name]

    async def ask(ledger: UsageLedger) -> dict[UsageKey, Counts]:
        return await totals_of(ledger, which, by=names, identity=identity, limit=limit)

    found = sorted(_ask(hub, namespace, ask).items())
    rows = [{**{name: getattr(key, name) for name in names}, **counts._asdict()} for key, counts in found]
    _print(f"usage of {namespace} in {period_name(which)}", rows, as_json=as_json)


@usage.command(epilog=example("usage top --period day --hub redis://localhost --namespace shop"))
def top(
    hub: HubOption,
    namespace: NamespaceOption = "default",
    period: PeriodOption = HOUR,
    limit: LimitOption = None,
    by: Annotated[str, typer.Option(help="What is large: cost, requests or refused.", metavar="NAME")] = "cost",
    most: Annotated[int, typer.Option(help="How many to show.", min=1, metavar="N")] = TOP,
    as_json: JsonOption = False,
) -> None:
    """Print the customers that have used the most in a period, the largest first."""
    which = _period(period)
    found = _ask(hub, namespace, lambda ledger: top_of(ledger, which, most=most, by=by, limit=limit))
    rows = [{"identity": identity, **counts._asdict()} for identity, counts in found]
    _print(f"largest by {by} of {namespace} in {period_name(which)}", rows, as_json=as_json)


@usage.command(epilog=example("usage load --hub redis://localhost --namespace shop"))
def load(hub: HubOption, namespace: NamespaceOption = "default", as_json: JsonOption = False) -> None:
    """Print what each node is doing, in requests and cost per second, the busiest first."""
    found = _ask(hub, namespace, fleet_load)
    rows = [{"node": each.node, "requests/s": each.requests_per_s, "cost/s": each.cost_per_s} for each in found]
    _print(f"load of {namespace}", rows, as_json=as_json)


@usage.command(epilog=example("usage addresses --least 20 --hub redis://localhost"))
def addresses(
    hub: HubOption,
    namespace: NamespaceOption = "default",
    period: Annotated[
        str, typer.Option(help="Which hour: 2026-11-23T14Z, or hour for the present one.", metavar="HOUR")
    ] = HOUR,
    least: Annotated[int, typer.Option(help="The least number of addresses.", min=1, metavar="N")] = MANY,
    as_json: JsonOption = False,
) -> None:
    """Print the customers that have come to all nodes together from many addresses in an hour, the most first.

    The numbers are estimates, with a standard error of 6.5 %.
    """
    which = _period(period)
    found = _ask(hub, namespace, lambda ledger: from_many_addresses(ledger, which, least=least))
    rows = [{"identity": identity, "addresses": count} for identity, count in found.items()]
    _print(f"from many addresses of {namespace} in {period_name(which)}", rows, as_json=as_json)


@usage.command(epilog=example("usage export --to usage.jsonl --hub redis://localhost"))
def export(
    hub: HubOption,
    namespace: NamespaceOption = "default",
    period: Annotated[str, typer.Option(help="Which periods: minute, hour, day or month.", metavar="KIND")] = HOUR,
    form: Annotated[
        Form, typer.Option("--format", help="How events are written: cloudevents, jsonl or csv.", metavar="NAME")
    ] = Form.CLOUDEVENTS,
    to: Annotated[str, typer.Option(help="A file to append to, or - for standard output.", metavar="FILE")] = "-",
    follow: Annotated[bool, typer.Option("--follow", help="Go on, and export periods as they end.")] = False,
    grace: Annotated[
        float, typer.Option(help="Seconds after the end of a period before it is exported.", min=0, metavar="SECONDS")
    ] = GRACE_S,
) -> None:
    """Write an event for each piece of usage of periods that are over and were not exported yet.

    If another exporter is at work, the command waits for it, up to a minute; if that exporter goes on, the status is 1.

    Events count as delivered when they are written. After a crash they may be written twice: events with the same id
    are the same event.
    """
    with Output(to, form.value, namespace) as output:

        async def run(ledger: UsageLedger) -> bool:
            exporter = Exporter(ledger, output.write, period=period, grace=grace)
            if not follow:
                return await _export_once(exporter)
            while True:
                try:
                    typer.echo(_sentence_of(await exporter.run()), err=True)
                except HubUnavailable as error:
                    typer.echo(f"reconverge: {error}; trying again in {PAUSE_S:g} s", err=True)
                await asyncio.sleep(PAUSE_S)

        if not _ask(hub, namespace, run):
            raise typer.Exit(HELD_STATUS)


async def _export_once(exporter: Exporter) -> bool:
    """Exports the usage that is due. Returns whether this process has exported it.

    Only the exporter that has the lease (the right to export for a while) exports. If another one has it, waits until
    the lease ends, and tries again. The lease of a killed exporter has ended by then; a live exporter has extended its
    lease, and does the work.
    """
    run = await exporter.run()
    if not run.leads and (left_s := _left_s(run)) <= LEASE_S:
        typer.echo(f"{_sentence_of(run)}; waiting for that", err=True)
        await asyncio.sleep(left_s + OVER_S)
        run = await exporter.run()
    typer.echo(_sentence_of(run) if run.leads else f"{_sentence_of(run)}: nothing was exported here", err=True)
    return run.leads


def _left_s(run: ExportRun) -> float:
    """Returns for how many more seconds another exporter has the lease, the right to export."""
    return 0.0 if run.lease is None else (run.lease.until_us - run.lease.hub_us) / 1_000_000


def _sentence_of(run: ExportRun) -> str:
    if not run.leads and run.lease is not None:
        until = datetime.fromtimestamp(run.lease.until_us / 1_000_000, UTC)
        return f"another exporter, {run.lease.exporter}, is at work until {until:%Y-%m-%dT%H:%M:%SZ}"
    expired = f"; {run.expired} periods had expired before they were exported" if run.expired else ""
    return f"exported {run.events} events ({run.late} late){expired}"


def _period(said: str) -> Period:
    """Returns the period that an option names. Raises InvalidSetting."""
    if said[:1].isdigit():
        return period_named(said)
    return period_at(said, SystemClock.wall_ns() / SECOND_NS)


def _print(title: str, rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    if not rows:
        typer.echo(f"{title}: nothing")
        return
    typer.echo(title)
    tell_table(tuple(rows[0]), [tuple(_shown(value) for value in row.values()) for row in rows])


def _shown(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _ask(url: str, namespace: str, question: Callable[[UsageLedger], Awaitable[T]]) -> T:
    """Opens the usage ledger at the hub of that URL. Returns the result of `question` about it.

    Raises HubUnavailable, or InvalidSetting if the hub does not add usage up.
    """
    shown = redacted(url)
    check_shared(url, "no usage is added up there")
    hub: object = open_hub(url, HubSettings(namespace, PATIENCE_S))
    if not isinstance(hub, UsageHub):
        raise InvalidSetting(
            "hub", shown, "is a hub that does not add usage up; name one on Redis or MQTT, or embedded://"
        )

    async def ask() -> T:
        try:
            return await question(hub.usage)
        finally:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(hub.close(), PATIENCE_S)

    return asyncio.run(ask())
