"""Builds the page about load shedding: the requests that all processes admit and shed, by class and layer."""

# Theory of operation.
#
# Stacks with the same name, classes and layers form one part of the page, however many processes have such a stack: an
# operator asks first what the fleet sheds, and then which process. Numbers per second come from the difference between
# two snapshots of a process, as for limits. A silent process is left out of the sums, because it may have ended.
#
# Each layer names its own readings (measured values). The readings of this package's layers get columns in the table of
# processes (`limit` and `in_flight` of a concurrency limit; `pressure` and `rejected_fraction` of the worker shedder).
# The readings of other layers are shown under their own names.

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from reconverge.agent.snapshots.load_snapshot import LoadSnapshot, StackLoad
from reconverge.integrations.console.seen import Seen

Process: TypeAlias = Seen[LoadSnapshot]
"""The load snapshots of a process, and how long the process has been silent."""
STACKS_SHOWN_MAX: Final = 50
PROCESSES_SHOWN_MAX: Final = 200
"""The most processes that are shown for one stack; the processes that shed most are chosen."""
LIMIT, IN_FLIGHT, PRESSURE, REJECTED = "limit", "in_flight", "pressure", "rejected_fraction"
KNOWN: Final = frozenset({LIMIT, IN_FLIGHT, PRESSURE, REJECTED})


@dataclass(slots=True)
class _Rates:
    """Requests per second, summed up over all processes with one stack, by class, or by layer and class."""

    admitted: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    refused: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    would_refuse: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))

    def add(self, now: StackLoad, before: StackLoad | None, passed_s: float) -> None:
        """Adds to the sums a stack's requests per second between two snapshots, which are `passed_s` seconds apart.

        Adds nothing if `before` is None.
        """
        if before is None or not passed_s:
            return
        for place, name in enumerate(now.classes):
            self.admitted[name] += max(0, now.admitted[place] - before.admitted[place]) / passed_s
            for layer, then in zip(now.layers, before.layers, strict=True):
                at = layer.name, name
                self.refused[at] += max(0, layer.refused[place] - then.refused[place]) / passed_s
                self.would_refuse[at] += max(0, layer.would_refuse[place] - then.would_refuse[place]) / passed_s


def view_of_loads(processes: Sequence[Process]) -> dict[str, Any]:
    """Returns the data of the page about load shedding, as a dict for JSON."""
    processes = sorted(_without_copies(processes), key=lambda each: (each.newest.host, each.newest.pid, each.name))
    by_shape: dict[Any, list[tuple[Process, int]]] = {}
    for process in processes:
        for number, stack in enumerate(process.newest.stacks):
            by_shape.setdefault(_shape(stack), []).append((process, number))
    tables = [_table_of_stack(found) for _, found in sorted(by_shape.items())]
    # The stacks that shed most, in an order that does not change every second.
    shown = sorted(tables, key=lambda each: -each["refused_per_s"])[:STACKS_SHOWN_MAX]
    waiting: Counter[str] = Counter()
    for process in processes:
        if not process.silent_s:
            waiting.update(process.newest.waiting)
    return {
        "stacks": sorted(shown, key=lambda each: each["name"]),
        "stacks_left_out": sum(each.newest.left_out for each in processes),
        "waiting": dict(waiting),
    }


def _without_copies(processes: Sequence[Process]) -> list[Process]:
    """Returns each process once. `processes` has a process several times if several of its agents report it.

    The numbers of requests that wait for limits are added up over the agents of a process.
    """
    by_word: dict[str, Process] = {}
    for each in sorted(processes, key=lambda process: (process.silent_s, process.name)):
        known = by_word.setdefault(each.newest.process, each)
        if known is not each and not each.silent_s:
            waiting = Counter(known.newest.waiting) + Counter(each.newest.waiting)
            by_word[each.newest.process] = replace(known, newest=replace(known.newest, waiting=waiting))
    return list(by_word.values())


def _shape(stack: StackLoad) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    return stack.name, stack.classes, tuple(layer.name for layer in stack.layers)


def _before(process: Process, number: int) -> StackLoad | None:
    """Returns the load of the stack at position `number`, from the process's previous snapshot.

    Returns None if that snapshot has no such stack, or if the stack had other layers or classes then.
    """
    before = () if process.before is None else process.before.stacks
    if number >= len(before) or _shape(before[number]) != _shape(process.newest.stacks[number]):
        return None
    return before[number]


def _table_of_stack(found: Sequence[tuple[Process, int]]) -> dict[str, Any]:
    first = found[0][0].newest.stacks[found[0][1]]
    heard = [each for each in found if not each[0].silent_s]
    rates = _Rates()
    admitted: Counter[str] = Counter()
    refused: Counter[tuple[str, str]] = Counter()
    for process, number in heard:
        stack = process.newest.stacks[number]
        rates.add(stack, _before(process, number), process.passed_s)
        admitted.update(dict(zip(stack.classes, stack.admitted, strict=True)))
        for layer in stack.layers:
            refused.update({(layer.name, name): layer.refused[place] for place, name in enumerate(stack.classes)})
    layers = [layer.name for layer in first.layers]
    rows = [_row_of_process(process, number) for process, number in found]
    slots = [(row[IN_FLIGHT], row[LIMIT]) for row in rows if row[LIMIT] is not None and not row["silent"]]
    return {
        "name": first.name,
        "processes": len({process.name for process, _ in heard}),
        "silent": len({process.name for process, _ in found}) - len({process.name for process, _ in heard}),
        "admitted_per_s": sum(rates.admitted.values()),
        "refused_per_s": sum(rates.refused.values()),
        "in_flight": sum(used for used, _ in slots) if slots else None,
        "limit": sum(most for _, most in slots) if slots else None,
        "classes": [
            {
                "name": name,
                "admitted": admitted[name],
                "refused": sum(refused[layer, name] for layer in layers),
                "admitted_per_s": rates.admitted[name],
                "refused_per_s": sum(rates.refused[layer, name] for layer in layers),
            }
            for name in first.classes
        ],
        "layers": [_table_of_layer(place, heard or found, rates, refused) for place in range(len(layers))],
        "rows": sorted(rows, key=lambda row: (-row["refused_per_s"], row["host"], row["pid"]))[:PROCESSES_SHOWN_MAX],
        "rows_left_out": max(0, len(rows) - PROCESSES_SHOWN_MAX),
    }


def _table_of_layer(
    place: int, found: Sequence[tuple[Process, int]], rates: _Rates, refused: Counter[tuple[str, str]]
) -> dict[str, Any]:
    layers = [process.newest.stacks[number].layers[place] for process, number in found]
    stack = found[0][0].newest.stacks[found[0][1]]
    name = layers[0].name
    return {
        "name": name,
        "switches": sorted({layer.switch for layer in layers}),
        "refused": sum(refused[name, each] for each in stack.classes),
        "refused_per_s": sum(rates.refused[name, each] for each in stack.classes),
        "would_refuse_per_s": sum(rates.would_refuse[name, each] for each in stack.classes),
        "by_class": {each: rates.refused[name, each] for each in stack.classes},
        "readings": {
            reading: [min(values), max(values)]
            for reading in layers[0].readings
            if (values := [layer.readings[reading] for layer in layers if reading in layer.readings])
        },
    }


def _row_of_process(process: Process, number: int) -> dict[str, Any]:
    stack, rates = process.newest.stacks[number], _Rates()
    rates.add(stack, _before(process, number), process.passed_s)
    readings: dict[str, float] = {}
    for layer in stack.layers:
        for name in KNOWN & layer.readings.keys():
            readings.setdefault(name, layer.readings[name])
    return {
        "host": process.newest.host,
        "pid": process.newest.pid,
        "silent": bool(process.silent_s),
        "admitted_per_s": sum(rates.admitted.values()),
        "refused_per_s": sum(rates.refused.values()),
        **{name: readings.get(name) for name in sorted(KNOWN)},
    }
