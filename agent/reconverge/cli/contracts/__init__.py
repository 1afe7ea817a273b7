"""`reconverge contracts`: what each customer may use, looked at and changed from a terminal."""

from __future__ import annotations

import typer

from reconverge.cli.contracts.plan import plan

__all__ = ["contracts"]

contracts = typer.Typer(
    name="contracts",
    help="What each customer may use: plans, and contracts of single customers.",
    no_args_is_help=True,
)
contracts.command()(plan)
