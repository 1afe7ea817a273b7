"""Goal: a round reports what was dirty when it began, so a node with many busy keys exchanges no more often for it.

Method: the real syncer and a hub whose answers take a while, during which every key is used again, once or many times.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.exchange.syncer import CELLS_MAX, Syncer
from reconverge.hub.report import Batch
from reconverge.kernel import Kernel, LimitInterval, Table
from reconverge.limit import Limit
from reconverge.policies import BALANCED, NAIVE, Policy
from reconverge.simulation.explore.node import START_S
from reconverge_sync.memory import MemoryHub
from tests.support.kernel.talker import Always

INTERVAL_NS = SECOND_NS
EARLIEST_NS = INTERVAL_NS // 10
ROUND_TRIP_NS = INTERVAL_NS // 100
KEYS = 1000
BATCHES = -(-KEYS // CELLS_MAX)
INTERVALS = 3
PLENTY = Limit(10**9, 60)
SCARCE = Limit(20, 2)
"""So few that a key runs low within an interval."""


class ManyKeysInUse:
    """A node with many keys, all of which are used again while it waits for each answer, and between its exchanges."""

    def __init__(self, *, uses: int = 1, policy: Policy = BALANCED, round_trip_ns: int = ROUND_TRIP_NS) -> None:
        self.clock = ManualClock(START_S)
        self.hub = MemoryHub(clock=self.clock)
        self.uses = uses
        self.round_trip_ns = round_trip_ns
        self.said: list[tuple[int, Batch]] = []
        """When each batch was sent."""
        self.kernel = Kernel(
            self.clock,
            namespace="rounds",
            interval_ns=INTERVAL_NS,
            interval_min_ns=EARLIEST_NS,
            keys_max=10 * KEYS,
            key_bytes_max=64,
            new_keys_max=10**6,
        )
        self.kernel.silence_max_ns = 0
        self.syncer = Syncer(
            self.kernel, shard=0, random=Always(0.5), new_name=lambda: "busy", now_ns=self.clock.monotonic_ns()
        )
        self.busy = self.kernel.declare("busy", PLENTY, policy)
        self.keys = {self.busy: [f"key {number}" for number in range(KEYS)]}

    def also_uses(self, table: Table, keys: int) -> None:
        """Uses so many keys of another limit as well."""
        self.keys[table] = [f"other {number}" for number in range(keys)]

    def uses_all(self) -> None:
        """Requests come under every key."""
        for table, keys in self.keys.items():
            for key in keys:
                for _ in range(self.uses):
                    table.allow(key)

    def is_known(self) -> None:
        """The hub has answered about every key, and what follows is noted."""
        self.goes_on(2)
        self.said.clear()

    def goes_on(self, intervals: float) -> None:
        """Exchange whenever it is time, for so many intervals."""
        until_ns = self.clock.monotonic_ns() + round(intervals * INTERVAL_NS)
        while (now_ns := self.clock.monotonic_ns()) < until_ns:
            due_ns = max(now_ns, self.syncer.due_ns(now_ns))
            if due_ns == now_ns:
                self.exchanges()
            else:
                self.uses_all()
                due_ns = max(now_ns, self.syncer.due_ns(now_ns))
                self.clock.advance_ns(min(due_ns, until_ns) - now_ns)

    def exchanges(self) -> Batch | None:
        """Send what there is to say, and hear of it a round trip later."""
        sent_ns = self.clock.monotonic_ns()
        batch = self.syncer.take(sent_ns)
        if batch is not None:
            self.said.append((sent_ns, batch))
            answer = self.hub.merge(batch)
            self.uses_all()
            self.clock.advance_ns(self.round_trip_ns)
            self.syncer.merged(batch, answer, sent_ns=sent_ns, now_ns=self.clock.monotonic_ns())
        return batch

    @property
    def early(self) -> int:
        """How many exchanges were ahead of time."""
        return self.syncer.stats(self.clock.monotonic_ns()).early

    def reports(self, table: Table | None = None) -> Counter[str]:
        """How often each key of the limit was reported."""
        name = (table or self.busy).name
        return Counter(
            cell.key for _, batch in self.said for cell in batch.cells if batch.limits[cell.limit].name == name
        )

    def moments(self, table: Table) -> dict[str, list[int]]:
        """When each key of the limit was reported."""
        found: dict[str, list[int]] = {key: [] for key in self.keys[table]}
        for sent_ns, batch in self.said:
            for cell in batch.cells:
                if batch.limits[cell.limit].name == table.name and cell.key in found:
                    found[cell.key].append(sent_ns)
        return found


@pytest.mark.parametrize("uses", [1, 5])
@pytest.mark.parametrize("policy", [BALANCED, NAIVE], ids=["balanced", "naive"])
def test_a_busy_key_is_one_report_in_an_interval_however_often_it_is_used(uses: int, policy: Policy) -> None:
    """A thousand keys make four batches in each, although all are used again before the second of these is sent."""
    node = ManyKeysInUse(uses=uses, policy=policy)
    node.is_known()

    node.goes_on(INTERVALS)

    assert INTERVALS * BATCHES == len(node.said)
    assert dict.fromkeys(node.keys[node.busy], INTERVALS) == node.reports()


def test_keys_in_a_hurry_add_their_own_reports_only() -> None:
    """They are reported ahead of time as well, as is their right, and the others once in each interval as before."""
    node = ManyKeysInUse(uses=2)
    scarce = node.kernel.declare("scarce", SCARCE, BALANCED)
    node.also_uses(scarce, 20)
    node.is_known()
    early = node.early

    node.goes_on(INTERVALS)
    hurried = node.reports(scarce)

    assert dict.fromkeys(node.keys[node.busy], INTERVALS) == node.reports()
    assert early < node.early
    assert len(node.said) <= INTERVALS * BATCHES + max(hurried.values())


def test_more_keys_in_a_hurry_than_a_batch_holds_make_no_endless_round() -> None:
    """Within a round each of them waits for its time, as it does between rounds, and the others are reported once."""
    node = ManyKeysInUse()
    scarce = node.kernel.declare("scarce", SCARCE, BALANCED)
    node.also_uses(scarce, 2 * CELLS_MAX)
    node.is_known()

    node.goes_on(INTERVALS)

    assert dict.fromkeys(node.keys[node.busy], INTERVALS) == node.reports()
    assert max(node.reports(scarce).values()) <= 3 * INTERVALS


def test_no_key_waits_for_longer_than_an_interval_and_a_round() -> None:
    """Though others are used all the time, some of them are in a hurry, and new keys keep coming."""
    node = ManyKeysInUse()
    scarce = node.kernel.declare("scarce", SCARCE, BALANCED)
    node.also_uses(scarce, CELLS_MAX)
    node.is_known()
    round_ns = (BATCHES + 4) * ROUND_TRIP_NS

    for number in range(4 * INTERVALS):
        for new in range(CELLS_MAX):
            node.busy.allow(f"new {number} {new}")
        node.goes_on(0.25)

    for moments in node.moments(node.busy).values():
        assert INTERVALS - 1 <= len(moments)
        assert max(later - sooner for sooner, later in pairwise(moments)) <= INTERVAL_NS + round_ns


def test_a_new_key_and_one_in_a_hurry_do_not_wait_for_the_end_of_a_round() -> None:
    """They are in its next batch."""
    node = ManyKeysInUse()
    node.is_known()
    while node.syncer.due_ns(node.clock.monotonic_ns()) > node.clock.monotonic_ns():
        node.uses_all()
        node.clock.advance_ns(EARLIEST_NS)

    first = node.exchanges()
    node.busy.allow("new")
    node.busy.reset("key 0")
    second = node.exchanges()

    assert first is not None
    assert second is not None
    assert "key 0" in {cell.key for cell in first.cells}
    assert {"key 0", "new"} <= {cell.key for cell in second.cells}
    assert node.kernel.round_goes_on(0, None)


def test_a_round_that_takes_longer_than_an_interval_is_followed_by_the_next_one() -> None:
    """At once, and no key is reported twice before all others are."""
    node = ManyKeysInUse(policy=NAIVE, round_trip_ns=INTERVAL_NS // 2)
    node.is_known()
    while node.kernel.round_goes_on(0, None):
        node.exchanges()
    node.said.clear()

    begun_ns = node.clock.monotonic_ns()
    for _ in range(3 * BATCHES):
        assert node.syncer.due_ns(node.clock.monotonic_ns()) <= node.clock.monotonic_ns()
        node.exchanges()
        reports = node.reports()
        assert max(reports.values()) - min(reports[key] for key in node.keys[node.busy]) <= 1

    assert 3 * BATCHES * node.round_trip_ns == node.clock.monotonic_ns() - begun_ns


@pytest.mark.slow
def test_a_limit_that_becomes_due_during_a_round_of_others_is_reported_right_after_it() -> None:
    """It does not wait for an interval of its own once more."""
    node = ManyKeysInUse()
    own = node.kernel.declare("own", PLENTY, BALANCED)
    node.kernel.change_own_pace([own], LimitInterval(3 * INTERVAL_NS, EARLIEST_NS))
    node.also_uses(own, 1)
    node.is_known()

    node.goes_on(4 * 3)
    (moments,) = node.moments(own).values()

    assert 3 <= len(moments)
    assert max(later - sooner for sooner, later in pairwise(moments)) <= 3 * INTERVAL_NS + BATCHES * ROUND_TRIP_NS


def test_a_node_that_leaves_in_the_middle_of_a_round_says_everything() -> None:
    """It reports the rest of the round, and all that came after its beginning."""
    node = ManyKeysInUse()
    node.is_known()
    while not node.kernel.round_goes_on(0, None):
        node.goes_on(0.001)
    node.keys.clear()

    node.syncer.leave(node.clock.monotonic_ns())
    while not node.syncer.left:
        node.exchanges()

    assert 0 == node.kernel.pending(0)
    assert node.busy.tallies[0].charged == node.hub.sums()["busy"].charged
