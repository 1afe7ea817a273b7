"""Garbage collections at every allocation, with callbacks that ask the same limit."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from reconverge import RateLimiter
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.kernel import COMPILED, Cell
from reconverge.limit import Limit
from reconverge.limiter.control import LimitControl
from reconverge.policies import BALANCED
from reconverge.simulation.explore.node import START_S, SmallNode
from reconverge_sync.memory import MemoryHub

pytestmark = pytest.mark.skipif(not COMPILED, reason="only the compiled kernel knows places by their addresses")

KEYS: Final = 40


@contextmanager
def collecting(act: Callable[[], object]) -> Iterator[list[int]]:
    """Collects garbage as often as the interpreter can, and acts with each collection."""
    busy, done = False, [0]

    def callback(phase: str, _: dict[str, int]) -> None:
        nonlocal busy
        if phase == "start" and not busy:
            busy = True
            done[0] += 1
            try:
                act()
            finally:
                busy = False

    before = gc.get_threshold()
    gc.callbacks.append(callback)
    gc.set_threshold(1)
    try:
        yield done
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(callback)


class Quiet:
    """A node of which all keys are kept without objects, as nothing is to be said of them."""

    def __init__(self) -> None:
        self.clock = ManualClock(START_S)
        self.node = SmallNode(self.clock)
        self.limiter = RateLimiter(LimitControl(self.node.limit(Limit(100, 60), BALANCED)))
        self.store: Any = self.limiter.control.table.cells
        self.hub = MemoryHub(clock=self.clock)
        self.keys = [f"key {number}" for number in range(KEYS)]
        self.rests()

    def rests(self) -> None:
        """All keys are exchanged until they need no object."""
        for key in self.keys:
            self.limiter.allow(key)
        for _ in range(40):
            self.node.exchanges_with(self.hub)
            self.clock.advance_ns(SECOND_NS // 10)
        for key in self.keys:
            self.store.rest(key)
        assert self.store.forms()[2] == KEYS

    def drops(self, key: str) -> None:
        """Forget a key."""
        cell: Cell = self.store[key]
        self.store.drop(cell)
        self.node.kernel.keys -= 1


INTERRUPTIONS: Final[dict[str, Callable[[Quiet, str], object]]] = {
    "asks for the same key": lambda quiet, key: quiet.limiter.allow(key),
    "drops the same key": lambda quiet, key: quiet.drops(key) if key in quiet.store else None,
    "asks for a new key": lambda quiet, key: quiet.limiter.allow(f"{key}, anew"),
    "drops all": lambda quiet, _: quiet.store.start_over(),
    "lists all": lambda quiet, _: list(quiet.store),
}
CALLS: Final[dict[str, Callable[[Quiet, str], object]]] = {
    "get": lambda quiet, key: quiet.store.get(key),
    "allow": lambda quiet, key: quiet.limiter.allow(key),
    "hit": lambda quiet, key: quiet.limiter.hit(key),
    "allow_many": lambda quiet, key: quiet.limiter.allow_many([key] * 3),
    "usage": lambda quiet, key: quiet.limiter.usage(key),
    "reset": lambda quiet, key: quiet.limiter.reset(key),
    "in_order": lambda quiet, _: quiet.store.in_order(),
    "pass_by": lambda quiet, _: quiet.store.pass_by(3),
    "exchange": lambda quiet, _: quiet.node.exchanges_with(quiet.hub),
}


@pytest.mark.parametrize("interruption", INTERRUPTIONS)
@pytest.mark.parametrize("call", CALLS)
def test_a_collection_at_any_allocation_changes_nothing_under_the_kernel(call: str, interruption: str) -> None:
    """A callback of the collector may do anything to a key: the call that it interrupts ends as it should."""
    quiet = Quiet()
    current = quiet.keys[0]
    with collecting(lambda: INTERRUPTIONS[interruption](quiet, current)) as done:
        for current in quiet.keys:
            CALLS[call](quiet, current)
            gc.collect(0)  # there is one in any case

    assert done[0] >= KEYS
    quiet.store.start_over()
    assert quiet.limiter.allow("ada")
    assert sum(quiet.store.forms()[:3]) == len(quiet.store)
