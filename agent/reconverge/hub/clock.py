"""The hub's clock as a node knows it: the midpoint of the best of the last few round trips (as NTP does it)."""

# Theory of operation.
#
# The problem. Windows are numbered by the hub's clock, so that all nodes and the hub mean the same one. A node must
# know that clock at every decision, without asking. It must also know by how much its estimate may be wrong: if it let
# charges expire by a time that is ahead of the hub's, `strict` would admit too much.
#
# Why the naive ways fail. The wall clocks of two machines differ by milliseconds or by minutes, jump when they are set,
# and no machine can tell by how much it is wrong. The hub's last timestamp plus the time since then is late by the time
# that the answer was on its way, which is not known.
#
# How it works (Cristian). The node sends a batch at `s` and has the answer at `r`, by its monotonic clock, which
# nothing sets. The hub read its own clock, `h`, somewhere in between:
#
#     node     s ---------------------------- r
#               \                            /
#     hub        `---------- h ------------'
#
#     offset = h - (s + r) / 2        wrong by at most (r - s) / 2, wherever in between that was
#
# No symmetry of the two ways is assumed. `h` comes in whole microseconds, rounded down: so 500 ns are added to it,
# and to the error.
#
# Two clocks drift apart, so the possible error of a sample (one round trip) grows by DRIFT of its age. A node keeps the
# last SAMPLES_MAX samples and uses the one with the smallest error, as NTP's clock filter takes the sample with the
# shortest round trip of the last eight. The errors of all samples grow equally fast, so the best sample stays the best
# until a better one comes or it is dropped: `rank` compares samples once and for all, and reading the time takes no
# comparison.
#
# If two samples contradict each other (offsets further apart than both errors together), one of the clocks has jumped.
# Then the newest is right and all others are void. `add` returns True, and its callers carry their counts over to the
# new window numbers.
#
# A jump by less than the errors goes unnoticed.
#
# Sources: F. Cristian, Probabilistic clock synchronization, Distributed Computing 3, 1989; D. Mills et al., RFC 5905,
# Network Time Protocol Version 4, section 10 (clock filter).

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

SAMPLES_MAX: Final = 16
DRIFT: Final = 1e-4
"""Two machines' clocks drift apart by less than this fraction of the time: twice as much as quartz clocks do."""


class _ClockSample(NamedTuple):
    rank: float
    """The largest possible error, extrapolated back to moment 0 of this node's clock. Of two samples, the one with the
    lower rank has the smaller error at every moment."""
    offset_ns: int
    error_ns: int
    at_ns: int

    def error_at_ns(self, now_ns: int) -> int:
        """Returns the largest possible error of `offset_ns` at the moment `now_ns`, in nanoseconds."""
        return self.error_ns + int(DRIFT * (now_ns - self.at_ns)) + 1


class HubClock:
    """Estimates how far the hub's clock is ahead of this node's monotonic clock."""

    def __init__(self) -> None:
        self._samples: deque[_ClockSample] = deque(maxlen=SAMPLES_MAX)
        self._best: _ClockSample

    def add(self, *, sent_ns: int, received_ns: int, hub_us: int) -> bool:
        """Adds one round trip, during which the hub read its clock as `hub_us`, rounded down to a microsecond.

        Returns True if no earlier sample counts: because this is the first, or because the hub's clock has jumped.
        """
        midpoint_ns = (sent_ns + received_ns) // 2
        error_ns = (received_ns - sent_ns + 1) // 2 + 500
        # The hub may have read its clock as early as this was sent: the two have been drifting apart since then.
        sample = _ClockSample(error_ns - DRIFT * sent_ns, hub_us * 1000 + 500 - midpoint_ns, error_ns, sent_ns)
        if self._samples:
            best = self._best
            if abs(sample.offset_ns - best.offset_ns) > sample.error_at_ns(received_ns) + best.error_at_ns(received_ns):
                self._samples.clear()
        all_but_best = not self._samples or (len(self._samples) == SAMPLES_MAX and self._samples[0] is self._best)
        self._samples.append(sample)
        # The sample that is dropped is rarely the best; if it is not, only the new one may be better than the best.
        self._best = min(self._samples) if all_but_best else min(self._best, sample)
        return len(self._samples) == 1

    @property
    def offset_ns(self) -> int:
        """Returns the nanoseconds to add to the monotonic clock to get the hub's time."""
        return self._best.offset_ns

    def error_ns(self, now_ns: int) -> int:
        """Returns the largest possible error of `offset_ns` at `now_ns`, in nanoseconds."""
        return self._best.error_at_ns(now_ns)
