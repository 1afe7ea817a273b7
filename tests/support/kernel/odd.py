"""Values that no caller should hand in, names for them, and a clock that can be broken."""

from __future__ import annotations

from reconverge.clock import ManualClock

HUGE = 10**5000
"""Python refuses to write this out."""


def named(value: object) -> str:
    """A short name that any terminal can show."""
    return "huge" if value in (HUGE, -HUGE) else ascii(value)[:20]


class BrokenClock(ManualClock):
    broken = False

    def monotonic_ns(self) -> int:
        if self.broken:
            raise OSError("no clock")
        return super().monotonic_ns()
