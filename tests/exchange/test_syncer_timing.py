"""Goal: a node exchanges at its pace, early when it matters, seldom when nothing happens, and patiently when cut off.

Method: the real syncer, told what to draw where it draws at random, asked to the nanosecond when it is due.
"""

from __future__ import annotations

from math import inf

import pytest

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.exchange.syncer import CELLS_MAX, JITTER
from reconverge.kernel.reporting.requests import mark_dirty
from reconverge.limit import Limit
from reconverge.policies import BALANCED, NAIVE
from reconverge.simulation.explore.node import INTERVAL_NS, LEASE_NS, START_S, SmallNode
from reconverge_sync.memory import MemoryHub
from tests.support.kernel.talker import Talker, Talkers

LIMIT = Limit(1000, 60)


class NodeInTouch(Talkers):
    """One node in touch with its hub, and a key in use on it."""

    def __init__(self, *, chance: float = 0.5) -> None:
        super().__init__(LIMIT, BALANCED, nodes=1, chance=chance)
        (self.node,) = self.nodes
        self.node.exchanges_with(self.hub)
        self.passes(1.0)
        self.node.admitted_of(1)
        self.node.exchanges_with(self.hub, rounds=2)
        self.passes(1.0)
        self.node.admitted_of(1)
        self.node.exchanges_with(self.hub)

    def has_news(self) -> None:
        """One request of many that there is room for."""
        assert 1 == self.node.admitted_of(1)


@pytest.mark.parametrize(("chance", "share"), [(0.0, 1 - JITTER), (0.5, 1.0), (1.0, 1 + JITTER)])
def test_a_node_with_news_exchanges_once_per_interval_give_or_take(chance: float, share: float) -> None:
    """Spread by a twentieth to either side, so that nodes do not march in step."""
    pair = NodeInTouch(chance=chance)

    pair.has_news()

    assert round(INTERVAL_NS * share) == pair.node.due_in_ns


def test_a_new_node_speaks_at_once() -> None:
    """It has everything to learn."""
    assert 0 == Talkers(LIMIT, BALANCED).nodes[0].due_in_ns


@pytest.mark.parametrize("chance", [0.0, 0.3, 1.0])
def test_nodes_that_start_together_spread_over_the_interval(chance: float) -> None:
    """The second exchange comes after any part of it."""
    world = Talkers(LIMIT, BALANCED, chance=chance)
    (node,) = world.nodes
    node.admitted_of(1)
    node.exchanges_with(world.hub)

    node.admitted_of(1)

    assert round(INTERVAL_NS * chance) == node.due_in_ns


def test_nothing_is_said_before_its_time() -> None:
    """A request does not make the node speak."""
    pair = NodeInTouch()
    pair.has_news()
    pair.clock.advance_ns(pair.node.due_in_ns - 1)

    assert (1, None) == (pair.node.due_in_ns, pair.node.sends())


def test_a_late_exchange_is_not_made_up_for() -> None:
    """After a stall of many intervals there is one exchange, and the next is an interval later."""
    pair = NodeInTouch()
    pair.has_news()
    pair.passes(0.9)

    pair.node.exchanges_with(pair.hub)
    pair.has_news()

    assert INTERVAL_NS == pair.node.due_in_ns


@pytest.mark.parametrize(
    ("interval_s", "lease_s", "silence_s"),
    [(0.1, 30.0, 1.0), (0.1, 3.0, 0.5), (5.0, 60.0, 5.0), (5.0, 30.0, 5.0)],
)
def test_a_quiet_node_speaks_up_before_long(interval_s: float, lease_s: float, silence_s: float) -> None:
    """Every second, or every interval if that is longer, and at least six times per lease."""
    world = Talkers(LIMIT, BALANCED, nodes=0, lease_ns=round(lease_s * SECOND_NS))
    node = world.another_node(interval_ns=round(interval_s * SECOND_NS))
    node.exchanges_with(world.hub)
    world.passes(interval_s)
    node.exchanges_with(world.hub)
    world.passes(node.due_in_ns / SECOND_NS)
    node.says()
    node.reaches(world.hub)
    node.hears()

    assert round(silence_s * SECOND_NS) == node.due_in_ns


def test_a_shard_that_was_never_told_anything_hears_of_a_node_more_seldom() -> None:
    """Of several shards: it has nothing of that node's to lose. The first key makes it one like any other."""
    clock = ManualClock(START_S)
    hub = MemoryHub(clock=clock, shards=2)
    node = SmallNode(clock, shards=2)
    node.kernel.lease_ns = 600 * SECOND_NS
    table = node.limit(LIMIT, BALANCED)
    used = table.kernel.shard_of("limit", "ada").index
    unused = 1 - used
    table.allow("ada", 1)

    def said_in(seconds: int) -> list[int]:
        said = [0, 0]
        for _ in range(seconds):
            clock.advance(1.0)
            now_ns = clock.monotonic_ns()
            for shard, syncer in enumerate(node.syncers):
                batch = syncer.take(now_ns) if syncer.due_ns(now_ns) <= now_ns else None
                if batch is not None:
                    said[shard] += 1
                    syncer.merged(batch, hub.merge(batch), sent_ns=now_ns, now_ns=now_ns)
        return said

    said_in(20)
    said = said_in(20)

    assert (20, 2) == (said[used], said[unused])

    table.allow(next(key for key in map(str, range(100)) if table.kernel.shard_of("limit", key).index == unused), 1)
    said_in(20)

    assert [20, 20] == said_in(20)


def test_an_empty_batch_says_only_that_the_node_lives() -> None:
    """No limits and no cells, and the lease is renewed from the moment it was sent."""
    world = Talkers(LIMIT, BALANCED)
    (node,) = world.nodes
    node.exchanges_with(world.hub)
    world.clock.advance_ns(node.due_in_ns)
    before_ns = node.kernel.shards[0].lease_until_ns

    batch = node.says()
    node.reaches(world.hub)
    node.hears()

    assert ((), ()) == (batch.limits, batch.cells)
    assert LEASE_NS // 6 == node.kernel.shards[0].lease_until_ns - before_ns


def test_a_key_that_falls_silent_is_told_of_less_and_less() -> None:
    """After as long again as it has been quiet, so that an hour costs a dozen reports and not thousands."""
    world = Talkers(Limit(10, 3600), BALANCED)
    (node,) = world.nodes
    node.admitted_of(1)

    told = [bool(batch.cells) for batch in node.speaks_when_due(world.hub, 2 * 3600)]

    assert 5 <= sum(told) <= 30


def wants_more(pair: NodeInTouch) -> None:
    """Use up what the node may do by itself until it asks for more."""
    while not pair.node.kernel.shards[0].urgent:
        pair.has_news()


def test_a_key_that_runs_low_is_worth_an_early_exchange() -> None:
    """A tenth of the interval after the last one, which is the least spacing that these nodes keep."""
    pair = NodeInTouch()

    wants_more(pair)

    assert INTERVAL_NS // 10 == pair.node.due_in_ns


def test_an_early_exchange_does_not_come_before_its_time() -> None:
    """Not a nanosecond sooner than the least spacing."""
    pair = NodeInTouch()
    wants_more(pair)

    pair.clock.advance_ns(pair.node.due_in_ns - 1)
    before = pair.node.sends()
    pair.clock.advance_ns(1)

    assert (None, 1) == (before, len(pair.node.says().cells))


def test_early_exchanges_are_counted() -> None:
    """So that one can see what they cost."""
    pair = NodeInTouch()
    wants_more(pair)
    before = pair.node.syncer.stats(0).early
    pair.clock.advance_ns(pair.node.due_in_ns)

    pair.node.exchanges_with(pair.hub)

    assert 1 == pair.node.syncer.stats(0).early - before


@pytest.mark.parametrize(("others", "told"), [(7, 8), (8, 1)])
def test_an_early_exchange_takes_few_others_along(others: int, told: int) -> None:
    """With up to eight keys in all it is as good as the regular one; with more it tells of those that asked for it."""
    pair = NodeInTouch()
    for number in range(others):
        pair.node.admitted_of(1, key=f"other {number}")
    pair.node.exchanges_with(pair.hub)
    pair.passes(0.1)
    pair.node.exchanges_with(pair.hub)
    wants_more(pair)
    for number in range(others):
        mark_dirty(pair.node.table.cells[f"other {number}"])
    pair.clock.advance_ns(pair.node.due_in_ns)

    assert told == len(pair.node.says().cells)


def test_a_key_that_is_new_to_the_node_is_asked_about_early() -> None:
    """A newcomer learns what others have used before its next regular exchange."""
    pair = NodeInTouch()

    pair.node.table.usage("bob")

    assert INTERVAL_NS // 10 == pair.node.due_in_ns


def test_naive_is_never_early() -> None:
    """Policies that it is compared with exchange at one pace, so that the comparison is fair."""
    world = Talkers(Limit(10, 60), NAIVE)
    (node,) = world.nodes
    node.exchanges_with(world.hub)
    world.passes(1.0)
    node.admitted_of(20)
    node.exchanges_with(world.hub)
    node.admitted_of(20)

    assert INTERVAL_NS == node.due_in_ns


def delays_s(node: Talker, failures: int) -> list[float]:
    """How long the node waits after each of so many failures in a row."""
    delays: list[float] = []
    for _ in range(failures):
        node.fails()
        delays.append(node.due_in_ns / SECOND_NS)
    return delays


def test_after_failures_the_pause_doubles_up_to_a_second() -> None:
    """A hub that is away is not asked more often for that."""
    assert [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0] == delays_s(NodeInTouch(chance=1.0).node, 7)


def test_pauses_after_failures_are_shortened_at_random_by_up_to_a_quarter() -> None:
    """So that a fleet does not come back all at once."""
    assert [0.075, 0.15, 0.3, 0.6, 0.75, 0.75] == delays_s(NodeInTouch(chance=0.0).node, 6)


def test_a_pause_is_never_longer_than_an_interval_that_is_longer_than_a_second() -> None:
    """The pace of slow nodes is not slowed down further."""
    world = Talkers(LIMIT, BALANCED, nodes=0, chance=1.0, lease_ns=600 * SECOND_NS)
    node = world.another_node(interval_ns=5 * SECOND_NS)

    assert [5.0, 5.0, 5.0] == delays_s(node, 3)


def test_a_thousand_failures_are_like_ten() -> None:
    """The doubling ends before numbers grow out of hand."""
    node = NodeInTouch(chance=1.0).node
    node.fails(1000)

    assert SECOND_NS == node.due_in_ns


def test_the_pause_counts_from_the_beginning_of_the_exchange_that_failed() -> None:
    """Time spent waiting for an answer is not waited for once more."""
    pair = NodeInTouch(chance=1.0)
    pair.passes(1.0)
    pair.node.says()
    pair.passes(0.04)

    pair.node.gives_up()

    assert INTERVAL_NS * 6 // 10 == pair.node.due_in_ns


def test_an_answer_ends_the_pauses() -> None:
    """The pace is the regular one again at once."""
    pair = NodeInTouch()
    pair.has_news()
    pair.node.fails(5)
    pair.clock.advance_ns(pair.node.due_in_ns)
    pair.node.exchanges_with(pair.hub)

    pair.has_news()

    assert INTERVAL_NS == pair.node.due_in_ns


def test_even_what_is_urgent_waits_until_a_pause_is_over() -> None:
    """A key that runs low does not make a node knock at a closed door."""
    pair = NodeInTouch(chance=1.0)
    pair.node.fails(4)
    pause_ns = pair.node.due_in_ns

    pair.node.admitted_of(2000)

    assert pause_ns == pair.node.due_in_ns


def test_failures_are_counted_by_class() -> None:
    """In all, and in a row."""
    node = NodeInTouch().node
    node.fails(2)
    node.clock.advance_ns(node.due_in_ns)
    node.says()
    node.syncer.failed("refused", now_ns=node.clock.monotonic_ns())
    node.flight = None

    stats = node.syncer.stats(node.clock.monotonic_ns())

    assert ({"timeout": 2, "refused": 1}, 3) == (stats.failures, stats.failures_in_a_row)


def with_keys(number: int) -> tuple[Talkers, Talker, list[str]]:
    """A node in touch with its hub, on which so many keys were used since."""
    world = Talkers(LIMIT, BALANCED)
    (node,) = world.nodes
    node.exchanges_with(world.hub)
    keys = [f"key {each}" for each in range(number)]
    for key in keys:
        node.admitted_of(1, key=key)
    world.passes(1.0)
    return world, node, keys


def told_at_once(world: Talkers, node: Talker) -> list[list[str]]:
    """Returns the batches that are sent without a pause."""
    told: list[list[str]] = []
    while not node.due_in_ns:
        told.append([cell.key for cell in node.says().cells])
        node.reaches(world.hub)
        node.hears()
    return told


@pytest.mark.parametrize(
    ("keys", "batches"), [(CELLS_MAX, [256]), (CELLS_MAX + 1, [256, 1]), (2 * CELLS_MAX + 10, [256, 256, 10])]
)
def test_a_batch_has_at_most_256_keys_and_the_rest_follows_at_once(keys: int, batches: list[int]) -> None:
    """Every key is told of exactly once, in the order in which they were used."""
    world, node, used = with_keys(keys)

    told = told_at_once(world, node)

    assert batches == [len(batch) for batch in told]
    assert used == [key for batch in told for key in batch]


def test_what_found_no_room_is_not_lost_when_the_first_batch_fails() -> None:
    """All of it is said after the pause."""
    world, node, used = with_keys(CELLS_MAX + 10)
    node.fails()
    world.clock.advance_ns(node.due_in_ns)

    told = told_at_once(world, node)

    assert sorted(used) == sorted(key for batch in told for key in batch)


def test_a_node_that_was_never_answered_is_infinitely_stale() -> None:
    """There is no age of an answer that never came."""
    assert inf == Talkers(LIMIT, BALANCED).nodes[0].syncer.stats(0).staleness


def test_staleness_counts_from_when_the_last_answered_batch_was_sent() -> None:
    """The hub may have spoken as early as that."""
    pair = NodeInTouch()
    pair.passes(1.0)
    pair.node.says()
    pair.passes(0.25)
    pair.node.reaches(pair.hub)
    pair.passes(0.25)
    pair.node.hears()

    stats = pair.node.syncer.stats(pair.clock.monotonic_ns())

    assert (0.5, 0.5) == (stats.staleness, stats.round_trip)
