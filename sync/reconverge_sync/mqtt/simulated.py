"""Simulates the members of an MQTT hub under virtual time, with random faults.

The elections and the ledgers are the real ones. The simulated broker sends each member the messages that it took, in
their order. Members are cut off, stalled, killed or asked to hand over, and the broker loses its data, at random from a
seed.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Final

from reconverge.clock import Clock
from reconverge.errors import HubUnavailable
from reconverge.hub.report import Answer, Batch, Totals
from reconverge_sync.merge.rule import LedgerShard
from reconverge_sync.mqtt.election import LeaderClaim, Role
from reconverge_sync.mqtt.leader import WAIT_NS, Candidate

QUEUED_MAX: Final = 1000


class SimulatedMember:
    """A simulated member: its part in the election, its ledger, its unprocessed messages, and its faults."""

    __slots__ = ("batches", "candidate", "connected", "inbox", "last_ns", "looks_ns", "stalled_until_ns")

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.connected = False
        self.stalled_until_ns = 0
        self.last_ns = 0
        """When the last message that the broker has sent to this member arrives; later messages arrive after that."""
        self.looks_ns = 0
        """When the member processes its messages next."""
        self.inbox: deque[object] = deque()
        self.batches: deque[Batch] = deque(maxlen=QUEUED_MAX)


class SimulatedMembers:
    """A simulated MQTT hub of `members` members, which share one virtual `clock`.

    One of `faults` occurs every `calm_ns` on average and lasts up to `longest_ns`; none occurs after `until_ns`. If
    `loyal`, a node asks the same member for the leader each time, as one process does; if not, it learns of a new
    leader at once.

    `merge` raises HubUnavailable, as a hub does, if no member answers.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        new_name: Callable[[], str],
        random: Random,
        members: int = 3,
        tenure_ns: int,
        wait_ns: int = WAIT_NS,
        latency_ns: int,
        calm_ns: int = 0,
        longest_ns: int = 0,
        until_ns: int = 0,
        loyal: bool = False,
        faults: tuple[str, ...] = ("cut", "stall", "crash", "hand over", "restart"),
    ) -> None:
        self._clock = clock
        self._new_name = new_name
        self._random = random
        self._tenure_ns, self._wait_ns = tenure_ns, wait_ns
        self._latency_ns = latency_ns
        self._calm_ns, self._longest_ns, self._until_ns, self._faults = calm_ns, longest_ns, until_ns, faults
        self._loyal = loyal
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._retained: LeaderClaim | None = None
        self.now_ns = clock.monotonic_ns()
        self.seats = [SimulatedMember(self._sit()) for _ in range(members)]
        for seat in self.seats:
            self._connect(seat)
        self._plan_fault()

    def merge(self, batch: Batch) -> Answer:
        """Sends a batch to the leader that the node's member knows, and returns its answer. Raises HubUnavailable."""
        self.pass_until(self._clock.monotonic_ns())
        asked = self._asked(batch.node)
        name = asked.candidate.election.leader
        seat = next((seat for seat in self.seats if name and seat.candidate.election.member == name), None)
        # A member that is the leader itself needs no broker to ask.
        if seat is None or (asked is not seat and not (asked.connected and seat.connected)):
            raise HubUnavailable("timeout", f"the leader, {name or 'none as yet'}, cannot be reached")
        if self.now_ns < seat.stalled_until_ns:
            seat.batches.append(batch)  # it will be merged later, when its caller no longer waits for the answer
            raise HubUnavailable("timeout", f"the leader, {name}, is stalled")
        answer = self._answer(seat, batch)
        if answer is None:
            raise HubUnavailable("timeout", f"the leader, {name or 'none as yet'}, cannot be reached")
        if asked is not seat:
            sent_ns, received_ns = self.now_ns - self._latency_ns, self.now_ns + self._latency_ns
            asked.candidate.answered(answer.hub_us, sent_ns=sent_ns, received_ns=received_ns)
        return answer

    def _asked(self, node: str) -> SimulatedMember:
        """Returns the member that a node asks for the leader."""
        if self._loyal:
            return self.seats[sum(node.encode()) % len(self.seats)]
        leading = [seat for seat in self.seats if seat.candidate.election.role is Role.LEADER and seat.connected]
        return self._random.choice(leading or self.seats)

    def answering(self) -> int:
        """Returns the number of members that would answer now; never more than one."""
        return sum(seat.candidate.election.may_answer(self.now_ns, within_ns=0) for seat in self.seats)

    def sums(self) -> dict[str, Totals]:
        """Returns the totals in the leader's ledger; an empty dictionary if no member may answer."""
        self.pass_until(self._clock.monotonic_ns())
        return next((totals for seat in self.seats if (totals := seat.candidate.totals()) is not None), {})

    def lose_data(self) -> None:
        """Kills the leader, so that its ledger is lost."""
        self.pass_until(self._clock.monotonic_ns())
        for seat in self.seats:
            if seat.candidate.election.role is Role.LEADER:
                self._crash(seat)

    def pass_until(self, moment_ns: int) -> None:
        """Runs all simulated events up to `moment_ns`, and sets the virtual clock to that moment."""
        while self._events and self._events[0][0] <= moment_ns:
            self.now_ns, _, action = heapq.heappop(self._events)
            action()
        self.now_ns = moment_ns

    def _at(self, moment_ns: int, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (moment_ns, self._order, action))

    def _delay_ns(self) -> int:
        """Returns a random delay of a message in nanoseconds: mostly near the usual latency, sometimes much longer."""
        long = self.now_ns < self._until_ns and self._random.random() < 0.02
        return int(self._latency_ns * self._random.uniform(0.5, 1.5)) + long * self._random.randrange(self._tenure_ns)

    def _sit(self) -> Candidate:
        return Candidate(
            self._clock,
            random=Random(self._random.random()),
            new_name=self._new_name,
            tenure_ns=self._tenure_ns,
            wait_ns=self._wait_ns,
        )

    def _connect(self, seat: SimulatedMember) -> None:
        if seat.connected:
            return
        seat.connected = True
        seat.candidate.election.join(self._new_name(), self.now_ns)
        if self._retained is not None:
            self._send_to(seat, self._retained)
        self._look(seat)

    def _disconnect(self, seat: SimulatedMember) -> None:
        """Ends a member's connection at the broker; the member notices it only later."""
        gone = seat.candidate.election.member
        seat.connected = False
        for other in self.seats:
            if other is not seat and other.connected:
                self._send_to(other, gone)

    def _notice(self, seat: SimulatedMember) -> None:
        """Lets a member notice that its connection is lost."""
        if not seat.connected:
            seat.candidate.election.leave()
            seat.inbox.clear()

    def _look(self, seat: SimulatedMember) -> None:
        """Makes a member process its messages, and send a claim if one is due; does nothing while it is stalled."""
        if self.now_ns < seat.stalled_until_ns:
            return
        election = seat.candidate.election
        while seat.inbox:
            what = seat.inbox.popleft()
            if isinstance(what, LeaderClaim):
                election.hear(what, self.now_ns)
            elif isinstance(what, str):
                election.hear_gone(what, self.now_ns)
            elif isinstance(what, tuple):
                claim, ledger = what
                seat.candidate.inherit(claim, ledger)
        claim = election.tick(self.now_ns)
        if claim is not None:
            self._at(self.now_ns + self._delay_ns(), lambda: self._accept(seat, claim))
        if election.member:
            due_ns = max(election.due_ns(), self.now_ns + 1)
            if not self.now_ns < seat.looks_ns <= due_ns:
                seat.looks_ns = due_ns
                self._at(due_ns, lambda: self._look_again(seat, due_ns))

    def _look_again(self, seat: SimulatedMember, due_ns: int) -> None:
        if seat.looks_ns == due_ns:
            self._look(seat)

    def _accept(self, seat: SimulatedMember, claim: LeaderClaim) -> None:
        """Lets the broker retain and distribute a claim, unless the connection on which it was sent is lost."""
        if not seat.connected or seat.candidate.election.member != claim.member:
            return
        self._retained = claim
        for other in self.seats:
            if other.connected:
                self._send_to(other, claim)

    def _send_to(self, seat: SimulatedMember, what: object) -> None:
        seat.last_ns = max(seat.last_ns, self.now_ns + self._delay_ns())
        name = seat.candidate.election.member

        def arrive() -> None:
            if seat.connected and seat.candidate.election.member == name:
                seat.inbox.append(what)
                self._look(seat)

        self._at(seat.last_ns, arrive)

    def _answer(self, seat: SimulatedMember, batch: Batch) -> Answer | None:
        answer = seat.candidate.merge(batch)
        if answer is not None and self.answering() > 1:
            raise RuntimeError(
                f"{self.answering()} members answer as leaders at once, and only one may; this is a bug in the election"
            )
        return answer

    def _plan_fault(self) -> None:
        if self._calm_ns and self._faults:
            at_ns = self.now_ns + max(1, int(self._random.expovariate(1 / self._calm_ns)))
            if at_ns < self._until_ns:
                self._at(at_ns, self._strike)

    def _strike(self) -> None:
        fault = self._random.choice(self._faults)
        seat = self._random.choice(self.seats)
        leading = [seat for seat in self.seats if seat.candidate.election.role is Role.LEADER]
        if leading and self._random.random() < 0.6:
            seat = leading[0]
        lasts_ns = min(int(self._longest_ns * self._random.random() ** 2), self._until_ns - self.now_ns)
        if fault == "cut" and seat.connected:
            self._cut(seat, lasts_ns)
        elif fault == "stall":
            self._stall(seat, lasts_ns)
        elif fault == "crash":
            self._crash(seat)
        elif fault == "hand over" and seat.connected:
            self._hand_over(seat)
        elif fault == "restart":
            if self._random.random() < 0.5:
                self._retained = None
            for one in self.seats:
                if one.connected:
                    self._cut(one, int(self._tenure_ns * self._random.random()))
        self._plan_fault()

    def _cut(self, seat: SimulatedMember, lasts_ns: int) -> None:
        self._disconnect(seat)
        noticed_ns = int(lasts_ns * self._random.random() ** self._random.choice([0, 1, 5]))
        self._at(self.now_ns + noticed_ns, lambda: self._notice(seat))
        self._at(self.now_ns + lasts_ns, lambda: self._return(seat))

    def _return(self, seat: SimulatedMember) -> None:
        self._notice(seat)
        self._connect(seat)

    def _stall(self, seat: SimulatedMember, lasts_ns: int) -> None:
        seat.stalled_until_ns = max(seat.stalled_until_ns, self.now_ns + lasts_ns)
        self._at(seat.stalled_until_ns, lambda: self._wake(seat))

    def _wake(self, seat: SimulatedMember) -> None:
        """Makes a member process the messages that came during its stall, batches first, as that is the worst order."""
        if self.now_ns < seat.stalled_until_ns:
            return
        while seat.batches:
            self._answer(seat, seat.batches.popleft())
        self._look(seat)

    def _crash(self, seat: SimulatedMember) -> None:
        """Kills a member, and starts a new one in its place."""
        if seat.connected:
            self._disconnect(seat)
        seat.connected = False
        seat.inbox.clear()
        seat.batches.clear()
        seat.candidate = self._sit()
        self._at(self.now_ns + self._random.randrange(self._tenure_ns), lambda: self._connect(seat))

    def _hand_over(self, seat: SimulatedMember) -> None:
        """Stops a member in good order; if it is the leader, another member gets its ledger."""
        election = seat.candidate.election
        claim = LeaderClaim(election.term, election.member, 0)
        ledger = seat.candidate.hand_over()
        successors = [other for other in self.seats if other is not seat and other.connected]
        if ledger is not None and successors:
            successor = self._random.choice(successors)
            packed: tuple[LeaderClaim, LedgerShard] = (claim, deepcopy(ledger))
            self._send_to(successor, packed)
        seat.connected = False
        for other in self.seats:
            if other is not seat and other.connected:
                self._send_to(other, claim.member)
        self._at(self.now_ns + self._random.randrange(self._tenure_ns), lambda: self._return(seat))
