"""Adds the refusals of limits to an application's OpenAPI document."""

# FastAPI makes the document from its routes at the first request for it, and does not know which errors a dependency
# raises. So the function that makes the document is wrapped: an operation whose route depends on a limit gets the
# limit's status, unless the application describes that status itself. Operations are found by their identifiers,
# because a mounted application has paths of its own.

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from reconverge.integrations.asgi.routes import holders_of
from reconverge.integrations.fastapi.misuse import Dependency
from reconverge.integrations.web.refusal import PROBLEM_JSON, TITLES, VIOLATED

PROBLEM: Final = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        VIOLATED: {"type": "array", "items": {"type": "string"}},
    },
    "required": ["type", "title", "status"],
}
"""The schema of a refusal's body."""
WAIT: Final = {"description": "The seconds until another try may succeed.", "schema": {"type": "integer"}}


def describe_refusals(app: Any) -> None:
    """Makes an application's OpenAPI document describe the responses to refused requests."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        document: dict[str, Any] = make()
        _add_refusals(document, holders_of(app))
        return document

    app.openapi = openapi


def _add_refusals(document: dict[str, Any], holders: Iterable[Any]) -> None:
    limited: dict[str, set[int]] = {}
    for holder in holders:
        name = getattr(holder, "operation_id", None) or getattr(holder, "unique_id", None)
        if name is not None:
            limited[name] = set(_statuses(getattr(holder, "dependant", None)))
    for path in document.get("paths", {}).values():
        for operation in path.values():
            name = operation.get("operationId") if isinstance(operation, dict) else None
            for status in sorted(limited.get(str(name), ())):
                operation.setdefault("responses", {}).setdefault(str(status), _response(status))


def _statuses(dependant: Any) -> Iterator[int]:
    """Yields the refusal status of each limit that a route depends on, directly or through other dependencies."""
    for below in getattr(dependant, "dependencies", None) or ():
        if isinstance(below.call, Dependency):
            yield below.call.status
        yield from _statuses(below)


def _response(status: int) -> dict[str, Any]:
    return {
        "description": TITLES[status],
        "headers": {"Retry-After": WAIT},
        "content": {PROBLEM_JSON: {"schema": PROBLEM}},
    }
