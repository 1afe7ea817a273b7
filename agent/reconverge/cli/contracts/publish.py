"""The commands `reconverge contracts publish` and `rollback`: replace all contracts by a file or a former version."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from reconverge.cli.contracts.at_hub import AuthorOption, ExpectedOption, ask_book, author_as_said, tell_version
from reconverge.cli.shared.options import HubOption, JsonOption, NamespaceOption
from reconverge.contracts.document import checked
from reconverge.contracts.model import InvalidContracts
from reconverge.contracts.store.index import HISTORY_MAX


def publish(
    file: Annotated[Path, typer.Argument(help="A YAML, JSON or TOML file.", metavar="FILE")],
    hub: HubOption,
    namespace: NamespaceOption = "default",
    author: AuthorOption = "",
    expected: ExpectedOption = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Replace contracts even if this secret does not verify them, or pages are lost."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Publish a file of contracts, which all nodes of the namespace apply within one sync interval.

    Contracts that the file does not name are removed; `history` and `rollback` still have them.
    """
    said = _read(file)
    version = ask_book(
        hub, namespace, lambda book: book.replace(said, author=author_as_said(author), expected=expected), force=force
    )
    customers = len(said.get("customers") or {})
    sentence = f"published version {version} for namespace {namespace}: customers: {customers}"
    tell_version(version, namespace, sentence, as_json=as_json)


def _read(file: Path) -> dict[str, Any]:
    """Returns the content of a file of contracts as a dict. Raises InvalidConfiguration, with line and field."""
    from reconverge.integrations.config.positions import InvalidConfiguration, Source  # noqa: PLC0415  # needs an extra

    source = Source(file)
    try:
        checked(source.said)
    except InvalidContracts as error:
        line = source.line_of(error.path) or 1
        raise InvalidConfiguration(source.name, error.problem, line=line, field=".".join(error.path)) from None
    return dict(source.said)


def rollback(
    version: Annotated[
        int, typer.Argument(help=f"One of the last {HISTORY_MAX}, as `history` lists them.", metavar="VERSION")
    ],
    hub: HubOption,
    namespace: NamespaceOption = "default",
    author: AuthorOption = "",
    as_json: JsonOption = False,
) -> None:
    """Publish a former version again, as a new one, with all plans and customers that it had."""
    new = ask_book(hub, namespace, lambda book: book.rollback(version, author=author_as_said(author)))
    sentence = f"published version {new} for namespace {namespace}: as at version {version}"
    tell_version(new, namespace, sentence, as_json=as_json)
