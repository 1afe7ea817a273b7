"""Goal: what the environment does not say as it was meant is told of once, with what to write.

Method: programs in processes of their own, as what is told is told once in a process.
"""

from __future__ import annotations

import pytest

from reconverge.agent.environment import KNOWN, misspelt
from reconverge.integrations.config import FILE, VARIABLES
from tests.support.commands.processes import run_python

AGENTS = """
import reconverge
agents = [reconverge.Agent({hub}) for _ in range(3)]
agents[0].limit("login", "10/minute").allow("ada")
"""


def logged_by(program: str, **environment: str) -> list[str]:
    """Runs a program and returns the lines of its stderr, without any configuration of logging."""
    done = run_python("-c", program, **environment)
    assert 0 == done.returncode, done.stderr
    return done.stderr.splitlines()


def test_an_agent_without_a_hub_says_once_that_it_counts_alone() -> None:
    """Three agents, one line; it names what to write, also for one who means it."""
    (line,) = logged_by(AGENTS.format(hub=""))

    assert all(word in line for word in ("no hub is set", "counts alone", "RECONVERGE_HUB", "memory://"))


@pytest.mark.parametrize(
    ("hub", "environment"), [("'memory://'", {}), ("", {"RECONVERGE_HUB": "memory://"})], ids=["argument", "variable"]
)
def test_an_agent_that_is_told_to_count_alone_says_nothing(hub: str, environment: dict[str, str]) -> None:
    """That is no mistake."""
    assert [] == logged_by(AGENTS.format(hub=hub), **environment)


def test_a_misspelt_variable_is_told_of_once_with_the_nearest_known_name() -> None:
    """Three agents, a line for each variable; what it holds may be a secret, and is not shown."""
    told = logged_by(
        AGENTS.format(hub="'memory://'"), RECONVERGE_HUBB="redis://:sesame@a", RECONVERGE_NAMESPCE="a", RECONVERGE_X="b"
    )

    assert 3 == len(told)
    assert any("RECONVERGE_HUBB is not known" in line and "did you mean RECONVERGE_HUB?" in line for line in told)
    assert any("RECONVERGE_NAMESPCE" in line and "did you mean RECONVERGE_NAMESPACE?" in line for line in told)
    assert any("RECONVERGE_X" in line and "known: RECONVERGE_ASKS_MAX" in line for line in told)
    assert "sesame" not in "".join(told)


LOADED = """
from reconverge.integrations.config import load
from tests.support.commands.processes import run_python
agents = [load(limits={"api": "5/minute"}).agent, *(__import__("reconverge").Agent("memory://") for _ in range(2))]
"""


def test_variables_that_only_load_reads_are_told_of_once() -> None:
    """Three agents that the program makes itself, one line; the values are not shown."""
    (line,) = logged_by(
        AGENTS.format(hub="'memory://'"),
        RECONVERGE_LIMITS='{"login": "9/hour"}',
        RECONVERGE_NAMESPACE="sesame",
        RECONVERGE_SWITCH="shadow",
    )

    assert "does not read RECONVERGE_LIMITS, RECONVERGE_NAMESPACE;" in line
    assert "reconverge.integrations.config.load()" in line
    assert "sesame" not in line


def test_variables_that_load_has_read_are_not_told_of() -> None:
    """Further agents of the same program are meant to be without them."""
    told = logged_by(LOADED, RECONVERGE_HUB="memory://", RECONVERGE_LIMITS='{"login": "9/hour"}')

    assert [] == told


def test_an_extension_that_is_misspelt_is_told_of() -> None:
    """RECONVERGE_NO_EXTENSION, without its S, leaves the compiled kernel in use."""
    assert {"RECONVERGE_NO_EXTENSION": "RECONVERGE_NO_EXTENSIONS"} == misspelt({"RECONVERGE_NO_EXTENSION": "1"})


def test_every_variable_that_is_read_is_known() -> None:
    """Those of settings, of the file and of commands."""
    assert {*VARIABLES.values(), FILE, "RECONVERGE_WIDE_HUB", "RECONVERGE_REDIS_SERVER"} <= KNOWN
    assert {} == misspelt(dict.fromkeys(KNOWN, "1"))


def test_what_kubernetes_sets_for_a_service_is_passed_over() -> None:
    """A service named reconverge brings these into every container of its namespace."""
    service = ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_6379_TCP", "PORT_6379_TCP_ADDR")

    assert {} == misspelt({f"RECONVERGE_{name}": "10.0.0.1" for name in (*service, "HUB_SERVICE_HOST", "HUB_PORT")})
