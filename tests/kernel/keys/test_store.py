"""Goal: cells are found by their keys and by nothing else, whatever the keys are and however their hashes collide.

Method: a state machine that has the store and a plain model of it do the same, with all hashes there can be: good ones,
few, and one for all. Only the compiled store takes a hash of the test's; the one in Python is a dictionary.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reconverge import InvalidKey, RateLimiter
from reconverge.kernel import COMPILED
from reconverge.kernel.cell import Cell as CellType
from reconverge.kernel.engine import Cell, Store
from reconverge.kernel.store import PLACES_PASSED
from reconverge.kernel.store import Store as PythonStore
from reconverge.limiter.control import LimitControl
from tests.support.effort import tried
from tests.support.kernel.lone import Lone
from tests.support.twin import PATHS, ROOT

Hash = Callable[[str], int]
HASHES: dict[str, Hash | None] = {
    "python's own": None,
    "one for all": lambda key: 7,
    "none": lambda key: 0,
    "negative": lambda key: -1,
    "at the end of a segment": lambda key: 2**32 - 1 - len(key) % 3,
    "by length": len,
    "one segment": lambda key: hash(key) & (2**32 - 1),
    "one part of the hash": lambda key: hash(key) & ~(2**32 - 1) & (2**63 - 1),
}
PARTICULAR = {name: each for name, each in HASHES.items() if each is not None}
LIKENESSES = [
    "ab",
    "\u6261",
    "\u6261b",
    "a",
    "a\x00",
    "a\x00\x00\x00",
    "\U00010061",
    "\u0161",
    "s\u030c",
    "é",
]
"""Keys some of which have the same bytes in memory, in another width; and some that only look alike."""


def store_with(hashed: Hash | None, *, exact: bool = True) -> Store:
    """An empty store that goes by that hash, if it lets one choose, and by the keys themselves if it is `exact`."""
    choose: Any = Store
    return choose(hash=hashed, exact=exact) if COMPILED and hashed is not None else Store()


def node_with(hashed: Hash | None, *, exact: bool = True) -> Lone:
    """Ten a minute, for keys with that hash."""
    node = Lone("10/minute")
    table = node.limiter.control.table
    table.cells = store_with(hashed, exact=exact)
    table.choose_path()
    node.limiter = RateLimiter(LimitControl(table))
    return node


class Stored(RuleBasedStateMachine):
    """A store, and what should be in it."""

    @initialize(hashed=st.sampled_from(list(HASHES)))
    def begin(self, hashed: str) -> None:
        """Nothing is in it."""
        event(hashed)
        self.table = Lone("10/minute").limiter.control.table
        self.store = store_with(HASHES[hashed])
        self.cells: dict[str, CellType] = {}
        self.dropped: list[CellType] = []
        self.places: list[str | None] = []
        self.empty: list[int] = []
        self.hand = self.number = 0

    @rule(key=st.sampled_from(LIKENESSES) | st.text(max_size=3))
    def put_one(self, key: str) -> None:
        """A key gets a cell, unless it has one."""
        if key in self.cells:
            return
        cell = Cell(key, self.table, self.table.kernel.shards[0], 0)
        self.store.put(cell)
        self.cells[key] = cell
        if self.empty:
            place = self.empty.pop()
            self.places[place] = key
        else:
            place = len(self.places)
            self.places.append(key)
        assert place == cell.place

    @rule(count=st.sampled_from([1, 7, 40, 300, 2500]), width=st.integers(0, 2))
    def put_many(self, count: int, width: int) -> None:
        """A crowd of new keys comes."""
        for _ in range(count):
            self.number += 1
            self.put_one(str(self.number) + ("", "日", "\U0001f600")[width])

    @precondition(lambda self: self.cells)
    @rule(data=st.data())
    def drop_one(self, data: st.DataObject) -> None:
        """A key leaves."""
        self._drop(data.draw(st.sampled_from(list(self.cells)[:50])))

    @precondition(lambda self: self.cells)
    @rule(every=st.integers(1, 5), start=st.integers(0, 4))
    def drop_many(self, every: int, start: int) -> None:
        """Every so manieth leaves, in the order in which they came."""
        for key in list(self.cells)[start::every]:
            self._drop(key)

    def _drop(self, key: str) -> None:
        cell = self.cells.pop(key)
        self.dropped = [*self.dropped[-20:], cell]
        self.places[cell.place] = None
        self.empty.append(cell.place)
        assert self.store.drop(cell)

    @rule()
    def drop_strangers(self) -> None:
        """Cells that are not there any more, though their keys may be, are nobody's loss."""
        assert not any(self.store.drop(cell) for cell in self.dropped)

    @rule(most=st.integers(1, 9), times=st.integers(1, 30))
    def pass_by(self, most: int, times: int) -> None:
        """Cells are gone through by their places, round and round."""
        for _ in range(times):
            expected: list[str] = []
            for _ in range(min(PLACES_PASSED, len(self.places))):
                key = self.places[self.hand]
                self.hand = (self.hand + 1) % len(self.places)
                if key is not None:
                    expected.append(key)
                    if len(expected) == most:
                        break
            assert expected == [cell.key for cell in self.store.pass_by(most)]

    @rule()
    def start_over(self) -> None:
        """Everything is forgotten."""
        self.store.start_over()
        self.cells.clear()
        self.places.clear()
        self.empty.clear()
        self.hand = 0

    @rule(key=st.sampled_from(LIKENESSES) | st.text(max_size=3))
    def look_for(self, key: str) -> None:
        """Finds the cells that were put, and no other."""
        assert self.cells.get(key) is self.store.get(key)
        assert (key in self.cells) == (key in self.store)

    @invariant()
    def all_are_there(self) -> None:
        """Finds as many as were put, each under its key, in the order of the places."""
        if hasattr(self, "store"):
            assert len(self.cells) == len(self.store)
            assert [key for key in self.places if key is not None] == [cell.key for cell in self.store.in_order()]
            assert all(self.store.get(key) is cell for key, cell in list(self.cells.items())[-300:])

    def teardown(self) -> None:
        """At the end each and every one is found, one after the other leaves, and the others stay."""
        if hasattr(self, "store"):
            assert all(self.store[key] is cell for key, cell in self.cells.items())
            while self.cells:
                for key in list(self.cells)[::3]:
                    self._drop(key)
                self.all_are_there()


TestStored = Stored.TestCase
TestStored.settings = settings(max_examples=tried(25, long=60), stateful_step_count=25)


@pytest.mark.usefixtures("compiled_kernel")
@pytest.mark.parametrize("hashed", PARTICULAR.values(), ids=PARTICULAR)
def test_keys_that_collide_are_accounted_for_apart(hashed: Hash) -> None:
    """Each has its whole quota and not one request more, and nobody pays for anybody else."""
    node = node_with(hashed)
    keys = [*dict.fromkeys(LIKENESSES), *map(str, range(100))]

    admitted = {key: node.admitted_of(3 + number % 12, key=key) for number, key in enumerate(keys)}

    assert {key: min(10, 3 + number % 12) for number, key in enumerate(keys)} == admitted
    assert admitted == {key: node.limiter.usage(key).own for key in keys}


@pytest.mark.usefixtures("compiled_kernel")
@pytest.mark.parametrize("hashed", PARTICULAR.values(), ids=PARTICULAR)
def test_resetting_a_key_leaves_those_that_collide_with_it_alone(hashed: Hash) -> None:
    """Only the very key is forgotten."""
    node = node_with(hashed)
    for key in ("ada", "bob"):
        node.admits(4, key=key)

    node.limiter.reset("ada")

    assert (0, 4) == (node.limiter.usage("ada").own, node.limiter.usage("bob").own)


@pytest.mark.usefixtures("compiled_kernel")
def test_two_keys_of_one_hash_that_is_secret_have_one_quota_together() -> None:
    """Nobody can make such a pair; should there be one, nobody is admitted too much."""
    node = node_with(lambda key: 7, exact=False)

    admitted = (node.admitted_of(7, key="ada"), node.admitted_of(7, key="bob"))

    assert (7, 3) == admitted
    assert [1] == [len(node.limiter.control.table.cells)]


@pytest.mark.usefixtures("compiled_kernel")
@pytest.mark.parametrize(("seed", "apart"), [("0", True), ("42", True), ("random", False)])
def test_strings_are_compared_where_hashes_are_no_secret(seed: str, apart: bool) -> None:
    """Whoever sets PYTHONHASHSEED has keys that somebody could make collide."""
    program = """
from tests.kernel.keys.test_store import node_with
node = node_with(lambda key: 7, exact=False)
node.admits(key="ada"), node.admits(key="bob")
print(len(node.limiter.control.table.cells))
"""
    environment = {**os.environ, "PYTHONPATH": PATHS, "PYTHONHASHSEED": seed}

    printed = subprocess.check_output([sys.executable, "-c", program], env=environment, cwd=ROOT, text=True, timeout=60)

    assert ("2" if apart else "1") == printed.strip()


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("victim", ["alice@ex", "\x01\x00\x00\x00", "a\x00\x00\x00b\x00\x00\x00"], ids=ascii)
def test_nobody_can_have_the_hash_of_somebody_else(victim: str, encoding: str) -> None:
    """Python hashes a string's bytes in memory, and the same bytes in wider characters are another string."""
    try:
        twin = victim.encode("latin-1").decode(encoding)
    except UnicodeDecodeError:
        return  # there is no such string
    node = Lone("10/minute")
    node.admits(10, key=victim)

    assert node.admits(10, key=twin)
    assert not node.admits(1, key=victim)
    assert 2 == len(node.limiter.control.table.cells)


@pytest.mark.usefixtures("compiled_kernel")
def test_a_flood_of_colliding_keys_loses_none() -> None:
    """Thousands with one hash are thousands of keys, the first and the last of them in their right."""
    node = node_with(lambda key: 7)
    node.limiter.control.table.kernel.keys_max = 10_000
    keys = [f"key {number}" for number in range(3000)]

    assert all(node.limiter.allow(key, 10) for key in keys)
    assert not any(node.limiter.allow(key) for key in keys)
    assert 3000 == len(node.limiter.control.table.cells)


@pytest.mark.usefixtures("compiled_kernel")
def test_a_hash_that_fails_is_not_swallowed_when_a_key_is_kept() -> None:
    """Its error is raised, and nothing was kept."""

    def failing(key: str) -> int:
        raise LookupError(key)

    store = store_with(failing)
    table = Lone("10/minute").limiter.control.table

    with pytest.raises(LookupError):
        store.put(Cell("ada", table, table.kernel.shards[0], 0))

    assert 0 == len(store)


class Named(str):
    """A string with a mind of its own."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7

    def __str__(self) -> str:
        return "SOMETHING ELSE"


@pytest.mark.parametrize("key", LIKENESSES, ids=ascii)
def test_every_kind_of_string_is_the_key_that_it_is(key: str) -> None:
    """However wide its characters are in memory, and in whatever way it was made."""
    node = Lone("10/minute")
    node.admits(3, key=key)
    made_anew = "".join(list(key))

    assert node.admits(7, key=made_anew)
    assert not node.admits(1, key=key)
    assert [1] == [len(node.limiter.control.table.cells)]


def test_a_string_that_equals_everything_is_counted_under_its_characters() -> None:
    """The equality, the hash and the text of a subclass of str are not asked; a plain string is kept."""
    node = Lone("10/minute")
    node.admits(3, key="ada")

    node.admits(4, key=Named("ada"))
    node.admits(5, key=Named("bob"))

    assert (7, 5) == (node.limiter.usage("ada").own, node.limiter.usage("bob").own)
    assert [str] * 2 == [type(key) for key in node.limiter.control.table.cells]


def test_a_key_of_a_million_characters_leaves_nothing_behind() -> None:
    """It is refused by its length each time, and neither kept nor counted."""
    node = Lone("10/minute")
    for number in range(20):
        with pytest.raises(InvalidKey, match="bytes, more than 256"):
            node.limiter.allow(f"{number}" + "k" * 10**6)

    table = node.limiter.control.table
    assert (0, 0, 0) == (len(table.cells), table.kernel.keys, table.overflowed)
    assert table.overflow is None


def test_a_key_of_a_million_characters_is_a_key_for_who_allows_it() -> None:
    """With `key_bytes_max` raised, two that differ in the last character are two."""
    node = Lone("10/minute")
    node.agent = type(node.agent)("memory://", clock=node.clock, key_bytes_max=2 * 10**6)
    limiter = node.agent.limit("limit", "10/minute")
    one, other = "k" * 10**6 + "1", "k" * 10**6 + "2"

    assert (True, True, False) == (limiter.allow(one, 10), limiter.allow(other, 10), limiter.allow(one))


@pytest.mark.usefixtures("compiled_kernel")
def test_a_store_that_serves_no_limit_says_so() -> None:
    """Nothing can be decided before it is known about what."""
    store: Any = Store()

    with pytest.raises(RuntimeError, match="serves no limit"):
        store.allow("ada")
    with pytest.raises(RuntimeError, match="serves no limit"):
        store.hit("ada", 3)
    with pytest.raises(RuntimeError, match="serves no limit"):
        store.allow_many(["ada"])


@pytest.mark.usefixtures("compiled_kernel")
@pytest.mark.parametrize("stranger", [None, "ada", 7, object()], ids=lambda value: type(value).__name__)
def test_only_cells_are_kept(stranger: Any) -> None:
    """Anything else is a mistake, and nothing is kept."""
    store: Any = Store()

    with pytest.raises(TypeError):
        store.put(stranger)
    with pytest.raises(TypeError):
        store.drop(stranger)

    assert (0, None) == (len(store), store.get(stranger))


def test_a_cell_that_was_dropped_has_no_room() -> None:
    """Whoever has just found it and is about to charge it at once has to look again; see decision 50."""
    table: Any = Lone("10/minute").limiter.control.table
    store = PythonStore()
    cells = [CellType(key, table, table.kernel.shards[0], 0) for key in ("ada", "bob")]
    for cell in cells:
        cell.room = 7
        store.put(cell)

    store.drop(cells[0])
    store.start_over()

    assert [-1, -1] == [cell.room for cell in cells]


def unasked(*_: object) -> None:
    """Stands in for what should not be called."""
    raise AssertionError("Python was asked")


@pytest.mark.usefixtures("compiled_kernel")
@pytest.mark.parametrize("key", ["ada", "é", "日本", "\U0001f600", "k" * 256, "é" * 128])
def test_a_new_key_is_met_without_python(key: str) -> None:
    """Neither its cell nor its first decision needs any."""
    node = Lone("10/minute")
    node.admits(key="first")  # which compares the clocks
    vars(node.limiter.control.table)["_decide"] = unasked

    assert node.admits(10, key=key)
    assert not node.admits(1, key=key)
    assert 2 == node.limiter.control.table.kernel.keys


@pytest.mark.usefixtures("compiled_kernel")
@pytest.mark.parametrize("key", ["", "\x00x", "k" * 257, "é" * 129, "\U0001f600" * 65, "a\ud800"], ids=ascii)
def test_what_is_no_key_is_left_to_python(key: str) -> None:
    """It knows what is wrong with it, and nothing is kept."""
    node = Lone("10/minute")

    with pytest.raises(InvalidKey):
        node.admits(key=key)

    assert (0, 0) == (len(node.limiter.control.table.cells), node.limiter.control.table.kernel.keys)
