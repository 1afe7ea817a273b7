"""The contracts API: an ASGI application, to be mounted, that reads and changes contracts over HTTP.

app = contracts_api(book, tokens=["console: ..., write"], contracts=contracts)
"""

# Theory of operation.
#
# The API is a thin layer around a `Book`, the store of the contracts. It reads a request strictly (`reading.py`),
# checks that its token allows the operation (`tokens.py`), calls the book once, and returns the book's answer. The API
# stores no contracts itself, so any number of workers may serve it, and each worker reads what another has changed.
#
# FastAPI routes requests, reads their parameters, and generates the OpenAPI document. FastAPI makes some checks too
# late or too leniently, so `door.py` makes these first: a body is read only for a client with a token, and only up to
# its maximal length; and it is checked in a thread, because the event loop belongs to the application as well.
#
# Every failure has a response: for a mistake in a request, one that names its place; for a failure of the hub, 503; for
# a bug, 500 without any detail, which the server logs instead.

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
from reconverge.contracts.store.reader import ContractsStats
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
"""The version of the API, which rises when a change requires clients to change, too."""
PAGE: Final = 100
PAGE_MAX: Final = 1000
"""The most contracts on one page of the list; a contract usually has a kilobyte or less."""
CHANGES: Final = 20
CHANGES_MAX: Final = 200
"""The most changes in one response about history; a change of the whole document contains the document twice."""
CONTRACT_BYTES_MAX: Final = 256 * 1024
"""The longest body with one contract, in bytes. The longest valid contract, which has as many former limits as are
allowed, has a fifth of that."""
DOCUMENT_BYTES_MAX: Final = 2 * 1024 * 1024
"""The longest body with a document, in bytes: about thirty thousand customers. Its check occupies a thread for a second
or two."""
SMALL_BYTES_MAX: Final = 64 * 1024
"""The longest body with a version or with facts, in bytes."""
USE_STAYS: Final = Forgotten(
    0, 0, 0, "the use is kept, because this API has no contracts in force: erase it with `reconverge forget`"
)
"""The answer to a request to erase a customer if the API has no `Contracts`. Then it has no agent, which could erase
the customer's use (its counts)."""


@runtime_checkable
class CustomerEraser(Protocol):
    """Erases the use of a customer on all nodes; `reconverge.contracts.contracts.Contracts` implements it."""

    async def forget(self, customer: str) -> Forgotten:
        """Erases the use of a customer, as `Contracts.forget` does, and returns how much was erased.

        Raises HubUnavailable, and InvalidKey if the name cannot be a key.
        """
        ...


def contracts_api(
    book: Book,
    *,
    tokens: Tokens | None = None,
    contracts: Explainer | None = None,
    open: bool = False,  # noqa: A002  # the setting's name
    clock: Clock | None = None,
) -> FastAPI:
    """Makes the application that serves a fleet's contracts over HTTP; mount it under any prefix.

    Args:
        book: where the contracts are stored.
        tokens: the secrets that programs send: a mapping of tokens to "read" or "write", or a list of `Token` or of
            text as "name: token, role". The history of changes shows the names. A token has 16 bytes or more.
        contracts: the contracts in force on this node. With them the API has routes that explain how much customers
            have used, and that reset this use.
        open: whether all clients may read and write, without tokens.
        clock: the time by which repeated log messages are limited.

    Raises:
        InvalidSetting: a token is invalid; or there is neither a token nor `open`, or both; or `book` or `contracts`
            lacks a method that the API needs.
    """
    table = TokenTable(tokens, is_open=open)
    if not isinstance(book, Book):
        raise InvalidSetting("book", book, "is not a Book; give the store of the contracts, such as a MemoryBook")
    if contracts is not None and not isinstance(contracts, Explainer):
        raise InvalidSetting("contracts", contracts, "lacks the methods `explain` and `reset`; give a Contracts object")
    app = FastAPI(
        title="Contracts",
        description="What customers may use: plans, contracts, their history, and the present use of a customer.",
        version=API_VERSION,
        openapi_url=None,  # it is served by a route of our own
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
    """The operations of the API: they read and change the book (the store of contracts), and explain customers' use."""

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
        """The version that was listed last, with its customers' identities in order, for further pages of the list."""

    def routes(self) -> list[DoorRoute]:
        """Returns the API's operations, each with its path."""
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

    async def list_contracts(
        self, conditions: OnCondition, limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = PAGE, after: InQuery = None
    ) -> Response:
        """Returns one page of the customers' contracts, in order of their identities."""
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
        """Returns the contract of one customer."""
        version, document = await self._read(conditions, identity)
        if identity not in document.customers:
            raise no_contract(identity)
        if conditions.is_known(version):
            return unchanged(version)
        return json_response(table_of_customer(document.customers[identity]), version)

    async def list_plans(self, conditions: OnCondition) -> Response:
        """Returns all plans."""
        version, document = await self._read(conditions)
        if conditions.is_known(version):
            return unchanged(version)

        def write() -> bytes:
            plans = table_of(Document(document.plans, unknown=document.unknown))["plans"]
            return in_json({"version": version, "unknown": document.unknown, "plans": plans})

        return bytes_response(await self._door.work.written("plans", version, write), version)

    async def read_document(self, conditions: OnCondition) -> Response:
        """Returns the whole document."""
        version, document = await self._read(conditions)
        if conditions.is_known(version):
            return unchanged(version)
        work = self._door.work
        return bytes_response(await work.written("document", version, lambda: in_json(table_of(document))), version)

    async def read_history(
        self, most: Annotated[int, Query(ge=1, le=CHANGES_MAX)] = CHANGES, identity: InQuery = None
    ) -> Response:
        """Returns the last changes, the newest first, of one customer or of all."""
        changes = await self._book.history(most=most, identity=identity)
        return await self._door.work.do(lambda: json_response({"changes": [table_of_change(each) for each in changes]}))

    async def read_openapi(self, request: Request) -> Response:
        """Returns this OpenAPI document."""
        server = request.scope.get("root_path") or "/"
        return json_response(openapi_of(self._app, server=server, is_open=self._is_open))

    async def _read(
        self, conditions: Conditions, identity: str | None = None, *, reads: bool = True
    ) -> tuple[int, Document]:
        """Returns the version and the contracts. Raises Problem (412) if `conditions` exclude that version.

        With `identity`, the conditions are about that customer's contract. `reads` means that the request only reads
        the contracts; then it is no error if If-None-Match names the present version.
        """
        version, document = await self._book.read()
        exists = identity is None or identity in document.customers
        conditions.check_match(version, exists=exists, reads=reads)
        return version, document

    async def write_contract(
        self,
        identity: InPath,
        author: Author,
        conditions: OnCondition,
        said: Annotated[SkipValidation[written.Contract], Body(examples=[parts.EXAMPLES["Contract"]])],
    ) -> Response:
        """Gives a customer the contract in the body, which may be the name of a plan alone."""
        version, document = await self._read(conditions, identity, reads=False)
        expected = version if conditions.are_there else None
        after = await self._book.set_customer(identity, said, author=author, expected=expected)
        return changed(after, 200 if identity in document.customers else 201)

    async def end_contract(self, identity: InPath, author: Author, conditions: OnCondition) -> Response:
        """Ends the contract of one customer."""
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
        """Replaces the whole document by the document in the body."""
        expected = None
        if conditions.are_there:
            expected, _ = await self._read(conditions, reads=False)
        after = await self._changes.alone(lambda: self._book.replace(said, author=author, expected=expected))
        return changed(after)

    async def rollback(
        self, author: Author, to: Annotated[parts.Rollback, Body(examples=[parts.EXAMPLES["Rollback"]])]
    ) -> Response:
        """Restores the contracts of an earlier version, under a new version number."""
        try:
            return changed(await self._changes.alone(lambda: self._book.rollback(to.version, author=author)))
        except LookupError:
            raise wrong_field(
                404, f"version {to.version} is unknown or not kept any more; see GET /history", ("version",)
            ) from None
        except InvalidContracts as error:  # about the document of that version, and not about the body
            raise Problem(422, str(error)) from None

    async def explain_customer(self, identity: InPath, request: Request) -> Response:
        """Returns whether a customer is admitted now, why not, and when. Facts of the request are query parameters."""
        contracts = self._contracts
        assert contracts is not None  # the route does not exist otherwise
        facts = facts_in(request)
        check_facts(facts, contracts)
        try:
            if isinstance(contracts, FleetExplainer):
                explanation = await contracts.explain_fleet(identity, **facts)
            else:
                explanation = contracts.explain(identity, **facts)
            return json_response(table_of_explanation(explanation))
        except MissingFact as error:
            advice = f"which the request does not give; add ?{error.fact}=..."
            raise Problem(400, str(MissingFact(error.limit, error.fact, advice)), parameter=error.fact) from None
        except InvalidKey as error:
            raise Problem(422, str(error)) from None

    async def reset_customer(
        self,
        identity: InPath,
        said: Annotated[parts.Reset | None, Body(examples=[parts.EXAMPLES["Reset"]])] = None,
    ) -> Response:
        """Resets the use of a customer.

        Of a limit that counts by further facts, only the use under the facts in the body is reset.
        """
        contracts = self._contracts
        assert contracts is not None  # the route does not exist otherwise
        try:
            if isinstance(contracts, Contracts):
                await contracts.meet(identity)
            contracts.reset(identity, **({} if said is None else said.facts))
        except (InvalidKey, NeedsSlot) as error:
            raise Problem(422, str(error)) from None
        return Response(status_code=204)

    async def forget_customer(self, identity: InPath, author: Author) -> Response:
        """Erases a customer from all versions of the contracts, and its use, if this API has contracts in force.

        The use is erased on all nodes and at the hub. This cannot be undone.
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
        """Returns the version of the contracts in force on this node, and counts of accepted and rejected versions."""
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
