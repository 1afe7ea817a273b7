"""Lists the actions of the hub: it merges reports and grants, gives up on names, opens windows, and loses its data."""

# Theory of operation.
#
# A merge is one action for a batch that is under way and for one that comes late: `_heard` replaces the entry,
# `_grants` raises it and answers. The sums over the others are those of the proof; the ledger's own sums may be larger
# (debts, allowances that no answer has brought yet), so a grant sees any amount that is no smaller.
#
# What changes for all names at once (time, the hub's window, a loss of data and the end of the wait after it) is an
# action of its own, though the code does it in the course of a merge. The sums over the others change with it as the
# name that is looked at does.

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from reconverge.simulation.model.at_node import counts, live
from reconverge.simulation.model.guards import Action, Assumption, Law, MeterClass, Move, ProofGuard
from reconverge.simulation.model.state import AnswerState, EntryState, ModelState, Others, ReportState
from reconverge.simulation.model.terms import (
    FALSE,
    NOTHING,
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


def _before(scene: ModelState) -> Fact:
    return scene.hub.window < scene.frame.looked


def _open(scene: ModelState) -> Fact:
    return equal(scene.hub.window, scene.frame.looked)


def by_hubs_clock(scene: ModelState, law: Law) -> Fact:
    """Returns whether the cell has come to the window that the hub's clock is in."""
    if law.meter is not MeterClass.WINDOW:
        return TRUE
    over = scene.hub.now > scene.frame.opens + scene.frame.length
    return law.given(ProofGuard.HUBS_CLOCK, ~over | (scene.hub.window > scene.frame.looked))


def _heard(scene: ModelState, report: ReportState, law: Law) -> EntryState:
    """Returns the entry with the report in it, before anything is granted."""
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
    overdraft = choose(entry.known, lowered(report.overdraft, entry.overdraft), believed(report.overdraft))
    debt = law.by(ProofGuard.DEBTS_COUNT, larger(report.used - allowance, 0), 0)
    part = choose(
        _before(scene), smaller(base, entry.part), choose(_open(scene), smaller(allowance, entry.part), entry.part)
    )
    extra = choose(scene.hub.window <= scene.frame.looked, smaller(overdraft, entry.extra), entry.extra)
    return entry._replace(
        known=TRUE,
        seen=scene.hub.now,
        allowance=allowance,
        base=base,
        overdraft=overdraft,
        debt=choose(mine, debt, entry.debt),
        part=part,
        extra=extra,
    )


def _in_use(scene: ModelState, report: ReportState) -> Amount:
    """Returns what a report says of use in the window that is looked at, as far as the ledger has counted it before."""
    use = smaller(report.used, scene.entry.part + scene.entry.extra)
    return choose(equal(report.window, scene.frame.looked), use, 0)


class _Raised(NamedTuple):
    """The amounts after a grant, and the ledger's sums over the others as the hub sees them."""

    allowance: Amount
    base: Amount
    overdraft: Amount
    sums: Amount
    """Allowances or bases, and debts: no less than the proof's own sum."""
    allowances: Amount
    """Allowances without debts."""


def _raised(law: Law, named: str) -> _Raised:
    return _Raised(
        law.any(f"granted {named}", lambda after: after.entry.allowance),
        law.any(f"granted base {named}", lambda after: after.entry.base),
        law.any(f"granted overdraft {named}", lambda after: after.entry.overdraft),
        law.any(f"sums {named}", lambda after: after.others.parts),
        law.any(f"allowances {named}", lambda after: after.others.parts),
    )


def _may_rise(scene: ModelState, entry: EntryState, report: ReportState, raised: _Raised, law: Law) -> Fact:
    """Returns whether the hub may raise the entry so far."""
    hub, others = scene.hub, scene.others
    mine = equal(report.window, hub.window)
    may = law.given(ProofGuard.WAIT_AFTER_LOSS, ~hub.waits) & ~report.final
    allowance, base, overdraft, sums, allowances = raised
    within = law.given(ProofGuard.ALLOWANCES_WITHIN, implies(_open(scene), allowance + sums <= hub.capacity))
    base_within = law.given(ProofGuard.BASES_WITHIN, implies(_before(scene), base + sums <= hub.capacity))
    own, base_own = law.given(ProofGuard.ALLOWANCE_OWN_WINDOW, mine), law.given(ProofGuard.BASE_OWN_WINDOW, mine)
    held = law.by(
        ProofGuard.DEBTS_AGAINST_OVERDRAFTS, larger(allowance, allowance + entry.debt) + sums, allowance + allowances
    )
    excess = choose(_open(scene), larger(held - hub.capacity, 0), 0)
    room = hub.overdrafts - law.by(ProofGuard.OVERDRAFTS_LESS_EXCESS, excess, 0)
    overdraft_within = law.given(ProofGuard.OVERDRAFTS_WITHIN, overdraft + others.extras <= room)
    return every(
        (
            sums >= others.parts,
            allowances >= 0,
            equal(allowance, entry.allowance) | every((allowance > entry.allowance, may, own, within)),
            equal(base, entry.base) | every((base > entry.base, may, base_own, base_within)),
            equal(overdraft, entry.overdraft) | every((overdraft > entry.overdraft, may, overdraft_within)),
        )
    )


def _most_answered(scene: ModelState, report: ReportState, raised: _Raised, law: Law) -> tuple[Amount, Amount, Amount]:
    """Returns the most that the answer may grant: no more than there is room for, and nothing to what forgets."""
    hub = scene.hub

    def within(amount: Amount, total: Amount, most: Amount) -> Amount:
        return law.by(ProofGuard.ANSWER_WITHIN_ROOM, larger(amount - larger(total - most, 0), 0), amount)

    allowance, base, overdraft, sums, _ = raised
    most = (
        choose(_open(scene), within(allowance, allowance + sums, hub.capacity), allowance),
        choose(_before(scene), within(base, base + sums, hub.capacity), base),
        within(overdraft, overdraft + scene.others.extras, hub.overdrafts),
    )
    allowance, base, overdraft = (choose(report.final, 0, amount) for amount in most)
    return allowance, base, overdraft


class _Grant(NamedTuple):
    needs: Fact
    entry: EntryState
    answer: AnswerState


def _grants(scene: ModelState, entry: EntryState, report: ReportState, law: Law, named: str) -> _Grant:
    """Raises the entry, and answers. The entry is that of `_heard`."""
    hub = scene.hub
    raised = _raised(law, named)
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
        part=choose(_before(scene), larger(entry.part, answered[1]), choose(_open(scene), allowed, entry.part)),
        extra=extra,
    )
    return _Grant(needs, after, AnswerState(TRUE, TRUE, scene.node.knows, hub.window, *answered))


def _merged(scene: ModelState, report: ReportState, law: Law, named: str) -> tuple[Move, AnswerState]:
    """Returns the merge of a report, and the answer to it."""
    hub, entry = scene.hub, scene.entry
    needs = every(
        (
            report.there,
            law.given(ProofGuard.GONE_STAYS_GONE, ~entry.gone),
            law.given(ProofGuard.FOLLOW_AHEAD, hub.window >= report.window),
            by_hubs_clock(scene, law),
        )
    )
    grant = _grants(scene, _heard(scene, report, law), report, law, named)
    after = grant.entry._replace(gone=report.leaves)
    gone = after.allowance + after.debt
    folded_entry = after._replace(allowance=choose(report.leaves, gone, after.allowance))
    others = scene.others
    forgotten = report.final & ~report.leaves
    node = scene.node._replace(spent=choose(forgotten, 0, scene.node.spent))
    return (
        Move(
            needs & grant.needs,
            scene._replace(
                node=node,
                entry=_forgotten(forgotten, folded_entry),
                others=others._replace(
                    parts=others.parts + choose(forgotten, folded_entry.part, 0),
                    extras=others.extras + choose(forgotten, folded_entry.extra, 0),
                ),
            ),
        ),
        grant.answer,
    )


def _forgotten(fact: Fact, entry: EntryState) -> EntryState:
    """Returns the entry; if `fact`, nothing is in it any more: what it counted has gone to the others."""

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
    """The batch under way arrives, and is answered. A copy of it may arrive again."""
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
    """A batch that was given up, or was merged before, arrives. Its answer is ignored."""
    move, _ = _merged(scene, scene.late, law, "late")
    newest = law.given(ProofGuard.SEQUENCE, scene.late.fresh)
    return Move(move.needs & newest, move.after._replace(late=scene.late._replace(fresh=FALSE)))


def gives_up_on(scene: ModelState, law: Law) -> Move:
    """The hub gives up on a name that it has not heard from for a lease."""
    entry, node = scene.entry, scene.node
    silent = law.given(ProofGuard.HUB_WAITS_FOR_LEASE, scene.hub.now > entry.seen + scene.frame.lease)
    needs = every((entry.known, ~entry.gone if law.meter is not MeterClass.SLOTS else TRUE, silent))
    if law.meter is MeterClass.WINDOW:
        needs &= law.assume(Assumption.NOT_AHEAD_WHEN_GONE, node.window <= scene.hub.window)
    if law.meter is MeterClass.SLOTS:
        after = entry._replace(gone=TRUE, allowance=NOTHING, debt=NOTHING, part=NOTHING, extra=NOTHING)
        return Move(needs, scene._replace(entry=after))
    held = law.by(ProofGuard.ALLOWANCE_COUNTS_AS_USED, entry.allowance, 0)
    held += law.by(ProofGuard.OVERDRAFT_COUNTS_AS_USED, entry.overdraft, 0)
    used = larger(held, entry.allowance + entry.debt if law.keeps(ProofGuard.ALLOWANCE_COUNTS_AS_USED) else entry.debt)
    opened, before = _open(scene), _before(scene)
    after = entry._replace(
        gone=TRUE,
        allowance=choose(opened, used, 0),
        base=NOTHING,
        overdraft=NOTHING,
        debt=NOTHING,
        part=choose(before, 0, choose(opened, entry.part + entry.extra, entry.part)),
        extra=choose(before | opened, 0, entry.extra),
    )
    return Move(needs, scene._replace(entry=after))


def forgets_departed(scene: ModelState, law: Law) -> Move:
    """Dated use of a name that is gone does not count any more."""
    entry = scene.entry
    over = scene.hub.now >= entry.seen + scene.frame.lease + scene.frame.length
    needs = entry.gone & law.given(ProofGuard.DATES_COUNT_A_WINDOW, over)
    return Move(needs, scene._replace(entry=entry._replace(part=NOTHING, allowance=NOTHING)))


def opens_window(scene: ModelState, law: Law) -> Move:
    """The hub opens a window, and counts the bases of all names as their allowances."""
    hub, entry = scene.hub, scene.entry
    window = law.any("window", lambda after: after.hub.window)
    forward = law.given(ProofGuard.NEVER_BACK, window > hub.window)
    base = law.by(ProofGuard.ROLL_TAKES_BASES, entry.base, 0)
    allowance = choose(entry.known & ~entry.gone, base, NOTHING)
    after = scene._replace(hub=hub._replace(window=window), entry=entry._replace(allowance=allowance, debt=NOTHING))
    return Move(forward, after)


def loses_data(scene: ModelState, law: Law) -> Move:
    """The hub loses all that it knew."""
    del law
    hub, entry, others, nothing = scene.hub, scene.entry, scene.others, NOTHING
    lost = Others(nothing, nothing, others.parts + others.lost_parts, others.extras + others.lost_extras)
    after = scene._replace(
        hub=hub._replace(waits=TRUE, lost=hub.now),
        node=scene.node._replace(knows=FALSE),
        entry=entry._replace(known=FALSE, gone=FALSE, allowance=nothing, base=nothing, overdraft=nothing, debt=nothing),
        flight=scene.flight._replace(there=scene.flight.there & ~entry.gone),
        late=scene.late._replace(there=FALSE),
        answer=scene.answer._replace(present=FALSE, there=scene.answer.there & ~entry.gone),
        stray=scene.stray._replace(present=FALSE),
        others=lost,
    )
    return Move(TRUE, after)


def ends_wait(scene: ModelState, law: Law) -> Move:
    """The wait after a loss of data is over: what the hub has not heard of counts no longer."""
    hub, entry, frame, others = scene.hub, scene.entry, scene.frame, scene.others
    matters = hub.window <= frame.looked
    unheard = ~entry.known
    until = hub.lost + law.by(ProofGuard.WAIT_A_LEASE, frame.lease, 0)
    if law.meter is not MeterClass.SLOTS:
        until += law.by(ProofGuard.WAIT_TWO_WINDOWS, frame.length + frame.length, 0)
    needs = hub.waits & by_hubs_clock(scene, law)
    if law.strict:
        needs &= hub.now > until
    else:
        spoken = implies(unheard, ~live(scene) & implies(matters & counts(scene, law), equal(scene.node.spent, 0)))
        needs &= law.assume(Assumption.ALL_HAVE_SPOKEN, spoken)
    dropped = unheard & matters
    after = scene._replace(
        hub=hub._replace(waits=FALSE),
        entry=entry._replace(part=choose(dropped, 0, entry.part), extra=choose(dropped, 0, entry.extra)),
        flight=_unless_it_says(scene.flight, unheard),
        late=_unless_it_says(scene.late, unheard),
        answer=scene.answer._replace(there=scene.answer.there & (scene.answer.present if not law.strict else TRUE)),
        others=others._replace(
            lost_parts=choose(matters, 0, others.lost_parts),
            lost_extras=choose(matters, 0, others.lost_extras),
        ),
    )
    law.assume(Assumption.NO_BATCH_OUTLIVES_A_WAIT, TRUE)
    law.assume(Assumption.NO_LATE_BATCH_AFTER_LOSS, TRUE)
    return Move(needs, after)


def _unless_it_says(report: ReportState, unheard: Fact) -> ReportState:
    """Returns a report of a name that the hub has not heard of; it is lost if it reports any allowance."""
    nothing = every(equal(amount, 0) for amount in (report.allowance, report.base, report.overdraft))
    return report._replace(there=report.there & (~unheard | nothing))


def changes_quota(scene: ModelState, law: Law) -> Move:
    """The hub learns that the smallest quota of all nodes has changed."""
    hub = scene.hub
    capacity = law.any("capacity", lambda after: after.hub.capacity)
    after = hub._replace(capacity=capacity, most=larger(hub.most, capacity))
    return Move(capacity >= 0, scene._replace(hub=after))


def passes_time(scene: ModelState, law: Law) -> Move:
    """Time passes."""
    now = law.any("now", lambda after: after.hub.now, whole=False)
    return Move(now >= scene.hub.now, scene._replace(hub=scene.hub._replace(now=now)))


def hub_actions(law: Law) -> Mapping[str, Action]:
    """Returns what can happen at the hub, of limits of that class and under that policy."""
    found: dict[str, Action] = {
        "a batch is merged": merges,
        "a late batch is merged": merges_late,
        "the hub gives up on a name": gives_up_on,
        "the hub loses its data": loses_data,
        "the wait after a loss ends": ends_wait,
        "time passes": passes_time,
        "the hub learns of another quota": changes_quota,
    }
    if law.meter is MeterClass.WINDOW:
        found["the hub opens a window"] = opens_window
    if law.meter is MeterClass.DATED:
        found["the hub forgets what has departed"] = forgets_departed
    return found
