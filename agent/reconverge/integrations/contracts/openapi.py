"""Completes the OpenAPI document that FastAPI generates, and declares the error responses of each operation."""

from __future__ import annotations

from typing import Any, Final

from reconverge.errors import MissingExtra
from reconverge.integrations.contracts.parts import ProblemDetails, Version
from reconverge.integrations.contracts.problems import PROBLEM_JSON
from reconverge.integrations.contracts.reading import JSON
from reconverge.integrations.contracts.tokens import Role

try:
    from fastapi import FastAPI
except ModuleNotFoundError as error:
    raise MissingExtra("the API of contracts", error.name or "fastapi", "api") from error

_STATUSES: Final = {
    201: "The customer had no contract, and has one now.",
    304: "The client has this version already.",
    400: "The path, a parameter, or a condition of the request is malformed, or its body is not JSON.",
    401: "The request has no token, or an unknown one.",
    403: "The token may only read, and this operation needs one that may write.",
    404: "There is no such contract, or no such version.",
    409: "Another change was made at the same time, and this one was not made; send it again.",
    412: "The contracts have another version than the conditions of the request allow.",
    413: "The body is too long.",
    415: "The body is of another type than JSON in UTF-8, or is compressed.",
    422: "The body or a parameter has an invalid value; `errors` has the fields of the body.",
    503: "The hub does not answer, or not in time.",
}
_VERSION: Final = {"ETag": {"description": "The version of the contracts, in quotes.", "schema": {"type": "string"}}}
_SCHEME: Final = {"WWW-Authenticate": {"description": "The scheme to use, Bearer.", "schema": {"type": "string"}}}
_FIELDS: Final[dict[int, dict[str, Any]]] = {
    401: _SCHEME,
    403: _SCHEME,
    412: _VERSION,
    503: {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}}},
}


def answers(role: Role | None, *, versioned: bool, absent: bool, body: bool, creates: bool) -> dict[int | str, Any]:
    """Returns the responses that an operation declares in OpenAPI, by status: errors, and responses with a version.

    `role` is the role that the operation needs. `versioned` means that requests may have conditions on the version,
    `absent` that the thing named by the path may be missing, `body` that the operation takes a body, and `creates` that
    it may create a contract.
    """
    problems = [400, 422, 503] if role else []
    problems += [401] if role else []
    problems += [403, 409] if role == "write" else []
    problems += [404] if absent else []
    problems += [412] if versioned else []
    problems += [413, 415] if body else []
    said: dict[int | str, Any] = {
        status: {"description": _STATUSES[status], "model": ProblemDetails, "headers": _FIELDS.get(status, {})}
        for status in sorted(problems)
    }
    if versioned:
        said[200] = {"headers": _VERSION}
    if creates:
        said[201] = {"description": _STATUSES[201], "model": Version, "headers": _VERSION}
    if versioned and role == "read":
        said[304] = {"description": _STATUSES[304], "headers": _VERSION}
    return said


def openapi_of(app: FastAPI, *, server: str, is_open: bool) -> dict[str, Any]:
    """Returns the OpenAPI document of an API mounted at `server`. `is_open` means that the API needs no tokens."""
    if app.openapi_schema is None:
        document = app.openapi()
        for operation in (each for path in document["paths"].values() for each in path.values()):
            for status, response in operation["responses"].items():
                if int(status) >= 400 and JSON in response["content"]:
                    response["content"][PROBLEM_JSON] = response["content"].pop(JSON)
            if is_open:
                operation["responses"] = {
                    status: each for status, each in operation["responses"].items() if status not in ("401", "403")
                }
            elif "401" in operation["responses"]:
                operation["security"] = [{"token": []}]
        if not is_open:
            scheme = {"type": "http", "scheme": "bearer", "description": "A token whose role is read or write."}
            document["components"]["securitySchemes"] = {"token": scheme}
    return {**app.openapi(), "servers": [{"url": server}]}
