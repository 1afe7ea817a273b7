"""One node's load, for consoles: its waiting requests, and the counts of its stacks of load shedders."""

# Theory of operation.
#
# A stack (`reconverge.shedding`) is a sequence of layers, each of which may refuse a request to protect the service. It
# belongs to a process and needs no agent. So it registers here when it is made, and each agent of the process reports
# it, for as long as the program holds it. Two agents in one process both report the same stacks. Their snapshots
# contain the same random word, which stands for the process, so that a console counts each stack once.
#
# The load is not a part of the node's snapshot (`snapshot.py`) but a second snapshot beside it. A reader rejects a
# node's snapshot that has an unknown field as a forgery; so a console of an earlier version still reads the node, and
# ignores the load. Only nodes with a stack or a waiting request send it, and its size in bytes has a bound of its own.
#
# Each client of the hub could have written the snapshot, so a reader checks all of it. A layer may be the application's
# own code, so if it raises an exception its stack is left out, and the exchange goes on.

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from math import isfinite
from secrets import token_hex
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakValueDictionary

from reconverge.errors import ONE_VERSION
from reconverge.hub.board import SNAPSHOT_BYTES_MAX
from reconverge.kernel import Table
from reconverge.limiter.waiting.waiters import queued_at

T = TypeVar("T")

MAGIC: Final = b'{"load":1,'
"""The first bytes of each snapshot of load; no other snapshot begins with them."""
SUFFIX: Final = "f"
"""The character that follows the node's name in the name of its snapshot of load at the hub."""
STACKS_MAX: Final = 8
LAYERS_MAX: Final = 16
CLASSES_MAX: Final = 16
READINGS_MAX: Final = 8
WAITING_MAX: Final = 50
TEXT_MAX: Final = 200
NUMBER_MAX: Final = 1e18


class StackReport(Protocol):
    """The counts of one stack of load shedders (its layers): the interface of `reconverge.shedding.StackStats`."""

    @property
    def admitted(self) -> Mapping[str, int]:
        """Returns the number of admitted requests by class, the most important class first."""
        ...

    @property
    def refused(self) -> Mapping[str, Mapping[str, int]]:
        """Returns the number of refused requests by layer, then by class; layers stand in the order of deciding."""
        ...

    @property
    def would_refuse(self) -> Mapping[str, Mapping[str, int]]:
        """Returns the number of requests that layers in shadow would have refused, by layer, then by class."""
        ...

    @property
    def switches(self) -> Mapping[str, str]:
        """Returns the switch of each layer ("on", "shadow" or "off"), by the layer's name."""
        ...

    @property
    def readings(self) -> Mapping[str, Mapping[str, float]]:
        """Returns the measurements and settings of each layer: by the layer's name, then by the measurement's name."""
        ...


class ObservedStack(Protocol):
    """The part of a stack of load shedders (`reconverge.shedding.Stack`) that consoles show."""

    @property
    def name(self) -> str:
        """Returns the name of the stack; a console adds up the stacks of all nodes that have the same name."""
        ...

    def stats(self) -> StackReport:
        """Returns the stack's counts of decisions."""
        ...


@dataclass(frozen=True, slots=True)
class LayerLoad:
    """The load of one layer of a stack of load shedders. Counts are by class, in the order of `StackLoad.classes`."""

    name: str
    switch: str
    refused: tuple[int, ...]
    would_refuse: tuple[int, ...]
    """For each class, the requests that the layer would have refused if it had not been in shadow."""
    readings: Mapping[str, float]
    """The layer's measurements and settings by name, such as the limit on requests in progress."""


@dataclass(frozen=True, slots=True)
class StackLoad:
    """The load of one stack of load shedders: its classes of requests, its counts, and its layers."""

    name: str
    classes: tuple[str, ...]
    """The names of the classes, the most important one first."""
    admitted: tuple[int, ...]
    """The number of requests that all layers admitted, for each class."""
    layers: tuple[LayerLoad, ...]


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """The load of one node at the moment `at`, in seconds since 1970 by the node's clock."""

    host: str
    pid: int
    at: float
    process: str
    """A random word that stands for the process; all agents of the process have the same."""
    stacks: tuple[StackLoad, ...]
    left_out: int
    """The number of stacks left out of the snapshot, for lack of room or because a layer raised an exception."""
    waiting: Mapping[str, int]
    """The number of requests that wait on this node, by limit; limits without waiting requests are left out."""


_stacks: WeakValueDictionary[int, ObservedStack] = WeakValueDictionary()
"""All stacks that the program holds, in the order in which they were made."""
_numbers = count()
_words: dict[int, str] = {}


def observe(stack: ObservedStack) -> None:
    """Makes every agent of this process show `stack` to consoles, as long as the program keeps a reference to it."""
    _stacks[next(_numbers)] = stack


def load_of(host: str, at: float, tables: Mapping[str, Table]) -> LoadSnapshot | None:
    """Returns the load of this process at the time `at`, in seconds since 1970.

    Returns None if the process has no stack of load shedders and no waiting request.
    """
    known = [stack for each in _stacks.valuerefs() if (stack := each()) is not None]
    waiting = {name: queued for name, table in tables.items() if (queued := queued_at(table))}
    if not known and not waiting:
        return None
    kept = [each for stack in known[:STACKS_MAX] if (each := _stack_of(stack)) is not None]
    pid = os.getpid()
    return LoadSnapshot(
        host[:TEXT_MAX],
        pid,
        at,
        _words.setdefault(pid, token_hex(8)),
        tuple(kept),
        len(known) - len(kept),
        dict(sorted(waiting.items(), key=lambda each: (-each[1], each[0]))[:WAITING_MAX]),
    )


def _stack_of(stack: ObservedStack) -> StackLoad | None:
    try:
        stats = stack.stats()
        classes = tuple(stats.admitted)
        layers = tuple(
            LayerLoad(
                name[:TEXT_MAX],
                str(stats.switches[name]),
                tuple(refused.values()),
                tuple(stats.would_refuse[name].values()),
                _readings_of(stats.readings[name]),
            )
            for name, refused in stats.refused.items()
        )
        names = tuple(each[:TEXT_MAX] for each in classes)
        return StackLoad(stack.name[:TEXT_MAX], names, tuple(stats.admitted.values()), layers)
    except Exception:  # noqa: BLE001  # exchanges go on, and the stack is counted as left out
        return None


def _readings_of(readings: Mapping[str, float]) -> dict[str, float]:
    kept = {name[:TEXT_MAX]: float(value) for name, value in list(readings.items())[:READINGS_MAX]}
    return {name: value for name, value in kept.items() if isfinite(value) and abs(value) <= NUMBER_MAX}


# ---------------------------------------------------------------- as bytes


def encoded(snapshot: LoadSnapshot) -> bytes:
    """Returns a snapshot as bytes for the hub. If it is too long, leaves out stacks from the end, then limits."""
    said: dict[str, Any] = {"load": 1, **asdict(snapshot)}
    while True:
        payload = json.dumps(said, separators=(",", ":"), allow_nan=False).encode("ascii")
        if len(payload) <= SNAPSHOT_BYTES_MAX:
            return payload
        if said["stacks"]:
            said["stacks"] = said["stacks"][:-1]
            said["left_out"] += 1
        else:
            said["waiting"] = dict(list(said["waiting"].items())[: len(said["waiting"]) // 2])


def decoded(payload: bytes) -> LoadSnapshot | None:
    """Returns the snapshot of load that `payload` contains; None if it is invalid, or of another version."""
    if len(payload) > SNAPSHOT_BYTES_MAX or not payload.startswith(MAGIC):
        return None
    try:
        said = json.loads(payload, parse_constant=_no_number)
        return LoadSnapshot(
            host=_text(said["host"]),
            pid=_whole(said["pid"]),
            at=_number(said["at"]),
            process=_text(said["process"]),
            stacks=_all(said["stacks"], _stack, STACKS_MAX),
            left_out=_whole(said["left_out"]),
            waiting=_by_name(said["waiting"], _whole, WAITING_MAX),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _stack(said: Any) -> StackLoad:
    classes = _all(said["classes"], _text, CLASSES_MAX)
    made = StackLoad(
        _text(said["name"]),
        classes,
        _all(said["admitted"], _whole, CLASSES_MAX),
        _all(said["layers"], _layer, LAYERS_MAX),
    )
    counts = [made.admitted, *(each for layer in made.layers for each in (layer.refused, layer.would_refuse))]
    if any(len(each) != len(classes) for each in counts) or len(set(classes)) < len(classes):
        raise ValueError(
            f"a stack has {len(classes)} classes, but a name is repeated, or a list of counts has another length; "
            f"{ONE_VERSION}"
        )
    return made


def _layer(said: Any) -> LayerLoad:
    return LayerLoad(
        _text(said["name"]),
        _text(said["switch"]),
        _all(said["refused"], _whole, CLASSES_MAX),
        _all(said["would_refuse"], _whole, CLASSES_MAX),
        _by_name(said["readings"], _number, READINGS_MAX),
    )


def _all(said: object, read: Callable[[Any], T], most: int) -> tuple[T, ...]:
    if not isinstance(said, Sequence) or isinstance(said, str) or len(said) > most:
        raise TypeError(type(said))
    return tuple(map(read, said))


def _by_name(said: object, read: Callable[[Any], T], most: int) -> dict[str, T]:
    if not isinstance(said, dict) or len(said) > most:
        raise TypeError(type(said))
    return {_text(name): read(value) for name, value in said.items()}


def _text(said: object) -> str:
    if not isinstance(said, str) or len(said) > TEXT_MAX:
        raise TypeError(type(said))
    return said


def _whole(said: object) -> int:
    if isinstance(said, bool) or not isinstance(said, int) or not 0 <= said <= NUMBER_MAX:
        raise TypeError(type(said))
    return said


def _number(said: object) -> float:
    if isinstance(said, bool) or not isinstance(said, int | float) or not abs(said) <= NUMBER_MAX:
        raise TypeError(type(said))
    return float(said)


def _no_number(name: str) -> Any:
    raise ValueError(name)
