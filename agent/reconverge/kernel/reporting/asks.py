"""Requests that ask the hub: the budget of exchanges that they may cause, and their wake-up at an answer."""

# Theory of operation.
#
# A request that the node's memory cannot settle may ask: it waits for the next batch to the hub and for its answer, a
# few milliseconds in all. That batch leaves as soon as none is under way, without regard to the shortest interval; else
# a request would wait for that interval and not for the hub. So a budget of the node bounds these exchanges: a batch
# that leaves because of asks takes one exchange from the budget, and carries all asks there are. Beyond the budget no
# request waits, and memory decides.
#
# No request waits for a hub that does not answer. After an ask that got no answer, or an exchange that failed, asks to
# that shard are in vain until it has answered again.
#
# The exchange loop may be late: something else blocks its thread, or the cores have too much to do. It notes its turns
# while a batch is under way, so that a process that stands still is not taken for a hub that is silent, or far away.
#
# Each answer and each failure wakes all requests that ask, and each checks whether it has its answer: its ask may have
# been in an earlier batch. The next batch waits for these checks, for a moment (`driver.LOOKS_S`): for a key that is
# kept at the hub the batch gives back all allowance that is not in use, also a grant that a request is about to charge.

from __future__ import annotations

from typing import Protocol

from reconverge.clock import MILLISECOND_NS, NEVER_NS, SECOND_NS

ASKS_MAX = 1000
"""The most exchanges per second that asks of one node may cause: one for each round trip of a millisecond."""
TURN_NS = 2 * MILLISECOND_NS
"""How often the exchange loop notes that it runs, while a batch is under way."""
BURST_NS = SECOND_NS // 10
"""The time for which an unused budget accumulates."""


class Asker(Protocol):
    """A request that waits for an answer of the hub."""

    def wake(self) -> None:
        """Makes the request check whether its answer has come. Never waits, and never fails."""


class AskBudget:
    """A budget of exchanges that a node may begin because of asks. The caller passes the time."""

    def __init__(self, per_second: int) -> None:
        self.per_second = per_second
        self.start_over()

    def start_over(self) -> None:
        """Fills the budget."""
        self._most = max(SECOND_NS, self.per_second * BURST_NS)
        """The full budget, in exchanges times nanoseconds."""
        self._credit = self._most
        self._since_ns = 0

    def take(self, now_ns: int) -> bool:
        """Takes one exchange from the budget; returns whether there was one."""
        if not self.per_second:
            return False
        passed_ns = max(0, now_ns - self._since_ns)
        credit = min(self._most, self._credit + self.per_second * passed_ns)
        self._since_ns = max(now_ns, self._since_ns)
        self._credit = credit - SECOND_NS if credit >= SECOND_NS else credit
        return credit >= SECOND_NS


class AskState:
    """The state of asks at one shard of the hub. Moments are monotonic nanoseconds."""

    acked_ns: int
    """When the last batch that was answered had been sent."""
    under_way_ns: int
    """When the batch was taken that waits for its answer; NEVER_NS if no batch waits."""

    def forget_asks(self) -> None:
        """Forgets all requests that ask the hub, and whether the hub has left a batch unanswered."""
        self.asking_ns = NEVER_NS
        """When the next batch should leave because of asks, if none is under way; NEVER_NS if no request asks."""
        self.askers: dict[Asker, None] = {}
        """The requests that wait for an answer; changed in single steps, so that they need no lock."""
        self.unread: dict[Asker, None] = {}
        """The requests that have an answer, and have not looked at it yet."""
        self.met_ns = NEVER_NS
        """When the hub's first answer came; NEVER_NS before. A hub that is new grants no strict limit at first."""
        self.turned_ns = NEVER_NS
        """When the exchange loop last ran, with a batch under way; NEVER_NS while no batch is."""
        self.free_ns = -NEVER_NS
        """Since when no batch is under way, if none is."""
        self._stood_ns = 0
        """For how many nanoseconds in all the exchange loop had stood still when it last ran."""
        self._stood_before_ns = 0
        """The value of `_stood_ns` when the last batch was taken."""
        self.distance_ns = 0
        """How long an answer takes: the last round trip, or the shortest recent one if that was shorter, less the time
        for which the exchange loop was late.

        0 until the second answer: the first round trip also opens the connection, which no later one does."""
        self._in_vain_ns: int | None = None
        """The value of `acked_ns` when the hub left an ask without an answer."""

    @property
    def in_vain(self) -> bool:
        """Returns whether the hub has left a batch unanswered, and has not answered any since."""
        return self._in_vain_ns == self.acked_ns

    def note_turn(self, now_ns: int) -> None:
        """Stores `now_ns` as the last turn of the exchange loop, while a batch is under way."""
        self._stood_ns += max(0, now_ns - self.turned_ns - TURN_NS)
        self.turned_ns = now_ns

    def note_taken(self, now_ns: int) -> None:
        """Notes that the exchange loop takes the cells that requests ask about."""
        self._stood_ns += self._kept_waiting_ns(now_ns)
        self._stood_before_ns = self._stood_ns

    def note_free(self, now_ns: int) -> None:
        """Notes that no batch is under way any more."""
        self._stood_ns += max(0, now_ns - self.turned_ns - TURN_NS)
        self.turned_ns, self.free_ns = NEVER_NS, now_ns

    def stood_by(self, now_ns: int) -> int:
        """Returns for how many nanoseconds the exchange loop has stood still, up to now, while requests waited for it.

        This is the time from a request's ask until the loop takes it, and the time by which the loop's turns were late.
        """
        if self.turned_ns < NEVER_NS:
            return self._stood_ns + max(0, now_ns - self.turned_ns - TURN_NS)
        return self._stood_ns + (self._kept_waiting_ns(now_ns) if self.under_way_ns >= NEVER_NS else 0)

    def without_standing_ns(self, round_trip_ns: int) -> int:
        """Returns the last round trip without the time for which the exchange loop itself stood still."""
        return max(0, round_trip_ns - (self._stood_ns - self._stood_before_ns))

    def _kept_waiting_ns(self, now_ns: int) -> int:
        return max(0, now_ns - max(self.asking_ns, self.free_ns))

    def note_in_vain(self) -> None:
        """Notes that the hub has left a batch unanswered: no request waits for the hub until it answers again."""
        self._in_vain_ns = self.acked_ns

    def wake_askers(self) -> None:
        """Wakes all requests that ask, so that each looks for its answer."""
        for asker in list(self.askers):
            self.unread[asker] = None
            if asker in self.askers:
                asker.wake()
            else:  # the request has stopped waiting meanwhile, on another thread
                self.unread.pop(asker, None)

    def note_looked(self, asker: Asker) -> None:
        """Notes that a request has looked at its answer."""
        self.unread.pop(asker, None)

    def forget_asker(self, asker: Asker) -> None:
        """Removes a request that does not wait for an answer any more."""
        self.askers.pop(asker, None)
        self.unread.pop(asker, None)
