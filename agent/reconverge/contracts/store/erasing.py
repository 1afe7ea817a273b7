"""Erases a customer from contracts: from the present document, from all former versions and from the history.

A change that ends a contract leaves the contract in all former versions, which can be restored, and in the history.
Erasing removes the customer from these, too, and changes nothing else in them. The history still shows that a
customer's contract was changed, when, and by which author, but has ERASED in place of the customer's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from reconverge.contracts.model import Document
from reconverge.contracts.store.book import Change

ERASED: Final = "(erased)"
"""The name that replaces the erased customer in the history of changes."""


@dataclass(slots=True)
class Rewritten:
    """A history of contracts after one customer was erased from it: the pages to store, and those that they replace."""

    history: list[str]
    """The digests of the pages that describe changes, the newest first."""
    pages: dict[str, bytes]
    """All pages of the rewritten history and its versions that were written anew, by digest."""
    former: set[str]
    """The digests of all pages of the former history, of its versions, and of the contracts in force."""

    @property
    def changed(self) -> bool:
        """Whether any page was written anew, because it named the customer."""
        return not self.former.issuperset(self.pages)


def without_customer(document: Document, identity: str) -> Document:
    """Returns the document without the customer; the same object if it does not have the customer."""
    if identity not in document.customers:
        return document
    return replace(document, customers={name: each for name, each in document.customers.items() if name != identity})


def change_without(change: Change, identity: str) -> Change:
    """Returns the entry of a change without the customer; the same object if the entry does not name the customer."""
    if change.identity == identity:
        return replace(change, identity=ERASED, before=None, after=None)
    before, after = (_without(said, identity) for said in (change.before, change.after))
    if before is change.before and after is change.after:
        return change
    return replace(change, before=before, after=after)


def _without(said: Any, identity: str) -> Any:
    """Returns the dict of a document without the customer; the same object if it does not name the customer."""
    customers = said.get("customers") if isinstance(said, Mapping) else None
    if not isinstance(customers, Mapping) or identity not in customers:
        return said
    return {**said, "customers": {name: each for name, each in customers.items() if name != identity}}
