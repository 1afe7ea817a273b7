"""The role of one member in one shard: as the leader, it keeps the ledger and answers batches. No I/O.

The elected leader keeps the ledger of the merge rule for all members. Its ledger is empty at first, like that of a
server that comes back without its data, and the members' reports rebuild it. Only a leader that hands over to a
successor also sends the ledger. A new leader continues the hub's clock, as far as it knows that clock from earlier
answers.
"""

# Theory of operation.
#
# The ledger is the merge rule's `LedgerShard`, unchanged. This file adds the rules by which a ledger becomes void:
#
# - A new term begins with an empty ledger, like a server that has lost its data. Reports of the members rebuild it, and
#   until they have come the merge rule grants nothing (it learns), so that no allowance is granted twice. If any member
#   has answered before, `LedgerShard(lost=True)` makes it learn from the start: otherwise the first node that reports
#   would count as the first node ever.
# - A ledger of an earlier term of the same member is void: another member may have answered in between.
# - A ledger that was handed over stays valid, because its owner has stopped answering before.
#
# The usage of a shard is lost with its ledger. Then an account's next batch shows that the node has an answer to a
# later batch than the new leader knows, and the node reports all that it keeps (`merge/usage.py`).
#
# The clock of the ledger must not jump ahead when the leader changes: a name would lose its lease at the hub before its
# node stops, which allows for the drift of clocks alone. So a new leader continues the former leader's clock as the
# earliest that this may be, by that leader's answers: it is late by a round trip, and by the drift since. A leader that
# leads again, and has heard no other one meanwhile, continues its own clock, which it never turns back.

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Final, NamedTuple

from reconverge.clock import MICROSECOND_NS, MILLISECOND_NS, Clock
from reconverge.hub.clock import HubClock
from reconverge.hub.report import Answer, Batch, Totals
from reconverge_sync.merge.rule import LedgerShard
from reconverge_sync.merge.usage import UsageShard, UsageState
from reconverge_sync.mqtt.election import TENURE_NS, Election, LeaderClaim, Role

WAIT_NS: Final = 500 * MILLISECOND_NS
"""For how many nanoseconds a member waits for an answer; it ignores a later one. So a leader's grants take effect only
while no other member can answer."""
USAGE_ROWS_MAX: Final = 1 << 19
"""The most rows of usage in one shard, including the rows of accounts: about 200 MB. The leader refuses further rows,
and their nodes keep the counts."""


class LeaderState(NamedTuple):
    """The ledger and the usage that the leader of a shard keeps for all members, and the hub's time in microseconds."""

    shard: int
    ledger: LedgerShard
    usage: UsageShard
    hub_us: int


class Candidate:
    """One member's part in the election of one shard's leader, and the ledger while the member is that leader.

    `new_name` makes names for generations of the ledger; `hub_clock` is the ledger's clock in tests.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        random: Random,
        new_name: Callable[[], str],
        tenure_ns: int = TENURE_NS,
        wait_ns: int = WAIT_NS,
        hub_clock: Clock | None = None,
        shard: int = 0,
        usage_rows_max: int = USAGE_ROWS_MAX,
    ) -> None:
        self.election = Election(random=random, tenure_ns=tenure_ns)
        self._clock = clock
        self._new_name = new_name
        self._wait_ns = wait_ns
        self._given_clock = hub_clock
        self._hub_clock = HubClock()
        self._heard = False
        """Whether another member has answered since this one began to lead."""
        self._term_led = 0
        self._ledger: LedgerShard | None = None
        self._inherited: LedgerShard | None = None
        self._shard = shard
        self._usage_rows_max = usage_rows_max
        self._usage = self._usage_of(None)
        self._inherited_usage: UsageState | None = None
        self._offset_ns = 0
        self._hub_us = 0

    def merge(self, batch: Batch) -> Answer | None:
        """Merges a batch into the ledger, and returns the answer; None if this member may not answer as the leader."""
        ledger = self._opened()
        return None if ledger is None else ledger.merge(batch, hub_us=self._now_us(), candidate=self._new_name())

    def merging(self, batch: Batch) -> Iterator[Answer | None] | None:
        """Returns the steps of merging a batch, as `LedgerShard.merging` does; None if this member may not answer.

        All steps have to be taken before the next batch is merged. They may take longer than WAIT_NS, as the caller
        ignores an answer that comes later than that.
        """
        ledger = self._opened()
        return None if ledger is None else ledger.merging(batch, hub_us=self._now_us(), candidate=self._new_name())

    def kept(self) -> LeaderState | None:
        """Returns the leader's state; None if this member may not answer as the leader for WAIT_NS from now."""
        ledger = self._opened()
        return None if ledger is None else LeaderState(self._shard, ledger, self._usage, self._now_us())

    @property
    def ledger(self) -> LedgerShard | None:
        """The ledger, which callers must not change; None if this member is not the leader or has no ledger yet."""
        return self._ledger if self._term_led == self.election.terms_led and self.election.role is Role.LEADER else None

    def answered(self, hub_us: int, *, sent_ns: int, received_ns: int) -> None:
        """Updates this member's estimate of the hub's clock by `hub_us`, the time in another member's answer."""
        self._hub_clock.add(sent_ns=sent_ns, received_ns=received_ns, hub_us=hub_us)
        self._heard = True

    def totals(self) -> dict[str, Totals] | None:
        """Returns the charges and refunds of all nodes by limit; None if this member may not answer as the leader."""
        if not self.election.may_answer(self._clock.monotonic_ns(), within_ns=0):
            return None
        begun = self._term_led == self.election.terms_led
        inherited = self._inherited if self.election.inherited else None
        ledger = self._ledger if begun else inherited  # an inherited ledger counts before the first batch, too
        return {} if ledger is None else ledger.totals()

    @property
    def usage(self) -> UsageState:
        """The usage that belongs to the ledger; a leader hands it over before the ledger."""
        return self._usage.state

    def go_on(self) -> None:
        """Begins to use the inherited ledger before any batch has come, so that it can be handed over in turn."""
        if self._inherited is not None and self.election.inherited:
            self._opened()

    def hand_over(self) -> LedgerShard | None:
        """Stops answering, leaves the election, and returns the ledger for the successor.

        Returns None if there is no ledger, or if `go_on` has to be called before.
        """
        answers = self.election.may_answer(self._clock.monotonic_ns(), within_ns=self._wait_ns)
        ledger = self._ledger if answers and self._term_led == self.election.terms_led else None
        self._ledger = None
        self.election.leave()
        return ledger

    def inherit(self, claim: LeaderClaim, ledger: LedgerShard, usage: UsageState | None = None) -> bool:
        """Takes over the ledger of a leader that has stopped answering; returns whether this member is its successor.

        `usage` is None if the leader is of an older version; then the usage begins empty, and nodes report theirs
        again.
        """
        if not self.election.inherit(claim, self._clock.monotonic_ns()):
            return False
        self._inherited, self._inherited_usage = ledger, usage
        return True

    def _usage_of(self, state: UsageState | None) -> UsageShard:
        return UsageShard(shard=self._shard, held_max=self._usage_rows_max, state=state)

    def _opened(self) -> LedgerShard | None:
        """Returns the ledger, a new one if this is a new term; None if this member may not answer as the leader."""
        if not self.election.may_answer(self._clock.monotonic_ns(), within_ns=self._wait_ns):
            return None
        if self._term_led != self.election.terms_led:
            self._begin()
        return self._ledger

    def _begin(self) -> None:
        """Begins a term as the leader, with the inherited or an empty ledger, and with the former leader's clock."""
        is_first, self._term_led = self._term_led == 0, self.election.terms_led
        # If another leader has answered before, nodes may hold allowances that they have yet to report.
        self._ledger = self._inherited if self.election.inherited else LedgerShard(lost=self.election.succeeds)
        self._usage = self._usage_of(self._inherited_usage if self.election.inherited else None)
        self._inherited = self._inherited_usage = None
        if self._ledger is not None:
            # A node that has just sent a batch to the former leader waits for that answer first.
            self._ledger.grace_us = self._wait_ns // MICROSECOND_NS
        now_ns = self._clock.monotonic_ns()
        if self._heard:
            self._offset_ns = self._hub_clock.offset_ns - self._hub_clock.error_ns(now_ns)
            self._hub_clock, self._heard = HubClock(), False
        elif is_first:
            self._offset_ns = self._clock.wall_ns() - now_ns

    def _now_us(self) -> int:
        if self._given_clock is not None:
            return self._given_clock.wall_ns() // MICROSECOND_NS
        self._hub_us = max(self._hub_us, (self._clock.monotonic_ns() + self._offset_ns) // MICROSECOND_NS)
        return self._hub_us
