"""Handmade snapshots of nodes' load shedding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from reconverge.agent.snapshots.load_snapshot import LayerLoad, LoadSnapshot, StackLoad
from tests.support.snapshots import START_S

CRITICAL, GET = "critical", "GET"
SLOTS: Final = LayerLoad("concurrency", "on", (0, 4), (0, 0), {"limit": 8.0, "in_flight": 3.0})
WORKER: Final = LayerLoad("worker", "shadow", (0, 0), (1, 6), {"pressure": 1.5, "rejected_fraction": 0.25})
API: Final = StackLoad("api", (CRITICAL, GET), (10, 20), (SLOTS, WORKER))


def some_load(**changes: Any) -> LoadSnapshot:
    """Returns a process with one stack of two layers, and three requests that wait."""
    made = LoadSnapshot("web-1", 7, START_S, "abcd", (API,), 0, {"render": 3})
    return replace(made, **changes)


def later(load: LoadSnapshot, *, seconds: float, admitted: tuple[int, int], refused: tuple[int, int]) -> LoadSnapshot:
    """Returns the same process after further requests of each class; its first layer has refused the refused ones."""
    (stack,) = load.stacks
    first, *others = stack.layers
    shed = replace(first, refused=_sums(first.refused, refused))
    then = replace(stack, admitted=_sums(stack.admitted, admitted), layers=(shed, *others))
    return replace(load, at=load.at + seconds, stacks=(then,))


def _sums(counts: tuple[int, ...], more: tuple[int, int]) -> tuple[int, ...]:
    return tuple(one + other for one, other in zip(counts, more, strict=True))
