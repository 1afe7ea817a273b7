"""The command `reconverge completion`: prints the script by which a shell completes commands and options."""

# Theory of operation.
#
# The script that a shell sources calls the command again at each Tab, with the words so far in the environment, and
# Typer answers in place of running anything. So completions always match the installed version, and the script stays
# valid after an update. By default Typer adds options for completion to the command. They guess the shell from the
# parent process, and write into files of the user's home directory, so they are left out, and this command prints the
# script instead.

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated, Final

import typer
from typer.completion import (  # type: ignore[attr-defined]  # no private module, though it lists no exports
    completion_init,  # pyright: ignore[reportPrivateImportUsage]
    get_completion_script,  # pyright: ignore[reportPrivateImportUsage]
)

NAME: Final = "reconverge"
VARIABLE: Final = "_RECONVERGE_COMPLETE"
"""The variable that the script sets when a shell asks for completions; Typer derives its name from the command."""


class Shell(StrEnum):
    """The shells for which `completion` can print a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(help=f"{', '.join(Shell)}.", metavar="SHELL")],
) -> None:
    """Print a script that has a shell complete commands and options when Tab is pressed.

    For bash append it to ~/.bashrc. For zsh write it to a file named _reconverge in a directory of
    $fpath, for fish to ~/.config/fish/completions/reconverge.fish.
    """
    typer.echo(get_completion_script(prog_name=NAME, complete_var=VARIABLE, shell=shell.value))


def answer_shells() -> None:
    """Answers a shell that asks for completions because the user has pressed Tab."""
    if VARIABLE in os.environ:
        completion_init()
