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
"""The type of all problems: the status and the members say what a program needs."""
DETAIL_CHARACTERS_MAX: Final = 1000
"""Of a problem's sentence. It may show what a client has sent, and more of that is cut off."""
RETRY_AFTER_S: Final = 2
"""When to come again while the hub does not answer: a hub that restarts takes about as long."""


class Problem(ReconvergeError):
    """Raised for a request that is not served. `members` are what problem details say beside the usual."""

    def __init__(self, status: int, detail: str, *, fields: Mapping[str, str] | None = None, **members: object) -> None:
        self.status = status
        self.detail = detail
        self.fields = dict(fields or {})
        self.members = members
        super().__init__(f"{status}: {detail}")


def wrong_field(status: int, problem: str, path: Sequence[str | int]) -> Problem:
    """Returns the problem of one field of a body, which `path` leads to."""
    return Problem(status, problem, errors=[{"pointer": pointer_of(path), "detail": problem[:DETAIL_CHARACTERS_MAX]}])


def pointer_of(path: Sequence[str | int]) -> str:
    """The JSON Pointer (RFC 6901) that leads along a path."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)


def of_contracts(error: InvalidContracts, identity: str | None = None) -> Problem:
    """The problem with contracts that make no sense; with `identity`, the body is that customer's contract alone."""
    path = error.path
    if identity is not None:
        if path[:2] != ("customers", identity):  # it is about the identity, or about another part of the contracts
            return Problem(422, str(error))
        path = path[2:]
    return wrong_field(422, error.problem, path)


def response_of(problem: Problem) -> Response:
    """The response with a problem. It is ASCII, so that it is valid with any text of the client."""
    said: dict[str, Any] = {
        "type": UNSPECIFIC,
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail[:DETAIL_CHARACTERS_MAX],
        **problem.members,
    }
    return Response(json.dumps(said).encode("ascii"), problem.status, problem.fields, PROBLEM_JSON)
