"""Goal: what a soak once found stays mended.

Method: `python -m tests.support.soak` keeps each failure with its seed, and each is tried again.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.soak import FOUND, ROOT, Found, command, failures, fresh_environment


def test_what_was_found_once_stays_mended() -> None:
    """By the same test, or the same mode of the fuzz, with the same seed."""
    kept: list[Found] = json.loads(FOUND.read_text(encoding="utf-8"))
    tried = [
        subprocess.run(command(one), cwd=ROOT, env=fresh_environment(), capture_output=True, text=True, check=False)
        for one in kept
    ]

    assert [] == [done.stdout[-5000:] for done in tried if done.returncode != 0]


def test_a_failure_is_kept_with_what_tries_it_again() -> None:
    """A test by its name and the seed of its examples, a fleet by its mode and its seed."""
    tested = [sys.executable, "-m", "pytest", "--hypothesis-seed=7", "tests/kernel"]
    fuzzed = [sys.executable, "-m", "reconverge.simulation.fuzz", "--mode", "safety", "--start", "100", "--seeds", "40"]

    of_test = failures(tested, "...F\nFAILED tests/kernel/test_a.py::test_b - assert 1 == 2\n1 failed\n")
    of_fuzz = failures(
        fuzzed, "python -m reconverge.simulation.fuzz --mode safety --start 123 --seeds 1\n  Case(...)\n"
    )

    assert [{"what": "tests/kernel/test_a.py::test_b", "seed": 7}] == of_test
    assert [{"what": "safety", "seed": 123}] == of_fuzz
    assert "--hypothesis-seed=7" in command(of_test[0])
    assert ["--start", "123", "--seeds", "1"] == command(of_fuzz[0])[-4:]


def test_a_soak_never_draws_the_examples_of_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where CI is set the examples are the same each time, so it is taken away."""
    monkeypatch.setenv("CI", "true")

    assert "CI" not in fresh_environment()
    assert "1" == fresh_environment()["LONG"]
