"""A vocabulary for tests of shedding: gates in front of a simulated service, and figures of their traces."""

from __future__ import annotations

from collections.abc import Sequence

from bench.shedding.loaded_service import ServedRequest
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.shedding import AdaptiveConcurrency, LoopLag, ShedRefusal, TrafficClasses, WorkerShedder
from reconverge.shedding.adaptive.algorithms import Algorithm
from reconverge.shedding.adaptive.sample import Sample
from reconverge.shedding.layers import Arrival, Ticket

MILLISECONDS = 1_000_000
TWO = TrafficClasses(["user", "prefetch"], classify=str)
USER, PREFETCH = 0, 1


def window(round_trip_ms: float, in_flight: int, *, dropped: bool = False, full_at: int = 0) -> Sample:
    """Returns a window of requests with a duration, a number of concurrent ones, and whether any was refused."""
    return Sample(round(round_trip_ms * MILLISECONDS), in_flight, dropped, full_at)


class AdaptiveGate:
    """Adaptive concurrency in front of a pool."""

    def __init__(self, algorithm: Algorithm, classes: TrafficClasses = TWO) -> None:
        self.layer = AdaptiveConcurrency(algorithm, classes=classes)
        self.limits: list[tuple[float, int]] = []

    def enter(self, rank: int, now_ns: int) -> object | None:
        answer = self.layer.enter(Arrival("ada", rank, now_ns))
        return None if isinstance(answer, ShedRefusal) else answer

    def leave(self, token: object, now_ns: int) -> None:
        ticket: Ticket = token  # type: ignore[assignment]  # as entered
        ticket.finish(now_ns, "served")

    def measure(self, lag_ns: int, now_ns: int) -> None:
        self.limits.append((now_ns / SECOND_NS, self.layer.limit))

    def waits(self, connections: int) -> None:
        """Does nothing."""


class WorkerGate:
    """The worker shedder in front of an event loop."""

    def __init__(self, classes: TrafficClasses = TWO) -> None:
        self.signal = LoopLag()
        self.layer = WorkerShedder(self.signal, classes=classes, clock=ManualClock())
        self.rejected: list[tuple[float, float]] = []

    def enter(self, rank: int, now_ns: int) -> object | None:
        return None if isinstance(self.layer.enter(Arrival("ada", rank, now_ns)), ShedRefusal) else self

    def leave(self, token: object, now_ns: int) -> None:
        """Does nothing."""

    def measure(self, lag_ns: int, now_ns: int) -> None:
        self.signal.heard(lag_ns)
        self.layer.step(now_ns)
        self.rejected.append((now_ns / SECOND_NS, self.layer.rejected))

    def waits(self, connections: int) -> None:
        self.signal.waits(connections)


def mean_between(points: Sequence[tuple[float, float]], since: float, until: float) -> float:
    """Returns the mean of the values that were noted in these seconds."""
    chosen = [value for moment, value in points if since <= moment < until]
    return sum(chosen) / len(chosen)


def served_per_second(requests: Sequence[ServedRequest], since: float, until: float) -> float:
    """Returns the served requests per second, of those that came in these seconds."""
    return len(_served(requests, since, until)) / (until - since)


def mean_latency_s(requests: Sequence[ServedRequest], since: float, until: float) -> float:
    """Returns the mean duration of the requests that came in these seconds."""
    served = _served(requests, since, until)
    return sum(each.latency_s for each in served) / len(served)


def _served(requests: Sequence[ServedRequest], since: float, until: float) -> list[ServedRequest]:
    return [
        each
        for each in requests
        if since <= each.arrived_ns / SECOND_NS < until and not each.rejected and each.ended_ns >= 0
    ]
