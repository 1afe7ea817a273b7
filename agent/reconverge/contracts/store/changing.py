"""Makes a change of the contracts: a new document, which lists the limits that it replaces, and its history entry."""

# Theory of operation.
#
# A limit that gets another algorithm or window has new counts, which are empty. So a customer whose plan changes a
# limit from a fixed window to a bucket could use the whole quota twice. To prevent that, the former limit stays in
# force beside the new one for as long as a charge to it may count; it is listed as `former` in the customer's entry. It
# does not matter what has changed: the customer's own limit, its plan, or the limits of the plan that it is on.
#
# A former limit that is over is left out. So is one that shares its counts with a present limit, as after a change that
# was taken back. A limit that the change removes, without a new one of its name, ends at once.
#
# An unknown customer has no entry in which former limits could be listed. So none stay in force when the plan of
# unknown customers changes, or when a customer is removed.

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from reconverge.contracts.document import checked, checked_customer
from reconverge.contracts.model import (
    FORMER_MAX,
    REFUSED,
    Customer,
    Document,
    Former,
    InvalidContracts,
    check_identity,
    counts_for_s,
    is_plain,
)
from reconverge.contracts.store.book import Change
from reconverge.contracts.terms import still_apart, terms_of
from reconverge.contracts.writing import table_of, table_of_customer
from reconverge.errors import ReconvergeError, shown

LISTED_MAX: Final = 20
"""The most customers, and the most plans, that the history entry of a replaced document lists."""
NO_CONTRACTS: Final = Document(plans={})
"""The contracts before the first change: no plans and no customers."""
AUTHOR_LENGTH_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class ChangeNote:
    """The record of a change in the history: the entry of one customer, or what a new document changed.

    `before` and `after` have the customer's entry or, if the whole document was replaced, the parts that differ.
    """

    identity: str | None
    before: Any
    after: Any


def with_formers(before: Document, after: Document, *, now_s: float, identities: Iterable[str]) -> Document:
    """Returns the document `after` a change, in which these customers' contracts also list their former limits.

    A former limit is one that the change has replaced. It stays in force as long as charges to it count. Raises
    InvalidContracts if a customer would have more than FORMER_MAX of them.
    """
    changed: dict[str, Customer] = {}
    by_plans: dict[tuple[str | None, str], tuple[Former, ...]] = {}
    """The former limits of customers that have nothing but a plan, by their plans before and after the change."""
    for identity in identities:
        customer = after.customers.get(identity)
        if customer is None:
            continue
        known = before.customers.get(identity)
        if is_plain(customer) and (known is None or is_plain(known)):
            plans = None if known is None else known.plan, customer.plan
            if plans not in by_plans:
                by_plans[plans] = formers_of(before, after, identity, customer, now_s)
            formers = by_plans[plans]
        else:
            formers = formers_of(before, after, identity, customer, now_s)
        if formers != customer.former:
            changed[identity] = replace(customer, former=formers)
    return replace(after, customers={**after.customers, **changed}) if changed else after


def change_note(before: Document, after: Document, identity: str | None) -> ChangeNote:
    """Returns the record of a change for the history: one customer's entries, or else the differences of two documents.

    `identity` is the customer, or None if the whole document was replaced.
    """
    if identity is not None:
        was, is_ = (
            None if customer is None else table_of_customer(customer)
            for customer in (before.customers.get(identity), after.customers.get(identity))
        )
        return ChangeNote(identity, was, is_)
    differing = _differing(before.customers, after.customers)
    plans = table_of(replace(before, customers={}))["plans"], table_of(replace(after, customers={}))["plans"]
    differing_plans = _differing(*plans)
    tables = [
        {
            **({"unknown": document.unknown} if before.unknown != after.unknown else {}),
            **({"plans": {name: said[name] for name in differing_plans if name in said}} if differing_plans else {}),
            **(
                {
                    "customers": {
                        each: table_of_customer(document.customers[each])
                        for each in differing
                        if each in document.customers
                    }
                }
                if differing
                else {}
            ),
        }
        for document, said in zip((before, after), plans, strict=True)
    ]
    return ChangeNote(None, tables[0] if before.plans else None, tables[1])


def touched(before: Document, after: Document) -> Iterable[str]:
    """Returns the customers whose limits may differ between the documents before and after a change."""
    if before.plans == after.plans and before.unknown == after.unknown:
        return [each for each, customer in after.customers.items() if before.customers.get(each) != customer]
    return after.customers


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Returns the names whose entries differ between two dicts, but at most LISTED_MAX names, for the history."""
    differing = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return differing[:LISTED_MAX]


def formers_of(
    before: Document, after: Document, identity: str, customer: Customer, now_s: float
) -> tuple[Former, ...]:
    """Returns the former limits that a customer's new contract `customer` has to list after a change of the document.

    A former limit was replaced, but charges to it still count. Raises InvalidContracts if there are more than
    FORMER_MAX.
    """
    present = [term for term in terms_of(after, identity, now_s).terms if not term.former]
    candidates = [each for each in customer.former if each.until > now_s]
    known = before.customers.get(identity)
    if known is not None:
        candidates += [each for each in known.former if each.until > now_s]
    if known is not None or before.unknown != REFUSED:
        candidates += [
            Former(term.name, term.limit, term.by, now_s + counts_for_s(term.limit))
            for term in terms_of(before, identity, now_s).terms
            if not term.former
        ]
    formers = still_apart(candidates, present)
    if len(formers) > FORMER_MAX:
        raise InvalidContracts(
            f"this customer would have {len(formers)} limits from former contracts that still count, and at most "
            f"{FORMER_MAX} are possible; change the customer when some of these limits have ended",
            "customers",
            identity,
        )
    return tuple(formers)


def with_customer(before: Document, identity: str, said: Any, *, now_s: float) -> Document:
    """Returns the document with a customer's contract set to `said`; None removes it. Raises InvalidContracts."""
    check_identity(identity, "customers")
    customers = dict(before.customers)
    if said is None:
        if customers.pop(identity, None) is None:
            raise InvalidContracts(
                "has no contract to remove; check the spelling of the customer's name", "customers", identity
            )
        return replace(before, customers=customers)
    customers[identity] = checked_customer(identity, said, before.plans)
    after = replace(before, customers=customers)
    return with_formers(before, after, now_s=now_s, identities=[identity])


def with_document(before: Document, after: Document, *, now_s: float) -> Document:
    """Returns the new document `after`, in which the limits that it replaces are listed as former ones.

    Raises InvalidContracts.
    """
    return with_formers(before, after, now_s=now_s, identities=touched(before, after))


def check_author(author: object) -> str:
    """Returns the author's name for the history if it is valid; raises InvalidContracts if not."""
    if not isinstance(author, str) or not 1 <= len(author) <= AUTHOR_LENGTH_MAX or not author.isprintable():
        raise InvalidContracts(
            f"{shown(author)} is no name of an author: give 1 to {AUTHOR_LENGTH_MAX} printable characters"
        )
    return author


class UnknownVersion(ReconvergeError, LookupError):
    """Raised when the contracts cannot be rolled back to a version, because it is no longer kept or never existed."""

    def __init__(self, version: int, kept: Iterable[int]) -> None:
        self.version = version
        known = sorted(kept)
        which = f"from {known[0]} to {known[-1]}" if known else "none"
        super().__init__(f"version {version} of the contracts is not kept; kept versions: {which}")


Make: TypeAlias = Callable[[Document, float], Document]
"""A function that makes a new document from the present one and the time in seconds since 1970, on a thread of its
own."""


class ChangingBook:
    """The base class of all books, which store contracts: each change makes a new document from the present one."""

    async def set_customer(self, identity: str, said: Any, *, author: str, expected: int | None = None) -> int:
        return await self._change(
            lambda before, now_s: with_customer(before, identity, said, now_s=now_s), author, expected, identity
        )

    async def replace(self, said: Any, *, author: str, expected: int | None = None) -> int:
        document = await asyncio.to_thread(checked, said)
        return await self._change(lambda before, now_s: with_document(before, document, now_s=now_s), author, expected)

    async def rollback(self, version: int, *, author: str) -> int:
        former = await self._former(version)
        return await self._change(lambda before, now_s: with_document(before, former, now_s=now_s), author)

    async def history(self, *, most: int = 50, identity: str | None = None) -> Sequence[Change]:
        changes = await self._recorded_changes()
        return [each for each in changes if identity is None or each.identity == identity][:most]

    @abstractmethod
    async def _former(self, version: int) -> Document:
        """Returns the contracts of a former version. Raises UnknownVersion."""

    @abstractmethod
    async def _recorded_changes(self) -> Sequence[Change]:
        """Returns all changes that the book has recorded, the newest first."""

    @abstractmethod
    async def _change(self, make: Make, author: str, expected: int | None = None, identity: str | None = None) -> int:
        """Makes a change by calling `make` with the present document. Returns the new version.

        With `expected`, raises VersionConflict unless the contracts are at that version.
        """
