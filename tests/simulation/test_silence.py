"""Goal: the study of silence draws the same cells for ever, and states which of its aims are reached.

Method: a short run of two fleets, and tables of results that reach an aim and miss it by a hair.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reconverge.limit import FIXED_WINDOW, Limit
from reconverge.simulation import Experiment, Fleet, Traffic
from reconverge.simulation.studies import silence
from reconverge.simulation.studies.silence import (
    FREQUENT,
    GRID,
    HEADS,
    WAYS,
    Compared,
    Comparison,
    aims,
    compared,
    drawn,
    read_table,
)

ROW = Compared(
    part=GRID,
    case="7: uniform",
    way="strict",
    requests=1000,
    interval_share=0.01,
    of_a_node=10.0,
    reports_without=1000,
    reports_with=100,
    refused_without=1.0,
    refused_with=1.1,
    over_mean_without=0.0,
    over_mean_with=0.0,
    over_most_without=0.0,
    over_most_with=0.0,
    broken=0,
)
RESULTS = Path(__file__).parents[2] / "bench" / "results" / "silence.tsv"


def comparison(window_s: float) -> Comparison:
    """Returns a comparison of two nodes that exchange every tenth of a second, far from their limit."""
    fleet = Fleet(2, Limit(4000, window_s, algorithm=FIXED_WINDOW), 100_000_000)
    return Comparison(GRID, "tiny", WAYS[0], Experiment(fleet, Traffic("uniform", 0.1), 3, 1), 1)


def missed(*rows: Compared) -> list[str]:
    """Returns the aims that the rows do not reach."""
    return [aim.text for aim in aims(rows) if not aim.holds]


def test_a_cell_is_drawn_from_its_number_and_the_seed_alone() -> None:
    """The table of results names its cells by these two."""
    case, experiment = drawn(0)

    assert "0: uniform 2 L, 1 keys, 1000/10s fixed-window, 32 nodes, T = 0.285 s" == case
    assert 10 == experiment.windows
    assert case != drawn(0, "another seed")[0]


def test_fleets_without_silence_report_more_often() -> None:
    """The two runs of a comparison differ in their silence, and here in nothing that requests notice."""
    row = compared(comparison(20.0))

    assert 0 < 2 * row.reports_with < row.reports_without
    assert 0.0 == row.refused_with == row.refused_without
    assert not row.is_unchanged


def test_windows_of_less_than_32_intervals_know_no_silence() -> None:
    """All figures are the same: a sixteenth of such a window is less than two intervals."""
    assert compared(comparison(3.1)).is_unchanged


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 0),
        ({"refused_with": 1.101}, 1),
        ({"refused_with": 1.5}, 1),
        ({"refused_with": 1.501}, 2),
        ({"refused_with": 1.501, "requests": 999}, 1),
        ({"refused_with": 1.501, "of_a_node": 9.9}, 1),
        ({"over_most_with": 0.001}, 1),
        ({"over_most_with": 0.2, "way": "balanced"}, 0),
        ({"over_most_with": 0.201, "way": "balanced"}, 1),
        ({"interval_share": 0.0313}, 1),
        ({"broken": 1}, 1),
        ({"part": FREQUENT}, 0),
        ({"part": FREQUENT, "reports_with": 101}, 1),
    ],
)
def test_an_aim_is_missed_by_a_hair(changes: dict[str, float | str], count: int) -> None:
    """Each aim is tried on both sides of its boundary."""
    assert count == len(missed(replace(ROW, **changes)))  # type: ignore[arg-type]


def test_a_fault_may_cost_no_more_with_silence_in_the_mean_of_its_seeds() -> None:
    """One seed may lose what another one gains."""
    lost, gained = (
        replace(ROW, part=silence.FAULTS, case=f"down@2.3w+1w, 0.5 L, fixed-window, seed {seed}", refused_with=refused)
        for seed, refused in ((21, 1.1), (22, 0.9))
    )

    assert not missed(lost, gained)
    assert 2 == len(missed(lost, lost))


def test_the_command_continues_its_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If no comparison is missing, it simulates nothing, and judges the rows that are there."""
    monkeypatch.setattr(silence, "grid_comparisons", lambda _count, _seed: [comparison(20.0)])
    path = tmp_path / "silence.tsv"

    assert 0 == silence.main([GRID, "--processes", "1", "--table", str(path)])
    first = capsys.readouterr().out
    monkeypatch.setattr(silence, "compared", None)
    assert 0 == silence.main([GRID, "--processes", "1", "--table", str(path)])

    assert first == capsys.readouterr().out
    assert [compared(comparison(20.0))] == read_table(path)


def test_the_table_of_results_has_the_cells_that_are_drawn() -> None:
    """So each cell can be drawn again from the seed that the module names."""
    assert "\t".join(HEADS) == RESULTS.read_text(encoding="utf-8").splitlines()[0]
    cases = list(dict.fromkeys(row.case for row in read_table(RESULTS) if row.part == GRID))

    assert cases == [drawn(number)[0] for number in range(len(cases))]
