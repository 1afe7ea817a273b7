"""The grid draws the same cells for ever, keeps a third of them back, and says what the others come to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.limit import FIXED_WINDOW, SLIDING_WINDOW
from reconverge.policies import STRICT
from reconverge.simulation import AskSettings, Figures
from reconverge.simulation.studies import grid
from reconverge.simulation.studies.grid import (
    ASKING,
    FROM_MEMORY,
    CellFigures,
    CellOutcome,
    GridCell,
    GridTask,
    chosen,
    draw_cell,
    page,
    read_before,
)

TINY = GridCell(
    number=1,
    held_out=False,
    pattern="uniform",
    algorithm=SLIDING_WINDOW,
    nodes=4,
    quota=5,
    window_s=1.0,
    sync_interval_ns=SECOND_NS // 10,
    demand=2.0,
)
SOME = Figures(
    over_mean_pct=0.0,
    over_p99_pct=0.0,
    over_max_pct=0.5,
    under_mean_pct=0.0,
    under_max_pct=0.0,
    messages_per_node_window=12.0,
    bound_pct=0.0,
    bound_violations=0,
    admitted_pct=90.0,
    falsely_refused_pct=10.0,
)


def rows_of(text: str) -> dict[str, list[str]]:
    """The rows of the page's table, by their first cell."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    return {row[0]: row[1:] for row in rows}


def outcome(cell: GridCell, figures: Figures, of_limit_pct: float, asking: Figures | None = None) -> CellOutcome:
    """A cell with those figures."""
    found = {FROM_MEMORY: CellFigures(figures, of_limit_pct)}
    return CellOutcome(cell, found if asking is None else found | {ASKING: CellFigures(asking, of_limit_pct)})


def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants a grid of three small cells, of which the last is held out."""
    monkeypatch.setattr(grid, "draw_cell", lambda number: replace(TINY, number=number, held_out=number == 2))


def test_a_cell_is_drawn_from_its_number_alone() -> None:
    """Figures of two commits are of the same cells, so what a number means must not change: neither cell nor group."""
    assert [3, 6, 7, 9, 11, 13, 19, 21, 22, 23] == [n for n in range(24) if draw_cell(n).held_out]
    assert GridCell(
        number=0,
        held_out=False,
        pattern="uniform",
        algorithm=FIXED_WINDOW,
        nodes=4,
        quota=12,
        window_s=10.0,
        sync_interval_ns=578_039_909,
        demand=2.0,
    ) == draw_cell(0)


def test_about_a_third_of_the_cells_is_held_out() -> None:
    """Enough to judge by, and enough to tune by."""
    assert 84 == sum(draw_cell(number).held_out for number in range(240))


def test_held_out_cells_are_skipped_unless_they_are_asked_for() -> None:
    """The cells that constants are tuned on do not judge them."""
    assert {True, False} == {cell.held_out for cell in chosen(12, held_out=True)}
    assert {False} == {cell.held_out for cell in chosen(12, held_out=False)}
    assert 12 == len(chosen(12, held_out=True))


def test_every_pattern_is_tried_with_every_algorithm() -> None:
    """Within so many cells as there are pairs of them."""
    pairs = {(cell.pattern, cell.algorithm) for cell in chosen(24, held_out=True)}

    assert 24 == len(pairs)


def test_cells_are_within_the_grid_that_is_promised() -> None:
    """Four to 128 nodes, 5 to 2000, T/W of 0.03 to 0.2 or a tenth of a second of a minute."""
    for cell in chosen(300, held_out=True):
        share = cell.sync_interval_ns / SECOND_NS / cell.window_s

        assert 4 <= cell.nodes <= 128
        assert 5 <= cell.quota <= 2000
        assert cell.demand in (0.9, 2.0)
        assert 0.03 <= share <= 0.2 or (cell.window_s, cell.sync_interval_ns) == (60.0, SECOND_NS // 10)
        assert cell.experiment().warmup < cell.experiment().windows


def test_a_row_is_the_mean_of_its_cells_and_their_worst() -> None:
    """Of all cells, of small quotas and large ones, of each algorithm and pattern; of nothing where there is none."""
    small = outcome(TINY, SOME, 9.0)
    large = outcome(
        replace(TINY, quota=300, pattern="zipf", algorithm=FIXED_WINDOW),
        replace(SOME, falsely_refused_pct=1.0, over_max_pct=2.0, messages_per_node_window=10.0),
        1.0,
    )
    rows = rows_of(page([small, large], {}))

    assert ["2", "5.50", "10.0", "5.00", "2.00", "11.0"] == rows["all"]
    assert ["1", "10.00", "10.0", "9.00", "0.50", "12.0"] == rows["L ≤ 60"]
    assert rows["L ≤ 60"] == rows["L ≤ 60, sliding-window"] == rows["uniform"]
    assert rows["L > 60"] == rows["L > 60, fixed-window"] == rows["zipf"]
    assert {"surge", "L > 60, sliding-window"}.isdisjoint(rows)


def test_another_commits_figures_stand_beside_those_of_the_same_cells() -> None:
    """Cells that were not tried then are left out of its mean."""
    found = [outcome(TINY, SOME, 9.0), outcome(replace(TINY, number=7), SOME, 9.0)]
    then = CellFigures(replace(SOME, falsely_refused_pct=20.0, messages_per_node_window=6.0), 1.0)
    rows = rows_of(page(found, {1: {FROM_MEMORY: then}}))

    assert ["20.00", "6.0"] == rows["all"][-2:]


def test_asking_has_a_chapter_of_its_own_that_says_what_it_costs() -> None:
    """Messages stand beside those of the same cells from memory: as a mean, and for the cell that pays most."""
    cheap = replace(SOME, falsely_refused_pct=0.0, messages_per_node_window=6.0, asked_pct=80.0, waited_max_ms=2.5)
    dear = replace(SOME, falsely_refused_pct=1.0, messages_per_node_window=24.0, asked_pct=20.0, waited_max_ms=4.0)
    text = page([outcome(TINY, SOME, 9.0, cheap), outcome(replace(TINY, number=7), SOME, 9.0, dear)], {})
    memory, asking = text.split("| asking |")

    assert ["2", "10.00", "10.0", "9.00", "0.50", "12.0"] == rows_of(memory)["all"]
    assert ["2", "0.50", "1.0", "9.00", "0.50", "15.0", "1.25", "2.00", "50.0", "4.0"] == rows_of(asking)["all"]


def test_the_cells_that_refuse_most_are_named() -> None:
    """So that they can be looked at one by one."""
    mild = outcome(replace(TINY, number=2), replace(SOME, falsely_refused_pct=0.5), 0.5)
    text = page([mild, outcome(TINY, SOME, 9.0)], {})

    assert [
        "- 1: uniform 2 L, 5/1s sliding-window, 4 nodes, T = 0.1 s: 10.00 %",
        "- 2: uniform 2 L, 5/1s sliding-window, 4 nodes, T = 0.1 s: 0.50 %",
    ] == text.splitlines()[-2:]


def test_the_command_tries_what_is_not_held_out_and_keeps_the_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its output can be shown beside another run, and of the same commit that is the same to the last digit."""
    plant(monkeypatch)
    path = tmp_path / "figures.json"

    assert 0 == grid.main(["--cells", "3", "--processes", "1", "--json", str(path)])
    assert 0 == grid.main(["--cells", "3", "--processes", "1", "--beside", str(path)])

    assert [0, 1] == sorted(read_before(path))
    said = capsys.readouterr()
    assert {FROM_MEMORY, ASKING} == set(read_before(path)[0])
    row = rows_of(said.out.split("| asking |")[2])["all"]
    assert "2" == row[0]
    assert (row[1], row[5]) == (row[10], row[11])
    assert "2 cells of" in said.err


def test_held_out_cells_are_tried_when_the_command_is_told_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All of them are in the file."""
    plant(monkeypatch)
    path = tmp_path / "figures.json"
    grid.main(["--cells", "3", "--held-out", "--processes", "1", "--json", str(path)])

    assert [0, 1, 2] == [each["cell"]["number"] for each in json.loads(path.read_text())["cells"]]


def test_what_a_small_quota_refuses_falsely_is_found() -> None:
    """Five on four nodes, asked for twice: lines of whole requests cannot be where the requests are."""
    outcome = grid.tried(GridTask(TINY, STRICT, AskSettings(25 * MILLISECOND_NS)))
    memory, asking = (outcome.found[way] for way in (FROM_MEMORY, ASKING))

    assert 10.0 < memory.figures.falsely_refused_pct < 60.0
    assert 10.0 < memory.of_limit_pct < 60.0
    assert 0.0 == memory.figures.asked_pct < asking.figures.asked_pct
    assert (0.0, 0.0) == (memory.figures.over_max_pct, asking.figures.over_max_pct)
