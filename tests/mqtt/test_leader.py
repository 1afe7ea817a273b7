"""Goal: the ledger is kept by one member at a time, and begins anew with each. Method: members who hear each other."""

from __future__ import annotations

from random import Random

import pytest

from reconverge.clock import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS
from reconverge.hub.clock import DRIFT
from reconverge.hub.report import Answer, Batch, CellReport, LimitReport, Status
from reconverge.testing import ManualClock
from reconverge_sync.merge.usage import UsageState
from reconverge_sync.mqtt.election import TENURE_NS, LeaderClaim, Role
from reconverge_sync.mqtt.leader import Candidate

LIMIT = LimitReport("login", "fixed-window", 60 * 10**6, 100, 100, 0, charged=7, refunded=0)


class Table:
    """Members around a table: what one claims, all hear at once."""

    def __init__(self, *names: str) -> None:
        self.clock = ManualClock(1e9)
        self.made = 0
        self.members = [Candidate(self.clock, random=Random(name), new_name=self.new_name) for name in names]
        for name, leader in zip(names, self.members, strict=True):
            leader.election.join(name, self.clock.monotonic_ns())

    def new_name(self) -> str:
        """Never the same twice."""
        self.made += 1
        return f"data-{self.made}"

    def talk(self, seconds: float) -> None:
        """Let all of them claim what they want to, for so long."""
        for _ in range(round(seconds * 100)):
            self.clock.advance(0.01)
            now_ns = self.clock.monotonic_ns()
            for leader in self.members:
                claim = leader.election.tick(now_ns)
                for other in self.members if claim else ():
                    assert claim is not None
                    other.election.hear(claim, now_ns)

    def leader(self) -> Candidate:
        """The one that answers."""
        (leader,) = (one for one in self.members if one.election.role is Role.LEADER)
        return leader

    def dismiss(self, leader: Candidate) -> str:
        """It is gone, and all are told."""
        name = leader.election.member
        self.members.remove(leader)
        for other in self.members:
            other.election.hear_gone(name, self.clock.monotonic_ns())
        return name


def batch(sequence: int = 1, generation: str = "") -> Batch:
    """Returns the batch of a node that has charged seven."""
    return Batch("node", "account", 0, sequence, generation, 100_000, 30 * 10**6, False, (LIMIT,), ())


def asking(node: str, sequence: int = 1) -> Batch:
    """Returns the batch of a node that knows no hub, and needs all of a limit that is not strict."""
    limit = LIMIT._replace(name="browse", algorithm="token-bucket", overshoot_milli=100)
    cell = CellReport(0, "key", 0, 0, 0, 0, 0, 0, 100_000, 0, 100, 100_000, 100, 0)
    return batch(sequence)._replace(node=node, account=node, limits=(limit,), cells=(cell,))


def allowance_of(answer: Answer) -> int:
    """The allowance that it grants."""
    return answer.cells[0].allowance


def answered(leader: Candidate, said: Batch) -> Answer:
    """Its answer, which there is."""
    answer = leader.merge(said)
    assert answer is not None
    return answer


def leader_and_other() -> tuple[Table, Candidate, Candidate]:
    """Returns two members, after their election, and which of them leads."""
    table = Table("ada", "bob")
    table.talk(10)
    leader = table.leader()
    (other,) = (one for one in table.members if one is not leader)
    return table, leader, other


def test_one_member_answers_and_the_others_know_which() -> None:
    """All send their batches there."""
    table = Table("ada", "bob", "cleo")
    table.talk(10)

    leader = table.leader()
    others = [one for one in table.members if one is not leader]

    assert Status.MERGED is answered(leader, batch()).status
    assert [None, None] == [one.merge(batch(2)) for one in others]
    assert {leader.election.member} == {one.election.leader for one in others}


def test_the_next_steward_begins_with_no_data() -> None:
    """A server that comes back empty does so: the members' reports rebuild it, by rules made for that."""
    table = Table("ada", "bob")
    table.talk(10)
    first = answered(table.leader(), batch())
    table.dismiss(table.leader())
    table.talk(10)

    assert {} == table.leader().totals()
    assert first.generation != answered(table.leader(), batch(2, first.generation)).generation


def test_the_next_steward_grants_a_newcomer_nothing_before_the_others_have_spoken() -> None:
    """They may hold all there is, and a newcomer cannot tell."""
    table = Table("ada", "bob")
    table.talk(10)
    assert 100 == allowance_of(answered(table.leader(), asking("one")))
    table.dismiss(table.leader())
    table.talk(10)
    assert 0 == allowance_of(answered(table.leader(), asking("newcomer")))
    table.talk(3)

    assert 100 == allowance_of(answered(table.leader(), asking("newcomer", sequence=2)))


def test_a_steward_that_comes_back_does_not_go_on_with_what_it_knew() -> None:
    """Others may have been granted allowances meanwhile, of which it has not heard."""
    table = Table("ada")
    table.talk(10)
    first = answered(table.leader(), batch())
    table.members[0].election.join("ada again", table.clock.monotonic_ns())
    table.talk(10)

    assert first.generation != answered(table.leader(), batch(2, first.generation)).generation


def test_who_gets_the_ledger_goes_on_with_it_at_once() -> None:
    """A rolling deployment ends a leader every minute or so, and nobody should notice."""
    table, leaver, successor = leader_and_other()
    first = answered(leaver, batch())
    claim = LeaderClaim(leaver.election.term, leaver.election.member, 0)
    ledger = leaver.hand_over()
    assert ledger is not None
    assert leaver.merge(batch(2)) is None

    assert successor.inherit(claim, ledger)
    table.dismiss(leaver)
    table.talk(0.05)

    assert first.generation == answered(successor, batch(2, first.generation)).generation
    assert 7 == (successor.totals() or {})["login"].charged


def test_a_ledger_that_no_batch_has_come_for_since_can_be_given_on() -> None:
    """With its usage: members may stop one right after the other."""
    table, leaver, successor = leader_and_other()
    answered(leaver, batch())
    claim, usage = LeaderClaim(leaver.election.term, leaver.election.member, 0), UsageState(sequences={"account": 3})
    ledger = leaver.hand_over()
    assert ledger is not None
    assert successor.inherit(claim, ledger, usage)
    table.dismiss(leaver)
    table.talk(0.05)

    successor.go_on()

    assert {"account": 3} == successor.usage.sequences
    assert ledger is successor.hand_over()


def test_a_ledger_that_came_too_late_is_not_used() -> None:
    """The member has been elected the long way meanwhile, and has answered or will by itself."""
    table, leaver, successor = leader_and_other()
    answered(leaver, batch())
    claim = LeaderClaim(leaver.election.term, leaver.election.member, 0)
    ledger = leaver.hand_over()
    assert ledger is not None
    table.dismiss(leaver)
    table.talk(10)

    assert not successor.inherit(claim, ledger)
    assert {} == successor.totals()


@pytest.mark.parametrize("read_late", [False, True], ids=["read when sent", "read when received"])
def test_the_hubs_clock_goes_on_whatever_the_next_stewards_says(read_late: bool) -> None:
    """And never ahead of what it was, or a name would lose its lease at the hub before its node stops."""
    ahead_us, trip_ns = 5 * 10**6, 20 * MILLISECOND_NS
    table, leaver, other = leader_and_other()
    now_ns = table.clock.monotonic_ns()
    hub_us = table.clock.wall_ns() // MICROSECOND_NS + ahead_us
    sent_ns = now_ns - trip_ns * read_late
    other.answered(hub_us, sent_ns=sent_ns, received_ns=sent_ns + trip_ns)
    table.dismiss(leaver)
    table.talk(10)

    late_us = table.clock.wall_ns() // MICROSECOND_NS + ahead_us - answered(other, batch()).hub_us
    drifted_us = DRIFT * (table.clock.monotonic_ns() - now_ns + trip_ns) // MICROSECOND_NS
    assert 0 <= late_us <= trip_ns // MICROSECOND_NS + drifted_us + 2


def test_a_leader_that_leads_again_continues_its_own_clock() -> None:
    """After days, what it once heard of another leader's clock is outdated."""
    table, leaver, other = leader_and_other()
    now_ns = table.clock.monotonic_ns()
    other.answered(table.clock.wall_ns() // MICROSECOND_NS, sent_ns=now_ns, received_ns=now_ns)
    table.dismiss(leaver)
    table.talk(10)
    table.clock.advance(10 * 86_400)
    table.talk(10)
    before_us, wall_us = answered(other, batch()).hub_us, table.clock.wall_ns() // MICROSECOND_NS
    other.election.leave()
    other.election.join("anew", table.clock.monotonic_ns())
    table.talk(10)

    assert 2 == other.election.terms_led
    assert abs(answered(other, batch(2)).hub_us - before_us - (table.clock.wall_ns() // MICROSECOND_NS - wall_us)) <= 1


def test_a_steward_whose_claims_come_back_late_does_not_answer() -> None:
    """Whoever asked gives up before the tenure is over."""
    table = Table("ada")
    table.talk(10)
    table.clock.advance(TENURE_NS / SECOND_NS)

    assert table.leader().merge(batch()) is None
    assert table.leader().totals() is None
