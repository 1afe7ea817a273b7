"""Goal: a small quota of a storage is neither refused nor admitted falsely, however many processes count it.

Method: two agents on one Redis stand for two processes; clients that go by what a response of Flask-Limiter would say.
What must not wait is asked with what waits taken away.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from limits import RateLimitItem, parse

from reconverge.integrations.dropin.storage import FIXED, MOVING, SLIDING
from reconverge.limiter.asking import Asking
from tests.support.applications.storages import limiter_at
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

STRATEGIES = [FIXED, MOVING, SLIDING]
PATIENT = "in_doubt=ask:1s"
"""So long that no pause of a busy machine looks like a hub that does not answer, and shorter than the windows."""
CLIENTS = 50
SPREAD_S = 2.0
ASKED_MAX = 30


@pytest.fixture
def nodes(redis_server: RedisServer) -> Iterator[Any]:
    """Makes two strategies of the library, of one storage each, whose agents meet at one Redis."""
    made: list[Any] = []

    def make(strategy: str, options: str = PATIENT) -> list[Any]:
        # Storages of the same settings share one agent, as those of one process do.
        uris = [f"reconverge+redis://127.0.0.1:{redis_server.port}/0?{options}&stop_timeout={each}" for each in (2, 3)]
        made.extend(limiter_at(uri, strategy) for uri in uris)
        return made[-2:]

    yield make
    for limiter in made:
        limiter.storage.book.agent.stop()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_clients_that_keep_to_retry_after_are_admitted_when_they_come_again(strategy: str, nodes: Any) -> None:
    """By whichever process. Of each client's first requests no more are admitted than the quota."""
    item = parse("3/3 seconds")
    limiters = nodes(strategy)

    def come(number: int) -> tuple[int, bool]:
        """How many requests were admitted before one was refused, and whether the one after the wait was."""
        key = f"{strategy}-{number}"
        sleep(random.random() * SPREAD_S)
        for admitted in range(ASKED_MAX):
            limiter = random.choice(limiters)
            if not limiter.hit(item, key):
                sleep(told_s(limiter, item, key))
                return admitted, bool(random.choice(limiters).hit(item, key))
        raise AssertionError("nothing was refused")

    with ThreadPoolExecutor(CLIENTS) as threads:
        found = list(threads.map(come, range(CLIENTS)))

    assert CLIENTS - 1 <= sum(again for _, again in found)
    if strategy != FIXED:  # a client that comes at the edge of a window is admitted in both
        assert 3 == max(admitted for admitted, _ in found)


def sleep(seconds: float) -> None:
    threading.Event().wait(seconds)


def told_s(limiter: Any, item: RateLimitItem, key: str) -> int:
    """Computes Retry-After as Flask-Limiter does."""
    now_s = limiter.storage.book.now()
    return int(int(limiter.get_window_stats(item, key).reset_time + 1) - now_s)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_new_key_that_is_asked_for_everywhere_at_once_admits_its_quota(strategy: str, nodes: Any) -> None:
    """And not the quota of each process."""
    item, limiters = parse("5/day"), nodes(strategy)
    barrier = threading.Barrier(16)

    def ask(number: int) -> int:
        barrier.wait()
        return sum(limiters[number % 2].hit(item, "new") for _ in range(3))

    with ThreadPoolExecutor(16) as threads:
        assert 5 == sum(threads.map(ask, range(16)))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_certainly_refused_does_not_wait(strategy: str, nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client who has used up a quota and goes on holds no thread.

    When what another node has used expires is not told of a moving window, so there only that node is certain.
    """
    item, (limiter, other) = parse("3/day"), nodes(strategy)
    assert 3 == sum(limiter.hit(item, "ada") for _ in range(4))
    assert not other.hit(item, "ada")
    certain = (limiter,) if strategy == MOVING else (limiter, other)
    for each in certain:
        eventually(partial(_is_certain, each), "it has heard that all is used")

    monkeypatch.setattr(Asking, "steps", _must_not_wait)

    assert not any(each.hit(item, "ada") for each in certain for _ in range(100))
    assert 0 == limiter.storage.book.bugs + other.storage.book.bugs


def test_a_hub_that_does_not_answer_is_waited_for_once(nodes: Any, redis_server: RedisServer) -> None:
    """Further requests are decided from memory until it answers again."""
    item, (limiter, _) = parse("3/day"), nodes(FIXED, "in_doubt=ask:100ms&exchange_timeout=0.2")
    limiter.hit(item, "ada")
    redis_server.pause()
    try:
        for number in range(20):
            assert limiter.hit(item, f"new-{number}")
    finally:
        redis_server.resume()

    asked = _asks(limiter)
    assert (1, 19) == (asked["timeout"], asked["in_vain"])
    eventually(
        lambda: limiter.hit(item, f"newer-{random.random()}") and _asks(limiter)["admitted"] > asked["admitted"],
        "another question",
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_while_the_hub_is_away_small_quotas_refuse_what_they_know(
    strategy: str, nodes: Any, redis_server: RedisServer
) -> None:
    """No node holds anything of a key that is kept at the hub, which it is while there is more than one node."""
    item, (limiter, other) = parse("6/day"), nodes(strategy, "in_doubt=ask:100ms&exchange_timeout=0.2")
    for each in (other, limiter, limiter):
        eventually(partial(each.hit, item, "ada"), "the hub has answered in time")
    eventually(lambda: not _spare(limiter), "its node has given back what it does not need")
    redis_server.pause()
    try:
        assert not any(limiter.hit(item, "ada") for _ in range(3))
    finally:
        redis_server.resume()


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_an_event_loop_is_not_held_up_by_a_storage_that_cannot_be_awaited(
    strategy: str, nodes: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Slowapi asks so: memory decides, which is logged once, and its node holds rights of its own again."""
    item, (limiter, _) = parse("30/day"), nodes(strategy)
    monkeypatch.setattr(Asking, "steps", _must_not_wait)

    assert [True] * 5 == [limiter.hit(item, f"key-{number}") for number in range(5)]
    assert 0 == limiter.storage.book.bugs
    assert 1 == sum("must not wait" in record.getMessage() for record in caplog.records)
    assert all(table.keeps_spare for table in _tables(limiter))


async def test_a_storage_that_can_be_awaited_does_not_hold_up_the_event_loop(redis_server: RedisServer) -> None:
    """While a request waits for the hub, the loop goes on; and the answer is as exact."""
    item = parse("3/day")

    uris = [
        f"async+reconverge+redis://127.0.0.1:{redis_server.port}/0?{PATIENT}&stop_timeout={each}" for each in (4, 5)
    ]
    limiters = [limiter_at(uri, MOVING) for uri in uris]
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    hits = [limiter.hit(item, "ada") for limiter in limiters for _ in range(4)]
    admitted = sum(await asyncio.gather(*hits))
    ticking.cancel()
    for limiter in limiters:
        await asyncio.to_thread(limiter.storage.book.agent.stop)

    assert 3 == admitted
    assert ticks > 10


def test_in_doubt_a_storage_refuses_if_told_so(nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing waits, and nodes hold rights ahead of need."""
    item, (limiter, _) = parse("3/day"), nodes(MOVING, "in_doubt=refuse")
    monkeypatch.setattr(Asking, "steps", _must_not_wait)

    assert limiter.hit(item, "ada")
    assert 0 == limiter.storage.book.bugs
    assert all(table.keeps_spare for table in _tables(limiter))


def test_storages_that_ask_and_that_do_not_are_two_nodes(redis_server: RedisServer) -> None:
    """The part that is left at the hub for the one, the other would refuse."""
    url = f"reconverge+redis://127.0.0.1:{redis_server.port}/0"
    asks, again, refuses = (limiter_at(f"{url}?in_doubt={said}", FIXED) for said in ("ask:1s", "ask:1s", "refuse"))

    assert asks.storage.book.agent is again.storage.book.agent
    assert asks.storage.book.agent is not refuses.storage.book.agent


def _must_not_wait(*_: object, **__: object) -> Any:
    raise AssertionError("nothing may wait here")


def _is_certain(limiter: Any) -> bool:
    (limit,) = limiter.storage.book.agent.limiters.values()
    return bool(limit.test("LIMITER/ada").certain)


def _asks(limiter: Any) -> Any:
    (stats,) = limiter.storage.book.agent.stats().limits.values()
    return stats.asks.results


def _spare(limiter: Any) -> int:
    """Returns how much the node of a storage may admit by itself."""
    usages = [table.usage(key) for table in _tables(limiter) for key in list(table.cells)]
    return sum(max(0, usage.allowance - usage.own) for usage in usages)


def _tables(limiter: Any) -> list[Any]:
    tables = list(limiter.storage.book.agent._kernel.tables.values())  # there is no other way to see it
    assert tables
    return tables
