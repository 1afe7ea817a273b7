"""Goal: a hint has others exchange early what they hold of a key that is used up, and can do nothing else.

Method: real kernels and syncers without loops, whose hints the test hands from one to the other; and forged ones.
"""

from __future__ import annotations

from random import Random

import pytest

from reconverge.clock import MILLISECOND_NS, SECOND_NS, ManualClock
from reconverge.hints import BYTES_MAX, HEARD_MAX, KEYS_MAX, MAGIC, PENDING_MAX, Hints, Misfit, read_hint
from reconverge.limit import Limit
from reconverge.policies import BALANCED, NAIVE, STRICT, Policy
from reconverge_sync.memory import MemoryHub
from tests.node import START_S, Node

INTERVAL_NS = SECOND_NS
SHORTEST_NS = INTERVAL_NS // 10
HOUR = Limit(100, 3600, algorithm="fixed-window")
ENTRY = b"\x05\x03\x00limitada"
STRANGER = b"stranger"
FORGED = MAGIC + STRANGER + ENTRY


class Hinter(Node):
    """A node that tells and hears hints."""

    def __init__(self, fleet: Fleet, limit: Limit, policy: Policy) -> None:
        super().__init__(fleet.clock, interval_ns=INTERVAL_NS)
        self.kernel.lease_ns = 3600 * SECOND_NS
        self.hub = fleet.hub
        self.table = self.limit(limit, policy)
        self.hints = Hints(self.kernel, sender=b"%08d" % self.number)

    @property
    def now_ns(self) -> int:
        """By its clock."""
        return self.clock.monotonic_ns()

    def ask(self, times: int = 1, key: str = "ada") -> int:
        """How many of so many requests it admits."""
        return sum(self.table.decide(key, 1, self.now_ns).allowed for _ in range(times))

    def speaks(self) -> None:
        """Have an exchange, and look at the answer."""
        batch = self.sends()
        self.reaches(self.hub)
        self.hears()
        if batch is not None:
            self.hints.answered(batch, self.now_ns)

    def tells(self) -> bytes | None:
        """What it tells now."""
        return self.hints.take(self.now_ns)

    def is_told(self, hint: bytes | None) -> None:
        """It hears that."""
        assert hint is not None
        self.hints.hear(hint, self.now_ns)

    @property
    def due_in_ns(self) -> int:
        """How long until it wants to exchange."""
        return max(0, self.syncer.due_ns(self.now_ns) - self.now_ns)


class Fleet:
    """Nodes at one hub in memory, which all have exchanged as far as they had something to say."""

    def __init__(self, nodes: int = 2, limit: Limit = HOUR, policy: Policy = STRICT) -> None:
        self.clock = ManualClock(START_S)
        self.hub = MemoryHub(clock=self.clock)
        self.nodes = [Hinter(self, limit, policy) for _ in range(nodes)]
        self.all_speak(2)

    def all_speak(self, rounds: int = 1, after_ns: int = SECOND_NS) -> None:
        """So often, each time after a while."""
        for _ in range(rounds):
            self.clock.advance_ns(after_ns)
            for node in self.nodes:
                node.speaks()


def used_up() -> Fleet:
    """Two nodes, of which the second has a part of the only key's line, and the first has used up all the rest."""
    fleet = Fleet()
    first, second = fleet.nodes
    second.ask(30)
    fleet.all_speak(2)
    second.ask(10)
    second.speaks()
    for _ in range(3):
        first.ask(100)
        fleet.clock.advance_ns(SHORTEST_NS // 2)
        first.speaks()
    assert second.table.cells["ada"].line > second.table.cells["ada"].used
    assert 0 == first.ask()
    return fleet


@pytest.fixture
def fleet() -> Fleet:
    """Such a fleet."""
    return used_up()


def test_a_key_that_is_used_up_is_told_of_once() -> None:
    """However often it is refused; in the next window it is told of again."""
    fleet = Fleet(1)
    (node,) = fleet.nodes

    def told_in(rounds: int) -> list[tuple[str, str]]:
        subjects: list[tuple[str, str]] = []
        for _ in range(rounds):
            node.ask(100)
            fleet.all_speak()
            hint = node.tells()
            subjects += [] if hint is None else read_hint(hint)[1]
        return subjects

    assert [("limit", "ada")] == told_in(10)
    assert 0 == node.ask()
    fleet.clock.advance(3600)
    assert [("limit", "ada")] == told_in(10)


def test_a_key_is_told_of_again_when_much_was_charged_since() -> None:
    """A tenth of the capacity: then what others heard is out of date."""
    fleet = Fleet(1)
    (node,) = fleet.nodes
    node.ask(100)
    fleet.all_speak()
    cell = node.table.cells["ada"]
    told = []
    for charged in (100, 9, 1, 9, 1):  # as if the key had been used up with each
        cell.charged += charged
        cell.free, cell.need_milli, cell.line = 0, 1000, 0
        node.hints._note(cell)
        told.append(node.tells() is not None)
        fleet.clock.advance_ns(SHORTEST_NS)

    assert [True, False, True, False, True] == told


def test_a_key_of_which_something_is_left_is_not_told_of() -> None:
    """Nor one that is used up and that nobody asks for any more."""
    fleet = Fleet()
    for _ in range(5):
        fleet.nodes[0].ask(10)
        fleet.all_speak()

    assert None is fleet.nodes[0].tells()


def refused_for_ns(*, told: bool) -> tuple[int, int]:
    """When the second node wants to exchange, and for how long the first is refused what the second does not need."""
    fleet = used_up()
    first, second = fleet.nodes
    began_ns = first.now_ns
    if told:
        second.is_told(first.tells())
    due_in_ns = second.due_in_ns
    while not first.ask(5):
        fleet.clock.advance_ns(10 * MILLISECOND_NS)
        for node in fleet.nodes:
            if node.due_in_ns == 0:
                node.speaks()
    return due_in_ns, first.now_ns - began_ns


def test_who_holds_a_line_exchanges_it_ahead_of_time() -> None:
    """And gives back what it does not need, to whoever lacks it, sooner than it would have done."""
    told_due_ns, told_ns = refused_for_ns(told=True)
    due_ns, untold_ns = refused_for_ns(told=False)

    assert told_due_ns <= SHORTEST_NS < due_ns
    assert told_ns <= untold_ns - INTERVAL_NS // 2


def test_a_hint_neither_admits_nor_refuses() -> None:
    """Whoever forges one changes when is exchanged, and nothing that is decided until then."""
    told, untold = Fleet(1, policy=BALANCED), Fleet(1, policy=BALANCED)
    for fleet in (told, untold):
        fleet.nodes[0].ask(10)
        fleet.all_speak(3)
    told.nodes[0].is_told(FORGED)
    lines = [(node.table.cells["ada"].line, node.table.cells["ada"].overdraft) for node in told.nodes + untold.nodes]

    assert 1 == told.nodes[0].hints.heeded
    assert lines[0] == lines[1]
    assert told.nodes[0].ask(500) == untold.nodes[0].ask(500)


def test_who_has_no_cell_is_left_alone() -> None:
    """Otherwise anybody could fill its memory, and the hub's."""
    (node,) = Fleet(1).nodes
    before = node.due_in_ns
    node.is_told(FORGED)
    node.is_told(FORGED.replace(b"limit", b"other"))

    assert (0, 0, before) == (node.kernel.keys, node.hints.heeded, node.due_in_ns)


def test_who_knows_as_much_is_left_alone() -> None:
    """It has nothing to give back, and refuses anyway. So has one whose policy knows no lines."""
    fleet = Fleet(1)
    (node,) = fleet.nodes
    for _ in range(3):
        node.ask(100)
        fleet.all_speak()
    assert 100 == node.table.cells["ada"].used
    assert not node.table.cells["ada"].wanted
    node.is_told(FORGED)
    assert 0 == node.hints.heeded
    (naive,) = Fleet(1, policy=NAIVE).nodes
    naive.ask()
    naive.speaks()
    naive.is_told(FORGED)

    assert 0 == naive.hints.heeded


def test_what_others_have_told_is_not_told_again(fleet: Fleet) -> None:
    """And a node's own hint, when it comes back to it, is none."""
    first, second = fleet.nodes
    second.ask(100)
    hint = first.tells()
    first.is_told(hint)
    assert 0 == first.hints.heard
    second.is_told(hint)
    for _ in range(5):
        second.ask(100)
        fleet.all_speak()

    assert 0 == second.ask()
    assert None is second.tells()


def exchanges_in_a_minute(hints_at_once: int) -> tuple[int, Hinter]:
    """Exchanges of a node that is asked now and then, and told so many forged hints each 10 ms."""
    (node,) = Fleet(1).nodes
    exchanges = 0
    for moment in range(6000):
        if moment % 300 == 0:
            node.ask()
        for number in range(hints_at_once):
            node.is_told(FORGED.replace(STRANGER, b"%08d" % number))
        if node.due_in_ns == 0:
            exchanges += 1
            node.speaks()
        node.clock.advance_ns(10 * MILLISECOND_NS)
    return exchanges, node


def test_a_flood_costs_no_more_than_exchanges_ahead_of_time() -> None:
    """At their pace, however many hints there are; most are not even looked at."""
    calm, _ = exchanges_in_a_minute(0)
    flooded, node = exchanges_in_a_minute(30)

    assert calm < flooded <= 60 * SECOND_NS // SHORTEST_NS + 1
    assert HEARD_MAX * 60 * SECOND_NS // SHORTEST_NS >= node.hints.heard
    assert 0 < node.hints.rejected["flood"]


def test_many_keys_are_told_in_batches() -> None:
    """One in the time between two exchanges, and each no longer than others read; too many are left out."""
    fleet = Fleet(1, Limit(1, 3600, algorithm="fixed-window"))
    (node,) = fleet.nodes
    keys = [f"key-{number}" for number in range(300)]
    for key in [*keys, "x" * 200, "long" * 64]:
        node.ask(3, key)
    for _ in range(6):
        node.speaks()
        for key in keys:
            node.ask(1, key)
        fleet.clock.advance_ns(SHORTEST_NS)
    told: list[str] = []
    while (hint := node.tells()) is not None:
        assert len(hint) <= BYTES_MAX
        _, subjects = read_hint(hint)
        assert 1 <= len(subjects) <= KEYS_MAX
        told += [key for _, key in subjects]
        assert None is node.tells()
        fleet.clock.advance_ns(SHORTEST_NS)

    assert PENDING_MAX >= len(told) == len(set(told)) == node.hints.told
    assert PENDING_MAX // 2 < len(told)


def poison(random: Random) -> bytes:
    """Noise, and hints that were good until they were cut, bent or lengthened."""
    good = bytearray(MAGIC + STRANGER + ENTRY * random.randrange(1, 4))
    match random.randrange(5):
        case 0:
            return random.randbytes(random.randrange(200))
        case 1:
            del good[random.randrange(len(good)) :]
        case 2:
            good[random.randrange(len(good))] ^= 1 << random.randrange(8)
        case 3:
            good += random.randbytes(random.randrange(1, 20))
        case _:
            good += ENTRY * random.choice([KEYS_MAX, 1000])
    return bytes(good)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "format"),
        (b"rch2" + STRANGER + ENTRY, "format"),
        (MAGIC + STRANGER[:-1], "format"),
        (MAGIC + STRANGER, "keys"),
        (MAGIC + STRANGER + ENTRY * (KEYS_MAX + 1), "keys"),
        (FORGED[:-1], "cut"),
        (FORGED + ENTRY[:2], "cut"),
        (MAGIC + STRANGER + b"\x00\x03\x00ada", "cut"),
        (MAGIC + STRANGER + b"\x05\x01\x04limit" + b"x" * 1025, "cut"),
        (FORGED.replace(b"ada", b"\xff\xff\xff"), "text"),
        (FORGED.ljust(BYTES_MAX + 1, b"\0"), "size"),
    ],
)
def test_what_is_wrong_with_a_hint_is_told(payload: bytes, reason: str) -> None:
    """In a word; nothing of it is heeded."""
    with pytest.raises(Misfit) as caught:
        read_hint(payload)

    assert reason == caught.value.reason
    assert (STRANGER, [("limit", "ada")]) == read_hint(FORGED)


def is_bad(payload: bytes) -> bool:
    """Whether that cannot be read. Whatever else reading raises is a failure."""
    try:
        read_hint(payload)
    except Misfit:
        return True
    return False


def test_poison_changes_nothing() -> None:
    """Ten thousand messages that cannot be read: each is counted, and no exchange is sooner."""
    random = Random(1)
    (node,) = Fleet(1).nodes
    node.ask(10)
    for _ in range(5):
        node.clock.advance_ns(SECOND_NS)
        node.speaks()
    corpus = [payload for payload in (poison(random) for _ in range(20_000)) if is_bad(payload)][:10_000]
    before = node.syncer.due_ns(node.now_ns)
    for payload in corpus:
        node.hints._heard_lately = 0  # no flood
        node.is_told(payload)

    assert 10_000 == len(corpus) == node.hints.rejected.total()
    assert {"format", "cut", "keys", "size", "text"} == set(node.hints.rejected)
    assert (0, before) == (node.hints.heard, node.syncer.due_ns(node.now_ns))


@pytest.mark.parametrize("algorithm", ["fixed-window", "sliding-window", "token-bucket", "sliding-log", "gcra"])
def test_every_algorithm_tells(algorithm: str) -> None:
    """Whatever its meter."""
    fleet = Fleet(2, Limit(100, 3600, algorithm=algorithm))
    for _ in range(10):
        fleet.nodes[0].ask(100)
        fleet.all_speak()

    assert [("limit", "ada")] == read_hint(fleet.nodes[0].tells() or b"")[1]
