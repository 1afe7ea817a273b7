"""Whole numbers that all processes count together, each under a key and for a time, with no limit to them.

A count is what this process has counted, and what the others had counted at the last exchange. A count never refuses a
request; an application that compares it with a limit is as exact as the last merged total.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from math import ceil
from typing import Any, Final, NamedTuple

from reconverge.clock import MILLISECOND_NS, SECOND_NS, Clock, SystemClock
from reconverge.integrations.dropin.shared_agent import agent_at, settings_at
from reconverge.integrations.web.failures import Unbreakable, goes_on
from reconverge.kernel import in_a_decision
from reconverge.limit.limit import FIRST_HIT, FIXED_WINDOW, QUOTA_MAX, WINDOW_MAX_NS, Limit
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.runtime.threads import Section

logger = logging.getLogger("reconverge")

COUNT_MAX: Final = QUOTA_MAX
COUNTS_MAX: Final = 100_000
"""So many keys are known at a time; the oldest is forgotten here first, and goes on counting when it is begun again."""
WINDOWS_MAX: Final = 100
"""So many different times to live are counted by; each is a limit of its own at the hub."""
WINDOW_MAX_S: Final = WINDOW_MAX_NS / SECOND_NS


class KnownCount(NamedTuple):
    """A count that this process has begun."""

    limiter: RateLimiter
    ends_ns: int
    """On the monotonic clock, as this process reckons."""
    new: bool = True
    """Whether nothing was counted before, as far as was known."""


class SharedCounts(Unbreakable):
    """The counts of one place, shared by all parts of this process that count there.

    Args:
        uri, options: see `shared_agent.settings_at`.
    """

    def __init__(self, uri: str, options: Mapping[str, Any]) -> None:
        super().__init__()
        hub, settings = settings_at(uri, options)
        self.agent = agent_at(hub, settings)
        self._clock: Clock = settings.get("clock") or SystemClock()
        self._limiters: dict[float, RateLimiter] = {}
        self._known: OrderedDict[str, KnownCount] = OrderedDict()
        self._beginning = Section()

    def has_room_for(self, lifetime_s: float | None) -> bool:
        """Whether counts of such a lifetime can be kept; there may be 100 different ones."""
        return _window_s(lifetime_s) in self._limiters or len(self._limiters) < WINDOWS_MAX

    @goes_on(answer=True)
    def begin(self, key: str, value: int, lifetime_s: float | None) -> bool:
        """Begin a count, unless it has begun: here, or elsewhere as far as known. Returns whether it is new."""
        self._end(key)
        known = self._new(lifetime_s)
        # Of several threads that begin the same count one does, and the others count on after it. A decision that
        # interrupts another (in a signal handler) does not wait for a thread, which may be waiting for that decision.
        new = self._beginning.run(partial(self._begin, key, value, known), waits=not in_a_decision())
        self._stay_small()
        return new

    def _begin(self, key: str, value: int, known: KnownCount) -> bool:
        """Begin a count; a signal handler or a finalizer may begin it, too, before this is done."""
        if key in self._known:
            return False
        limiter = known.limiter
        new = limiter.usage(key).total == 0
        decision = limiter.hit(key, value) if new and value > 0 else None
        charged = decision is not None and decision.allowed
        if value and not charged:
            new = False  # it was counted before, or cannot be counted in the middle of another decision
        known = known._replace(new=new)
        begun = self._known.setdefault(key, known)
        if begun is known:
            return new
        if decision is None or not charged:
            return False
        if begun.new or COUNT_MAX - decision.remaining > value:  # it was counted before this charge
            limiter.refund(key, value)
            return False
        return True  # the other one has found what was charged here, or could not charge anything

    @goes_on(None)
    def value(self, key: str) -> int | None:
        """The count; None if this process has not begun it, or its time is over."""
        known = self._end(key)
        return None if known is None else known.limiter.usage(key).total

    @goes_on(0)
    def change(self, key: str, difference: int) -> int | None:
        """Count up or down and return the count; None as for `value`.

        Counts down by what this process has counted at most; what other processes have counted stays.
        """
        known = self._end(key)
        if known is None:
            return None
        if difference < 0:
            known.limiter.refund(key, -difference)
            return known.limiter.usage(key).total
        return COUNT_MAX - known.limiter.hit(key, difference).remaining

    @goes_on(None)
    def put(self, key: str, value: int, lifetime_s: float | None) -> None:
        """Begin a count anew, for all processes; of two that do so at once, the last one has its way."""
        self.drop(key)
        known = self._new(lifetime_s)
        self._known[key] = known
        self._stay_small()
        known.limiter.reset(key)
        if value:
            known.limiter.allow(key, value)

    @goes_on(answer=False)
    def drop(self, key: str) -> bool:
        """Forget a count, here at once, elsewhere with the next exchange; returns whether it was known here."""
        known = self._known.pop(key, None)
        if known is not None:
            known.limiter.reset(key)
        return known is not None and self._clock.monotonic_ns() < known.ends_ns

    def drop_all(self) -> None:
        """Forget all that are known here."""
        for key in list(self._known):
            self.drop(key)

    def _end(self, key: str) -> KnownCount | None:
        """The count if it goes on; one whose time is over is forgotten."""
        known = self._known.get(key)
        if known is not None and self._clock.monotonic_ns() >= known.ends_ns:
            # Without a lock, for the sake of signal handlers: what was begun anew meanwhile is put back.
            dropped = self._known.pop(key, known) if self._known.get(key) is known else known
            if dropped is not known:
                self._known.setdefault(key, dropped)
            return None
        return known

    def _new(self, lifetime_s: float | None) -> KnownCount:
        window_s = _window_s(lifetime_s)
        limiter = self._limiters.get(window_s)
        if limiter is None:
            # A count has its time from when it begins, and not from when the clock strikes.
            limit = Limit(COUNT_MAX, window_s, algorithm=FIXED_WINDOW, align=FIRST_HIT)
            name = f"counted/{ceil(window_s * SECOND_NS / MILLISECOND_NS)}ms"
            limiter = self._limiters[window_s] = self.agent.limit(name, limit, policy="available")
        return KnownCount(limiter, self._clock.monotonic_ns() + ceil(window_s * SECOND_NS))

    def _stay_small(self) -> None:
        while len(self._known) > COUNTS_MAX:
            self._known.popitem(last=False)


def _window_s(lifetime_s: float | None) -> float:
    """The window to count in: whole milliseconds, and ten years for what is never over."""
    if lifetime_s is None:
        return WINDOW_MAX_S
    return min(ceil(lifetime_s * 1000) / 1000, WINDOW_MAX_S)
