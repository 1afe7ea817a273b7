"""Counts that all processes share, each with a key and a lifetime, without a limit.

A count is the sum of this process's own part and the parts that other processes had reported at the last exchange. It
never refuses a request. If an application compares it with a limit, the result misses what other processes have counted
since then.
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
"""The most counts that this process remembers; beyond that, it forgets the oldest. If a forgotten count is begun again,
its earlier value is still part of it."""
WINDOWS_MAX: Final = 100
"""The most different lifetimes of counts; each lifetime is one limit at the hub."""
WINDOW_MAX_S: Final = WINDOW_MAX_NS / SECOND_NS


class KnownCount(NamedTuple):
    """A count that this process has begun."""

    limiter: RateLimiter
    ends_ns: int
    """The monotonic time, in nanoseconds, at which the count expires according to this process."""
    new: bool = True
    """Whether the key had no count before, as far as this process knew from its own counts and the last exchange."""


class SharedCounts(Unbreakable):
    """The counts at one hub and in one namespace. Objects of one process with the same URI and options share counts.

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
        """Returns whether a count with this lifetime can be stored: at most 100 different lifetimes are possible."""
        return _window_s(lifetime_s) in self._limiters or len(self._limiters) < WINDOWS_MAX

    @goes_on(answer=True)
    def begin(self, key: str, value: int, lifetime_s: float | None) -> bool:
        """Begins a count at `value`, and returns True; returns False if the key has a count already.

        The key has a count if this process has begun one, or another process had one at the last exchange.
        """
        self._end(key)
        known = self._new(lifetime_s)
        # If several threads begin the same count, one begins it, and the others find it. A decision that interrupts
        # another (in a signal handler) does not wait for a thread, because that thread may wait for the interrupted
        # decision.
        new = self._beginning.run(partial(self._begin, key, value, known), waits=not in_a_decision())
        self._stay_small()
        return new

    def _begin(self, key: str, value: int, known: KnownCount) -> bool:
        """Begins a count, with `known` as this process's record of it. Returns whether the key had no count before.

        A signal handler or a finalizer may begin the same count meanwhile; then its record stays.
        """
        if key in self._known:
            return False
        limiter = known.limiter
        new = limiter.usage(key).total == 0
        decision = limiter.hit(key, value) if new and value > 0 else None
        charged = decision is not None and decision.allowed
        if value and not charged:
            new = False  # it existed before, or this call interrupts another decision and cannot charge
        known = known._replace(new=new)
        begun = self._known.setdefault(key, known)
        if begun is known:
            return new
        if decision is None or not charged:
            return False
        if begun.new or COUNT_MAX - decision.remaining > value:  # it was counted before this charge
            limiter.control.take_back(key, value, None)
            return False
        return True  # the other call has found this charge, or could not charge

    @goes_on(None)
    def value(self, key: str) -> int | None:
        """Returns the count under `key`; None if this process has not begun it, or if it has expired."""
        known = self._end(key)
        return None if known is None else known.limiter.usage(key).total

    @goes_on(0)
    def change(self, key: str, difference: int) -> int | None:
        """Adds `difference` to a count and returns the count; None if this process has not begun it, or it has expired.

        A negative `difference` subtracts no more than this process has counted; the parts of other processes stay.
        """
        known = self._end(key)
        if known is None:
            return None
        if difference < 0:
            known.limiter.control.take_back(key, -difference, None)
            return known.limiter.usage(key).total
        return COUNT_MAX - known.limiter.hit(key, difference).remaining

    @goes_on(None)
    def put(self, key: str, value: int, lifetime_s: float | None) -> None:
        """Restarts a count at `value`, for all processes. If two processes do so at once, the later value stays."""
        self.drop(key)
        known = self._new(lifetime_s)
        self._known[key] = known
        self._stay_small()
        known.limiter.control.reset(key)
        if value:
            known.limiter.allow(key, value)

    @goes_on(answer=False)
    def drop(self, key: str) -> bool:
        """Drops a count, here at once and elsewhere with the next exchange. Returns whether this process had it."""
        known = self._known.pop(key, None)
        if known is not None:
            known.limiter.control.reset(key)
        return known is not None and self._clock.monotonic_ns() < known.ends_ns

    def drop_all(self) -> None:
        """Drops all counts that this process has begun, as `drop` does."""
        for key in list(self._known):
            self.drop(key)

    def _end(self, key: str) -> KnownCount | None:
        """Returns this process's entry for a count, or None without one. An entry that has expired is dropped."""
        known = self._known.get(key)
        if known is not None and self._clock.monotonic_ns() >= known.ends_ns:
            # No lock, because of signal handlers: a count that was begun anew meanwhile is put back.
            dropped = self._known.pop(key, known) if self._known.get(key) is known else known
            if dropped is not known:
                self._known.setdefault(key, dropped)
            return None
        return known

    def _new(self, lifetime_s: float | None) -> KnownCount:
        window_s = _window_s(lifetime_s)
        limiter = self._limiters.get(window_s)
        if limiter is None:
            # The window of a count begins with its first hit, not at a multiple of its length.
            limit = Limit(COUNT_MAX, window_s, algorithm=FIXED_WINDOW, align=FIRST_HIT)
            name = f"counted/{ceil(window_s * SECOND_NS / MILLISECOND_NS)}ms"
            limiter = self._limiters[window_s] = self.agent.limit(name, limit, policy="available")
        return KnownCount(limiter, self._clock.monotonic_ns() + ceil(window_s * SECOND_NS))

    def _stay_small(self) -> None:
        while len(self._known) > COUNTS_MAX:
            self._known.popitem(last=False)


def _window_s(lifetime_s: float | None) -> float:
    """Returns the window for counts with a lifetime, in seconds, rounded up to milliseconds; ten years for None."""
    if lifetime_s is None:
        return WINDOW_MAX_S
    return min(ceil(lifetime_s * 1000) / 1000, WINDOW_MAX_S)
