"""Puts a world back to how it was: the values of all its objects are noted, and written back in place."""

# Theory of operation.
#
# Copies of a world would have to copy closures, locks and bound methods, which cannot be done. So the world stays, and
# what its objects hold is noted: each attribute, list, mapping, set and variable of a closure that can be reached from
# it. Writing all of that back makes the world what it was, as whatever was made since is not reachable any more.
# Python's own objects do not show what they hold, so the kernel must be the one in Python.
#
# A search rewinds after every event, most of which change little. So how the objects of a class are noted is found out
# once for the class, objects that cannot change are not noted, and the slots of an object are written back by one
# assignment, made for its class; slot by slot takes three times as long.

from __future__ import annotations

import enum
import types
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
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


class NotingPlan:
    """How the objects of one class are noted."""

    def __init__(self, kind: type) -> None:
        self.plain = issubclass(kind, _PLAIN)
        self.function = issubclass(kind, types.FunctionType)
        self.method = issubclass(kind, types.MethodType)
        self.sequence = issubclass(kind, list | deque)
        self.fixed = issubclass(kind, tuple | frozenset)
        self.set = issubclass(kind, set)
        self.mapping = issubclass(kind, dict)
        self.weak = issubclass(kind, WeakValueDictionary)
        self.slots = slots_of(kind)
        names = [slot.__name__ for slot in self.slots]
        self.read = _reader_of(names) if names else None
        self.write = _writer_of(names)
        parameters = getattr(kind, "__dataclass_params__", None)
        self.frozen = parameters is not None and parameters.frozen
        self.attributes = kind.__dictoffset__ != 0


def _reader_of(names: list[str]) -> Callable[[object], Sequence[object] | None]:
    """Returns a function that gets all these attributes of an object; None if one is not set."""
    get = attrgetter(*names, *names[:1])  # the first one twice, as one alone would not come as a tuple

    def read(one: object) -> Sequence[object] | None:
        try:
            values: tuple[object, ...] = get(one)
        except AttributeError:
            return None
        return values[:-1]

    return read


def _writer_of(names: list[str]) -> Callable[[object, Any], None]:
    """Returns a function that sets all these attributes of an object."""
    made: dict[str, Callable[[object, Any], None]] = {}
    targets = "".join(f"one.{name}, " for name in names) or "()"
    exec(f"def write(one, values):\n    {targets} = values", made)  # noqa: S102 - the names are those of slots
    return made["write"]


_plans: dict[type, NotingPlan] = {}


class Snapshot:
    """The values of all objects that can be reached from one."""

    def __init__(self, root: object) -> None:
        self._mappings: list[tuple[Any, Any]] = []
        self._attributes: list[tuple[dict[str, object], dict[str, object]]] = []
        self._sequences: list[tuple[Any, list[object]]] = []
        self._slotted: list[tuple[object, Callable[[object, Any], None], Any]] = []
        self._slots: list[tuple[Any, types.MemberDescriptorType, object]] = []
        """Those of objects some of whose slots are not set."""
        self._variables: list[tuple[types.CellType, object]] = []
        seen: dict[int, object] = {}
        self._seen = seen
        waiting = [root]
        while waiting:
            one = waiting.pop()
            kind = type(one)
            plan = _plans.get(kind)
            if plan is None:
                plan = _plans[kind] = NotingPlan(kind)
            if not plan.plain and id(one) not in seen:
                seen[id(one)] = one
                self._note(one, plan, waiting)

    def restore(self) -> None:
        """Writes all values back."""
        for one, held in self._mappings:
            if one or held:
                one.clear()
                one.update(held)
        for attributes, noted in self._attributes:
            attributes.update(noted)
            if len(attributes) != len(noted):
                attributes.clear()
                attributes.update(noted)
        for one, items in self._sequences:
            if one or items:
                one.clear()
                one.extend(items)
        for one, write, values in self._slotted:
            write(one, values)
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

    def _note(self, one: Any, plan: NotingPlan, waiting: list[object]) -> None:
        """Notes what an object holds, which then waits to be noted itself."""
        if plan.sequence:
            items = list(one)
            self._sequences.append((one, items))
            waiting += items
        elif plan.mapping:
            self._mappings.append((one, dict(one)))
            waiting += one.keys()
            waiting += one.values()
        elif plan.set:
            self._mappings.append((one, set(one)))
            waiting += one
        elif plan.fixed:
            waiting += one
        elif plan.function:
            cells = [(cell, cell.cell_contents) for cell in one.__closure__ or ()]
            self._variables += cells
            waiting += [value for _, value in cells]
            return
        elif plan.method:
            waiting.append(one.__self__)
            return
        elif plan.weak:
            waiting.append(vars(one)["data"])
            return
        if plan.read is not None:
            self._note_slots(one, plan, plan.read(one), waiting)
        if plan.attributes:
            attributes = one.__dict__
            if not plan.frozen:
                self._attributes.append((attributes, dict(attributes)))
            waiting += attributes.values()

    def _note_slots(self, one: Any, plan: NotingPlan, values: Sequence[object] | None, waiting: list[object]) -> None:
        if values is not None:
            waiting += values
            if not plan.frozen:
                self._slotted.append((one, plan.write, values))
            return
        for slot in plan.slots:
            value = _value(slot, one)
            self._slots.append((one, slot, value))
            waiting.append(value)


def _value(slot: types.MemberDescriptorType, one: object) -> object:
    try:
        return slot.__get__(one)
    except AttributeError:
        return _UNSET
