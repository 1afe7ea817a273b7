"""Limits log messages: a fact is logged once, and a lasting failure a limited number of times within a period."""

# Theory of operation.
#
# A call that fails once mostly fails again, often with every request or every exchange. A message each time fills
# disks, hides all other messages, and costs more than the failure. Silence is no better. So the first failure of each
# kind is logged, later ones are thinned out, and all are counted in `stats()`: the log shows that calls fail, the
# counter how many.
#
#     LoggedOnce     one message for each fact, until it is forgotten: "this rule limits nothing", "the hub is gone"
#     LogThrottle    at most N messages within a period, on any subject: failures of requests, a hub that flaps
#
# Failures happen in signal handlers and finalizers, too, in the middle of another message of the same thread. So there
# is no lock in here: one step of the interpreter on a dictionary decides which caller is first, and what a throttle
# lets through in a race is one message too many.
#
# Not every "only the first time" needs one of these. Where the failures are counted anyway, `if self.bugs == 1` is
# enough.

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final

FACTS_MAX: Final = 10_000
"""The most facts that `LoggedOnce` stores. Programs have far fewer limits and rules to log about."""


class LoggedOnce:
    """Remembers which facts were logged, at most `facts_max` of them. Any further fact counts as logged already."""

    def __init__(self, facts_max: int = FACTS_MAX) -> None:
        self._facts_max = facts_max
        self._logged: dict[Hashable, object] = {}

    def is_new(self, fact: Hashable = None) -> bool:
        """Returns True if `fact` should be logged now, and marks it as logged.

        Later calls for the same fact return False, until `forget`.
        """
        mine = object()
        return len(self._logged) < self._facts_max and self._logged.setdefault(fact, mine) is mine

    def forget(self, *facts: Hashable) -> None:
        """Forgets that `facts` were logged, so that each is logged when it occurs again."""
        for fact in facts:
            self._logged.pop(fact, None)

    def forget_all(self) -> None:
        """Forgets all facts that were logged, so that each is logged when it occurs again."""
        self._logged.clear()


class LogThrottle:
    """A limit on log messages: at most `messages_max` within any `within_ns` nanoseconds."""

    def __init__(self, messages_max: int, *, within_ns: int) -> None:
        self._within_ns = within_ns
        self._logged_ns: deque[int] = deque(maxlen=messages_max)
        """The monotonic times at which the latest `messages_max` messages were logged, in nanoseconds."""

    def allows(self, now_ns: int) -> bool:
        """Returns whether a message may be logged at `now_ns`."""
        logged_ns = self._logged_ns
        return len(logged_ns) < (logged_ns.maxlen or 0) or now_ns - logged_ns[0] >= self._within_ns

    def note(self, now_ns: int) -> None:
        """Counts a message that is logged at `now_ns`; also call it for one that is logged although not allowed."""
        self._logged_ns.append(now_ns)
