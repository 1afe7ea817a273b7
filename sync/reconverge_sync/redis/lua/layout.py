"""The order of the numbers that scripts store for a key and for a node's part of it, and formats of rows in Lua."""

from __future__ import annotations

import re
from struct import Struct, calcsize
from typing import Final

from reconverge.hub.report import ANSWER_ROWS, REPORT_ROW, REPORT_ROWS, Status
from reconverge_sync import codec

SUMS: Final = b"g"
"""The field in the Redis hash of a cell (the record of one key) that contains the sums over all nodes."""
DEPARTED_FIELD: Final = b"-"
LOANS: Final = b"l"
CELL: Final = (
    "epoch", "capacity", "scanned_us", "expires_us", "last_demand", "allowances", "overdrafts", "needs_milli",
    "demand_milli", "current", "previous", "window_demand", "active", "bases", "filled_us", "fill_milli", "debts",
    "silent", "reset_us", "learn_until_us", "first", "reserved", "restless", "vouchers", "pooled", "carry_milli",
    "unit", "uncovered",
)  # fmt: skip
"""The names of a cell's sums, in the order in which they are packed; sums at the end may be missing in stored cells."""
ENTRY: Final = (
    "epoch", "seen_us", "current", "previous", "allowance", "overdraft", "need_milli", "demand_milli", "window_demand",
    "capacity", "base", "debt", "ask", "ask_since_us", "reset_us", "current_until_us", "previous_until_us", "lease_us",
    "vouchers", "sealed",
)  # fmt: skip
"""The names of the numbers in a node's entry, in the order in which they are packed; numbers at the end may be
missing."""
SEEN_US: Final = 1 + ENTRY.index("seen_us")
"""The index of `seen_us` in an entry, counted from 1 as in Lua; the next two constants are indexes of other numbers."""
LEASE_US: Final = 1 + ENTRY.index("lease_us")
LEARN_UNTIL_US: Final = 1 + CELL.index("learn_until_us")
SIGNED: Final = frozenset(("epoch", "current"))
"""The fields of a report that may be negative."""
MERGED, STALE, LAPSED = map(int, Status)
KEPT_MS: Final = 62 * 86_400_000
"""A Redis keeps a shard's shared keys (meta, nodes and accounts) for at least this many milliseconds: as long as a cell
of a monthly limit."""


def letters_of(row: Struct) -> list[str]:
    """Returns the letter of each number in a row, as in the format of Python's `struct`."""
    return [letter for count, letter in re.findall(r"(\d{0,3})([a-zA-Z])", row.format) for _ in range(int(count or 1))]


def in_lua(row: Struct) -> str:
    """Returns the format of a row for Lua's `struct`; an `i` without a size has 32 bits, and is read fastest."""
    numbers = [("I" if letter.isupper() else "i", calcsize(f"<{letter}")) for letter in letters_of(row)]
    return "<" + "".join(sign if size == 4 else f"{sign}{size}" for sign, size in numbers)


def checked_in_lua(row: Struct) -> str:
    """Returns the format of a report's row for Lua's `struct`, unsigned except for fields that may be negative.

    A negative number in another field is read as one that is too large, and so refused.
    """
    letters = zip(REPORT_ROW, letters_of(row), strict=True)
    return in_lua(Struct("<" + "".join(letter if name in SIGNED else letter.upper() for name, letter in letters)))


REPORT, REPORT_WIDE = map(checked_in_lua, REPORT_ROWS)
REPORT_BYTES, REPORT_WIDE_BYTES = (row.size for row in REPORT_ROWS)
ANSWER, ANSWER_WIDE = map(in_lua, ANSWER_ROWS)
ANSWER_HEADER: Final = in_lua(codec.ANSWER_HEADER)
NARROW_MAX: Final = 2**31 - 1
"""The largest amount that fits into a narrow row of an answer."""
