"""Goal: `make bench-shedding` judges what it has measured as it says, and finds what is not as it should be.

Method: answers are made up, with one fault each; one short run of the real service shows that the pieces fit.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.shedding.__main__ import main
from bench.shedding.cases import CASES, FULL, PREFETCH, USER
from bench.shedding.judge import OK, UNAVAILABLE, rejected_shares, settling, verdict_of
from bench.shedding.load import LOST, Answer
from bench.shedding.responses import LOADS, UNDAMPED, additive, controlled

PER_S = 100


def answered(rejected: Callable[[float], float], *, lost_users: int = 0) -> list[Answer]:
    """A hundred requests each second, half of them of users, of which prefetch makes up for all that is rejected."""
    answers: list[Answer] = []
    owed = 0.0
    for number in range(round(FULL.ends_s * PER_S)):
        due_s = number / PER_S
        user = number % 2 == 0
        owed += rejected(due_s)
        if user:
            answers.append(Answer(due_s, True, LOST if number < 2 * lost_users else OK, 0.1))
        elif owed >= 1.0:
            owed -= 1.0
            answers.append(Answer(due_s, False, UNAVAILABLE, 0.01))
        else:
            answers.append(Answer(due_s, False, OK, 0.1))
    return answers


def during(share: float) -> Callable[[float], float]:
    """A share that is rejected while there is trouble, and none at other times."""
    return lambda moment_s: share if FULL.troubled(moment_s) else 0.0


def test_what_is_as_it_should_be_has_no_failings() -> None:
    """Users who are all served, and a share that is at its final value at once, are found good."""
    verdict = verdict_of(answered(during(0.3)), FULL)

    assert [] == verdict.failings
    assert 1.0 == verdict.users
    assert 0.3 == pytest.approx(verdict.trouble.final, abs=0.01)
    assert 0.4 == pytest.approx(verdict.prefetch_in_trouble, abs=0.02)


def test_lost_users_are_found() -> None:
    """Of 4,500 requests of users 27 may be lost, and one more may not."""
    assert [] == verdict_of(answered(during(0.3), lost_users=27), FULL).failings
    (failing,) = verdict_of(answered(during(0.3), lost_users=28), FULL).failings

    assert "of the users' requests" in failing


def test_a_share_that_swings_is_found() -> None:
    """One that is high and low by turns, each for four seconds, crosses its final value, and is off after ten."""
    verdict = verdict_of(answered(lambda t: 0.0 if not FULL.troubled(t) else 0.45 if int(t / 4) % 2 else 0.15), FULL)

    assert any("crosses" in each for each in verdict.failings)
    assert any("points off" in each for each in verdict.failings)


def test_a_share_that_comes_late_is_found() -> None:
    """One that needs 20 s to reach its final value is off after ten, and crosses nothing."""
    verdict = verdict_of(answered(lambda t: min(0.4, (t - 10) / 20 * 0.4) if FULL.troubled(t) else 0.0), FULL)
    (failing,) = verdict.failings

    assert "in trouble" in failing
    assert "points off" in failing


def test_a_share_that_comes_back_too_late_is_found() -> None:
    """Traffic that is still rejected 15 s after the trouble is a failing of the time after it."""
    verdict = verdict_of(answered(lambda t: 0.4 if FULL.calm_s <= t < FULL.trouble_ends_s + 15 else 0.0), FULL)
    (failing,) = verdict.failings

    assert "after it" in failing


def test_an_overshoot_is_no_crossing_by_itself() -> None:
    """A share that overshoots once within ten seconds, and comes down, has settled."""
    shares = rejected_shares(answered(lambda t: 0.0 if not FULL.troubled(t) else 0.45 if t < 14 else 0.3), FULL.ends_s)

    assert settling(shares, FULL.calm_s, FULL.trouble_ends_s).settles


def test_the_traffic_of_a_case_repeats() -> None:
    """The same seed has the same requests due at the same moments, in order, with twelve times the prefetch."""
    due = list(CASES["pool-spike"].due(FULL, 1))
    calm = [name for at, name in due if at < FULL.calm_s]
    troubled = [name for at, name in due if FULL.troubled(at)]

    assert due == list(CASES["pool-spike"].due(FULL, 1))
    assert [at for at, _ in due] == sorted(at for at, _ in due)
    assert 12 == pytest.approx(troubled.count(PREFETCH) / 4 / calm.count(PREFETCH), rel=0.02)
    assert troubled.count(USER) / 4 == pytest.approx(calm.count(USER), abs=2)


@pytest.mark.parametrize("load", LOADS)
def test_what_the_picture_of_the_damping_shows_is_so(load: float) -> None:
    """After ten seconds the default gains are within five points of what fits; the others swing by more than that."""

    def swing(line: list[tuple[float, float]]) -> float:
        return max(abs(value - (1.0 - 1.0 / load)) for at, value in line if at >= 10)

    assert 0.05 >= swing(controlled(load))
    assert swing(controlled(load)) < swing(controlled(load, UNDAMPED))
    assert swing(controlled(load)) < swing(additive(load))


def test_a_short_run_shows_that_the_pieces_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A service under uvicorn is asked and judged, tables are written, and the pictures are drawn."""
    assert 0 == main(["loop-spike", "--quick", "--results", str(tmp_path)])

    said = capsys.readouterr().out
    assert said == (tmp_path / "shedding.md").read_text()
    assert CASES["loop-spike"].title in said
    for name in ("chart-of-shedding.png", "chart-of-damping.png", "chart-of-adaptive-limits.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
