"""Ends a process whose main thread stands still, and writes its traceback to a file.

The timer is the interpreter's own (`faulthandler`): a thread in C that needs no lock of Python, so it also ends a
process in which a thread waits for a lock and holds the interpreter meanwhile. A process that ends itself this way has
no last words, and the judge finds its traceback.
"""

from __future__ import annotations

import faulthandler
import os
import re
from pathlib import Path
from typing import Final

HANG: Final = "hang"
HANG_S: Final = 8.0
"""The longest time, in seconds, between two calls of `feed`: the machine delays a busy process for less, and a deadlock
lasts for ever."""


class Watchdog:
    """A timer that ends the process unless `feed` is called at least every `HANG_S` seconds."""

    def __init__(self, directory: Path, node: int) -> None:
        self._file = (directory / f"{HANG}-{node}.{os.getpid()}").open("w")

    def feed(self) -> None:
        """Starts the timer anew, as the main thread goes on."""
        faulthandler.dump_traceback_later(HANG_S, exit=True, file=self._file)

    def leave(self) -> None:
        """Stops the timer."""
        faulthandler.cancel_dump_traceback_later()


def innermost_frame(traceback: str) -> str:
    """Returns the file, line and function in which the main thread stood; it is the last thread of a traceback."""
    frames = re.findall(r'File "(.*)", line (\d+) in (.*)', traceback.rpartition("hread 0x")[2])
    if not frames:
        return traceback.strip()[-100:]
    file, line, function = frames[0]
    return f"{function}, line {line} of {Path(file).name}"
