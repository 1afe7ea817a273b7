"""`reconverge contracts schema`: the JSON Schema of a file of contracts."""

from __future__ import annotations

import json

import typer

from reconverge.contracts.schema import schema


def print_schema() -> None:
    """Print the JSON Schema (2020-12) of contracts, for editors and for programs that write them."""
    typer.echo(json.dumps(schema(), indent=2))
