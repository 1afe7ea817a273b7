"""The operations of the API, and the OpenAPI document that describes them."""

# Theory of operation.
#
# An operation is listed once, in OPERATIONS. The API serves what stands there, with the role, the parameters and the
# conditions that stand there; the document is written from the same entries. So no route is undocumented, and no
# parameter is documented that is not read. What every operation can answer follows from what it takes: a body can be
# too large, a version can be another one, a hub can be away.

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from reconverge.contracts.document import IDENTITY_BYTES_MAX
from reconverge.integrations.contracts.problems import PROBLEM_JSON
from reconverge.integrations.contracts.reading import CONDITION_LENGTH_MAX, CONDITION_PATTERN, JSON
from reconverge.integrations.contracts.schemas import SCHEMAS, Schema, ref
from reconverge.integrations.contracts.tokens import Role

OPENAPI_VERSION: Final = "3.1.0"
API_VERSION: Final = "1"
"""Rises when a client of the API has to change."""
PAGE: Final = 100
PAGE_MAX: Final = 1000
"""Contracts of one page of the list. Each is a kilobyte or less, as a rule."""
CHANGES: Final = 20
CHANGES_MAX: Final = 200
"""Of one answer about history. A change of the whole document shows it twice, before and after."""
CONTRACT_BYTES_MAX: Final = 256 * 1024
"""A contract with all former limits that it may have is a fifth of that."""
DOCUMENT_BYTES_MAX: Final = 2 * 1024 * 1024
"""About thirty thousand customers. To check them takes a second or two, in which the event loop does nothing else."""
SMALL_BYTES_MAX: Final = 64 * 1024
"""Bodies that name a version or facts."""

EXAMPLES: Final[dict[str, Any]] = {
    "Contract": {"plan": "pro", "limits": {"burst": "800/second"}, "note": "until the fair is over"},
    "Document": {
        "unknown": "free",
        "plans": {
            "free": {"limits": {"burst": "50/second", "daily": {"limit": "1000/day", "algorithm": "fixed-window"}}},
            "pro": {"limits": {"burst": "500/second", "by-user": {"limit": "5/minute", "by": ["customer", "user"]}}},
            "trial": {"limits": {"burst": "500/second"}, "lasts": "P14D", "then": "free"},
        },
        "customers": {
            "acme": {"plan": "pro", "limits": {"burst": "800/second"}},
            "globex": {"plan": "trial", "since": "2026-11-23T12:00:00Z", "switch": "shadow"},
        },
    },
    "Rollback": {"version": 1},
    "Reset": {"facts": {"user": "ada"}},
}
"""Of bodies. All of them are answered as done, in an order in which they go together."""
EXAMPLE_IDENTITY: Final = "acme"
PARAMETERS: Final[dict[str, Schema]] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": PAGE},
    "after": {**ref("Identity"), "description": "List what follows this identity; the `next` of the page before."},
    "most": {"type": "integer", "minimum": 1, "maximum": CHANGES_MAX, "default": CHANGES},
    "identity": {**ref("Identity"), "description": "Changes of this customer alone."},
}
"""Of queries. Facts of a request are parameters by their own names."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One method at one path of the API."""

    name: str
    method: str
    path: str
    summary: str
    role: Role | None = "read"
    """The role that a token needs; None: no token is asked for."""
    query: tuple[str, ...] | None = ()
    """The parameters of the query; None: facts of a request, by any name."""
    body: str | None = None
    """The schema of the body."""
    bytes_max: int = 0
    body_required: bool = True
    versioned: bool = False
    """Whether it takes conditions about the version, and answers with one."""
    answers: tuple[tuple[int, str], ...] = ((200, "Version"),)
    """Statuses of success, each with its schema; an empty one has no body."""
    absent: bool = False
    """Whether what it is about may not be there, which is answered 404."""
    explains: bool = False
    """Whether it is there only if the API was given contracts in force."""

    @property
    def changes(self) -> bool:
        """Whether it changes the contracts."""
        return self.role == "write" and not self.explains

    @property
    def about_one(self) -> bool:
        """Whether its path names a customer."""
        return "{identity}" in self.path

    @property
    def problems(self) -> list[int]:
        """The statuses of what can go wrong, if tokens are asked for."""
        found = [400]
        found += [401] if self.role else []
        found += [403] if self.role == "write" else []
        found += [404] if self.absent else []
        found += [409] if self.changes else []
        found += [412] if self.versioned else []
        found += [413, 415] if self.body else []
        found += [422] if self.body or self.about_one else []
        return [*found, 503] if self.role else found


OPERATIONS: Final = (
    Operation(
        "list_contracts", "GET", "/contracts", "The contracts of customers, page by page, by identity.",
        query=("limit", "after"), versioned=True, answers=((200, "Contracts"),),
    ),
    Operation(
        "read_contract", "GET", "/contracts/{identity}", "The contract of one customer.",
        versioned=True, absent=True, answers=((200, "Customer"),),
    ),
    Operation(
        "write_contract", "PUT", "/contracts/{identity}", "Give a customer this contract, or the plan of that name.",
        role="write", body="Contract", bytes_max=CONTRACT_BYTES_MAX, versioned=True,
        answers=((200, "Version"), (201, "Version")),
    ),
    Operation(
        "end_contract", "DELETE", "/contracts/{identity}", "End the contract of one customer.",
        role="write", versioned=True, absent=True,
    ),
    Operation("list_plans", "GET", "/plans", "All plans.", versioned=True, answers=((200, "Plans"),)),
    Operation(
        "read_document", "GET", "/document", "The whole document.", versioned=True, answers=((200, "Document"),)
    ),
    Operation(
        "write_document", "PUT", "/document", "Have the whole document be this.",
        role="write", body="Document", bytes_max=DOCUMENT_BYTES_MAX, versioned=True,
    ),
    Operation(
        "read_history", "GET", "/history", "The last changes, the newest first.",
        query=("most", "identity"), answers=((200, "History"),),
    ),
    Operation(
        "rollback", "POST", "/rollback", "Have the contracts be what they were at a version; the version rises.",
        role="write", body="Rollback", bytes_max=SMALL_BYTES_MAX, absent=True,
    ),
    Operation(
        "explain_customer", "GET", "/customers/{identity}/explain",
        "Whether a customer may go on now, why not, and when; facts of the request are parameters.",
        query=None, explains=True, answers=((200, "Explanation"),),
    ),
    Operation(
        "reset_customer", "POST", "/customers/{identity}/reset", "Forget what a customer has used of its own limits.",
        role="write", body="Reset", bytes_max=SMALL_BYTES_MAX, body_required=False, explains=True, answers=((204, ""),),
    ),
    Operation(
        "read_status", "GET", "/status", "Which contracts this node obeys, and what it has refused to obey.",
        explains=True, answers=((200, "Status"),),
    ),
    Operation(
        "forget_customer", "POST", "/customers/{identity}/forget",
        "Erase a customer from the contracts and all their versions, and with them in force what it has used, on all"
        " nodes and at the hub. This cannot be undone.",
        role="write", answers=((200, "Forgotten"),),
    ),
    Operation("read_openapi", "GET", "/openapi.json", "This document.", role=None, answers=((200, ""),)),
)  # fmt: skip

_STATUSES: Final = {
    200: "It is done, or here it is.",
    201: "The customer had no contract, and has one now.",
    204: "It is done.",
    304: "The client has this version already.",
    400: "The request cannot be read: its path, a parameter, a condition, or a body that is no JSON.",
    401: "The request has no token that is known.",
    403: "The token may read, and this needs one that may write.",
    404: "There is no such contract, or no such version.",
    409: "Another change was made at the same time; this one was not, and may be sent again.",
    412: "The contracts are at another version than the request names.",
    413: "The body is too long.",
    415: "The body is of another type than JSON in UTF-8, or is compressed.",
    422: "The request can be read, and makes no sense; `errors` point to the fields.",
    503: "The hub does not answer, or not in time.",
}
_FIELDS: Final[dict[str, Schema]] = {
    "ETag": {"description": "The version of the contracts, in quotes.", "schema": {"type": "string"}},
    "Retry-After": {"description": "In seconds.", "schema": {"type": "integer", "minimum": 1}},
    "WWW-Authenticate": {"description": "Names the scheme, Bearer.", "schema": {"type": "string"}},
}
_FIELDS_OF: Final = {304: "ETag", 401: "WWW-Authenticate", 403: "WWW-Authenticate", 412: "ETag", 503: "Retry-After"}


def served(*, explains: bool) -> tuple[Operation, ...]:
    """The operations of an API; `explains`: it was given contracts in force."""
    return tuple(each for each in OPERATIONS if explains or not each.explains)


def openapi_document(*, server: str = "/", explains: bool = True, is_open: bool = False) -> dict[str, Any]:
    """The OpenAPI document of an API that is mounted at `server`; `is_open`: it asks for no tokens."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in served(explains=explains):
        item = paths.setdefault(operation.path, _path_item(operation))
        item[operation.method.lower()] = _described(operation, is_open=is_open)
    components: dict[str, Any] = {"schemas": SCHEMAS}
    if not is_open:
        scheme = {"type": "http", "scheme": "bearer", "description": "A token whose role is read or write."}
        components["securitySchemes"] = {"token": scheme}
    return {
        "openapi": OPENAPI_VERSION,
        "info": {
            "title": "Contracts",
            "version": API_VERSION,
            "description": "What customers may use: plans, contracts, their history, and how a customer stands.",
        },
        "servers": [{"url": server}],
        "paths": paths,
        "components": components,
    }


def _path_item(operation: Operation) -> dict[str, Any]:
    if not operation.about_one:
        return {}
    description = f"Percent-encoded, slashes included (%2F); at most {IDENTITY_BYTES_MAX} bytes."
    identity = {"name": "identity", "in": "path", "required": True, "description": description}
    return {"parameters": [{**identity, "schema": ref("Identity"), "example": EXAMPLE_IDENTITY}]}


def _described(operation: Operation, *, is_open: bool) -> dict[str, Any]:
    said: dict[str, Any] = {"operationId": operation.name, "summary": operation.summary}
    parameters = _parameters(operation)
    if parameters:
        said["parameters"] = parameters
    if operation.body:
        content = {JSON: {"schema": ref(operation.body), "example": EXAMPLES[operation.body]}}
        said["requestBody"] = {"required": operation.body_required, "content": content}
    responses: dict[str, Any] = {}
    for status, schema in operation.answers:
        responses[str(status)] = _response(status, {JSON: {"schema": _answer(operation, schema)}}, operation)
    if operation.versioned and operation.role == "read":
        responses["304"] = _response(304, {}, operation)
    for status in operation.problems:
        if not is_open or status not in (401, 403):
            responses[str(status)] = _response(status, {PROBLEM_JSON: {"schema": ref("Problem")}}, operation)
    said["responses"] = responses
    said["security"] = [{"token": []}] if operation.role and not is_open else []
    return said


def _answer(operation: Operation, schema: str) -> Schema:
    return ref(schema) if schema else {"type": "object", "description": operation.summary}


def _response(status: int, content: dict[str, Any], operation: Operation) -> dict[str, Any]:
    response: dict[str, Any] = {"description": _STATUSES[status]}
    if status not in (204, 304):
        response["content"] = content
    field = _FIELDS_OF.get(status) or ("ETag" if status < 300 and _tells_version(operation) else None)
    if field:
        response["headers"] = {field: {**_FIELDS[field], "required": True}}
    return response


def _tells_version(operation: Operation) -> bool:
    return operation.versioned or operation.changes


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "query", "schema": PARAMETERS[name]} for name in operation.query or ()
    ]
    if operation.query is None:
        facts = {"name": "facts", "in": "query", "style": "form", "explode": True, "schema": ref("Facts")}
        found.append({**facts, "description": "Facts of a request by which limits count, such as user=ada."})
    if operation.versioned:
        condition = {"type": "string", "pattern": CONDITION_PATTERN, "maxLength": CONDITION_LENGTH_MAX}
        found += [
            {"name": name, "in": "header", "schema": {**condition, "examples": ['"7"', "*"]}}
            for name in ("If-Match", "If-None-Match")
        ]
    return found
