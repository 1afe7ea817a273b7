"""Elects the one member that answers all other members, through a broker and without a shared clock. No I/O."""

# Theory of operation.
#
# The problem. A broker of MQTT passes messages on and stores next to nothing, so one of the members has to keep the
# ledger for all. There must never be two that answer at the same time: both would grant the same capacity.
#
# Why the naive ways fail. "The member with the smallest name" needs a list of members that all agree on; a member that
# is cut off is on its own list. A retained message as a lock stays when its owner dies, and a broker may forget it. A
# majority needs the number of members, which is unknown: processes come and go at any time. And no election ends a
# process that was stopped for ten seconds in the middle of an answer.
#
# How it works. The member that answers (the leader) publishes a claim in each beat (a sixth of a tenure), and receives
# its own claims like those of all others. A claim that comes back allows it to answer for a tenure, counted from when
# the claim was *sent*, unless a higher claim comes. A member that receives no claim for a tenure publishes a claim with
# a higher term. Once that claim has come back, the member waits for a tenure, and then answers.
#
# A broker hands all subscribers of a topic the messages in one order. Let A be the leader and B the claimant:
#
#     order at the broker    A7    A8    B1    A9
#     A hears                A7    A8    B1, which is higher: from here A answers no more, and A9 allows nothing
#     B hears                A7    A8    B1, its own: |---- waits a tenure ----| B answers
#
# A8, sent before B1 came through, allows A to answer for a tenure at most. That is over before B's wait is.
#
# So A has either received B1 and stopped, or received nothing since A8 and its tenure is over. No two clocks are
# compared: both lengths begin with events of which the broker fixed the order, and DRIFT covers clocks of different
# pace.
#
# If the broker breaks that order, or drops claims, two members can answer together only if each misses the claims of
# the other: the one that answers has to miss all higher claims, and the one that waits has to miss the lower ones, each
# of which makes it wait anew.
#
# An answer must also arrive in time: `may_answer` takes the time that the answer may need, and the asking member
# ignores an answer that comes later. So a process that is stopped between deciding and answering does no harm.
#
# What would go wrong otherwise:
#
# - A member is one connection. After a loss of the connection the member may have missed a higher claim, so the member
#   starts anew as a follower, under a new name (`join`).
# - Every new member receives a retained claim, which may be old. One such claim does not show that a leader lives; two
#   different claims with `answers` do (`succeeds`): then nodes hold allowances from before, and the new ledger has lost
#   data.
# - A claim with the highest possible term would block the election for good if claims never aged. A claim that is not
#   renewed for a tenure does not prevent a lower one, and at TERM_MAX names decide.
# - To a process that was asleep all other members seem silent. So before it claims, it waits two beats for their
#   claims, but only once (`excuse`).
#
# A leader that stops in good order hands its ledger to a member of its choice. That member claims without waiting for a
# tenure, as its predecessor has stopped (`inherit`).
#
# Sources: leases after Gray and Cheriton, SOSP 1989; terms as in Raft (Ongaro and Ousterhout, USENIX ATC 2014), with
# the order of one broker in the place of a majority.

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from random import Random
from typing import Final, NamedTuple

from reconverge.clock import MILLISECOND_NS
from reconverge.hub.clock import DRIFT

TENURE_NS: Final = 1500 * MILLISECOND_NS
"""For how many nanoseconds after sending a claim its sender may answer, once the broker has sent the claim back."""
BEATS: Final = 6
"""How many claims a leader sends during one tenure (`TENURE_NS`)."""
TERM_MAX: Final = 2**53
"""The highest term, far above any that members reach by counting. Between two claims of this term, the members' names
decide."""


class LeaderClaim(NamedTuple):
    """A claim to be the leader, which a member sends to all members again and again."""

    term: int
    """The term for which the member claims. Of two claims the one with the higher term wins; of equal terms the one
    with the greater name."""
    member: str
    beat: int
    """A number that rises with each claim of a member, by which the member knows when it sent a claim that comes
    back."""
    answers: bool = False
    """Whether the member already answers as the leader; if not, it waits until the former leader may not answer any
    more."""

    @property
    def rank(self) -> tuple[int, str]:
        """The claim's term and name, by which two claims are compared."""
        return self.term, self.member


class Role(Enum):
    """The role of a member in an election."""

    FOLLOWER = "follower"
    CLAIMANT = "claimant"
    """A member that has claimed to be the leader, and waits until no other member may answer any more."""
    LEADER = "leader"


class Election:
    """The state of one member in the election of a leader. Times are of its own monotonic clock.

    Each message may be late or missing. A member is one connection to the broker: after its loss the member joins anew,
    under a new name, because a higher claim may have been missed.
    """

    def __init__(self, *, random: Random, tenure_ns: int = TENURE_NS) -> None:
        self._random = random
        self._tenure_ns = tenure_ns
        self.beat_ns = tenure_ns // BEATS
        """The nanoseconds between two claims of a member to be the leader."""
        self.member = ""
        """The name of this connection; empty while there is none."""
        self.role = Role.FOLLOWER
        self.terms_led = 0
        """The number of terms that this member has led; when a new one begins, its ledger of an earlier term is void.
        """
        self.inherited = False
        """Whether the last term that this member led began with the state that the former leader had handed over."""
        self.succeeds = False
        """Whether any member, this one included, is known to have answered as the leader before this member's last term
        began."""
        self._others_answered = False
        self._answering: LeaderClaim | None = None
        """The newest claim of another member that answers."""
        self._highest = 0
        self._term = 0
        self._beat = 0
        self._sent: OrderedDict[int, int] = OrderedDict()
        self._confirmed_ns: int | None = None
        """When this member sent the newest of its claims that have come back."""
        self._waits_from_ns: int | None = None
        self._predecessor = ""
        """The leader that has stopped answering and handed over to this member."""
        self._leader: LeaderClaim | None = None
        self._leader_heard_ns = 0
        self._next_ns = 0
        self._excused = False

    @property
    def leader(self) -> str:
        """The name of the leader; empty while none is known."""
        if self.role is Role.LEADER:
            return self.member
        return "" if self._leader is None or self.role is not Role.FOLLOWER else self._leader.member

    @property
    def answering(self) -> bool:
        """Returns whether the leader, be it this member or another, answers already."""
        return self.role is Role.LEADER or (self.leader != "" and self._leader is not None and self._leader.answers)

    @property
    def unheard(self) -> bool:
        """Returns whether this member has claimed more than once, and the broker has sent none of its claims back."""
        return self.role is Role.CLAIMANT and self._confirmed_ns is None and len(self._sent) > 1

    @property
    def highest(self) -> int:
        """Returns the highest term (number of a leader) in any claim that this member has received."""
        return self._highest

    @property
    def term(self) -> int:
        """Returns the term of this member's newest claim; each new leader has a higher term."""
        return self._term

    def may_answer(self, now_ns: int, *, within_ns: int) -> bool:
        """Returns whether this member is the leader and may begin an answer that takes up to `within_ns` to arrive."""
        return (
            self.role is Role.LEADER
            and self._confirmed_ns is not None
            and now_ns + within_ns < self._confirmed_ns + self._tenure_ns
        )

    def join(self, member: str, now_ns: int) -> None:
        """Joins the election under a new name, `member`; call it when the broker's retained claims have been heard."""
        self.leave()
        self.member = member
        # A claim of the leader comes within a beat.
        self._next_ns = now_ns + int(self.beat_ns * (2 + self._random.random()))

    def leave(self) -> None:
        """Leaves the election, because the connection is lost: this member is neither leader nor candidate any more."""
        self._step_down()
        self.member = ""
        self._leader = None

    def hear(self, claim: LeaderClaim, now_ns: int) -> None:
        """Processes a claim that has come from the broker, be it of another member or of this one."""
        self._highest = max(self._highest, claim.term)
        if claim.member != self.member and claim.answers:
            # The broker may have retained one old claim, but not two.
            earlier = self._answering
            self._others_answered = self._others_answered or (earlier is not None and earlier != claim)
            self._answering = claim
        if claim.member == self.member:
            self._hear_own(claim, now_ns)
        elif self.role is Role.FOLLOWER:
            # A member that is silent for a tenure does not answer any more, however high its claim was.
            silent = now_ns - self._leader_heard_ns >= self._tenure_ns
            if self._leader is None or silent or claim.rank >= self._leader.rank:
                self._follow(claim, now_ns)
        elif claim.rank > (self._term, self.member):
            self._step_down()
            self._follow(claim, now_ns)
        elif self.role is Role.CLAIMANT and claim.member != self._predecessor:
            # That member may answer now, and has not received this member's claim yet.
            self._predecessor = ""
            if self._waits_from_ns is not None:
                self._waits_from_ns = now_ns

    def hear_gone(self, member: str, now_ns: int) -> None:
        """Processes the broker's message that `member` is gone. If that was the leader, this member will claim soon."""
        if self.role is Role.FOLLOWER and self._leader is not None and self._leader.member == member:
            self._leader = None
            # Members do not claim all at once: the first claim makes the others wait.
            self._next_ns = now_ns + int(self.beat_ns * self._random.random())

    def excuse(self, now_ns: int) -> None:
        """Delays this member's next claim by two beats (times between claims); it may have missed a leader's claims.

        A member calls this after it was busy or asleep. Its claim is delayed only once, because members that are always
        busy have to elect a leader, too.
        """
        if self.role is Role.FOLLOWER and not self._excused:
            self._excused = True
            self._next_ns = max(self._next_ns, now_ns + 2 * self.beat_ns)

    def inherit(self, claim: LeaderClaim, now_ns: int) -> bool:
        """Makes this member claim at once, as the successor of the leader that has sent `claim` and then handed over.

        This member need not wait for a tenure, as that leader has stopped answering. Returns False, and does nothing,
        if this member follows another leader or none.
        """
        if self.role is not Role.FOLLOWER or self._leader is None or self._leader.rank != claim.rank:
            return False
        self._stand(now_ns)
        self._predecessor = claim.member
        return True

    def due_ns(self) -> int:
        """Returns when `tick` has to be called next, in nanoseconds of the monotonic clock."""
        if self.role is Role.CLAIMANT and self._waits_from_ns is not None:
            return min(self._next_ns, self._answers_from_ns(self._waits_from_ns))
        return self._next_ns

    def tick(self, now_ns: int) -> LeaderClaim | None:
        """Updates this member's role for the moment `now_ns`; returns the claim to send to all members now, or None."""
        if not self.member:
            return None
        if self.role is Role.CLAIMANT and self._waits_from_ns is not None:
            if self._predecessor or now_ns >= self._answers_from_ns(self._waits_from_ns):
                self.role = Role.LEADER
                self.succeeds = self._others_answered or self.terms_led > 0
                self.terms_led += 1
                self.inherited = self._predecessor != ""
                self._next_ns = now_ns  # claim at once, for members that wait for a leader
        if now_ns < self._next_ns:
            return None
        if self.role is Role.FOLLOWER:
            self._stand(now_ns)
        self._next_ns = now_ns + self.beat_ns
        self._beat += 1
        self._sent[self._beat] = now_ns
        while len(self._sent) > 2 * BEATS:
            self._sent.popitem(last=False)
        return LeaderClaim(self._term, self.member, self._beat, self.role is Role.LEADER)

    def _hear_own(self, claim: LeaderClaim, now_ns: int) -> None:
        sent_ns = self._sent.get(claim.beat)
        if sent_ns is None or claim.term != self._term or self.role is Role.FOLLOWER:
            return
        if self._confirmed_ns is None or sent_ns > self._confirmed_ns:
            self._confirmed_ns = sent_ns
        if self._waits_from_ns is None:
            self._waits_from_ns = now_ns

    def _stand(self, now_ns: int) -> None:
        self.role = Role.CLAIMANT
        self._term = min(self._highest + 1, TERM_MAX)
        self._excused = False
        self._leader = None
        self._next_ns = now_ns

    def _step_down(self) -> None:
        self.role = Role.FOLLOWER
        self._sent.clear()
        self._confirmed_ns = self._waits_from_ns = None
        self._predecessor = ""

    def _answers_from_ns(self, waits_from_ns: int) -> int:
        """Returns from when the former leader cannot answer any more, even if that leader's clock is slow."""
        return waits_from_ns + int(self._tenure_ns * (1 + 2 * DRIFT))

    def _follow(self, claim: LeaderClaim, now_ns: int) -> None:
        self._leader = claim
        self._leader_heard_ns = now_ns
        self._excused = False
        self._await_silence(now_ns)

    def _await_silence(self, now_ns: int) -> None:
        """Schedules a claim of this member for the case that no other claim comes within a tenure.

        A random part of a beat is added, so that not all members claim at once.
        """
        self._next_ns = now_ns + self._tenure_ns + int(self.beat_ns * self._random.random())
