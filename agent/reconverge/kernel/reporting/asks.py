"""Requests that ask the hub: the budget of exchanges that they may cause, and their wake-up at an answer."""

# Theory of operation.
#
# A request that the node's memory cannot settle may ask: it waits for the next batch to the hub and for its answer, a
# few milliseconds in all. That batch leaves as soon as none is under way, whatever the shortest interval says; else a
# request would wait for that interval and not for the hub. So what bounds the exchanges is a budget of the node: a
# batch that leaves for the sake of asks takes one from it, and carries all that ask by then. Beyond the budget no
# request waits, and memory answers.
#
# No request waits for a hub that does not answer. After an ask that was left without an answer, or an exchange that
# failed, asks to that shard are in vain until it has answered again.
#
# A runner may be late: a loop that something else holds up, or cores with too much to do. It notes its turns while a
# batch is under way, so that a process that stands still is not taken for a hub that is silent, or far away.
#
# Each answer and each failure wakes all that ask, and they see for themselves what it means to them: what they
# asked about may have been in the batch before. The next batch waits for them, for a moment (`driver.LOOKS_S`): of a
# key that is kept at the hub it gives back all that is not in use, also what has just been granted to them.

from __future__ import annotations

from typing import Protocol

from reconverge.clock import MILLISECOND_NS, NEVER_NS, SECOND_NS

ASKS_MAX = 1000
"""Exchanges per second that asks of one node may call for: one for each round trip of a millisecond."""
TURN_NS = 2 * MILLISECOND_NS
"""How often a runner notes that it is run, while a batch is under way."""
BURST_NS = SECOND_NS // 10
"""So long a budget accumulates."""


class Asker(Protocol):
    """A request that waits for an answer of the hub."""

    def wake(self) -> None:
        """Makes the request look again whether its answer has come. Never waits, and never fails."""


class AskBudget:
    """A budget of exchanges that a node may begin for the sake of asks. The caller passes the time."""

    def __init__(self, per_second: int) -> None:
        self.per_second = per_second
        self.start_over()

    def start_over(self) -> None:
        """Fills the budget."""
        self._most = max(SECOND_NS, self.per_second * BURST_NS)
        """In exchanges times nanoseconds."""
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
    """When the batch was taken that waits for its answer; never, if none does."""

    def forget_asks(self) -> None:
        """Forgets all requests that ask the hub, and that the hub may have left a batch of theirs unanswered."""
        self.asking_ns = NEVER_NS
        """When the next batch is to leave for the sake of requests that ask, as soon as none is under way."""
        self.askers: dict[Asker, None] = {}
        """The requests that wait for an answer; changed in single steps, so that they need no lock."""
        self.unread: dict[Asker, None] = {}
        """The requests that have an answer, and have not looked at it yet."""
        self.turned_ns = NEVER_NS
        """When the runner had its last turn, with a batch under way; never, while it notes none."""
        self.free_ns = -NEVER_NS
        """Since when no batch is under way, if none is."""
        self._stood_ns = 0
        """For how long the runner stood still until the last turn."""
        self._stood_before_ns = 0
        """For how long the runner had stood still when the last batch was taken."""
        self.distance_ns = 0
        """How long an answer takes: the last round trip, or the best of late if that was shorter; without what the
        runner was late.

        0 until the second answer: the first round trip also opens the connection, which no later one does."""
        self._in_vain_ns: int | None = None
        """`acked_ns` as it was when an ask was left without an answer."""

    @property
    def in_vain(self) -> bool:
        """Returns whether the hub has left a batch unanswered, and has not answered any since."""
        return self._in_vain_ns == self.acked_ns

    def note_turn(self, now_ns: int) -> None:
        """Notes that the exchange loop runs, while a batch is under way."""
        self._stood_ns += max(0, now_ns - self.turned_ns - TURN_NS)
        self.turned_ns = now_ns

    def note_taken(self, now_ns: int) -> None:
        """Notes that the exchange loop takes the cells that requests have asked about, if any."""
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
            else:  # it has left meanwhile, on another thread
                self.unread.pop(asker, None)

    def note_looked(self, asker: Asker) -> None:
        """Notes that a request has looked at its answer."""
        self.unread.pop(asker, None)

    def forget_asker(self, asker: Asker) -> None:
        """Removes a request that does not wait for an answer any more."""
        self.askers.pop(asker, None)
        self.unread.pop(asker, None)
