"""Goal: each quiet cell is looked at again once for each promise that still holds, at its time and in order.

Method: promises are made to the cells of a node as exchanges make them, and what is due is taken bit by bit.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reconverge.clock import NEVER_NS, ManualClock
from reconverge.exchange.syncer import CELLS_MAX
from reconverge.kernel.engine import Cell, due_cells
from reconverge.kernel.reporting.agenda import GROUP_MAX, LOOKS_MAX, PROMISED_SHARE
from reconverge.kernel.table.lookup import look_up, new_cell
from reconverge.limit import Limit
from reconverge.policies import STRICT
from reconverge.simulation.explore.node import START_S, SmallNode


class TwoLimits:
    """A node with two limits, whose cells are promised another look."""

    def __init__(self, keys: int) -> None:
        self.node = SmallNode(ManualClock(START_S), keys_max=10 * keys)
        self.shard = self.node.kernel.shards[0]
        self.now_ns = self.node.clock.monotonic_ns()
        tables = [self.node.limit(Limit(10, 60), STRICT, name) for name in ("one", "other")]
        self.cells, self.others = (
            [look_up(table, f"key {number}", self.now_ns) for number in range(keys)] for table in tables
        )

    def promise(self, cell: Cell, after_ns: int) -> None:
        """Promises to look at a cell again after so long."""
        self.shard.agenda.promise(cell, self.now_ns + after_ns)

    def due(self, after_ns: int, *, cells_max: int = 10**6) -> tuple[list[Cell], bool]:
        """Returns the cells to be reported after so long, and whether there are more."""
        if not self.shard.round:
            self.shard.begin_round()
        return due_cells(self.shard, self.now_ns + after_ns, False, True, 8, cells_max)


def test_quiet_cells_are_looked_at_in_their_time_though_more_others_wait_than_a_batch_holds() -> None:
    """Each batch has room for some whose time has come, while others change as fast as they are reported."""
    promising = TwoLimits(PROMISED_SHARE * CELLS_MAX)
    others = promising.others[:CELLS_MAX]
    for cell in others:
        promising.promise(cell, 5)
    looked_at, more = list[Cell](), False
    for _ in range(PROMISED_SHARE):
        for cell in promising.cells:
            if not cell.dirty:
                promising.shard.dirty.append(cell)
        cells, more = promising.due(5, cells_max=CELLS_MAX)
        looked_at += [cell for cell in cells if cell in others]
        for cell in cells:
            cell.dirty = 0

    assert others == looked_at
    assert more


def test_the_next_promise_replaces_the_one_before() -> None:
    """Whether it is for sooner or for later, and however often."""
    promising = TwoLimits(1)
    (cell,) = promising.cells
    for after_ns in (7, 3, 3, 9, 5):
        promising.promise(cell, after_ns)

    assert promising.now_ns + 5 == promising.shard.agenda.due_ns() == cell.due_ns
    assert [([], False), ([cell], False), ([], False)] == [promising.due(4), promising.due(5), promising.due(9)]
    assert NEVER_NS == promising.shard.agenda.due_ns() == cell.due_ns


@given(due=st.lists(st.integers(0, 3), min_size=1, max_size=60), batches=st.sampled_from([1, 20, 25, 300]))
def test_those_of_one_moment_come_in_the_order_of_their_promises(due: list[int], batches: int) -> None:
    """And those of an earlier one before them, with whomever they were reported."""
    due = due * 3
    promising = TwoLimits(len(due))
    for number, (cell, after_ns) in enumerate(zip(promising.cells, due, strict=True)):
        cell.reported_ns = -(10**15) + number // batches % 3
        promising.promise(cell, after_ns)

    expected = [cell for _, cell in sorted(zip(due, promising.cells, strict=True), key=lambda pair: pair[0])]

    assert (expected, False) == promising.due(3)


def test_however_many_are_promised_one_moment_they_keep_their_order() -> None:
    """More than are kept together, two limits by turns, and some that were promised something else since."""
    promising = TwoLimits(2 * GROUP_MAX)
    for cell, other in zip(promising.cells, promising.others, strict=True):
        promising.promise(cell, 5)
        promising.promise(other, 5)
    for cell in promising.cells[::3]:
        promising.promise(cell, 6)

    taken, more = promising.due(6)
    while more:
        further, more = promising.due(6)
        taken += further

    kept = [cell for number, cell in enumerate(promising.cells) if number % 3]
    assert [*kept, *promising.cells[::3]] == [cell for cell in taken if cell.table.name == "one"]
    assert promising.others == [cell for cell in taken if cell.table.name == "other"]


def test_what_finds_no_room_is_taken_next_time() -> None:
    """In the same order, and nothing twice."""
    promising = TwoLimits(10)
    for cell in promising.cells:
        promising.promise(cell, 1)

    taken = [promising.due(1, cells_max=4) for _ in range(3)]

    assert [(promising.cells[:4], True), (promising.cells[4:8], True), (promising.cells[8:], False)] == taken


def test_no_call_looks_at_more_cells_than_it_may() -> None:
    """Even if none of them has anything to say: whoever waits for the interpreter does not wait for all of them."""
    promising = TwoLimits(2 * LOOKS_MAX + 1)
    for cell in promising.cells:
        promising.promise(cell, 1)
        cell.dirty = 1

    assert [([], True), ([], True), ([], False)] == [promising.due(1) for _ in range(3)]
    assert NEVER_NS == promising.shard.agenda.due_ns()


def test_nothing_is_promised_to_a_cell_that_was_dropped() -> None:
    """Nobody knows it any more, and its place may be somebody else's."""
    promising = TwoLimits(3)
    for cell in promising.cells:
        promising.promise(cell, 1)
    gone = promising.cells[1]
    promising.node.kernel._drop(gone)
    new = look_up(promising.node.kernel.tables[gone.table.name], "new", promising.now_ns)

    assert gone.place == new.place
    assert ([promising.cells[0], promising.cells[2]], False) == promising.due(1)


def test_a_cell_without_a_place_can_be_promised_something() -> None:
    """The cell of the keys beyond the cap is such a one."""
    promising = TwoLimits(2)
    cell = new_cell(promising.node.kernel.tables[promising.cells[0].table.name], "of all others", promising.now_ns)
    promising.promise(promising.cells[0], 2)
    promising.promise(cell, 2)
    promising.promise(promising.cells[1], 2)

    taken, _ = promising.due(2)

    assert {cell, *promising.cells} == set(taken)


def test_what_was_promised_before_all_was_forgotten_does_not_count() -> None:
    """Cells that somebody still has can be promised something anew, by whoever comes after."""
    promising = TwoLimits(3)
    alone = new_cell(promising.node.kernel.tables[promising.cells[0].table.name], "of all others", promising.now_ns)
    for cell in (*promising.cells, alone):
        promising.promise(cell, 1)

    promising.node.kernel.forget_everything()

    assert ([], False) == promising.due(1)
    promising.promise(alone, 2)
    promising.promise(promising.cells[1], 1)
    assert ([promising.cells[1], alone], False) == promising.due(2)


def test_a_cell_that_is_promised_something_a_thousand_times_is_promised_it_once() -> None:
    """Each time for a later moment, as a busy key is."""
    promising = TwoLimits(2)
    busy, quiet = promising.cells
    promising.promise(quiet, 50_000)
    for number in range(10_000):
        promising.promise(busy, 100 * number)

    assert ([quiet], False) == promising.due(60_000)
    assert ([], False) == promising.due(100 * 9999 - 1)
    assert ([busy], False) == promising.due(100 * 9999)
