"""Selects the keys of a shard to report next, and schedules checks of keys that have no requests."""

# Theory of operation.
#
# A node may keep a hundred thousand keys, of which a few hundred have something to report at any moment. Finding those
# must not take longer the more keys there are, and no single call may hold up decisions or the event loop that it runs
# in.
#
# A cell is the node's record of one key. Changed cells wait in queues (`dirty`, `urgent`). A batch holds a few hundred,
# so it may take many batches, one right after the other, to report them all: a round. A round consists of the cells
# that were `dirty` when it began, which then wait in `round`; cells that change meanwhile wait in `dirty` for the next
# round, an interval later. If they joined the round in progress, a node with more busy keys than a batch holds would
# exchange without a pause: by the time that the last cell is reported, the first ones have been used again. Only cells
# with a reason to be early join a round: urgent cells that are due, and new keys. A cell that is reported out of its
# turn, and changes again, is in both queues: the queue that counts is the one whose number is in the cell's field
# `dirty` (`lanes.py`).
#
# Each quiet cell has one promise: a moment at which it is checked again. In a plain heap a promise that is replaced
# stays until it would have been due: a busy key leaves one behind with each exchange, and with 100,000 keys it took 5
# to 13 ms in one call to remove such dead promises. So promises are kept in groups of cells of one limit that are due
# at one moment. A cell refers to its group, and leaves it when it gets another promise. Then the heap has no dead
# promises, the next due moment is exact, and a promise takes four bytes in C instead of 24 to 36.
#
# Choosing the group of a promise must not take a search, so only the OPEN_MAX groups that were begun last are tried.
# A group with MIXED_MAX members takes only cells that were reported together with its last one, because the compiled
# kernel stores the data of quiet cells as differences to their group. Groups of one moment come in the order in which
# they were begun; the order of cells of different limits that are due together does not matter, but is the same in
# both twins (the kernels in C and Python).
#
# One call makes at most LOOKS_MAX checks, and skips at most PASSED_MAX cells that were reported meanwhile. It returns
# whether more may be due; then the syncer calls again after the loop's other work. One function has no such bound: at
# the end of the process, all allowances are given up in one call.

from __future__ import annotations

import heapq
from collections import deque

from reconverge.clock import NEVER_NS
from reconverge.kernel.cell import Cell
from reconverge.kernel.lock import Lock
from reconverge.kernel.reporting.cell_reports import look_again
from reconverge.kernel.reporting.lanes import Lanes

GROUP_MAX = 256
"""The most keys that may ever join one group of scheduled checks."""
MIXED_MAX = 16
"""After this many keys have joined a group, only keys may join that were reported at the same moment as the last one.
Keys with similar numbers take less memory together."""
OPEN_MAX = 8
"""A key joins one of this many groups that were begun last, or begins a new group."""
PROMISED_SHARE = 16
"""While more changed keys wait than a batch holds, 1/PROMISED_SHARE of the batch is reserved for keys without
requests."""
LOOKS_MAX = 512
"""The most scheduled checks that one call makes, so that it does not hold up decisions or the event loop."""
PASSED_MAX = 1024
"""The most queued keys that one call skips because they were reported or dropped after they had been queued."""


class Group:
    """Keys of one limit whose next check is due at the same moment, in the order in which they were added."""

    __slots__ = ("cells", "due_ns", "home", "joined", "number", "reported_ns")

    def __init__(self, due_ns: int, number: int, home: object) -> None:
        self.due_ns = due_ns
        self.number = number
        self.home = home
        self.cells: dict[Cell, None] = {}
        self.joined = 0
        """How many keys have ever joined the group."""
        self.reported_ns = -NEVER_NS
        """When the last key of the group was reported, in nanoseconds of the monotonic clock."""

    def __lt__(self, other: Group) -> bool:
        return (self.due_ns, self.number) < (other.due_ns, other.number)


class Agenda:
    """The schedule of checks of keys without requests: when each of them may have something to report.

    A key has at most one scheduled check. Keys whose checks are due at the same moment form groups; of several groups
    for one moment, the group begun first comes first.
    """

    __slots__ = ("_empty", "_group_of", "_groups", "_numbers", "_open")

    def __init__(self) -> None:
        self._groups: list[Group] = []
        """All groups, as a heap by moment and number."""
        self._open: list[Group] = []
        """The groups that further cells may join, the newest last."""
        self._group_of: dict[Cell, Group] = {}
        self._numbers = 0
        self._empty = 0
        """How many of the groups in the heap have no cells any more."""

    def promise(self, cell: Cell, due_ns: int) -> None:
        self.forget(cell)
        group = self._group_for(cell, due_ns)
        group.cells[cell] = None
        group.joined += 1
        group.reported_ns = cell.reported_ns
        self._group_of[cell] = group
        cell.due_ns = due_ns

    def _group_for(self, cell: Cell, due_ns: int) -> Group:
        home = cell.table if cell.place >= 0 else cell
        for group in reversed(self._open):
            if group.due_ns == due_ns and group.home is home:
                joined_max = GROUP_MAX if group.reported_ns == cell.reported_ns else MIXED_MAX
                if group.joined < joined_max:
                    return group
                break  # in an older group the cell would come before cells of this one
        self._numbers += 1
        group = Group(due_ns, self._numbers, home)
        heapq.heappush(self._groups, group)
        self._open = [*self._open[1 - OPEN_MAX :], group]
        return group

    def forget(self, cell: Cell) -> None:
        cell.due_ns = NEVER_NS
        group = self._group_of.pop(cell, None)
        if group is None:
            return
        del group.cells[cell]
        if not group.cells:
            if group in self._open:
                self._open.remove(group)
            self._empty += 1
            if self._empty > OPEN_MAX + len(self._groups) // 2:
                self._groups = [group for group in self._groups if group.cells]
                self._empty = 0
                heapq.heapify(self._groups)

    def due_ns(self) -> int:
        """Returns the moment of the next scheduled check, in monotonic nanoseconds; NEVER_NS if none is scheduled."""
        while self._groups and not self._groups[0].cells:
            heapq.heappop(self._groups)
            self._empty -= 1
        return self._groups[0].due_ns if self._groups else NEVER_NS

    def first(self) -> Cell:
        """Returns the cell (the counts of one key) to be checked next.

        The schedule must not be empty. Call `due_ns` first, which also removes empty groups.
        """
        return next(iter(self._groups[0].cells))


class ShardFields:
    """The queues of keys to report to one shard of the hub. Decisions fill them, and exchanges empty them."""

    early_ns: int
    dirty: Lanes
    """Keys that have changed since their last report, for the next round of regular batches."""
    round: Lanes
    """Keys that the round in progress still has to report."""
    urgent: Lanes
    """Keys to report in an early exchange, before the next regular exchange."""
    agenda: Agenda
    """The schedule of checks of keys that have not changed."""

    def begin(self) -> None:
        """Empties all queues, so that no key waits for a report."""
        self.dirty, self.round = Lanes(1), Lanes(2)
        self.urgent = Lanes()
        self.agenda = Agenda()

    def begin_round(self) -> None:
        """Begins a round, a series of regular batches that reports all keys which are in `dirty` now.

        The two queues are swapped, and neither is replaced by a new one: a deciding thread may be about to append.
        """
        self.dirty, self.round = self.round, self.dirty


class TallyFields:
    """One limit's sums of charges and refunds at one shard, and its new keys that have not been reported yet."""

    __slots__ = ("charged", "fresh", "fresh_from_ns", "refunded")

    charged: int
    refunded: int
    fresh: deque[Cell]
    """The limit's new keys of one shard, which wait for their first report."""
    fresh_from_ns: int
    """The moment before which no further new key may request an early exchange."""

    def begin(self) -> None:
        """Empties the queue of new keys."""
        self.fresh = deque()
        self.fresh_from_ns = -NEVER_NS


def due_cells(
    shard: ShardFields, now_ns: int, early: bool, begins: bool, companions_max: int, cells_max: int
) -> tuple[list[Cell], bool]:
    """Returns the cells (each the counts of one key) to report now, and whether more cells are due.

    The cells are in the order in which they were queued. An early exchange takes the urgent cells. It also takes the
    other changed cells if there are at most `companions_max`.

    A regular exchange reserves up to half of its places for cells that are not urgent, so that a limit whose cells are
    all urgent does not delay the others. It also reserves some places for cells without requests whose scheduled check
    is due. If `begins`, this is the first batch of a round, a series of batches that reports all changed cells: it
    takes urgent cells however recent their last report is. A later batch takes only urgent cells that are due.
    """
    waiting = shard.dirty if early else shard.round
    cells: dict[Cell, None] = {}
    promised = 0 if early or shard.agenda.due_ns() > now_ns else cells_max // PROMISED_SHARE
    others_max = cells_max - promised
    hurried_max = cells_max if early else others_max - min(len(waiting), others_max // 2)
    more = _take_wanted(shard, now_ns, not begins, cells, hurried_max)
    if not early or (cells and not more and len(waiting) <= companions_max):
        more = _take_stirred(waiting, cells, others_max) or more
    if promised or not more:
        more = _take_promised(shard, now_ns, cells, cells_max) or more
    return list(cells), more


def put_forward(tally: TallyFields, shard: ShardFields, waiting: Lanes, lock: Lock, most: int) -> int:
    """Moves up to `most` of a limit's new keys into the queues of the next batch; takes the limit's `lock` for each.

    Urgent cells join the shard's urgent queue, the others join `waiting`. Returns how many new keys were moved.
    """
    taken = passed = 0
    while tally.fresh and taken < most and passed < PASSED_MAX:
        if lock.run(_put_one_forward, tally, shard, waiting):
            taken += 1
        else:
            passed += 1
    return taken


def _put_one_forward(tally: TallyFields, shard: ShardFields, waiting: Lanes) -> bool:
    """Moves one cell into the queues of the next batch; returns whether the cell is still a new key.

    Returns False if the node has dropped the key, or if the hub has answered about it since it was queued.
    """
    cell = tally.fresh.popleft()
    if not cell.fresh:
        return False
    cell.fresh = False
    (shard.urgent if cell.urgent else waiting).append(cell)
    return not cell.heard


def _take_wanted(shard: ShardFields, now_ns: int, ripe: bool, cells: dict[Cell, None], cells_max: int) -> bool:
    """Moves urgent cells into `cells`; if `ripe`, only cells that are due. Returns whether more may be due."""
    urgent = shard.urgent
    shard.early_ns = NEVER_NS
    passed, more = 0, False
    postponed: list[Cell] = []
    for _ in range(len(urgent)):
        if passed == PASSED_MAX or (len(cells) >= cells_max and _is_to_be_taken(urgent.first(), now_ns, ripe, cells)):
            shard.early_ns = now_ns
            more = True
            break
        cell = urgent.popleft()
        if not cell.urgent or cell in cells:
            passed += 1  # reported meanwhile
        elif ripe and cell.early_ns > now_ns:
            postponed.append(cell)
            shard.early_ns = min(shard.early_ns, cell.early_ns)
        else:
            cells[cell] = None
    for cell in postponed:  # not before, or they would be met again while others have yet to be looked at
        urgent.append(cell)
    return more


def _is_to_be_taken(cell: Cell, now_ns: int, ripe: bool, cells: dict[Cell, None]) -> bool:
    return cell.urgent and cell not in cells and not (ripe and cell.early_ns > now_ns)


def _take_stirred(waiting: Lanes, cells: dict[Cell, None], cells_max: int) -> bool:
    """Moves changed cells from `waiting` into `cells`, up to `cells_max` in all; returns whether more may wait."""
    passed = 0
    for _ in range(len(waiting)):
        if passed == PASSED_MAX:
            return True
        if len(cells) >= cells_max and (cell := waiting.first()).dirty == waiting.number and cell not in cells:
            return True
        cell = waiting.popleft()
        if cell.dirty != waiting.number or cell in cells:
            passed += 1  # reported out of its turn
        else:
            cells[cell] = None
    return False


def _take_promised(shard: ShardFields, now_ns: int, cells: dict[Cell, None], cells_max: int) -> bool:
    """Moves cells whose scheduled check finds something to report into `cells`; returns whether more may be due."""
    agenda = shard.agenda
    for _ in range(LOOKS_MAX):
        if agenda.due_ns() > now_ns:
            return False
        cell = agenda.first()
        if cell.dirty or cell in cells:
            agenda.forget(cell)
            continue
        if len(cells) == cells_max:
            return True
        agenda.forget(cell)
        if cell.table.lock.run(look_again, cell, now_ns):
            cells[cell] = None
    return agenda.due_ns() <= now_ns
