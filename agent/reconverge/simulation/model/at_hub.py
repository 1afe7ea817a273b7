"""The merge of a report in the proof: the hub changes the ledger's entry of a node's name, grants more, and answers."""

# Theory of operation.
#
# A merge is one action for a batch that is under way and for one that comes late: `_heard` replaces the entry,
# `_grants` raises it and answers.
#
# The proof may choose any sums of the ledger over the other names, if they contain what each of these names has: an
# invariant of one name holds for each name, and so for sums as well. All use beyond allowances, the debt, takes room
# from allowances; the part of it that no overdraft covers takes room from overdrafts.

from __future__ import annotations

from typing import NamedTuple

from reconverge.simulation.model.guards import Law, MeterClass, Move, ProofGuard
from reconverge.simulation.model.state import AnswerState, EntryState, ModelState, ReportState
from reconverge.simulation.model.terms import (
    FALSE,
    TRUE,
    Amount,
    Fact,
    choose,
    decide,
    equal,
    every,
    implies,
    larger,
    smaller,
)


def is_before(scene: ModelState) -> Fact:
    """Returns the condition that the hub has yet to open the window `frame.looked`, the one that the proof looks at."""
    return scene.hub.window < scene.frame.looked


def is_open(scene: ModelState) -> Fact:
    """Returns the condition that the hub's cell is in the window `frame.looked`, the one that the proof looks at."""
    return equal(scene.hub.window, scene.frame.looked)


def by_hubs_clock(scene: ModelState, law: Law) -> Fact:
    """Returns the condition that the hub's cell is in no earlier window than the hub's clock."""
    if law.meter is not MeterClass.WINDOW:
        return TRUE
    over = scene.hub.now > scene.frame.opens + scene.frame.length
    return law.given(ProofGuard.HUBS_CLOCK, ~over | (scene.hub.window > scene.frame.looked))


def held(scene: ModelState) -> Amount:
    """Returns the most that the node may have used, or may still be granted, in window `frame.looked`."""
    entry = scene.entry
    there = entry.known & ~entry.gone & ~entry.left
    counted = entry.part + entry.extra
    now = choose(there, larger(entry.allowance + entry.overdraft, counted), counted)
    next_one = choose(there, larger(entry.base, entry.part), entry.part)
    return choose(is_before(scene), next_one, choose(is_open(scene), now, counted))


def held_beyond(scene: ModelState) -> Amount:
    """Returns the part of `held(scene)` that is overdraft."""
    return choose(scene.entry.gone, scene.entry.extra, larger(scene.entry.overdraft, scene.entry.extra))


def _heard(scene: ModelState, report: ReportState, law: Law) -> EntryState:
    """Returns the hub's entry after `report` has changed it, before the hub grants anything."""
    entry = scene.entry
    mine = equal(report.window, scene.hub.window)

    def lowered(to: Amount, before: Amount) -> Amount:
        return law.by(ProofGuard.NONE_RISES_BY_REPORT, smaller(to, before), to)

    own = law.given(ProofGuard.LOWER_OWN_WINDOW, mine)
    known = choose(own, lowered(report.allowance, entry.allowance), entry.allowance)
    welcome = choose(mine, report.allowance, law.by(ProofGuard.WELCOME_BASE, report.base, report.allowance))

    def believed(amount: Amount) -> Amount:
        return law.by(ProofGuard.WELCOME_BELIEVES, amount, 0)

    allowance = choose(entry.known, known, believed(welcome))
    base = choose(entry.known, lowered(report.base, entry.base), believed(report.base))
    debt = choose(mine, law.by(ProofGuard.DEBTS_COUNT, larger(report.used - allowance, 0), 0), entry.debt)
    in_use = law.by(ProofGuard.LEDGER_KEEPS_OVERDRAFT_IN_USE, larger(report.overdraft, debt), report.overdraft)
    overdraft = choose(entry.known, lowered(in_use, entry.overdraft), believed(report.overdraft))
    part = choose(
        is_before(scene), smaller(base, entry.part), choose(is_open(scene), smaller(allowance, entry.part), entry.part)
    )
    extra = choose(scene.hub.window <= scene.frame.looked, smaller(overdraft, entry.extra), entry.extra)
    return entry._replace(
        known=TRUE,
        seen=scene.hub.now,
        allowance=allowance,
        base=base,
        overdraft=overdraft,
        debt=debt,
        part=part,
        extra=extra,
    )


def _in_use(scene: ModelState, report: ReportState) -> Amount:
    """Returns the use in window `frame.looked` according to a report, but no more than the ledger counted before."""
    use = smaller(report.used, scene.entry.part + scene.entry.extra)
    return choose(equal(report.window, scene.frame.looked), use, 0)


class _Raised(NamedTuple):
    """The amounts of an entry after a grant, and the ledger's sums over all other names."""

    allowance: Amount
    base: Amount
    overdraft: Amount
    allowances: Amount
    bases: Amount
    overdrafts: Amount
    debts: Amount
    uncovered: Amount
    """The part of the other names' debts that none of their overdrafts covers."""


def _raised(law: Law, entry: EntryState, report: ReportState, named: str) -> _Raised:
    last = report.final
    return _Raised(
        choose(last, entry.allowance, law.any(f"granted {named}", lambda after: after.entry.allowance)),
        choose(last, entry.base, law.any(f"granted base {named}", lambda after: after.entry.base)),
        choose(last, entry.overdraft, law.any(f"granted overdraft {named}", lambda after: after.entry.overdraft)),
        *(law.any(f"{of} of others {named}", lambda after: after.others.held) for of in SUMS),
    )


SUMS = ("allowances", "bases", "overdrafts", "debts", "uncovered")
"""The names of the sums over all other names that bound a grant of the hub."""


def _sums_have_it(scene: ModelState, raised: _Raised) -> Fact:
    """Returns the condition that the ledger's sums over other names include the amounts that these names hold."""
    others = scene.others
    with_debts = raised.allowances + raised.debts + raised.overdrafts
    covered = raised.allowances + raised.uncovered + raised.overdrafts
    opened = (others.held <= with_debts) & (others.held <= covered)
    return every(
        (
            *(amount >= 0 for amount in (raised.allowances, raised.debts, raised.uncovered, raised.overdrafts)),
            implies(scene.hub.window <= scene.frame.looked, equal(others.overdrafts, raised.overdrafts)),
            implies(is_open(scene), opened),
            implies(is_before(scene), others.held <= raised.bases),
        )
    )


def _may_rise(scene: ModelState, entry: EntryState, report: ReportState, raised: _Raised, law: Law) -> Fact:
    """Returns the condition that the hub may raise the entry to the amounts in `raised`."""
    hub = scene.hub
    mine = equal(report.window, hub.window)
    may = law.given(ProofGuard.WAIT_AFTER_LOSS, ~hub.waits)
    allowance, base, overdraft = raised.allowance, raised.base, raised.overdraft
    within = law.given(ProofGuard.ALLOWANCES_WITHIN, allowance + raised.allowances + raised.debts <= hub.capacity)
    base_within = law.given(ProofGuard.BASES_WITHIN, base + raised.bases <= hub.capacity)
    own, base_own = law.given(ProofGuard.ALLOWANCE_OWN_WINDOW, mine), law.given(ProofGuard.BASE_OWN_WINDOW, mine)
    debt = larger(entry.debt - (allowance - entry.allowance), 0)
    beside = law.by(ProofGuard.UNCOVERED_USE_TAKES_ROOM, raised.uncovered + larger(debt - entry.overdraft, 0), 0)
    excess = larger(allowance + raised.allowances + beside - hub.capacity, 0)
    room = hub.overdrafts - law.by(ProofGuard.OVERDRAFTS_LESS_EXCESS, excess, 0)
    overdraft_within = law.given(ProofGuard.OVERDRAFTS_WITHIN, overdraft + raised.overdrafts <= room)
    return every(
        (
            _sums_have_it(scene, raised),
            equal(allowance, entry.allowance) | every((allowance > entry.allowance, may, own, within)),
            equal(base, entry.base) | every((base > entry.base, may, base_own, base_within)),
            equal(overdraft, entry.overdraft) | every((overdraft > entry.overdraft, may, overdraft_within)),
        )
    )


def _most_answered(scene: ModelState, report: ReportState, raised: _Raised, law: Law) -> tuple[Amount, ...]:
    """Returns the highest allowance, base and overdraft that an answer may grant: no more than there is room for.

    All are 0 if the node forgets the key with this report.
    """
    hub = scene.hub

    def within(amount: Amount, others: Amount, most: Amount) -> Amount:
        room = larger(amount - larger(amount + others - most, 0), 0)
        return choose(report.final & ~report.leaves, 0, law.by(ProofGuard.ANSWER_WITHIN_ROOM, room, amount))

    return (
        within(raised.allowance, raised.allowances, hub.capacity),
        within(raised.base, raised.bases, hub.capacity),
        within(raised.overdraft, raised.overdrafts, hub.overdrafts),
    )


class _Grant(NamedTuple):
    needs: Fact
    entry: EntryState
    answer: AnswerState


def _grants(scene: ModelState, entry: EntryState, report: ReportState, law: Law, named: str) -> _Grant:
    """Returns a grant: its preconditions, the raised entry and the answer. `entry` is a result of `_heard`."""
    hub = scene.hub
    raised = _raised(law, entry, report, named)
    needs = _may_rise(scene, entry, report, raised, law)
    answered = (
        law.any(f"answered allowance {named}", lambda after: after.answer.allowance),
        law.any(f"answered base {named}", lambda after: after.answer.base),
        law.any(f"answered overdraft {named}", lambda after: after.answer.overdraft),
    )
    for amount, most in zip(answered, _most_answered(scene, report, raised, law), strict=True):
        needs &= (amount >= 0) & (amount <= most)
    written = law.keeps(ProofGuard.RAISE_BEFORE_ANSWER)
    extra = choose(hub.window <= scene.frame.looked, larger(entry.extra, answered[2]), entry.extra)
    allowed = larger(larger(entry.part, answered[0]), _in_use(scene, report) - extra)
    left = smaller(entry.debt, larger(report.used - raised.allowance, 0))
    after = entry._replace(
        allowance=raised.allowance if written else entry.allowance,
        base=raised.base if written else entry.base,
        overdraft=raised.overdraft if written else entry.overdraft,
        debt=choose(equal(report.window, hub.window), left, entry.debt),
        part=choose(is_before(scene), larger(entry.part, answered[1]), choose(is_open(scene), allowed, entry.part)),
        extra=extra,
    )
    return _Grant(needs, after, AnswerState(TRUE, TRUE, scene.node.knows, hub.window, *answered))


def _merged(scene: ModelState, report: ReportState, law: Law, named: str) -> tuple[Move, AnswerState]:
    """Returns the step by which the hub merges a report, and its answer."""
    hub, entry = scene.hub, scene.entry
    needs = every(
        (
            report.there,
            law.given(ProofGuard.GONE_STAYS_GONE, ~entry.gone & ~entry.left),
            law.given(ProofGuard.FOLLOW_AHEAD, hub.window >= report.window),
            by_hubs_clock(scene, law),
        )
    )
    grant = _grants(scene, _heard(scene, report, law), report, law, named)
    after = grant.entry._replace(left=report.leaves)
    others = scene.others
    forgotten = report.final & ~report.leaves
    node = scene.node._replace(spent=choose(forgotten, 0, scene.node.spent))
    taken_over = choose(forgotten & ~is_before(scene), after.part + after.extra, 0)
    return (
        Move(
            needs & grant.needs,
            scene._replace(
                node=node,
                entry=_forgotten(forgotten, after),
                others=others._replace(held=others.held + taken_over),
            ),
        ),
        grant.answer,
    )


def _forgotten(fact: Fact, entry: EntryState) -> EntryState:
    """Returns the entry; an empty one if `fact` is true, as its amounts are then counted with the other names."""

    def kept(amount: Amount) -> Amount:
        return choose(fact, 0, amount)

    return entry._replace(
        known=entry.known & ~fact,
        allowance=kept(entry.allowance),
        base=kept(entry.base),
        overdraft=kept(entry.overdraft),
        debt=kept(entry.debt),
        part=kept(entry.part),
        extra=kept(entry.extra),
    )


def merges(scene: ModelState, law: Law) -> Move:
    """Returns the step in which the batch under way arrives and is answered. A copy of it may arrive again."""
    move, answer = _merged(scene, scene.flight, law, "in time")
    copied = law.either("repeated", lambda after: after.late.there)
    flight, late = scene.flight, scene.late
    again = flight._replace(there=TRUE)
    copy = late._replace(
        there=decide(copied, again.there, late.there),
        fresh=FALSE,
        final=decide(copied, flight.final, late.final),
        leaves=decide(copied, flight.leaves, late.leaves),
        window=choose(copied, flight.window, late.window),
        allowance=choose(copied, flight.allowance, late.allowance),
        base=choose(copied, flight.base, late.base),
        overdraft=choose(copied, flight.overdraft, late.overdraft),
        used=choose(copied, flight.used, late.used),
    )
    after = move.after._replace(flight=flight._replace(there=FALSE), late=copy, answer=answer)
    return Move(move.needs, after)


def merges_late(scene: ModelState, law: Law) -> Move:
    """Returns the step in which a batch arrives that was given up, or merged before. Its answer is ignored."""
    move, _ = _merged(scene, scene.late, law, "late")
    newest = law.given(ProofGuard.SEQUENCE, scene.late.fresh)
    return Move(move.needs & newest, move.after._replace(late=scene.late._replace(fresh=FALSE)))
