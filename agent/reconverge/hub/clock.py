"""The hub's clock as a node knows it: the midpoint of the best of the last few round trips (as NTP does it)."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

SAMPLES_MAX: Final = 16
DRIFT: Final = 1e-4
"""Two machines' clocks drift apart by less than this share; twice what crystals do."""


class _Sample(NamedTuple):
    rank: float
    """The least one is the best at all times, as the errors of all grow alike."""
    offset_ns: int
    error_ns: int
    at_ns: int

    def error_at_ns(self, now_ns: int) -> int:
        """The most by which the offset can be wrong by now."""
        return self.error_ns + int(DRIFT * (now_ns - self.at_ns)) + 1


class HubClock:
    """Estimates how far the hub's clock is ahead of this node's monotonic one."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES_MAX)
        self._best: _Sample

    def add(self, *, sent_ns: int, received_ns: int, hub_us: int) -> bool:
        """Take in one round trip; the hub read its clock somewhere in between, to the microsecond below.

        Returns whether all that was known before is void: this is the first sample, or the hub's clock has jumped.
        """
        midpoint_ns = (sent_ns + received_ns) // 2
        error_ns = (received_ns - sent_ns + 1) // 2 + 500
        # The hub may have read its clock as early as this was sent: the two have been drifting apart since then.
        sample = _Sample(error_ns - DRIFT * sent_ns, hub_us * 1000 + 500 - midpoint_ns, error_ns, sent_ns)
        if self._samples:
            best = self._best
            if abs(sample.offset_ns - best.offset_ns) > sample.error_at_ns(received_ns) + best.error_at_ns(received_ns):
                self._samples.clear()
        self._samples.append(sample)
        self._best = min(self._samples)
        return len(self._samples) == 1

    @property
    def offset_ns(self) -> int:
        """What to add to the monotonic clock to have the hub's."""
        return self._best.offset_ns

    def error_ns(self, now_ns: int) -> int:
        """The most by which that can be wrong."""
        return self._best.error_at_ns(now_ns)
