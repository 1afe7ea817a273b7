"""Checks each request to the contracts API before FastAPI reads it, and adds fields to each response."""

# Theory of operation.
#
# FastAPI reads the body of a request leniently, of any length, and before it checks anything else. So the checks
# in this file come first: the token, then the query, strictly, then the body, up to its maximal length, in a thread if
# that takes long. FastAPI gets a request whose body has been read already.
#
# Identities of customers may contain slashes, line feeds and all other characters, and Starlette's patterns stop at
# some of these. So an identity in a path is any text.

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from reconverge.contracts import format as written
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.explaining import Explainer
from reconverge.contracts.model import CUSTOMER
from reconverge.errors import MissingExtra, asked
from reconverge.integrations.contracts.long_work import LongWork
from reconverge.integrations.contracts.openapi import answers
from reconverge.integrations.contracts.parts import Facts
from reconverge.integrations.contracts.problems import Problem, response_of, wrong_field
from reconverge.integrations.contracts.reading import (
    CONDITION_LENGTH_MAX,
    CONDITION_PATTERN,
    Conditions,
    conditions_of,
    json_of,
    query_of,
    route_path,
)
from reconverge.integrations.contracts.tokens import Role, TokenTable

try:
    from fastapi import Depends, Header, Path, Query, Request
    from fastapi.routing import APIRoute
    from pydantic import TypeAdapter, ValidationError
    from starlette.convertors import Convertor, register_url_convertor
    from starlette.datastructures import MutableHeaders
    from starlette.responses import Response
except ModuleNotFoundError as error:
    raise MissingExtra("the API of contracts", error.name or "fastapi", "api") from error

AUTHOR: Final = "reconverge.author"
"""The key in a request's scope under which the name of its token is stored."""
PRIVATE: Final = {"Cache-Control": "private, no-cache", "X-Content-Type-Options": "nosniff"}
"""Header fields of every response: caches must ask each time for a new version, and browsers must not guess types."""
IDENTITY: Final = "{identity:reconverge_identity}"
"""The parameter for an identity in the path of a route."""


class _AnyText(Convertor[str]):
    regex = "(?s:.+)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("reconverge_identity", _AnyText())


_FACTS: Final[TypeAdapter[dict[str, str]]] = TypeAdapter(Facts)
FACTS_IN_QUERY: Final = {
    "name": "facts",
    "in": "query",
    "style": "form",
    "explode": True,
    "description": "Facts of a request by which limits count, such as user=ada, one parameter each.",
    "schema": _FACTS.json_schema(),
}
_IN_FIELD: Final = {"pattern": CONDITION_PATTERN, "maxLength": CONDITION_LENGTH_MAX}


def _conditions(
    request: Request,
    if_match: Annotated[str | None, Header(json_schema_extra=_IN_FIELD)] = None,
    if_none_match: Annotated[str | None, Header(json_schema_extra=_IN_FIELD)] = None,
) -> Conditions:
    """Returns the conditions about the version from all If-Match and If-None-Match fields of a request.

    FastAPI would read only one field of each name.
    """
    del if_match, if_none_match
    return conditions_of(request)


def _author(request: Request) -> str:
    name: str = request.scope[AUTHOR]
    return name


Author = Annotated[str, Depends(_author)]
"""The name of the request's token, which the history of changes shows."""
OnCondition = Annotated[Conditions, Depends(_conditions)]
InPath = Annotated[written.Identity, Path(description="Percent-encoded, slashes included (%2F).", examples=["acme"])]
InQuery = Annotated[written.Identity | None, Query()]


@dataclass(frozen=True, slots=True)
class Door:
    """Checks the tokens of requests to the contracts API, and runs their long work one after the other."""

    tokens: TokenTable
    work: LongWork


class DoorRoute(APIRoute):
    """One operation of the API.

    Args:
        door: checks requests.
        method: the HTTP method.
        path: the path of the operation.
        endpoint: the function that serves it.
        role: the role that the token needs; None if no token is needed.
        model: the model of the response's body.
        status: the status of a successful response.
        bytes_max: the longest body; 0 if there may be none.
        body_required: whether the body is required.
        versioned: whether requests may have conditions about the version.
        absent: whether the thing that the path names may be missing (404).
        any_query: whether query parameters of any name are allowed.
    """

    def __init__(
        self,
        door: Door,
        method: str,
        path: str,
        endpoint: Callable[..., Coroutine[Any, Any, Response]],
        *,
        role: Role | None = "read",
        model: Any = None,
        status: int = 200,
        bytes_max: int = 0,
        body_required: bool = True,
        versioned: bool = False,
        absent: bool = False,
        any_query: bool = False,
        **more: Any,
    ) -> None:
        self.door: Final = door
        self.role: Final[Role | None] = role
        self.versioned: Final = versioned
        self.any_query: Final = any_query
        self.bytes_max: Final = bytes_max
        self.body_required: Final = body_required
        super().__init__(
            path,
            endpoint,
            methods=[method],
            response_model=model,
            status_code=status,
            operation_id=endpoint.__name__,
            responses=answers(
                role,
                versioned=versioned,
                absent=absent,
                body=bytes_max > 0,
                creates=method == "PUT" and IDENTITY in path,
            ),
            **more,
        )

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Returns FastAPI's handler of the operation, which is called only after the checks of the request."""
        serve = super().get_route_handler()

        async def let_in(request: Request) -> Response:
            return await serve(await self._let_in(request))

        return let_in

    async def _let_in(self, request: Request) -> Request:
        """Checks a request, reads its body if it may have one, and returns the request. Raises Problem."""
        request.scope[AUTHOR] = self.door.tokens.name_of(request.headers.getlist("authorization"), self.role)
        known = None if self.any_query else tuple(each.alias for each in self.dependant.query_params)
        query_of(request, known)
        if not self.versioned and conditions_of(request).are_there:
            raise Problem(400, f"{request.method} {request.url.path} accepts no If-Match or If-None-Match; omit them")
        if not self.bytes_max:
            return request
        said = await json_of(request, bytes_max=self.bytes_max, required=self.body_required, do=self.door.work.do)
        return _Read(request, said)


class _Read(Request):
    def __init__(self, request: Request, said: Any) -> None:
        super().__init__(request.scope)
        self._said = said

    async def body(self) -> bytes:
        """Returns some bytes if the request has a body, else b"": FastAPI only tests whether there are any."""
        return b"" if self._said is None else b"{}"

    async def json(self) -> Any:
        return self._said


class OuterDoor:
    """An ASGI middleware that adds the fields PRIVATE to every response, and answers HEAD as GET without a body."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        head = scope["method"] == "HEAD"

        async def finish(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in PRIVATE.items():
                    headers.setdefault(name, value)
            elif head:
                message = {**message, "body": b""}
            await send(message)

        try:
            route_path(scope)
        except Problem as problem:
            await response_of(problem)(scope, receive, finish)
            return
        await self._app({**scope, "method": "GET"} if head else scope, receive, finish)


def facts_in(request: Request) -> dict[str, str]:
    """Returns the query parameters of a request as facts by name. Raises Problem (400).

    Facts are values, such as a user, by which limits may count besides the customer.
    """
    try:
        return _FACTS.validate_python(dict(request.query_params))
    except ValidationError as error:
        mistake = error.errors(include_url=False)[0]
        raise wrong_parameter(mistake, "query", mistake["loc"]) from None


def check_facts(facts: Mapping[str, str], contracts: Explainer) -> None:
    """Raises Problem (400) for a fact that no limit of any plan counts by: its name may be misspelt."""
    if not facts or not isinstance(contracts, Contracts):
        return
    limits = [limit for plan in contracts.document.plans.values() for limit in plan.limits.values()]
    known = sorted({fact for limit in limits for fact in limit.by if fact != CUSTOMER})
    for name in facts:
        if name not in known:
            known_facts = f"limits count by: {', '.join(known)}" if known else "limits count by the customer alone"
            problem = f"no limit counts by {name!r}; {known_facts}{asked(name, known)}"
            raise Problem(400, problem, parameter=name)


def wrong_parameter(mistake: Mapping[str, Any], where: str, path: Sequence[str | int]) -> Problem:
    """Returns the problem for `mistake`, pydantic's error about a parameter: 422 in a body or a path, otherwise 400.

    `where` is the part of the request that has the parameter; `path` leads to the field in it.
    """
    problem = written.problem_of(mistake)
    if where == "body":
        return wrong_field(422, problem, [each for each in path if each != "[key]"])
    if where == "path":
        return Problem(422, problem)
    name = str(path[0])[:100] if path else "the query"
    members: dict[str, Any] = {"parameter": name} if path else {}
    return Problem(400, f"{name} {problem}", **members)
