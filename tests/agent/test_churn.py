"""Goal: however much is made, used and dropped, and whatever goes wrong with it, nothing of it is left.

Method: a process does the same over and over, and counts blocks and bytes before and after; whatever each round left
behind would be there a thousand times.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.programs.churn import ACTIVITIES
from tests.support.twin import PATHS, ROOT

RESIDENT_MAX = 4 * 1024**2
"""The allocator and the collector may have so much in hand; a kilobyte lost in every round would be a quarter of it."""


@pytest.mark.slow
@pytest.mark.parametrize("activity", ACTIVITIES)
def test_nothing_is_left(activity: str) -> None:
    """After a thousand rounds hardly a block is left for each, though dozens were made."""
    answer = subprocess.run(
        [sys.executable, "-m", "tests.support.programs.churn", activity],
        env={**os.environ, "PYTHONPATH": PATHS},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert 0 == answer.returncode, answer.stderr

    blocks, resident, rounds = json.loads(answer.stdout)

    assert blocks < 2 * rounds
    assert resident < RESIDENT_MAX
