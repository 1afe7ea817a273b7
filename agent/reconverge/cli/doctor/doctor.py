"""The command `reconverge doctor`: finds the faults of a hub, and prints a remedy for each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import textwrap
from dataclasses import asdict
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from reconverge.agent.agent import Agent
from reconverge.agent.environment import log_misspelt_variables
from reconverge.cli.doctor.checkup import Checkup, CheckupIntervals, check_up
from reconverge.cli.shared.options import JsonOption, NamespaceOption
from reconverge.clock import SystemClock
from reconverge.errors import MissingExtra
from reconverge.hub.checking.probe import scratch_namespace
from reconverge.hub.diagnosis import COMMAND, Diagnosable, Finding, Level
from reconverge.hub.port import Hub
from reconverge.hub.registry import MEMORY, HubSettings, open_hub, redacted, scheme_of

PROBLEM_STATUS: Final = 1
PATIENCE_S: Final = 3.0
"""The shortest wait for an answer, in seconds: longer than agents wait, so that a slow hub does not look dead."""
WIDTH_MAX: Final = 100
WIDTH_MIN: Final = 20
STYLES: Final = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}
LEVEL_WIDTH: Final = 9
CHECK_WIDTH: Final = 12
NO_HUB: Final = Finding(
    "hub",
    Level.WARNING,
    f"no hub is set, and agents without one use {MEMORY}://: each process counts alone, and a fleet of them admits a "
    "multiple of every limit",
    f"Name one, here and where agents start:\n{COMMAND}export RECONVERGE_HUB=redis://localhost:6379/0\n"
    f"{COMMAND}reconverge doctor --hub redis://localhost:6379/0",
)
BODY_INDENT: Final = LEVEL_WIDTH + CHECK_WIDTH
COMMAND_INDENT: Final = 4


def doctor(
    hub: Annotated[
        str | None, typer.Option(help="The hub to check, as agents name it.", metavar="URL", envvar="RECONVERGE_HUB")
    ] = None,
    namespace: NamespaceOption = "default",
    sync_interval: Annotated[float, typer.Option(help="The agents' sync_interval.", metavar="SECONDS")] = 0.1,
    timeout: Annotated[float, typer.Option(help="The agents' exchange_timeout.", metavar="SECONDS")] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Check whether a hub suits agents with these settings, and print a remedy for each problem.

    Changes nothing that agents use. Ends with status 1 when there is a problem, and with 0 when there are only
    warnings.
    """
    # An agent raises an error for settings that it does not accept; this one exchanges with no hub.
    Agent(f"{MEMORY}://", namespace=namespace, sync_interval=sync_interval, exchange_timeout=timeout)
    log_misspelt_variables()
    shown = _plain(redacted(hub or f"{MEMORY}://"))
    checked = _open(hub, namespace, max(timeout, PATIENCE_S)) if hub else Checkup([NO_HUB])
    console = Console(highlight=False, soft_wrap=True)
    if not as_json:
        console.print(Text(f"Checking {shown} for namespace {namespace}\n"))
    checkup = (
        checked
        if isinstance(checked, Checkup)
        else asyncio.run(_examine(checked, CheckupIntervals(sync_interval, timeout)))
    )
    if as_json:
        typer.echo(json.dumps(_as_json(shown, checkup)))
    else:
        _show(console, checkup)
    if not checkup.ok:
        raise typer.Exit(PROBLEM_STATUS)


def _open(url: str, namespace: str, timeout_s: float) -> Hub | Checkup:
    """Opens the hub; returns a finished checkup if there is no hub to examine. Raises UnknownHub, InvalidSetting."""
    if scheme_of(url) == MEMORY:
        fact = f"{MEMORY}:// keeps everything in the agent's own process: there is no hub, and nothing to check"
        return Checkup([Finding("hub", Level.OK, fact)])
    try:
        hub = open_hub(url, HubSettings(namespace, timeout_s))
        if isinstance(hub, Diagnosable):
            return hub
        # A hub that cannot examine itself is tried in a scratch namespace, where that does no harm.
        return open_hub(url, HubSettings(scratch_namespace(namespace), timeout_s))
    except MissingExtra as error:
        fact = str(error).partition(";")[0]
        remedy = f"Install it:\n{COMMAND}pip install 'reconverge[{error.extra}]'"
        return Checkup([Finding("installed", Level.PROBLEM, fact, remedy)])


async def _examine(hub: Hub, pace: CheckupIntervals) -> Checkup:
    try:
        return await check_up(hub, pace, SystemClock())
    finally:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(hub.close(), PATIENCE_S)


def _show(console: Console, checkup: Checkup) -> None:
    width = min(console.width, WIDTH_MAX) - BODY_INDENT
    for finding in checkup.findings:
        first, *others = _wrapped(finding.fact, width)
        level = (f"{finding.level:<{LEVEL_WIDTH}}", STYLES[finding.level])
        console.print(Text.assemble(level, f"{finding.check:<{CHECK_WIDTH}}", first))
        for line in others:
            console.print(Text(" " * BODY_INDENT + line))
        _show_remedy(console, finding.remedy, width)
    problems, warnings = checkup.count(Level.PROBLEM), checkup.count(Level.WARNING)
    counts = [
        f"{number} {noun}{'s' * (number > 1)}"
        for number, noun in ((problems, "problem"), (warnings, "warning"))
        if number
    ]
    console.print(Text(f"\n{', '.join(counts) or 'Nothing is wrong'}."))


def _show_remedy(console: Console, remedy: str, width: int) -> None:
    """Prints the remedy of a finding: prose in wrapped lines, and each command unbroken on a line to be copied."""
    for line in remedy.splitlines():
        if line.startswith(COMMAND):
            console.print(Text(" " * COMMAND_INDENT + _plain(line.strip()), "bold"))
            continue
        for part in _wrapped(line, width):
            console.print(Text(" " * BODY_INDENT + part))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(_plain(text), max(width, WIDTH_MIN), break_long_words=False, break_on_hyphens=False) or [""]


def _plain(text: str) -> str:
    """Returns a text, which may come from a server, in printable ASCII, which every terminal can show."""
    visible = "".join(letter if letter.isprintable() else " " for letter in text)
    return visible.encode("ascii", "backslashreplace").decode()


def _as_json(hub: str, checkup: Checkup) -> dict[str, object]:
    return {
        "hub": hub,
        "ok": checkup.ok,
        "findings": [asdict(finding) for finding in checkup.findings],
        "round_trip_ms": checkup.round_trip_ms,
        "clock_offset_ms": checkup.clock_offset_ms,
    }
