"""Which commands there are."""

from __future__ import annotations

from importlib.metadata import version as version_of
from typing import Annotated

import typer

from reconverge.cli.bridge import bridge
from reconverge.cli.completion import completion
from reconverge.cli.console import console
from reconverge.cli.contracts.group import contracts
from reconverge.cli.demo import demo
from reconverge.cli.doctor.doctor import doctor
from reconverge.cli.forget import forget
from reconverge.cli.hub import hub
from reconverge.cli.limits.inspect import inspect
from reconverge.cli.limits.reset import reset
from reconverge.cli.options import example
from reconverge.cli.replay.replay import replay
from reconverge.cli.settings.settings import settings
from reconverge.cli.settings.switch import switch
from reconverge.cli.simulate import simulate
from reconverge.cli.tune import tune
from reconverge.cli.usage.usage import usage
from reconverge.cli.watch.status import status
from reconverge.cli.watch.top import top

app = typer.Typer(
    name="reconverge",
    help="Rate limits shared by a whole fleet, decided in each process from its own memory.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},  # of all commands: they inherit it
)
app.command(epilog=example("bridge --region a --local redis://a --wide redis://b --movable .6"))(bridge)
app.command(epilog=example("completion bash"))(completion)
app.command(epilog=example("console --hub redis://localhost:6379/0 --namespace shop"))(console)
app.add_typer(contracts)
app.command(epilog=example("demo"))(demo)
app.command(epilog=example("doctor --hub redis://localhost:6379/0 --namespace shop"))(doctor)
app.command(epilog=example("forget ada --hub redis://localhost --namespace shop"))(forget)
app.add_typer(hub)
app.command(epilog=example("inspect ada --limit login=5/minute --hub redis://localhost"))(inspect)
app.command(epilog=example("replay trace.csv.gz --limit 30/minute --key client --nodes 4"))(replay)
app.command(epilog=example("reset ada --limit login=5/minute --hub redis://localhost"))(reset)
app.add_typer(settings)
app.command(epilog=example("simulate --nodes 8 --limit 1000/10s --fault cut:half@2w+5w"))(simulate)
app.command(epilog=example("status --hub redis://localhost:6379/0 --namespace shop"))(status)
app.command(epilog=example("switch shadow --lifetime 3600 --hub redis://localhost"))(switch)
app.command(epilog=example("top --by limit --hub redis://localhost --namespace shop"))(top)
app.command(epilog=example("tune --nodes 8 --limit 1000/minute --max-over 1%"))(tune)
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
