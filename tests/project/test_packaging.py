"""Goal: an installed package is whole, and asks for no more than it needs."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib import import_module
from importlib.metadata import EntryPoint, distribution, entry_points, packages_distributions
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from reconverge import Hub
from reconverge.hub.registry import GROUP, HubSettings
from reconverge_sync.merge.loans import LENDERS_MAX
from reconverge_sync.redis.lua.scripts import script

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = {"reconverge": ROOT / "agent", "reconverge_sync": ROOT / "sync"}
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
NOT_FOR_USERS = {"bench", "chaos", "docs", "prove", "test", "dev"}

ALIAS_OF_MAIN = "__mp_main__"
"""`multiprocessing` calls the program so, as well."""
URLS = {
    "redis+unix": "redis+unix:///run/redis.sock",
    "redis+sentinel": "redis+sentinel://localhost/mymaster",
    "rediss+sentinel": "rediss+sentinel://localhost/mymaster",
    "valkey+unix": "valkey+unix:///run/valkey.sock",
    "valkey+sentinel": "valkey+sentinel://localhost/mymaster",
    "valkeys+sentinel": "valkeys+sentinel://localhost/mymaster",
}
"""For schemes whose URLs name something else than a host."""


@pytest.mark.parametrize("package", SOURCE_ROOTS)
def test_type_checkers_may_look_inside(package: str) -> None:
    """Both packages say that they are typed."""
    assert files(package).joinpath("py.typed").is_file()


def test_every_number_that_a_script_takes_from_python_is_filled_in() -> None:
    """A name that stands without a value in a file, with a module of Python beside it, has the value of that module."""
    scripts = SOURCE_ROOTS["reconverge_sync"] / "reconverge_sync/redis/lua"
    names = sorted(str(path.relative_to(scripts).with_suffix("")) for path in scripts.rglob("*.lua"))
    filled = b"".join(map(script, names)).decode()

    assert f"local LENDERS_MAX = {LENDERS_MAX} -- from merge/loans.py" in filled
    assert [] == [line for line in filled.splitlines() if ".py" in line.partition("-- from ")[2] and " = " not in line]


def test_scripts_for_redis_lie_in_files_of_their_own() -> None:
    """No Python file of the hubs has a script in a string: editors and readers find Lua in `.lua` files."""
    modules = sorted((SOURCE_ROOTS["reconverge_sync"] / "reconverge_sync").rglob("*.py"))

    assert [] == [module.name for module in modules if "redis.call(" in module.read_text()]


@pytest.mark.parametrize("package", SOURCE_ROOTS)
def test_no_file_is_left_out_of_the_wheel(package: str) -> None:
    """A file that is not Python is declared as package data; nothing else would bring it into a wheel."""
    patterns: list[str] = PROJECT["tool"]["setuptools"]["package-data"][package]

    assert [] == [file for file in _data_files(SOURCE_ROOTS[package] / package) if not _matches(file, patterns)]


@pytest.mark.parametrize("package", SOURCE_ROOTS)
def test_every_directory_of_modules_is_a_package(package: str) -> None:
    """Each has an `__init__.py`; a directory without one would be left out of the wheel."""
    directories = {module.parent for module in (SOURCE_ROOTS[package] / package).rglob("*.py")}

    assert [] == [directory for directory in sorted(directories) if not (directory / "__init__.py").is_file()]


def test_one_distribution_brings_both_packages() -> None:
    """Whoever installs `reconverge` has the hubs as well."""
    brought_by = packages_distributions()

    assert {"reconverge"} == set(brought_by["reconverge"])
    assert {"reconverge"} == set(brought_by["reconverge_sync"])


def test_what_is_installed_is_what_is_declared() -> None:
    """The metadata of the installation are those of this tree; where they are not, it has to be installed again."""
    declared = {(scheme, value) for scheme, value in PROJECT["project"]["entry-points"][GROUP].items()}

    assert PROJECT["project"]["version"] == distribution("reconverge").version
    assert declared == {(entry.name, entry.value) for entry in _hub_entries()}


@pytest.mark.parametrize("scheme", PROJECT["project"]["entry-points"][GROUP])
def test_every_declared_scheme_opens_a_hub(scheme: str) -> None:
    """Its entry point leads to a factory that makes a hub of a URL, without meeting anybody yet."""
    (entry,) = (entry for entry in _hub_entries() if entry.name == scheme)

    hub = entry.load()(URLS.get(scheme, f"{scheme}://localhost"), HubSettings("packaging", 1.0))

    assert isinstance(hub, Hub)


def test_the_command_is_there() -> None:
    """`reconverge` is a command, and leads to something that can be called."""
    (entry,) = entry_points(group="console_scripts", name="reconverge")

    assert callable(entry.load())


def test_the_agent_needs_nothing_but_python() -> None:
    """No package is required without an extra, and the agent imports none that is not of the standard library."""
    program = "import sys; before = set(sys.modules); from reconverge import *; print(*(set(sys.modules) - before))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    imported = {name.partition(".")[0] for name in answer.stdout.split()}
    imported = {name for name in imported if not name.startswith("_sysconfigdata")}  # Python's own, named by platform

    assert [] == PROJECT["project"]["dependencies"]
    assert {"reconverge"} == imported - sys.stdlib_module_names - {ALIAS_OF_MAIN}


def test_all_is_every_extra_for_users() -> None:
    """`reconverge[all]` is what an application could want, and nothing that only our own tests want."""
    assert set(EXTRAS) - NOT_FOR_USERS - {"all"} == _included_in("all")


def test_developers_have_what_tests_have_and_tests_what_users_have() -> None:
    """Each environment has all of the one before, so that one that was set up for more will do for less."""
    assert "all" in _included_in("test")
    assert "test" in _included_in("dev")


def _hub_entries() -> list[EntryPoint]:
    return [entry for entry in entry_points(group=GROUP) if entry.value.startswith("reconverge_sync.")]


def _data_files(package: Path) -> Iterator[str]:
    """Yields the package's files besides Python and compiled ones, by their path there."""
    for path in sorted(package.rglob("*")):
        if path.is_file() and path.suffix not in {".py", ".pyc", ".so", ".c", ".h"}:
            yield str(path.relative_to(package))


def _matches(file: str, patterns: list[str]) -> bool:
    # In setuptools' patterns, as in a shell's, a star does not reach into another directory.
    return any(file.count("/") == pattern.count("/") and fnmatch(file, pattern) for pattern in patterns)


def _included_in(extra: str) -> set[str]:
    """The extras that this one is made of."""
    prefix = "reconverge["
    parts = [part.removeprefix(prefix).rstrip("]") for part in EXTRAS[extra] if part.startswith(prefix)]
    return {name for part in parts for name in part.split(",")}


@pytest.mark.parametrize(
    "name",
    [
        "redis.RedisHub",
        "cluster.ClusterHub",
        "sentinel.SentinelHub",
        "embedded.EmbeddedHub",
        "mqtt.MqttHub",
        "memory.MemoryHub",
    ],
)
def test_hubs_are_imported_from_where_they_always_were(name: str) -> None:
    """Their files may lie in any room; a name that is not there is an AttributeError as of any module."""
    module, _, hub = name.partition(".")

    room = import_module(f"reconverge_sync.{module}")

    assert hub == getattr(room, hub).__name__
    with pytest.raises(AttributeError, match="nosuch"):
        room.nosuch  # noqa: B018  # it is looked up
