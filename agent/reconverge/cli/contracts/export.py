"""`reconverge contracts export`: a file of contracts in another language."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    file: Annotated[Path, typer.Argument(help="A YAML, JSON or TOML file.")],
    to: Annotated[str, typer.Option("--to", help="yaml, json or toml.", metavar="LANGUAGE")],
) -> None:
    """Print a file of contracts in a language, in the form that contracts are kept in."""
    from reconverge.integrations.contracts.rule_files import (  # noqa: PLC0415  # needs an extra
        read_contracts,
        written_contracts,
    )

    typer.echo(written_contracts(read_contracts(file), to), nl=False)
