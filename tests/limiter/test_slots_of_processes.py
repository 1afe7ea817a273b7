"""Goal: on all nodes together no more is in progress than the limit says, and what dies with a process comes back.

Method: processes and agents on a real Redis, with threads that take slots, work and give them back. What runs is
counted in memory that the processes share, or in a list that holds every slot, from after it is taken until before it
is given back. One process is killed, a node is cut off, the server is restarted without its data.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any, Final

import pytest

from reconverge import Agent, Slot, SlotLimiter
from reconverge.clock import NEVER_NS, SECOND_NS, SystemClock
from reconverge.hub.registry import HubSettings, open_hub
from reconverge.hub.report import Answer, Batch, Totals
from tests.support.fixtures.agents import MakeAgent
from tests.support.hubs.relay import Relay
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

FORKED: Final = multiprocessing.get_context("fork")
LIMIT: Final = 8
PROCESSES: Final = 4
THREADS: Final = 5
TAKEN_EACH: Final = 60
"""So many slots each thread takes before it ends."""
WORK_S_MAX: Final = 0.004
LEASE_S: Final = 3.0
SHORT_LEASE_S: Final = 1.0
NAMESPACE: Final = "trouble"
CLOCK: Final = SystemClock()


class Gauge:
    """How much runs now, and at most so far; shared by all processes that are forked after it was made."""

    def __init__(self) -> None:
        self._lock = FORKED.Lock()
        self._running = FORKED.Value("i", 0, lock=False)
        self._peak = FORKED.Value("i", 0, lock=False)
        self._taken = FORKED.Value("i", 0, lock=False)

    def run(self, work: Callable[[], object]) -> None:
        """Count some work for as long as it takes."""
        with self._lock:
            self._running.value += 1
            self._taken.value += 1
            self._peak.value = max(self._peak.value, self._running.value)
        work()
        with self._lock:
            self._running.value -= 1

    @property
    def read(self) -> tuple[int, int, int]:
        """Returns the number that runs, the most that ever did, and how many began."""
        with self._lock:
            return self._running.value, self._peak.value, self._taken.value


def _in_use(limiter: SlotLimiter) -> int:
    return limiter.control.table.slots_in_use()[0]


def _rendering(url: str, lease_s: float) -> tuple[Agent, SlotLimiter]:
    agent = Agent(url, sync_interval=0.02, exchange_timeout=lease_s / 3, stop_timeout=10.0)
    return agent, agent.concurrency("render", LIMIT, lease=lease_s, policy="strict")


def _takes_many(url: str, gauge: Gauge, number: int) -> None:
    """Runs in one process: some threads wait for their slots, the others come again."""
    agent, render = _rendering(url, 30.0)
    pause = threading.Event()

    def work(thread: int) -> None:
        random, left = Random(f"{number} {thread}"), TAKEN_EACH
        while left:
            with render.slot("ada", timeout=30.0 if thread % 2 else None) as slot:
                if slot:
                    left -= 1
                    gauge.run(lambda: pause.wait(random.random() * WORK_S_MAX))

    threads = [threading.Thread(target=work, args=(each,)) for each in range(THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    left_over = _in_use(render)
    agent.stop()
    os._exit(0 if left_over == 0 else 3)


def _holds_all(url: str, told: Any) -> None:
    """Runs in a process that is to be killed: it takes all slots, and has work in progress for ever."""
    _agent, render = _rendering(url, LEASE_S)
    held = [render.slot("ada", timeout=60.0).acquire() for _ in range(LIMIT)]
    told.value = sum(map(bool, held))
    signal.pause()


def _takes_all(limiter: SlotLimiter) -> bool:
    """Whether all slots can be had at once; they are given back."""
    slots = [limiter.slot("ada") for _ in range(LIMIT)]
    try:
        return LIMIT == sum(bool(slot.acquire()) for slot in slots)
    finally:
        for slot in slots:
            slot.release()


@pytest.mark.slow
def test_four_processes_never_run_more_than_the_limit(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """Of 20 threads that take a slot 60 times each at most 8 work at any moment; in the end one node can have all 8."""
    gauge = Gauge()
    processes = [FORKED.Process(target=_takes_many, args=(redis_server.url, gauge, each)) for each in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert [0] * PROCESSES == [process.exitcode for process in processes]
    running, peak, taken = gauge.read
    assert (0, PROCESSES * THREADS * TAKEN_EACH) == (running, taken)
    assert 1 < peak <= LIMIT
    render = make_agent(redis_server.url).concurrency("render", LIMIT, lease=30.0, policy="strict")
    eventually(lambda: _takes_all(render), "all slots, after the processes have ended")


@pytest.mark.slow
def test_slots_of_a_killed_process_are_back_when_its_lease_is_over(
    redis_server: RedisServer, make_agent: MakeAgent
) -> None:
    """Another node has none while the process lives; all of them within a lease and an exchange timeout of its end."""
    told = FORKED.Value("i", -1)
    process = FORKED.Process(target=_holds_all, args=(redis_server.url, told))
    process.start()
    assert process.pid is not None
    try:
        eventually(lambda: told.value == LIMIT, "a process that has all slots")
        agent = make_agent(redis_server.url, exchange_timeout=LEASE_S / 3)
        render = agent.concurrency("render", LIMIT, lease=LEASE_S, policy="strict")
        assert [False] * 5 == [bool(render.slot("ada", timeout=0.05).acquire()) for _ in range(5)]
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.join()

    eventually(lambda: _takes_all(render), "the slots of a killed process", LEASE_S + LEASE_S / 3)


class SlotsTruth:
    """All work in progress of all nodes of this process, and how much of it there was at most."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[Slot, HeardHub | None] = {}
        self._apart: set[Slot] = set()
        """The slots that count apart: the lease of their node has ended since they began, though it may have another
        one by now."""
        self.most = 0
        """How much was in progress on leases that held."""
        self.ended = 0
        """And on leases that had ended."""

    @contextmanager
    def running(self, slot: Slot, hub: HeardHub | None = None) -> Iterator[None]:
        """Count some work for as long as it takes, of the node that has this hub."""
        with self._lock:
            self._running[slot] = hub
            ended = {each for each, of in self._running.items() if of is not None and of.lease_is_over}
            self._apart |= ended
            self.most = max(self.most, len(self._running) - len(self._apart))
            self.ended = max(self.ended, len(self._apart))
        try:
            yield
        finally:
            with self._lock:
                del self._running[slot]
                self._apart.discard(slot)

    def ends_before(self, hub: HeardHub) -> None:
        """A node hears of another lease, after the one on which its work began has ended."""
        with self._lock:
            self._apart |= {each for each, of in self._running.items() if of is hub}


class HeardHub:
    """A hub by way of a relay, whose answers tell when the lease of its node ends.

    To ask a slot whether its lease is over is no proof: an answer may come between two looks, and work that the hub has
    taken for gone goes on under the next lease.
    """

    def __init__(self, relay: Relay, truth: SlotsTruth) -> None:
        self._hub = open_hub(relay.url, HubSettings(NAMESPACE, SHORT_LEASE_S / 4))
        self._truth = truth
        self._until_ns = NEVER_NS
        self.shards = self._hub.shards

    @property
    def lease_is_over(self) -> bool:
        """Whether it is, unless an answer comes just now."""
        return CLOCK.monotonic_ns() > self._until_ns

    async def exchange(self, batch: Batch) -> Answer:
        """Pass a batch on; the lease begins when it is sent, if it is answered."""
        sent_ns = CLOCK.monotonic_ns()
        answer = await self._hub.exchange(batch)
        if self.lease_is_over:
            self._truth.ends_before(self)
        self._until_ns = sent_ns + round(SHORT_LEASE_S * SECOND_NS)
        return answer

    async def totals(self) -> dict[str, Totals]:
        return await self._hub.totals()

    async def close(self) -> None:
        await self._hub.close()


def _works(
    render: SlotLimiter, truth: SlotsTruth, stop: threading.Event, random: Random, hub: HeardHub | None = None
) -> None:
    """Take slots for a moment each, until told to stop."""
    while not stop.is_set():
        with render.slot("ada", timeout=0.05) as slot:
            if slot:
                with truth.running(slot, hub):
                    stop.wait(random.random() * 0.02)


def _outlives_its_lease(render: SlotLimiter, relay: Relay, truth: SlotsTruth, hub: HeardHub) -> None:
    """Work goes on until its node was cut off for longer than a lease, and other nodes have begun something since."""
    with render.slot("ada", timeout=30.0) as slot, truth.running(slot, hub):
        assert slot
        relay.lose_requests = 1.0
        eventually(lambda: slot.lease_is_over, "the end of a lease")
        truth.ended = 0
        eventually(lambda: truth.ended, "work of other nodes, which go on")
        relay.heal()
        eventually(lambda: not slot.lease_is_over, "a new lease")


def _loses_its_data(server: RedisServer, limiters: Sequence[SlotLimiter]) -> None:
    """The server is gone for a moment, and keeps nothing; its nodes go on from their leases."""
    server.kill()
    server.start()
    _all_begin_something(limiters)


def _all_begin_something(limiters: Sequence[SlotLimiter]) -> None:
    """Wait until each node has."""
    before = [render.control.table.admitted for render in limiters]
    eventually(
        lambda: all(render.control.table.admitted > count for render, count in zip(limiters, before, strict=True)),
        "work on each node",
    )


@pytest.mark.slow
def test_trouble_lets_no_more_run_than_the_limit_and_what_ended_leases_left(
    own_redis: RedisServer, make_agent: MakeAgent
) -> None:
    """Three nodes are cut off and lose messages, and the server its data; in the end each can have all slots."""
    truth, stop = SlotsTruth(), threading.Event()
    with Relay(own_redis.port) as one, Relay(own_redis.port) as two, Relay(own_redis.port) as three:
        hubs = [HeardHub(relay, truth) for relay in (one, two, three)]
        limiters = [
            make_agent(hub, namespace=NAMESPACE, exchange_timeout=SHORT_LEASE_S / 4).concurrency(
                "render", LIMIT, lease=SHORT_LEASE_S, policy="strict"
            )
            for hub in hubs
        ]
        threads = [
            threading.Thread(target=_works, args=(render, truth, stop, Random(f"{number} {thread}"), hub))
            for number, (render, hub) in enumerate(zip(limiters, hubs, strict=True))
            for thread in range(4)
        ]
        for each in threads:
            each.start()
        try:
            for render, relay, hub in zip(limiters, (one, two, three), hubs, strict=True):
                _outlives_its_lease(render, relay, truth, hub)
                two.lose_replies = 0.3
                _loses_its_data(own_redis, limiters)
                two.heal()
        finally:
            stop.set()
            for each in threads:
                each.join()

        assert 1 < truth.most <= LIMIT
        assert [0, 0, 0] == [_in_use(render) for render in limiters]
        for render in limiters:
            eventually(partial(_takes_all, render), "all slots for each node")


def test_a_node_that_waits_gets_slots_of_nodes_that_are_busy(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """Each of three nodes has work for more slots than there are, and each of them goes on starting some."""
    truth, stop = SlotsTruth(), threading.Event()
    limiters = [
        make_agent(redis_server.url).concurrency("render", LIMIT, lease=30.0, policy="strict") for _ in range(3)
    ]
    threads = [
        threading.Thread(target=_works, args=(render, truth, stop, Random(f"{number} {thread}")))
        for number, render in enumerate(limiters)
        for thread in range(2 * LIMIT)
    ]
    for each in threads:
        each.start()
    try:
        for _ in range(3):
            _all_begin_something(limiters)
    finally:
        stop.set()
        for each in threads:
            each.join()

    assert 1 < truth.most <= LIMIT
