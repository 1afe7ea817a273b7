"""A vocabulary for tests of contracts that a hub keeps."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from random import Random
from typing import Any, Final

from reconverge import Agent
from reconverge.clock import SECOND_NS, Clock, ManualClock
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.model import Document
from reconverge.contracts.on_demand.page_fetching import PagesOnDemand
from reconverge.contracts.store.hub_book import HubBook
from reconverge.contracts.store.index import INDEX
from reconverge.contracts.store.kept_file import KeptFile
from reconverge.contracts.store.reader import ContractsReader
from reconverge.published.envelope import Secrets, Verifier
from tests.support.published import NOON, SECRET

PLANS: Final[dict[str, Any]] = {
    "unknown": "free",
    "plans": {
        "free": {"limits": {"calls": "50/second"}},
        "pro": {"limits": {"calls": "1000/second", "reports": "10/hour"}},
        "bucket": {"limits": {"calls": {"limit": "100/minute", "algorithm": "token-bucket"}}},
    },
}
INTERVAL_S: Final = 0.1


def shop(**customers: Any) -> dict[str, Any]:
    """Returns a document of three plans, and these customers."""
    return {**copy.deepcopy(PLANS), "customers": customers}


def many(customers: int, *, plans: int = 20) -> dict[str, Any]:
    """Returns a document of many customers on several plans; every tenth customer has a limit of its own."""
    return {
        "unknown": "plan-0",
        "plans": {f"plan-{number}": {"limits": {"calls": f"{100 + number}/minute"}} for number in range(plans)},
        "customers": {
            f"customer-{number:06d}": {
                "plan": f"plan-{number % plans}",
                **({"limits": {"calls": f"{1000 + number}/minute"}} if number % 10 == 0 else {}),
            }
            for number in range(customers)
        },
    }


def book_at(hub: Any, clock: Clock | None = None, **said: Any) -> HubBook:
    """Opens the book of the namespace `shop`."""
    settings: dict[str, Any] = {"namespace": "shop", "secrets": Secrets(SECRET), "clock": clock}
    return HubBook(hub, **(settings | said))


class DecidingNode:
    """A reader on a test's clock, whose pages come on demand, and its contracts in force."""

    def __init__(self, hub: Any, clock: ManualClock, *, file: KeptFile | None = None, **demand: Any) -> None:
        self.hub = hub
        self.clock = clock
        self.wakes = 0
        self.contracts = Contracts(Agent("memory://", clock=clock), PLANS)
        self.demand = PagesOnDemand(self.contracts, clock, wake=self._wake, **demand)
        self.reader = ContractsReader(
            Verifier(INDEX, "shop", Secrets(SECRET)),
            clock,
            interval_ns=lambda: round(INTERVAL_S * SECOND_NS),
            apply=lambda version, document: self.contracts.replace(document, version),
            file=file,
            on_demand=self.demand,
            on_demand_from=1,
            random=Random(1),
        )
        self.reader.recall()

    def _wake(self) -> None:
        self.wakes += 1

    def interval(self, seconds: float = INTERVAL_S) -> None:
        """Lets an interval pass, and does all that is due."""
        self.clock.advance(seconds)
        self.go_on()

    def go_on(self) -> None:
        """Does all that is due now."""
        if self.reader.due_ns() <= self.clock.monotonic_ns():
            asyncio.run(self.reader.follow(self.hub, cut_off=False, timeout_s=5.0))

    def admitted(self, customer: str, times: int) -> int:
        return sum(self.contracts.hit(customer).allowed for _ in range(times))

    def plan_of(self, customer: str) -> str:
        return self.contracts.test(customer).plan

    @property
    def held(self) -> set[int]:
        return set(self.demand.held)


class PageReader:
    """A reader on a test's clock, with the changes that it has reported."""

    def __init__(
        self,
        hub: Any,
        clock: ManualClock | None = None,
        *,
        minimum: int = 0,
        secret: str = SECRET,
        file: KeptFile | None = None,
        apply: Callable[[int, Document], None] | None = None,
    ) -> None:
        self.hub = hub
        self.clock = clock or ManualClock(start=NOON)
        self.told: list[tuple[int, Document]] = []
        self.reader = ContractsReader(
            Verifier(INDEX, "shop", Secrets(secret), minimum=minimum),
            self.clock,
            interval_ns=lambda: round(INTERVAL_S * SECOND_NS),
            apply=apply or (lambda version, document: self.told.append((version, document))),
            file=file,
            random=Random(1),
        )
        self.reader.recall()

    def interval(self, seconds: float = INTERVAL_S, *, cut_off: bool = False) -> None:
        """Lets an interval pass, and does all that is due."""
        self.clock.advance(seconds)
        if self.reader.due_ns() <= self.clock.monotonic_ns():
            asyncio.run(self.reader.follow(self.hub, cut_off=cut_off, timeout_s=5.0))

    @property
    def versions(self) -> list[int]:
        """Returns the versions that it has reported, in order."""
        return [version for version, _ in self.told]

    @property
    def customers(self) -> dict[str, str]:
        """Returns the plan of each customer, as far as the reader knows."""
        return {identity: each.plan for identity, each in self.reader.document.customers.items()}
