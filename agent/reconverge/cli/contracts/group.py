"""`reconverge contracts`: the group, to which each command is added in one line."""

from __future__ import annotations

import typer

from reconverge.cli.contracts.files import diff, export, print_schema, validate
from reconverge.cli.contracts.import_file import import_file
from reconverge.cli.contracts.plan import plan

contracts = typer.Typer(
    name="contracts",
    help="Plans and customers: files of contracts are checked, compared, and made of other formats.",
    no_args_is_help=True,
)
contracts.command()(diff)
contracts.command()(export)
contracts.command("import")(import_file)
contracts.command()(plan)
contracts.command("schema")(print_schema)
contracts.command()(validate)
