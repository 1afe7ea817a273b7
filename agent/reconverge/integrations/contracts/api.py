"""An API over HTTP for reading and changing contracts, as an ASGI application to be mounted.

app = contracts_api(book, tokens=["console: ..., write"], contracts=contracts)
"""

# Theory of operation.
#
# The API is a thin shell around a `Book`: it reads a request strictly (`reading.py`), finds out whether its token may
# do that (`tokens.py`), calls the book once, and writes down what the book has answered. It holds no contracts of its
# own, so any number of workers may serve it, and what one changes the others read.
#
# No request ends in an error of the server. A mistake in a request is answered with its place, a failure of the
# hub as 503, and a bug as 500 without a word of the inside, while the server logs it.
#
# Identities of customers may have slashes, line feeds and all else that text has. So paths are not matched by the
# patterns of a framework, which stop at some of these: what comes after `/contracts/` is the identity.

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, Final, Protocol, runtime_checkable

from reconverge.agent.erasing import Forgotten
from reconverge.clock import SECOND_NS, Clock, SystemClock
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.document import (
    CUSTOMER,
    Document,
    InvalidContracts,
    check_identity,
    table_of,
    table_of_customer,
)
from reconverge.contracts.explaining import (
    Explainer,
    FleetExplainer,
    MissingFact,
    table_of_explanation,
)
from reconverge.contracts.store.book import Book, VersionConflict
from reconverge.contracts.store.stats import ContractsStats
from reconverge.errors import HubUnavailable, InvalidKey, InvalidSetting, MissingExtra, NeedsSlot, ReconvergeError
from reconverge.errors import asked as meant
from reconverge.integrations.contracts.every_path import EveryPath
from reconverge.integrations.contracts.long_work import LongWork
from reconverge.integrations.contracts.openapi import (
    CHANGES,
    CHANGES_MAX,
    PAGE,
    PAGE_MAX,
    Operation,
    openapi_document,
    served,
)
from reconverge.integrations.contracts.problems import (
    RETRY_AFTER_S,
    Problem,
    of_contracts,
    response_of,
    wrong_field,
)
from reconverge.integrations.contracts.reading import (
    Conditions,
    conditions_of,
    facts_in_body,
    facts_in_query,
    json_of,
    members_of,
    query_of,
    route_path,
    tag_of,
    whole_number,
)
from reconverge.integrations.contracts.schemas import VERSION_MAX
from reconverge.integrations.contracts.tokens import Tokens, TokenTable
from reconverge.integrations.contracts.writing import (
    changed,
    no_contract,
    table_of_change,
    told,
    told_bytes,
    unchanged,
    written,
)
from reconverge.runtime.log_throttle import LogThrottle

try:
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
except ModuleNotFoundError as error:
    raise MissingExtra("the API of contracts", error.name or "starlette", "api") from error

logger = logging.getLogger("reconverge")

PRIVATE: Final = {"Cache-Control": "private, no-cache", "X-Content-Type-Options": "nosniff"}
"""Of every response: caches ask each time whether the version is still the same, and no browser guesses at types."""
QUIET_NS: Final = 60 * SECOND_NS
"""A hub that is away is logged once in so long, however many requests find it so."""
UNUSABLE: Final = "unusable"
"""The kind of a failure of a book that is none of reaching its hub."""
_ONE: Final = "/contracts/"
_CUSTOMER: Final = "/customers/"


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


@dataclass(frozen=True, slots=True)
class _ApiQuestion:
    """A request, as far as it is read without its body."""

    request: Request
    operation: Operation
    identity: str
    """Of the customer that its path names; empty if it names none."""
    query: dict[str, str]
    conditions: Conditions
    author: str
    """The name of the token."""
    work: LongWork

    async def body(self) -> Any:
        """The body as JSON. Raises Problem."""
        operation = self.operation
        return await json_of(
            self.request, bytes_max=operation.bytes_max, required=operation.body_required, do=self.work.do
        )


def contracts_api(
    book: Book,
    *,
    tokens: Tokens | None = None,
    contracts: Explainer | None = None,
    open: bool = False,  # noqa: A002  # the word of the setting
    clock: Clock | None = None,
) -> Starlette:
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
        raise InvalidSetting("book", book, "is no Book; give what keeps the contracts, such as a MemoryBook")
    if contracts is not None and not isinstance(contracts, Explainer):
        raise InvalidSetting("contracts", contracts, "explains no customers; it needs `explain` and `reset`")
    api = _Api(book, table, contracts, is_open=open, clock=clock or SystemClock())
    return Starlette(routes=[EveryPath(api.answer, PRIVATE)], exception_handlers={Exception: _failed})


class _Api:
    """Answers requests out of a book, and of contracts in force."""

    def __init__(
        self, book: Book, tokens: TokenTable, contracts: Explainer | None, *, is_open: bool, clock: Clock
    ) -> None:
        self._book = book
        self._tokens = tokens
        self._contracts = contracts
        self._is_open = is_open
        self._clock = clock
        self._log = LogThrottle(1, within_ns=QUIET_NS)
        self._work, self._changes = LongWork(), LongWork()
        self._sorted: tuple[int, list[str]] = (0, [])
        """The identities of one version in order, for pages of that version."""
        self._paths: dict[str, dict[str, Operation]] = {}
        for operation in served(explains=contracts is not None):
            self._paths.setdefault(operation.path, {})[operation.method] = operation

    async def answer(self, request: Request) -> Response:
        """Answer any request."""
        try:
            return await self._served(request)
        except Problem as problem:
            return response_of(problem)
        except HubUnavailable as error:
            changes = request.method not in ("GET", "HEAD")
            return response_of(self._unavailable(error, error.kind, applied=error.applied if changes else False))
        except ReconvergeError as error:  # such as contracts at the hub that are signed with another secret
            return response_of(self._unavailable(error, UNUSABLE, applied=False))
        except ClientDisconnect:
            return Response(status_code=400)  # it goes nowhere

    async def _served(self, request: Request) -> Response:
        operation, identity = self._found(request)
        author = self._tokens.name_of(request.headers.getlist("authorization"), operation.role)
        query = query_of(request, operation.query)
        conditions = conditions_of(request)
        if conditions.are_there and not operation.versioned:
            raise Problem(400, f"{operation.method} {operation.path} takes no If-Match and no If-None-Match")
        if identity:
            _check_identity(identity, 422)
        asked = _ApiQuestion(request, operation, identity, query, conditions, author, self._work)
        serve: Callable[[_ApiQuestion], Awaitable[Response]] = getattr(self, operation.name)
        try:
            return await serve(asked)
        except InvalidContracts as error:
            if operation.name == "rollback":  # it is about the document of a former version, not about the body
                raise Problem(422, str(error)) from None
            raise of_contracts(error, identity or None) from None
        except VersionConflict as error:
            status = 412 if conditions.are_there else 409
            fields = {"ETag": tag_of(error.found)} if status == 412 else {}
            raise Problem(status, str(error), fields=fields, version=error.found) from None

    def _found(self, request: Request) -> tuple[Operation, str]:
        """The operation that a request asks for, and the identity in its path. Raises Problem."""
        template, identity = _template(route_path(request.scope))
        methods = self._paths.get(template)
        if methods is None:
            raise Problem(404, "there is nothing at this path; GET /openapi.json tells what there is")
        operation = methods.get("GET" if request.method == "HEAD" else request.method)
        if operation is None:
            allowed = ", ".join([*methods, *(["HEAD"] if "GET" in methods else [])])
            raise Problem(405, f"this path takes {allowed}", fields={"Allow": allowed})
        return operation, identity

    def _unavailable(self, error: ReconvergeError, kind: str, *, applied: bool | None) -> Problem:
        """Answers for a hub that fails: the kind of failure alone, as the rest may name hosts and users."""
        now_ns = self._clock.monotonic_ns()
        if self._log.allows(now_ns):
            self._log.note(now_ns)
            logger.warning("reconverge: the API of contracts cannot use what its hub has: %s", error)
        became = {None: "it is not known whether the change was made", True: "the change was made"}
        return Problem(
            503,
            f"the contracts cannot be reached at their hub ({kind}); {became.get(applied, 'nothing has changed')}",
            fields={"Retry-After": str(RETRY_AFTER_S)},
            kind=kind,
            applied=applied,
        )

    # ------------------------------------------------------------ reading

    async def list_contracts(self, asked: _ApiQuestion) -> Response:
        """GET /contracts."""
        most = whole_number(asked.query, "limit", default=PAGE, most=PAGE_MAX)
        after = asked.query.get("after", "")
        if "after" in asked.query:
            _check_identity(after, 400, "after")
        version, document = await self._read(asked)
        if asked.conditions.is_known(version):
            return unchanged(version)
        return await self._work.do(lambda: self._page(version, document, after, most))

    def _page(self, version: int, document: Document, after: str, most: int) -> Response:
        if self._sorted[0] != version:
            self._sorted = version, sorted(document.customers)
        order = self._sorted[1]
        start = bisect_right(order, after)
        page = order[start : start + most]
        said = [{"identity": each, "contract": table_of_customer(document.customers[each])} for each in page]
        following = page[-1] if page and start + most < len(order) else None
        return told({"version": version, "contracts": said, "next": following}, version)

    async def read_contract(self, asked: _ApiQuestion) -> Response:
        """GET /contracts/{identity}."""
        version, document = await self._read(asked, asked.identity)
        if asked.identity not in document.customers:
            raise no_contract(asked.identity)
        if asked.conditions.is_known(version):
            return unchanged(version)
        return told(table_of_customer(document.customers[asked.identity]), version)

    async def list_plans(self, asked: _ApiQuestion) -> Response:
        """GET /plans."""
        version, document = await self._read(asked)
        if asked.conditions.is_known(version):
            return unchanged(version)

        def write() -> bytes:
            plans = table_of(Document(document.plans, unknown=document.unknown))["plans"]
            return written({"version": version, "unknown": document.unknown, "plans": plans})

        return told_bytes(await self._work.written("plans", version, write), version)

    async def read_document(self, asked: _ApiQuestion) -> Response:
        """GET /document."""
        version, document = await self._read(asked)
        if asked.conditions.is_known(version):
            return unchanged(version)
        return told_bytes(await self._work.written("document", version, lambda: written(table_of(document))), version)

    async def read_history(self, asked: _ApiQuestion) -> Response:
        """GET /history."""
        most = whole_number(asked.query, "most", default=CHANGES, most=CHANGES_MAX)
        identity = asked.query.get("identity")
        if identity is not None:
            _check_identity(identity, 400, "identity")
        changes = await self._book.history(most=most, identity=identity)
        return await self._work.do(lambda: told({"changes": [table_of_change(each) for each in changes]}))

    async def read_openapi(self, asked: _ApiQuestion) -> Response:
        """GET /openapi.json."""
        server = asked.request.scope.get("root_path") or "/"
        return told(openapi_document(server=server, explains=self._contracts is not None, is_open=self._is_open))

    async def _read(self, asked: _ApiQuestion, identity: str | None = None) -> tuple[int, Document]:
        """The contracts as they are, for a request that is meant for this version. Raises Problem (412)."""
        version, document = await self._book.read()
        exists = identity is None or identity in document.customers
        asked.conditions.check_match(version, exists=exists, reads=asked.operation.role == "read")
        return version, document

    # ------------------------------------------------------------ changing

    async def write_contract(self, asked: _ApiQuestion) -> Response:
        """PUT /contracts/{identity}."""
        said = await asked.body()
        if said is None:  # to a book, this would end the contract
            raise wrong_field(422, "must be a contract, or the name of a plan; DELETE ends a contract", ())
        version, document = await self._read(asked, asked.identity)
        expected = version if asked.conditions.are_there else None
        after = await self._book.set_customer(asked.identity, said, author=asked.author, expected=expected)
        return changed(after, 200 if asked.identity in document.customers else 201)

    async def end_contract(self, asked: _ApiQuestion) -> Response:
        """DELETE /contracts/{identity}."""
        version, document = await self._read(asked, asked.identity)
        if asked.identity not in document.customers:
            raise no_contract(asked.identity)
        expected = version if asked.conditions.are_there else None
        return changed(await self._book.set_customer(asked.identity, None, author=asked.author, expected=expected))

    async def write_document(self, asked: _ApiQuestion) -> Response:
        """PUT /document."""
        said = await asked.body()
        expected = None
        if asked.conditions.are_there:
            expected, _ = await self._read(asked)
        after = await self._changes.alone(lambda: self._book.replace(said, author=asked.author, expected=expected))
        return changed(after)

    async def rollback(self, asked: _ApiQuestion) -> Response:
        """POST /rollback."""
        version = members_of(await asked.body(), "version").get("version")
        if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= VERSION_MAX:
            raise wrong_field(422, "must be the number of a version, as history has it", ("version",))
        try:
            return changed(await self._changes.alone(lambda: self._book.rollback(version, author=asked.author)))
        except LookupError:
            raise wrong_field(404, f"version {version} is not kept, or not any more", ("version",)) from None

    # ------------------------------------------------------------ how customers stand

    async def explain_customer(self, asked: _ApiQuestion) -> Response:
        """GET /customers/{identity}/explain."""
        assert self._contracts is not None  # the operation is not served without
        facts = facts_in_query(asked.query)
        contracts = self._contracts
        _check_facts(facts, contracts)
        try:
            if isinstance(contracts, FleetExplainer):
                explanation = await contracts.explain_fleet(asked.identity, **facts)
            else:
                explanation = contracts.explain(asked.identity, **facts)
            return told(table_of_explanation(explanation))
        except MissingFact as error:
            advice = f"which the request does not name; add ?{error.fact}=..."
            raise Problem(400, str(MissingFact(error.limit, error.fact, advice)), parameter=error.fact) from None
        except InvalidKey as error:
            raise Problem(422, str(error)) from None

    async def reset_customer(self, asked: _ApiQuestion) -> Response:
        """POST /customers/{identity}/reset."""
        assert self._contracts is not None  # the operation is not served without
        facts = facts_in_body(await asked.body())
        try:
            if isinstance(self._contracts, Contracts):
                await self._contracts.meet(asked.identity)
            self._contracts.reset(asked.identity, **facts)
        except (InvalidKey, NeedsSlot) as error:
            raise Problem(422, str(error)) from None
        return Response(status_code=204)

    async def forget_customer(self, asked: _ApiQuestion) -> Response:
        """POST /customers/{identity}/forget."""
        version = await self._book.forget(asked.identity, author=asked.author)
        if version is None:
            version, _ = await self._book.read()
        contracts: object = self._contracts
        done = USE_STAYS
        if isinstance(contracts, CustomerEraser):
            try:
                done = await contracts.forget(asked.identity)
            except InvalidKey as error:
                raise Problem(422, str(error)) from None
        return told({"version": version, "complete": done.complete, **asdict(done)}, version)

    async def read_status(self, _asked: _ApiQuestion) -> Response:
        """GET /status."""
        contracts = self._contracts
        reader = contracts.reader if isinstance(contracts, Contracts) else None
        stats = ContractsStats() if reader is None else reader.stats()
        expires_in_s = stats.expires_in if isfinite(stats.expires_in) else None
        return told(
            {
                "version": contracts.version if isinstance(contracts, Contracts) else None,
                "follows": reader is not None,
                "accepted": stats.accepted,
                "rejected": stats.rejected,
                "failures": stats.failures,
                "expires_in_s": expires_in_s,
                "restored": stats.restored,
            }
        )


def _template(path: str) -> tuple[str, str]:
    """The path of an operation that a request's path is an instance of, and the identity in it."""
    if path.startswith(_ONE) and path != _ONE:
        return f"{_ONE}{{identity}}", path[len(_ONE) :]
    if path.startswith(_CUSTOMER):
        identity, _, last = path[len(_CUSTOMER) :].rpartition("/")
        if identity:
            return f"{_CUSTOMER}{{identity}}/{last}", identity
    return path, ""


def _check_identity(identity: str, status: int, parameter: str | None = None) -> None:
    """Raise Problem if a customer cannot be called so."""
    try:
        check_identity(identity)
    except InvalidContracts as error:
        members: dict[str, Any] = {"parameter": parameter} if parameter else {}
        raise Problem(status, error.problem, **members) from None


def _check_facts(facts: Mapping[str, str], contracts: Explainer) -> None:
    """Raise Problem (400) for a fact by which no limit of any plan counts: its name may be misspelt."""
    if not facts or not isinstance(contracts, Contracts):
        return
    limits = [limit for plan in contracts.document.plans.values() for limit in plan.limits.values()]
    known = sorted({fact for limit in limits for fact in limit.by if fact != CUSTOMER})
    for name in facts:
        if name not in known:
            told_known = (
                f"those that limits count by: {', '.join(known)}" if known else "they count by the customer alone"
            )
            problem = f"no limit counts by {name!r}; {told_known}{meant(name, known)}"
            raise Problem(400, problem, parameter=name)


async def _failed(_request: Request, _error: Exception) -> Response:
    """Answers a bug with status 500."""
    return response_of(Problem(500, "this is a bug of the server, which has logged it"))
