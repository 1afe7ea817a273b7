"""What can name a limit."""

from __future__ import annotations

from typing import Final

from reconverge.errors import InvalidLimit, shown

NAME_LENGTH_MAX: Final = 64
NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./")


def check_name(name: object) -> str:
    """Return `name` if it can name a limit; it becomes part of the hub's keys and of metric labels.

    Raises:
        InvalidLimit: it is not a string of 1 to 64 letters, digits, or `_-./`.
    """
    if not isinstance(name, str):
        raise InvalidLimit(shown(name), f"a limit's name is a string, not {type(name).__name__}")
    if not 1 <= len(name) <= NAME_LENGTH_MAX:
        raise InvalidLimit(name, f"a limit's name has 1 to {NAME_LENGTH_MAX} characters, not {len(name)}")
    for position, character in enumerate(name):
        if character not in NAME_CHARACTERS:
            raise InvalidLimit(name, f"a limit's name has no {character!r}; use letters, digits and _-./", position)
    return name
