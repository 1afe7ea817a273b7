"""Takes a customer out of contracts as if it had never been there: out of the document, and out of its history.

A change that ends a contract leaves it in every version before, to which one can go back, and in the history of
changes. Erasing takes it out of those too: each version is what it was, but for that customer. That there was a
customer, when its contract changed and by which author stays in the history, under the name ERASED.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from reconverge.contracts.model import Document
from reconverge.contracts.store.book import Change

ERASED: Final = "(erased)"
"""Stands in place of the identity in the history of changes."""


@dataclass(slots=True)
class Rewritten:
    """A history from which a customer was taken out."""

    history: list[str]
    """The digests of the history's pages, the newest first."""
    pages: dict[str, bytes]
    """All pages that have become others, by digest."""
    former: set[str]
    """The pages that the history was made of before, and the contracts in force."""

    @property
    def changed(self) -> bool:
        """Whether any page has become another one."""
        return not self.former.issuperset(self.pages)


def without_customer(document: Document, identity: str) -> Document:
    """The document without the customer; the same object if it has none of that name."""
    if identity not in document.customers:
        return document
    return replace(document, customers={name: each for name, each in document.customers.items() if name != identity})


def change_without(change: Change, identity: str) -> Change:
    """Returns the entry of a change without the customer; the same object if it does not name it."""
    if change.identity == identity:
        return replace(change, identity=ERASED, before=None, after=None)
    before, after = (_without(said, identity) for said in (change.before, change.after))
    if before is change.before and after is change.after:
        return change
    return replace(change, before=before, after=after)


def _without(said: Any, identity: str) -> Any:
    """Returns the entry of a document without the customer."""
    customers = said.get("customers") if isinstance(said, Mapping) else None
    if not isinstance(customers, Mapping) or identity not in customers:
        return said
    return {**said, "customers": {name: each for name, each in customers.items() if name != identity}}
