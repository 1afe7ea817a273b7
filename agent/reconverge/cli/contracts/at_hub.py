"""The common part of the commands that read and change contracts at a hub."""

from __future__ import annotations

import getpass
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Final, TypeAlias, TypeVar

import typer

from reconverge.cli.shared.asking import ask_hub, secrets_as_said
from reconverge.contracts.store.changing import AUTHOR_LENGTH_MAX
from reconverge.contracts.store.hub_book import HubBook
from reconverge.contracts.store.index import minimum_as_said
from reconverge.errors import InvalidSetting
from reconverge.hub.port import ContractStore, Hub
from reconverge.hub.registry import redacted

T = TypeVar("T")
UNKNOWN_STATUS: Final = 1
"""The exit status of a command about a customer that has no contract."""
IdentityArgument: TypeAlias = Annotated[str, typer.Argument(help="The customer.", metavar="IDENTITY")]
AuthorOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--author", help="The name of the author in the history of changes.", metavar="NAME", show_default="your name"
    ),
]
ExpectedOption: TypeAlias = Annotated[
    int | None,
    typer.Option("--expected", help="Change nothing unless the contracts are at this version.", metavar="VERSION"),
]


def tell_version(version: int, namespace: str, sentence: str, *, as_json: bool) -> None:
    """Prints the new version of the contracts, as a sentence or as JSON."""
    said = {"version": version, "namespace": namespace}
    typer.echo(json.dumps(said, indent=2) if as_json else sentence)


def author_as_said(author: str) -> str:
    """Returns `author`, from the command line, or if that is empty the name of the user that runs the command."""
    if author:
        return author
    try:
        return getpass.getuser()[:AUTHOR_LENGTH_MAX]
    except (OSError, KeyError):  # in a container without a name for this user
        return "unknown"


def ask_book(url: str, namespace: str, question: Callable[[HubBook], Awaitable[T]], *, force: bool = False) -> T:
    """Opens the contracts of a namespace at the hub of that URL. Returns the result of `question` about them.

    With `force` a change also replaces contracts that cannot be read. Raises HubUnavailable, UnverifiedDocument, or
    InvalidSetting if the hub cannot keep contracts.
    """
    secrets, minimum = secrets_as_said(), minimum_as_said()

    async def ask(hub: Hub) -> T:
        if not isinstance(hub, ContractStore):
            raise InvalidSetting(
                "hub", redacted(url), "is a hub that keeps no contracts; name a Redis or a broker of MQTT"
            )
        return await question(HubBook(hub, namespace, secrets, minimum=minimum, force=force))

    return ask_hub(url, namespace, ask, what="no contracts can be kept")
