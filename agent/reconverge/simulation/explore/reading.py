"""Defines which attributes of each class the digest of a world reads, and which it leaves out."""

# Theory of operation.
#
# Two states that differ only in what nothing reads are one state, and every value that is not walked is time gained. So
# LEFT_OUT names the attributes that decide nothing in a world of one limit. How a class is read is found out once.

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from operator import itemgetter
from random import Random
from typing import Any, Final, cast
from weakref import WeakValueDictionary

from reconverge.clock import ManualClock
from reconverge.kernel.lock import Lock
from reconverge.simulation.explore.classes import PlansByClass, reader_of, slots_of

LEFT_OUT: Final[dict[str, str]] = {
    # Statistics, which only people read.
    "Syncer": "_exchanges _early _cells _rebirths _lapses _failures _random _sequence _kernel _shard _new_name",
    "Store": "admitted refused overflowed left_early",
    "ShardState": "not_taken index",
    # Sums over a life, which only the comparison with the books reads, after each event.
    "Tally": "charged refunded _confirmed _reported",
    "Account": "limits",
    "LedgerShard": "lending cells_max grace_us",
    # What a class has of its base, and does not use.
    "SlotTruth": "_by_epoch _by_slice _log _fill _filled_ns limit _clock",
    "FirstHitTruth": "_by_epoch _by_slice _log _fill _filled_ns limit _clock",
    # Settings that no event changes, and the owner of an object.
    "TrueUse": "limit _clock",
    "BucketTruth": "limit _clock _filled_ns",
    "AskBudget": "per_second _most",
    "Newcomers": "per_second _kernel",
    "Cell": "table shard",
    "Edges": "_table",
    "FirstHitEdges": "_table",
    "SlotEdges": "_table",
    # The numbers of which names are made.
    "SmallNode": "number name _names charged refunded clock syncers",
    # Parts of a kernel or a hub that a world of one limit does not use, and what follows from the limit and the policy.
    "Kernel": (
        "clock composites dropped _reported namespace hash_key after_answers room intervals_ns soonest_ns key_bytes_max"
        " alone region_ppm interval_ns interval_min_ns lease_ns slot_lease_ns keys_max on_object on_reentry wake"
        " take_in_again _lease_fixed _lease_min_ns"
    ),
    "Table": (
        "clock kernel peers name reported_as tiers overflow_key waiter held pool listeners evicted window_s calendar"
        " meter dated pacer lock unit window_ns stepwise smooth paced additive costs need_max soft interval_ns"
        " interval_min_ns lease_ns"
    ),
    "NodeRecord": "sequence",
}
"""The attributes that the walk does not read, by the name of their class."""
SPECIAL: Final = ("Batch", "Limit", "Policy", "OpenedWindow", "_ClockSample")
"""The classes for whose objects the walk has methods of its own, as only some of their fields matter."""
_SKIPPED: Final = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    Random,
    Lock,
    ManualClock,
    WeakValueDictionary,
)


class ReadingPlan:
    """The attributes that the walk of `canonical.py` reads from the objects of one class, and how it reads them."""

    def __init__(self, kind: type) -> None:
        self.name = kind.__name__
        self.left_out = frozenset(LEFT_OUT.get(self.name, "").split())
        slots = [name for name in slots_of(kind) if name not in self.left_out]
        self.slots = bool(slots)
        """Whether the objects have slots that the walk reads."""
        self.values = reader_of(slots)
        self.attributes = kind.__dictoffset__ != 0
        self.skipped = issubclass(kind, _SKIPPED)
        self.constant = issubclass(kind, bytes | Enum)
        self.sequence = issubclass(kind, list | tuple | deque)
        self.mapping = issubclass(kind, dict)
        self.set = issubclass(kind, set | frozenset)
        self.special = self.name in SPECIAL
        """Whether the walk has a method of its own for this class."""
        holds_items = self.sequence or self.mapping or self.set
        self.only_items = holds_items and not slots and not self.attributes
        """Whether an object holds nothing but its items, so that all empty ones are equal."""
        self.only_slots = self.slots and not (holds_items or self.attributes or self.special)
        self.only_attributes = self.attributes and not (holds_items or slots or self.special)
        self._names: Any = ()
        self._get: Callable[[dict[str, object]], Any] = tuple

    def attributes_of(self, one: Any) -> Iterable[Any]:
        """Returns those values in the `__dict__` of an object that the walk reads, in the order of the `__dict__`."""
        attributes: dict[str, object] = one.__dict__
        if not self.left_out:
            return attributes.values()
        if attributes.keys() != self._names:
            self._names = dict.fromkeys(attributes).keys()
            read = [name for name in attributes if name not in self.left_out]
            self._get = itemgetter(*read) if len(read) > 1 else lambda held: [held[name] for name in read]
        return cast("Iterable[Any]", self._get(attributes))


plan_of: Final = PlansByClass(ReadingPlan).__getitem__
"""Returns the plan by which the walk reads the objects of a class."""
