"""Finds functions with parameters that only FastAPI can fill, given where a function of the request is expected.

Such a function can be called with a request as its only argument, so nothing fails when it is declared. But it would
take the request for a header, a query or a user, and then fail, or count all clients together, at each request.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final, get_origin
from uuid import UUID

_FILLED: Final = "fastapi.params"
"""The module of `Depends`, `Header`, `Query` and all other marks of parameters that FastAPI fills."""
_READ: Final = (str, int, float, bool, bytes, UUID)
"""The types that FastAPI reads from the path or the query; no request is of such a type."""


def injected_parameter(function: Callable[..., Any]) -> str | None:
    """Returns the name of the first parameter that only FastAPI can fill; None if there is no such parameter."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    try:
        types = inspect.get_annotations(function, eval_str=True)
    except Exception:  # noqa: BLE001  # an annotation may be any text, and its names may be missing when it is read
        types = {}
    for position, each in enumerate(parameters):
        annotation = types.get(each.name, each.annotation)
        if any(cls.__module__ == _FILLED for mark in _marks(each.default, annotation) for cls in type(mark).__mro__):
            return each.name
        read = annotation in _READ or (inspect.isclass(annotation) and hasattr(annotation, "model_fields"))
        if position == 0 and read and each.default is inspect.Parameter.empty:
            return each.name
    return None


def _marks(default: object, annotation: object) -> Iterator[object]:
    yield default
    if get_origin(annotation) is not None:
        yield from getattr(annotation, "__metadata__", ())
