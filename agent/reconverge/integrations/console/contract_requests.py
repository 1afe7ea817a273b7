"""Serves the console's requests about contracts. It reads them strictly and describes mistakes."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

from reconverge.contracts.model import InvalidContracts, check_identity
from reconverge.contracts.store.book import VersionConflict
from reconverge.errors import MissingExtra, shown
from reconverge.integrations.console.access import Visitor
from reconverge.integrations.console.contracts import ContractPages, ProposedChange
from reconverge.integrations.contracts.problems import Problem, of_contracts, wrong_field
from reconverge.integrations.contracts.reading import VERSION_MAX, json_of, members_of, query_of
from reconverge.published.envelope import UnverifiedDocument

try:
    from starlette.requests import Request
    from starlette.responses import Response
except ModuleNotFoundError as error:
    raise MissingExtra("the console", error.name or "starlette", "console") from error

logger = logging.getLogger("reconverge")

T = TypeVar("T")
BODY_BYTES_MAX: Final = 65_536
"""The largest request body: a plan has up to 100 limits, each of which may have several settings."""
FIND_MAX: Final = 512


class ContractRequests:
    """Answers requests about contracts. The methods raise Problem and HubUnavailable."""

    def __init__(self, pages: ContractPages) -> None:
        self._pages = pages

    async def overview(self, request: Request, _visitor: Visitor) -> Response:
        """GET /contracts?find=...: returns the plans, and the customers whose names contain the text."""
        find = query_of(request, ("find",)).get("find", "")
        return _json_response(await _tried(self._pages.overview(find[:FIND_MAX])))

    async def customer(self, request: Request, _visitor: Visitor) -> Response:
        """GET /customer?identity=...: returns a customer's contract and its present use."""
        identity = _named(request, "identity")
        try:
            check_identity(identity)
        except InvalidContracts as error:
            raise Problem(422, error.problem, parameter="identity") from None
        return _json_response(await _tried(self._pages.customer(identity)))

    async def plan(self, request: Request, _visitor: Visitor) -> Response:
        """GET /plan?name=...: returns one plan."""
        return _json_response(await _tried(self._pages.plan(_named(request, "name"))))

    async def history(self, request: Request, _visitor: Visitor) -> Response:
        """GET /history: returns the last changes."""
        query_of(request, ())
        return _json_response({"changes": await _tried(self._pages.history())})

    async def predict(self, request: Request, _visitor: Visitor) -> Response:
        """POST /predict: returns the effect of a change without making it, so visitors with the role "read" may ask."""
        asked = await _asked(request)
        return _json_response(await _tried(self._pages.predict(asked), asked))

    async def change(self, request: Request, visitor: Visitor) -> Response:
        """POST /change: makes a change, if the contracts still have the version that the visitor has seen."""
        asked = await _asked(request)
        version = await _tried(self._pages.change(asked, author=visitor.name), asked)
        about = "a contract" if asked.plan is None else f"the plan {asked.plan!r}"
        logger.warning("reconverge: %s has changed %s by the console; version %d", visitor.name, about, version)
        return _json_response({"version": version})


async def _tried(work: Awaitable[T], asked: ProposedChange | None = None) -> T:
    try:
        return await work
    except InvalidContracts as error:
        raise of_contracts(error, None if asked is None else asked.customer) from None
    except VersionConflict as error:
        raise Problem(409, str(error), version=error.found) from None
    except UnverifiedDocument as error:
        raise Problem(503, str(error), kind=error.reason) from None


def _named(request: Request, name: str) -> str:
    value = query_of(request, (name,)).get(name, "")
    if not value:
        raise Problem(400, f"the parameter {name} is missing; add ?{name}=...", parameter=name)
    return value


async def _asked(request: Request) -> ProposedChange:
    said = members_of(await json_of(request, bytes_max=BODY_BYTES_MAX), "customer", "plan", "said", "version")
    names = {name: said.get(name) for name in ("customer", "plan")}
    for name, value in names.items():
        if value is not None and not isinstance(value, str):
            raise wrong_field(422, f"must be a name, not {shown(value)}", (name,))
    if (names["customer"] is None) == (names["plan"] is None):
        raise Problem(422, "the body must name a customer or a plan, and not both; send exactly one of them")
    version = said.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version <= VERSION_MAX:
        raise wrong_field(
            422,
            f"must be the version of the contracts on which the change is based, not {shown(version)}",
            ("version",),
        )
    return ProposedChange(names["customer"], names["plan"], said.get("said"), version)


def _json_response(said: dict[str, Any]) -> Response:
    return Response(json.dumps(said, allow_nan=False).encode("ascii"), media_type="application/json")
