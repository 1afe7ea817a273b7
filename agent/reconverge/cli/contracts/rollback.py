"""`reconverge contracts rollback`: contracts are again what they were at a version."""

from __future__ import annotations

from typing import Annotated

import typer

from reconverge.cli.contracts.at_hub import AuthorOption, HubOption, NamespaceOption, ask_book, author_as_said
from reconverge.contracts.index import HISTORY_MAX


def rollback(
    version: Annotated[int, typer.Argument(help=f"One of the last {HISTORY_MAX}, as `history` tells them.")],
    hub: HubOption,
    namespace: NamespaceOption = "default",
    author: AuthorOption = "",
) -> None:
    """Publish a former version again, as a new one, with all plans and customers that it had."""
    new = ask_book(hub, namespace, lambda book: book.rollback(version, author=author_as_said(author)))
    typer.echo(f"published version {new} for namespace {namespace}: as at version {version}")
