"""Brings the sources of settings into one form, and describes mistakes: the fact, the value, the remedy.

The value of any other setting is not shown: it may be a secret that was put into the wrong place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, cast

from reconverge.clock import in_seconds
from reconverge.errors import asked, shown


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
    """Returns the settings of a program with each `timedelta` as seconds, which pydantic reads."""
    return {name: in_numbers(each) if isinstance(each, Mapping) else in_seconds(each) for name, each in said.items()}


UNKNOWN: Final = "extra_forbidden"
MISSING: Final = "missing"
LIMIT_DEPTH: Final = 2
"""`limits.login` is a limit, and `limits.login.soft` one of its settings."""
KINDS: Final = {
    "float": "a number",
    "int": "a whole number",
    "bool": "true or false",
    "string": "a string",
    "dict": "a table",
    "model": "a table",
}
"""The kind of value that a setting must have, by the beginning of the mistake's type."""


def weightiest(mistakes: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The mistake to report: a misspelt name comes before the setting that is missing because of it."""
    return next((each for each in mistakes if each["type"] == UNKNOWN), mistakes[0])


def problem_of(
    mistake: Mapping[str, Any], path: Sequence[str | int], *, known: Collection[str], agents: Collection[str]
) -> str:
    """Describes the mistake in the setting at `path`.

    `known` are the settings that there are in its place, `agents` those of the agent.
    """
    kind, value = str(mistake["type"]), mistake.get("input")
    if kind == UNKNOWN:
        if len(path) > 1 and path[-1] in agents:
            return f"is a setting of the agent, and none of a limit; write it above [limits]; known: {', '.join(known)}"
        return f"there is no such setting; known: {', '.join(known)}{asked(path[-1], known)}"
    if kind == MISSING:
        return "is missing; write limit = '100/minute'" if path[-1] == "limit" else "is missing"
    said = f"{shown(value)} is wrong: " if path and path[0] == "limits" else ""
    if path and path[0] == "limits":
        if len(path) == LIMIT_DEPTH and kind != "string_type":
            if path[1] in agents:
                return f"{path[1]} is a setting of the agent, and stands below [limits]; write it above that"
            return f"{said}must be a limit string such as '100/minute', or a table with limit = '100/minute'"
        if len(path) == 1:
            return f"{said}must be a table of limits by name, such as login = '100/minute'"
        if path[-1] == "limit":
            return f"{said}must be a limit string such as '100/minute', or a list of such"
    wanted = KINDS.get(kind.partition("_")[0])
    if wanted is None:
        return str(mistake["msg"])
    if isinstance(value, bool) and wanted == KINDS["string"]:
        return f"{said}must be a string; write it in quotes: YAML reads on, off, yes and no as truth values"
    return f"{said}must be {wanted}"
