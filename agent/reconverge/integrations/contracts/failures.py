"""Answers each kind of failure in the contracts API with problem details."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from reconverge.clock import SECOND_NS, Clock
from reconverge.contracts.model import InvalidContracts
from reconverge.contracts.store.book import VersionConflict
from reconverge.errors import HubUnavailable, MissingExtra, ReconvergeError
from reconverge.integrations.contracts.door import DoorRoute, wrong_parameter
from reconverge.integrations.contracts.problems import RETRY_AFTER_S, Problem, of_contracts, response_of
from reconverge.integrations.contracts.reading import conditions_of, tag_of
from reconverge.runtime.log_throttle import LogThrottle

try:
    from fastapi import FastAPI, Request
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect
    from starlette.responses import Response
    from starlette.routing import Match
except ModuleNotFoundError as error:
    raise MissingExtra("the API of contracts", error.name or "fastapi", "api") from error

logger = logging.getLogger("reconverge")

QUIET_NS: Final = 60 * SECOND_NS
"""The time, in nanoseconds, in which an unreachable hub is logged only once, however many requests fail because of
it."""
UNUSABLE: Final = "unusable"
"""The kind of each failure of the book, the store of contracts, other than an unreachable hub."""


class ApiFailures:
    """Handles every error that an operation of the API may raise: each becomes a response with problem details."""

    def __init__(self, app: FastAPI, clock: Clock) -> None:
        self._app = app
        self._clock = clock
        self._log = LogThrottle(1, within_ns=QUIET_NS)
        handlers: dict[Any, Callable[[Request, Any], Awaitable[Problem]]] = {
            Problem: _as_it_is,
            RequestValidationError: _wrong_request,
            HTTPException: self._nothing_there,
            InvalidContracts: _wrong_contracts,
            VersionConflict: _other_version,
            ReconvergeError: self._no_hub,  # also contracts that are signed with another secret
            ClientDisconnect: _gone,
            Exception: _bug,
        }
        for kind, problem_with in handlers.items():
            app.add_exception_handler(kind, _answering(problem_with))

    async def _nothing_there(self, request: Request, error: HTTPException) -> Problem:
        if error.status_code != 405:
            return Problem(404, "the API has no such path; GET /openapi.json lists all paths")
        routes = [route for route in self._app.routes if isinstance(route, DoorRoute)]
        here = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
        methods = sorted(method for route in here for method in route.methods or ())
        allowed = ", ".join([*methods, *(["HEAD"] if "GET" in methods else [])])
        return Problem(405, f"this path only accepts {allowed}", fields={"Allow": allowed})

    async def _no_hub(self, request: Request, error: ReconvergeError) -> Problem:
        """Returns the problem (503) for a failure of the hub.

        It shows the kind of the failure, but not the text of the error, which may name hosts.
        """
        now_ns = self._clock.monotonic_ns()
        if self._log.allows(now_ns):
            self._log.note(now_ns)
            logger.warning("reconverge: the API of contracts cannot use the contracts at its hub: %s", error)
        away = error if isinstance(error, HubUnavailable) else None
        kind = UNUSABLE if away is None else away.kind
        applied = False if away is None or request.method == "GET" else away.applied
        became = {None: "it is not known whether the change was made", True: "the change was made"}
        problem = f"the contracts cannot be reached at their hub ({kind}); {became.get(applied, 'nothing has changed')}"
        return Problem(503, problem, fields={"Retry-After": str(RETRY_AFTER_S)}, kind=kind, applied=applied)


def _answering(
    problem_with: Callable[[Request, Any], Awaitable[Problem]],
) -> Callable[[Request, Any], Awaitable[Response]]:
    async def answer(request: Request, error: Any) -> Response:
        return response_of(await problem_with(request, error))

    return answer


async def _as_it_is(_request: Request, problem: Problem) -> Problem:
    return problem


async def _wrong_request(_request: Request, error: RequestValidationError) -> Problem:
    mistake = error.errors()[0]
    where, *path = mistake["loc"]
    return wrong_parameter(mistake, where, path)


async def _wrong_contracts(request: Request, error: InvalidContracts) -> Problem:
    return of_contracts(error, request.path_params.get("identity"))


async def _other_version(request: Request, error: VersionConflict) -> Problem:
    status = 412 if conditions_of(request).are_there else 409
    fields = {"ETag": tag_of(error.found)} if status == 412 else {}
    return Problem(status, str(error), fields=fields, version=error.found)


async def _gone(_request: Request, _error: ClientDisconnect) -> Problem:
    return Problem(400, "the client has disconnected")  # the client does not receive this


async def _bug(_request: Request, _error: Exception) -> Problem:
    """Returns the problem (500) for an error of the program. Starlette then raises the error, for the server to log."""
    return Problem(500, "this is a bug of the server, which has logged it")
