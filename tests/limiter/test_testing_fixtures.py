"""Goal: an application's tests neither wait for a window nor are refused by one.

Method: the fixtures of `reconverge.testing.fixtures`, which these tests ask for as an application's do, in asynchronous
tests with pytest-asyncio; and a project of its own for what goes on before and after a test.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from reconverge import Agent
from reconverge.testing import ManualClock

RUNS_S_MAX = 120.0
PLAIN = ("-p", "no:cacheprovider", "-p", "no:asyncio")
"""The options of a project that has no plug-in of its own."""
IMPORTED = Agent("memory://")
LOGIN = IMPORTED.limit("login", "2/minute")
"""As an application has them that makes its agent at import."""


async def test_a_waiter_goes_when_the_clock_is_advanced(manual_clock: ManualClock) -> None:
    """It waits for as long as the clock stands, and has its turn in the moment in which there is room."""
    async with Agent("memory://", clock=manual_clock) as agent:
        jobs = agent.limit("jobs", "1/minute", algorithm="leaky-bucket")
        first = await jobs.wait("ada")
        waiting = asyncio.ensure_future(jobs.wait("ada", timeout=120))
        await asyncio.sleep(0)
        waits = not waiting.done()
        manual_clock.advance(60)

        assert (True, True, True) == (bool(first), waits, bool(await waiting))


@pytest.mark.usefixtures("limits_off")
async def test_limits_that_are_off_admit_everything() -> None:
    """Of an agent that was made at import, and of one that the test makes; waiting calls return at once."""
    made = Agent("memory://").limit("made", "2/minute")

    assert [True] * 10 == [limiter.allow("ada") for limiter in (LOGIN, made) for _ in range(5)]
    assert [True] * 4 == [bool(await limiter.wait("ada")) for limiter in (LOGIN, made) for _ in range(2)]


@pytest.mark.parametrize("_again", range(2))
@pytest.mark.usefixtures("fresh_limits")
def test_fresh_limits_have_forgotten_earlier_tests(_again: int) -> None:
    """Also the bans, and all quotas of a limit; what is in progress goes on."""
    strict = IMPORTED.limit("strict", "1/minute; 2/hour", block_after="1/minute", block_for=600)
    jobs = IMPORTED.concurrency("jobs", 1)

    assert [True, False] == [strict.allow("ada") for _ in range(2)]
    assert [True, True, False] == [LOGIN.allow("ada") for _ in range(3)]
    with jobs.slot("ada"):
        IMPORTED.reset()
        assert not jobs.test("ada")
        assert strict.allow("ada")


PROJECT = {
    "conftest.py": 'pytest_plugins = ["reconverge.testing.fixtures"]\n',
    "test_application.py": """
import pytest
from reconverge import Agent

on, shadow = Agent("memory://"), Agent("memory://", switch="shadow")
login = on.limit("login", "1/minute")

def test_before():
    assert [login.allow("ada") for _ in range(3)] == [True, False, False]

def test_during(limits_off):
    assert [login.allow("ada") for _ in range(3)] == [True, True, True]
    assert ["off", "off"] == [on.switched, shadow.switched]

def test_after():
    assert [login.allow("ada") for _ in range(3)] == [False, False, False]
    assert ["on", "shadow"] == [on.switched, shadow.switched]
    assert "on" == Agent("memory://").switched
""",
}


@pytest.mark.slow
def test_every_agent_is_switched_as_before_when_the_test_is_over(tmp_path: Path) -> None:
    """One that was on is on and has charged nothing meanwhile, one in shadow is in shadow, and a new one is on."""
    for name, text in PROJECT.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", *PLAIN, "-W", "error"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=RUNS_S_MAX, check=False)

    assert (0, "3 passed") == (done.returncode, done.stdout.splitlines()[-1].partition(" in ")[0]), done.stdout


LOADS_NOTHING = """
import sys

def test_it():
    assert [] == [name for name in sys.modules if name.startswith("reconverge.")]
"""


@pytest.mark.slow
def test_pytest_loads_nothing_of_this_package_unless_it_is_asked_to(tmp_path: Path) -> None:
    """In a project that does not ask for the fixtures no module of `reconverge` is imported."""
    (tmp_path / "test_other.py").write_text(LOADS_NOTHING)
    command = [sys.executable, "-m", "pytest", "-q", *PLAIN]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=RUNS_S_MAX, check=False)

    assert 0 == done.returncode, done.stdout


@pytest.mark.slow
def test_the_package_in_place_of_its_module_loads_the_fixtures(tmp_path: Path) -> None:
    """`pytest_plugins = ["reconverge.testing"]` names it as its documentation is read."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["reconverge.testing"]')
    (tmp_path / "test_clock.py").write_text("def test_it(manual_clock):\n    manual_clock.advance(60)\n")
    command = [sys.executable, "-m", "pytest", "-q", *PLAIN]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=RUNS_S_MAX, check=False)

    assert 0 == done.returncode, done.stdout
    assert "no agent has it; write Agent('memory://', clock=manual_clock)" in done.stdout
