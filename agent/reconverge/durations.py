"""Durations: numbers of seconds, or `timedelta`, which is taken wherever seconds are."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Seconds: TypeAlias = float | timedelta
"""A duration as users may give it."""


def in_seconds(value: T | timedelta) -> T | float:
    """A `timedelta` as a number of seconds; anything else as it is."""
    return value.total_seconds() if isinstance(value, timedelta) else value
