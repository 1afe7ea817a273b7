"""`reconverge contracts history`: what was changed of the contracts at a hub."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from reconverge.cli.contracts.at_hub import HubOption, JsonOption, NamespaceOption, ask_book
from reconverge.contracts.document import written_moment
from reconverge.contracts.index import HISTORY_MAX


def history(
    hub: HubOption,
    namespace: NamespaceOption = "default",
    identity: Annotated[str | None, typer.Option(help="Only changes of this customer.", metavar="IDENTITY")] = None,
    most: Annotated[int, typer.Option(help="So many at most.", min=1, max=HISTORY_MAX)] = 20,
    as_json: JsonOption = False,
) -> None:
    """Print the last changes, the newest first: version, moment, author, customer, what was said before and since."""
    changes = ask_book(hub, namespace, lambda book: book.history(most=most, identity=identity))
    if as_json:
        typer.echo(json.dumps([{**asdict(each), "when": written_moment(each.when)} for each in changes], indent=2))
        return
    for each in changes:
        about = "all contracts" if each.identity is None else each.identity
        change = f"{_shown(each.before)} -> {_shown(each.after)}"
        typer.echo(f"{each.version}\t{written_moment(each.when)}\t{each.author}\t{about}\t{change}")


def _shown(said: Any) -> str:
    return "nothing" if said is None else json.dumps(said)
