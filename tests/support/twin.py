"""The life of a world as plain data, and another process in which the other twin lives the same life.

As a program it is the other twin: `python -m tests.support.twin` reads a world and its steps from each line, and
answers with the trace. Numbers are printed to the last bit, so that two traces can be compared.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

from reconverge.decision import Decision, Usage
from reconverge.kernel import IMPLEMENTATION
from reconverge.kernel.cell import Cell, Headroom, measure
from reconverge.kernel.engine import Reports
from tests.support.twin_world import Data, Step, TwinWorld

ROOT = Path(__file__).parents[2]
PATHS = os.pathsep.join(str(ROOT / place) for place in ("agent", "sync", "."))
ATTRIBUTES = [
    name for name in (*Headroom.__slots__, *Cell.__slots__) if name not in ("table", "shard", "lows", "history")
]
LOOKED_AT = 4
"""The number of steps between two looks at the cells of nodes with a hub."""
LONE_ATTRIBUTES = ("key", "used", "room", "previous", "level", "allowance", "base", "capacity", "place", "waiters")
"""The fields that matter of a cell that is never reported; the compiled kernel need not remember more of it."""


def everything(world: TwinWorld) -> Data:
    """Returns all that the nodes of a world know, by its place."""
    known: Data = {f"{number} woken": node.woken for number, node in enumerate(world.nodes)}
    for number, kernel in enumerate(world.kernels):
        known[f"{number} keys"] = kernel.keys
        for shard in kernel.shards:
            known |= {f"{number} shard {shard.index} {name}": told(value) for name, value in _shard(shard)}
        for table in kernel.tables.values():
            where = f"{number} {table.name}"
            known[where] = [
                table.admitted,
                table.refused,
                table.overflowed,
                [cell.key for cell in table.cells.in_order()],
            ]
            if kernel.alone:
                for cell in table.all_cells():
                    measure(cell)  # charges are counted now or later, as no node hears of them
            known[f"{where} tallies"] = [[tally.charged, tally.refunded] for tally in table.tallies]
            for cell in table.all_cells():
                names = LONE_ATTRIBUTES if kernel.alone else ATTRIBUTES
                known |= {f"{where} {cell.key!r} {name}": told(value) for name, value in _cell(cell, names)}
    return known


def _cell(cell: Any, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    for name in names:
        yield name, getattr(cell, name)
    yield "heard", cell.heard
    yield "shard", cell.shard.index
    if cell.lows is not None:
        yield "lows", [cell.lows.looks, cell.lows._lows]
    if cell.history is not None:
        yield "history", [getattr(cell.history, name) for name in type(cell.history).__slots__]


def _shard(shard: Any) -> Iterator[tuple[str, Any]]:
    for name in ("offset_ns", "lag_ns", "late_ns", "round_trip_ns", "acked_ns", "lease_until_ns", "unconfirmed"):
        yield name, getattr(shard, name)
    for name in ("attended_until_ns", "looks_ns", "regular_ns", "begins_ns", "early_ns", "refreshed_ns"):
        yield name, getattr(shard, name)
    yield "dirty", _queued(shard.dirty)
    yield "round", _queued(shard.round)
    yield "urgent", _queued(shard.urgent)
    yield "agenda", shard.agenda.due_ns()


def _queued(queue: Any) -> list[str]:
    """Returns the keys of a queue, which is unchanged afterwards."""
    cells = [queue.popleft() for _ in range(len(queue))]
    for cell in cells:
        queue.append(cell)
    return [cell.key for cell in cells]


def told(value: Any) -> Any:
    """Returns a value as plain data: each type in its own form, and floating point to the last bit."""
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, Decision):
        return [[name, told(getattr(value, name))] for name in Decision.__match_args__]
    if isinstance(value, Usage):
        return [[name, told(getattr(value, name))] for name in Usage.__slots__]
    if isinstance(value, dict):
        return [[name, told(each)] for name, each in value.items()]
    if isinstance(value, list | tuple | Reports):
        return [told(each) for each in value]
    assert value is None or isinstance(value, bool | int | str), type(value)
    return value


def trace_of(data: Data, steps: list[Step], whole_at: int) -> list[Any]:
    """Traces each step, with a digest of all data after it; after `whole_at` and at the end all of them."""
    world = TwinWorld(data)
    trace: list[Any] = []
    try:
        for number, step in enumerate(steps):
            answer = told(world.does(step))
            # A look at a cell makes an object of it, so cells that can do without an object are seldom looked at.
            looks = number == whole_at or (world.nodes and number % LOOKED_AT == 0)
            known = everything(world) if looks else _counts(world)
            trace.append([answer, known if number == whole_at else _digest(known)])
    finally:
        world.ends()
    trace.append([None, everything(world)])
    return trace


def _counts(world: TwinWorld) -> Data:
    """Returns the counts of nodes that are known without looking at their cells."""
    return {
        f"{number} {table.name}": [table.admitted, table.refused, table.overflowed, len(table.cells)]
        for number, kernel in enumerate(world.kernels)
        for table in kernel.tables.values()
    }


def _digest(known: Data) -> str:
    return blake2b(json.dumps(known).encode(), digest_size=8).hexdigest()


class OtherTwin:
    """A module of tests in a process of its own with the kernel in Python: it answers each line with a line."""

    def __init__(self, module: str = "tests.support.twin") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "RECONVERGE_NO_EXTENSIONS": "1", "PYTHONPATH": PATHS},
        )
        assert json.loads(self._read()) == "pure"

    def begins(self, *question: Any) -> None:
        """Begins a task; its answer must be read before the next one."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()

    def answers(self) -> list[Any]:
        """Returns the answer, such as a trace. Raises AssertionError if the other process failed."""
        answer = json.loads(self._read())
        assert isinstance(answer, list), answer
        return answer

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the other twin has ended"
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=60)


def serve(answer_to: Callable[..., Any]) -> None:
    """Answers lines until its input ends."""
    print(json.dumps(IMPLEMENTATION), flush=True)  # noqa: T201  # this is how it answers
    for line in sys.stdin:
        try:
            answer = answer_to(*json.loads(line))
        except Exception:  # noqa: BLE001  # the test reports it
            answer = traceback.format_exc()
        print(json.dumps(answer), flush=True)  # noqa: T201  # likewise


if __name__ == "__main__":
    serve(trace_of)
