"""Reads the limits that a command is about, from the file that agents are made from, or from its options."""

# Theory of operation.
#
# A hub finds a key by properties of its limit that nodes report: the name, the algorithm and the window. The hub has no
# list of limits that a command could read. So a command that asks about a key needs the limits as the nodes declare
# them. They come from the file that the nodes load, or one by one from `--limit NAME=LIMIT`. An agent without a hub,
# which never starts, reads the file, and checks it exactly as the nodes do.

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import typer

from reconverge.agent.agent import Agent
from reconverge.cli.shared.options import named_values
from reconverge.errors import InvalidSetting, asked
from reconverge.hub.registry import MEMORY
from reconverge.limit.quotas import limit_of_quota
from reconverge.published.publisher import unknown_limits

KeyArgument: TypeAlias = Annotated[
    str, typer.Argument(help="What the limits count by, such as a user or an address.", metavar="KEY")
]
ROUTED: Final = (
    "web limits may count by another key, which has the route in it, and which limits.key_of(request) returns"
)
"""The end of a note that no node has reported a key."""
LimitsOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        help="A limit as the nodes declare it, as in login=5/minute; may be repeated.",
        metavar="NAME=LIMIT",
    ),
]
FileOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="The file of settings that the nodes load.", metavar="FILE", envvar="RECONVERGE_CONFIG"),
]
OwnNamespaceOption: TypeAlias = Annotated[
    str | None,
    typer.Option(help="The agents' namespace.", metavar="NAME", show_default="that of --file, or default"),
]
NO_HUB: Final[dict[str, Any]] = {
    "hub": f"{MEMORY}://",
    "fallback": None,
    "require_hub": None,
    "region_share": None,
    "settings_secret": None,
}
"""Settings of an agent that exchanges with no hub."""


class LimitsByName(NamedTuple):
    """An agent that knows the limits of a command, and is never started; and the agent's namespace."""

    agent: Agent
    namespace: str


def declared(limits: Sequence[str] | None, file: Path | None, namespace: str | None, **settings: Any) -> LimitsByName:
    """Declares the limits of --limit or of the file, at an agent that never starts, and returns the agent.

    `settings` are those of the agent; by default it has no hub. Raises InvalidSetting if there are no limits, or an
    invalid one; InvalidConfiguration with line and field.
    """
    said = named_values("--limit", limits or (), "a name and a limit string, as in login=5/minute", of="the limit ")
    settings = settings or {**NO_HUB}
    if file is None or said:
        if not said:
            problem = (
                "is missing: a hub cannot list the limits of a program; add --limit login=5/minute, or --file FILE"
            )
            raise InvalidSetting("--limit", "", problem)
        agent = Agent(settings["hub"], namespace=namespace or "default", **_pace(settings))
        for name, text in said.items():
            agent.declare(name, text)
        return LimitsByName(agent, agent.namespace)
    from reconverge.integrations.config import load  # noqa: PLC0415  # needs an extra

    if namespace is not None:
        settings["namespace"] = namespace
    agent = load(file, **settings).agent
    if not agent.limiters:
        raise InvalidSetting("--file", str(file), "declares no limits; name them with --limit NAME=LIMIT")
    return LimitsByName(agent, agent.namespace)


def advice_on_unknown(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Returns a sentence for each of `names` that is not in `known`: no node has reported a limit of that name."""
    reported = sorted(known)
    return [
        f"no node has reported a limit named {name}{asked(name, reported)}" for name in names if name not in reported
    ]


def advice_on_unreported(names: Iterable[str], reported: Collection[str]) -> dict[str, str]:
    """Returns a sentence for each of `names` that belongs to no quota in `reported`, the names of quotas at the hub."""
    unknown = unknown_limits(names, reported)
    return dict(zip(unknown, advice_on_unknown(unknown, map(limit_of_quota, reported)), strict=True))


def _pace(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in settings.items() if name in ("sync_interval", "min_sync_interval")}
