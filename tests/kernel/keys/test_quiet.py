"""Goal: keys that nobody asks about take no object of their own, and nothing that is known of them is lost by that.

Method: cells are filled with whatever numbers there may be, and a node and its hub have keys of which most are quiet.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconverge.clock import MILLISECOND_NS, NEVER_NS, SECOND_NS, ManualClock
from reconverge.kernel.cell import Cell as CellType
from reconverge.kernel.cell import Headroom
from reconverge.kernel.engine import Cell
from reconverge.kernel.table.lookup import look_up
from reconverge.limit import FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET, Limit
from reconverge.policies import BALANCED
from reconverge.simulation.explore.node import INTERVAL_NS, START_S, SmallNode
from reconverge_sync.memory import MemoryHub
from tests.support.effort import tried

pytestmark = pytest.mark.usefixtures("compiled_kernel")

FIXED_ATTRIBUTES = {
    "key",
    "table",
    "shard",
    "lows",
    "history",
    "place",
    "due_ns",
    "room",
    "waiters",
    "dirty",
    "urgent",
}
AMOUNTS = {"level", "stored", "credit", "late"}
RATES = {"fleet_used", "fleet_needs", "fleet_demand", "demand"}
MARKS = {"at_hub", "held", "unconfirmed", "fresh", "leaving", "doubted", "denied", "comfortable", "sealed"}
WHOLES = sorted({*Headroom.__slots__, *CellType.__slots__} - FIXED_ATTRIBUTES - AMOUNTS - RATES - MARKS - {"confirmed"})
KINDS = (FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET)


class QuietNode:
    """A node with a hub."""

    def __init__(self, algorithm: str = SLIDING_WINDOW, *, keys_max: int = 100_000) -> None:
        self.clock = ManualClock(START_S)
        self.hub = MemoryHub(clock=self.clock)
        self.node = SmallNode(self.clock, keys_max=keys_max)
        self.table = self.node.limit(Limit(100, 60, algorithm=algorithm), BALANCED)

    @property
    def store(self) -> Any:
        """In which the cells are."""
        return self.table.cells

    @property
    def objects(self) -> int:
        """How many keys have a cell of their own."""
        whole, lone, quiet, _ = self.store.forms()
        assert (0, len(self.store)) == (lone, whole + quiet)
        return int(whole)

    def intervals_pass(self, count: int) -> None:
        """Somebody exchanges whatever there is to say."""
        for _ in range(count):
            for _ in range(100):
                self.node.exchanges_with(self.hub)
                if self.node.syncer.due_ns(self.clock.monotonic_ns()) > self.clock.monotonic_ns():
                    break
                self.clock.advance_ns(MILLISECOND_NS)
            self.clock.advance_ns(INTERVAL_NS)


def known(cell: Any) -> dict[str, Any]:
    """All that there is to know of a cell, fractions to the last bit."""
    names = {*Headroom.__slots__, *CellType.__slots__} - {"table", "shard", "lows", "history"}
    values = {name: getattr(cell, name) for name in names}
    return {name: struct.pack("d", value) if isinstance(value, float) else value for name, value in values.items()}


LARGE = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(-300, 300)
MOMENTS = st.integers(-(2**42), 2**42)
NUMBERS = st.one_of(SMALL, SMALL, MOMENTS, LARGE, st.sampled_from([0, -1, 2**63 - 1, -(2**63), NEVER_NS, -NEVER_NS]))
VAST = st.sampled_from([2**63, 2**100 + 5, -(2**90) + 1, 2**127 - 1, -(2**127)])
AMOUNT_NUMBERS = st.one_of(NUMBERS, VAST)
RATE_NUMBERS = st.one_of(
    SMALL.map(lambda number: number / 1000),
    SMALL.map(float),
    st.floats(),
    st.sampled_from([0.0, -0.0, 1e12, 0.1 + 0.2]),
)


@st.composite
def numbers(draw: st.DrawFn) -> dict[str, Any]:
    """Draws the numbers of a cell."""
    drawn: dict[str, Any] = draw(st.dictionaries(st.sampled_from(WHOLES), NUMBERS, max_size=12))
    drawn |= draw(st.dictionaries(st.sampled_from(sorted(AMOUNTS)), AMOUNT_NUMBERS, max_size=2))
    drawn |= draw(st.dictionaries(st.sampled_from(sorted(RATES)), RATE_NUMBERS, max_size=4))
    drawn |= draw(st.dictionaries(st.sampled_from(sorted(MARKS)), st.booleans(), max_size=2))
    if draw(st.booleans()):
        drawn["confirmed"] = draw(st.tuples(NUMBERS, NUMBERS, NUMBERS))
    return drawn


@settings(max_examples=tried(40, long=100))
@given(several=st.lists(numbers(), min_size=1, max_size=4))
def test_a_quiet_cell_comes_back_as_it_was(several: list[dict[str, Any]]) -> None:
    """Every number of it, though most are told by how far they differ from another cell's."""
    fleet = QuietNode()
    before: dict[str, dict[str, Any]] = {}
    for number, values in enumerate(several):
        key = f"key {number}"
        cell = look_up(fleet.table, key, fleet.clock.monotonic_ns())
        for name, value in values.items():
            setattr(cell, name, value)
        fleet.node.kernel.shards[0].agenda.promise(cell, 10**15)
        before[key] = known(cell)
        del cell
        assert fleet.store.rest(key)
    assert 0 == fleet.objects

    assert before == {key: known(fleet.store[key]) for key in before}


@settings(max_examples=tried(15, long=30))
@given(count=st.integers(1, 600), every=st.integers(1, 5))
def test_keys_may_become_quiet_and_busy_in_any_order(count: int, every: int) -> None:
    """They come back with what was theirs, and are due when they were, in the order in which they were promised it."""
    fleet = QuietNode()
    agenda = fleet.node.kernel.shards[0].agenda
    now_ns = fleet.clock.monotonic_ns()
    keys = [f"key {number}" for number in range(count)]
    for number, key in enumerate(keys):
        cell = look_up(fleet.table, key, now_ns)
        cell.used, cell.measured_ns = number, now_ns + number**2
        agenda.promise(cell, now_ns + 5)
        del cell
    for key in keys[::every]:
        assert fleet.store.rest(key)
    for key in keys[:: every + 1]:
        assert fleet.store[key].key == key
    for key in keys[:: every + 2]:
        fleet.store.rest(key)

    assert now_ns + 5 == agenda.due_ns()
    assert list(range(count)) == [fleet.store[key].used for key in keys]
    assert [now_ns + number**2 for number in range(count)] == [fleet.store[key].measured_ns for key in keys]
    assert {now_ns + 5} == {fleet.store[key].due_ns for key in keys}


@pytest.mark.parametrize("algorithm", KINDS)
def test_keys_that_were_asked_about_once_take_no_object(algorithm: str) -> None:
    """Once the hub has answered about them, and though they are reported again now and then."""
    fleet = QuietNode(algorithm)
    for number in range(300):
        fleet.table.allow(f"key {number}", number % 3 + 1)
    assert 300 == fleet.objects

    fleet.intervals_pass(3)
    assert 0 == fleet.objects

    fleet.intervals_pass(30)
    assert 0 == fleet.objects


def test_a_key_that_is_asked_about_all_the_time_keeps_its_object() -> None:
    """Nothing is gained by taking it apart only to put it together again."""
    fleet = QuietNode()
    for number in range(20):
        fleet.table.allow(f"key {number}")
    for _ in range(5):
        fleet.table.allow("busy")
        fleet.intervals_pass(1)
    assert 1 == fleet.objects

    fleet.intervals_pass(3)

    assert 0 == fleet.objects


@pytest.mark.parametrize("algorithm", KINDS)
def test_a_quiet_key_is_decided_about_as_if_it_were_not(algorithm: str) -> None:
    """It has its whole quota, and what was used before counts."""
    fleet = QuietNode(algorithm)
    for key in ("ada", "bob"):
        assert fleet.table.allow(key, 40)
    fleet.intervals_pass(3)
    assert 0 == fleet.objects

    fleet.table.allow("ada")

    assert 1 == fleet.objects
    expected = (41, 40)
    assert expected == (fleet.table.usage("ada").own, fleet.table.usage("bob").own)


def test_whoever_holds_a_cell_has_the_one_that_counts() -> None:
    """A cell that somebody has in hand stays the one that its key has."""
    fleet = QuietNode()
    fleet.table.allow("ada")
    cell = fleet.store["ada"]

    fleet.intervals_pass(3)

    assert fleet.store["ada"] is cell
    assert not fleet.store.rest("ada")


def test_a_quiet_key_that_is_forgotten_is_gone() -> None:
    """With its promise, and whatever was kept of it beside its place."""
    fleet = QuietNode()
    for number in range(100):
        fleet.table.allow(f"key {number}")
    fleet.intervals_pass(3)
    fleet.node.kernel.forget_everything()

    assert (0, NEVER_NS) == (len(fleet.store), fleet.node.kernel.shards[0].agenda.due_ns())


def test_quiet_keys_leave_when_their_window_is_over() -> None:
    """They are looked at when they were promised it, and then there is nothing left to remember."""
    fleet = QuietNode()
    for number in range(100):
        fleet.table.allow(f"key {number}")
    fleet.intervals_pass(3)
    assert 0 == fleet.objects

    for _ in range(30):
        fleet.clock.advance_ns(10 * SECOND_NS)
        fleet.intervals_pass(3)

    assert (0, 0) == (len(fleet.store), fleet.node.kernel.keys)


@pytest.mark.parametrize(
    ("name", "value"), [("dirty", True), ("urgent", True), ("room", 5), ("waiters", 1), ("lows", object())]
)
def test_a_key_with_something_to_say_is_not_quiet(name: str, value: Any) -> None:
    """A key keeps its object that asks for an exchange, has room that would be used in silence, or is waited for."""
    fleet = QuietNode()
    for key in ("ada", "bob"):
        cell = look_up(fleet.table, key, fleet.clock.monotonic_ns())
        fleet.node.kernel.shards[0].agenda.promise(cell, 10**15)
    setattr(fleet.store["ada"], name, value)
    del cell

    assert fleet.store.rest("bob")
    assert not fleet.store.rest("ada")


def test_a_key_that_is_promised_nothing_is_not_quiet() -> None:
    """Nobody would ever look at it again."""
    fleet = QuietNode()
    look_up(fleet.table, "ada", fleet.clock.monotonic_ns())

    assert not fleet.store.rest("ada")
    assert not fleet.store.rest("nobody")
    assert isinstance(fleet.store["ada"], Cell)
