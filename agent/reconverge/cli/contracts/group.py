"""The group of the commands about contracts; each is in a file of its own."""

from __future__ import annotations

import typer

from reconverge.cli.contracts.explain import explain, reset
from reconverge.cli.contracts.files import diff, export, print_schema, validate
from reconverge.cli.contracts.import_file import import_file
from reconverge.cli.contracts.look import get, history, list_customers
from reconverge.cli.contracts.plan import plan
from reconverge.cli.contracts.publish import publish, rollback
from reconverge.cli.contracts.set_customer import remove, set_customer
from reconverge.remote_settings.signed import VARIABLE

contracts = typer.Typer(
    name="contracts",
    help="Plans and customers: in files, rehearsed, and kept at a hub. "
    f"What is kept there is signed with what {VARIABLE} holds.",
    no_args_is_help=True,
)
contracts.command()(diff)
contracts.command()(explain)
contracts.command()(export)
contracts.command()(get)
contracts.command()(history)
contracts.command("import")(import_file)
contracts.command("list")(list_customers)
contracts.command()(plan)
contracts.command()(publish)
contracts.command()(remove)
contracts.command()(reset)
contracts.command()(rollback)
contracts.command("schema")(print_schema)
contracts.command("set")(set_customer)
contracts.command()(validate)
