"""Which commands there are."""

from __future__ import annotations

from importlib.metadata import version as version_of
from typing import Annotated

import typer

from reconverge.cli.bridge import bridge
from reconverge.cli.contracts.group import contracts
from reconverge.cli.demo import demo
from reconverge.cli.doctor.doctor import doctor
from reconverge.cli.forget import forget
from reconverge.cli.hub import hub
from reconverge.cli.replay.replay import replay
from reconverge.cli.settings import settings
from reconverge.cli.simulate import simulate
from reconverge.cli.tune import tune
from reconverge.cli.usage.usage import usage

app = typer.Typer(
    name="reconverge",
    help="Rate limits shared by a whole fleet, decided in each process from its own memory.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command()(bridge)
app.add_typer(contracts)
app.command()(demo)
app.command()(doctor)
app.command()(forget)
app.add_typer(hub)
app.command()(replay)
app.add_typer(settings)
app.command()(simulate)
app.command()(tune)
app.add_typer(usage)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"reconverge {version_of('reconverge')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[  # the callback reads it
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version, and end.")
    ] = False,
) -> None:
    """Rate limits shared by a whole fleet, decided in each process from its own memory."""
