"""The worker layer of a stack: rejects the least important requests while this worker cannot keep up."""

# Theory of operation.
#
# A decision is one step of a counter and one comparison with the threshold of the class, which the controller sets
# twenty times a second. If the signal is the lag of an event loop, a thread runs these steps of the controller, and
# sleeps in between; if it is occupancy, the first request after a twentieth of a second runs the step, so a WSGI worker
# needs no further thread. Only one thread at a time runs a step, and no request waits for it.
#
# The thread has only a weak reference to the shedder, and ends with the shedder or with the loop that it measures. A
# forked child has no such thread; its first request starts one.

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Mapping
from typing import Final

from reconverge.clock import MILLISECOND_NS, SECOND_NS, Clock, SystemClock
from reconverge.errors import InvalidSetting
from reconverge.runtime.process import register
from reconverge.runtime.threads import WakeEvent, start_thread
from reconverge.shedding.classes import TrafficClasses
from reconverge.shedding.layers import Arrival, Outcome, ShedRefusal
from reconverge.shedding.worker.controller import Controller, Gains
from reconverge.shedding.worker.ladder import Dither, Ladder
from reconverge.shedding.worker.signals import Clockwork, LoopLag, Occupancy, Signal

STEP_NS: Final = 50 * MILLISECOND_NS
PROBE_S: Final = 0.025
"""The seconds between two measurements of the event loop; the controller makes a step after every second one."""
RETRY_AFTER_S: Final = 2.0
"""The seconds after which refused clients should come back. Shedding ends slowly, so an early return is in vain."""


class WorkerShedder:
    """Rejects requests with 503, of the least important classes first, while this worker cannot keep up.

    Args:
        signal: a measure of this worker's load. By default the lag of the event loop that serves the requests; for
            threads `Occupancy(workers=8)`.
        classes: the classes of traffic; by default the four of `TrafficClasses`.
        gains: how strongly the controller acts; see `worker/controller.py` before changing them.
        name: the name of this layer in decisions, metrics and switches.
        clock: for tests.

    Raises InvalidSetting for an unusable signal.
    """

    counts_by_key: Final = False

    def __init__(
        self,
        signal: Signal | None = None,
        *,
        classes: TrafficClasses | None = None,
        gains: Gains | None = None,
        name: str = "worker",
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.classes = TrafficClasses() if classes is None else classes
        self.signal: Signal = LoopLag() if signal is None else signal
        if not callable(getattr(self.signal, "pressure", None)):
            raise InvalidSetting("signal", signal, f"must be a {LoopLag.__name__} or an {Occupancy.__name__}")
        self._by_thread = isinstance(self.signal, LoopLag)
        self._controller = Controller(gains)
        count = len(self.classes.names)
        self._ladder = Ladder(count)
        self.dithers: Final = [Dither() for _ in range(count)]
        """For each class, in order: the object that chooses which of its requests are rejected."""
        self._asked = [0] * count
        self._now = (SystemClock() if clock is None else clock).monotonic_ns
        self._stepping = threading.Lock()  # fork: no thread waits for it, and the child makes another one
        self._stepped_ns = self._now()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = WakeEvent()
        register(self, sigterm=False)

    @property
    def needs_loop(self) -> bool:
        """Returns whether the shedder measures an event loop, without which it never rejects anything."""
        return self._by_thread

    @property
    def rejected(self) -> float:
        """Returns the fraction of all traffic that is rejected for now."""
        return self._controller.rejected

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._by_thread or loop is self._loop:
            return
        self._loop = loop
        self.signal.start_over()
        me: weakref.ref[WorkerShedder] = weakref.ref(self)
        now, wake = self._now, self._wake
        start_thread(lambda: _measure(me, loop, now, wake), name="reconverge-loop-lag")

    def serves(self, port: int) -> None:
        """Adds a TCP port through which requests come in: connections that wait there count as waiting for the loop."""
        if isinstance(self.signal, LoopLag):
            self.signal.backlog.add(port)

    def enter(self, arrival: Arrival) -> Busy | ShedRefusal | None:
        if self.dithers[arrival.rank].chosen():
            return self.refusal(arrival.now_ns)
        return None if self._by_thread else self.begin(arrival.now_ns)

    def refusal(self, now_ns: int) -> ShedRefusal:
        self._step_if_due(now_ns)
        reason = "This worker is overloaded, and rejects requests of less important classes first."
        return ShedRefusal(self.name, 503, RETRY_AFTER_S, reason)

    def begin(self, now_ns: int) -> Busy | None:
        """Begins an admitted request. Returns its record; None if the measure of load does not count requests.

        Also makes a step of the controller, if one is due and no thread makes the steps.
        """
        self._step_if_due(now_ns)
        if not self.signal.counts:
            return None
        self.signal.began(now_ns)
        return Busy(self.signal)

    def enter_anyway(self, arrival: Arrival) -> Busy | None:
        if not self.signal.counts:
            return None
        self.signal.began(arrival.now_ns)
        return Busy(self.signal)

    def readings(self) -> Mapping[str, float]:
        return {"pressure": self._controller.pressure, "rejected_fraction": self._controller.rejected}

    def fractions(self) -> dict[str, float]:
        """Returns the fraction of each class's requests that is rejected for now, by the name of the class."""
        return dict(zip(self.classes.names, self._ladder.fractions, strict=True))

    def _step_if_due(self, now_ns: int) -> None:
        if not self._by_thread and now_ns - self._stepped_ns >= STEP_NS:
            self.step(now_ns)

    def step(self, now_ns: int) -> None:
        """Measures the load and sets each class's fraction to reject; does nothing while another thread does this."""
        if not self._stepping.acquire(blocking=False):
            return
        try:
            elapsed_s = (now_ns - self._stepped_ns) / SECOND_NS
            if elapsed_s <= 0:
                return
            self._stepped_ns = now_ns
            asked = [dither.asked for dither in self.dithers]
            arrived = [now - then for now, then in zip(asked, self._asked, strict=True)]
            self._ladder.arrived(arrived, elapsed_s)
            self._asked = asked
            if isinstance(self.signal, LoopLag):
                self.signal.arrived(sum(arrived), elapsed_s)
            pressure = self.signal.pressure(now_ns)
            rejected = self._controller.step(pressure, elapsed_s, rejected_max=self._ladder.ceiling())
            self._ladder.deal(rejected, elapsed_s, pressed=self._controller.pressure > 1.0)
            for dither, fraction in zip(self.dithers, self._ladder.fractions, strict=True):
                dither.set(fraction)
        finally:
            self._stepping.release()

    def measured_loop(self, loop: asyncio.AbstractEventLoop, now_ns: int) -> bool:
        """Measures `loop`, and makes a step of the controller if one is due. Returns False when measuring must end."""
        signal = self.signal
        assert isinstance(signal, LoopLag)
        if self._loop is not loop:
            return False
        if not signal.probe(loop, now_ns, self._now):
            self._loop = None
            return False
        if now_ns - self._stepped_ns >= STEP_NS:
            self.step(now_ns)
        return True

    def start_over_after_fork(self) -> None:
        """Starts anew in a forked child, where no thread measures and no request runs."""
        self._stepping = threading.Lock()  # fork: no thread waits for it, and the child makes another one
        self._wake = WakeEvent()
        self._loop = None
        self.signal.start_over()

    def stop_for_good(self, timeout_s: float) -> None:  # noqa: ARG002  # nothing is waited for
        """Ends the measuring thread, because the process ends."""
        self.close()

    def close(self) -> None:
        """Stops measuring. The next request of an event loop starts it again."""
        self._loop = None
        self._wake.wake()

    def __repr__(self) -> str:
        return f"WorkerShedder({self.name!r}, rejected={self.rejected:.2f})"


class Busy:
    """The record of a request that counts as keeping a worker busy until it ends."""

    __slots__ = ("_aside", "_signal")

    def __init__(self, signal: Signal) -> None:
        self._signal = [signal]
        self._aside: list[Signal] = []

    def finish(self, now_ns: int, outcome: Outcome) -> None:  # noqa: ARG002  # it was busy, however it ended
        try:
            signal = self._signal.pop()  # one step: of several callers, one gets it
        except IndexError:
            self._aside.clear()
            return
        signal.ended(now_ns)

    def step_aside(self, now_ns: int, *, begun: bool) -> None:  # noqa: ARG002  # it keeps no worker busy
        if self._signal:
            signal = self._signal.pop()
            self._aside.append(signal)
            signal.ended(now_ns)

    def go_on(self, now_ns: int, *, anyway: bool) -> None:  # noqa: ARG002  # it began to work when it was admitted
        if self._aside:
            signal = self._aside.pop()
            self._signal.append(signal)
            signal.began(now_ns)

    def give_back(self, now_ns: int) -> None:
        self.finish(now_ns, "ignored")


def _measure(
    shedder: weakref.ref[WorkerShedder], loop: asyncio.AbstractEventLoop, now: Clockwork, wake: WakeEvent
) -> None:
    """Measures the event loop forty times a second, in its own thread, until the loop or the shedder is gone."""
    while True:
        mine = shedder()
        if mine is None or not mine.measured_loop(loop, now()):
            return
        del mine
        wake.wait(PROBE_S)
