"""Random calls with odd types, re-entry and threads.

`python -m tests.support.programs.random_calls` makes as many as are wanted.
"""

from __future__ import annotations

import pytest

from tests.support.programs.random_calls import random_calls


@pytest.mark.parametrize("seed", [1, 2])
def test_random_calls_do_no_harm(seed: int) -> None:
    """Nothing crashes, hangs, or raises what is not documented, and the quota of a limit that all ask is kept."""
    asker = random_calls(4000, seed)

    assert asker.calls >= 3996
