"""A group of commands of which only the one that is run is imported."""

# Theory of operation.
#
# Commands import what they need: a simulator, a kernel, contracts, a client of a hub. All of them together take half a
# second to import, and each word at a shell's Tab, `--version` and `-h` would pay for it. So the group knows of each
# command where it is, its one sentence of help and its example, and imports the command when it is run, or when its
# own help is asked for. `get_command` is asked for lists of commands, and answers with a command that has a name and a
# sentence alone; `resolve_command` is asked for the one to run, and imports it. Both are the hooks that Click documents
# for such groups. The sentences are those of the commands' own docstrings, which a test compares.

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup


class Deferred(NamedTuple):
    """A command, or a group of commands, that is imported when it is run."""

    place: str
    """The module and, after a colon, the function or the `typer.Typer`."""
    summary: str
    """The first paragraph of its help."""
    example: str = ""
    """What its help ends with; a group has none."""

    def load(self, name: str) -> Any:
        """Import it, and return the command that `name` runs."""
        module, _, attribute = self.place.partition(":")
        found = getattr(import_module(module), attribute)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False)
            alone.command(name, epilog=self.example)(found)
            return typer.main.get_command(alone)
        return typer.main.get_command(found)


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
    """A group whose commands stand in `deferred`; to be inherited, and given to `typer.Typer` as `cls`."""

    deferred: Mapping[str, Deferred] = MappingProxyType({})

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = Loaded(self.deferred)

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # noqa: ARG002  # Click's signature
        """The names of all commands, in the order in which help shows them."""
        return list(self.deferred)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]  # noqa: ARG002  # Click's signature
        """What lists of commands say of one; None for a name that no command has."""
        deferred = self.deferred.get(cmd_name)
        return None if deferred is None else TyperCommand(cmd_name, help=deferred.summary)

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> tuple[str | None, Any, list[str]]:  # type: ignore[override]
        """The command that is run, imported; ends with a usage error for a name that no command has."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed if listed is None else self.commands[listed.name], rest
