"""`reconverge contracts`: the group, to which each command is added in one line."""

from __future__ import annotations

import typer

from reconverge.cli.contracts.get import get
from reconverge.cli.contracts.history import history
from reconverge.cli.contracts.list_customers import list_customers
from reconverge.cli.contracts.publish import publish
from reconverge.cli.contracts.remove import remove
from reconverge.cli.contracts.rollback import rollback
from reconverge.cli.contracts.set_customer import set_customer
from reconverge.remote_settings.signed import VARIABLE

contracts = typer.Typer(
    name="contracts",
    help=f"Plans and customers of a fleet. What is kept at a hub is signed with what {VARIABLE} holds.",
    no_args_is_help=True,
)
contracts.command()(get)
contracts.command()(history)
contracts.command("list")(list_customers)
contracts.command()(publish)
contracts.command()(remove)
contracts.command()(rollback)
contracts.command("set")(set_customer)
