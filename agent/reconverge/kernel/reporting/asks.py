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
        """Wakes the request, which then looks again. Never waits, and never fails."""


class AskBudget:
    """How many exchanges a node may begin for the sake of asks. The caller hands in the time."""

    def __init__(self, per_second: int) -> None:
        self.per_second = per_second
        self.start_over()

    def start_over(self) -> None:
        """Reset the budget: no exchange has begun."""
        self._most = max(SECOND_NS, self.per_second * BURST_NS)
        """In exchanges times nanoseconds."""
        self._credit = self._most
        self._since_ns = 0

    def take(self, now_ns: int) -> bool:
        """Whether another exchange may begin, which is then taken from the budget."""
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
        """No request asks, and none has asked in vain."""
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
        """The same when the last batch was taken."""
        self.distance_ns = 0
        """How long an answer takes: the last round trip, or the best of late if that was shorter; without what the
        runner was late.

        0 until the second answer: the first round trip also opens the connection, which no later one does."""
        self._in_vain_ns: int | None = None
        """`acked_ns` as it was when an ask was left without an answer."""

    @property
    def in_vain(self) -> bool:
        """Whether the hub has left something unanswered, and has not answered since."""
        return self._in_vain_ns == self.acked_ns

    def note_turn(self, now_ns: int) -> None:
        """The runner is run, with a batch under way."""
        self._stood_ns += max(0, now_ns - self.turned_ns - TURN_NS)
        self.turned_ns = now_ns

    def note_taken(self, now_ns: int) -> None:
        """The runner takes what requests have asked, if any have."""
        self._stood_ns += self._kept_waiting_ns(now_ns)
        self._stood_before_ns = self._stood_ns

    def note_free(self, now_ns: int) -> None:
        """Note that no batch is under way any more."""
        self._stood_ns += max(0, now_ns - self.turned_ns - TURN_NS)
        self.turned_ns, self.free_ns = NEVER_NS, now_ns

    def stood_by(self, now_ns: int) -> int:
        """For how long the runner has stood still by now while it had something to do for requests that ask.

        That is from when one asks until it is taken, and whatever a turn is late.
        """
        if self.turned_ns < NEVER_NS:
            return self._stood_ns + max(0, now_ns - self.turned_ns - TURN_NS)
        return self._stood_ns + (self._kept_waiting_ns(now_ns) if self.under_way_ns >= NEVER_NS else 0)

    def without_standing_ns(self, round_trip_ns: int) -> int:
        """How long the last round trip would have been for a runner that had had all its turns."""
        return max(0, round_trip_ns - (self._stood_ns - self._stood_before_ns))

    def _kept_waiting_ns(self, now_ns: int) -> int:
        return max(0, now_ns - max(self.asking_ns, self.free_ns))

    def note_in_vain(self) -> None:
        """The hub has left something unanswered: no request waits for it until it answers again."""
        self._in_vain_ns = self.acked_ns

    def wake_askers(self) -> None:
        """Wakes all that ask, so that they look again."""
        for asker in list(self.askers):
            self.unread[asker] = None
            if asker in self.askers:
                asker.wake()
            else:  # it has left meanwhile, on another thread
                self.unread.pop(asker, None)

    def note_looked(self, asker: Asker) -> None:
        """Notes that an asker has looked at its answer."""
        self.unread.pop(asker, None)

    def forget_asker(self, asker: Asker) -> None:
        """Forget a request that waits no longer."""
        self.askers.pop(asker, None)
        self.unread.pop(asker, None)
