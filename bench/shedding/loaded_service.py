"""A service under load, in virtual time: an event loop or a pool of workers, whose capacity changes."""

# Theory of operation.
#
# Two ways in which a Python service runs out of capacity behave differently in front of a shedder, so there are two.
#
# An *event loop* whose handlers compute has one queue, the loop's own, and a request is decided about when the loop
# comes to it, behind all that came before. A rejected request costs the loop a little, too. What is measured is the
# wait of a probe in that queue; while a probe is under way, its age is a reading, as in `shedding/worker/signals.py`.
#
# A *pool* (database connections, threads, a service downstream) has a queue of its own behind the decision: a request
# is decided about at once, and waits after that.
#
# Arrivals and times of service are drawn from a `random.Random` that is handed in, so a run repeats.

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Final, Protocol

from reconverge.clock import MILLISECOND_NS, SECOND_NS

REJECTION_NS: Final = 200_000
"""The time that the loop needs to reject a request."""
QUEUE_MAX: Final = 100_000
"""The longest queue: further requests are lost, as in the backlog of a socket."""


@dataclass(frozen=True, slots=True)
class LoadStream:
    """A stream of requests of one class; `rate` returns the requests per second at a moment in seconds.

    They come evenly spaced, or at random (a Poisson process), as from a large number of clients.
    """

    rank: int
    rate: Callable[[float], float]
    even: bool = False


@dataclass(slots=True)
class ServedRequest:
    """One request, when it arrived, and how it ended."""

    rank: int
    arrived_ns: int
    ended_ns: int = -1
    rejected: bool = False

    @property
    def latency_s(self) -> float:
        """Returns how long the request took, in seconds; infinite if it never ended."""
        return (self.ended_ns - self.arrived_ns) / SECOND_NS if self.ended_ns >= 0 else float("inf")


class SimulatedGate(Protocol):
    """The interface of a load shedder in front of the simulated service."""

    def enter(self, rank: int, now_ns: int) -> object | None:
        """Decides about a request of a class. Returns a token if it is admitted, or None if it is rejected."""
        ...

    def leave(self, token: object, now_ns: int) -> None:
        """Called when an admitted request has ended."""
        ...

    def measure(self, lag_ns: int, now_ns: int) -> None:
        """Called once every `TICK_NS` with the event loop's lag; the lag is always 0 for a pool of workers."""
        ...

    def waits(self, connections: int) -> None:
        """Called with the backlog's length before each `measure`, if a loop accepts one connection in a round."""
        ...


class NoGate:
    """A load shedder that admits every request."""

    def enter(self, rank: int, now_ns: int) -> object | None:  # noqa: ARG002  # the protocol has this argument
        return self

    def leave(self, token: object, now_ns: int) -> None:
        """Does nothing."""

    def measure(self, lag_ns: int, now_ns: int) -> None:
        """Does nothing."""

    def waits(self, connections: int) -> None:
        """Does nothing."""


TICK_NS: Final = 50 * MILLISECOND_NS
_PROBE: Final = -1
"""A mark in the loop's queue for a probe."""


@dataclass
class Service:
    """One simulated process and its traffic.

    Args:
        gate: the load shedder that decides about each request.
        streams: the traffic.
        service_s: returns how long one request keeps a worker busy on average, at a moment in seconds.
        workers: the number of workers; 1 with `loop`.
        loop: whether requests are decided about behind the queue, as in an event loop, or before it.
        accepts_one: whether the loop accepts one connection in a round, so that the queue is the kernel's, and a probe
            waits for the present request alone.
        spread: the standard deviation of the service time, divided by its mean (a gamma distribution); 0 is constant.
    """

    gate: SimulatedGate
    streams: Sequence[LoadStream]
    service_s: Callable[[float], float]
    random: Random
    workers: int = 1
    loop: bool = True
    accepts_one: bool = False
    spread: float = 0.5
    requests: list[ServedRequest] = field(default_factory=list)
    lags: list[tuple[float, float]] = field(default_factory=list)
    """Readings of the loop's lag: moment and lag, both in seconds."""

    def run(self, seconds: float) -> list[ServedRequest]:
        """Simulates `seconds` of traffic. Returns all requests, in the order of their arrival."""
        self._order = count()
        self._events: list[tuple[int, int, Callable[[int], None]]] = []
        self._queue: deque[tuple[int, ServedRequest | None, object]] = deque()
        self._busy = 0
        self._probe_sent_ns = _PROBE
        self._lag_ns = self._free_at_ns = 0
        end_ns = round(seconds * SECOND_NS)
        for stream in self.streams:
            self._next_arrival(stream, 0)
        self._at(TICK_NS, self._tick)
        while self._events and self._events[0][0] <= end_ns:
            now_ns, _, event = heapq.heappop(self._events)
            event(now_ns)
        return self.requests

    def _at(self, moment_ns: int, event: Callable[[int], None]) -> None:
        heapq.heappush(self._events, (moment_ns, next(self._order), event))

    def _next_arrival(self, stream: LoadStream, now_ns: int) -> None:
        rate = stream.rate(now_ns / SECOND_NS)
        if rate <= 0:
            self._at(now_ns + TICK_NS, lambda later_ns: self._next_arrival(stream, later_ns))
            return
        pause_s = 1.0 / rate if stream.even else self.random.expovariate(rate)
        moment_ns = now_ns + max(1, round(pause_s * SECOND_NS))
        self._at(moment_ns, lambda arrived_ns: self._arrive(stream, arrived_ns))

    def _arrive(self, stream: LoadStream, now_ns: int) -> None:
        request = ServedRequest(stream.rank, now_ns)
        self.requests.append(request)
        self._next_arrival(stream, now_ns)
        if len(self._queue) >= QUEUE_MAX:
            return
        if self.loop:
            self._queue.append((now_ns, request, None))
        else:
            token = self.gate.enter(request.rank, now_ns)
            if token is None:
                request.rejected = True
                request.ended_ns = now_ns
                return
            self._queue.append((now_ns, request, token))
        self._work(now_ns)

    def _tick(self, now_ns: int) -> None:
        self._at(now_ns + TICK_NS, self._tick)
        lag_ns = 0
        if self.accepts_one:
            lag_ns = max(0, self._free_at_ns - now_ns)
            self.gate.waits(len(self._queue))
        elif self.loop:
            if self._probe_sent_ns == _PROBE:
                self._probe_sent_ns = now_ns
                self._queue.append((now_ns, None, None))
                self._work(now_ns)
                lag_ns = self._lag_ns
            else:
                lag_ns = max(self._lag_ns, now_ns - self._probe_sent_ns)
        self.lags.append((now_ns / SECOND_NS, lag_ns / SECOND_NS))
        self.gate.measure(lag_ns, now_ns)

    def _work(self, now_ns: int) -> None:
        while self._queue and self._busy < self.workers:
            queued_ns, request, token = self._queue.popleft()
            if request is None:
                self._lag_ns = now_ns - queued_ns
                self._probe_sent_ns = _PROBE
                continue
            self._busy += 1
            if self.loop:
                token = self.gate.enter(request.rank, now_ns)
                if token is None:
                    request.rejected = True
                    self._end(request, None, now_ns + REJECTION_NS)
                    continue
            self._end(request, token, now_ns + self._service_ns(now_ns))

    def _service_ns(self, now_ns: int) -> int:
        mean_s = self.service_s(now_ns / SECOND_NS)
        if self.spread > 0:
            shape = 1.0 / self.spread**2
            mean_s = self.random.gammavariate(shape, mean_s / shape)
        return max(1, round(mean_s * SECOND_NS))

    def _end(self, request: ServedRequest, token: object, moment_ns: int) -> None:
        def ended(now_ns: int) -> None:
            self._busy -= 1
            request.ended_ns = now_ns
            if token is not None:
                self.gate.leave(token, now_ns)
            self._work(now_ns)

        self._free_at_ns = moment_ns
        self._at(moment_ns, ended)


def goodput(
    requests: Sequence[ServedRequest], rank: int, timeout_s: float, since_s: float = 0.0, until_s: float = 1e9
) -> float:
    """Returns the fraction of a class that was admitted and answered within `timeout_s`; 1 if no request arrived."""
    asked = [each for each in requests if each.rank == rank and since_s <= each.arrived_ns / SECOND_NS < until_s]
    good = [each for each in asked if not each.rejected and each.latency_s <= timeout_s]
    return len(good) / len(asked) if asked else 1.0


def rejected_by_second(requests: Sequence[ServedRequest], width_s: float = 1.0) -> Iterator[tuple[float, float]]:
    """Yields the beginning of each `width_s` seconds, and the rejected fraction of the requests in them."""
    last = max((each.arrived_ns for each in requests), default=-1)
    width_ns = round(width_s * SECOND_NS)
    arrived = [0] * (last // width_ns + 1)
    gone = [0] * len(arrived)
    for each in requests:
        arrived[each.arrived_ns // width_ns] += 1
        gone[each.arrived_ns // width_ns] += each.rejected
    for number, (all_of_it, lost) in enumerate(zip(arrived, gone, strict=True)):
        yield number * width_s, lost / all_of_it if all_of_it else 0.0
