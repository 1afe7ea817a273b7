"""Work that takes slots of a limit on work in progress, beside the requests of a node."""

# Theory of operation.
#
# A limit on work in progress can be tested only while there is some: so a few workers of each node wait for a slot,
# work for a moment and release it, until the load is over. Together the nodes want twice as many slots as there are, so
# slots are always scarce. Most work is short; some outlasts an outage, so that the lease from before it ends before the
# work.
#
# Workers are threads, or tasks if the node's agent lives in an event loop. A loop that ends before the load does
# cancels them, at any point. A process that forks holds a slot meanwhile, which no child may release.
#
# A slot is recorded after it was taken and before it is released. So the judge sees it in use for a little less than
# its time, and never for longer: each excess that the judge finds was one.

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
"""The number of workers of each node."""
OF_ONE: Final = 12
"""The number of workers of a node that is alone: twice as many as there are slots."""
TIMEOUT_S: Final = 0.2
"""The longest wait of a worker for a slot, in seconds, before it asks again."""
PAUSE_S: Final = 0.005
"""The seconds between two slots of a worker, and after a refusal."""
SHORT_S: Final = (0.01, 0.06)
LONG_S: Final = (0.5, 2.0)
LONG_SHARE: Final = 0.3
"""The share of the work that takes long."""
FIRST_S: Final = 5.0
"""The longest wait of a process, in seconds, for a slot that it holds while it forks."""


@runtime_checkable
class SlotTaker(Protocol):
    """A contestant with a limit on work in progress."""

    name: str

    @property
    def slots_lease(self) -> Lease:
        """Returns the lease on which the slots are taken."""
        ...

    def slot(self, timeout_s: float) -> AbstractContextManager[object]:
        """Waits up to `timeout_s` for a slot. Yields whether there is one, which it holds until the block ends."""
        ...


@runtime_checkable
class SlotTakerInLoop(Protocol):
    """A contestant with a limit on work in progress that lives in an event loop."""

    name: str

    @property
    def slots_lease(self) -> Lease: ...

    def slot_in_loop(self, timeout_s: float) -> AbstractAsyncContextManager[object]:
        """Waits up to `timeout_s` for a slot. Yields whether there is one, which it holds until the block ends."""
        ...


def take_slots(node: Node) -> None:
    """Makes threads of a node take slots until the load is over, if the plan has slots."""
    for taker in _takers(node):
        for number in range(_workers(node)):
            thread = threading.Thread(
                target=_take_again_and_again, args=(node, taker, _random(node, number)), name=taker.name, daemon=True
            )
            thread.start()


def tasks_that_take_slots(node: Node, contestants: Sequence[Contestant]) -> list[asyncio.Task[None]]:
    """Makes tasks of the running loop take slots until the load is over, if the plan has slots."""
    takers = [one for one in contestants if isinstance(one, SlotTakerInLoop)] if node.plan.slots else []
    return [
        asyncio.create_task(_take_in_loop(node, taker, _random(node, number)), name=taker.name)
        for taker in takers
        for number in range(_workers(node))
    ]


@contextmanager
def slot_over_forks(node: Node) -> Iterator[None]:
    """Holds a slot in this process until the block ends, and in none that it forks meanwhile."""
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
    """Works for a moment, in a slot; does nothing if there is none."""
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
