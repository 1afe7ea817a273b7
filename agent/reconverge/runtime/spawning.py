"""Starts processes that import nothing from the working directory, and that are not interrupted half-way.

`multiprocessing` starts a fresh interpreter as `python -c`, which looks for modules in the working directory first: a
file `pickle.py` there would take the place of the standard library's. A parent that ends by a signal before it has said
all to such an interpreter leaves it with half a message, of which it complains at length.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

VARIABLE: Final = "PYTHONSAFEPATH"


@contextmanager
def nothing_from_the_working_directory() -> Iterator[None]:
    """Interpreters that are started in the block look for modules where they are installed."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


@contextmanager
def started_before_the_end() -> Iterator[None]:
    """Let SIGTERM wait until the block is over; processes that it starts can be ended by it at any time."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[FrameType | None] = []
    handler = signal.signal(signal.SIGTERM, lambda _, frame: came.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
        if came:
            signal.raise_signal(signal.SIGTERM)
