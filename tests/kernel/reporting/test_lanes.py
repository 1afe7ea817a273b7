"""Goal: cells of one limit that wait for a report, however many, delay those of no other limit.

Method: a node with two limits. One of them has far more changed cells than a batch takes, and the batches are counted
until the one changed cell of the other limit is in one of them.
"""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from functools import partial
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.exchange.syncer import CELLS_MAX
from reconverge.kernel import COMPILED, Kernel, LimitInterval, Table
from reconverge.kernel.engine import Cell, due_cells
from reconverge.kernel.reporting import agenda
from reconverge.kernel.reporting.agenda import PASSED_MAX
from reconverge.kernel.reporting.deferred import hold_back
from reconverge.kernel.reporting.lanes import TURN, Lanes
from reconverge.kernel.reporting.requests import mark_dirty, request_early
from reconverge.kernel.table.lookup import look_up
from reconverge.limit import Limit
from reconverge.policies import BALANCED
from reconverge.simulation.explore.node import START_S
from tests.support.opcodes import interrupted_at

MANY = 20_000
COMPANIONS_MAX = 8
LIMIT = Limit(1000, 60)
STEPS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3 * TURN)), max_size=12)
"""Of a limit so many cells come, which is one of three; or so many go, of whichever limit."""


class Crowd:
    """A node that the hub has answered about every key, and what it reports batch by batch."""

    def __init__(self, limits: int = 2) -> None:
        clock = ManualClock(START_S)
        self.now_ns = clock.monotonic_ns()
        self.kernel = Kernel(
            clock,
            namespace="lanes",
            interval_ns=SECOND_NS,
            interval_min_ns=SECOND_NS // 10,
            keys_max=2 * MANY,
            key_bytes_max=64,
        )
        self.shard = self.kernel.shards[0]
        self.tables = [self.kernel.declare(f"limit {number}", LIMIT, BALANCED) for number in range(limits)]

    def known(self, table: Table, keys: int = 1) -> list[Cell]:
        """Cells of that limit which the hub has answered about."""
        cells = [look_up(table, f"key {number}", self.now_ns) for number in range(keys)]
        for cell in cells:
            cell.heard_ns = self.now_ns
        return cells

    def changes(self, cells: list[Cell]) -> None:
        """They have something new to say."""
        for cell in cells:
            mark_dirty(cell)

    def hurries(self, cells: list[Cell], after_ns: int = 0) -> None:
        """They ask for a report after so long, and do not wait for the regular one."""
        for cell in cells:
            request_early(cell, self.now_ns + after_ns)

    def fills(self, keys: int) -> None:
        """So many cells of each limit have something new to say, half of them in a hurry."""
        for table in self.tables:
            cells = self.known(table, keys)
            self.changes(cells)
            self.hurries(cells[keys // 2 :])

    def batch(self, *, early: bool = False, cells_max: int = CELLS_MAX) -> tuple[list[Cell], bool]:
        """Takes the next batch, and tells whether there is more. A round begins with it if none goes on."""
        begins = not (early or self.shard.round)
        if begins:
            self.shard.begin_round()
        cells, more = due_cells(self.shard, self.now_ns, early, begins, COMPANIONS_MAX, cells_max)
        for cell in cells:
            cell.dirty, cell.urgent = 0, False  # as `report_cell` does
        return cells, more

    def all_batches(self, *, early: bool = False) -> list[list[Cell]]:
        batches, more = list[list[Cell]](), True
        while more:
            cells, more = self.batch(early=early)
            batches.append(cells)
        return batches


@pytest.mark.parametrize(
    ("many_do", "one_does"),
    [(["changes"], "changes"), (["hurries"], "hurries"), (["changes", "hurries"], "changes")],
    ids=["behind changed ones", "in a hurry like them", "beside those in a hurry"],
)
def test_a_cell_goes_out_at_once_though_thousands_of_another_limit_came_before(
    many_do: list[str], one_does: str
) -> None:
    """It is in the first batch, ahead of time if it is in a hurry; the other limit's cells are all reported."""
    crowd = Crowd()
    many, (one,) = crowd.known(crowd.tables[0], MANY), crowd.known(crowd.tables[1])
    for does in many_do:
        getattr(crowd, does)(many)
    getattr(crowd, one_does)([one])

    batches = crowd.all_batches(early=one_does == "hurries")

    assert one in batches[0]
    assert Counter([*many, one]) == Counter(chain(*batches))
    assert len(many_do) > 1 or many == [cell for cell in chain(*batches) if cell is not one]


def test_limits_give_a_few_cells_each_by_turns() -> None:
    """In the order in which they began to have any, and those of a limit in the order in which they came."""
    crowd = Crowd(3)
    first, second, third = (crowd.known(table, 2 * TURN + 1) for table in crowd.tables)
    crowd.changes([second[0], *first, *second[1:], *third[:3]])

    (batch,) = crowd.all_batches()

    turns = [second[:TURN], first[:TURN], third[:3], second[TURN : 2 * TURN], first[TURN : 2 * TURN]]
    assert [*chain(*turns), second[-1], first[-1]] == batch


def test_a_cycle_goes_on_in_the_next_batch() -> None:
    """With more limits than a batch has turns, each has its turn before any has another one."""
    limits = 2 * CELLS_MAX // TURN
    crowd = Crowd(limits)
    for table in crowd.tables:
        crowd.changes(crowd.known(table, 2 * TURN))

    named = [{cell.table.name for cell in crowd.batch()[0]} for _ in range(4)]

    names = [table.name for table in crowd.tables]
    assert [set(names[: limits // 2]), set(names[limits // 2 :])] * 2 == named


def test_a_limit_whose_cells_come_one_by_one_has_no_more_turns_than_the_others() -> None:
    """A cell that comes in the middle of a cycle waits for the rest of that and for its turn in the next one."""
    crowd = Crowd()
    many, single = crowd.known(crowd.tables[0], MANY // 10), crowd.known(crowd.tables[1], 3)
    crowd.changes(many)
    taken = list[Cell]()
    for cell in single:
        crowd.changes([cell])
        while cell not in taken:
            taken.append(crowd.shard.dirty.popleft())
            taken[-1].dirty = 0
        taken.append(crowd.shard.dirty.popleft())  # of the other limit, with which a cycle begins

    assert [TURN, 3 * TURN + 1, 5 * TURN + 2] == [taken.index(cell) for cell in single]


def test_every_cell_in_a_hurry_is_looked_at_once() -> None:
    """Those whose time has not come hold back no others, and they themselves are taken at that time."""
    crowd = Crowd()
    later, now = crowd.known(crowd.tables[0], 5), crowd.known(crowd.tables[1], 10 * TURN)
    crowd.hurries(later, after_ns=7)
    crowd.hurries(now)

    assert (now, False) == crowd.batch(early=True)
    assert crowd.now_ns + 7 == crowd.shard.early_ns
    crowd.now_ns += 7
    assert (later, False) == crowd.batch(early=True)


def test_every_cell_is_sorted_once_by_whether_its_limit_is_due() -> None:
    """Where limits have sync intervals of their own: a few cells that are due keep none of the others among them."""
    crowd = Crowd()
    due, others = crowd.known(crowd.tables[0], 3), crowd.known(crowd.tables[1], 10 * TURN)
    crowd.kernel.change_own_pace(crowd.tables[1:], LimitInterval(4 * SECOND_NS, SECOND_NS))
    for cells in (due, others):
        crowd.changes(cells)
        crowd.hurries(cells, after_ns=7)

    crowd.shard.later.sort(crowd.shard.dirty, {SECOND_NS}, CELLS_MAX)
    held: list[Cell] = []
    hold_back(crowd.shard, {SECOND_NS}, crowd.now_ns, held)

    assert len(others) == len(crowd.shard.later)
    assert others == held
    assert (due, False) == crowd.batch()


def test_cells_that_were_reported_meanwhile_are_passed_by_little_by_little() -> None:
    """However many limits they are of, no go at them takes longer; and they take up no places of a batch."""
    crowd = Crowd()
    *gone, waiting = crowd.known(crowd.tables[0], PASSED_MAX + 1)
    for cell in (*gone, *crowd.known(crowd.tables[1], PASSED_MAX)):
        crowd.shard.dirty.append(cell)
        cell.dirty = 0
    crowd.changes([waiting])

    assert [([], True), ([], True), ([waiting], False)] == [crowd.batch() for _ in range(3)]


@given(steps=STEPS)
def test_both_kernels_take_cells_in_one_order(steps: list[tuple[int, int]]) -> None:
    """Each cell comes once, and each limit's in the order in which they came."""
    crowd = Crowd(3)
    ours, theirs = crowd.shard.dirty, Lanes()
    came, went = 0, list[Cell]()
    for which, many in steps:
        for _ in range(many):
            if which < len(crowd.tables):
                cell = Cell(f"{came:06}", crowd.tables[which], crowd.shard, crowd.now_ns)
                ours.append(cell)
                theirs.append(cell)
                came += 1
            elif theirs:
                went.append(ours.popleft())
                assert went[-1] is theirs.first()
                assert went[-1] is theirs.popleft()
        assert len(ours) == len(theirs) == came - len(went)
        assert bool(ours) == bool(theirs) == (came > len(went))

    for table in crowd.tables:
        keys = [cell.key for cell in went if cell.table is table]
        assert sorted(set(keys)) == keys


@pytest.mark.skipif(not COMPILED, reason="there is one kernel to be compared")
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("stir"), st.integers(0, 2), st.integers(0, 50)),
            st.tuples(st.just("want"), st.integers(0, 2), st.integers(0, 50)),
            st.tuples(st.just("begin"), st.just(0), st.just(0)),
            st.tuples(st.just("take"), st.integers(0, 2), st.integers(0, 60)),
            st.tuples(st.just("report"), st.integers(0, 2), st.integers(0, 50)),
        ),
        max_size=20,
    )
)
def test_both_kernels_make_the_same_batches(steps: list[tuple[str, int, int]]) -> None:
    """Of whatever asks to be reported, at the beginning of a round, later in it, or ahead of time."""
    crowd = Crowd(3)
    shard, cells = agenda.ShardFields(), [crowd.known(table, 50) for table in crowd.tables]
    shard.begin()
    for what, which, many in steps:
        if what == "take":
            early, begins = which == 1, which == 2
            found = due_cells(crowd.shard, crowd.now_ns, early, begins, COMPANIONS_MAX, many)
            assert found == agenda.due_cells(shard, crowd.now_ns, early, begins, COMPANIONS_MAX, many)
            assert crowd.shard.early_ns == shard.early_ns
            for cell in found[0]:
                cell.dirty, cell.urgent = 0, False
            continue
        if what == "begin":
            crowd.shard.begin_round()
            shard.begin_round()
        for number, cell in enumerate(cells[which][:many]):
            if what == "stir" and not cell.dirty:
                crowd.changes([cell])
                shard.dirty.append(cell)
            elif what == "want" and not cell.urgent:
                crowd.hurries([cell], after_ns=number % 3)
                shard.urgent.append(cell)
            elif what == "report":
                cell.dirty, cell.urgent = 0, False


def test_a_limit_none_of_whose_cells_waits_is_not_kept_alive() -> None:
    """Its lane is gone with its last cell, and so is what the lanes knew of the limit."""
    crowd, other = Crowd(1), Crowd(1)
    lanes = crowd.shard.dirty
    lanes.append(Cell("ada", crowd.tables[0], crowd.shard, crowd.now_ns))
    for _ in range(2 * TURN):
        lanes.append(Cell("ada", other.tables[0], crowd.shard, crowd.now_ns))
    gone = weakref.ref(other.tables[0])
    del other
    gc.collect()
    before = gone()

    while len(lanes):
        lanes.popleft()

    assert before is not None
    del before
    gc.collect()
    assert gone() is None


def test_the_collector_finds_what_waits_in_lanes() -> None:
    """A kernel whose cells wait knows the lanes, and they it by the cells: all goes with the last reference."""
    crowd = Crowd(3)
    crowd.fills(100)
    gone = weakref.ref(crowd.tables[0])

    del crowd
    gc.collect()

    assert gone() is None


@pytest.mark.parametrize("interrupted", ["taking", "coming"])
def test_no_cell_is_lost_when_one_comes_while_another_is_taken(interrupted: str) -> None:
    """Either may interrupt any instruction of the other in Python; cells of the same limit come and of another one."""
    crowd = Crowd()
    (taken,), (other,) = (crowd.known(table) for table in crowd.tables)
    comes = Cell("bob", crowd.tables[0], crowd.shard, crowd.now_ns)
    number, goes_on = 0, True
    while goes_on:
        lanes, went = Lanes(), list[Cell]()
        lanes.append(taken)
        taking, coming = partial(_take_one, lanes, went), partial(_come_all, lanes, [comes, other])
        first, second = (taking, coming) if interrupted == "taking" else (coming, partial(_take_all, lanes, went))
        goes_on = interrupted_at(number, first, second)
        _take_all(lanes, went)

        assert not goes_on or {taken, comes, other} == set(went)
        number += 1

    assert number > 10


def test_two_cells_that_come_at_once_are_both_kept() -> None:
    """One may interrupt any instruction of the other's coming, with a lane for their limit or without."""
    crowd = Crowd()
    before, one, other = (Cell(key, crowd.tables[0], crowd.shard, crowd.now_ns) for key in ("ada", "bob", "cyd"))
    for waiting in ([], [before]):
        number, goes_on = 0, True
        while goes_on:
            lanes, went = Lanes(), list[Cell]()
            _come_all(lanes, waiting)
            goes_on = interrupted_at(number, partial(_come_all, lanes, [one]), partial(_come_all, lanes, [other]))
            _take_all(lanes, went)

            assert not goes_on or {*waiting, one, other} == set(went)
            number += 1

        assert number > 5


def _come_all(lanes: Lanes, cells: list[Cell]) -> None:
    for cell in cells:
        lanes.append(cell)


def _take_one(lanes: Lanes, went: list[Cell]) -> None:
    went.append(lanes.popleft())


def _take_all(lanes: Lanes, went: list[Cell]) -> None:
    while lanes:
        went.append(lanes.popleft())
