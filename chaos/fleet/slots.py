"""Work that takes slots of a limit on what is in progress, beside the requests of a node."""

# Theory of operation.
#
# What a limit on what is in progress promises can be seen only while something is: so a few threads of each node wait
# for a slot, work for a moment and give it back, for as long as the load lasts. Together the nodes want twice as much
# as may be in progress, so slots are always scarce. Most work is short; some outlasts an outage, and what a node's
# lease covered when it began it does not when it ends.
#
# A slot is written down after it was taken and before it is given back. So the judge sees it in use for a little
# less than it is, and never for longer: what it finds above the limit was above the limit.

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager
from random import Random
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from reconverge.clock import SECOND_NS

if TYPE_CHECKING:
    from chaos.fleet.node import Node

THREADS: Final = 3
TIMEOUT_S: Final = 0.2
"""The longest that a thread waits for a slot before it asks again."""
PAUSE_S: Final = 0.005
"""Between two slots of a thread, and after a refusal."""
SHORT_S: Final = (0.01, 0.06)
LONG_S: Final = (0.5, 2.0)
LONG_SHARE: Final = 0.3
"""So much of the work takes long."""


@runtime_checkable
class SlotTaker(Protocol):
    """A contestant with a limit on what is in progress."""

    name: str

    def slot(self, timeout_s: float) -> AbstractContextManager[object]:
        """A slot for as long as a block lasts, waited for so long at most; false if there was none."""
        ...


def take_slots(node: Node) -> None:
    """Have threads of a node take slots until the load is over, where the plan says so."""
    if not node.plan.slots:
        return
    for contestant in node.contestants:
        if isinstance(contestant, SlotTaker):
            for number in range(THREADS):
                random = Random(f"slots {node.plan.seed} {node.plan.node} {number}")
                thread = threading.Thread(
                    target=_take_again_and_again, args=(node, contestant, random), name=contestant.name, daemon=True
                )
                thread.start()


def _take_again_and_again(node: Node, taker: SlotTaker, random: Random) -> None:
    pause = threading.Event()
    pause.wait(max(0.0, (node.start_ns - time.monotonic_ns()) / SECOND_NS))
    while not node.ended and (left_s := _load_left_s(node)) > 0:
        asked_ns = time.monotonic_ns()
        with taker.slot(TIMEOUT_S) as slot:
            if slot:
                taken_ns = node.recorder.took(taker.name, asked_ns=asked_ns)
                lasts_s = random.uniform(*(LONG_S if random.random() < LONG_SHARE else SHORT_S))
                pause.wait(min(lasts_s, left_s))
                node.recorder.gives(taker.name, taken_ns)
        pause.wait(PAUSE_S)


def _load_left_s(node: Node) -> float:
    return (node.start_ns + node.plan.load_ns - time.monotonic_ns()) / SECOND_NS
