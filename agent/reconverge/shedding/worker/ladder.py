"""Selects a given fraction of all requests to reject: the least important class first, evenly within each class."""

# Theory of operation.
#
# The controller computes the fraction of all traffic to reject. The ladder knows the part of each class in recent
# traffic, and goes through the classes from the least important one upwards: it rejects of each class as much as is
# still needed. So a class is rejected wholly before the next one loses any request.
#
# Slow to escalate. A jump of the load, or noise, may make the controller overshoot for a moment, and the next class
# would pay for it. So the output has a ceiling: the traffic of all classes up to the present rung. The ladder climbs to
# the next rung only when all this traffic has been rejected for `ESCALATE_S`, and the pressure is still above its
# target. It climbs down when less than the traffic below the present rung was rejected for `RELAX_S`.
#
# Within a class a sequence chooses the rejected requests, and not chance: request n of a class is rejected if the
# fractional part of n times the golden ratio is below the fraction. These parts are spread as evenly as those of any
# sequence, so among any m requests in a row the number of rejected ones is off by less than a handful, where a random
# draw would be off by sqrt(m). Every k-th request finds an equally even sequence, so a client with a steady rhythm does
# not always lose. The choice needs no random numbers, and can be repeated.

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import length_hint
from typing import Final

from reconverge.runtime.threads import MOST

GOLDEN_64: Final = 0x9E3779B97F4A7C15
"""The fractional part of the golden ratio, in 64 bits."""
WHOLE_64: Final = 1 << 64
_MASK_64: Final = WHOLE_64 - 1
MIX_S: Final = 1.0
"""The time constant, in seconds, with which the mix of classes follows the arriving requests."""
ESCALATE_S: Final = 1.0
"""A class loses requests only after all requests of less important classes were rejected for so many seconds."""
RELAX_S: Final = 5.0
"""A class is no longer rejected once rejecting only less important classes has been enough for so many seconds."""
NOTHING: Final = 1e-3
"""The fraction of the traffic below which a class counts as empty. Then the next class is rejected without waiting
`ESCALATE_S`."""


class Dither:
    """Chooses a given fraction of the requests, evenly spread, and counts all requests. Thread-safe, without a lock.

    `threshold` is the fraction in units of 2**-64.
    """

    __slots__ = ("_numbers", "threshold")

    def __init__(self) -> None:
        self._numbers = iter(range(1, MOST))  # a step of an iterator is atomic, so any thread may count
        self.threshold = 0

    def set(self, fraction: float) -> None:
        """Sets the fraction to choose from now on, from 0 to 1."""
        self.threshold = int(min(max(fraction, 0.0), 1.0) * WHOLE_64)

    def chosen(self) -> bool:
        """Counts the next request, and returns whether it is chosen."""
        number = next(self._numbers)
        threshold = self.threshold
        return threshold > 0 and (number * GOLDEN_64 & _MASK_64) < threshold

    @property
    def asked(self) -> int:
        """Returns for how many requests `chosen` was called."""
        return MOST - 1 - length_hint(self._numbers)


class Ladder:
    """Divides the fraction of traffic to reject among the classes.

    All lists by class have the most important class first.
    """

    def __init__(self, classes: int) -> None:
        self.fractions = [0.0] * classes
        """The fraction of each class's requests to reject, the most important class first."""
        self._mix = [0.0] * classes
        self._rung = classes - 1
        self._full_s = 0.0
        self._slack_s = 0.0

    @property
    def mix(self) -> list[float]:
        """Returns each class's fraction of the traffic. They sum to 1, or to 0 before any request has arrived."""
        total = sum(self._mix)
        return [part / total if total else 0.0 for part in self._mix]

    @property
    def rung(self) -> int:
        """Returns the number of the most important class that may be rejected at present; 0 is the most important."""
        return self._rung

    def arrived(self, counts: Sequence[int], elapsed_s: float) -> None:
        """Counts the requests of each class that have arrived in the last `elapsed_s` seconds."""
        if elapsed_s <= 0:
            return
        weight = 1.0 - math.exp(-elapsed_s / MIX_S)
        for rank, number in enumerate(counts):
            self._mix[rank] += weight * (number / elapsed_s - self._mix[rank])

    def ceiling(self) -> float:
        """Returns the fraction of all traffic that may be rejected at present."""
        return min(1.0, sum(self.mix[self._rung :]))

    def deal(self, rejected: float, elapsed_s: float, *, pressed: bool) -> None:
        """Sets `fractions` so that the fraction `rejected` of all traffic is rejected.

        May also begin to reject requests of the next more important class, or stop rejecting those of a class.
        `pressed` is True while the load is above its target.
        """
        mix = self.mix
        self._climb(rejected, elapsed_s, mix, pressed=pressed)
        left = rejected
        for rank in range(len(mix) - 1, -1, -1):
            part = mix[rank]
            if rank < self._rung or left <= 0:
                self.fractions[rank] = 0.0
            elif part <= 0:
                self.fractions[rank] = 1.0
            else:
                self.fractions[rank] = min(1.0, left / part)
                left -= part

    def _climb(self, rejected: float, elapsed_s: float, mix: Sequence[float], *, pressed: bool) -> None:
        here = sum(mix[self._rung :])
        below = sum(mix[self._rung + 1 :])
        full = pressed and rejected >= min(here, 1.0) - NOTHING
        self._full_s = self._full_s + elapsed_s if full else 0.0
        self._slack_s = self._slack_s + elapsed_s if rejected < below else 0.0
        if self._rung > 0 and full and (self._full_s >= ESCALATE_S or mix[self._rung] < NOTHING):
            self._rung -= 1
            self._full_s = 0.0
        elif self._rung < len(mix) - 1 and self._slack_s >= RELAX_S:
            self._rung += 1
            self._slack_s = 0.0
