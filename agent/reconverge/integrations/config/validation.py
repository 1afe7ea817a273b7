"""Brings settings from all sources into one form, and describes mistakes in them: what is wrong, and what to write.

The wrong value is shown for limits only: any other value may be a secret that was written in the wrong place.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, cast

from reconverge.clock import in_seconds
from reconverge.errors import IN_QUOTES, asked, shown
from reconverge.limit.grammar import UNITS_S


def says(said: Any, path: tuple[str | int, ...]) -> bool:
    """Returns whether `said`, the settings of one source such as a file, have a value at `path`."""
    for part in path:
        if not isinstance(said, Mapping) or part not in said:
            return False
        said = said[part]
    return bool(path)


def spelled_out(said: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings with a dict for each limit, even one given as text, so that sources merge by field."""
    limits = said.get("limits")
    if not isinstance(limits, Mapping):
        return dict(said)
    named = cast("Mapping[str, Any]", limits)
    spelled = {name: {"limit": each} if isinstance(each, str | list) else each for name, each in named.items()}
    return {**said, "limits": spelled}


def in_numbers(said: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings with each `timedelta` converted to seconds, which pydantic can read."""
    return {name: in_numbers(each) if isinstance(each, Mapping) else in_seconds(each) for name, each in said.items()}


UNKNOWN: Final = "extra_forbidden"
MISSING: Final = "missing"
LIMIT_DEPTH: Final = 2
"""The length of the path to a limit, such as `limits.login`; its settings are one level below: `limits.login.soft`."""
KINDS: Final = {
    "float": "a number",
    "int": "a whole number",
    "bool": "true or false",
    "string": "a string",
    "dict": "a table",
    "model": "a table",
}
"""Descriptions of required values, by the first word of the type of pydantic's error: `int` for `int_parsing`."""
DURATION: Final = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|m|h)")


def weightiest(mistakes: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Returns the mistake to report: the first misspelt name, or, without misspelt names, the first mistake.

    A misspelt name may be the reason why another setting is missing.
    """
    return next((each for each in mistakes if each["type"] == UNKNOWN), mistakes[0])


def problem_of(
    mistake: Mapping[str, Any], path: Sequence[str | int], *, known: Collection[str], agents: Collection[str]
) -> str:
    """Returns a description of pydantic's `mistake` in the setting at `path`.

    `known` has the settings that are allowed at that place, and `agents` the settings of the agent itself.
    """
    kind, value = str(mistake["type"]), mistake.get("input")
    if kind == UNKNOWN:
        if len(path) > 1 and path[-1] in agents:
            return f"is a setting of the agent, not of a limit; write it above [limits]; known here: {', '.join(known)}"
        return f"there is no such setting; known: {', '.join(known)}{asked(path[-1], known)}"
    if kind == MISSING:
        return "is missing; write limit = '100/minute'" if path[-1] == "limit" else "is missing"
    said = f"{shown(value)} is wrong: " if path and path[0] == "limits" else ""
    if path and path[0] == "limits":
        if len(path) == LIMIT_DEPTH and kind != "string_type":
            if path[1] in agents:
                return f"{path[1]} is a setting of the agent, but is written below [limits]; write it above [limits]"
            return f"{said}must be a limit string such as '100/minute', or a table with limit = '100/minute'"
        if len(path) == 1:
            return f"{said}must be a table of limits by name, such as login = '100/minute'"
        if path[-1] == "limit":
            return f"{said}must be a limit string such as '100/minute', or a list of limit strings"
    wanted = KINDS.get(kind.partition("_")[0])
    if wanted is None:
        return str(mistake["msg"])
    duration = DURATION.fullmatch(value) if wanted == KINDS["float"] and isinstance(value, str) else None
    if duration is not None:
        return f"{said}must be a number of seconds, not {value!r}; write {float(duration[1]) * UNITS_S[duration[2]]:g}"
    if isinstance(value, bool) and wanted == KINDS["string"]:
        return f"{said}must be a string; {IN_QUOTES}"
    return f"{said}must be {wanted}"
