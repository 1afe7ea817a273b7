"""The command `reconverge settings`: publishes settings for all nodes of a namespace, and shows the published ones."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from reconverge.cli.contracts.at_hub import AuthorOption, author_as_said
from reconverge.cli.limits.declared import advice_on_unreported
from reconverge.cli.shared.asking import ask_hub, secrets_as_said
from reconverge.cli.shared.options import HubOption, JsonOption, NamespaceOption, example
from reconverge.clock import SECOND_NS, SystemClock
from reconverge.errors import InvalidSetting, asked, shown
from reconverge.hub.port import Hub, SettingsStore
from reconverge.hub.registry import redacted
from reconverge.published.envelope import PAYLOAD_BYTES_MAX, VARIABLE, InvalidDocument, Rejection
from reconverge.published.publisher import publish as post
from reconverge.published.settings import LIFETIME_MAX_S, SETTINGS, FleetSettings, checked, table_of

T = TypeVar("T")
PROBLEM_STATUS: Final = 1
LIFETIME: Final = "lifetime"
FIELDS: Final = ("sync_interval", "switch", "limits")
"""The settings of a file beside its lifetime."""

settings = typer.Typer(
    name="settings",
    help=f"Settings that every agent of a namespace obeys. They are signed with what {VARIABLE} holds.",
    no_args_is_help=True,
)


@settings.command(epilog=example("settings publish fleet.toml --hub redis://localhost"))
def publish(
    file: Annotated[Path, typer.Argument(help="A TOML, YAML or JSON file.", metavar="FILE")],
    hub: HubOption,
    namespace: NamespaceOption = "default",
    version: Annotated[
        int | None,
        typer.Option(
            help="By default the time in milliseconds, or one more than the published version.", metavar="VERSION"
        ),
    ] = None,
    author: AuthorOption = "",
    force: Annotated[
        bool, typer.Option("--force", help="Replace settings even if this secret does not verify them.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Publish a file of settings, which all nodes of the namespace apply within one sync interval.

    A document that is already published, and whose signature does not match the secret, is replaced only with --force.
    """
    secrets = secrets_as_said()
    fleet_settings = _read(file, namespace, version)

    reported = set[str]()

    async def send(store: SettingsStore) -> FleetSettings:
        sent = await post(
            store,
            fleet_settings,
            secrets,
            force=force,
            raise_version=version is None,
            author=author_as_said(author),
        )
        if isinstance(store, Hub):
            reported.update(await store.totals())
        return sent

    sent = _ask(hub, namespace, send)
    for name, advice in advice_on_unreported(sent.limits, reported).items() if reported else ():
        typer.echo(f"reconverge: the settings of {name} have no effect until a node declares it: {advice}", err=True)
    if as_json:
        typer.echo(json.dumps(table_of(sent), indent=2))
        return
    typer.echo(f"published version {sent.version} for namespace {namespace}, for {sent.expires - sent.issued} s")


@settings.command(epilog=example("settings show --hub redis://localhost --namespace shop"))
def show(hub: HubOption, namespace: NamespaceOption = "default", as_json: JsonOption = False) -> None:
    """Print the published settings, as JSON; ends with status 1 if nodes would reject them.

    If nothing is published, the command prints a sentence, or null with --json.
    """
    secrets = secrets_as_said()
    payload = _ask(hub, namespace, lambda store: store.read(bytes_max=PAYLOAD_BYTES_MAX))
    if payload is None:
        typer.echo("null" if as_json else f"nothing is published for namespace {namespace}")
        return
    verdict = SETTINGS.opened(payload, secrets, namespace)
    if isinstance(verdict, Rejection):
        _end(f"the published document {verdict.problem}")
    else:
        typer.echo(json.dumps(table_of(verdict), indent=2))
        if verdict.expires <= SystemClock().wall_ns() / SECOND_NS:
            _end("the published settings have expired")


def _end(problem: str) -> None:
    typer.echo(f"reconverge: {problem}", err=True)
    raise typer.Exit(PROBLEM_STATUS)


def _read(file: Path, namespace: str, version: int | None) -> FleetSettings:
    """Returns the settings in a file. Raises InvalidConfiguration, with line and field."""
    from reconverge.integrations.config.positions import InvalidConfiguration, Source  # noqa: PLC0415  # needs an extra

    source = Source(file)
    now_ns = SystemClock().wall_ns()
    said: dict[str, Any] = dict(source.said)

    def wrong(problem: str, *path: str) -> InvalidConfiguration:
        return InvalidConfiguration(source.name, problem, line=source.line_of(path) or 1, field=".".join(path))

    for name in said:
        if name not in (LIFETIME, *FIELDS):
            known = (LIFETIME, *FIELDS)
            raise wrong(f"there is no such setting; known: {', '.join(known)}{asked(name, known)}", name)
    lifetime = said.pop(LIFETIME, None)
    if type(lifetime) is not int or not 1 <= lifetime <= LIFETIME_MAX_S:
        raise wrong(
            f"must be the seconds for which nodes obey the settings, from 1 to {LIFETIME_MAX_S}, not {shown(lifetime)}",
            LIFETIME,
        )
    issued = now_ns // SECOND_NS
    said |= {
        "namespace": namespace,
        "version": now_ns // 1_000_000 if version is None else version,
        "issued": issued,
        "expires": issued + lifetime,
    }
    try:
        return checked(said)
    except InvalidDocument as error:
        if error.path[:1] in (("namespace",), ("version",)):
            raise InvalidSetting(error.path[0], said[error.path[0]], error.problem) from None
        raise wrong(error.problem, *error.path) from None


def _ask(url: str, namespace: str, question: Callable[[SettingsStore], Awaitable[T]]) -> T:
    """Opens the settings store at the hub of that URL. Returns the result of `question` about it.

    Raises HubUnavailable, or InvalidSetting if the hub keeps no settings.
    """

    async def ask(hub: Hub) -> T:
        if not isinstance(hub, SettingsStore):
            raise InvalidSetting(
                "hub", redacted(url), "is a hub that keeps no settings; name a Redis or a broker of MQTT"
            )
        return await question(hub)

    return ask_hub(url, namespace, ask, what="nothing can be published")
