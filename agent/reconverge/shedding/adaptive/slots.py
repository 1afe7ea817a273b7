"""Counts the requests in progress, by class, and starts new ones as long as one limit for all of them allows it."""

# Theory of operation.
#
# Deciding and counting is one step under one lock. Where a limiter looks at the number of running requests, and counts
# the new one afterwards, three threads that look at the same moment all find the same free slot: twelve requests ran
# with a limit of ten (concurrency-limits #234).
#
# Partitions guarantee each class a fraction of the limit. In that library a class with a guarantee may exceed the
# limit, so that no other class keeps it out; the limit is then no limit. Here slots are left free for it: a class may
# take a slot only if the slots that are left satisfy the guarantees of the other classes. A slot that is left free for
# a class that sends nothing is wasted, so only as many are left free as the class is likely to want next: the most
# requests that it lately had running or refused, a quarter of that, and one more. So a class that begins to send again
# finds one free slot, and one more with each request that is refused, within the time of one round trip.
#
# Without partitions only importance counts: each class leaves slots free for more important classes, and for no others,
# so the least important class gets the slots that the others leave.
#
# A demand is remembered for one to two windows of `PEAK_NS`.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from reconverge.clock import SECOND_NS
from reconverge.errors import InvalidSetting
from reconverge.runtime.locks import new_lock

MARGIN: Final = 4
"""Slots are left free for a class beyond its recent demand: the demand divided by this, and one more."""
PEAK_NS: Final = 3 * SECOND_NS


class RunningCount:
    """Counts the requests in progress, by class, and starts new ones up to a limit. Thread-safe; changes are atomic.

    Args:
        limit: how many may run at once.
        classes: how many classes there are.
        guarantees: the fraction of the limit that each class is guaranteed, the most important class first. With None,
            more important classes go first.
    """

    def __init__(self, limit: int, classes: int, guarantees: Sequence[float] | None = None) -> None:
        self.lock = new_lock()
        """The lock that is held for every change; the caller of `free` must hold it."""
        self.limit = limit
        self.in_flight = 0
        self.running = [0] * classes
        """The number of requests in progress for each class, the most important class first."""
        self.full_at = 0
        """The largest number of requests in progress when one was refused, since the reader last set this to 0."""
        self.scale = 1.0
        """The fraction to which a probe of round trips lowers the requests in progress, and the demand of each class
        for which slots are left free."""
        self._guarantees = None if guarantees is None else tuple(guarantees)
        self._peaks = [0] * classes
        self._last_peaks = [0] * classes
        self._peaks_until_ns = 0
        self._left_free_max = self._most_left_free()
        self.forks = 0
        """The number of forks so far; a request that began before a fork runs in the parent, and not here."""

    def take(self, rank: int, now_ns: int) -> int:
        """Starts a request of the class number `rank`. Returns how many requests run now; 0 if no slot is free."""
        lock = self.lock
        lock.acquire()  # not `with`, which takes twice as long, and each request comes here
        try:
            if now_ns >= self._peaks_until_ns:
                self._next_peaks(now_ns)
            running = self.running[rank] + 1
            if running > self._peaks[rank]:
                self._peaks[rank] = running  # refused requests are demand, too
                self._left_free_max = self._most_left_free()
            # Nearly always there is room even for the most that could be left free, so the exact number is not needed.
            if self.in_flight + self._left_free_max >= self.limit and self._is_full(rank):
                self.full_at = max(self.full_at, self.in_flight)
                return 0
            self.running[rank] = running
            self.in_flight = in_flight = self.in_flight + 1
            return in_flight
        finally:
            lock.release()

    def take_anyway(self, rank: int) -> int:
        """Starts a request that can no longer be refused, even beyond the limit. Returns the number that run now."""
        with self.lock:
            self.running[rank] += 1
            self.in_flight += 1
            return self.in_flight

    def free(self, rank: int) -> None:
        """Ends a request of the class number `rank`, which was started in this process. The caller holds the lock."""
        self.running[rank] -= 1
        self.in_flight -= 1

    def unwanted(self, rank: int) -> None:
        """Lowers the recent demand of the class number `rank` by one request, which does not run any more.

        Slots are left free for recent demand. Without this, many uploads that go idle at one moment would keep slots
        free that no request needs. The caller holds the lock.
        """
        self._peaks[rank] = max(self.running[rank], self._peaks[rank] - 1)
        self._left_free_max = self._most_left_free()

    def start_over(self) -> None:
        """Sets the count to zero in a forked child, where none of the requests runs."""
        self.forks += 1
        self.in_flight = self.full_at = 0
        self.running = [0] * len(self.running)

    def _is_full(self, rank: int) -> bool:
        return self.in_flight >= self.limit - (self._left_free(rank) if rank or self._guarantees else 0)

    def _most_left_free(self) -> int:
        wanted = [max(peaks) for peaks in zip(self._peaks, self._last_peaks, strict=True)]
        return sum(each + 1 + each // MARGIN for each in wanted)

    def _left_free(self, rank: int) -> int:
        left = 0
        if self._guarantees is None:
            for other in range(rank):
                wanted = max(self._peaks[other], self._last_peaks[other])
                if wanted:
                    left += max(0, int(wanted * self.scale) + 1 + wanted // MARGIN - self.running[other])
            return left
        mine = self._guarantees[rank]
        if self.running[rank] < int(mine * self.limit):
            return 0  # its own guarantee, which the others leave free
        for other, guarantee in enumerate(self._guarantees):
            if other != rank:
                wanted = max(self._peaks[other], self._last_peaks[other])
                wanted = int(wanted * self.scale) + 1 + wanted // MARGIN
                left += max(0, min(int(guarantee * self.limit), wanted) - self.running[other])
        return left

    def _next_peaks(self, now_ns: int) -> None:
        recent = now_ns < self._peaks_until_ns + PEAK_NS
        self._last_peaks = self._peaks if recent else [0] * len(self._peaks)
        self._peaks = list(self.running)
        self._peaks_until_ns = now_ns + PEAK_NS
        self._left_free_max = self._most_left_free()


def checked_partitions(partitions: object, names: Sequence[str]) -> tuple[float, ...]:
    """Returns the fraction of the limit guaranteed to each class, in the order of `names`; 0.0 if none is given.

    Raises InvalidSetting for an unknown class, an unusable fraction, or fractions that sum to more than 1.
    """
    if not isinstance(partitions, Mapping):
        raise InvalidSetting("partitions", partitions, "must map names of classes to fractions, such as {'live': 0.9}")
    for name, fraction in partitions.items():
        if name not in names:
            raise InvalidSetting("partitions", name, f"is not a class; the classes are {', '.join(names)}")
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            raise InvalidSetting("partitions", fraction, f"must be a fraction from 0 to 1, for class {name!r}")
    total = sum(partitions.values())
    if total > 1 + 1e-9:
        raise InvalidSetting(
            "partitions", dict(partitions), f"guarantees {total:g} of the limit in all; the sum must be at most 1"
        )
    return tuple(float(partitions.get(name, 0.0)) for name in names)
