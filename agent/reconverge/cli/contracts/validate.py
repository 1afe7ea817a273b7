"""`reconverge contracts validate`: whether a file of contracts makes sense."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def validate(file: Annotated[Path, typer.Argument(help="A YAML, JSON or TOML file.")]) -> None:
    """Check a file of contracts; what is wrong is told with its line and field, and ends with status 2."""
    from reconverge.integrations.contracts.rule_files import read_contracts  # noqa: PLC0415  # needs an extra

    document = read_contracts(file)
    typer.echo(f"{file.name}: plans: {len(document.plans)}, customers: {len(document.customers)}")
