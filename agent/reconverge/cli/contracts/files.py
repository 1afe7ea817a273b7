"""The commands `reconverge contracts validate, diff, export, schema`: work on files of contracts, without a hub."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from reconverge.cli.shared.options import JsonOption
from reconverge.contracts.differences import differences
from reconverge.contracts.model import Document

DIFFERENT_STATUS: Final = 1
FileArgument = Annotated[Path, typer.Argument(help="A YAML, JSON or TOML file.", metavar="FILE")]


def validate(file: FileArgument, as_json: JsonOption = False) -> None:
    """Check a file of contracts; a mistake is printed with its line and field, and ends with status 2."""
    document = read_file(file)
    if as_json:
        counts = {"file": str(file), "plans": len(document.plans), "customers": len(document.customers)}
        typer.echo(json.dumps(counts, indent=2))
        return
    typer.echo(f"{file.name}: plans: {len(document.plans)}, customers: {len(document.customers)}")


def diff(
    before: FileArgument,
    after: Annotated[
        Path, typer.Argument(help="Another file of contracts, in any of these languages.", metavar="FILE")
    ],
    as_json: JsonOption = False,
) -> None:
    """Print by plan and customer what a second file of contracts adds (+), leaves out (-) and changes (~).

    Ends with status 0 if the two files have the same contracts, 1 if they differ, and 2 if a file is wrong.
    """
    found = differences(read_file(before), read_file(after))
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in found], indent=2))
    for each in () if as_json else found:
        typer.echo(str(each))
    if found:
        raise typer.Exit(DIFFERENT_STATUS)


def export(
    file: FileArgument,
    to: Annotated[str, typer.Option("--to", help="yaml, json or toml.", metavar="LANGUAGE")],
) -> None:
    """Print a file of contracts as YAML, JSON or TOML, in the form in which a hub keeps contracts."""
    from reconverge.integrations.contracts.rule_files import written_contracts  # noqa: PLC0415  # needs an extra

    typer.echo(written_contracts(read_file(file), to), nl=False)


def print_schema() -> None:
    """Print the JSON Schema (2020-12) of contracts, for editors and for programs that write them."""
    from reconverge.contracts.format import schema  # noqa: PLC0415  # needs an extra

    typer.echo(json.dumps(schema(), indent=2))


def read_file(file: Path) -> Document:
    """Returns the contracts read from a file. Raises InvalidConfiguration, with line and field."""
    from reconverge.integrations.contracts.rule_files import read_contracts  # noqa: PLC0415  # needs an extra

    return read_contracts(file)
