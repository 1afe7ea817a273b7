"""Key functions that use the value of a FastAPI dependency."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Final, get_origin

from fastapi import params

from reconverge.errors import InvalidSetting
from reconverge.integrations.web.request.keys import identity_of

KEYS: Final = "reconverge.keys"
"""The key in an ASGI scope under which the values of dependencies are stored, by key function."""


class FromDependency:
    """A key function that uses the value of a FastAPI dependency, as the key or as a user whose identity is the key."""

    def __init__(self, depends: params.Depends) -> None:
        if depends.dependency is None:
            raise InvalidSetting("key_func", depends, "has no dependency; write for example Depends(current_user)")
        self.depends = depends
        self.__name__ = getattr(depends.dependency, "__name__", type(depends.dependency).__name__)

    def __call__(self, request: Any) -> object:
        return self.in_scope(request.raw)

    def in_scope(self, scope: Mapping[str, Any]) -> object:
        """Returns the key: the dependency's value, which FastAPI has stored; if it is a user, the user's identity."""
        found = scope[KEYS][self]
        if isinstance(found, tuple | list | date | Decimal | float):
            return found
        return identity_of(found)


def key_function_of(given: Any) -> Any:
    """Returns `given`, a key function; for a `Depends(...)`, a key function that uses the dependency's value."""
    if get_origin(given) is Annotated:
        given = next((each for each in given.__metadata__ if isinstance(each, params.Depends)), given)
    return FromDependency(given) if isinstance(given, params.Depends) else given
