"""The commands of `reconverge`. Only the command that is run is imported."""

# Theory of operation.
#
# Commands import what they need: a simulator, a kernel, contracts, a client of a hub. All of them together take half a
# second to import, which each completion in a shell, each `--version` and each `-h` would have to wait for. So the
# group knows only the module, the summary and the example of each command, and imports a command when it is run, or
# when its own help is shown. Click calls `get_command` for lists of commands, and gets a stand-in with a name and a
# summary; it calls `resolve_command` for the command to run, and gets the imported one. Click documents both methods
# for this use. The summaries are those of the commands' own docstrings; a test compares them.
#
# A test counts modules, and not time: `--version` and `-h` import no command, no kernel, no asyncio and no server.
# Other ways were worse. Imports inside of functions would be needed in all modules, and no test notices a forgotten
# one. To parse the sources for their summaries takes as long as to import half of them. To answer `--version` before
# all imports would leave help and completion slow.

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from reconverge import __version__
from reconverge.errors import shown, without_secrets

INPUT = "Input should"
TOO_MANY = re.compile(r"Got unexpected extra arguments?(\(s\))? \((?P<values>.*)\)", re.DOTALL)
SUMMARY = "Rate limits shared by a whole fleet, decided in each process from its own memory."


class Deferred(NamedTuple):
    """A command, or a group of commands, that is imported only when it is run."""

    place: str
    """The module and, after a colon, the function or the `typer.Typer`."""
    summary: str
    """The first paragraph of the command's help."""
    example: str = ""
    """The last paragraph of the command's help; a group has none."""

    def load(self, name: str) -> Any:
        """Imports the module of this command. Returns the command, named `name`."""
        module, _, attribute = self.place.partition(":")
        found = getattr(import_module(module), attribute)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False)
            alone.command(name, epilog=self.example)(found)
            return _unwrapped(typer.main.get_command(alone))
        return _unwrapped(typer.main.get_command(found))


def _unwrapped(command: Any) -> Any:
    """Joins the lines of each paragraph in the help of a command and its subcommands. Returns the command.

    The terminal's width alone then decides where lines break: the lines of a docstring are longer than many terminals,
    and would be broken twice.
    """
    if command.help:
        command.help = "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(command.help).split("\n\n"))
    for each in getattr(command, "commands", {}).values():
        _unwrapped(each)
    return command


class Loaded(Mapping[str, Any]):
    """The commands of a group by name; each is imported when it is looked up."""

    def __init__(self, deferred: Mapping[str, Deferred]) -> None:
        self._deferred = deferred

    def __getitem__(self, name: str) -> Any:
        return self._deferred[name].load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._deferred)

    def __len__(self) -> int:
        return len(self._deferred)


class LazyGroup(TyperGroup):
    """A group of commands that are imported when they are needed; pass a subclass to `typer.Typer` as `cls`."""

    deferred: Mapping[str, Deferred] = MappingProxyType({})

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = Loaded(self.deferred)

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # noqa: ARG002  # Click's signature
        """Returns the names of all commands, in the order in which help shows them."""
        return list(self.deferred)

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Reads the options before a command's name. If one is the command's own, the error shows where to write it."""
        command = next((each for each in args if each in self.deferred), "COMMAND")
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            option = getattr(error, "option_name", None)
            if option is not None and isinstance(message := getattr(error, "message", None), str):
                place = f"{ctx.command_path} {command} {option} ..."
                vars(error)["message"] = f"{message.rstrip('.')}; options stand after the command, as in: {place}"
            raise

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Runs a command. If an option has a wrong value, the error names the value, and the values it may have."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            mistakes = getattr(error.__cause__, "errors", None)  # newer versions of Typer check values with pydantic
            if mistakes is not None and error.message.startswith(INPUT):
                error.message = f"must{error.message.removeprefix(INPUT)}, not {shown(mistakes()[0]['input'])}"
            raise
        except Exception as error:
            _name_option(error)
            raise

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]  # noqa: ARG002  # Click's signature
        """Returns a stand-in with the name and summary of a command, for listings; None if no command has that name."""
        deferred = self.deferred.get(cmd_name)
        return None if deferred is None else TyperCommand(cmd_name, help=deferred.summary)

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> tuple[str | None, Any, list[str]]:  # type: ignore[override]
        """Returns the name of the command to run, the imported command, and its arguments.

        Ends with a usage error if no command has that name.
        """
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed if listed is None else self.commands[listed.name], rest


def _name_option(error: Exception) -> None:
    """Adds the option to write to an error about an argument too many that looks like a hub or a limit."""
    message, context = getattr(error, "message", None), getattr(error, "ctx", None)
    found = TOO_MANY.fullmatch(message) if isinstance(message, str) else None
    if found is None or context is None:
        return
    value = found["values"].partition(" ")[0]
    wanted = ("--hub", "URL") if "://" in value else ("--limit", "NAME=LIMIT" if "=" in value else "NAME")
    if any(wanted[0] in each.opts and wanted[1] == each.metavar for each in context.command.params):
        said = without_secrets(value)
        vars(error)["message"] = f"{said} stands without its option; write {wanted[0]} {said}"


def _command(place: str, summary: str, example: str) -> Deferred:
    return Deferred(f"reconverge.cli.{place}", summary, f"Example:\n\n$ reconverge {example}")


def _group(place: str, summary: str) -> Deferred:
    return Deferred(f"reconverge.cli.{place}", summary)


COMMANDS: Mapping[str, Deferred] = MappingProxyType(
    {
        "bridge": _command(
            "bridge:bridge",
            "Lend a region's agents (region_share below 1) more of their limits, "
            "while other regions need less of theirs.",
            "bridge --region a --local redis://a --wide redis://b --movable .6",
        ),
        "completion": _command(
            "completion:completion",
            "Print a script that has a shell complete commands and options when Tab is pressed.",
            "completion bash",
        ),
        "console": _command(
            "console:console",
            "Show a whole fleet in a browser: nodes, limits, keys, why requests are refused, contracts and switches.",
            "console --hub redis://localhost:6379/0 --namespace shop",
        ),
        "demo": _command(
            "demo:demo",
            "Watch four processes share a limit, through a partition; takes about a minute.",
            "demo",
        ),
        "doctor": _command(
            "doctor.doctor:doctor",
            "Check whether a hub suits agents with these settings, and print a remedy for each problem.",
            "doctor --hub redis://localhost:6379/0 --namespace shop",
        ),
        "forget": _command(
            "forget:forget",
            "Erase all that is known of an identity: its contract, what it has used, its usage that was not exported.",
            "forget ada --hub redis://localhost --namespace shop",
        ),
        "inspect": _command(
            "limits.inspect:inspect",
            "Explain why a key is refused or not: by which limit, how much is used and left, "
            "and when a request fits again.",
            "inspect ada --limit login=5/minute --hub redis://localhost",
        ),
        "replay": _command(
            "replay.replay:replay",
            "Replay a recording of requests across real processes, and judge what they admitted.",
            "replay trace.csv.gz --limit 30/minute --key client --nodes 4",
        ),
        "reset": _command(
            "limits.reset:reset",
            "Forget what a key has used, on all nodes: of the limits of --file, or of each --limit.",
            "reset ada --limit login=5/minute --hub redis://localhost",
        ),
        "simulate": _command(
            "simulate:simulate",
            "Simulate a fleet with the production kernel, syncer and merge rule under virtual time.",
            "simulate --nodes 8 --limit 1000/10s --fault cut:half@2w+5w",
        ),
        "status": _command(
            "watch.status:status",
            "Show the state of a fleet: its hub, with memory and persistence, its live nodes, "
            "and the totals of each limit.",
            "status --hub redis://localhost:6379/0 --namespace shop",
        ),
        "switch": _command(
            "settings.switch:switch",
            "Turn limits on, into shadow (they count and refuse nothing) or off, on every node, "
            "within one sync interval.",
            "switch shadow --lifetime 3600 --hub redis://localhost",
        ),
        "top": _command(
            "watch.top:top",
            "Watch a fleet: the charges to each limit, the load of each node, or the keys that use most, "
            "the largest first.",
            "top --by limit --hub redis://localhost --namespace shop",
        ),
        "tune": _command(
            "tune:tune",
            "Find the longest sync interval, and the policy, that keep a bound for this limit and this load.",
            "tune --nodes 8 --limit 1000/minute --max-over 1%",
        ),
        "contracts": _group(
            "contracts.group:contracts",
            "Plans and customers: in files, rehearsed, and kept at a hub. "
            "What is kept there is signed with what RECONVERGE_SETTINGS_SECRET holds.",
        ),
        "hub": _group("hub:hub", "Show the data of a hub, and end its wait after a loss of data."),
        "settings": _group(
            "settings.settings:settings",
            "Settings that every agent of a namespace obeys. "
            "They are signed with what RECONVERGE_SETTINGS_SECRET holds.",
        ),
        "usage": _group("usage.usage:usage", "What a fleet has used, by identity, limit, route and period of UTC."),
    }
)


class Commands(LazyGroup):
    """The group of all commands of `reconverge`."""

    deferred = COMMANDS


app = typer.Typer(
    name="reconverge",
    cls=Commands,
    help=SUMMARY,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},  # all commands inherit it
)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"reconverge {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[  # the callback reads it
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version, and end.")
    ] = False,
) -> None:
    """Takes the options of `reconverge` that come before the name of a command, such as `--version`."""
