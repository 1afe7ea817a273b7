"""Time stands still."""

from __future__ import annotations

import pytest

from reconverge.clock import ManualClock
from tests.support.metered import clock_in_november


@pytest.fixture
def clock() -> ManualClock:
    """At the beginning of November."""
    return clock_in_november()
