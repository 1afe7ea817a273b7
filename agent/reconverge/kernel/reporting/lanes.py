"""A fair queue of the keys of a shard that wait for a report: each limit has its own queue, and they take turns."""

# Theory of operation.
#
# A batch holds a few hundred cells (records of keys), and a node may have a hundred thousand changed cells, most of
# them of one limit: an attacker sends requests for all its keys, or a job goes through all customers. In one queue a
# change of another limit would wait for all of these, and the other nodes would decide without it meanwhile. So each
# limit has a lane, a queue of its own, in which the order is first come, first served; and the lanes take turns in
# cycles, in which each gives up to TURN cells. A cycle covers the lanes that existed at its beginning, the oldest
# first, so that the first cell of a lane waits for at most two turns of every other limit, however many cells that
# limit has. A cycle that is not at its end goes on with the next batch: otherwise the oldest lanes would fill all
# batches when there are many limits. A lane is made with its first cell and removed with its last one: a limit without
# changes costs nothing here, and is not kept alive. With one limit, all of this is one queue.
#
# Deciding threads append while the exchanging thread takes, each without the other's lock. So a cell may be appended to
# a lane that the exchanging thread has just found empty. Both threads check afterwards: the exchanging thread removes
# the lane, and then appends anew each cell that has joined it meanwhile; the deciding thread appends its cell, and then
# appends it anew if the lane was removed. At worst a cell waits twice, which does no harm, as a cell that was reported
# meanwhile is skipped. Only the exchanging thread takes cells, and only it uses the cycles.

from __future__ import annotations

from collections import deque
from typing import Final

from reconverge.kernel.cell import Cell, Limited

TURN: Final = 16
"""How many cells of one limit are taken in a row. With this number a batch has room for turns of 16 limits, and most
cells still follow a cell of the same limit, whose lock and numbers are in the processor's cache."""


class Lanes:
    """A queue of cells, each the counts of one key, that wait for a report; limits take turns, a few cells each."""

    __slots__ = ("_cycle", "_lanes", "_left", "number")

    def __init__(self, number: int = 0) -> None:
        self.number = number
        """The number of this queue. A cell that waits in the queue has that number in its field `dirty`, unless it is
        0."""
        self._lanes: dict[Limited, deque[Cell]] = {}
        """The lane of each limit: a queue of the limit's cells. No lane is empty."""
        self._cycle: list[Limited] = []
        """The limits that still have a turn in this cycle, the next limit at the end."""
        self._left = TURN
        """How many more cells may be taken in the present turn."""

    def __len__(self) -> int:
        return sum(map(len, list(self._lanes.values())))

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def append(self, cell: Cell) -> None:
        """Appends a cell behind the others of its limit, and marks it with this queue's number unless that is 0."""
        self._add(cell)
        if self.number:
            cell.dirty = self.number  # last: a cell in two queues does no harm, a marked one in none is never reported

    def _add(self, cell: Cell) -> None:
        table, lanes = cell.table, self._lanes
        while True:
            lane = lanes.get(table)
            if lane is None:
                lane = deque((cell,))
                if lanes.setdefault(table, lane) is lane:
                    return
            else:
                lane.append(cell)
                if lanes.get(table) is lane:
                    return

    def first(self) -> Cell:
        """Returns the cell that `popleft` would take. Raises IndexError if the queue is empty."""
        return self._front()[0]

    def popleft(self) -> Cell:
        """Takes the next cell out of the queue and returns it. Raises IndexError if the queue is empty."""
        lane = self._front()
        if len(lane) == 1:
            return self._take_last(lane)
        self._left -= 1
        if self._left <= 0:
            self._end_turn()
        return lane.popleft()

    def _front(self) -> deque[Cell]:
        """Returns the lane whose turn it is."""
        while True:
            if not self._cycle:
                self._cycle = list(self._lanes)[::-1]
                if not self._cycle:
                    raise IndexError("no cell waits to be reported; check that the queue has a cell before taking it")
            lane = self._lanes.get(self._cycle[-1])
            if lane is not None:
                return lane
            self._end_turn()

    def _end_turn(self) -> Limited:
        """Ends the turn of the present lane; returns the limit of that lane."""
        self._left = TURN
        return self._cycle.pop()

    def _take_last(self, lane: deque[Cell]) -> Cell:
        """Takes the only cell out of `lane` and returns it.

        Removes the lane first, so that no lane in the queue is ever empty. Queues cells again that another thread has
        appended to the lane meanwhile.
        """
        self._lanes.pop(self._end_turn(), None)
        cell = lane.popleft()
        while True:
            try:
                self._add(lane.popleft())  # another thread has appended it meanwhile
            except IndexError:
                return cell
