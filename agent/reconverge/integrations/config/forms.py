"""What a source of settings says, brought into one form: tables of limits, and durations in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from reconverge.durations import in_seconds


def says(said: Any, path: tuple[str | int, ...]) -> bool:
    """Whether the settings have a value at that path."""
    for part in path:
        if not isinstance(said, Mapping) or part not in said:
            return False
        said = said[part]
    return bool(path)


def spelled_out(said: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, with a table for each limit in place of the short forms: a string, or a list of strings.

    Two sources of settings can then be merged field by field.
    """
    limits = said.get("limits")
    if not isinstance(limits, Mapping):
        return dict(said)
    named = cast("Mapping[str, Any]", limits)
    spelled = {name: {"limit": each} if isinstance(each, str | list) else each for name, each in named.items()}
    return {**said, "limits": spelled}


def in_numbers(said: Mapping[str, Any]) -> dict[str, Any]:
    """What a program says, in which a duration may be a `timedelta`, as pydantic reads it: in seconds."""
    return {name: in_numbers(each) if isinstance(each, Mapping) else in_seconds(each) for name, each in said.items()}
