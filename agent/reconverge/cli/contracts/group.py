"""The group of the commands about contracts; each command has a file of its own."""

from __future__ import annotations

import typer

from reconverge.cli.contracts.explain import explain, reset
from reconverge.cli.contracts.files import diff, export, print_schema, validate
from reconverge.cli.contracts.import_file import import_file
from reconverge.cli.contracts.link import link
from reconverge.cli.contracts.look import get, history, list_customers
from reconverge.cli.contracts.plan import plan
from reconverge.cli.contracts.publish import publish, rollback
from reconverge.cli.contracts.set_customer import remove, set_customer
from reconverge.cli.shared.options import example
from reconverge.published.envelope import VARIABLE

contracts = typer.Typer(
    name="contracts",
    help="Plans and customers: in files, rehearsed, and kept at a hub. "
    f"What is kept there is signed with what {VARIABLE} holds.",
    no_args_is_help=True,
)
contracts.command(epilog=example("contracts diff old.yaml new.yaml"))(diff)
contracts.command(epilog=example("contracts explain ada --hub redis://localhost --namespace shop"))(explain)
contracts.command(epilog=example("contracts export contracts.yaml --to toml"))(export)
contracts.command(epilog=example("contracts get ada --hub redis://localhost --namespace shop"))(get)
contracts.command(epilog=example("contracts history --most 5 --hub redis://localhost"))(history)
contracts.command("import", epilog=example("contracts import limits.xml --from xml --out contracts.yaml"))(import_file)
contracts.command(epilog=example("contracts link ada --url https://shop.example/console"))(link)
contracts.command("list", epilog=example("contracts list --plan pro --hub redis://localhost"))(list_customers)
contracts.command(epilog=example("contracts plan new.yaml log.csv --customer id --current old.yaml"))(plan)
contracts.command(epilog=example("contracts publish contracts.yaml --hub redis://localhost"))(publish)
contracts.command(epilog=example("contracts remove ada --hub redis://localhost --namespace shop"))(remove)
contracts.command(epilog=example("contracts reset ada --hub redis://localhost --namespace shop"))(reset)
contracts.command(epilog=example("contracts rollback 3 --hub redis://localhost --namespace shop"))(rollback)
contracts.command("schema", epilog=example("contracts schema"))(print_schema)
contracts.command("set", epilog=example("contracts set ada pro --limit calls=9/s --hub redis://localhost"))(
    set_customer
)
contracts.command(epilog=example("contracts validate examples/plans.yaml"))(validate)
