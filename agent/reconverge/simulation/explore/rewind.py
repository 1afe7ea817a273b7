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
from collections.abc import Callable
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
        self._undo: list[tuple[Callable[..., None], Any, Any]] = []
        self._seen: dict[int, object] = {}
        waiting = [root]
        while waiting:
            one = waiting.pop()
            if not isinstance(one, _PLAIN) and id(one) not in self._seen:
                self._seen[id(one)] = one
                waiting += self._note(one)

    def restore(self) -> None:
        """Writes all values back."""
        for write, one, held in self._undo:
            write(one, held)

    def _note(self, one: Any) -> list[object]:
        """Notes what an object holds, and returns that."""
        if isinstance(one, types.FunctionType):
            cells = one.__closure__ or ()
            self._undo += [(_write_variable, cell, cell.cell_contents) for cell in cells]
            return [cell.cell_contents for cell in cells]
        if isinstance(one, types.MethodType):
            return [one.__self__]
        held: list[object] = []
        if isinstance(one, list | deque):
            items = list(one)
            self._undo.append((_write_items, one, items))
            held += items
        elif isinstance(one, tuple | frozenset):
            held += one
        elif isinstance(one, set):
            self._undo.append((_write_set, one, set(one)))
            held += one
        elif isinstance(one, dict):
            self._undo.append((_write_mapping, one, dict(one)))
            held += one.keys()
            held += one.values()
        elif isinstance(one, WeakValueDictionary):
            return [vars(one)["data"]]
        slots = slots_of(type(one))
        if slots:
            values = [_value(slot, one) for slot in slots]
            self._undo.append((_write_slots, one, values))
            held += [value for value in values if value is not _UNSET]
        attributes = getattr(one, "__dict__", None)
        if attributes is not None:
            self._undo.append((_write_mapping, attributes, dict(attributes)))
            held += attributes.values()
        return held


def _value(slot: types.MemberDescriptorType, one: object) -> object:
    try:
        return slot.__get__(one)
    except AttributeError:
        return _UNSET


def _write_slots(one: object, values: list[object]) -> None:
    for slot, value in zip(slots_of(type(one)), values, strict=True):
        if value is not _UNSET:
            slot.__set__(one, value)
        elif _value(slot, one) is not _UNSET:
            slot.__delete__(one)


def _write_variable(cell: types.CellType, value: object) -> None:
    cell.cell_contents = value


def _write_items(one: Any, items: list[object]) -> None:
    one.clear()
    one.extend(items)


def _write_mapping(one: dict[object, object], items: dict[object, object]) -> None:
    one.clear()
    one.update(items)


def _write_set(one: set[object], items: set[object]) -> None:
    one.clear()
    one.update(items)
