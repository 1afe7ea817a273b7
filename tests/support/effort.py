"""The numbers of random examples: a part of them in every run, and all in `make test-long`.

A test of random examples, seeds or instructions finds a fault with a chance that grows with their number, and costs
time in proportion. Each such test names two numbers: a small one for every run, and a large one that searches for rare
faults. Without `CI` in the environment Hypothesis draws other examples in each run, so that several small runs try as
much as a large one. Some name a third, for `make test`, whose examples are always the same.
"""

from __future__ import annotations

import os
from typing import Final

LONG: Final = bool(os.environ.get("LONG") or os.environ.get("PLANT"))
"""Whether all examples are tried, as in `make test-long`, and in searches for planted faults."""


BRIEF: Final = bool(os.environ.get("FAST"))
"""Whether this is `make test` or `make test-fast`, for which a person waits."""


def tried(few: int, *, long: int, brief: int | None = None) -> int:
    """Returns the number of examples in this run."""
    return long if LONG else brief if BRIEF and brief is not None else few
