"""Contracts for tests: a book in memory, contracts in force on one node, and clients of the API."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import httpx

from reconverge import Agent, RateLimiter
from reconverge.clock import SECOND_NS
from reconverge.contracts.document import checked
from reconverge.contracts.explaining import Explanation, LimitStanding, MissingFact, explained
from reconverge.contracts.model import Document
from reconverge.contracts.store.book import Change
from reconverge.contracts.store.memory_book import MemoryBook
from reconverge.contracts.terms import Term, terms_of
from reconverge.contracts.writing import table_of
from reconverge.testing import ManualClock

WRITER: Final = "writer-secret-of-the-tests"
READER: Final = "reader-secret-of-the-tests"
NOW_S: Final = 0.0
"""A moment at which no contract of these tests begins or ends."""
TOKENS: Final = (f"console: {WRITER}, write", f"portal: {READER}, read")
TABLE: Final[dict[str, Any]] = {
    "unknown": "free",
    "plans": {
        "free": {"limits": {"burst": "50/second", "daily": "1000/day"}},
        "pro": {"limits": {"burst": "500/second", "by-user": {"limit": "5/minute", "by": ["customer", "user"]}}},
    },
    "customers": {
        "acme": {"plan": "free", "limits": {"burst": "60/second"}, "note": "since 2019"},
        "globex/eu": {"plan": "pro"},
    },
}
"""Contracts with two plans, an override, a limit by user, and an identity with a slash."""


class FilledBook(MemoryBook):
    """A book in memory whose first version the test has made. Its time is handed in."""

    def __init__(self, clock: ManualClock, table: Any = None) -> None:
        super().__init__(clock=clock)
        if table is not None:
            document = checked(table)
            self._become(document, Change(0, "the test", clock.wall_ns() / SECOND_NS, None, None, table_of(document)))


class LocalContracts:
    """Contracts in force in one process, with a limiter for each limit of each plan, and no hub."""

    def __init__(self, agent: Agent, document: Document) -> None:
        self._agent = agent
        self._document = document

    def hit(self, customer: str, times: int = 1, /, **facts: str) -> None:
        """Charges every limit of a customer, even if one refuses."""
        for limiter, _, key in self._asked(customer, facts):
            for _ in range(times):
                limiter.hit(key)

    def explain(self, customer: str, **facts: str) -> Explanation:
        standings = [
            LimitStanding(term, limiter.test(key), limiter.usage(key))
            for limiter, term, key in self._asked(customer, facts)
        ]
        return explained(customer, self._plan(customer), standings)

    def reset(self, customer: str, **facts: str) -> None:
        for limiter, _, key in self._asked(customer, facts, lenient=True):
            limiter.reset(key)

    def _plan(self, customer: str) -> str:
        return terms_of(self._document, customer, NOW_S).plan

    def _asked(
        self, customer: str, facts: dict[str, str], *, lenient: bool = False
    ) -> list[tuple[RateLimiter, Term, str]]:
        """Yields each limit with its limiter and its key; with `lenient`, without those that count by missing facts."""
        asked = []
        known = {"customer": customer, **facts}
        for term in terms_of(self._document, customer, NOW_S).terms:
            missing = [fact for fact in term.by if fact not in known]
            if missing and not lenient:
                raise MissingFact(term.name, missing[0])
            if not missing:
                name = f"{term.name}.{term.tier}.{term.limit.quota}"
                asked.append((self._agent.limit(name, term.limit), term, "|".join(known[fact] for fact in term.by)))
        return asked


class ApiClient:
    """Sends requests to an application in this process, as the API's clients do, and waits for each response."""

    def __init__(self, app: Any, *, token: str | None = WRITER, prefix: str = "") -> None:
        self._app = app
        self._prefix = prefix
        self._fields = {} if token is None else {"Authorization": f"Bearer {token}"}

    def send(self, method: str, path: str, **details: Any) -> httpx.Response:
        """Returns the response to one request; `headers` are added to the token."""
        headers = self._fields | details.pop("headers", {})

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
                return await client.request(method, f"{self._prefix}{path}", headers=headers, **details)

        return asyncio.run(ask())

    def get(self, path: str, **details: Any) -> httpx.Response:
        return self.send("GET", path, **details)

    def put(self, path: str, said: Any, **details: Any) -> httpx.Response:
        return self.send("PUT", path, json=said, **details)

    def post(self, path: str, said: Any = None, **details: Any) -> httpx.Response:
        return self.send("POST", path, **({} if said is None else {"json": said}), **details)

    def delete(self, path: str, **details: Any) -> httpx.Response:
        return self.send("DELETE", path, **details)
