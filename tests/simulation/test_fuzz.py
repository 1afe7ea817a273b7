"""The fuzz finds nothing in two hundred seeds, finds what is planted, and tells how to see it again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial

import pytest

from reconverge.simulation import fuzz
from reconverge.simulation.fuzz import LIVENESS, SAFETY, draw_case, try_case
from reconverge_sync import merge

SEEDS = 200


def test_no_bound_is_broken_and_nothing_lost_in_two_hundred_fleets() -> None:
    """Safety and liveness, whatever the draw brings; a failing seed is printed as a command."""
    done = subprocess.run(
        [sys.executable, "-m", "reconverge.simulation.fuzz", "--seeds", str(SEEDS)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stdout + done.stderr
    assert f"fuzz: {2 * SEEDS} passed, 0 failed" in done.stdout


def test_a_seed_always_draws_the_same_case() -> None:
    """A failing seed fails again."""
    for mode in (SAFETY, LIVENESS):
        assert str(draw_case(mode, 11)) == str(draw_case(mode, 11))


def test_a_case_tells_the_command_that_tries_it_again() -> None:
    """Mode and seed are all that it takes."""
    assert "python -m reconverge.simulation.fuzz --mode safety --start 11 --seeds 1" == draw_case(SAFETY, 11).command()


def test_a_hub_that_grants_what_it_does_not_have_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants lines that sum to more than the capacity, which must break a bound before long."""
    monkeypatch.setattr(merge, "_raise", partial(_generous, merge._raise))

    assert any(try_case(draw_case(SAFETY, seed)) for seed in range(40))


def test_a_failing_seed_ends_the_command_with_its_own_reproduction(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status is 1, and the output can be pasted."""
    monkeypatch.setattr(fuzz, "_try_seed", lambda what: (*what, ["planted"]))

    status = fuzz.main(["--seeds", "1", "--mode", "safety", "--processes", "1"])

    assert 1 == status
    assert "--mode safety --start 0 --seeds 1\n" in capsys.readouterr().out


def _generous(grant: Callable[..., int], *arguments: object) -> int:
    """The rule for raising lines, told that everything is free."""
    *others, _ = arguments
    return grant(*others, 10**9)
