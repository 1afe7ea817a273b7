"""Reads and changes contracts for the console: shows customers' use, predicts changes, and records their authors."""

# Theory of operation.
#
# The console stores no contracts: each request reads them from the hub, and a change goes through the same `HubBook` as
# changes by the command `reconverge contracts` and by the API. A change is made only if the contracts still have the
# version that its author has seen. So if two operators change the same version, the second learns of the first change.
#
# Before a change is made, the same code predicts its effect: the differences in the document, the customer's state at
# this moment by the use on all nodes, and, with a recording of requests, how many of them would be newly refused or
# admitted, as `reconverge contracts plan` reports. No prediction charges anything.
#
# A prediction may take seconds of processor time, so it runs in a thread, for one visitor at a time.

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from reconverge.agent import Agent
from reconverge.clock import SECOND_NS, Clock
from reconverge.contracts.central import CustomerRequest, Shape
from reconverge.contracts.differences import differences
from reconverge.contracts.document import checked
from reconverge.contracts.explaining import MissingFact, table_of_explanation
from reconverge.contracts.fleet import HubExplainer
from reconverge.contracts.model import Document, InvalidContracts
from reconverge.contracts.rehearsal import Effect, Rehearsal, RehearsalOutcome
from reconverge.contracts.store.book import VersionConflict
from reconverge.contracts.store.changing import with_customer, with_document
from reconverge.contracts.store.hub_book import HubBook
from reconverge.contracts.terms import terms_of
from reconverge.contracts.writing import table_of, table_of_customer
from reconverge.errors import HubUnavailable, InvalidKey, ReconvergeError
from reconverge.hub.port import ContractStore, Hub
from reconverge.integrations.contracts.problems import Problem
from reconverge.integrations.contracts.writing import table_of_change
from reconverge.published.envelope import Secrets

T = TypeVar("T")
CUSTOMERS_SHOWN_MAX: Final = 100
CHANGES_SHOWN: Final = 50
DIFFERENCES_SHOWN_MAX: Final = 20
EFFECTS_SHOWN_MAX: Final = 10
RECORDED_MAX: Final = 200_000
"""The most requests of a recording; deciding each of them twice takes some seconds."""
NOT_KEPT: Final = "no contracts are kept at this hub; use a Redis or a broker of MQTT"


@dataclass(frozen=True, slots=True)
class Recording:
    """Recorded requests, in order of time, from which the console predicts the effect of changes to contracts."""

    name: str
    requests: Sequence[CustomerRequest]
    shape: Shape = field(default_factory=Shape)


@dataclass(frozen=True, slots=True)
class ProposedChange:
    """A change that a visitor wants to make or to predict."""

    customer: str | None
    """The customer whose contract changes; None if a plan changes."""
    plan: str | None
    said: Any
    """The new text of the contract or the plan; None ends a contract."""
    version: int
    """The version of the contracts that the visitor has seen."""


class ContractPages:
    """Reads, predicts and makes changes of the contracts at the hub of an agent.

    The methods raise HubUnavailable, UnverifiedDocument, InvalidContracts, and Problem for a result that cannot be
    shown.
    """

    def __init__(self, agent: Agent, secrets: Secrets, clock: Clock, recording: Recording | None) -> None:
        self._agent = agent
        self._secrets = secrets
        self._clock = clock
        self._recording = recording
        self._book: tuple[Hub, HubBook] | None = None
        """The hub, and the `HubBook` of the contracts at this hub, which caches the contracts that it has read."""
        self._predicting = asyncio.Lock()

    async def overview(self, find: str) -> dict[str, Any]:
        """Returns all plans, and the first customers whose names contain the text `find`."""
        version, document = await self._read()
        table = table_of(Document(document.plans, unknown=document.unknown))
        on_plan = Counter(customer.plan for customer in document.customers.values())
        found = sorted(name for name in document.customers if find in name)
        return {
            "version": version,
            "unknown": document.unknown,
            "plans": [
                {"name": name, "limits": _limits_of(said), "customers": on_plan[name]}
                for name, said in table["plans"].items()
            ],
            "customers": [
                {"identity": name, **table_of_customer(document.customers[name])}
                for name in found[:CUSTOMERS_SHOWN_MAX]
            ],
            "found": len(found),
            "all": len(document.customers),
        }

    async def customer(self, identity: str) -> dict[str, Any]:
        """Returns a customer's contract, its present use on all nodes, and all plans."""
        version, document = await self._read()
        table = table_of(Document(document.plans, unknown=document.unknown))
        customer = document.customers.get(identity)
        standing, problem = await self._standing(document, identity, foreseen=False)
        return {
            "version": version,
            "identity": identity,
            "contract": None if customer is None else table_of_customer(customer),
            "unknown": document.unknown,
            "plans": {name: _limits_of(said) for name, said in table["plans"].items()},
            "standing": standing,
            "problem": problem,
        }

    async def own_limits(self, identity: str) -> dict[str, Any]:
        """Returns the limits that count only this customer, with their present use.

        Of the other limits in the contract, for example those that all customers share, only the number is returned.
        """
        _, document = await self._read()
        others = terms_of(document, identity, self._now_s()).terms

        answer = await self._explained(document, identity, own=True)
        return {**answer, "left_out": len(others) - len(answer["limits"])}

    async def plan(self, name: str) -> dict[str, Any]:
        """Returns a plan's limits and its number of customers. Raises Problem (404) for an unknown name."""
        version, document = await self._read()
        said = table_of(Document(document.plans, unknown=document.unknown))["plans"].get(name)
        if said is None:
            raise Problem(
                404,
                f"there is no plan {name[:100]!r} in version {version} of the contracts; check the name",
                parameter="name",
            )
        return {
            "version": version,
            "name": name,
            "said": said,
            "limits": _limits_of(said),
            "customers": sum(each.plan == name for each in document.customers.values()),
        }

    async def history(self) -> list[dict[str, Any]]:
        """Returns the last changes, the newest first, each with its author and its time."""
        return [table_of_change(each) for each in await self._ask(lambda book: book.history(most=CHANGES_SHOWN))]

    async def predict(self, asked: ProposedChange) -> dict[str, Any]:
        """Returns the effect of a change without making it. Raises VersionConflict if the contracts are newer."""
        version, document = await self._read()
        if version != asked.version:
            raise VersionConflict(asked.version, version)
        async with self._predicting:
            candidate = await asyncio.to_thread(_candidate, document, asked, self._now_s())
            found = await asyncio.to_thread(differences, document, candidate)
            outcome, problem = await asyncio.to_thread(self._rehearsed, document, candidate)
        now = then = None
        if asked.customer is not None:
            now, _ = await self._standing(document, asked.customer, foreseen=False)
            then, _ = await self._standing(candidate, asked.customer, foreseen=True)
        on_plan = sum(each.plan == asked.plan for each in document.customers.values())
        return {
            "version": version,
            "differences": list(map(str, found[:DIFFERENCES_SHOWN_MAX])),
            "left_out": max(0, len(found) - DIFFERENCES_SHOWN_MAX),
            "customers": 1 if asked.customer is not None else on_plan,
            "now": None if now is None else now["sentence"],
            "then": None if then is None else then["sentence"],
            "recording": outcome,
            "problem": problem,
        }

    async def change(self, asked: ProposedChange, *, author: str) -> int:
        """Makes a change and returns the contracts' new version. Raises VersionConflict if they are newer already."""
        if asked.customer is not None:
            identity = asked.customer
            return await self._ask(
                lambda book: book.set_customer(identity, asked.said, author=author, expected=asked.version)
            )
        version, document = await self._read()
        if version != asked.version:
            raise VersionConflict(asked.version, version)
        table = await asyncio.to_thread(lambda: table_of(_candidate(document, asked, self._now_s())))
        return await self._ask(lambda book: book.replace(table, author=author, expected=asked.version))

    async def _read(self) -> tuple[int, Document]:
        return await self._ask(lambda book: book.read())

    async def _ask(self, question: Callable[[HubBook], Awaitable[T]]) -> T:
        async def ask(hub: Hub) -> T:
            if not isinstance(hub, ContractStore):
                raise HubUnavailable("unsupported", NOT_KEPT, applied=False)
            if self._book is None or self._book[0] is not hub:
                self._book = hub, HubBook(hub, self._agent.namespace, self._secrets, clock=self._clock)
            return await question(self._book[1])

        try:
            return await self._agent.ask_hub(ask)
        except HubUnavailable as error:
            if error.kind == "unsupported":
                raise Problem(501, NOT_KEPT) from None
            raise

    async def _explained(
        self, document: Document, identity: str, *, own: bool = False, foreseen: bool = False
    ) -> dict[str, Any]:
        async def ask(hub: Hub) -> dict[str, Any]:
            namespace, clock = self._agent.namespace, self._clock
            explainer = HubExplainer(
                hub, "the hub", namespace=namespace, document=document, clock=clock, foreseen=foreseen, own=own
            )
            return table_of_explanation(await explainer.explain(identity))

        return await self._agent.ask_hub(ask)

    async def _standing(
        self, document: Document, identity: str, *, foreseen: bool
    ) -> tuple[dict[str, Any] | None, str]:
        """Returns a customer's use of the limits in `document`, and ""; or None, and a sentence that states the reason.

        `foreseen` means that the contracts in `document` are not in force yet.
        """
        try:
            return await self._explained(document, identity, foreseen=foreseen), ""
        except MissingFact as error:
            return (
                None,
                f"limit {error.limit!r} counts each {error.fact!r} separately, so the customer has no common count",
            )
        except HubUnavailable as error:
            return None, f"the hub did not answer with the use ({error.kind})"
        except InvalidKey as error:
            return None, str(error)

    def _rehearsed(self, document: Document, candidate: Document) -> tuple[dict[str, Any] | None, str]:
        recording = self._recording
        if recording is None:
            return None, ""
        try:
            rehearsal = Rehearsal(document, candidate, recording.shape)
            for request in recording.requests:
                rehearsal.see(request)
        except ReconvergeError as error:
            return None, f"{recording.name} cannot be decided by these contracts: {error}"
        return {"name": recording.name, **_table_of_outcome(rehearsal.outcome())}, ""

    def _now_s(self) -> float:
        return self._clock.wall_ns() / SECOND_NS


def _candidate(document: Document, asked: ProposedChange, now_s: float) -> Document:
    """Returns the contracts in `document` with the change `asked` applied. Raises InvalidContracts."""
    if asked.customer is not None:
        return with_customer(document, asked.customer, asked.said, now_s=now_s)
    table = table_of(document)
    if asked.plan not in table["plans"]:
        raise InvalidContracts(
            f"is not a plan of these contracts; known: {', '.join(table['plans']) or 'none'}", "plans", str(asked.plan)
        )
    table["plans"][asked.plan] = asked.said
    return with_document(document, checked(table), now_s=now_s)


def _limits_of(said: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: each if isinstance(each, str) else str(each.get("limit", "")) for name, each in said["limits"].items()
    }


def _table_of_outcome(outcome: RehearsalOutcome) -> dict[str, Any]:
    return {
        "requests": outcome.requests,
        "customers": outcome.customers,
        "newly_refused": outcome.newly_refused,
        "newly_admitted": outcome.newly_admitted,
        "refused": [_table_of_effect(each) for each in outcome.refused[:EFFECTS_SHOWN_MAX]],
        "admitted": [_table_of_effect(each) for each in outcome.admitted[:EFFECTS_SHOWN_MAX]],
    }


def _table_of_effect(effect: Effect) -> dict[str, Any]:
    return {
        "customer": effect.customer,
        "limits": list(effect.limits),
        "requests": effect.requests,
        "of": effect.asked,
    }
