"""An API over HTTP for reading and changing contracts, as an ASGI application to be mounted.

app = contracts_api(book, tokens=["console: ..., write"], contracts=contracts)
"""

# Theory of operation.
#
# The API is a thin shell around a `Book`: it reads a request strictly (`reading.py`), finds out whether its token may
# do that (`tokens.py`), calls the book once, and writes down what the book has answered. It holds no contracts of its
# own, so any number of workers may serve it, and what one changes the others read.
#
# FastAPI routes requests, reads their parameters, and describes it all as OpenAPI. What it would do too late or too
# leniently is done before: no body is read for a client without a token, none further than it may be long, and none is
# checked on the event loop, which belongs to the application as well (`door.py`).
#
# No request ends in an error of the server. A mistake in a request is answered with its place, a fault of the hub
# with 503, and a bug with 500 without a word of the inside, while the server logs it.

from __future__ import annotations

from bisect import bisect_right
from dataclasses import asdict
from math import isfinite
from typing import Annotated, Any, Final, Protocol, runtime_checkable

from reconverge.agent.erasing import Forgotten
from reconverge.clock import Clock, SystemClock
from reconverge.contracts import format as written
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.explaining import Explainer, Explanation, FleetExplainer, MissingFact, table_of_explanation
from reconverge.contracts.model import Document, InvalidContracts
from reconverge.contracts.store.book import Book
from reconverge.contracts.store.stats import ContractsStats
from reconverge.contracts.writing import table_of, table_of_customer
from reconverge.errors import InvalidKey, InvalidSetting, MissingExtra, NeedsSlot
from reconverge.integrations.contracts import parts
from reconverge.integrations.contracts.door import (
    FACTS_IN_QUERY,
    IDENTITY,
    Author,
    Door,
    DoorRoute,
    InPath,
    InQuery,
    OnCondition,
    OuterDoor,
    check_facts,
    facts_in,
)
from reconverge.integrations.contracts.failures import ApiFailures
from reconverge.integrations.contracts.long_work import LongWork
from reconverge.integrations.contracts.openapi import openapi_of
from reconverge.integrations.contracts.problems import Problem, wrong_field
from reconverge.integrations.contracts.reading import Conditions
from reconverge.integrations.contracts.tokens import Tokens, TokenTable
from reconverge.integrations.contracts.writing import (
    bytes_response,
    changed,
    json_response,
    no_contract,
    table_of_change,
    unchanged,
)
from reconverge.integrations.contracts.writing import written as in_json

try:
    from fastapi import Body, FastAPI, Query, Request, Response
    from pydantic import SkipValidation
except ModuleNotFoundError as error:
    raise MissingExtra("the API of contracts", error.name or "fastapi", "api") from error

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
"""About thirty thousand customers. To check them takes a second or two of a thread."""
SMALL_BYTES_MAX: Final = 64 * 1024
"""Bodies that name a version or facts."""
USE_STAYS: Final = Forgotten(
    0, 0, 0, "what was used stays, as no contracts are in force beside this API: erase it with `reconverge forget`"
)
"""The answer of an API that has no contracts in force, and so no agent with which use could be erased."""


@runtime_checkable
class CustomerEraser(Protocol):
    """Erases what a customer has used, on all nodes; `Contracts` is one."""

    async def forget(self, customer: str) -> Forgotten:
        """Erases a customer, as `Contracts.forget` does.

        Raises HubUnavailable, and InvalidKey for what can be no key.
        """
        ...


def contracts_api(
    book: Book,
    *,
    tokens: Tokens | None = None,
    contracts: Explainer | None = None,
    open: bool = False,  # noqa: A002  # the word of the setting
    clock: Clock | None = None,
) -> FastAPI:
    """Make the application that serves a fleet's contracts over HTTP; mount it under any prefix.

    Args:
        book: where the contracts are kept.
        tokens: what programs send to be let in: a mapping of tokens to "read" or "write", or a list of `Token` or of
            text as "name: token, role". The names stand in the history of changes. A token has 16 bytes or more.
        contracts: the contracts in force on this node. With them the API explains how customers stand, and resets
            what they have used; without, it has no such routes.
        open: whether all clients may read and write, without tokens.
        clock: by which log messages are thinned out.

    Raises:
        InvalidSetting: a token is wrong, or there is none and the API is not open, or both.
    """
    table = TokenTable(tokens, is_open=open)
    if not isinstance(book, Book):
        raise InvalidSetting("book", book, "is no Book; give the store of the contracts, such as a MemoryBook")
    if contracts is not None and not isinstance(contracts, Explainer):
        raise InvalidSetting("contracts", contracts, "lacks the methods `explain` and `reset`; give a Contracts object")
    app = FastAPI(
        title="Contracts",
        description="What customers may use: plans, contracts, their history, and how a customer stands.",
        version=API_VERSION,
        openapi_url=None,  # it is served as all else is
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    api = _Api(app, book, Door(table, LongWork()), contracts, is_open=open)
    app.router.routes += api.routes()
    app.add_middleware(OuterDoor)
    ApiFailures(app, clock or SystemClock())
    return app


class _Api:
    """Answers requests out of a book, and of contracts in force."""

    def __init__(
        self,
        app: FastAPI,
        book: Book,
        door: Door,
        contracts: Explainer | None,
        *,
        is_open: bool,
    ) -> None:
        self._app = app
        self._book = book
        self._door = door
        self._contracts = contracts
        self._is_open = is_open
        self._changes = LongWork()
        self._sorted: tuple[int, list[str]] = (0, [])
        """The identities of one version in order, for pages of that version."""

    def routes(self) -> list[DoorRoute]:
        """The operations, each with its path."""
        door, one, stands = self._door, f"/contracts/{IDENTITY}", f"/customers/{IDENTITY}"
        changes: dict[str, Any] = {"role": "write", "model": parts.Version, "versioned": True}
        routes = [
            DoorRoute(door, "GET", "/contracts", self.list_contracts, model=parts.Contracts, versioned=True),
            DoorRoute(door, "GET", one, self.read_contract, model=written.Customer, versioned=True, absent=True),
            DoorRoute(door, "PUT", one, self.write_contract, bytes_max=CONTRACT_BYTES_MAX, **changes),
            DoorRoute(door, "DELETE", one, self.end_contract, absent=True, **changes),
            DoorRoute(door, "GET", "/plans", self.list_plans, model=parts.Plans, versioned=True),
            DoorRoute(door, "GET", "/document", self.read_document, model=parts.KeptDocument, versioned=True),
            DoorRoute(door, "PUT", "/document", self.write_document, bytes_max=DOCUMENT_BYTES_MAX, **changes),
            DoorRoute(door, "GET", "/history", self.read_history, model=parts.History),
            DoorRoute(
                door, "POST", "/rollback", self.rollback,
                role="write", model=parts.Version, bytes_max=SMALL_BYTES_MAX, absent=True,
            ),
            DoorRoute(door, "POST", f"{stands}/forget", self.forget_customer, role="write", model=parts.Forgotten),
            DoorRoute(door, "GET", "/openapi.json", self.read_openapi, role=None),
        ]  # fmt: skip
        if self._contracts is None:
            return routes
        return [
            *routes,
            DoorRoute(
                door, "GET", f"{stands}/explain", self.explain_customer,
                model=Explanation, any_query=True, openapi_extra={"parameters": [FACTS_IN_QUERY]},
            ),
            DoorRoute(
                door, "POST", f"{stands}/reset", self.reset_customer,
                role="write", status=204, bytes_max=SMALL_BYTES_MAX, body_required=False,
            ),
            DoorRoute(door, "GET", "/status", self.read_status, model=parts.Status),
        ]  # fmt: skip

    # ------------------------------------------------------------ reading

    async def list_contracts(
        self, conditions: OnCondition, limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = PAGE, after: InQuery = None
    ) -> Response:
        """The contracts of customers, page by page, by identity."""
        version, document = await self._read(conditions)
        if conditions.is_known(version):
            return unchanged(version)
        return await self._door.work.do(lambda: self._page(version, document, after or "", limit))

    def _page(self, version: int, document: Document, after: str, most: int) -> Response:
        if self._sorted[0] != version:
            self._sorted = version, sorted(document.customers)
        order = self._sorted[1]
        start = bisect_right(order, after)
        page = order[start : start + most]
        said = [{"identity": each, "contract": table_of_customer(document.customers[each])} for each in page]
        following = page[-1] if page and start + most < len(order) else None
        return json_response({"version": version, "contracts": said, "next": following}, version)

    async def read_contract(self, identity: InPath, conditions: OnCondition) -> Response:
        """The contract of one customer."""
        version, document = await self._read(conditions, identity)
        if identity not in document.customers:
            raise no_contract(identity)
        if conditions.is_known(version):
            return unchanged(version)
        return json_response(table_of_customer(document.customers[identity]), version)

    async def list_plans(self, conditions: OnCondition) -> Response:
        """All plans."""
        version, document = await self._read(conditions)
        if conditions.is_known(version):
            return unchanged(version)

        def write() -> bytes:
            plans = table_of(Document(document.plans, unknown=document.unknown))["plans"]
            return in_json({"version": version, "unknown": document.unknown, "plans": plans})

        return bytes_response(await self._door.work.written("plans", version, write), version)

    async def read_document(self, conditions: OnCondition) -> Response:
        """The whole document."""
        version, document = await self._read(conditions)
        if conditions.is_known(version):
            return unchanged(version)
        work = self._door.work
        return bytes_response(await work.written("document", version, lambda: in_json(table_of(document))), version)

    async def read_history(
        self, most: Annotated[int, Query(ge=1, le=CHANGES_MAX)] = CHANGES, identity: InQuery = None
    ) -> Response:
        """The last changes, the newest first; of one customer, or of all."""
        changes = await self._book.history(most=most, identity=identity)
        return await self._door.work.do(lambda: json_response({"changes": [table_of_change(each) for each in changes]}))

    async def read_openapi(self, request: Request) -> Response:
        """This document."""
        server = request.scope.get("root_path") or "/"
        return json_response(openapi_of(self._app, server=server, is_open=self._is_open))

    async def _read(
        self, conditions: Conditions, identity: str | None = None, *, reads: bool = True
    ) -> tuple[int, Document]:
        """The contracts as they are, for a request that is meant for this version. Raises Problem (412)."""
        version, document = await self._book.read()
        exists = identity is None or identity in document.customers
        conditions.check_match(version, exists=exists, reads=reads)
        return version, document

    # ------------------------------------------------------------ changing

    async def write_contract(
        self,
        identity: InPath,
        author: Author,
        conditions: OnCondition,
        said: Annotated[SkipValidation[written.Contract], Body(examples=[parts.EXAMPLES["Contract"]])],
    ) -> Response:
        """Give a customer this contract, or the plan of that name."""
        version, document = await self._read(conditions, identity, reads=False)
        expected = version if conditions.are_there else None
        after = await self._book.set_customer(identity, said, author=author, expected=expected)
        return changed(after, 200 if identity in document.customers else 201)

    async def end_contract(self, identity: InPath, author: Author, conditions: OnCondition) -> Response:
        """End the contract of one customer."""
        version, document = await self._read(conditions, identity, reads=False)
        if identity not in document.customers:
            raise no_contract(identity)
        expected = version if conditions.are_there else None
        return changed(await self._book.set_customer(identity, None, author=author, expected=expected))

    async def write_document(
        self,
        author: Author,
        conditions: OnCondition,
        said: Annotated[SkipValidation[written.Document], Body(examples=[parts.EXAMPLES["Document"]])],
    ) -> Response:
        """Replace the whole document by this one."""
        expected = None
        if conditions.are_there:
            expected, _ = await self._read(conditions, reads=False)
        after = await self._changes.alone(lambda: self._book.replace(said, author=author, expected=expected))
        return changed(after)

    async def rollback(
        self, author: Author, to: Annotated[parts.Rollback, Body(examples=[parts.EXAMPLES["Rollback"]])]
    ) -> Response:
        """Bring back the contracts of a former version; the version rises."""
        try:
            return changed(await self._changes.alone(lambda: self._book.rollback(to.version, author=author)))
        except LookupError:
            raise wrong_field(404, f"version {to.version} is unknown, or is not kept any more", ("version",)) from None
        except InvalidContracts as error:  # about the document of that version, and not about the body
            raise Problem(422, str(error)) from None

    # ------------------------------------------------------------ how customers stand

    async def explain_customer(self, identity: InPath, request: Request) -> Response:
        """Whether a customer may go on now, why not, and when; facts of the request are parameters."""
        contracts = self._contracts
        assert contracts is not None  # the route is not there without
        facts = facts_in(request)
        check_facts(facts, contracts)
        try:
            if isinstance(contracts, FleetExplainer):
                explanation = await contracts.explain_fleet(identity, **facts)
            else:
                explanation = contracts.explain(identity, **facts)
            return json_response(table_of_explanation(explanation))
        except MissingFact as error:
            advice = f"which the request does not name; add ?{error.fact}=..."
            raise Problem(400, str(MissingFact(error.limit, error.fact, advice)), parameter=error.fact) from None
        except InvalidKey as error:
            raise Problem(422, str(error)) from None

    async def reset_customer(
        self,
        identity: InPath,
        said: Annotated[parts.Reset | None, Body(examples=[parts.EXAMPLES["Reset"]])] = None,
    ) -> Response:
        """Forget what a customer has used of its own limits."""
        contracts = self._contracts
        assert contracts is not None  # the route is not there without
        try:
            if isinstance(contracts, Contracts):
                await contracts.meet(identity)
            contracts.reset(identity, **({} if said is None else said.facts))
        except (InvalidKey, NeedsSlot) as error:
            raise Problem(422, str(error)) from None
        return Response(status_code=204)

    async def forget_customer(self, identity: InPath, author: Author) -> Response:
        """Erase a customer from the contracts and all their versions, and with them in force what it has used.

        It is erased on all nodes and at the hub. This cannot be undone.
        """
        version = await self._book.forget(identity, author=author)
        if version is None:
            version, _ = await self._book.read()
        contracts: object = self._contracts
        done = USE_STAYS
        if isinstance(contracts, CustomerEraser):
            try:
                done = await contracts.forget(identity)
            except InvalidKey as error:
                raise Problem(422, str(error)) from None
        return json_response({"version": version, "complete": done.complete, **asdict(done)}, version)

    async def read_status(self) -> Response:
        """Which contracts this node obeys, and what it has refused to obey."""
        contracts = self._contracts
        reader = contracts.reader if isinstance(contracts, Contracts) else None
        stats = ContractsStats() if reader is None else reader.stats()
        return json_response(
            {
                "version": contracts.version if isinstance(contracts, Contracts) else None,
                "follows": reader is not None,
                "accepted": stats.accepted,
                "rejected": stats.rejected,
                "failures": stats.failures,
                "expires_in_s": stats.expires_in if isfinite(stats.expires_in) else None,
                "restored": stats.restored,
            }
        )
