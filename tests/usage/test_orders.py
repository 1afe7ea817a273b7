"""Goal: a hub has what was charged, and at no moment more. Method: all short orders of what may happen."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Final, cast

import pytest

from reconverge.errors import HubUnavailable
from reconverge.hub.usage import MONTH, Recorded, UsageBatch
from reconverge.runtime.threads import Latch, WakeEvent, start_thread
from reconverge.usage import Meter, UsageReporter, period_at, totals
from reconverge.usage import reporter as reporter_module
from reconverge_sync.memory import MemoryHub, MemoryUsage
from tests.support.effort import tried
from tests.support.metered import NOVEMBER, clock_in_november

EVENTS: Final = (
    "charge",
    "tell",  # a report begins
    "reach",  # its message reaches the hub
    "answer",  # the hub's answer reaches the sender
    "lose",  # there will be no answer
    "late",  # what was lost reaches the hub after all
    "stop",
    "start",
    "fork",  # the process goes on as its child, and its parent is killed
    "restart",  # it ends in an orderly way, and another begins
)
DEPTH: Final = tried(3, long=4)
PATIENCE_S: Final = 30.0


class Killed(BaseException):
    """Raised in a thread of a process that is no more."""


def start_mortal(run: Callable[[], None], *, name: str) -> None:
    """Starts a thread that may be killed."""

    def until_killed() -> None:
        with contextlib.suppress(Killed):
            run()

    start_thread(until_killed, name=name)


class Message:
    """A batch on its way; its sender waits."""

    def __init__(self, batch: UsageBatch) -> None:
        self.batch = batch
        self.answer: Recorded | None = None
        self.heard: Future[Recorded] = Future()


class ThreadStage:
    """The threads of one process: they wait for an answer, or they rest, or they have ended."""

    def __init__(self) -> None:
        self.moved = threading.Condition()
        self.clear()

    def clear(self) -> None:
        """Forget the process before."""
        self.wakers: list[Waker] = []
        self.ends: list[End] = []
        self.waiting: list[Message] = []

    def note(self) -> None:
        """A thread has come to where it stays."""
        with self.moved:
            self.moved.notify_all()

    def settle(self) -> None:
        """Wait until nothing moves by itself."""

        def still() -> bool:
            return bool(self.waiting) or self.ends[-1].open or self.wakers[-1].rests

        with self.moved:
            assert self.moved.wait_for(still, PATIENCE_S)

    def kill(self) -> list[Message]:
        """End all threads at once, without a word; returns what they wait for."""
        waiting, self.waiting = self.waiting, []
        for message in waiting:
            message.heard.set_exception(Killed())
        for waker in self.wakers:
            waker.dead = True
            WakeEvent.wake(waker)
        return waiting


class Waker(WakeEvent):
    """Notes whether its thread rests."""

    stage: ThreadStage

    def __init__(self) -> None:
        super().__init__()
        self.rests = self.dead = False
        self.stage.wakers.append(self)

    def wake(self) -> None:
        self.rests = False
        super().wake()

    def wait(self, timeout_s: float) -> bool:
        self.rests = not self.woken
        self.stage.note()
        woken = super().wait(timeout_s)
        if self.dead:
            raise Killed
        return woken


class End(Latch):
    """Notes that its thread has ended."""

    stage: ThreadStage

    def __init__(self) -> None:
        super().__init__()
        self.stage.ends.append(self)

    def set(self) -> None:
        super().set()
        self.stage.note()


class SlowLedger:
    """A ledger whose messages stay on their way until the test has them go on."""

    def __init__(self, ledger: MemoryUsage, stage: ThreadStage) -> None:
        self._ledger = ledger
        self._stage = stage

    async def record(self, batch: UsageBatch) -> Recorded:
        """Blocks the thread, which has nothing else to do."""
        message = Message(batch)
        with self._stage.moved:
            self._stage.waiting.append(message)
            self._stage.moved.notify_all()
        return message.heard.result(PATIENCE_S)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


class SlowUsageHub(MemoryHub):
    """A hub with such a ledger, and what it has in truth."""

    stage: ThreadStage

    @property
    def usage(self) -> MemoryUsage:
        found: Any = SlowLedger(self.ledger, self.stage)
        return cast("MemoryUsage", found)

    @property
    def ledger(self) -> MemoryUsage:
        """Without the way there."""
        return super().usage


class ReporterProcess:
    """Runs a reporter, and knows what was charged by it, by the processes before, and how they have ended."""

    def __init__(self, stage: ThreadStage) -> None:
        stage.clear()
        self.stage = stage
        self.clock = clock_in_november()
        self.hub = SlowUsageHub(clock=self.clock)
        self.hub.stage = stage
        self.charged: Counter[int] = Counter()
        self.lost: list[UsageBatch] = []
        self.ended: list[int] = []
        """Processes that have ended in an orderly way."""
        self.number = 0
        self.begin()

    def begin(self) -> None:
        """Another process begins."""
        self.number += 1
        self.meter = Meter(self.clock)
        self.reporter = UsageReporter(self.meter, self.hub, interval=3600, timeout=PATIENCE_S, sigterm=False)
        self.reporter.start()
        self.stage.settle()

    def do(self, event: str) -> None:
        """Lets an event happen; the hub never has more than was charged."""
        getattr(self, event)()
        self.stage.settle()
        for number, cost in self.counted().items():
            assert cost <= self.charged[number]

    def counted(self) -> Counter[int]:
        found = asyncio.run(totals(self.hub.ledger, period_at(MONTH, NOVEMBER)))
        return Counter({int(key.identity): counts.cost for key, counts in found.items()})

    def can(self, event: str) -> bool:
        """Whether it can happen now."""
        waiting, running = self.stage.waiting, self.reporter.running
        possible = {
            "tell": running and not waiting,
            "reach": bool(waiting) and waiting[0].answer is None,
            "answer": bool(waiting) and waiting[0].answer is not None,
            "lose": bool(waiting),
            "late": bool(self.lost),
            "stop": running,
            "start": not running,
        }
        return possible.get(event, True)

    def charge(self) -> None:
        self.meter.add(str(self.number), "api")
        self.charged[self.number] += 1

    def tell(self) -> None:
        """It does so when its interval is over."""
        self.stage.wakers[-1].wake()

    def reach(self) -> None:
        """It is merged."""
        message = self.stage.waiting[0]
        message.answer = asyncio.run(self.hub.ledger.record(message.batch))

    def answer(self) -> None:
        """The thread goes on."""
        message = self.stage.waiting.pop(0)
        assert message.answer is not None
        message.heard.set_result(message.answer)

    def lose(self) -> None:
        """The thread goes on without."""
        message = self.stage.waiting.pop(0)
        if message.answer is None:
            self.lost.append(message.batch)
        message.heard.set_exception(HubUnavailable("timeout", "lost by the test"))

    def late(self) -> None:
        """All of it."""
        for batch in self.lost:
            asyncio.run(self.hub.ledger.record(batch))
        self.lost.clear()

    def stop(self) -> None:
        """The application does not wait for the thread."""
        self.reporter.stop(0)

    def start(self) -> None:
        """The application has another thought."""
        self.reporter.start()

    def fork(self) -> None:
        """The child has no threads; what its parent had sent may reach the hub late."""
        self.lost += [each.batch for each in self.stage.kill() if each.answer is None]
        self.stage.wakers.append(Waker())
        self.number += 1
        self.reporter.start_over_after_fork()

    def restart(self) -> None:
        """No message is lost meanwhile."""
        self.end()
        self.begin()

    def end(self) -> None:
        """All faults are over: it tells what is left, and ends."""
        self.reporter.start()
        self.stage.settle()
        self.stage.wakers[-1].wake()
        self.arrive()
        self.reporter.stop(0)
        self.arrive()
        self.ended.append(self.number)

    def arrive(self) -> None:
        """Every message gets its answer."""
        self.stage.settle()
        while self.stage.waiting:
            if self.stage.waiting[0].answer is None:
                self.reach()
            self.answer()
            self.stage.settle()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadStage]:
    """On which one process after the other runs."""
    stage = ThreadStage()
    for kind in (Waker, End):
        monkeypatch.setattr(kind, "stage", stage, raising=False)
    monkeypatch.setattr(reporter_module, "WakeEvent", Waker)
    monkeypatch.setattr(reporter_module, "Latch", End)
    monkeypatch.setattr(reporter_module, "start_thread", start_mortal)
    yield stage
    stage.kill()


def tell_all(stage: ThreadStage, order: tuple[str, ...], check: Callable[[ReporterProcess], None]) -> list[str]:
    """Lets all of it happen, and then the end; returns the events that could have been next."""
    process = ReporterProcess(stage)
    try:
        for event in order:
            process.do(event)
        then = [event for event in EVENTS if process.can(event)]
        process.late()
        process.end()
        process.late()
        check(process)
    finally:
        stage.kill()
    return then


@pytest.mark.parametrize("first", [("charge", "tell"), ("charge", "stop"), ()], ids=" ".join)
def test_in_any_order_a_hub_has_what_was_charged(first: tuple[str, ...], stage: ThreadStage) -> None:
    """In the end, by each process that ended in an orderly way; by one that was killed, and at any moment, no more."""
    orders = [first]
    tries = 0

    def check(process: ReporterProcess) -> None:
        counted = process.counted()
        assert {number: process.charged[number] for number in process.ended} == {
            number: counted[number] for number in process.ended
        }
        assert counted <= process.charged

    while orders:
        order = orders.pop()
        try:
            then = tell_all(stage, order, check)
        except AssertionError as error:
            error.add_note(f"after {order}")
            raise
        tries += 1
        if len(order) < len(first) + DEPTH:
            orders += [(*order, event) for event in then]

    assert tries > DEPTH**4
