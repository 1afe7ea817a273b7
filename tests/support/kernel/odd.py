"""Values that nobody should hand in, and names for them."""

from __future__ import annotations

HUGE = 10**5000
"""Python refuses to write this out."""


def named(value: object) -> str:
    """A short name that any terminal can show."""
    return "huge" if value in (HUGE, -HUGE) else ascii(value)[:20]
