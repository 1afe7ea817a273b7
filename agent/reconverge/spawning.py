"""Starts processes that import nothing from the working directory.

`multiprocessing` starts a fresh interpreter as `python -c`, which looks for modules in the working directory first: a
file `pickle.py` there would take the place of the standard library's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
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
