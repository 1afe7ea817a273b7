"""Values that no caller should pass, names for them, and a clock that can fail."""

from __future__ import annotations

from reconverge.clock import ManualClock

HUGE = 10**5000
"""A number that Python refuses to print."""


def named(value: object) -> str:
    """Returns a short name that any terminal can show."""
    return "huge" if value in (HUGE, -HUGE) else ascii(value)[:20]


class BrokenClock(ManualClock):
    broken = False

    def monotonic_ns(self) -> int:
        if self.broken:
            raise OSError("no clock")
        return super().monotonic_ns()
