"""Goal: a meter counts all that is charged, within its bounds. Method: sums over keys, minutes and threads."""

from __future__ import annotations

import logging
import sys
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from reconverge import Agent
from reconverge.clock import ManualClock
from reconverge.errors import InvalidCost, InvalidKey, InvalidSetting
from reconverge.hub.usage import OTHERS, Counts, UsageKey
from reconverge.integrations.web.guard import Guard
from reconverge.usage.addresses import TEXT_MAX
from reconverge.usage.meter import COST_MAX, Meter, Taken
from reconverge.usage.reporter import UsageReporter
from reconverge_sync.memory import MemoryHub

MINUTE_S = 60


@pytest.fixture
def impatient_interpreter() -> Iterator[None]:
    """Threads are switched as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def sums(taken: list[Taken]) -> dict[UsageKey, Counts]:
    """By key, whatever the minute."""
    found: Counter[tuple[UsageKey, int]] = Counter()
    for each in taken:
        for place, count in enumerate(each.counts):
            found[each.key, place] += count
    return {key: Counts(*(found[key, place] for place in range(3))) for key, _ in found}


def test_each_key_has_its_own_counts(clock: ManualClock) -> None:
    """Identity, limit and route tell keys apart; what is refused costs nothing."""
    meter = Meter(clock)
    meter.add("acme", "api")
    meter.add("acme", "api", 5)
    meter.add("acme", "api", 7, refused=True)
    meter.add("acme", "api", 2, "/users/{id}")
    meter.add("acme", "tokens", 900)
    meter.add("other", "api")

    expected = {
        UsageKey("acme", "api", ""): Counts(6, 2, 1),
        UsageKey("acme", "api", "/users/{id}"): Counts(2, 1, 0),
        UsageKey("acme", "tokens", ""): Counts(900, 1, 0),
        UsageKey("other", "api", ""): Counts(1, 1, 0),
    }
    assert expected == sums(meter.take())
    assert [] == meter.take()


def test_a_function_that_was_taken_from_a_meter_goes_on_counting_in_it(clock: ManualClock) -> None:
    """In every minute, and after a fork, where what was counted before is the parent's."""
    meter = Meter(clock)
    add = meter.add
    add("acme", "api")
    add("acme", "api")
    clock.advance(MINUTE_S)
    add("acme", "api", 5)
    assert {UsageKey("acme", "api", ""): Counts(7, 3, 0)} == sums(meter.take())

    add("acme", "api", 11)
    meter.start_over()
    add("acme", "api", 1)
    add("acme", "api", 3)

    assert {UsageKey("acme", "api", ""): Counts(4, 2, 0)} == sums(meter.take())


def test_what_is_given_back_is_no_request(clock: ManualClock) -> None:
    """A reservation that is settled for less costs less, and was one request."""
    meter = Meter(clock)
    meter.add("acme", "tokens", 100)
    meter.add("acme", "tokens", -60)

    assert {UsageKey("acme", "tokens", ""): Counts(40, 1, 0)} == sums(meter.take())


def test_a_charge_belongs_to_its_minute(clock: ManualClock) -> None:
    """The last nanosecond of a minute and the first of the next are apart, also when the clock jumps back."""
    meter = Meter(clock)
    first = clock.wall_ns() // 60_000_000_000
    clock.advance_ns(MINUTE_S * 1_000_000_000 - 1)
    meter.add("acme", "api", 1)
    clock.advance_ns(1)
    meter.add("acme", "api", 10)
    clock.jump(-MINUTE_S)
    meter.add("acme", "api", 100)

    by_minute = {each.minute: each.counts.cost for each in meter.take()}
    assert {first: 101, first + 1: 10} == by_minute


def test_a_row_that_was_taken_goes_on_counting(clock: ManualClock) -> None:
    """Later counts are taken as a difference; of a minute that is over, nothing stays."""
    meter = Meter(clock)
    meter.add("acme", "api", 3)
    meter.take()
    meter.add("acme", "api", 4)

    assert {UsageKey("acme", "api", ""): Counts(4, 1, 0)} == sums(meter.take())
    clock.advance(10 * MINUTE_S)
    meter.take()
    assert {} == meter._minutes


def test_nothing_is_lost_beyond_the_bound_of_rows(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """Rows without room are counted under "(others)"; that is logged once, and counted."""
    meter = Meter(clock, rows_max=3)
    with caplog.at_level(logging.WARNING):
        for number in range(10):
            meter.add(f"customer {number}", "api", 2)
            meter.add("customer 0", "api", 1)

    found = sums(meter.take())
    assert 30 == sum(counts.cost for counts in found.values())
    assert Counts(14, 7, 0) == found[UsageKey(OTHERS, "api", "")]
    assert Counts(12, 11, 0) == found[UsageKey("customer 0", "api", "")]
    assert 7 == meter.overflowed
    assert 1 == len(caplog.records)


def test_nothing_is_lost_beyond_the_bound_of_routes(clock: ManualClock) -> None:
    """Routes that there is no room for are one route, under the identity's own name."""
    meter = Meter(clock, routes_max=2)
    for path in ("/a", "/b", "/c", "/d", "/a", "/c"):
        meter.add("acme", "api", 1, path)

    found = {key.route: counts.cost for key, counts in sums(meter.take()).items()}
    assert {"/a": 2, "/b": 1, OTHERS: 3} == found


def test_the_bounds_hold_for_any_names(clock: ManualClock) -> None:
    """Even names of limits that a program makes up, and long ones, take no room without end."""
    meter = Meter(clock, rows_max=5)
    for number in range(3000):
        meter.add("x" * (TEXT_MAX + 1), f"limit {number}", 1)

    taken = meter.take()
    assert 3000 == sum(each.counts.cost for each in taken)
    assert len(taken) <= 1100


@pytest.mark.parametrize("cost", [1.5, "1", None, COST_MAX + 1, -COST_MAX - 1])
def test_a_cost_is_a_whole_number_within_bounds(cost: object, clock: ManualClock) -> None:
    """Anything else is an error, and counts nothing."""
    meter = Meter(clock)
    with pytest.raises(InvalidCost):
        meter.add("acme", "api", cost)  # type: ignore[arg-type]

    assert [] == meter.take()


@pytest.mark.parametrize("name", ["a\0b", 7])
def test_a_name_is_text_without_nul(name: object, clock: ManualClock) -> None:
    """Hubs divide keys by NUL."""
    for names in ((name, "api", ""), ("acme", name, ""), ("acme", "api", name)):
        with pytest.raises(InvalidKey):
            Meter(clock).add(names[0], names[1], 1, names[2])  # type: ignore[arg-type]


def test_a_bound_is_at_least_one() -> None:
    """A meter without room would count nothing by name."""
    with pytest.raises(InvalidSetting, match="rows_max"):
        Meter(rows_max=0)


def test_a_request_of_several_limits_is_one_request(clock: ManualClock) -> None:
    """Each limit counts it, and the load of the node counts it once."""
    meter = Meter(clock)
    meter.add_request("acme", [("api", 1), ("tokens", 500)], "/chat", address="192.0.2.1")
    meter.add_request("acme", [("api", 1), ("tokens", 500)], refused=True)
    meter.add_request("acme", [])

    assert 4 == sum(each.counts.requests + each.counts.refused for each in meter.take())
    assert 2 == meter.take_companions()
    assert 0 == meter.take_companions()
    assert 1 == meter.addresses.estimate("acme")


@pytest.mark.usefixtures("impatient_interpreter")
def test_threads_lose_nothing(clock: ManualClock) -> None:
    """Four threads add to the same rows, and to new ones, while a fifth takes and the minute turns."""
    meter = Meter(clock, rows_max=50)
    each_thread = 20_000
    taken: list[Taken] = []
    done = threading.Event()

    def add(thread: int) -> None:
        for number in range(each_thread):
            meter.add("acme", "api", 2, "/a" if number % 2 else "")
            meter.add(f"{thread} {number % 100}", "api", 1)

    def take() -> None:
        while not done.is_set():
            taken.extend(meter.take())
            clock.advance(0.05)

    adders = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    taker = threading.Thread(target=take)
    for thread in (taker, *adders):
        thread.start()
    for thread in adders:
        thread.join()
    done.set()
    taker.join()

    total = sum(each.counts.cost for each in taken + meter.take())
    assert 4 * each_thread * 3 == total


def test_counts_for_a_reporter_that_was_never_started_are_logged_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """Of the process, which may end within a minute. Without counts, or started, there is nothing to log."""
    for counts, starts in ((False, False), (True, True), (True, False)):
        before, meter = caplog.text, Meter()
        reporter = UsageReporter(meter, MemoryHub())
        if starts:
            reporter.start()
        if counts:
            meter.add("acme", "requests")
        reporter.stop_for_good(5.0)

    assert "" == before
    assert "its UsageReporter was never started; call reporter.start()" in caplog.text


def test_usage_that_is_reported_in_another_namespace_than_its_agents_is_logged(
    caplog: pytest.LogCaptureFixture, clock: ManualClock
) -> None:
    """Once, if the reporter was given none, and no agent has that one; a reporter may be given one of its own."""
    told: list[int] = []
    for reported, namespaces in (("billing", ["shop"]), ("default", ["shop", "default"]), ("default", ["shop"])):
        meter = Meter(clock)
        UsageReporter(meter, MemoryHub(clock=clock), namespace=reported, clock=clock)
        for namespace in namespaces:
            Guard(Agent(MemoryHub(clock=clock), namespace=namespace, sigterm=False), meter=meter)
        for _ in range(2):
            meter.add("acme", "requests")
            meter.take()
        told.append(caplog.text.count("is reported in the namespace 'default'"))

    assert [0, 0, 1] == told
    assert "write UsageReporter(meter, hub, namespace='shop')" in caplog.text
