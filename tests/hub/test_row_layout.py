"""Goal: what a row of a report and of an answer says has one definition, and what is written elsewhere agrees with it.

Method: the names and widths are read from the source of the script and of the compiled kernel, in the order in which
they stand there, and compared with those of `reconverge.hub.report`. What both make of real batches is compared by
`tests/protocol/test_merge_twins.py` and `tests/kernel/reporting/test_rows.py`.
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from struct import Struct, calcsize
from typing import Final

from reconverge.hub.report import (
    ANSWER_ROWS,
    REPORT_ROW,
    REPORT_ROWS,
    CellAnswer,
    CellReport,
    report_of_row,
    report_row,
)

ROOT: Final = Path(__file__).parents[2]
SCRIPT: Final = (ROOT / "sync/reconverge_sync/redis/lua/exchange.lua").read_text()
NATIVE: Final = ROOT / "agent/reconverge/kernel/native"
OWN_NAMES: Final = {
    "cell_epoch": "epoch",
    "forgotten and FORGOTTEN or cell_active": "nodes",
    "cell_reset_us": "reset_us",
}
"""The fields that the script packs under another name."""


def widths(row: Struct) -> list[int]:
    """The bytes of each number."""
    return [
        calcsize(f"<{letter}")
        for count, letter in re.findall(r"(\d*)([a-zA-Z])", row.format)
        for _ in range(int(count or 1))
    ]


def listed(path: str, beginning: str, end: str) -> list[str]:
    """The words of a list in the compiled kernel's source."""
    text = (NATIVE / path).read_text()
    begun = text.index(beginning) + len(beginning)
    return re.findall(r"\w+", text[begun : text.index(end, begun)].replace("X(", " ").replace("\\", ""))


def all_but(left_out: str, fields: tuple[str, ...]) -> list[str]:
    """The fields of a report or an answer without one."""
    return [field for field in fields if field != left_out]


def test_the_script_reads_reports_in_the_same_order() -> None:
    """The names of the variables are those of the fields."""
    found = re.search(r"((?:\w+,\s+)+\w+) =\s+from_bytes\(report_format", SCRIPT)
    assert found is not None
    names = [name.removeprefix("report_") for name in re.findall(r"\w+", found[1])]

    assert list(REPORT_ROW) == names


def test_the_script_writes_answers_in_the_same_order() -> None:
    """Likewise."""
    found = re.search(r"to_bytes\(row_format, (cell_epoch, [^)]*)\)", SCRIPT)
    assert found is not None
    names = [OWN_NAMES.get(name, name) for name in re.split(r",\s+", found[1])]

    assert list(CellAnswer._fields) == names


def test_the_compiled_kernel_has_the_same_fields_in_the_same_order() -> None:
    """Of reports and answers, as they are kept and as they travel."""
    kept_reports = listed("native.h", "    i64 limit, epoch,", "} Report;")
    kept_answers = listed("native.h", "    i64 epoch, allowance,", "} Answer;")

    assert all_but("key", CellReport._fields) == ["limit", "epoch", *kept_reports]
    assert list(CellAnswer._fields) == ["epoch", "allowance", *kept_answers]
    assert list(REPORT_ROW[3:]) == listed("reports.c", "#define AMOUNTS(X)", "static")
    assert list(CellAnswer._fields[1:-1]) == [
        "allowance",
        *listed("plausible.c", "    int32_t allowance,", "} Amounts;"),
    ]


def test_a_report_comes_back_from_its_row() -> None:
    """With the key, which travels beside it."""
    report = CellReport(3, "ada", *range(100, 112))

    assert report == report_of_row("ada", report_row(report))
    assert len(REPORT_ROW) == len(set(report_row(report)))


def test_what_is_narrow_is_narrow_in_one_place() -> None:
    """The numbers of 64 bits stand at the ends of a narrow row, and all between them has 32."""
    assert [[8, 4], [8, 4, 8]] == [
        [width for width, _ in groupby(widths(rows[0]))] for rows in (REPORT_ROWS, ANSWER_ROWS)
    ]
