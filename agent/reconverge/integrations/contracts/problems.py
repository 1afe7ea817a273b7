"""Mistakes in a request to the API, as problem details of RFC 9457."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from reconverge.contracts.model import InvalidContracts
from reconverge.errors import MissingExtra, ReconvergeError

try:
    from starlette.responses import Response
except ModuleNotFoundError as error:
    raise MissingExtra("the API of contracts", error.name or "starlette", "api") from error

PROBLEM_JSON: Final = "application/problem+json"
UNSPECIFIC: Final = "about:blank"
"""The `type` of all problems. It does not distinguish problems; programs read the status and other members instead."""
DETAIL_CHARACTERS_MAX: Final = 1000
"""The longest detail of a problem, in characters; a longer one, with text from a client, is cut off."""
RETRY_AFTER_S: Final = 2
"""The seconds until a client should retry while the hub does not answer; a restart of a hub takes about as long."""


class Problem(ReconvergeError):
    """Raised for a request that is not served. The response has this status, and a body with problem details.

    `fields` are added to the header, and `members` to the standard members of the problem details.
    """

    def __init__(self, status: int, detail: str, *, fields: Mapping[str, str] | None = None, **members: object) -> None:
        self.status = status
        self.detail = detail
        self.fields = dict(fields or {})
        self.members = members
        super().__init__(f"{status}: {detail}")


def wrong_field(status: int, problem: str, path: Sequence[str | int]) -> Problem:
    """Returns the problem for a mistake in one field of a body; `path` is the way to the field by names and indexes."""
    return Problem(status, problem, errors=[{"pointer": pointer_of(path), "detail": problem[:DETAIL_CHARACTERS_MAX]}])


def pointer_of(path: Sequence[str | int]) -> str:
    """Returns the JSON Pointer (RFC 6901) for a path of names and numbers."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)


def of_contracts(error: InvalidContracts, identity: str | None = None) -> Problem:
    """Returns the problem (422) for invalid contracts; its pointer leads to the invalid field.

    With `identity`, the pointer begins in that customer's contract; a mistake in any other place has no pointer.
    """
    path = error.path
    if identity is not None:
        if path[:2] != ("customers", identity):  # the mistake is in the identity, or in another part of the contracts
            return Problem(422, str(error))
        path = path[2:]
    return wrong_field(422, error.problem, path)


def response_of(problem: Problem) -> Response:
    """Returns the response for a problem. It is ASCII, so it can repeat any text that the client has sent."""
    said: dict[str, Any] = {
        "type": UNSPECIFIC,
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail[:DETAIL_CHARACTERS_MAX],
        **problem.members,
    }
    return Response(json.dumps(said).encode("ascii"), problem.status, problem.fields, PROBLEM_JSON)
