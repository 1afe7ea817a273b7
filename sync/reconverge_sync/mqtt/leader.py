"""One member's part in one shard that the members keep among themselves: answers batches, or knows the leader. No I/O.

The elected leader keeps the ledger of the merge rule for all. It begins with an empty one, as a server does that comes
back without its data: the members' reports rebuild it. Only a leader that hands over to a successor gives the ledger
along. The hub's clock goes on from what the new leader knew of it.
"""

# Theory of operation.
#
# The ledger is the merge rule's `LedgerShard`, unchanged. What is added here is when it is void:
#
# - A new term begins with an empty ledger, as a server that has lost its data. Reports of the members rebuild it, and
#   the learning of the merge rule keeps it from granting allowances twice. `Shard(lost=True)` makes it learn from the
#   start if any member has answered before, so that a node that comes first is not taken for the first there ever was.
# - A ledger of an earlier term of the same member is void: another member may have answered in between.
# - A ledger that was handed over goes on, because its owner has stopped to answer before.
#
# The usage of a shard lives and dies with its ledger. When it is lost, an account's next batch shows that the node was
# answered to more than the new leader knows, and the node reports all that it keeps (`merge/usage.py`).
#
# The clock of the ledger must not jump with the member that keeps it, because windows are numbered by it. So a new
# leader goes on by what it knew of the clock of the one before, from the answers that it got; and never back.

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
"""How long a member waits for an answer; one that comes later is not taken in. So what a leader grants counts, if at
all, while no other member can answer."""
USAGE_ROWS_MAX: Final = 1 << 19
"""So many rows of usage, those of accounts included, are kept in one shard: about 200 MB. A node that brings more is
answered that there is no room, and keeps what it has counted."""


class LeaderState(NamedTuple):
    """The state that the leader of a shard keeps for all, and the hub's time."""

    shard: int
    ledger: LedgerShard
    usage: UsageShard
    hub_us: int


class Candidate:
    """One member and one shard. Names of a ledger's data come from `new_name`; its time from `hub_clock`, in tests."""

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
        """The answer to a batch that was sent to this member; None if it is not the one to give it."""
        ledger = self._opened()
        return None if ledger is None else ledger.merge(batch, hub_us=self._now_us(), candidate=self._new_name())

    def merging(self, batch: Batch) -> Iterator[Answer | None] | None:
        """`merge` in steps, all of which have to be taken before the next batch comes; see `LedgerShard.merging`.

        It may take its time: the caller does not wait for the answer longer than WAIT_NS from before this moment.
        """
        ledger = self._opened()
        return None if ledger is None else ledger.merging(batch, hub_us=self._now_us(), candidate=self._new_name())

    def kept(self) -> LeaderState | None:
        """All that this member keeps, if it is the one to answer within WAIT_NS from now."""
        ledger = self._opened()
        return None if ledger is None else LeaderState(self._shard, ledger, self._usage, self._now_us())

    @property
    def ledger(self) -> LedgerShard | None:
        """Returns the ledger, if this member leads and has begun to; to look at."""
        return self._ledger if self._term_led == self.election.terms_led and self.election.role is Role.LEADER else None

    def answered(self, hub_us: int, *, sent_ns: int, received_ns: int) -> None:
        """Note the hub's time, which another member's answer carries."""
        self._hub_clock.add(sent_ns=sent_ns, received_ns=received_ns, hub_us=hub_us)
        self._heard = True

    def totals(self) -> dict[str, Totals] | None:
        """Returns the charges and refunds of all; None if this member is not the one to ask."""
        if not self.election.may_answer(self._clock.monotonic_ns(), within_ns=0):
            return None
        begun = self._term_led == self.election.terms_led
        inherited = self._inherited if self.election.inherited else None
        ledger = self._ledger if begun else inherited  # an inherited ledger counts before the first batch, too
        return {} if ledger is None else ledger.totals()

    @property
    def usage(self) -> UsageState:
        """The usage that belongs to the ledger, to be handed over before it."""
        return self._usage.state

    def go_on(self) -> None:
        """Begin with the inherited ledger, though no batch has come yet: now all of it can be handed over."""
        if self._inherited is not None and self.election.inherited:
            self._opened()

    def hand_over(self) -> LedgerShard | None:
        """Answer no more, and give away the ledger; None if there is none to give, or `go_on` has to come first.

        The member that gets it goes on if it can; this member leaves the election.
        """
        answers = self.election.may_answer(self._clock.monotonic_ns(), within_ns=self._wait_ns)
        ledger = self._ledger if answers and self._term_led == self.election.terms_led else None
        self._ledger = None
        self.election.leave()
        return ledger

    def inherit(self, claim: LeaderClaim, ledger: LedgerShard, usage: UsageState | None = None) -> bool:
        """Go on with the ledger of a leader that has stopped to answer; returns whether this member will try.

        Without its usage, as from a member of the version before, that begins anew and gets the reports again.
        """
        if not self.election.inherit(claim, self._clock.monotonic_ns()):
            return False
        self._inherited, self._inherited_usage = ledger, usage
        return True

    def _usage_of(self, state: UsageState | None) -> UsageShard:
        return UsageShard(shard=self._shard, held_max=self._usage_rows_max, state=state)

    def _opened(self) -> LedgerShard | None:
        """The ledger, if this member is the one to answer."""
        if not self.election.may_answer(self._clock.monotonic_ns(), within_ns=self._wait_ns):
            return None
        if self._term_led != self.election.terms_led:
            self._begin()
        return self._ledger

    def _begin(self) -> None:
        """This member's term begins, by the clock that the one before went by, as far as this member heard of it."""
        self._term_led = self.election.terms_led
        # If another leader has answered before, there are allowances that may not have been reported yet.
        self._ledger = self._inherited if self.election.inherited else LedgerShard(lost=self.election.succeeds)
        self._usage = self._usage_of(self._inherited_usage if self.election.inherited else None)
        self._inherited = self._inherited_usage = None
        if self._ledger is not None:
            # A node that has just asked the one before waits for that answer first.
            self._ledger.grace_us = self._wait_ns // MICROSECOND_NS
        now_ns = self._clock.monotonic_ns()
        self._offset_ns = self._hub_clock.offset_ns if self._heard else self._clock.wall_ns() - now_ns

    def _now_us(self) -> int:
        if self._given_clock is not None:
            return self._given_clock.wall_ns() // MICROSECOND_NS
        self._hub_us = max(self._hub_us, (self._clock.monotonic_ns() + self._offset_ns) // MICROSECOND_NS)
        return self._hub_us
