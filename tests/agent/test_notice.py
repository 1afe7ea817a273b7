"""Goal: who runs without the compiled kernel, and did not mean to, hears of it once, and is told what to do.

Method: programs in processes of their own, from some of which the compiled kernel is withheld.
"""

from __future__ import annotations

import pytest

from reconverge.kernel.engine import asks_for_python
from tests.support.commands.processes import run_python

WITHHOLDS = "import sys; sys.modules['reconverge.kernel._native'] = None"
RUNS_FREE = "import sys; sys._is_gil_enabled = lambda: False"
"""As a free-threaded build says of itself."""
MAKES = """
import logging
logging.basicConfig(format="%(levelname)s %(name)s %(message)s", level=logging.DEBUG)
import reconverge
print("imported")
agents = [reconverge.Agent("memory://") for _ in range(3)]
agents[0].limit("limit", "10/minute").allow("ada")
print(agents[0].stats().kernel)
"""


def said_by(program: str, **environment: str) -> tuple[list[str], list[str]]:
    done = run_python("-c", program, **environment)
    assert 0 == done.returncode, done.stderr
    return done.stdout.split(), done.stderr.splitlines()


def test_a_missing_kernel_is_told_of_once() -> None:
    """The first agent logs a warning, which names the consequence and the remedies."""
    printed, logged = said_by(f"{WITHHOLDS}\n{MAKES}")

    assert ["imported", "pure"] == printed
    (line,) = logged
    assert line.startswith("WARNING reconverge ")
    assert all(word in line for word in ("ten times", "apt-get install", "pip install", "RECONVERGE_NO_EXTENSIONS=1"))


def test_where_threads_run_without_a_global_lock_python_decides_and_says_so_once() -> None:
    """The compiled kernel would have the whole process take its lock again, or count wrongly without it."""
    printed, logged = said_by(f"{RUNS_FREE}\n{MAKES}\nassert 'reconverge.kernel._native' not in sys.modules")

    assert ["imported", "pure"] == printed
    (line,) = logged
    assert line.startswith("WARNING reconverge ")
    assert all(word in line for word in ("ten times", "PYTHON_GIL=1", "RECONVERGE_NO_EXTENSIONS=1"))
    assert (["imported", "pure"], []) == said_by(f"{RUNS_FREE}\n{MAKES}", RECONVERGE_NO_EXTENSIONS="1")


def test_importing_alone_says_nothing() -> None:
    """Whoever makes no agent decides nothing, and need not know."""
    _, logged = said_by(f"{WITHHOLDS}\nimport logging\nlogging.basicConfig()\nimport reconverge, reconverge.kernel")

    assert [] == logged


def test_who_asked_for_python_is_told_nothing() -> None:
    """It is as it was meant to be."""
    assert (["imported", "pure"], []) == said_by(MAKES, RECONVERGE_NO_EXTENSIONS="1")


@pytest.mark.parametrize(
    ("asks", "value"),
    [(True, each) for each in ("1", "yes", "true", "on", "YES", " True ")]
    + [(False, each) for each in ("", "0", "no", "false", "off", "No")],
)
def test_python_is_asked_for_by_a_word_for_yes_alone(asks: bool, value: str) -> None:
    """However it is written; a variable that is set to 0 had asked for it, as any value did."""
    assert asks == asks_for_python(value)


def test_any_other_word_is_an_error_that_names_it() -> None:
    """Neither kernel is chosen by a word that may mean either."""
    failed = run_python("-c", "import reconverge.kernel", RECONVERGE_NO_EXTENSIONS="perhaps")

    assert 1 == failed.returncode
    assert "InvalidSetting: RECONVERGE_NO_EXTENSIONS='perhaps'" in failed.stderr


@pytest.mark.usefixtures("compiled_kernel")
@pytest.mark.parametrize("environment", [{}, {"RECONVERGE_NO_EXTENSIONS": "0"}], ids=["as it is", "zero"])
def test_who_has_the_compiled_kernel_is_told_nothing(environment: dict[str, str]) -> None:
    """There is nothing to tell; zero leaves it in use, as the choice of the kernel heeds the meaning of the word."""
    assert (["imported", "native"], []) == said_by(MAKES, **environment)
