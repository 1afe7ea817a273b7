"""Finds out, once for each class, which slots its objects have and how to read the values in the slots."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeVar

PlanT = TypeVar("PlanT")


class PlansByClass(dict[type, PlanT], Generic[PlanT]):
    """A mapping from each class to its plan (how to handle its objects), which is made at the first look-up."""

    def __init__(self, make: Callable[[type], PlanT]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, kind: type) -> PlanT:
        return self.setdefault(kind, self._make(kind))


def slots_of(kind: type) -> list[str]:
    """Returns the names of all slots (`__slots__`) that the objects of a class have, inherited slots included."""
    found: list[str] = []
    for each in kind.__mro__:
        names = each.__dict__.get("__slots__", ())
        names = (names,) if isinstance(names, str) else names
        found += [name for name in names if isinstance(each.__dict__.get(name), types.MemberDescriptorType)]
    return found


def reader_of(names: Sequence[str], unset: object = None) -> Callable[[object], Sequence[Any]]:
    """Returns a function that reads the attributes `names` of an object, with `unset` for each that is not set."""

    def one_by_one(one: object) -> Sequence[Any]:
        return [getattr(one, name, unset) for name in names]

    if len(names) < 2:  # for one name alone, an attrgetter returns no tuple
        return one_by_one
    get = attrgetter(*names)

    def at_once(one: object) -> Sequence[Any]:
        try:
            values: tuple[Any, ...] = get(one)
        except AttributeError:
            return one_by_one(one)
        return values

    return at_once
