"""Goal: a node that is full of keys makes room for new ones, and nothing that counts is forgotten for it.

Method: a node with room for few keys and its hub, in virtual time; floods of made-up keys, lost answers, and hubs that
know nothing of keys that are forgotten.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from reconverge import Agent
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.exchange import answer_stats
from reconverge.kernel import Table
from reconverge.kernel.eviction import KEPT_NS
from reconverge.kernel.table.lookup import UNTOUCHED_NS
from reconverge.limit import ALGORITHMS, METERED, SLIDING_WINDOW, Limit
from reconverge.limit.limit import SMOOTH
from reconverge.policies import AVAILABLE, BALANCED, NAIVE, STRICT, Policy
from reconverge.simulation.explore.node import INTERVAL_NS, START_S, SmallNode
from reconverge_sync.memory import MemoryHub

WINDOW_S = 60.0
LIMIT = Limit(10, WINDOW_S, algorithm=SLIDING_WINDOW)


class Crowded:
    """A node with room for few keys, and its hub."""

    def __init__(self, limit: Limit = LIMIT, policy: Policy = BALANCED, *, keys_max: int = 10) -> None:
        self.clock = ManualClock(START_S)
        self.hub = MemoryHub(clock=self.clock)
        self.node = SmallNode(self.clock, keys_max=keys_max)
        self.table: Table = self.node.limit(limit, policy)
        self.exchanges()  # from now on it knows what time it is at the hub

    @property
    def keys(self) -> set[str]:
        """The keys that the node remembers."""
        return set(self.table.cells)

    @property
    def evicted(self) -> int:
        """How many have left before they were idle."""
        return self.table.left_early

    def admitted_of(self, times: int, key: str = "ada") -> int:
        """How many of so many requests are admitted."""
        return sum(self.table.allow(key) for _ in range(times))

    def exchanges(self) -> None:
        """All that is due now is exchanged."""
        for _ in range(100):
            self.node.exchanges_with(self.hub)
            if self.node.syncer.due_ns(self.clock.monotonic_ns()) > self.clock.monotonic_ns():
                return
        raise AssertionError("there is no end to it")

    def goes_on(self, seconds: float) -> None:
        """Time passes, and the node exchanges in each interval."""
        for _ in range(round(seconds * SECOND_NS / INTERVAL_NS)):
            self.exchanges()
            self.clock.advance_ns(INTERVAL_NS)

    def forgets(self, key: str, busy: str = "bob") -> None:
        """Only another key is asked about, until this one leaves."""
        for _ in range(15):
            self.table.allow(busy, 0)
            self.exchanges()
            self.clock.advance_ns(INTERVAL_NS)
        assert key not in self.keys
        assert busy in self.keys

    def fills_up(self, but: int = 0) -> None:
        """Made-up keys come, one request each, until there is room for `but` more; the hub hears of all."""
        kernel = self.node.kernel
        for number in range(kernel.keys_max - but - kernel.keys):
            self.table.allow(f"made-up {number}")
        self.exchanges()

    def used_of(self, key: str) -> int:
        """Returns the use of the key by all others, as a node that has just begun hears of it."""
        asker = SmallNode(self.clock)
        table = asker.limit(self.table.limit, self.table.policy)
        table.usage(key)
        asker.exchanges_with(self.hub)
        return table.usage(key).total


@pytest.mark.slow
def test_newcomers_find_room_while_made_up_keys_keep_coming() -> None:
    """200 made-up keys per second, six times as many as there is room for; and nobody who is known is refused."""
    fleet = Crowded(Limit(100, WINDOW_S), keys_max=1000)
    known = [f"known {number}" for number in range(20)]
    newcomers = refused_of_known = 0
    for tick in range(300):
        for number in range(20):
            fleet.table.allow(f"made-up {tick} {number}")
        newcomers += fleet.table.allow(f"newcomer {tick}")
        if tick % 5 == 0:
            refused_of_known += sum(not fleet.table.allow(key) for key in known)
        fleet.goes_on(0.1)

        assert fleet.node.kernel.keys <= 1000

    assert newcomers >= 0.98 * 300
    assert 0 == refused_of_known
    assert 0 == fleet.table.overflowed
    assert fleet.evicted > 5000


def test_room_is_made_ahead_of_need() -> None:
    """When a tenth of the table is left, keys leave until a quarter of it is free."""
    fleet = Crowded(keys_max=100)
    fleet.fills_up(but=10)
    fleet.goes_on(3.0)
    before = len(fleet.keys)

    fleet.table.allow("one more")
    fleet.goes_on(1.0)

    assert (90, 75) == (before, len(fleet.keys))


def test_keys_that_the_hub_has_not_heard_of_never_leave() -> None:
    """A node that is cut off from the beginning keeps all that is in use, and a newcomer shares the count of others."""
    fleet = Crowded(keys_max=10)
    for number in range(10):
        fleet.table.allow(f"key {number}")
    for _ in range(30):
        fleet.node.sends()
        fleet.node.gives_up()
        fleet.clock.advance_ns(SECOND_NS)
    for number in range(3):
        fleet.table.allow(f"newcomer {number}")

    assert {f"key {number}" for number in range(10)} == fleet.keys
    assert 3 == fleet.table.overflowed


def test_a_node_that_is_cut_off_makes_room_of_keys_that_are_not_in_use_any_more() -> None:
    """It has never heard of the hub, the window is over, and nobody has asked since."""
    fleet = Crowded(Limit(10, WINDOW_S, algorithm="fixed-window"), keys_max=10)
    for number in range(10):
        fleet.table.allow(f"key {number}")
    fleet.clock.advance_ns(2 * LIMIT.window_ns)

    admitted = [fleet.table.allow(f"newcomer {number}") for number in range(10)]

    assert [True] * 10 == admitted
    assert 0 == fleet.table.overflowed


def test_keys_of_which_nothing_is_in_use_leave_first() -> None:
    """However much they have used before the window began."""
    fleet = Crowded(Limit(10, 9.0, algorithm="fixed-window"), keys_max=10)
    for key in ("idle", "idle too"):
        fleet.admitted_of(5, key)
    fleet.goes_on(9.0)
    for number in range(7):
        fleet.table.allow(f"in use {number}")
    fleet.exchanges()
    fleet.goes_on(1.5)
    fleet.table.allow("one more")
    fleet.goes_on(0.3)

    assert {"one more", *(f"in use {number}" for number in range(7))} == fleet.keys


def test_of_keys_in_use_the_least_used_leave() -> None:
    """The longest known ones, too, if they are used less."""
    fleet = Crowded(keys_max=8)
    for number in range(8):
        fleet.admitted_of(1 + number % 4, f"key {number}")
        fleet.exchanges()
    fleet.goes_on(UNTOUCHED_NS / SECOND_NS + 0.3)

    assert {"key 1", "key 2", "key 3", "key 5", "key 6", "key 7"} == fleet.keys


def test_of_keys_used_alike_those_leave_that_nobody_has_asked_about_for_longest() -> None:
    """The order in which they were asked about last decides, and not the one in which they came."""
    fleet = Crowded(keys_max=8)
    for number in range(8):
        fleet.table.allow(f"key {number}")
    fleet.exchanges()
    for number in (1, 0):
        fleet.clock.advance_ns(1)
        fleet.table.test(f"key {number}")
        fleet.table.allow(f"key {number}", 0)
    fleet.exchanges()
    fleet.goes_on(UNTOUCHED_NS / SECOND_NS + 0.3)

    assert {"key 0", "key 1"} <= fleet.keys
    assert 6 == len(fleet.keys)


def test_a_key_that_was_asked_about_just_now_stays() -> None:
    """Up to the last nanosecond of the time for which it counts as being in use."""
    fleet = Crowded(keys_max=2)
    for key in ("ada", "bob"):
        fleet.table.allow(key)
    fleet.exchanges()
    fleet.clock.advance_ns(UNTOUCHED_NS - 1)
    fleet.exchanges()
    before = fleet.keys
    fleet.clock.advance_ns(2 * INTERVAL_NS)
    fleet.exchanges()

    assert (2, 1) == (len(before), len(fleet.keys))


def test_a_key_that_somebody_waits_for_stays() -> None:
    """Whoever waits for it would wait for nothing."""
    fleet = Crowded(keys_max=2)
    for key in ("ada", "bob"):
        fleet.table.allow(key)
        cell = fleet.table.cells[key]
        fleet.table.waiter.queue_up(cell, 1, fleet.clock.monotonic_ns(), [])
    fleet.goes_on(5.0)

    assert {"ada", "bob"} == fleet.keys


@pytest.mark.parametrize("algorithm", METERED)
def test_the_hub_keeps_what_a_forgotten_key_has_used(algorithm: str) -> None:
    """Whoever asks the hub hears of it, and so does the node itself once the key is back."""
    fleet = Crowded(Limit(50, 1000.0, algorithm=algorithm), keys_max=2)
    used = fleet.admitted_of(30)
    fleet.forgets("ada")
    heard = fleet.used_of("ada")
    fleet.table.usage("ada")
    fleet.goes_on(0.5)
    total = fleet.table.usage("ada").total
    more = fleet.admitted_of(50)

    assert 30 == used
    assert abs(heard - used) <= 1
    assert abs(total - used) <= 1
    assert used + more <= 51


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_lifetime_totals_are_exact_however_often_keys_come_and_go(algorithm: str) -> None:
    """The hub knows the charges to the last request."""
    warmup = 60.0 if algorithm == "smooth-warming-up" else None
    fleet = Crowded(Limit(50, 20.0, algorithm=algorithm, warmup=warmup), keys_max=4)
    admitted = 0
    for tick in range(40):
        admitted += fleet.admitted_of(2, f"key {tick % 4}")
        fleet.goes_on(0.7)
    fleet.node.reports_everything_to(fleet.hub)

    assert fleet.evicted > 10
    assert admitted == fleet.hub.sums()["limit"].charged


@pytest.mark.parametrize("algorithm", SMOOTH)
@pytest.mark.parametrize("cost", [10, 40])
def test_a_smooth_key_is_forgotten_for_room_once_its_debt_is_paid(algorithm: str, cost: int) -> None:
    """Credit is known to the node alone: a key that had left before could go on credit once more."""
    warmup = WINDOW_S if algorithm == "smooth-warming-up" else None
    fleet = Crowded(Limit(10, WINDOW_S, algorithm=algorithm, warmup=warmup), STRICT, keys_max=2)
    while not fleet.table.allow("ada", cost):
        fleet.goes_on(0.1)  # until there is an allowance
    owing = []
    for _ in range(15):
        fleet.table.allow("bob", 0)
        fleet.exchanges()
        fleet.clock.advance_ns(INTERVAL_NS)
        owing.append("ada" in fleet.keys)
    fleet.goes_on(3 * cost / 10 * WINDOW_S)

    assert all(owing)
    assert "ada" not in fleet.keys


@pytest.mark.parametrize("policy", [BALANCED, AVAILABLE])
def test_a_key_that_was_evicted_gets_no_second_cold_allowance(policy: Policy) -> None:
    """Used up, forgotten, and asked for again before the hub has answered: it begins at nothing, others do not."""
    fleet = Crowded(LIMIT, policy, keys_max=2)
    first = fleet.admitted_of(20)
    fleet.forgets("ada")
    second = fleet.admitted_of(20)
    stranger = fleet.admitted_of(1, "cyd")

    assert (10, 0, 1) == (first, second, stranger)


def test_a_key_may_be_new_again_when_its_use_has_faded() -> None:
    """Two windows after it has left, its allowance is that of any newcomer."""
    fleet = Crowded(keys_max=2)
    fleet.admitted_of(20)
    fleet.forgets("ada")
    fleet.goes_on(4 * WINDOW_S + 5)

    assert 10 == fleet.admitted_of(20)


def test_a_key_whose_last_report_was_not_answered_stays() -> None:
    """Nobody can know whether the hub has heard it; the use counts at least once, and the totals exactly."""
    fleet = Crowded(keys_max=2)
    fleet.admitted_of(4)
    fleet.table.allow("bob")
    fleet.exchanges()
    fleet.clock.advance_ns(2 * SECOND_NS)
    batch = fleet.node.sends()
    fleet.node.reaches(fleet.hub)
    fleet.node.gives_up()
    leaving = [] if batch is None else [report.key for report in batch.cells if report.forgotten]
    kept = fleet.keys
    fleet.goes_on(0.5)
    more = sum(fleet.table.allow(key) for key in ("ada", "bob"))
    fleet.goes_on(0.5)

    assert 1 == len(leaving)
    assert {"ada", "bob"} == kept
    assert fleet.used_of("ada") + fleet.used_of("bob") >= 5 + more
    assert 5 + more == fleet.hub.sums()["limit"].charged


def test_a_key_that_is_used_while_its_last_report_is_under_way_stays() -> None:
    """The reported part is the hub's from there on, later use is reported as any; nothing counts twice."""
    fleet = Crowded(LIMIT, NAIVE, keys_max=2)
    for key in ("ada", "bob"):
        fleet.admitted_of(4, key)
    fleet.goes_on(0.3)
    fleet.clock.advance_ns(2 * SECOND_NS)
    batch = fleet.node.sends()
    leaving = [] if batch is None else [report.key for report in batch.cells if report.forgotten]
    admitted = fleet.table.allow(leaving[0])
    fleet.node.reaches(fleet.hub)
    fleet.node.hears()
    fleet.table.allow("bob" if leaving[0] == "ada" else "ada")
    fleet.goes_on(0.2)

    assert (True, {"ada", "bob"}) == (admitted, fleet.keys)
    assert 5 == fleet.used_of(leaving[0])
    assert 5 == fleet.table.usage(leaving[0]).total


def test_a_key_that_is_used_before_its_last_report_stays() -> None:
    """It was chosen to leave, and somebody came before the batch was made."""
    fleet = Crowded(keys_max=2)
    for key in ("ada", "bob"):
        fleet.table.allow(key)
    fleet.exchanges()
    fleet.clock.advance_ns(2 * SECOND_NS)
    fleet.node.kernel.room.sweep(fleet.clock.monotonic_ns(), fleet.node.kernel.shards[0])
    chosen = [cell.key for cell in fleet.table.cells.in_order() if cell.leaving]
    fleet.table.allow(chosen[0])
    fleet.exchanges()

    assert chosen[0] in fleet.keys
    assert 2 == fleet.used_of(chosen[0])


class OldHub(MemoryHub):
    """One that merges last reports as any other: it does not know the mark."""

    def merge(self, batch: Any) -> Any:
        """Merges as a hub that has never heard of keys that are forgotten."""
        plain = [report._replace(asked=0) if report.forgotten else report for report in batch.cells]
        return super().merge(batch._replace(cells=tuple(plain)))


def test_a_hub_that_does_not_know_of_it_is_not_relied_on() -> None:
    """The key stays, and for a while the hub is not asked again."""
    fleet = Crowded(Limit(10, 1000.0), keys_max=2)
    fleet.hub = OldHub(clock=fleet.clock)
    for key in ("ada", "bob"):
        fleet.admitted_of(4, key)
    fleet.exchanges()
    said: list[int] = []
    for tick in range(round(KEPT_NS / SECOND_NS) - 1):
        fleet.clock.advance_ns(SECOND_NS)
        batch = fleet.node.sends()
        said += [tick for report in (() if batch is None else batch.cells) if report.forgotten]
        fleet.node.reaches(fleet.hub)
        fleet.node.hears()

    assert {"ada", "bob"} == fleet.keys
    assert 1 == len(said)
    assert 4 == fleet.used_of("ada")


def test_a_strict_limit_refuses_keys_beyond_the_cap() -> None:
    """In one count with others, a key could have more than its quota: here and there."""
    fleet = Crowded(LIMIT, STRICT, keys_max=1)
    fleet.table.allow("ada")
    late = [fleet.table.allow(f"late {number}") for number in range(5)]
    fleet.exchanges()
    late += [fleet.table.allow(f"late {number}") for number in range(5)]

    assert not any(late)


def test_a_full_node_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """With the setting and what becomes of further keys; health says it, too, but not before a key finds no room."""
    agent = Agent("memory://", clock=ManualClock(START_S), max_keys=1)
    limiter = agent.limit("limit", "10/minute")
    limiter.allow("ada", 6)
    healthy = agent.health().state
    with caplog.at_level(logging.WARNING, logger="reconverge"):
        before = agent.stats()
        for number in range(5):
            limiter.allow(f"late {number}")
            agent.stats()
    health = agent.health()

    assert 0 == before.limits["limit"].overflowed
    assert ["max_keys=1 keys are in use" in record.getMessage() for record in caplog.records] == [True]
    assert ("ready", "degraded", 1) == (healthy, health.state, len(health.grounds))
    assert "max_keys=1" in health.grounds[0]


def test_a_limit_that_meets_no_key_twice_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keys may be identifiers of requests. A single key that comes again shows that they are not."""
    monkeypatch.setattr(answer_stats, "KEYS_ONCE", 20)
    agent = Agent("memory://", clock=ManualClock(START_S))
    users, requests = agent.limit("users", "10/minute"), agent.limit("requests", "10/minute")
    users.allow("user 0")
    for number in range(20):
        users.allow(f"user {number}")
    agent.stats()
    assert "" == caplog.text

    for number in range(20):
        requests.allow(f"request {number}")
    for _ in range(2):
        agent.stats()

    assert 1 == len(caplog.records)
    assert "the limit 'requests' has decided about 20 keys, and about none of them twice" in caplog.text
    assert "use a key that a client keeps" in caplog.text
