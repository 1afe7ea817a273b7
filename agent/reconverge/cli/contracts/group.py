"""`reconverge contracts`: the group, to which each command is added in one line."""

from __future__ import annotations

import typer

from reconverge.cli.contracts.plan import plan

contracts = typer.Typer(
    name="contracts",
    help="What each customer may use: plans, and contracts of single customers.",
    no_args_is_help=True,
)
contracts.command()(plan)
