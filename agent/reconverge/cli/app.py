"""Which commands there are; each is imported when it is run (see `lazy.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

import typer

from reconverge import __version__
from reconverge.cli.lazy import Deferred, LazyGroup

SUMMARY = "Rate limits shared by a whole fleet, decided in each process from its own memory."


def _command(place: str, summary: str, example: str) -> Deferred:
    return Deferred(f"reconverge.cli.{place}", summary, f"Example:\n\n$ reconverge {example}")


def _group(place: str, summary: str) -> Deferred:
    return Deferred(f"reconverge.cli.{place}", summary)


COMMANDS: Mapping[str, Deferred] = MappingProxyType(
    {
        "bridge": _command(
            "bridge:bridge",
            "Lend a region's agents, whose region_share is below 1, more of their limits "
            "while other regions need it less.",
            "bridge --region a --local redis://a --wide redis://b --movable .6",
        ),
        "completion": _command(
            "completion:completion",
            "Print a script that has a shell complete commands and options when Tab is pressed.",
            "completion bash",
        ),
        "console": _command(
            "console:console",
            "Show a whole fleet in a browser: nodes, limits, keys, why requests are refused, and switches.",
            "console --hub redis://localhost:6379/0 --namespace shop",
        ),
        "demo": _command(
            "demo:demo",
            "Watch four processes share a limit, through a partition; takes about a minute.",
            "demo",
        ),
        "doctor": _command(
            "doctor.doctor:doctor",
            "Check whether a hub does for agents with these settings, and say how to mend what does not.",
            "doctor --hub redis://localhost:6379/0 --namespace shop",
        ),
        "forget": _command(
            "forget:forget",
            "Erase all that is known of an identity: its contract, what it has used, its usage that was not exported.",
            "forget ada --hub redis://localhost --namespace shop",
        ),
        "inspect": _command(
            "limits.inspect:inspect",
            "Say why a key is refused or not: by which limit, what is used, left and held, and when it is free again.",
            "inspect ada --limit login=5/minute --hub redis://localhost",
        ),
        "replay": _command(
            "replay.replay:replay",
            "Replay a recording of requests across real processes, and judge what they admitted.",
            "replay trace.csv.gz --limit 30/minute --key client --nodes 4",
        ),
        "reset": _command(
            "limits.reset:reset",
            "Forget what a key has used, on all nodes: of the limits of --file, or of each --limit.",
            "reset ada --limit login=5/minute --hub redis://localhost",
        ),
        "simulate": _command(
            "simulate:simulate",
            "Simulate a fleet with the production kernel, syncer and merge rule under virtual time.",
            "simulate --nodes 8 --limit 1000/10s --fault cut:half@2w+5w",
        ),
        "status": _command(
            "watch.status:status",
            "Tell how a fleet is: its hub, with memory and persistence, the nodes that live, "
            "and the totals of each limit.",
            "status --hub redis://localhost:6379/0 --namespace shop",
        ),
        "switch": _command(
            "settings.switch:switch",
            "Turn limits on, into shadow (they count and refuse nothing) or off, on every node, "
            "within one sync interval.",
            "switch shadow --lifetime 3600 --hub redis://localhost",
        ),
        "top": _command(
            "watch.top:top",
            "Watch a fleet: what is charged to each limit, what each node does, or which keys use most, "
            "the largest first.",
            "top --by limit --hub redis://localhost --namespace shop",
        ),
        "tune": _command(
            "tune:tune",
            "Find the longest sync interval, and the policy, that keep a bound for these numbers.",
            "tune --nodes 8 --limit 1000/minute --max-over 1%",
        ),
        "contracts": _group(
            "contracts.group:contracts",
            "Plans and customers: in files, rehearsed, and kept at a hub. "
            "What is kept there is signed with what RECONVERGE_SETTINGS_SECRET holds.",
        ),
        "hub": _group("hub:hub", "Look at the data of a hub, and decide about them."),
        "settings": _group(
            "settings.settings:settings",
            "Settings that every agent of a namespace obeys. "
            "They are signed with what RECONVERGE_SETTINGS_SECRET holds.",
        ),
        "usage": _group("usage.usage:usage", "What a fleet has used, by identity, limit, route and period of UTC."),
    }
)


class Commands(LazyGroup):
    """All of them."""

    deferred = COMMANDS


app = typer.Typer(
    name="reconverge",
    cls=Commands,
    help=SUMMARY,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},  # of all commands: they inherit it
)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"reconverge {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[  # the callback reads it
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version, and end.")
    ] = False,
) -> None:
    """Rate limits shared by a whole fleet, decided in each process from its own memory."""
