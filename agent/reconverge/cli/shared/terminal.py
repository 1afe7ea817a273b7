"""Reads quantities that users type at a terminal, and shows a command's progress."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from reconverge.clock import SECOND_NS
from reconverge.errors import InvalidSetting

ROUND_TRIP_MAX: Final = 0.8
"""The longest round trip in seconds: a message may take a fifth longer than half of it, and must arrive before a
timeout."""
_DURATION: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>us|ms|s|)")
_UNITS_S: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0}
_PERCENT: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)%")


def seconds(name: str, text: str) -> float:
    """Reads a duration such as "2ms". Returns seconds. Raises InvalidSetting."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidSetting(name, text, "is not a duration like 2ms or 0.5s")
    return float(match["number"]) * _UNITS_S[match["unit"]]


def round_trip_ns(name: str, text: str) -> int:
    """Reads the round trip to a hub, such as "2ms". Returns it in nanoseconds.

    Raises InvalidSetting, also for a round trip so long that exchanges would time out.
    """
    time_s = seconds(name, text)
    if time_s > ROUND_TRIP_MAX:
        raise InvalidSetting(name, text, f"must be at most {ROUND_TRIP_MAX:g}s: a node gives up an exchange after 1 s")
    return round(time_s * SECOND_NS)


def percent(name: str, text: str) -> float:
    """Reads a percentage such as "1%". Returns the number before the sign, here 1.0. Raises InvalidSetting."""
    match = _PERCENT.fullmatch(text.strip())
    if match is None:
        raise InvalidSetting(name, text, "is not a percentage like 1%")
    return float(match["number"])


# Progress goes to the error stream, so that the output stays clean. A long command prints a line as soon as it has
# begun. Then it shows a bar on a terminal; elsewhere, as in a log, it prints a line every ten seconds.

LINE_EVERY_S: Final = 10.0
"""The seconds between two lines of a command's progress when there is no terminal."""

Watch = Callable[[str, float, float], None]
"""A function that receives the name of the work, the part that is done, and the whole."""


@contextmanager
def progress_shown(what: str, *columns: ProgressColumn) -> Generator[Watch]:
    """Shows the text `what` when the work begins, and then its progress; yields the function that updates it.

    `columns` are shown between the progress bar and the time left.
    """
    console = Console(stderr=True)
    began = False
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    said_s = time.monotonic()
    with bar:
        task = bar.add_task("starting")

        def watch(doing: str, done: float, total: float) -> None:
            nonlocal began, said_s
            if not began:
                began = True
                console.print(f"reconverge: {what}", highlight=False, markup=False, soft_wrap=True)
            bar.update(task, description=doing, total=total, completed=min(done, total))
            if not console.is_terminal and time.monotonic() - said_s >= LINE_EVERY_S:
                said_s = time.monotonic()
                console.print(f"reconverge: {doing}, {min(done / total, 1):.0%}", highlight=False, soft_wrap=True)

        yield watch
