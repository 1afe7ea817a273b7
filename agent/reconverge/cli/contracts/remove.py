"""`reconverge contracts remove`: the end of one customer's contract."""

from __future__ import annotations

import typer

from reconverge.cli.contracts.at_hub import (
    AuthorOption,
    ExpectedOption,
    HubOption,
    IdentityArgument,
    NamespaceOption,
    ask_book,
    author_as_said,
)


def remove(
    identity: IdentityArgument,
    hub: HubOption,
    namespace: NamespaceOption = "default",
    author: AuthorOption = "",
    expected: ExpectedOption = None,
) -> None:
    """End a customer's contract: from then on it is one of the unknown customers."""
    version = ask_book(
        hub,
        namespace,
        lambda book: book.set_customer(identity, None, author=author_as_said(author), expected=expected),
    )
    typer.echo(f"version {version} for namespace {namespace}: {identity} has no contract")
