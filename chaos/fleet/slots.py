"""Work that takes slots of a limit on what is in progress, beside the requests of a node."""

# Theory of operation.
#
# What a limit on what is in progress promises can be seen only while something is: so a few workers of each node wait
# for a slot, work for a moment and give it back, for as long as the load lasts. Together the nodes want twice as much
# as may be in progress, so slots are always scarce. Most work is short; some outlasts an outage, and what a node's
# lease covered when it began it does not when it ends.
#
# Workers are threads, or tasks where the node's agent lives in an event loop. A loop that ends before the load does
# cancels them, whatever they do just then. A process that forks holds a slot meanwhile, which no child may give back.
#
# A slot is written down after it was taken and before it is given back. So the judge sees it in use for a little
# less than it is, and never for longer: what it finds above the limit was above the limit.

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from random import Random
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from chaos.judge.history import Lease
from reconverge.clock import SECOND_NS

if TYPE_CHECKING:
    from chaos.fleet.contestant import Contestant
    from chaos.fleet.node import Node

WORKERS: Final = 3
"""So many each node has."""
OF_ONE: Final = 12
"""So many a node has that is alone: twice as many as there are slots."""
TIMEOUT_S: Final = 0.2
"""The longest that a worker waits for a slot before it asks again."""
PAUSE_S: Final = 0.005
"""Between two slots of a worker, and after a refusal."""
SHORT_S: Final = (0.01, 0.06)
LONG_S: Final = (0.5, 2.0)
LONG_SHARE: Final = 0.3
"""So much of the work takes long."""
FIRST_S: Final = 5.0
"""The longest that a process waits for a slot that it holds while it forks."""


@runtime_checkable
class SlotTaker(Protocol):
    """A contestant with a limit on what is in progress."""

    name: str

    @property
    def slots_lease(self) -> Lease:
        """The lease that its slots are taken on."""
        ...

    def slot(self, timeout_s: float) -> AbstractContextManager[object]:
        """A slot for as long as a block lasts, waited for so long at most; false if there was none."""
        ...


@runtime_checkable
class SlotTakerInLoop(Protocol):
    """The same, of one that lives in an event loop."""

    name: str

    @property
    def slots_lease(self) -> Lease:
        """See `SlotTaker.slots_lease`."""
        ...

    def slot_in_loop(self, timeout_s: float) -> AbstractAsyncContextManager[object]:
        """See `SlotTaker.slot`."""
        ...


def take_slots(node: Node) -> None:
    """Have threads of a node take slots until the load is over, where the plan says so."""
    for taker in _takers(node):
        for number in range(_workers(node)):
            thread = threading.Thread(
                target=_take_again_and_again, args=(node, taker, _random(node, number)), name=taker.name, daemon=True
            )
            thread.start()


def tasks_that_take_slots(node: Node, contestants: Sequence[Contestant]) -> list[asyncio.Task[None]]:
    """Have tasks of the running loop take slots until the load is over, where the plan says so."""
    takers = [one for one in contestants if isinstance(one, SlotTakerInLoop)] if node.plan.slots else []
    return [
        asyncio.create_task(_take_in_loop(node, taker, _random(node, number)), name=taker.name)
        for taker in takers
        for number in range(_workers(node))
    ]


@contextmanager
def slot_over_forks(node: Node) -> Iterator[None]:
    """Hold a slot in this process until the block ends, and in none that it forks meanwhile."""
    takers = _takers(node)
    if not takers:
        yield
        return
    (taker,) = takers
    mine, asked_ns = os.getpid(), time.monotonic_ns()
    with taker.slot(FIRST_S) as slot:
        assert slot, "no slot was free before there was anything in progress"
        taken_ns = node.recorder.took(taker.name, asked_ns=asked_ns, lease=taker.slots_lease)
        try:
            yield
        finally:
            if os.getpid() == mine:
                node.recorder.gives(taker.name, taken_ns)


def work_in_slot(node: Node, taker: SlotTaker, random: Random, *, longest_s: float) -> None:
    """Work for a moment, in a slot; not at all if there is none."""
    asked_ns = time.monotonic_ns()
    with taker.slot(TIMEOUT_S) as slot:
        if slot:
            taken_ns = node.recorder.took(taker.name, asked_ns=asked_ns, lease=taker.slots_lease)
            threading.Event().wait(min(_lasts_s(random), longest_s))
            node.recorder.gives(taker.name, taken_ns)


def _take_again_and_again(node: Node, taker: SlotTaker, random: Random) -> None:
    time.sleep(max(0.0, (node.start_ns - time.monotonic_ns()) / SECOND_NS))
    while not node.ended and (left_s := _load_left_s(node)) > 0:
        work_in_slot(node, taker, random, longest_s=left_s)
        time.sleep(PAUSE_S)


async def _take_in_loop(node: Node, taker: SlotTakerInLoop, random: Random) -> None:
    await asyncio.sleep(max(0.0, (node.start_ns - time.monotonic_ns()) / SECOND_NS))
    while not node.ended and (left_s := _load_left_s(node)) > 0:
        asked_ns = time.monotonic_ns()
        async with taker.slot_in_loop(TIMEOUT_S) as slot:
            if slot:
                taken_ns = node.recorder.took(taker.name, asked_ns=asked_ns, lease=taker.slots_lease)
                try:
                    await asyncio.sleep(min(_lasts_s(random), left_s))
                finally:
                    node.recorder.gives(taker.name, taken_ns)
        await asyncio.sleep(PAUSE_S)


def _takers(node: Node) -> list[SlotTaker]:
    return [one for one in node.contestants if isinstance(one, SlotTaker)] if node.plan.slots else []


def _workers(node: Node) -> int:
    return OF_ONE if node.plan.alone else WORKERS


def _random(node: Node, number: int) -> Random:
    return Random(f"slots {node.plan.seed} {node.plan.node} {number}")


def _lasts_s(random: Random) -> float:
    return random.uniform(*(LONG_S if random.random() < LONG_SHARE else SHORT_S))


def _load_left_s(node: Node) -> float:
    return (node.start_ns + node.plan.load_ns - time.monotonic_ns()) / SECOND_NS
