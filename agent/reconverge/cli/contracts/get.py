"""`reconverge contracts get`: what is said of one customer."""

from __future__ import annotations

import json

import typer

from reconverge.cli.contracts.at_hub import UNKNOWN_STATUS, HubOption, IdentityArgument, NamespaceOption, ask_book
from reconverge.contracts.document import table_of_customer


def get(identity: IdentityArgument, hub: HubOption, namespace: NamespaceOption = "default") -> None:
    """Print the contract of a customer, as JSON; ends with status 1 if it has none, and says what holds then."""
    version, document = ask_book(hub, namespace, lambda book: book.read())
    customer = document.customers.get(identity)
    if customer is None:
        typer.echo(
            f"{identity!r} has no contract at version {version}; for unknown customers: {document.unknown}", err=True
        )
        raise typer.Exit(UNKNOWN_STATUS)
    typer.echo(json.dumps({"version": version, "contract": table_of_customer(customer)}, indent=2))
