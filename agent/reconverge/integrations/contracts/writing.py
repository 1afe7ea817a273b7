"""Makes the API's JSON responses."""

from __future__ import annotations

import json
from typing import Any

from reconverge.contracts.store.book import Change
from reconverge.contracts.writing import written_moment
from reconverge.errors import MissingExtra
from reconverge.integrations.contracts.problems import Problem
from reconverge.integrations.contracts.reading import JSON, tag_of

try:
    from starlette.responses import Response
except ModuleNotFoundError as error:
    raise MissingExtra("the API of contracts", error.name or "starlette", "api") from error


def no_contract(identity: str) -> Problem:
    """Returns the problem (404) for a customer that has no contract."""
    return Problem(404, f"there is no contract of {identity!r}; the plan for unknown customers applies to it")


def json_response(said: Any, version: int | None = None, status: int = 200) -> Response:
    """Returns a response with `said` as JSON in ASCII, and with `version` as its entity tag unless it is None."""
    return bytes_response(written(said), version, status)


def written(said: Any) -> bytes:
    """Returns `said`, a value that JSON can express, as JSON in ASCII."""
    return json.dumps(said, allow_nan=False, separators=(",", ":")).encode("ascii")


def bytes_response(body: bytes, version: int | None = None, status: int = 200) -> Response:
    """Returns a response with `body`, which is JSON already, and with `version` as its entity tag unless it is None."""
    return Response(body, status, {} if version is None else {"ETag": tag_of(version)}, JSON)


def changed(version: int, status: int = 200) -> Response:
    """Returns the response to a change of the contracts, with the number of the new version."""
    return json_response({"version": version}, version, status)


def unchanged(version: int) -> Response:
    """Returns the response (304) to a client that has the present version, `version`, already."""
    return Response(status_code=304, headers={"ETag": tag_of(version)})


def table_of_change(change: Change) -> dict[str, Any]:
    """Returns a change as a dict of plain values that JSON can express."""
    return {
        "version": change.version,
        "by": change.author,
        "when": written_moment(change.when),
        "identity": change.identity,
        "before": change.before,
        "after": change.after,
    }
