"""Runs one function over many tasks on several processes, and gives the results in the order of the tasks."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from reconverge.runtime.spawning import nothing_from_the_working_directory, started_before_the_end

Task = TypeVar("Task")
Result = TypeVar("Result")

PROCESSES: Final = multiprocessing.cpu_count()
"""As many as there are cores, unless told otherwise."""


def mapped(
    function: Callable[[Task], Result], tasks: Sequence[Task], *, processes: int, chunk: int = 1
) -> Iterator[Result]:
    """The results, as they become available. With one process everything is done in this one."""
    count = min(processes, len(tasks))
    if count <= 1:
        yield from map(function, tasks)
        return
    # Spawned, so that no worker inherits threads or connections.
    with started_before_the_end(), nothing_from_the_working_directory():
        started = multiprocessing.get_context("spawn").Pool(count, initializer=_leave_interrupts_to_the_parent)
    with started as pool:
        yield from pool.imap(function, tasks, chunksize=chunk)


def _leave_interrupts_to_the_parent() -> None:
    """Ctrl-C reaches all processes of a terminal; it is the parent that ends the others, and says so once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
