"""Compares two contracts documents, by plan and by customer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reconverge.contracts.model import Document, field_at
from reconverge.contracts.writing import said_of_limit, table_of
from reconverge.limit.limit import Limit


@dataclass(frozen=True, slots=True)
class Difference:
    """One entry that differs between two documents."""

    path: tuple[str, ...]
    """The path to the plan, the customer, or a field of one of them."""
    before: Any
    """The first document's entry, as `table_of` writes it; None if it has none."""
    after: Any
    """The second document's entry, in the same form; None if it has none."""

    def __str__(self) -> str:
        if self.before is None:
            return f"+ {field_at(self.path)}: {_written(self.after)}"
        if self.after is None:
            return f"- {field_at(self.path)}: {_written(self.before)}"
        return f"~ {field_at(self.path)}: {_written(self.before)} -> {_written(self.after)}"


def differences(before: Document, after: Document) -> list[Difference]:
    """Returns all entries that differ between two documents; 60/minute and 60/PT1M count as equal."""
    return list(_between((), _table(before), _table(after)))


def _table(document: Document) -> dict[str, Any]:
    """Returns a document as a dict in which equal limits have equal limit strings, such as 60/minute for 60/PT1M."""
    table = table_of(document)
    for customer in table["customers"].values():
        limits = customer.get("limits", {})
        limits |= {name: said_of_limit(Limit.parse(each)) for name, each in limits.items() if isinstance(each, str)}
    return table


def _between(path: tuple[str, ...], before: Any, after: Any) -> Iterator[Difference]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in [*before, *(name for name in after if name not in before)]:
            yield from _between((*path, name), before.get(name), after.get(name))
    elif before != after:
        yield Difference(path, before, after)


def _written(said: Any) -> str:
    """Returns a value of `_table` as one line of text; a dict within it is written in braces."""
    if isinstance(said, Mapping):
        return "{" + ", ".join(f"{field_at([name])}: {_written(each)}" for name, each in said.items()) + "}"
    if isinstance(said, list):
        return "[" + ", ".join(map(_written, said)) + "]"
    return field_at([said]) if isinstance(said, str) else str(said)
