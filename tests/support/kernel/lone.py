"""A vocabulary for tests of decisions: a node without a hub, and a clock that the test moves."""

from __future__ import annotations

from fractions import Fraction

from reconverge import Agent, Decision, Limit, RateLimiter
from reconverge.clock import SECOND_NS, ManualClock

NOON_S = 1_515_153_600.0
"""2018-01-05 12:00:00 UTC, when a minute, an hour and half a day begin."""


class Lone:
    """A node without a hub, with one limit; it is asked about one key unless another is given."""

    def __init__(self, limit: Limit | str, *, algorithm: str | None = None, keys_max: int = 1000) -> None:
        self.clock = ManualClock(NOON_S)
        self.agent = Agent("memory://", clock=self.clock, max_keys=keys_max)
        self.limiter: RateLimiter = self.agent.limit("limit", limit, algorithm=algorithm)

    def admits(self, cost: int = 1, key: str = "ada") -> bool:
        return self.limiter.allow(key, cost)

    def admitted_of(self, attempts: int, cost: int = 1, key: str = "ada") -> int:
        return sum(self.limiter.allow(key, cost) for _ in range(attempts))

    def hits(self, cost: int = 1, key: str = "ada") -> Decision:
        """Asks once. Returns the decision with its grounds."""
        return self.limiter.hit(key, cost)

    def passes(self, seconds: float = 0.0, *, ns: int = 0) -> None:
        self.clock.advance_ns(round(seconds * SECOND_NS) + ns)

    def at(self, minutes: int, seconds: int) -> None:
        """Lets time pass until a number of minutes and seconds past noon."""
        moment_ns = (round(NOON_S) + 60 * minutes + seconds) * SECOND_NS
        self.clock.advance_ns(moment_ns - self.clock.wall_ns())


def in_ns(seconds: float) -> int:
    """Returns a number of seconds as whole nanoseconds; exact up to a hundred days."""
    return round(Fraction(seconds) * SECOND_NS)
