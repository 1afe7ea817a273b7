"""`reconverge contracts list`: all plans and customers at a hub."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from reconverge.cli.contracts.at_hub import HubOption, JsonOption, NamespaceOption, ask_book
from reconverge.contracts.document import table_of


def list_customers(
    hub: HubOption,
    namespace: NamespaceOption = "default",
    plan: Annotated[str | None, typer.Option(help="Only the customers on this plan.", metavar="PLAN")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print each customer with its plan, one a line; with --json the whole document, which `publish` takes back."""
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
