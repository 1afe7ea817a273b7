"""`reconverge doctor`: says what is wrong with a hub, and how to mend it."""

from __future__ import annotations


def doctor() -> None:
    """Check the hub."""
