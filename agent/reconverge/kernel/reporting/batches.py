"""Makes the reports of all keys of a batch, and applies all its answers; the compiled kernel does both in C."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from reconverge.hub.report import CellAnswer, CellReport
from reconverge.kernel.cell import Cell
from reconverge.kernel.reporting.cell_reports import apply_answer, look_again, report_cell
from reconverge.kernel.reporting.requests import mark_dirty


class Reports(tuple[CellReport, ...]):  # noqa: SLOT001  # it has an attribute beside its items
    """The reports of one batch: one for each cell, which has the counts of one key."""

    cells: list[Cell]
    """The cell of each report, in the order of the reports."""


def report_cells(
    cells: Iterable[Cell], indexes: dict[str, int], now_ns: int, in_touch: bool, drop: Callable[[Cell], None]
) -> Reports:
    """Returns the reports of `cells`, each the counts of one key; calls `drop` for a cell that has nothing to report.

    `indexes` maps a limit's name to the limit's index in the batch; this function adds limits that are missing there.
    """
    reported: list[Cell] = []
    reports: list[CellReport] = []
    for cell in cells:
        table = cell.table
        index = indexes.setdefault(table.name, len(indexes))
        report = report_or_drop(cell, index, now_ns, in_touch, drop)
        if report is not None:
            reported.append(cell)
            reports.append(report)
    made = Reports(reports)
    made.cells = reported
    return made


def report_or_drop(
    cell: Cell, index: int, now_ns: int, in_touch: bool, drop: Callable[[Cell], None]
) -> CellReport | None:
    """Returns the report of one key. If the key has nothing to report, calls `drop` for its cell and returns None."""
    return cell.table.lock.run(_report_or_drop, cell, index, now_ns, in_touch, drop)


def _report_or_drop(
    cell: Cell, index: int, now_ns: int, in_touch: bool, drop: Callable[[Cell], None]
) -> CellReport | None:
    report = report_cell(cell, index, now_ns, in_touch)
    if report is None:
        drop(cell)
    return report


def hear(cell: Cell, report: CellReport, answer: CellAnswer, heard_ns: int, now_ns: int) -> bool:
    """Stores the hub's `answer` to `report` in the cell; returns whether requests that wait must be woken."""
    return cell.table.lock.run(_hear, cell, report, answer, heard_ns, now_ns)


def _hear(cell: Cell, report: CellReport, answer: CellAnswer, heard_ns: int, now_ns: int) -> bool:
    before = (cell.allowance, cell.overdraft, cell.heard, cell.reset_us)
    apply_answer(cell, report, answer, heard_ns, now_ns)
    # For a key that is kept at the hub, a waiting request must also learn that nothing is free.
    return cell.waiters > 0 and (cell.at_hub or before != (cell.allowance, cell.overdraft, cell.heard, cell.reset_us))


def look_again_at(cell: Cell, now_ns: int) -> bool:
    """Takes the limit's lock, and returns whether the key has something to report, as `look_again` does."""
    return cell.table.lock.run(look_again, cell, now_ns)


def rebase(cell: Cell, now_ns: int) -> None:
    """Adapts a key's counts to the corrected time of the hub; queues the key for a report if its use still counts."""
    cell.table.lock.run(_rebase, cell, now_ns)


def _rebase(cell: Cell, now_ns: int) -> None:
    if cell.table.edges.rebase(cell, now_ns):
        mark_dirty(cell)


def rebase_cells(cells: list[Cell], now_ns: int) -> None:
    """Adapts the counts of the given keys to the corrected time of the hub."""
    for cell in cells:
        rebase(cell, now_ns)


def apply_answers(reports: Reports, answers: Sequence[CellAnswer], heard_ns: int, now_ns: int) -> list[Cell]:
    """Stores each answer in the cell of its report; returns the cells whose waiting requests must be woken."""
    news: list[Cell] = []
    for cell, report, answer in zip(reports.cells, reports, answers, strict=True):
        if hear(cell, report, answer, heard_ns, now_ns):
            news.append(cell)
        if cell.unconfirmed:
            cell.unconfirmed = False
            cell.shard.unconfirmed -= 1
    return news
