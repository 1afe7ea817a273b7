"""Goal: a flood of new keys reaches the hub at a bounded rate, and delays nothing else.

Method: a node and its hub in virtual time; what is reported is counted by key and by moment.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.exchange.syncer import CELLS_MAX
from reconverge.kernel import COMPILED
from reconverge.kernel.engine import Reentry, put_forward
from reconverge.kernel.newcomers import BURST_NS
from reconverge.kernel.reporting import agenda
from reconverge.kernel.table.lookup import look_up
from reconverge.limit import Limit
from reconverge.policies import BALANCED, STRICT
from reconverge.simulation.explore.node import INTERVAL_NS, START_S, SmallNode
from reconverge_sync.memory import MemoryHub

PER_SECOND = 1000
BURST = PER_SECOND * BURST_NS // SECOND_NS
LIMIT = Limit(10, 60)


class Flooded:
    """A node that may report so many new keys per second, and what it has reported."""

    def __init__(self, per_second: int = PER_SECOND) -> None:
        self.clock = ManualClock(START_S)
        self.hub = MemoryHub(clock=self.clock)
        self.node = SmallNode(self.clock, keys_max=100_000)
        self.node.kernel.newcomers.per_second = per_second
        self.flooded = self.node.limit(LIMIT, BALANCED, name="flooded")
        self.other = self.node.limit(LIMIT, BALANCED, name="other")
        self.reported: Counter[tuple[str, str]] = Counter()
        self.exchanges()  # from now on it knows what time it is at the hub

    def flood(self, keys: int, mark: str = "") -> int:
        """So many keys are made up, with one request each; returns how many are admitted."""
        return sum(self.flooded.allow(f"made-up {mark} {number}") for number in range(keys))

    def exchanges(self) -> None:
        """All that is due now is exchanged."""
        for _ in range(1000):
            batch = self.node.sends()
            if batch is not None:
                for report in batch.cells:
                    self.reported[batch.limits[report.limit].name, report.key] += 1
            self.node.reaches(self.hub)
            self.node.hears()
            if self.node.syncer.due_ns(self.clock.monotonic_ns()) > self.clock.monotonic_ns():
                return
        raise AssertionError("there is no end to it")

    def goes_on(self, intervals: int) -> None:
        """Time passes, and the node exchanges in each interval."""
        for _ in range(intervals):
            self.clock.advance_ns(INTERVAL_NS)
            self.exchanges()

    def new_keys(self, limit: str = "flooded") -> int:
        """How many keys of a limit were reported."""
        return sum(name == limit for name, _ in self.reported)


def test_new_keys_are_reported_within_a_budget() -> None:
    """A burst at once, and then no more per second than is allowed; after some time the hub knows them all."""
    fleet = Flooded()
    admitted = fleet.flood(3000)
    fleet.exchanges()
    at_once = fleet.new_keys()
    fleet.goes_on(10)
    in_a_second = fleet.new_keys()
    fleet.goes_on(30)

    assert 3000 == admitted
    assert BURST == at_once
    assert BURST + PER_SECOND == in_a_second
    assert 3000 == fleet.new_keys()


def test_keys_that_have_to_wait_are_counted_once() -> None:
    """However many exchanges they wait for."""
    fleet = Flooded()
    fleet.flood(1000)
    fleet.goes_on(20)

    tables = fleet.node.kernel.tables.values()
    assert {"flooded": 1000 - BURST} == {table.name: table.deferred for table in tables if table.deferred}


def test_the_budget_is_for_all_limits_together() -> None:
    """Two floods are reported half as fast each."""
    fleet = Flooded()
    fleet.flood(3000)
    for number in range(3000):
        fleet.other.allow(f"key {number}")
    fleet.exchanges()
    before = fleet.new_keys(), fleet.new_keys("other")
    fleet.goes_on(10)
    after = fleet.new_keys(), fleet.new_keys("other")

    assert (BURST, BURST) == before
    assert (PER_SECOND // 2, PER_SECOND // 2) == (after[0] - before[0], after[1] - before[1])


def test_one_limits_flood_delays_no_other_limits_new_keys() -> None:
    """They go with the next exchange, while thousands of the other limit wait."""
    fleet = Flooded()
    waited = []
    for tick in range(20):
        fleet.flood(400, str(tick))
        fleet.other.allow(f"key {tick}")
        fleet.goes_on(1)
        waited.append(fleet.reported["other", f"key {tick}"] == 0)

    assert not any(waited)
    assert fleet.node.kernel.newcomers.waiting(fleet.node.kernel.shards[0]) > 4000


def test_known_keys_are_reported_during_a_flood() -> None:
    """At least half of each batch is theirs, so each of them is reported in each interval in which it is used."""
    fleet = Flooded(per_second=1_000_000)
    known = [f"known {number}" for number in range(CELLS_MAX)]
    for key in known:
        fleet.other.allow(key)
    fleet.goes_on(2)
    fleet.reported.clear()
    fleet.flood(5000)
    for key in known:
        fleet.other.allow(key)
    fleet.clock.advance_ns(INTERVAL_NS)
    for _ in range(3):
        batch = fleet.node.sends()
        if batch is not None:
            fleet.reported.update((batch.limits[report.limit].name, report.key) for report in batch.cells)
        fleet.node.reaches(fleet.hub)
        fleet.node.hears()

    assert CELLS_MAX == fleet.new_keys("other")


def test_a_new_key_is_exchanged_ahead_of_time_as_ever() -> None:
    """Without a flood there is nothing to wait for."""
    fleet = Flooded()
    fleet.exchanges()
    fleet.clock.advance_ns(INTERVAL_NS // 5)
    fleet.flooded.allow("ada")
    fleet.exchanges()

    assert 1 == fleet.reported["flooded", "ada"]


def test_a_strict_limit_refuses_a_new_key_until_its_first_answer() -> None:
    """The policy's cold rule decides meanwhile, for as long as the key waits."""
    fleet = Flooded()
    strict = fleet.node.limit(LIMIT, STRICT, name="strict")
    for number in range(BURST + 1):
        strict.allow(f"key {number}")
    fleet.exchanges()
    first, last = (strict.allow("key 0"), strict.allow(f"key {BURST}"))
    fleet.goes_on(2)

    assert (True, False, True) == (first, last, strict.allow(f"key {BURST}"))


def test_who_leaves_says_all_there_is_to_say() -> None:
    """Last words are not bounded by the budget."""
    fleet = Flooded()
    fleet.flood(2000)
    fleet.node.syncer.leave(fleet.clock.monotonic_ns())
    for _ in range(2000 // CELLS_MAX + 3):
        fleet.exchanges()

    assert fleet.node.syncer.left
    assert 2000 == fleet.new_keys()
    assert 2000 == fleet.hub.sums()["flooded"].charged


def test_a_hub_that_has_lost_its_data_is_told_of_known_keys_first() -> None:
    """The lease runs again once all allowances are confirmed; keys that were never answered have none to confirm."""
    fleet = Flooded()
    fleet.other.allow("ada")
    fleet.goes_on(2)
    fleet.flood(3000)
    fleet.exchanges()
    fleet.hub.lose_data()
    fleet.goes_on(5)
    shard = fleet.node.kernel.shards[0]

    assert 0 == shard.unconfirmed
    assert shard.lease_until_ns > fleet.clock.monotonic_ns()
    assert fleet.node.kernel.newcomers.waiting(shard) > 1000


@pytest.mark.skipif(not COMPILED, reason="there is one kernel to be compared")
@given(
    keys=st.lists(st.sampled_from(("waits", "is in a hurry", "was answered", "was forgotten")), max_size=80),
    most=st.lists(st.integers(0, 30), max_size=6),
)
def test_both_kernels_put_the_same_new_keys_forward(keys: list[str], most: list[int]) -> None:
    """Whichever of them are in a hurry, were answered or forgotten meanwhile; the lanes then hold the same cells."""
    node = Flooded().node
    table = node.limit(LIMIT, BALANCED, name="compared")
    shard, tally = node.kernel.shards[0], table.tallies[0]
    twins = agenda.ShardFields(), agenda.TallyFields()
    for fields in twins:
        fields.begin()
    for number, what in enumerate(keys):
        cell = look_up(table, f"key {number}", node.clock.monotonic_ns())
        cell.fresh, cell.urgent = what != "was forgotten", what == "is in a hurry"
        cell.heard_ns = 0 if what == "was answered" else cell.heard_ns
        tally.fresh.append(cell)
        twins[1].fresh.append(cell)

    for count in (*most, len(keys)):
        marks = [(cell, cell.fresh) for cell in twins[1].fresh]
        put = put_forward(tally, shard, shard.round, table.lock, count)
        for cell, fresh in marks:
            cell.fresh = fresh
        assert agenda.put_forward(twins[1], twins[0], twins[0].round, table.lock, count) == put
        assert len(twins[1].fresh) == len(tally.fresh)
    for lanes, twin in ((shard.round, twins[0].round), (shard.urgent, twins[0].urgent)):
        assert [twin.popleft() for _ in range(len(twin))] == [lanes.popleft() for _ in range(len(lanes))]


@pytest.mark.skipif(not COMPILED, reason="it is about the compiled kernel")
def test_a_new_key_is_not_put_forward_in_the_middle_of_a_decision_about_its_limit() -> None:
    """A signal handler that exchanges there is turned away, and no key is lost."""
    flooded = Flooded()
    flooded.flood(3)
    table, shard = flooded.flooded, flooded.node.kernel.shards[0]

    with pytest.raises(Reentry):
        table.lock.run(put_forward, table.tallies[0], shard, shard.round, table.lock, 3)

    assert 3 == len(table.tallies[0].fresh)
    assert 3 == put_forward(table.tallies[0], shard, shard.round, table.lock, 3)
