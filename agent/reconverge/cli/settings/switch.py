"""The command `reconverge switch`: turns limits of a fleet on, into shadow or off, by its published settings."""

# Theory of operation.
#
# A hub keeps one document of settings per namespace (`published/publisher.py`). The kill switch is a field of it, so
# the command reads the document, changes that field, and publishes all other fields unchanged, at a higher version. The
# time at which the document expires stays the same, too: a switch should not make other settings last longer. If no
# settings are in force, there is no such time, and `--lifetime` must give it, as a file of settings must: limits that
# are off must not come on again at a time that no operator has chosen.
#
# If two commands run at the same moment, each may publish the settings that it has read, and the later one wins. Both
# print their version.

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeAlias

import typer

from reconverge.cli.contracts.at_hub import AuthorOption, author_as_said
from reconverge.cli.limits.declared import advice_on_unreported
from reconverge.cli.shared.asking import ask_hub, secrets_as_said
from reconverge.cli.shared.options import HubOption, JsonOption, NamespaceOption
from reconverge.clock import SECOND_NS, SystemClock
from reconverge.errors import InvalidSetting, asked
from reconverge.hub.port import Hub, SettingsStore
from reconverge.hub.registry import redacted
from reconverge.limit.quotas import limit_of_quota
from reconverge.published.envelope import Secrets
from reconverge.published.publisher import publish as post
from reconverge.published.publisher import published, renewed, turned
from reconverge.published.settings import LIFETIME_MAX_S, WORDS, FleetSettings, Word

OWN: Final = "own"
"""The argument that removes the published switch, so that each node uses its own."""
WordArgument: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        help=f"{', '.join(WORDS)}, or {OWN} for each node's own; without a word, the published switches are shown.",
        metavar="WORD",
    ),
]
NamesOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--limit", help="Only this limit, in place of all; may be repeated.", metavar="NAME"),
]
LifetimeOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        help="For how many seconds it is valid; by default until the published settings expire.",
        metavar="SECONDS",
        min=1,
        max=LIFETIME_MAX_S,
    ),
]


def switch(
    hub: HubOption,
    word: WordArgument = None,
    namespace: NamespaceOption = "default",
    limit: NamesOption = None,
    lifetime: LifetimeOption = None,
    author: AuthorOption = "",
    force: Annotated[
        bool, typer.Option("--force", help="Accept a limit, or a namespace, that no node has reported to the hub.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Turn limits on, into shadow (they count and refuse nothing) or off, on every node, within one sync interval.

    Switches all limits at once, or those of --limit. All other published settings stay as they are. Needs the fleet's
    secret in RECONVERGE_SETTINGS_SECRET; nodes without it do not apply published settings.
    """
    chosen = _word(word, limit, lifetime)
    secrets = secrets_as_said()
    now_s = SystemClock().wall_ns() // SECOND_NS

    async def turn(store: Hub) -> FleetSettings | None:
        if not isinstance(store, SettingsStore):
            raise InvalidSetting(
                "hub", redacted(hub), "is a hub that keeps no settings; name a Redis or a broker of MQTT"
            )
        known = await _in_force(store, secrets, namespace, now_s)
        if word is None:
            return known
        reported = {*await store.totals(), *(() if known is None else known.limits)}
        if limit:
            _check_known(limit, reported, force=force)
        elif known is None and not reported and not force:
            problem = (
                "has no node that has reported a limit; name the nodes' namespace, or add --force if none runs yet"
            )
            raise InvalidSetting("--namespace", namespace, problem)
        expires = _end(known, now_s, lifetime)
        new = renewed(known, namespace, now_ns=SystemClock().wall_ns(), expires=expires)
        changed = turned(new, chosen, limit or ())
        return await post(store, changed, secrets, raise_version=True, author=author_as_said(author))

    found = ask_hub(hub, namespace, turn, what="nothing can be published")
    _tell(found, namespace, now_s, as_json=as_json)


def _word(word: str | None, limit: Sequence[str] | None, lifetime: int | None) -> Word | None:
    """Returns the switch that the user has typed; None for "own", which removes the published switch, or for no word.

    Raises InvalidSetting for an unknown word, and for --limit or --lifetime without a word.
    """
    if word is None:
        for name, value in (("--limit", limit), ("--lifetime", lifetime)):
            if value:
                raise InvalidSetting(name, value, f"has no effect without a switch; give {', '.join(WORDS)} or {OWN}")
        return None
    if word not in (*WORDS, OWN):
        raise InvalidSetting("switch", word, f"must be {', '.join((*WORDS, OWN))}{asked(word, (*WORDS, OWN))}")
    return WORDS.get(word)


async def _in_force(store: SettingsStore, secrets: Secrets, namespace: str, now_s: int) -> FleetSettings | None:
    """Returns the published settings, or None if there are none or they have expired. Raises UnverifiedDocument."""
    known = await published(store, secrets, namespace)
    return None if known is None or known.expires <= now_s else known


def _end(known: FleetSettings | None, now_s: int, lifetime: int | None) -> int:
    """Returns when the new settings expire, in seconds since 1970: after `lifetime`, else as the settings `known` do.

    Raises InvalidSetting if there is neither a lifetime nor settings in force.
    """
    if lifetime is not None:
        return now_s + lifetime
    if known is None:
        problem = (
            "is missing, and there are no settings in force whose end could be kept; add, for instance, --lifetime 3600"
        )
        raise InvalidSetting("--lifetime", "", problem)
    return known.expires


def _check_known(names: Sequence[str], known: set[str], *, force: bool) -> None:
    """Checks that nodes have reported each named limit: the switch of an unknown limit has no effect.

    Raises InvalidSetting for an unknown limit, for which `force` prints a warning instead, and for a quota's name.
    """
    for name in names:
        limit = limit_of_quota(name)
        if limit != name:
            problem = f"is a quota of the limit {limit}, whose quotas are switched as one; write --limit {limit}"
            raise InvalidSetting("--limit", name, problem)
    for name, advice in advice_on_unreported(names, known).items():
        if force:
            typer.echo(f"reconverge: {advice}; this switches nothing until a node declares it", err=True)
            continue
        raise InvalidSetting("--limit", name, f"would switch nothing: {advice}; add --force to publish it all the same")


def _tell(found: FleetSettings | None, namespace: str, now_s: int, *, as_json: bool) -> None:
    limits = {} if found is None else found.limits
    switches = {name: each.switch for name, each in limits.items() if each.switch is not None}
    if as_json:
        said: dict[str, Any] = {"namespace": namespace, "switch": None, "limits": switches}
        if found is not None:
            said |= {"switch": found.switch, "version": found.version, "expires_in_s": found.expires - now_s}
        typer.echo(json.dumps(said, indent=2))
        return
    if found is None:
        typer.echo(f"nothing is published for namespace {namespace}: each node switches its limits itself")
        return
    until = f"version {found.version}, for {found.expires - now_s} s more"
    word = found.switch or "as each node says"
    typer.echo(f"published for nodes with this secret: all limits of {namespace}: {word} ({until})")
    for name, each in switches.items():
        typer.echo(f"{name}: {each}")
