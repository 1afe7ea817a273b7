"""Says how far a command is, on the error stream, so that the output stays clean.

What takes long says so as soon as it has begun. On a terminal there is a bar meanwhile; elsewhere, as in a log, a line
every ten seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

LINE_EVERY_S: Final = 10.0
"""So often there is a line where there is no terminal."""

Watch = Callable[[str, float, float], None]
"""Is told what is being done, how much of it is, and how much there is to do."""


@contextmanager
def told(what: str, *columns: ProgressColumn) -> Generator[Watch]:
    """Say what is done once it begins, and then how far it is; `columns` are shown between a bar and the time left."""
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
