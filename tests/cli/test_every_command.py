"""Goal: all commands share one vocabulary, help that can be copied, JSON for programs, and documented statuses.

Method: a walk over every command that there is, and the real command in a process of its own where that matters.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from reconverge.cli.app import COMMANDS as DEFERRED
from reconverge.cli.app import app
from tests.support.commands.checked import said_by
from tests.support.commands.processes import run
from tests.support.twin import PATHS, ROOT

COMMANDS: Any = typer.main.get_command(app)
PAGE = (ROOT / "docs" / "reference" / "commands.md").read_text()
WITHOUT_JSON = {
    "bridge": "runs until it is stopped",
    "console": "runs until it is stopped",
    "completion": "prints a script for a shell",
    "contracts export": "prints contracts in the language of --to",
    "contracts import": "prints contracts, or writes them to a file",
    "contracts schema": "prints JSON",
    "usage export": "writes events in the form of --format",
}
"""Commands that tell nothing, or have a form of their own, each with the reason."""
ESCAPE = "\x1b["
COLOURS = re.compile(r"\x1b\[[0-9;]*3[0-9]")


def every_command(group: Any = COMMANDS, *path: str) -> Iterator[tuple[str, Any]]:
    """All commands that do something, by what is typed after `reconverge`."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from every_command(command, *path, name)
        else:
            yield " ".join((*path, name)), command


EVERY = dict(every_command())


def options_of(command: Any) -> dict[str, Any]:
    """The options of a command by each of their names."""
    return {name: each for each in command.params for name in each.opts}


def examples_in(text: str) -> list[str]:
    return [line.strip().removeprefix("$ ") for line in text.splitlines() if line.strip().startswith("$ reconverge ")]


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """Returns the output of `-h` for every command, on a terminal of eighty columns."""
    from typer.testing import CliRunner  # noqa: PLC0415  # beside the processes of the other tests

    runner = CliRunner(env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    return {path: runner.invoke(app, [*path.split(), "-h"]).stdout for path in EVERY}


@pytest.mark.parametrize("path", EVERY)
def test_the_help_of_every_command_ends_with_an_example_of_it(path: str, helps: dict[str, str]) -> None:
    """It is on one line of a terminal of eighty columns, and its words are ones that the command takes."""
    (shown,) = examples_in(helps[path])
    words = shlex.split(shown)[1 + len(path.split()) :]
    with EVERY[path].make_context(path, words):
        pass

    assert f"reconverge {path}" == " ".join(shlex.split(shown)[: 1 + len(path.split())])


@pytest.mark.parametrize("path", EVERY)
def test_help_is_wrapped_by_the_terminal_alone(path: str, helps: dict[str, str]) -> None:
    """A paragraph has no line that ends where a line of its docstring does, with room for the next word."""
    lines = [line.strip() for line in helps[path].partition("╭")[0].partition("Usage:")[2].splitlines()[1:]]
    early = [
        line for line, after in itertools.pairwise(lines) if line and after and len(f"{line} {after.split()[0]}") < 70
    ]

    assert any(lines)
    assert [] == early


@pytest.mark.parametrize("path", EVERY)
def test_every_command_that_tells_something_tells_it_as_json(path: str) -> None:
    """A command without `--json` has a reason, and one with it has none."""
    assert (path in WITHOUT_JSON) != ("--json" in options_of(EVERY[path]))


@pytest.mark.parametrize("path", EVERY)
def test_every_value_of_an_option_has_a_name_in_capitals(path: str) -> None:
    """So all help says `--namespace NAME` and `--hub URL`."""
    unnamed = [
        each.opts[-1] for each in EVERY[path].params if each.metavar is None and not getattr(each, "is_flag", False)
    ]

    assert [] == unnamed


def test_what_is_meant_alike_is_called_alike() -> None:
    """An option has one name for its value, and one help, whichever command it belongs to."""
    said: dict[str, set[tuple[str | None, object]]] = {"--namespace": set(), "--json": set()}
    hubs = set()
    for command in EVERY.values():
        options = options_of(command)
        for name, seen in said.items():
            if name in options:
                seen.add((options[name].metavar, options[name].help))
        if "--hub" in options:
            hubs.add((options["--hub"].metavar, options["--hub"].envvar))

    assert dict.fromkeys(said, 1) == {name: len(seen) for name, seen in said.items()}
    assert {("URL", "RECONVERGE_HUB")} == hubs


@pytest.mark.slow
def test_a_group_helps_with_h_too() -> None:
    """`-h` is `--help` for groups of commands and for `reconverge` itself."""
    done = [run(*words, "-h") for words in ((), ("usage",), ("contracts",))]

    assert [0, 0, 0] == [each.returncode for each in done]
    assert all("Usage: " in each.stdout for each in done)


def test_the_page_of_commands_names_every_command() -> None:
    """The page has each command as it is typed."""
    assert [] == [path for path in EVERY if f"`{path}`" not in PAGE and f"reconverge {path}" not in PAGE]


STATUSES = [
    (0, ("validate", "examples/plans.yaml")),
    (1, ("diff", "examples/plans.yaml", "{other}")),
    (2, ("validate", "{nothing}")),
    (2, ("validate", "examples/plans.yaml", "--colour")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("status", "words"), STATUSES, ids=["done", "found", "mistake", "misspelt"])
def test_statuses_are_those_that_are_written_down(status: int, words: tuple[str, ...], tmp_path: Path) -> None:
    """0: done; 1: done, and the answer is no; 2: nothing was done. The page has a row for each."""
    (tmp_path / "other.yaml").write_text("unknown: free\nplans: {free: {limits: {calls: 1/day}}}\n")
    places = {"other": tmp_path / "other.yaml", "nothing": tmp_path / "nothing.yaml"}
    done = run("contracts", *(word.format(**places) for word in words))

    assert status == done.returncode
    assert f"| {status} |" in PAGE
    assert "Traceback" not in done.stderr


def on_a_terminal(*words: str, **environment: str) -> str:
    """Runs a command with a terminal for its output."""
    ours, theirs = pty.openpty()
    kept = {name: each for name, each in os.environ.items() if not name.startswith(("RECONVERGE_", "NO_COLOR"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "reconverge", *words],
        env={**kept, "PYTHONPATH": PATHS, "TERM": "xterm-256color", **environment},
        cwd=ROOT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    with open(ours, "rb", buffering=0) as terminal:  # noqa: PTH123  # it is a descriptor
        try:
            while chunk := terminal.read(4096):
                said += chunk
        except OSError:  # the other end is closed
            pass
    process.wait(60)
    return said.decode()


@pytest.mark.slow
def test_colours_are_for_terminals_alone() -> None:
    """None where output goes into a pipe, nor where NO_COLOR is set."""
    piped = run("doctor")
    coloured, plain = on_a_terminal("doctor"), on_a_terminal("doctor", NO_COLOR="1")

    assert ESCAPE not in piped.stdout + piped.stderr
    assert COLOURS.search(coloured)
    assert not COLOURS.search(plain)


@pytest.mark.slow
def test_help_in_a_pipe_has_no_colours() -> None:
    """Nor has what is wrong."""
    done = [run("doctor", "-h"), run("doctor", "--colour")]

    assert not any(ESCAPE in each.stdout + each.stderr for each in done)


@pytest.mark.slow
def test_bash_completes_commands_and_options() -> None:
    """With the script that the command prints, in a shell that has no other configuration."""
    script = run("completion", "bash").stdout
    ask = """
    COMP_WORDS=(reconverge contracts exp); COMP_CWORD=2; _reconverge_completion reconverge; echo "${COMPREPLY[@]}"
    COMP_WORDS=(reconverge status --na); COMP_CWORD=2; _reconverge_completion reconverge; echo "${COMPREPLY[@]}"
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script + ask],  # noqa: S607  # wherever it is
        env={**os.environ, "PATH": path, "PYTHONPATH": PATHS},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert ["explain export", "--namespace"] == done.stdout.splitlines()


def test_zsh_and_fish_have_scripts_and_other_shells_a_sentence() -> None:
    """Each script begins with its shell's own words."""
    scripts = {shell: said_by("completion", shell) for shell in ("zsh", "fish", "tcsh")}

    assert "#compdef reconverge" in scripts["zsh"].stdout
    assert "complete --command reconverge" in scripts["fish"].stdout
    assert 2 == scripts["tcsh"].status


def test_the_demo_meets_where_the_environment_says() -> None:
    """A hub that no fleet can meet at is refused by its name, before anything begins."""
    done = run("demo", RECONVERGE_HUB="memory://")

    assert 2 == done.returncode
    assert "memory://" in done.stderr


@pytest.mark.parametrize("words", [["--version"], ["-h"]], ids=["version", "help"])
def test_saying_the_version_and_the_commands_imports_no_command(words: list[str]) -> None:
    """Neither do they import a kernel, an event loop or a server: they are quick on a small machine."""
    heavy = ["redis", "aiomqtt", "matplotlib", "numpy", "starlette", "django", "flask", "aiohttp", "yaml", "asyncio"]
    code = (
        f"import sys\nsys.argv[1:] = {words}\nfrom reconverge.cli import main\ntry:\n    main()\nexcept SystemExit:\n"
        f"    print([name for name in {heavy} if name in sys.modules])\n"
        "    print(sorted(name for name in sys.modules if name.startswith('reconverge')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": PATHS},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    *_, foreign, own = done.stdout.splitlines()

    assert "[]" == foreign
    assert ["cli", "cli.app", "cli.completion", "errors"] == [
        name.removeprefix("reconverge.") for name in ast.literal_eval(own) if name != "reconverge"
    ]


@pytest.mark.parametrize("name", DEFERRED)
def test_a_list_of_commands_says_of_each_what_its_own_help_says(name: str) -> None:
    """The sentence that is shown without importing a command is the first paragraph of its docstring."""
    summary = DEFERRED[name].summary

    assert inspect.cleandoc(COMMANDS.commands[name].help).partition("\n\n")[0].replace("\n", " ") == summary
