"""Puts a world back into an earlier state: notes the values of all its objects, and writes them back in place."""

# Theory of operation.
#
# Copies of a world would have to copy closures, locks and bound methods, which cannot be done. So the world stays, and
# what its objects hold is noted: each attribute, list, mapping, set and variable of a closure that can be reached from
# it. Writing all of that back makes the world what it was, as whatever was made since is not reachable any more.
# Python's own objects do not show what they hold, so the kernel must be the one in Python.
#
# A search rewinds after every event, most of which change little. So how the objects of a class are noted is found out
# once for the class, objects that cannot change are not noted, and slots are written back only to objects of which one
# has changed.

from __future__ import annotations

import enum
import types
from collections import deque
from collections.abc import Iterable, Sequence
from operator import is_
from random import Random
from typing import Any, Final
from weakref import WeakValueDictionary

from reconverge.simulation.explore.classes import PlansByClass, reader_of, slots_of

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
"""Types whose objects hold nothing that can change."""
_UNSET: Final = object()


class NotingPlan:
    """How a snapshot notes the values of the objects of one class."""

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
        self.read = reader_of(self.slots, _UNSET)
        parameters = getattr(kind, "__dataclass_params__", None)
        self.frozen = parameters is not None and parameters.frozen
        self.attributes = kind.__dictoffset__ != 0


_plans: Final = PlansByClass(NotingPlan)


class Snapshot:
    """The values of all objects that can be reached from a `root`, at the time when the snapshot was made."""

    def __init__(self, root: object) -> None:
        self._mappings: list[tuple[Any, Any]] = []
        self._attributes: list[tuple[dict[str, object], dict[str, object]]] = []
        self._sequences: list[tuple[Any, list[object]]] = []
        self._slots: list[tuple[object, NotingPlan, Sequence[object]]] = []
        self._variables: list[tuple[types.CellType, object]] = []
        seen: dict[int, object] = {}
        self._seen = seen
        waiting = [root]
        while waiting:
            one = waiting.pop()
            plan = _plans[type(one)]
            if not plan.plain and id(one) not in seen:
                seen[id(one)] = one
                self._note(one, plan, waiting)

    def restore(self) -> None:
        """Writes all noted values back into their objects."""
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
        for one, plan, values in self._slots:
            if not all(map(is_, plan.read(one), values)):
                _write_slots(one, plan.slots, values)
        for cell, value in self._variables:
            cell.cell_contents = value

    def objects(self) -> Iterable[object]:
        """Returns all objects whose values are noted."""
        return self._seen.values()

    def _note(self, one: Any, plan: NotingPlan, waiting: list[object]) -> None:
        """Notes the values in an object, and adds them to `waiting`, the objects still to be noted."""
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
        if plan.slots:
            values = plan.read(one)
            if not plan.frozen:
                self._slots.append((one, plan, values))
            waiting += values
        if plan.attributes:
            attributes = one.__dict__
            if not plan.frozen:
                self._attributes.append((attributes, dict(attributes)))
            waiting += attributes.values()


def _write_slots(one: object, names: Sequence[str], values: Sequence[object]) -> None:
    for name, value in zip(names, values, strict=True):
        if value is not _UNSET:
            setattr(one, name, value)
        elif hasattr(one, name):
            delattr(one, name)
