"""`reconverge contracts diff`: what two files of contracts say differently."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from reconverge.contracts.differences import differences

DIFFERENT_STATUS: Final = 1


def diff(
    before: Annotated[Path, typer.Argument(help="A YAML, JSON or TOML file.")],
    after: Annotated[Path, typer.Argument(help="Another one, in any of the languages.")],
) -> None:
    """Print by plan and customer what the second file adds (+), leaves out (-) and says otherwise (~).

    Ends with status 0 if both say the same, 1 if they differ, and 2 if one of them is wrong.
    """
    from reconverge.integrations.contracts.rule_files import read_contracts  # noqa: PLC0415  # needs an extra

    found = differences(read_contracts(before), read_contracts(after))
    for each in found:
        typer.echo(str(each))
    if found:
        raise typer.Exit(DIFFERENT_STATUS)
