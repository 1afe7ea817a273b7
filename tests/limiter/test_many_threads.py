"""Goal: with many threads at it, no charge is lost and none admitted that should not be.

Method: millions of requests from eight threads that are switched as often as can be, on few keys, while others reset,
correct, ask and exchange; then the books are compared. The fast path takes no lock at all, compiled or not, and this is
what it has to stand.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import pytest

from reconverge import Agent, Limit, RateLimiter
from reconverge.kernel import COMPILED
from reconverge_sync.memory import MemoryHub
from tests.support.effort import tried

THREADS = 8
CALLS = tried(6_000_000, long=10_000_000) if COMPILED else 800_000
"""In all; a few seconds' worth."""
KEYS = ("ada", "bob", "cy", "dee")
EACH = CALLS // THREADS // len(KEYS)
TEN_YEARS_S = 3660 * 86_400
"""No window ends meanwhile."""
HALF = CALLS // len(KEYS) // 2
"""Half of what is asked for each key."""
ALGORITHMS = ("fixed-window", "sliding-window", "token-bucket")


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    """Threads are switched a hundred times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(before)


def ask(limiter: RateLimiter, each: int = EACH) -> dict[str, int]:
    """Ask for all keys from all threads, and count what is admitted of each."""

    def go_on(thread: int) -> list[int]:
        return [sum(map(limiter.allow, repeat(key, each))) for key in KEYS[thread % 4 :] + KEYS[: thread % 4]]

    with ThreadPoolExecutor(THREADS) as pool:
        counts = list(pool.map(go_on, range(THREADS)))
    return {
        key: sum(count[(place - thread) % 4] for thread, count in enumerate(counts)) for place, key in enumerate(KEYS)
    }


class Meanwhile:
    """Somebody who does something over and over until it is enough."""

    def __init__(self, *things: Callable[[], object]) -> None:
        self._enough = threading.Event()
        self._threads = [threading.Thread(target=self._go_on, args=(thing,)) for thing in things]
        self.failures: list[BaseException] = []

    def _go_on(self, thing: Callable[[], object]) -> None:
        try:
            while not self._enough.is_set():
                thing()
        except BaseException as failure:
            self.failures.append(failure)
            raise

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join()
        assert [] == self.failures


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_exactly_the_quota_is_admitted(algorithm: str) -> None:
    """Of all that is asked for each key, half; and every decision is counted."""
    limiter = Agent("memory://").limit("limit", Limit(HALF, TEN_YEARS_S, algorithm=algorithm))
    drains = algorithm == "token-bucket"

    admitted = ask(limiter)

    assert all(HALF <= count <= HALF + drains for count in admitted.values())
    assert CALLS == limiter.control.table.admitted + limiter.control.table.refused
    assert sum(admitted.values()) == limiter.control.table.admitted


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nobody_who_looks_on_changes_anything(algorithm: str) -> None:
    """With threads that ask for the usage, foresee, and come with other keys all the time, it is the same."""
    limiter = Agent("memory://").limit("limit", Limit(HALF // 4, TEN_YEARS_S, algorithm=algorithm))
    drains = algorithm == "token-bucket"
    lookers: list[Callable[[], object]] = [
        lambda: limiter.usage("ada"),
        lambda: limiter.test("bob", 2),
        lambda: limiter.hit("cy", 0),
        lambda: [limiter.allow(f"key {number}") for number in range(100)],
    ]

    with Meanwhile(*lookers):
        admitted = ask(limiter, EACH // 4)

    assert all(HALF // 4 <= count <= HALF // 4 + drains for count in admitted.values())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_charge_is_lost_while_exchanging(algorithm: str) -> None:
    """A strict node that exchanges as often as it can: never above the quota, and the hub hears of every charge."""
    hub = MemoryHub()
    quota = HALF // 8
    with Agent(hub, sync_interval=0.002, min_sync_interval=0.001, policy="strict", lease_ttl=600) as agent:
        limiter = agent.limit("limit", Limit(quota, TEN_YEARS_S, algorithm=algorithm))
        with Meanwhile(lambda: limiter.usage("ada"), lambda: limiter.test("bob")):
            admitted = ask(limiter, EACH // 4)

    told = hub.sums()["limit"]

    assert all(count <= quota + 1 for count in admitted.values())
    assert (sum(admitted.values()), 0) == (told.charged, told.refunded)
    assert 0 == agent.stats().bugs


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_charge_is_lost_while_all_is_corrected(algorithm: str) -> None:
    """With resets, settlements and refunds in between, the hub hears of every charge and of all that was given back."""
    hub = MemoryHub()
    settled: list[int] = []
    refunded: list[int] = []

    def correct() -> None:
        with limiter.reserve("ada", 3) as reservation:
            reservation.settle(5)
        settled.append(5 if reservation else 0)
        limiter.refund("bob", 2)
        refunded.append(2)
        limiter.reset("cy")

    with Agent(hub, sync_interval=0.002, min_sync_interval=0.001, lease_ttl=600) as agent:
        limiter = agent.limit("limit", Limit(HALF // 8, TEN_YEARS_S, algorithm=algorithm))
        with Meanwhile(correct):
            admitted = ask(limiter, EACH // 8)

    told = hub.sums()["limit"]

    assert sum(admitted.values()) + sum(settled) == told.charged
    assert sum(refunded) == told.refunded
    assert 0 == agent.stats().bugs


@pytest.mark.parametrize("algorithm", ["fixed-window", "sliding-window"])
def test_what_is_left_is_what_was_charged_and_not_given_back(algorithm: str) -> None:
    """Some charge one key at once, over and over, while others give back, settle and ask for the same one."""
    limiter = Agent("memory://").limit("limit", Limit(100 * CALLS, TEN_YEARS_S, algorithm=algorithm))
    limiter.allow("ada", CALLS)
    sys.setswitchinterval(1e-6)
    given_back: list[int] = []

    def give_back() -> None:
        limiter.refund("ada", 1)
        given_back.append(1)

    def settle() -> None:
        limiter.reserve("ada", 1).settle(0)

    with Meanwhile(give_back, settle, lambda: limiter.usage("ada")), ThreadPoolExecutor(THREADS - 3) as pool:
        counts = list(pool.map(lambda _: sum(map(limiter.allow, repeat("ada", 24 * EACH))), range(THREADS - 3)))

    assert [24 * EACH] * (THREADS - 3) == counts
    assert CALLS + sum(counts) - len(given_back) == limiter.usage("ada").total


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nothing_is_charged_at_once_while_somebody_holds_the_lock(algorithm: str) -> None:
    """Whoever holds it may have read what he is going to write; whoever comes has to wait."""
    limiter = Agent("memory://").limit("limit", Limit(CALLS, TEN_YEARS_S, algorithm=algorithm))
    limiter.allow("ada")
    cell = limiter.control.table.cells["ada"]
    thread = threading.Thread(target=limiter.allow, args=("ada",))

    with limiter.control.table.lock:
        used = cell.used
        thread.start()
        thread.join(0.05)

        assert (True, used) == (thread.is_alive(), cell.used)
    thread.join()
    assert 2 == limiter.usage("ada").total
