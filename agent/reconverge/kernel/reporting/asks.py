"""Requests that ask the hub: the budget of exchanges that they may cause, and how an answer wakes them."""

# Theory of operation.
#
# If the node's memory cannot settle a request, the request may ask: it waits for the next batch to the hub and for the
# answer, a few milliseconds in all. That batch leaves as soon as no other is under way, even within the shortest
# interval between exchanges; otherwise a request would wait for that interval and not for the hub. So a budget of the
# node bounds these exchanges: a batch that leaves because of asks takes one exchange from the budget, and carries all
# asks that there are. When the budget is used up no request waits, and memory decides.
#
# No request waits for a hub that does not answer. After an ask that got no answer, or an exchange that failed, asks to
# that shard are in vain until it has answered again.
#
# The exchange loop may be late: something else blocks its thread, or the cores have too much to do. It notes its turns
# while a batch is under way, so that a process that stands still is not taken for a hub that is silent, or far away.
#
# Each answer and each failure wakes all requests that ask, and each of them checks whether it has its answer. The next
# batch waits a moment for these checks (`exchanges.LOOKS_S`): if the hub keeps the free part of a key, the batch gives
# back all allowance that is not in use, and so also a grant that a request is about to use.

from __future__ import annotations

from typing import Protocol

from reconverge.clock import MILLISECOND_NS, NEVER_NS, SECOND_NS

ASKS_MAX = 1000
"""The most exchanges per second that asking requests of one node may cause: one for each round trip of a
millisecond."""
TURN_NS = 2 * MILLISECOND_NS
"""How often the exchange loop notes that it runs while a batch is under way, in nanoseconds."""
BURST_NS = SECOND_NS // 10
"""The nanoseconds for which unused budget accumulates."""


class Asker(Protocol):
    """A request that waits for the hub's answer to its ask."""

    def wake(self) -> None:
        """Makes the request check whether its answer has come. Never waits, and never fails."""


class AskBudget:
    """The budget of exchanges that a node may begin for requests that ask the hub. Callers pass the time."""

    def __init__(self, per_second: int) -> None:
        self.per_second = per_second
        self.start_over()

    def start_over(self) -> None:
        """Fills the budget: as many exchanges as it holds may begin at once."""
        self._most = max(SECOND_NS, self.per_second * BURST_NS)
        """The most that the budget holds, in billionths of an exchange."""
        self._credit = self._most
        self._since_ns = 0

    def take(self, now_ns: int) -> bool:
        """Takes one exchange from the budget; returns False if the budget is used up."""
        if not self.per_second:
            return False
        passed_ns = max(0, now_ns - self._since_ns)
        credit = min(self._most, self._credit + self.per_second * passed_ns)
        self._since_ns = max(now_ns, self._since_ns)
        self._credit = credit - SECOND_NS if credit >= SECOND_NS else credit
        return credit >= SECOND_NS


class AskState:
    """The state of the requests that ask one shard of the hub, and of the batches that carry their asks.

    Moments are monotonic nanoseconds.
    """

    acked_ns: int
    """When this node sent the last batch that the hub has answered."""
    under_way_ns: int
    """When the batch was taken that waits for the hub's answer; NEVER_NS if no batch waits."""

    def forget_asks(self) -> None:
        """Forgets all requests that ask the hub, and whether the hub has left a batch unanswered."""
        self.asking_ns = NEVER_NS
        """When the next batch should leave for requests that ask, if none is under way; NEVER_NS if no request asks."""
        self.askers: dict[Asker, None] = {}
        """The set of requests that wait for an answer, as a dict; each change is a single step, so that it needs no
        lock."""
        self.unread: dict[Asker, None] = {}
        """The set of requests that were woken by an answer and have not looked at it yet, as a dict."""
        self.met_ns = NEVER_NS
        """When the hub's first answer came; NEVER_NS before. For a while after it, a new hub grants no allowances on
        strict limits."""
        self.turned_ns = NEVER_NS
        """When the exchange loop last ran while a batch was under way; NEVER_NS if no batch is under way."""
        self.free_ns = -NEVER_NS
        """If no batch is under way: the moment since which none is."""
        self._stood_ns = 0
        """For how many nanoseconds in all, up to its last run, the exchange loop was late."""
        self._stood_before_ns = 0
        """The value of `_stood_ns` when the last batch was taken."""
        self.distance_ns = 0
        """How many nanoseconds an answer of the hub takes: the last round trip or a recent shorter one, less the time
        by which the exchange loop was late.

        It is 0 until the second answer, because the first round trip also opens the connection."""
        self.away = 0
        """1 while the hub is away, that is, exchanges have failed for a second and three sync intervals; else 0."""
        self._in_vain_ns: int | None = None
        """The value of `acked_ns` when the hub last left a batch unanswered; None if it has not."""

    @property
    def in_vain(self) -> bool:
        """Returns whether the hub has left a batch unanswered, and has answered no batch since."""
        return self._in_vain_ns == self.acked_ns

    def note_turn(self, now_ns: int) -> None:
        """Called when the exchange loop runs while a batch is under way: stores by how much the loop was late."""
        self._stood_ns += max(0, now_ns - self.turned_ns - TURN_NS)
        self.turned_ns = now_ns

    def note_taken(self, now_ns: int) -> None:
        """Called when the exchange loop takes the batch that requests wait for: stores for how long it was late."""
        self._stood_ns += self._kept_waiting_ns(now_ns)
        self._stood_before_ns = self._stood_ns

    def note_free(self, now_ns: int) -> None:
        """Called when no batch is under way any more."""
        self._stood_ns += max(0, now_ns - self.turned_ns - TURN_NS)
        self.turned_ns, self.free_ns = NEVER_NS, now_ns

    def stood_by(self, now_ns: int) -> int:
        """Returns for how many nanoseconds in all, until `now_ns`, the exchange loop kept requests waiting.

        That is the time from an ask until the loop takes it into a batch, and the time by which the loop ran late while
        a batch was under way.
        """
        if self.turned_ns < NEVER_NS:
            return self._stood_ns + max(0, now_ns - self.turned_ns - TURN_NS)
        return self._stood_ns + (self._kept_waiting_ns(now_ns) if self.under_way_ns >= NEVER_NS else 0)

    def without_standing_ns(self, round_trip_ns: int) -> int:
        """Returns `round_trip_ns`, that of the last batch, less the time by which the exchange loop itself was late."""
        return max(0, round_trip_ns - (self._stood_ns - self._stood_before_ns))

    def _kept_waiting_ns(self, now_ns: int) -> int:
        return max(0, now_ns - max(self.asking_ns, self.free_ns))

    def note_in_vain(self) -> None:
        """Notes that the hub has left a batch unanswered: no request waits for the hub until the hub answers again."""
        self._in_vain_ns = self.acked_ns

    def wake_askers(self) -> None:
        """Wakes all requests that ask, so that each checks whether its answer has come."""
        for asker in list(self.askers):
            self.unread[asker] = None
            if asker in self.askers:
                asker.wake()
            else:  # the request has stopped waiting meanwhile, on another thread
                self.unread.pop(asker, None)

    def note_looked(self, asker: Asker) -> None:
        """Called when a woken request has looked for its answer."""
        self.unread.pop(asker, None)

    def forget_asker(self, asker: Asker) -> None:
        """Removes a request that no longer waits for an answer."""
        self.askers.pop(asker, None)
        self.unread.pop(asker, None)
