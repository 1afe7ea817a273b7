"""Goal: what is written about the project is true of it.

Method: every example in documents and docstrings is run, every link and every test they name is looked up, and what
tables list is compared with the code.
"""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
import logging
import re
import shlex
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import typer.main

from reconverge import Agent
from reconverge.cli.app import app
from reconverge.hub.registry import GROUP, MEMORY
from reconverge.limit import ALGORITHMS
from reconverge.policies import POLICIES, SHARE
from reconverge.runtime.process import stop_all
from reconverge.shedding import Stack
from tests.support.servers import RedisServer

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
README_LINES_MAX = 160
"""A first screen, and what has to stand beside it; all else is for the documents."""
FIRST_SCREEN_LINES = 30
INSTALLING = (ROOT / "docs" / "start" / "installing.md").read_text()
SETTINGS = (ROOT / "docs" / "reference" / "settings.md").read_text()
COMMANDS = (ROOT / "docs" / "reference" / "commands.md").read_text()
OURS = {".py", ".md", ".lua", ".toml", ".sh", ""}
"""Endings of the files in which the project speaks."""
LEFT_OUT = {".git", ".venv", "build", "dist", "__pycache__"}
REDIS = "redis://localhost:6379/0"
"""How documents write the URL of a Redis; tests put their own in its place."""


def files_of_the_project() -> list[Path]:
    """Everything under version control; without git, everything but what tools leave."""
    git = shutil.which("git")
    if git is not None and (ROOT / ".git").exists():
        listed = subprocess.check_output([git, "ls-files", "-z"], cwd=ROOT, text=True)
        return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_file()
        and not any(part in LEFT_OUT or part.endswith(("_cache", ".egg-info")) for part in path.relative_to(ROOT).parts)
    ]


FILES = files_of_the_project()
DOCUMENTS = sorted(
    path
    for path in FILES
    if path.suffix == ".md"
    and (path.parent != ROOT / "changes" or path.stem == "README")
    and path.parent != ROOT / ".github"
)
"""Documents that are read where they lie; a fragment of the changelog is read there, and tested with it in
`test_releases.py`. The template for pull requests is tested in `test_repository.py`."""
SOURCES = sorted(
    path for path in FILES if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in ("agent", "sync")
)


def name_of(path: Path) -> str:
    """How a document is called in a test's name."""
    return str(path.relative_to(ROOT))


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of that language, also those in lists."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for _, block in found]


def run_block(code: str, namespace: dict[str, Any], where: str) -> None:
    """Run a program, or a session with prompts and answers. Raises whatever goes wrong in it."""
    if ">>>" not in code:
        compiled = compile(code, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if compiled.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(compiled, namespace))  # noqa: S307  # our own documents
        else:
            exec(compiled, namespace)  # noqa: S102  # likewise
        return
    session = doctest.DocTestParser().get_doctest(code, namespace, where, where, 0)
    doctest.DebugRunner().run(session, clear_globs=False)


@pytest.fixture
def quiet() -> Iterator[None]:
    """Stops all that an example has left running."""
    yield
    stop_all()
    logging.getLogger("reconverge").handlers.clear()


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if blocks(path.read_text(), "python")], ids=name_of)
@pytest.mark.usefixtures("quiet")
@pytest.mark.filterwarnings("ignore:Using `httpx` with:DeprecationWarning")  # Starlette's test client runs with either
@pytest.mark.filterwarnings("ignore:Using `httpx` with:UserWarning")
def test_every_example_in_a_document_runs(path: Path, redis_server: RedisServer) -> None:
    """Each by itself, as it stands there, against a real Redis; sessions must answer what is written.

    Whoever copies one has that one alone, so none needs what another has imported or made.
    """
    for number, block in enumerate(blocks(path.read_text(), "python"), start=1):
        run_block(block.replace(REDIS, redis_server.url), {"__name__": path.stem}, f"{path.name}, example {number}")


def docstrings() -> list[tuple[str, str]]:
    """All docstrings that show code, with the names of whose they are."""
    found: list[tuple[str, str]] = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node) or ""
                if ">>>" in text or examples_in(text):
                    found.append((f"{path.stem}.{getattr(node, 'name', '')}", text))
    return found


def examples_in(docstring: str) -> list[str]:
    """Returns the blocks indented after an empty line, but for those under a heading, such as `Args:`."""
    return [
        textwrap.dedent(block)
        for before, block in re.findall(r"(?:\A|\n)([^\n]*)\n\n((?: {4}[^\n]*\n?)+)", docstring)
        if not before.endswith(":")
    ]


class DocNames:
    """The names that the examples in docstrings may take for granted."""

    def __init__(self) -> None:
        agent = Agent("memory://")
        limiter = agent.limit("tokens", "1000/hour")
        self.names = {"Agent": Agent, "agent": agent, "limiter": limiter, "stack": Stack(), "work": lambda: 7}


@pytest.mark.parametrize(("owner", "text"), docstrings(), ids=lambda value: value if " " not in value else "")
@pytest.mark.usefixtures("quiet")
def test_every_example_in_a_docstring_runs(owner: str, text: str, redis_server: RedisServer) -> None:
    """Sessions answer what is written; code without prompts runs."""
    names: dict[str, Any] = dict(DocNames().names)
    for example in [text] if ">>>" in text else examples_in(text):
        run_block(example.replace(REDIS, redis_server.url), names, owner)


def test_there_are_examples_to_run() -> None:
    """The tests above would pass without any."""
    owners = [owner for owner, _ in docstrings()]

    assert {"agent.Agent", "reservation.Reservation"} <= set(owners)
    assert len(blocks(README, "python")) >= 2


def prose(path: Path) -> str:
    """A document without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)


def links(path: Path) -> list[tuple[str, str]]:
    """Text and target of every link that does not lead into the world."""
    return [
        (text, target)
        for text, target in re.findall(r"\[([^\]]*)\]\(([^)\s]+)\)", prose(path))
        if not re.match(r"[a-z]+:", target)
    ]


def anchors(path: Path) -> set[str]:
    """The headings of a document, as links name them."""
    headings = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def names_in(path: Path) -> set[str]:
    """Returns the names that a module defines: functions, classes and their methods, and assigned names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_link_leads_somewhere(path: Path) -> None:
    """To a file or directory of the project, and to a heading that is there."""
    broken: list[str] = []
    for _, target in links(path):
        place, _, anchor = target.partition("#")
        destination = (path.parent / place).resolve() if place else path
        inside = destination.exists() and ROOT in [destination, *destination.parents]
        if not inside or (anchor and anchor not in anchors(destination)):
            broken.append(target)

    assert [] == broken


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_test_that_is_named_exists(path: Path) -> None:
    """Whether as `file.py::name`, or as the text of a link to the file."""
    named = [(ROOT / file, name) for file, name in re.findall(r"`([\w/.]+\.py)::(\w+)`", prose(path))]
    for text, target in links(path):
        if target.endswith(".py") and re.fullmatch(r"`\w+`", text):
            named.append(((path.parent / target).resolve(), text.strip("`")))

    assert [] == [f"{file}::{name}" for file, name in named if not file.is_file() or name not in names_in(file)]


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_file_that_is_named_exists(path: Path) -> None:
    """A text in backticks that looks like a path from the top of the project is one."""
    named = re.findall(r"`((?:agent|sync|tests|examples|docs|bench|chaos)/[\w/.-]*)`", prose(path))

    assert [] == [name for name in named if not (ROOT / name).exists()]


def test_the_readme_links_every_bound_to_a_test() -> None:
    """No cell of the table of bounds is a mere claim."""
    rows = table_after(README, "## How far a limit can be exceeded")

    assert len(rows) >= 5
    assert [] == [cell for row in rows for cell in row[1:] if not re.match(r"\[[^\]]+\]\(tests/[\w/]+\.py\)", cell)]


def test_every_promise_is_linked_to_a_test() -> None:
    """Of the table of promises each row but the headings of its groups, and each row about memory."""
    path = ROOT / "docs" / "reference" / "promises.md"
    text = path.read_text()
    rows = [row for row in table_after(text, "# Promises") if row[1]] + table_after(text, "## Memory")
    shown = r"\]\((\.\./\.\./(?:tests|agent/reconverge/testing|chaos/scenarios)/[\w/]+\.py)\)"

    assert len(rows) >= 20
    assert [] == [row[0] for row in rows if not re.search(shown, row[-1])]


def test_the_readme_is_short() -> None:
    """A newcomer's first reading has an end."""
    assert README.count("\n") <= README_LINES_MAX


def test_the_first_screen_of_the_readme_shows_how_to_see_it_and_how_to_test_it() -> None:
    """`make demo` and `make test` stand within the first screen, before the first heading below the title."""
    screen = "".join(README.partition("\n## ")[0].splitlines(keepends=True)[:FIRST_SCREEN_LINES])

    assert {"demo", "test"} <= set(re.findall(r"^\$ make ([a-z-]+)", screen, re.MULTILINE))


def test_the_readme_explains_an_allowance_where_it_first_names_one() -> None:
    """The first *allowance* of the README ends the sentence that defines it, before the table of bounds."""
    first = re.search(r"\ballowances?\b", prose(ROOT / "README.md"))

    assert first is not None
    assert re.search(
        r"each process holds a part of every limit and spends it\swithout asking: its \*$",
        prose(ROOT / "README.md")[: first.start()],
    )


def test_the_makes_that_are_named_exist() -> None:
    """The documents name them to the reader."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        name for path in DOCUMENTS for name in re.findall(r"(?:^\$ |`)make ([a-z-]+)", path.read_text(), re.MULTILINE)
    }

    assert {"demo", "test", "check"} <= named <= targets


def table_after(text: str, heading: str) -> list[list[str]]:
    """The rows of the first table after a heading, without the header."""
    found = re.search(r"^\|[-| ]+\|\n((?:\|.*\n)+)", text[text.index(heading) :], re.MULTILINE)
    assert found is not None
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in found.group(1).splitlines()]


def code_in(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def test_the_settings_of_an_agent_are_listed_with_their_defaults() -> None:
    """The parameters of Agent, all of them and no others, and the defaults that can be written as a value."""
    parameters = inspect.signature(Agent).parameters
    listed: dict[str, str] = {}
    for names, default, _ in table_after(SETTINGS, "| setting of `Agent`"):
        listed |= dict.fromkeys(code_in(names), default)
    wrong: list[str] = []
    for name, default in listed.items():
        (value,) = code_in(default) if re.fullmatch("`[^`]+`", default) else (None,)
        if value is not None and name in parameters and name != "policy" and parameters[name].default is not None:
            if ast.literal_eval(value) != parameters[name].default:
                wrong.append(name)

    assert set(parameters) == set(listed)
    assert [] == wrong


def test_the_readme_lists_every_policy() -> None:
    """Its three columns are the policies that are there to be used; `naive` is for comparison."""
    header = re.search(r"^\| situation \|(.*)\|$", README, re.MULTILINE)

    assert header is not None
    assert {*POLICIES} - {"naive"} == {*code_in(header.group(1))} - {"max_overshoot"}
    assert POLICIES["balanced"].max_overshoot == 0.1
    assert POLICIES["balanced"].cold_allowance == SHARE
    (row,) = [row for row in table_after(SETTINGS, "| setting of `Agent`") if "policy" in code_in(row[0])]
    assert '"balanced"' in code_in(row[1])


def test_every_algorithm_is_listed() -> None:
    """The sentence that names the algorithms names all of them, and no other."""
    (sentence,) = re.findall(r"The algorithm is one of (.*?)\.(?: Every key|\n)", SETTINGS, re.DOTALL)

    assert set(ALGORITHMS) == set(code_in(sentence))


def test_every_hub_is_listed() -> None:
    """The schemes that open one, as installed."""
    hubs = [hub for hub, _ in table_after(SETTINGS, "| hub | nodes meet")]
    listed = {scheme for hub in hubs for scheme in re.findall(r"`([a-z+]+)://", hub)}

    assert {entry.name for entry in entry_points(group=GROUP)} | {MEMORY} == listed


def test_every_extra_is_listed() -> None:
    """They can be installed beside the agent; `all` and those that only the project needs go without saying."""
    pyproject = (ROOT / "pyproject.toml").read_text()
    (section,) = re.findall(r"^\[project\.optional-dependencies\]\n(.*?)^\[", pyproject, re.MULTILINE | re.DOTALL)
    of_the_project = {"all", "bench", "chaos", "docs", "prove", "test", "dev"}
    extras = set(re.findall(r"^(\w+) = \[", section, re.MULTILINE)) - of_the_project

    assert extras == {name for row in table_after(INSTALLING, "## Extras") for name in code_in(row[0])}


def test_every_environment_variable_is_read_somewhere() -> None:
    """And every one that is read is written about."""
    written = {name for path in DOCUMENTS for name in re.findall(r"`(RECONVERGE_[A-Z_]+)`", path.read_text())}
    read = {name for path in SOURCES for name in re.findall(r"\bRECONVERGE_[A-Z_]+", path.read_text())}

    assert read == written


def test_every_command_is_listed_with_a_line_that_it_understands() -> None:
    """All commands are shown, with options that they have, and with all that they need."""
    (shown,) = (block for block in blocks(COMMANDS, "console") if "reconverge" in block)
    commands: Any = typer.main.get_command(app)
    used: set[str] = set()
    for line in shown.splitlines():
        name, *words = shlex.split(line.removeprefix("$ reconverge "))
        with commands.commands[name].make_context(name, words):
            used.add(name)

    assert set(commands.commands) == used


def test_no_web_snippet_has_a_quota_that_several_workers_exceed_at_once() -> None:
    """With two workers `1/day` may admit two: an example is copied, so it has a quota to which the bound is small."""
    pages = [
        ROOT / "README.md",
        ROOT / "docs" / "guide" / "web.md",
        *(ROOT / "agent" / "reconverge" / "integrations").rglob("*.py"),
    ]
    text = "\n".join(path.read_text() for path in pages)

    assert [] == re.findall(r"""limits?\(["']1/.*""", text)


def test_no_file_speaks_of_a_machine() -> None:
    """Paths of whoever worked on it mean nothing to whoever reads it."""
    pattern = re.compile(r"(?<![\w.:/*-])/(?:work|root|home|Users)/[\w.-]|/tmp/[a-z]")
    found: list[str] = []
    for path in FILES:
        if path.suffix in OURS:
            found += [
                f"{name_of(path)}: {line.strip()}" for line in path.read_text().splitlines() if pattern.search(line)
            ]

    assert [] == found


def test_the_catalogue_of_violations_is_complete() -> None:
    """Every file of more than 400 lines, and every file with a function of more than 50, is owned up to."""
    catalogue = (ROOT / "docs" / "STYLE.md").read_text().partition("## A catalogue")[2]
    long: set[str] = set()
    for path in FILES:
        if path.relative_to(ROOT).parts[0] in ("agent", "sync") and path.suffix in (".py", ".lua"):
            text = path.read_text()
            if text.count("\n") > 400:
                long.add(name_of(path))
            for node in ast.walk(ast.parse(text if path.suffix == ".py" else "")):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    if (node.end_lineno or 0) - node.lineno >= 50:
                        long.add(name_of(path))

    assert [] == [name for name in sorted(long) if not _owned_up_to(name, catalogue)]


def _owned_up_to(name: str, catalogue: str) -> bool:
    """Whether a file is in the catalogue, or a directory that it is in."""
    return f"`{name}`" in catalogue or any(f"`{parent}/`" in catalogue for parent in Path(name).parents)


def test_every_document_can_be_reached_from_the_readme() -> None:
    """Link by link; a page that nobody links to is a page that nobody reads."""
    reached: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        path = ahead.pop()
        if path in reached:
            continue
        reached.add(path)
        for _, target in links(path):
            place = (path.parent / target.partition("#")[0]).resolve()
            ahead += [place / "README.md"] if (place / "README.md").is_file() else []
            ahead += [place] if place.suffix == ".md" and place.is_file() else []

    assert [] == [name_of(path) for path in DOCUMENTS if path not in reached]


def test_the_rights_in_the_documents_are_enough(own_redis: RedisServer) -> None:
    """The line that makes a user with few rights is accepted by a real server, and an agent gets along with it."""
    (line,) = blocks((ROOT / "docs" / "operate" / "redis.md").read_text(), "")
    assert line.startswith("ACL SETUSER limiter on >PASSWORD ")
    assert "+OK" == own_redis.command(*line.split())

    url = own_redis.url.replace("redis://", "redis://limiter:PASSWORD@").removesuffix("0")
    with Agent(f"{url}0", namespace="shop", sync_interval=0.01) as agent:
        limiter = agent.limit("login", "100/hour")
        limiter.reset("ada")
        limiter.allow("ada")
    (exchanges,) = agent.stats().exchanges

    assert {} == exchanges.failures
    assert exchanges.cells > 0
