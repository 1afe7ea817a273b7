"""The commands `reconverge contracts get`, `list` and `history`: show the contracts at a hub, and their history."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from reconverge.cli.contracts.at_hub import UNKNOWN_STATUS, IdentityArgument, ask_book
from reconverge.cli.shared.options import HubOption, JsonOption, NamespaceOption
from reconverge.contracts.store.index import HISTORY_MAX
from reconverge.contracts.writing import table_of, table_of_customer, written_moment


def get(
    identity: IdentityArgument, hub: HubOption, namespace: NamespaceOption = "default", as_json: JsonOption = False
) -> None:
    """Print a customer's contract as JSON; without a contract, print the plan of unknown customers, with status 1.

    With --json that plan is printed as JSON, too: `contract` is null, and `unknown` names the plan.
    """
    version, document = ask_book(hub, namespace, lambda book: book.read())
    customer = document.customers.get(identity)
    if customer is None:
        if as_json:
            typer.echo(json.dumps({"version": version, "contract": None, "unknown": document.unknown}, indent=2))
            raise typer.Exit(UNKNOWN_STATUS)
        typer.echo(
            f"{identity!r} has no contract at version {version}; for unknown customers: {document.unknown}", err=True
        )
        raise typer.Exit(UNKNOWN_STATUS)
    typer.echo(json.dumps({"version": version, "contract": table_of_customer(customer)}, indent=2))


def list_customers(
    hub: HubOption,
    namespace: NamespaceOption = "default",
    plan: Annotated[str | None, typer.Option(help="Only the customers on this plan.", metavar="PLAN")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print each customer with its plan, one a line; with --json the whole document, which `publish` accepts."""
    version, document = ask_book(hub, namespace, lambda book: book.read())
    table = table_of(document)
    if plan is not None:
        table["customers"] = {name: each for name, each in table["customers"].items() if each["plan"] == plan}
    if as_json:
        typer.echo(json.dumps(table, indent=2))
        return
    for identity in sorted(table["customers"]):
        contract = table["customers"][identity]
        own = ", ".join(contract.get("limits", ()))
        typer.echo(f"{identity}\t{contract['plan']}" + (f"\town: {own}" if own else ""))
    plans = ", ".join(document.plans) or "none"
    shown = f"version {version}, plans: {plans}, customers: {len(table['customers'])}, unknown: {document.unknown}"
    typer.echo(shown, err=True)


def history(
    hub: HubOption,
    namespace: NamespaceOption = "default",
    identity: Annotated[str | None, typer.Option(help="Only changes of this customer.", metavar="IDENTITY")] = None,
    most: Annotated[int, typer.Option(help="The most changes to print.", min=1, max=HISTORY_MAX, metavar="N")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Print the last changes, the newest first: version, moment, author, customer, and the text before and after."""
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
