"""Goal: a hub is told all that was charged, once. Method: nodes and a hub between which messages go astray."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from reconverge.clock import ManualClock
from reconverge.hub.usage import BATCH_ROWS_MAX, KINDS, OTHERS, Period, Recorded, Retention
from reconverge.usage.meter import Meter
from reconverge.usage.periods import period_at
from reconverge.usage.reading import totals
from reconverge.usage.reports import UsageReports
from reconverge_sync.memory import MemoryHub, MemoryUsage
from tests.support.effort import tried
from tests.support.metered import HOUR_S, NOVEMBER, LosingLedger, MeteredNode, clock_in_november

FAULTS = st.lists(st.sampled_from(["", "lost", "unanswered", "twice", "late"]), max_size=4)


def total_cost(ledger: MemoryUsage, period: Period) -> int:
    """Returns the charges of all identities in a period."""
    return sum(counts.cost for counts in asyncio.run(totals(ledger, period)).values())


def total_of_all(ledger: MemoryUsage, kind: str) -> int:
    """Returns the charges of all identities in all periods of a kind."""
    known = {period for shard in ledger._shards for period in shard.state.pages if period.kind == kind}
    return sum(total_cost(ledger, period) for period in known)


def run(node: MeteredNode) -> bool:
    return asyncio.run(node.driver.report())


class LossyFleet(RuleBasedStateMachine):
    """Nodes charge, report over a bad network, restart, and have wrong clocks; a hub is emptied; all counts once."""

    nodes_count = 3

    @initialize(shards=st.integers(1, 3))
    def begin(self, shards: int) -> None:
        """A hub and three nodes."""
        self.clock = clock_in_november()
        self.ledger = MemoryUsage(self.clock, shards=shards)
        self.network = LosingLedger(self.ledger)
        self.names = 0
        self.clocks = [clock_in_november() for _ in range(self.nodes_count)]
        self.nodes = [self._node(place) for place in range(self.nodes_count)]
        self.charged: Counter[int] = Counter()
        """By node, by its place."""
        self.departed = 0
        """The reported charges of nodes that are gone."""

    def _node(self, place: int) -> MeteredNode:
        self.names += 1
        return MeteredNode(self.network.ledger, self.clocks[place], f"node{self.names}")

    @rule(place=st.integers(0, 2), identity=st.sampled_from(["acme", "zeta", "é"]), cost=st.integers(-3, 9))
    def charge(self, place: int, identity: str, cost: int) -> None:
        """A request is admitted, or a reservation is settled for less."""
        self.nodes[place].meter.add(identity, "api", cost)
        self.charged[place] += cost

    @rule(place=st.integers(0, 2), faults=FAULTS)
    def report(self, place: int, faults: list[str]) -> None:
        """Some of the messages do not come, come late, twice, or without an answer."""
        self.network.faults = list(faults)
        run(self.nodes[place])
        self.network.faults = []

    @rule()
    def late(self) -> None:
        asyncio.run(self.network.deliver_late())

    @rule(seconds=st.sampled_from([1, 59, 600, 3599]))
    def wait(self, seconds: int) -> None:
        """Time passes, all of it within one day."""
        if (self.clock.wall_ns() / 1e9 + seconds) < NOVEMBER + 86_400:
            for clock in (self.clock, *self.clocks):
                clock.advance(seconds)

    @rule(place=st.integers(0, 2), seconds=st.sampled_from([-5e7, -4e5, -14_400, 0, 299, 301, 14_400, 4e5, 5e7]))
    def set_clock(self, place: int, seconds: float) -> None:
        """The clock of a node is so far ahead of the hub's."""
        clock = self.clocks[place]
        clock.jump((self.clock.wall_ns() - clock.wall_ns()) / 1e9 + seconds)

    @rule(place=st.integers(0, 2))
    def restart(self, place: int) -> None:
        """A process ends in an orderly way, and another one starts."""
        assert asyncio.run(self.nodes[place].driver.leave())
        self.departed += self.charged.pop(place, 0)
        self.nodes[place] = self._node(place)

    @rule()
    def empty_hub(self) -> None:
        """The hub comes back without data, and connections are cut; what departed nodes had told is lost."""
        self.ledger.lose_data()
        self.network.forget_late()
        self.departed = 0

    @rule(place=st.integers(0, 2))
    def stop_and_go_on(self, place: int) -> None:
        """The reporter is stopped and started again within a process, which goes on charging."""
        assert asyncio.run(self.nodes[place].driver.leave())
        self.departed += self.charged.pop(place, 0)

    @rule()
    def look(self) -> None:
        """Totals equal what was charged, of each kind of period, once all nodes have reported."""
        for node in self.nodes:
            run(node)
            run(node)  # the first may only bring to light that the hub has lost data
        expected = self.departed + sum(self.charged.values())
        assert expected == total_of_all(self.ledger, "day") == total_of_all(self.ledger, "month")

    def teardown(self) -> None:
        """Look once more in the end."""
        if hasattr(self, "nodes"):
            self.look()


TestLossyFleet = LossyFleet.TestCase
TestLossyFleet.settings = settings(max_examples=tried(40, long=400, brief=15), stateful_step_count=25)


@pytest.fixture
def ledger(clock: ManualClock) -> MemoryUsage:
    """A hub that knows of no usage."""
    return MemoryHub(clock=clock).usage


def names() -> Callable[[], str]:
    """Names accounts."""
    numbers = iter(range(1000))
    return lambda: f"account {next(numbers)}"


def test_all_kinds_of_periods_sum_to_the_same(clock: ManualClock, ledger: MemoryUsage) -> None:
    """Minutes, hours, days and months of one hour, after a node was killed in the middle of a round, too."""
    node = MeteredNode(ledger, clock, "node")
    for number in range(BATCH_ROWS_MAX):
        node.meter.add(f"customer {number}", "api", 3)
    node.driver.reports.gather(clock.monotonic_ns())
    batch = node.driver.reports.batch(0)
    assert batch is not None
    asyncio.run(ledger.record(batch))

    found = [total_cost(ledger, period_at(kind, NOVEMBER)) for kind in KINDS]
    assert [3 * BATCH_ROWS_MAX // len(KINDS)] * len(KINDS) == found


def test_a_batch_is_bounded_and_a_round_tells_all(clock: ManualClock, ledger: MemoryUsage) -> None:
    """However many keys there are."""
    node = MeteredNode(ledger, clock, "node")
    for number in range(1000):
        node.meter.add(f"customer {number}", "api")

    assert run(node)
    assert 1000 == total_cost(ledger, period_at("hour", NOVEMBER))
    assert -(-1000 * len(KINDS) // BATCH_ROWS_MAX) == node.driver.answered
    assert 0 == node.driver.reports.unreported


def test_a_loss_is_logged_once_for_each_and_counted(
    clock: ManualClock, ledger: MemoryUsage, caplog: pytest.LogCaptureFixture
) -> None:
    """With what it means: the node tells again what it has, and other nodes' part may be lost."""
    node = MeteredNode(ledger, clock, "node")
    node.meter.add("acme", "api", 7)
    run(node)
    ledger.lose_data()
    with caplog.at_level(logging.WARNING):
        run(node)
        run(node)

    assert 1 == node.driver.reports.losses
    assert len(KINDS) == node.driver.reports.reported_again
    assert ["the hub has lost reported usage" in record.message for record in caplog.records] == [True]
    assert 7 == total_cost(ledger, period_at("hour", NOVEMBER))


def test_a_copy_of_a_process_takes_another_account(clock: ManualClock, ledger: MemoryUsage) -> None:
    """Two processes with one account would replace each other's counts; what both charge is counted."""
    original = MeteredNode(ledger, clock, "node")
    original.meter.add("acme", "api", 100)
    run(original)
    copy = MeteredNode(ledger, clock, "node")  # the same account: it was restored from an image of the first one
    copy.meter.add("acme", "api", 100)
    reports = copy.driver.reports
    reports.gather(clock.monotonic_ns())
    batch = reports.batch(0)
    assert batch is not None
    reports.recorded(batch, Recorded(0, merged=True, folded=0, done={}), clock.monotonic_ns())
    original.meter.add("acme", "api", 10)
    run(original)
    run(original)
    copy.meter.add("acme", "api", 1)
    run(copy)
    run(copy)

    assert 111 == total_cost(ledger, period_at("hour", NOVEMBER))


def test_what_is_exported_is_kept_no_longer(clock: ManualClock, ledger: MemoryUsage) -> None:
    """Until then a node keeps what it has told, however long that takes; the present period stays in any case."""
    node = MeteredNode(ledger, clock, "node")
    asyncio.run(ledger.finish(period_at("hour", NOVEMBER - 1), 0, None))
    for _ in range(5):
        node.meter.add("acme", "api")
        run(node)
        clock.advance(HOUR_S)
    hours = [period_at("hour", NOVEMBER + hour * HOUR_S) for hour in range(5)]
    run(node)
    assert [True] * 5 == [bool(node.driver.reports.totals(hour)) for hour in hours]
    asyncio.run(ledger.finish(hours[3], 0, None))
    node.meter.add("acme", "api")
    run(node)
    run(node)

    assert [False] * 4 + [True] == [bool(node.driver.reports.totals(hour)) for hour in hours]


def test_a_charge_for_a_period_that_is_gone_is_counted_in_the_next(clock: ManualClock, ledger: MemoryUsage) -> None:
    """A clock that jumps back must not begin a row anew whose count the hub has: that would take it away."""
    node = MeteredNode(ledger, clock, "node")
    for _ in range(20):
        node.meter.add("acme", "api", 5)
        run(node)
        clock.advance(60)
    clock.jump(-1000)
    node.meter.add("acme", "api", 5)
    run(node)

    minutes = [total_cost(ledger, period_at("minute", NOVEMBER + 60 * minute)) for minute in range(25)]
    assert 105 == sum(minutes)
    assert min(minutes[:20]) == 5


def test_what_was_never_told_is_lost_loudly(
    clock: ManualClock, ledger: MemoryUsage, caplog: pytest.LogCaptureFixture
) -> None:
    """After a hub has been away for as long as it keeps minutes, they are gone; hours still have them."""
    node = MeteredNode(ledger, clock, "node", kept=Retention(minute=30))
    network = LosingLedger(ledger)
    node.driver.ledger = network.ledger
    network.faults = ["lost"] * 1000
    for _ in range(40):
        node.meter.add("acme", "api")
        run(node)
        clock.advance(60)
    network.faults = []
    run(node)

    assert {"minute": 9} == dict(node.driver.reports.dropped)
    assert 40 == total_cost(ledger, period_at("hour", NOVEMBER))
    assert 1 == sum("was never reported" in record.message for record in caplog.records)


def test_the_rows_that_a_node_keeps_are_bounded(clock: ManualClock, ledger: MemoryUsage) -> None:
    """Beyond the bound they are counted under "(others)", in all kinds of periods alike."""
    meter = Meter(clock)
    reports = UsageReports(meter, shards=1, new_name=names(), kept=Retention(), rows_max=100)
    for number in range(200):
        meter.add(f"customer {number}", "api")
    reports.gather(clock.monotonic_ns())

    assert 100 <= reports.rows <= 100 + len(KINDS)
    for kind in KINDS:
        found = reports.totals(period_at(kind, NOVEMBER))
        assert 200 == sum(counts.cost for counts in found.values())
        assert 175 == sum(counts.cost for key, counts in found.items() if key.identity == OTHERS)


def test_a_loss_that_the_last_word_brings_to_light_is_told_again(clock: ManualClock) -> None:
    """The hub loses its data between the last report and the last word; only then the account ends."""
    ledger = MemoryUsage(clock, shards=3)
    node = MeteredNode(ledger, clock, "node")
    for number in range(30):
        node.meter.add(f"customer {number}", "api")
    report = node.driver.report

    async def report_and_lose() -> bool:
        told = await report()
        ledger.lose_data()
        return told

    node.driver.report = report_and_lose  # type: ignore[method-assign]
    assert asyncio.run(node.driver.leave())

    assert 30 == total_cost(ledger, period_at("hour", NOVEMBER))


@pytest.mark.parametrize("also_the_hubs", [False, True], ids=["the node's clock", "the hub's, too"])
@pytest.mark.parametrize("seconds", [14_400, 50 * 86_400, 500 * 86_400, -500 * 86_400])
def test_a_clock_that_goes_ahead_and_back_loses_nothing(seconds: int, also_the_hubs: bool) -> None:
    """Neither what was counted before nor afterwards; each kind of period sums to what was charged."""
    own, hubs = clock_in_november(), clock_in_november()
    ledger = MemoryHub(clock=own if also_the_hubs else hubs).usage
    node = MeteredNode(ledger, own, "node")
    for jump, costs in ((seconds, 10), (-seconds, 1), *[(0, 10)] * 20):
        node.meter.add("acme", "api", costs)
        run(node)
        own.jump(jump)
        for clock in (own, hubs):
            clock.advance(30)
    run(node)

    assert [211] * len(KINDS) == [total_of_all(ledger, kind) for kind in KINDS]
    assert {} == dict(node.driver.reports.dropped)


def test_what_the_hub_refuses_for_its_date_is_counted_in_its_present(
    clock: ManualClock, ledger: MemoryUsage, caplog: pytest.LogCaptureFixture
) -> None:
    """In the same round; an operator reads once in the log that the clock is wrong."""
    fast = clock_in_november()
    fast.jump(4 * HOUR_S)
    node = MeteredNode(ledger, fast, "node")
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            node.meter.add("acme", "api", 5)
            assert run(node)

    found = [total_cost(ledger, period_at(kind, NOVEMBER)) for kind in KINDS]
    assert [10] * len(KINDS) == found
    assert {"minute": 2, "hour": 2} == dict(node.driver.reports.misdated)
    assert ["put the clock of this machine right" in record.message for record in caplog.records] == [True]


def test_what_the_hub_has_of_a_row_is_not_counted_again_under_another_date(
    clock: ManualClock, ledger: MemoryUsage
) -> None:
    """The answer to it was lost, the hub's clock goes back, and the row, told again, is too far ahead."""
    node = MeteredNode(ledger, clock, "node")
    network = LosingLedger(ledger)
    node.driver.ledger = network.ledger
    network.faults = ["unanswered"]
    node.meter.add("acme", "api", 5)
    run(node)
    clock.jump(-HOUR_S)
    node.meter.add("acme", "api", 2)
    run(node)

    assert [7] * len(KINDS) == [total_of_all(ledger, kind) for kind in KINDS]


def test_a_date_that_no_calendar_has_is_counted(clock: ManualClock, ledger: MemoryUsage) -> None:
    """Of a clock that stands before 1970, or after the year 9999."""
    own = clock_in_november()
    node = MeteredNode(ledger, own, "node")
    for jump in (-2 * NOVEMBER, 1e12):
        own.jump(jump)
        node.meter.add("acme", "api", 5)
        assert run(node)

    assert [10] * len(KINDS) == [total_cost(ledger, period_at(kind, clock.wall_ns() / 1e9)) for kind in KINDS]
