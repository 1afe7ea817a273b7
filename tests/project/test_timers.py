"""Goal: the documents list each place that pauses or locks out by a timer, with the figures of the code.

Method: the table of promises names a constant in each row. The figure of the row is compared with it, and
constants whose names speak of pauses are looked for in the code.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "reference" / "promises.md").read_text()
SECTION: Final = PAGE.split("## Timers that pause or lock out")[1].split("\n## ")[0]
ROWS: Final = re.findall(r"^\| ([^|*]+) \| ([^|]+) \| ([^|]+) \| `([\w.]+)` \|$", SECTION, re.MULTILINE)
UNITS: Final = {"NS": 1e-9, "US": 1e-6}
FIGURE: Final = re.compile(r"(\d+(?:\.\d+)?) (s|intervals|times)\b")
PAUSING: Final = re.compile(
    r"^([A-Z_]*(?:BACK_?OFF|PAUSE|UNTIL|BAN|HALT|COOL|GRACE|QUARANTINE|LEASE|RETRY|RESTART|RESTORED|AGAIN|FORBIDDEN"
    r"|PENDING|HELD|HOLD|TENURE)[A-Z_]*)(?:: [\w\[\], .]+)? = ",
    re.MULTILINE,
)
NO_PAUSES: Final = {
    "AGAIN": "a number of windows between probes, see algorithms.py",
    "AGAIN_S": "between two looks at an order that is being followed",
    "BACKOFF": "a fraction of a limit",
    "BAN": "a name",
    "PAUSE": "the end of a limit's name",
    "ELECTION_TENURES": "how long an answer is waited for, in tenures",
    "FORBIDDEN": "the kinds of a failure",
    "GRACE_MAX_S": "a bound of a setting",
    "GRANTED_AGAIN_NS": "when an exchange comes early",
    "HELD_US": "the window of cells that hold a line, in which nothing is charged",
    "HOLDS": "words",
    "HOLD_MIN_S": "the least of HOLD_MAX_S",
    "KEPT_AGAIN_S": "how often a file is written",
    "LEARN_UNTIL_US": "where a moment stands in a list",
    "LEASES": "a number of leases",
    "LEASE_INTERVALS_MIN": "a bound of a setting",
    "LEASE_LOOK_MIN_S": "how often a lease is looked at",
    "LEASE_MAX_US": "what a hub believes",
    "LEASE_MIN_NS": "the least of LEASE_MAX_NS",
    "LEASE_TIMEOUTS_MIN": "a bound of a setting",
    "LEASE_US": "of the batch that tries a hub out",
    "LEASE_WINDOWS": "a number of windows",
    "NO_BANS": "a sentence",
    "NODES_LEASE_NS": "never",
    "PAUSE_MAX_S": "a bound of a setting",
    "PAUSES_MAX": "a number of keys",
    "PENDING_MAX": "a number of customers",
    "PROBE_LEASE_US": "of a batch that holds nothing",
    "RESTART_MIN_S": "the least of RESTART_MAX_S",
    "RETRY_AFTER": "the name of a field",
    "RETRY_AFTER_LENGTH": "of a name",
    "RETRY_AFTER_NAME": "a name",
    "RETRY_INFO": "the name of a type",
    "ROOM_UNTIL": "a fraction",
    "SLOT_LEASE_S": "the least of SLOT_LEASE_MAX_NS",
    "SMALLER_GRACE_US": "how late something is told",
    "STREAM_AGAIN": "a line of a stream of events",
    "TRY_AGAIN_LATER": "the code of a close",
    "_UNTIL": "a format",
    "TENURE_NS": "the usual one of TENURE_S",
}
"""Constants that are named like pauses, and what they are."""


def seconds(constant: str) -> float:
    """The longest time of a constant, in seconds, or its number where it counts something else."""
    module, _, name = constant.rpartition(".")
    value = getattr(importlib.import_module(module), name)
    longest = max(value) if isinstance(value, tuple) else value
    return float(longest * next((UNITS[part] for part in name.split("_") if part in UNITS), 1))


@pytest.mark.parametrize(("what", "longest", "constant"), [(row[0], row[1], row[3]) for row in ROWS])
def test_the_longest_time_of_each_pause_is_that_of_the_code(what: str, longest: str, constant: str) -> None:
    """The first figure of a row is the constant that the row names."""
    figure = FIGURE.search(longest)

    assert figure is not None, what
    assert seconds(constant) == pytest.approx(float(figure[1]), rel=0.002)


def test_each_row_names_what_ends_it() -> None:
    """There is a row for each line of the table but the headings within, and no part of it is empty."""
    lines = [
        line for line in SECTION.splitlines() if line.startswith("| ") and not line.startswith(("| **", "| what |"))
    ]

    assert len(lines) == len(ROWS)
    assert all(part.strip() for row in ROWS for part in row)


def test_no_pause_is_left_out() -> None:
    """A constant that is named like a pause stands in the table, or is known to be none."""
    listed = {row[3].rpartition(".")[2] for row in ROWS}
    found = {
        name
        for folder in ("agent/reconverge", "sync/reconverge_sync")
        for path in (ROOT / folder).rglob("*.py")
        if not {"testing", "simulation", "cli"} & set(path.relative_to(ROOT / folder).parts)
        for name in PAUSING.findall(path.read_text())
    }

    assert set() == found - listed - set(NO_PAUSES)
    assert set() == set(NO_PAUSES) - found
