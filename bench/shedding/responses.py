"""Responses in virtual time: the adaptive limits to steps, ramps and noise, and the worker's controller to a step."""

# Theory of operation.
#
# The adaptive limits stand in front of a simulated pool of ten workers of 50 ms. Netflix documents how each of them
# behaves, and the claims about that are tests (`tests/shedding/adaptive/test_responses.py`); here they are drawn.
#
# The controller stands in front of an ideal queue, whose wait grows by the admitted load less one. Beside it stand
# gains that are not damped, and a rule that adds and multiplies, as AIMD does.

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from bench.shedding.loaded_service import LoadStream, Service
from reconverge.clock import SECOND_NS
from reconverge.shedding import AdaptiveConcurrency, Aimd, Gains, Gradient2, ShedRefusal, TrafficClasses, Vegas
from reconverge.shedding.adaptive.algorithms import Algorithm
from reconverge.shedding.layers import Arrival, Ticket
from reconverge.shedding.worker.controller import Controller
from reconverge.shedding.worker.signals import LAG_TARGET_S

Line = list[tuple[float, float]]
"""Moments in seconds, each with a value."""
SECONDS: Final = 90.0
STEP_S: Final = 0.05
ALGORITHMS: Final[Mapping[str, Callable[[], Algorithm]]] = {
    "Gradient2": Gradient2,
    "Vegas": Vegas,
    "AIMD, timeout 0.2 s": lambda: Aimd(timeout=0.2),
}
UNDAMPED: Final = Gains(kp=0.003, ki=0.2)
LOADS: Final = (1.5, 4.0, 12.0)


def constant(value: float) -> Callable[[float], float]:
    """Returns a function with the same value at every moment."""
    return lambda _: value


PATTERNS: Final[Mapping[str, tuple[Callable[[float], float], Callable[[float], float], float]]] = {
    "step: work takes twice as long from 30 s to 60 s": (constant(400.0), lambda t: 0.1 if 30 <= t < 60 else 0.05, 0.5),
    "ramp: from 50 to 400 requests a second": (lambda t: 50.0 + 350.0 * min(1.0, t / 70.0), constant(0.05), 0.5),
    "noise: work varies by 1.5 times its mean": (constant(400.0), constant(0.05), 1.5),
}
"""The rate of requests, the service time, and the spread of the service time, by the title of the picture."""


class _Gate:
    """Adaptive concurrency in front of a simulated pool; notes the limit."""

    def __init__(self, algorithm: Algorithm) -> None:
        classes = TrafficClasses(["all"], classify=lambda _: "all")
        self._layer = AdaptiveConcurrency(algorithm, classes=classes)
        self.limits: Line = []

    def enter(self, rank: int, now_ns: int) -> object | None:
        answer = self._layer.enter(Arrival("", rank, now_ns))
        return None if isinstance(answer, ShedRefusal) else answer

    def leave(self, token: object, now_ns: int) -> None:
        ticket: Ticket = token  # type: ignore[assignment]  # the token that `enter` returned
        ticket.finish(now_ns, "served")

    def measure(self, lag_ns: int, now_ns: int) -> None:  # noqa: ARG002  # a pool has no lag
        self.limits.append((now_ns / SECOND_NS, float(self._layer.limit)))

    def waits(self, connections: int) -> None:
        """Does nothing."""


def limits_of(algorithm: str, pattern: str) -> Line:
    """Returns the limit over time."""
    rate, service_s, spread = PATTERNS[pattern]
    gate = _Gate(ALGORITHMS[algorithm]())
    Service(gate, [LoadStream(0, rate)], service_s, Random(7), workers=10, loop=False, spread=spread).run(SECONDS)
    return gate.limits


def controlled(load: float, gains: Gains | None = None) -> Line:
    """Returns the rejected fraction over time, for a load that is `load` times the capacity."""
    controller, wait_s = Controller(gains), 0.0
    line: Line = []
    for step in range(round(40.0 / STEP_S)):
        rejected = controller.step(wait_s / LAG_TARGET_S, STEP_S)
        wait_s = max(0.0, wait_s + STEP_S * (load * (1.0 - rejected) - 1.0))
        line.append((step * STEP_S, rejected))
    return line


def additive(load: float) -> Line:
    """Returns the rejected fraction by AIMD, as in many shedders, which change the admitted fraction.

    Above the target, it shrinks by a tenth; below the target, it grows by a hundredth of the whole.
    """
    admitted, wait_s = 1.0, 0.0
    line: Line = []
    for step in range(round(40.0 / STEP_S)):
        admitted = max(0.02, 0.9 * admitted) if wait_s > LAG_TARGET_S else min(1.0, admitted + 0.01)
        wait_s = max(0.0, wait_s + STEP_S * (load * admitted - 1.0))
        line.append((step * STEP_S, 1.0 - admitted))
    return line
