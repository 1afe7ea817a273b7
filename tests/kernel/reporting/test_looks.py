"""Goal: one go at what there is to say takes a bounded time, however many cells were promised another look.

Method: more cells than are looked at in one go, all of them reported, used again and promised another look.
"""

from __future__ import annotations

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.hub.report import Answer, CellAnswer, CellReport, Status
from reconverge.kernel import Kernel
from reconverge.kernel.reporting.agenda import LOOKS_MAX
from reconverge.limit import Limit
from reconverge.policies import BALANCED
from reconverge.simulation.explore.node import START_S

MANY = 3 * LOOKS_MAX
CELLS_MAX = 256


class ManyKeysSaid:
    """A node with many keys, all of which it was asked about and has spoken of."""

    def __init__(self, keys: int = MANY) -> None:
        self.clock = ManualClock(START_S)
        self.kernel = Kernel(
            self.clock,
            namespace="looks",
            interval_ns=SECOND_NS,
            interval_min_ns=SECOND_NS // 10,
            keys_max=2 * keys,
            key_bytes_max=64,
            new_keys_max=10**9,
        )
        self.table = self.kernel.declare("busy", Limit(1000, 60.0, algorithm="fixed-window"), BALANCED)
        self.keys = [f"key {number}" for number in range(keys)]
        self.use_and_say_everything()

    def use_and_say_everything(self) -> None:
        """Every key once, and batches until there is nothing more."""
        for key in self.keys:
            self.table.allow(key)
        while self.says() or self.more:
            pass

    def promised(self) -> list[int]:
        """When each key is to be looked at."""
        return [cell.due_ns for cell in self.table.all_cells()]

    def says(self, cells_max: int = CELLS_MAX) -> list[str]:
        """The keys of the next regular batch, which is answered at once. A round begins with it if none goes on."""
        now_ns = self.clock.monotonic_ns()
        begins = not self.kernel.round_goes_on(0, None)
        _, cells, self.more, _ = self.kernel.take(
            0, now_ns=now_ns, cells_max=cells_max, early=False, begins=begins, in_touch=True
        )
        hub_us = (now_ns + self.kernel.shards[0].offset_ns) // 1000
        answers = tuple(_answer(cell) for cell in cells)
        answer = Answer(hub_us, "data", Status.MERGED, answers)
        self.kernel.install(0, answer, heard_ns=now_ns, now_ns=now_ns)
        return [cell.key for cell in cells]


def test_promises_that_were_replaced_are_not_looked_at() -> None:
    """Each key was promised a look, and then spoken of: those promises are gone at once, the new ones hold."""
    node = ManyKeysSaid()
    node.clock.advance(0.5)
    node.use_and_say_everything()
    node.clock.advance(0.6)
    promised = node.promised()

    assert [] == node.says()
    assert not node.more
    assert promised == node.promised()


def test_nobody_who_was_promised_a_look_is_forgotten() -> None:
    """Each says something once, after however many goes."""
    node = ManyKeysSaid()
    node.clock.advance(700.0)

    said: list[str] = []
    for _ in range(2 * MANY // CELLS_MAX):
        said += node.says()

    assert sorted(node.keys) == sorted(said)


def _answer(cell: CellReport) -> CellAnswer:
    """Whoever asks has an allowance of ten, and there is enough for all."""
    return CellAnswer(
        epoch=cell.epoch, allowance=10, base=10, overdraft=0, capacity=1000, free=900, reserved=0, current=cell.current,
        previous=0, silent=0, needs_milli=cell.need_milli, demand_milli=0, nodes=1, last_demand=0,
        window_demand=cell.window_demand, reset_us=0,
    )  # fmt: skip
