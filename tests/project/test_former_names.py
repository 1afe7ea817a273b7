"""Goal: programs that import a module under the name that it had before it moved still work, and are told.

Method: a new interpreter for each import, as one that has the module already would not look for it.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from reconverge.former_names import MOVED, FormerNames


def _run(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, check=False)


def test_every_former_name_gives_the_module_that_moved() -> None:
    """The same object as under its name of today, its specification included."""
    names = dict(MOVED)
    done = _run(
        "import reconverge\nfrom importlib import import_module\n"
        f"for former, now in {names!r}.items():\n"
        "    module = import_module(former)\n"
        "    assert module is import_module(now), former\n"
        "    assert module.__spec__.name == now, module.__spec__\n"
        "print('all', end='')"
    )

    assert ("all", 0) == (done.stdout, done.returncode), done.stderr


def test_a_former_name_is_told_with_the_name_of_today() -> None:
    """Where warnings are errors, the import is one; the text says what to write."""
    done = _run("import reconverge\nfrom reconverge.hubs import open_hub", "-W", "error::DeprecationWarning")

    assert "the module reconverge.hubs has moved: import reconverge.hub.registry" in done.stderr
    assert 1 == done.returncode


@pytest.mark.parametrize("name", ["reconverge.nonsense", "hubs", "reconverge.hub"])
def test_other_names_are_left_to_others(name: str) -> None:
    """What never was there is not found here either, nor what is there."""
    assert FormerNames().find_spec(name) is None


@pytest.mark.parametrize(
    ("module", "former", "now"),
    [
        ("reconverge.hub", "Bulletin", "SettingsStore"),
        ("reconverge.remote_settings.signed", "Orders", "FleetSettings"),
        ("reconverge.remote_settings.signed", "LimitOrder", "LimitOverride"),
        ("reconverge.remote_settings.signed", "InvalidOrders", "InvalidFleetSettings"),
    ],
)
def test_a_class_that_documents_have_shown_keeps_its_former_name(module: str, former: str, now: str) -> None:
    """Both names are the same class, so that `isinstance` and `except` work with either."""
    found = import_module(module)

    assert getattr(found, now) is getattr(found, former)
