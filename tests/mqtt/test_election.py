"""Goal: never two members answer, and soon one does. Method: the machine, message by message; then rehearsals."""

from __future__ import annotations

from random import Random

import pytest

from reconverge.clock import SECOND_NS
from reconverge.testing import ManualClock
from reconverge_sync.mqtt.election import BEATS, TENURE_NS, TERM_MAX, Election, LeaderClaim, Role
from reconverge_sync.mqtt.simulated import SimulatedMembers

BEAT_NS = TENURE_NS // BEATS
STEPS = 4000
STEP_S = 0.02


def member(name: str, now_ns: int = 0) -> Election:
    """One that has just joined."""
    election = Election(random=Random(name))
    election.join(name, now_ns)
    return election


def claimed(election: Election) -> LeaderClaim:
    claim = election.tick(election.due_ns())
    assert claim is not None
    return claim


def elected(name: str) -> tuple[Election, int]:
    """A member that answers, and the moment at which it began to."""
    return reigning(member(name))


def reigning(election: Election) -> tuple[Election, int]:
    """The member, once it answers, and the moment at which it began to."""
    now_ns = election.due_ns()
    while election.role is not Role.LEADER:
        now_ns = max(now_ns, election.due_ns())
        claim = election.tick(now_ns)
        if claim is not None:
            election.hear(claim, now_ns)
    return election, now_ns


def test_nobody_answers_before_its_claim_has_come_back_and_a_tenure_has_passed() -> None:
    """Until then somebody else may answer who has not heard of it."""
    election = member("ada")
    claim = claimed(election)
    election.tick(10 * TENURE_NS)
    roles = [election.role]
    election.hear(claim, 10 * TENURE_NS)
    election.tick(11 * TENURE_NS)
    roles.append(election.role)
    election.tick(11 * TENURE_NS + TENURE_NS // 1000)
    roles.append(election.role)

    assert [Role.CLAIMANT, Role.CLAIMANT, Role.LEADER] == roles


def test_whoever_hears_its_claims_no_more_answers_for_a_tenure_at_most() -> None:
    """It may be cut off, and somebody else be elected."""
    election, now_ns = elected("ada")

    assert election.may_answer(now_ns, within_ns=0)
    assert not election.may_answer(now_ns + TENURE_NS, within_ns=0)
    assert not election.may_answer(now_ns, within_ns=TENURE_NS)


def test_whoever_hears_a_higher_claim_answers_no_more() -> None:
    """The other waits until this one has; it must not begin again by itself."""
    election, now_ns = elected("ada")

    election.hear(LeaderClaim(election.term + 1, "bob", 1), now_ns)

    assert not election.may_answer(now_ns, within_ns=0)
    assert "bob" == election.leader


@pytest.mark.parametrize(("heard", "succeeds"), [(0, False), (1, False), (2, True)])
def test_whoever_is_heard_to_answer_twice_was_there(heard: int, succeeds: bool) -> None:
    """A single answer may be one that the broker has kept of another time."""
    election = member("ada")
    for beat in range(heard):
        election.hear(LeaderClaim(7, "bob", beat, answers=True), 0)
        election.hear(LeaderClaim(7, "bob", beat, answers=True), 0)
    reigning(election)

    assert succeeds == election.succeeds


@pytest.mark.parametrize("first", ["ada", "bob"])
def test_of_two_that_claim_at_once_one_gives_way(first: str) -> None:
    """In whatever order the broker takes the two claims, it is the same that does."""
    ada, bob = member("ada"), member("bob")
    claims = sorted([claimed(ada), claimed(bob)], key=lambda claim: claim.member != first)

    for claim in claims:
        ada.hear(claim, 0)
        bob.hear(claim, 0)

    assert (Role.FOLLOWER, Role.CLAIMANT) == (ada.role, bob.role)
    assert "bob" == ada.leader


def test_whoever_waits_begins_anew_when_another_still_claims_below_it() -> None:
    """That one may answer, and has not heard yet that it must not."""
    bob = member("bob")
    bob.hear(claimed(bob), 0)
    bob.hear(LeaderClaim(1, "ada", 7), TENURE_NS)
    bob.tick(TENURE_NS + TENURE_NS // 2)
    roles = [bob.role]
    bob.tick(2 * TENURE_NS + TENURE_NS // 1000)
    roles.append(bob.role)

    assert [Role.CLAIMANT, Role.LEADER] == roles


def test_a_new_connection_begins_as_a_follower() -> None:
    """A higher claim may have gone by meanwhile."""
    election, now_ns = elected("ada")

    election.join("ada again", now_ns)

    assert not election.may_answer(now_ns, within_ns=0)
    assert "" == election.leader


def test_the_heir_answers_as_soon_as_its_claim_has_come_back() -> None:
    """Whoever named it has stopped to answer before."""
    bob = member("bob")
    will = LeaderClaim(5, "ada", 9)
    bob.hear(will, 0)
    assert bob.inherit(will, 0)
    claim = bob.tick(0)
    assert claim is not None

    bob.hear(will, 1)  # what was still under way
    bob.hear(claim, 1)
    bob.tick(1)

    assert bob.may_answer(1, within_ns=0)
    assert bob.inherited


def test_an_heir_that_hears_of_somebody_else_waits_like_all_others() -> None:
    """The other may have waited long enough already."""
    bob = member("bob")
    will = LeaderClaim(5, "ada", 9)
    bob.hear(will, 0)
    bob.inherit(will, 0)
    claim = bob.tick(0)
    assert claim is not None

    bob.hear(LeaderClaim(6, "aaron", 1), 1)
    bob.hear(claim, 1)
    bob.tick(1)

    assert not bob.may_answer(1, within_ns=0)


def test_nobody_inherits_from_one_that_it_does_not_follow() -> None:
    """Such a message is late, or somebody has been elected since."""
    bob = member("bob")
    assert not bob.inherit(LeaderClaim(5, "ada", 9), 0)

    bob.hear(LeaderClaim(6, "cleo", 1), 0)

    assert not bob.inherit(LeaderClaim(5, "ada", 9), 0)


def test_somebody_claims_within_a_beat_when_the_steward_is_gone() -> None:
    """The broker tells that its connection has ended."""
    bob = member("bob")
    bob.hear(LeaderClaim(5, "ada", 9), 0)
    patient_ns = bob.due_ns()

    bob.hear_gone("ada", 0)

    assert bob.due_ns() <= BEAT_NS < TENURE_NS <= patient_ns


def test_after_a_claim_of_the_highest_term_others_claim_that_term_too() -> None:
    """Somebody lies; when he is silent, names decide."""
    bob = member("bob")
    bob.hear(LeaderClaim(TERM_MAX, "mallory", 1), 0)

    assert TERM_MAX == claimed(bob).term


@pytest.mark.parametrize("seed", range(12))
def test_never_two_answer_whatever_happens_and_somebody_does_in_the_end(seed: int) -> None:
    """Members are cut off, stalled, killed, hand over, and the broker forgets everything, for a minute."""
    random, clock, names = Random(seed), ManualClock(1e9), iter(range(10**9))
    begin_ns = clock.monotonic_ns()
    rehearsal = SimulatedMembers(
        clock=clock,
        new_name=lambda: f"member-{next(names)}",
        random=random,
        members=random.randint(2, 6),
        tenure_ns=TENURE_NS,
        latency_ns=int(10 ** random.uniform(5, 8)),
        calm_ns=int(TENURE_NS * 10 ** random.uniform(-0.3, 1)),
        longest_ns=10 * TENURE_NS,
        until_ns=begin_ns + 60 * SECOND_NS,
    )

    most = 0
    for _ in range(STEPS):
        clock.advance(STEP_S)
        rehearsal.pass_until(clock.monotonic_ns())
        most = max(most, rehearsal.answering())

    assert 1 == most
    assert 1 == rehearsal.answering()
