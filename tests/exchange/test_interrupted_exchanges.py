"""Goal: an exception out of a signal handler in the middle of an exchange loses nothing and counts nothing twice.

A handler runs on the main thread, where a task of the application's event loop exchanges. So at one instruction after
another of an exchange an exception is raised: in what collects the reports, in what takes in the answer, and in all
that stands between them. The compiled kernel is interrupted wherever it calls Python.

Method: two nodes share a hub and limits of every kind. The exchanges of the first one are interrupted once. Both go on
exchanging, as a runner would have them, until all is said. Then the hub's books must agree with what the nodes have
charged, and the nodes ask for all that is left of each key: together they get as much as without an interruption.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

import pytest

import reconverge
from reconverge import RateLimiter
from reconverge.clock import NEVER_NS, SECOND_NS, ManualClock
from reconverge.errors import HubUnavailable
from reconverge.exchange import driver
from reconverge.exchange.driver import ExchangeDriver
from reconverge.hub.report import Answer, Batch, Totals, add_totals
from reconverge.kernel import COMPILED
from reconverge.limit import Limit
from reconverge.limit.quotas import quotas_of
from reconverge.limiter.control import LimitControl
from reconverge.policies import STRICT
from reconverge.simulation.explore.node import INTERVAL_NS, LEASE_NS, START_S, SmallNode
from reconverge_sync.memory import MemoryHub
from tests.support.opcodes import Ended, Interrupted, interrupted_at, raise_ended, raise_interrupted

QUOTA: Final = 12
WINDOW_S: Final = 60
EVERY: Final = int(os.environ.get("EVERY_INSTRUCTION", "4999" if COMPILED else "19997"))
"""One of so many instructions is interrupted, of which there are more without the compiled kernel."""
LIMITS: Final[dict[str, list[Limit]]] = {
    "fixed": [Limit(QUOTA, WINDOW_S, algorithm="fixed-window")],
    "sliding": [Limit(QUOTA, WINDOW_S)],
    "bucket": [Limit(QUOTA, WINDOW_S, algorithm="token-bucket")],
    "log": [Limit(QUOTA, WINDOW_S, algorithm="sliding-log")],
    "first-hit": [Limit(QUOTA, WINDOW_S, algorithm="fixed-window", align="first-hit")],
    "several": [Limit(QUOTA, WINDOW_S), Limit(10 * QUOTA, 60 * WINDOW_S, algorithm="sliding-log")],
}
UNREACHED: Final = 1 << 40
"""No exchange has so many instructions."""
SETTLED: Final = 25
"""After so many rounds all is said, whatever was retried."""
LESS_MAX: Final = 2
"""So much less may be left of a key: what a node held counts as used if its last words were interrupted."""
PLACES: Final = tuple(reconverge.__path__)
"""The hub is in this process, and is not interrupted: one of its own would not be."""


class HubAway(MemoryHub):
    """A hub that is unavailable for a while."""

    away = False

    async def exchange(self, batch: Batch) -> Answer:
        if self.away:
            raise HubUnavailable("refused", "No server listens.")
        return await super().exchange(batch)


class TaskNode(SmallNode):
    """A node that exchanges as a task does, with a limiter for every kind of limit."""

    def __init__(self, world: InterruptedFleet) -> None:
        super().__init__(world.clock, keys_max=world.keys_max)
        self._loop = world.loop
        self.exchanges = ExchangeDriver(
            [self.syncer], hub=world.hub, clock=world.clock, timeout_s=5.0, hub_name="fickle"
        )
        self.limiters = {
            name: RateLimiter(LimitControl(self.kernel.composites.declare(name, quotas_of(name, limits), STRICT)))
            for name, limits in LIMITS.items()
        }

    def ask(self, key: str, admitted: Counter[tuple[str, str]], times: int = 1) -> None:
        """Ask every limiter for a key so many times, and note what was admitted."""
        for name, limiter in self.limiters.items():
            admitted[key, name] += sum(limiter.allow(key) for _ in range(times))

    def exchange(self, rounds: int = 1) -> None:
        """Exchange if that is due, after an interval, so many times."""
        for _ in range(rounds):
            self.clock.advance_ns(INTERVAL_NS)
            self._loop.run_until_complete(self.exchanges.carry_out())

    def leave(self) -> None:
        """Say the last words; what comes afterwards has another task exchange."""
        try:
            self._loop.run_until_complete(self.exchanges.leave())
        finally:
            self.begin_again()

    def begin_again(self) -> None:
        """The task that drove the exchanges is gone; another one drives them from now on."""
        self._loop.run_until_complete(self.exchanges.close())
        self.exchanges.take_over()

    def faults(self) -> list[str]:
        """Lists the faults that an interruption has left behind, after all has been reported."""
        kernel, shard = self.kernel, self.kernel.shards[0]
        cells = [cell for table in kernel.tables.values() for cell in table.all_cells()]
        found = [f"{table.name} is locked" for table in kernel.tables.values() if table.lock.locked()]
        found += [f"{table.name} is not said" for table in kernel.tables.values() if table.tallies[0].changed]
        for cell in cells:
            name = f"{cell.key} of {cell.table.name}"
            if cell.dirty:
                found.append(f"{name} is not said, though {kernel.pending(0)} are to be (new: {cell.fresh})")
            elif cell.due_ns == NEVER_NS:
                found.append(f"{name} is never looked at")
        if kernel.keys != len(cells):
            found.append(f"{kernel.keys} keys are counted, and there are {len(cells)}")
        if kernel.room.leaving != sum(cell.leaving for cell in cells):
            found.append(f"{kernel.room.leaving} keys are said to leave")
        if shard.unconfirmed != sum(cell.unconfirmed for cell in cells):
            found.append(f"{shard.unconfirmed} cells are said to be unconfirmed")
        return found

    def books(self) -> dict[str, Totals]:
        """Returns this node's charges and refunds, by limit."""
        tallies = {name: table.tallies[0] for name, table in self.kernel.tables.items()}
        return {name: Totals(tally.charged, tally.refunded) for name, tally in tallies.items()}


class InterruptedFleet:
    """Two nodes and a hub."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, keys_max: int = 1000) -> None:
        self.loop = loop
        self.keys_max = keys_max
        self.clock = ManualClock(START_S)
        self.hub = HubAway(clock=self.clock)
        self.one, self.other = TaskNode(self), TaskNode(self)

    def align(self) -> None:
        """Let so much time pass that nothing counts any more, up to the same place in a window."""
        window_ns = 60 * WINDOW_S * SECOND_NS
        for _ in range(3):
            passed_ns = self.clock.wall_ns() % window_ns
            self.clock.advance_ns(window_ns - passed_ns + SECOND_NS)
            for node in (self.one, self.other):
                node.exchange(3)

    def use(self, known: str, new: str) -> Counter[tuple[str, str]]:
        """Uses a key that both nodes know and have used since, and one that only the first node knows.

        Returns what was admitted, by key and limit.
        """
        used: Counter[tuple[str, str]] = Counter()
        for node in (self.one, self.other):
            node.ask(known, used)
        for _ in range(4):
            self.one.exchange()
            self.other.exchange()
        for node in (self.one, self.other, self.one):
            node.ask(known, used)
        for name, limiter in self.one.limiters.items():
            limiter.refund(known)
            used[known, name] -= 1
        self.one.ask(new, used)
        return used

    def use_up(self, *keys: str) -> Counter[tuple[str, str]]:
        """Returns the grants of both nodes for each key and limit, which ask for all that there is as they exchange."""
        admitted: Counter[tuple[str, str]] = Counter()
        for _ in range(6):
            for node in (self.one, self.other):
                for key in keys:
                    node.ask(key, admitted, times=QUOTA)
                node.exchange()
        return admitted


class Acts(NamedTuple):
    """The acts of the first node while it is interrupted."""

    begins: Callable[[InterruptedFleet], object]
    goes_on: Callable[[InterruptedFleet], object]


def nothing(_: InterruptedFleet) -> None:
    """All is well."""


def away(world: InterruptedFleet) -> None:
    """The hub cannot be reached."""
    world.hub.away = True


def later(world: InterruptedFleet) -> None:
    """The lease is over."""
    world.clock.advance_ns(LEASE_NS + SECOND_NS)


def both_exchange(world: InterruptedFleet) -> None:
    """The other node comes first, so that the hub hears that the lease is over from it."""
    world.other.exchange()
    world.one.exchange(4)


STORIES: Final = {
    "as usual": Acts(nothing, lambda world: world.one.exchange(3)),
    "the hub is away": Acts(away, lambda world: world.one.exchange(1)),
    "the hub has lost its data": Acts(lambda world: world.hub.lose_data(), lambda world: world.one.exchange(4)),
    "the lease is over": Acts(later, lambda world: world.one.exchange(4)),
    "the lease is over at the hub": Acts(later, both_exchange),
    "the node leaves": Acts(nothing, lambda world: world.one.leave()),
}


def interrupted(world: InterruptedFleet, story: Acts, number: int, raises: Callable[[], object]) -> bool:
    """Whether there was an instruction of that number in the story, before which something was raised."""
    was = False

    def interrupt() -> None:
        nonlocal was
        was = True
        raises()

    story.begins(world)
    try:
        interrupted_at(number, partial(story.goes_on, world), interrupt, PLACES)
    except (Interrupted, Ended):
        world.one.begin_again()
    world.hub.away = False
    return was


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that does not wait after a bug."""
    monkeypatch.setattr(driver, "BUG_PAUSE_S", 0)
    with asyncio.Runner() as runner:
        yield runner.get_loop()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("raises", [raise_interrupted, raise_ended], ids=["an Exception", "no Exception"])
@pytest.mark.parametrize("story", STORIES)
def test_an_exception_anywhere_in_an_exchange_loses_nothing(
    story: str, raises: Callable[[], object], loop: asyncio.AbstractEventLoop
) -> None:
    """No lock stays held, the next exchange works, the hub's books are right, and each key is as free as it was."""
    world = InterruptedFleet(loop)
    number, calm, was = UNREACHED, Counter[tuple[str, str]](), True
    while was:
        told = f"at instruction {number}"
        world.align()
        used, begun_ns = world.use(f"known {number}", f"new {number}"), world.clock.monotonic_ns()
        was = interrupted(world, STORIES[story], number, raises) or number == UNREACHED
        world.one.exchange(rounds=SETTLED)
        world.other.exchange(rounds=SETTLED)
        assert [] == world.one.faults(), told
        left = world.use_up(f"known {number}", f"new {number}")
        drained = QUOTA * (world.clock.monotonic_ns() - begun_ns) / (WINDOW_S * SECOND_NS) + 1
        for (key, name), cost in left.items():
            assert used[key, name] + cost <= QUOTA + (drained if name == "bucket" else 0), f"{told}: {name}"
            calm.setdefault((key.split()[0], name), cost)
            assert calm[key.split()[0], name] - LESS_MAX <= cost, f"{told}: {name}"
        world.one.exchange(rounds=SETTLED)
        world.other.exchange(rounds=SETTLED)
        books: dict[str, Totals] = {}
        add_totals(books, world.one.books())
        add_totals(books, world.other.books())
        assert books == world.hub.sums(), told
        number = sum(map(ord, story)) % EVERY if number == UNREACHED else number + EVERY
    assert number > EVERY
