"""Puts a world back to how it was: the values of all its objects are noted, and written back in place."""

# Theory of operation.
#
# Copies of a world would have to copy closures, locks and bound methods, which cannot be done. So the world stays, and
# what its objects hold is noted: each attribute, list, mapping, set and variable of a closure that can be reached from
# it. Writing all of that back makes the world what it was, as whatever was made since is not reachable any more.
# Python's own objects do not show what they hold, so the kernel must be the one in Python.

from __future__ import annotations

import enum
import types
from collections import deque
from collections.abc import Iterable
from random import Random
from typing import Any, Final
from weakref import WeakValueDictionary

_PLAIN: Final = (
    int,
    float,
    str,
    bytes,
    type(None),
    type,
    enum.Enum,
    Random,
    types.ModuleType,
    types.BuiltinFunctionType,
)
"""Types whose values hold nothing that changes."""
_UNSET: Final = object()


_slots: dict[type, tuple[types.MemberDescriptorType, ...]] = {}


def slots_of(kind: type) -> tuple[types.MemberDescriptorType, ...]:
    """Returns the descriptors of all slots that the objects of a class have."""
    if kind not in _slots:
        _slots[kind] = tuple(_found_slots(kind))
    return _slots[kind]


def _found_slots(kind: type) -> list[types.MemberDescriptorType]:
    found = []
    for each in kind.__mro__:
        names = each.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            slot = each.__dict__.get(name)
            if isinstance(slot, types.MemberDescriptorType):
                found.append(slot)
    return found


class Snapshot:
    """The values of all objects that can be reached from one."""

    def __init__(self, root: object) -> None:
        self._mappings: list[tuple[Any, Any]] = []
        self._sequences: list[tuple[Any, list[object]]] = []
        self._slots: list[tuple[Any, types.MemberDescriptorType, object]] = []
        self._variables: list[tuple[types.CellType, object]] = []
        self._seen: dict[int, object] = {}
        waiting = [root]
        while waiting:
            one = waiting.pop()
            if not isinstance(one, _PLAIN) and id(one) not in self._seen:
                self._seen[id(one)] = one
                waiting += self._note(one)

    def restore(self) -> None:
        """Writes all values back."""
        for one, held in self._mappings:
            one.clear()
            one.update(held)
        for one, items in self._sequences:
            one.clear()
            one.extend(items)
        for one, slot, value in self._slots:
            if value is not _UNSET:
                slot.__set__(one, value)
            elif _value(slot, one) is not _UNSET:
                slot.__delete__(one)
        for cell, value in self._variables:
            cell.cell_contents = value

    def objects(self) -> Iterable[object]:
        """Returns all objects whose values are noted."""
        return self._seen.values()

    def _note(self, one: Any) -> list[object]:
        """Notes what an object holds, and returns that."""
        if isinstance(one, types.FunctionType):
            cells = [(cell, cell.cell_contents) for cell in one.__closure__ or ()]
            self._variables += cells
            return [value for _, value in cells]
        if isinstance(one, types.MethodType):
            return [one.__self__]
        held: list[object] = []
        if isinstance(one, list | deque):
            items = list(one)
            self._sequences.append((one, items))
            held += items
        elif isinstance(one, tuple | frozenset):
            held += one
        elif isinstance(one, set):
            self._mappings.append((one, set(one)))
            held += one
        elif isinstance(one, dict):
            self._mappings.append((one, dict(one)))
            held += one.keys()
            held += one.values()
        elif isinstance(one, WeakValueDictionary):
            return [vars(one)["data"]]
        for slot in slots_of(type(one)):
            value = _value(slot, one)
            self._slots.append((one, slot, value))
            if value is not _UNSET:
                held.append(value)
        attributes = getattr(one, "__dict__", None)
        if attributes is not None:
            self._mappings.append((attributes, dict(attributes)))
            held += attributes.values()
        return held


def _value(slot: types.MemberDescriptorType, one: object) -> object:
    try:
        return slot.__get__(one)
    except AttributeError:
        return _UNSET
