"""The actions of the hub besides merges: it gives up on names, opens windows, and loses its data."""

# Theory of operation.
#
# A change for all names at once (time, the hub's window, a loss of data and the end of the wait after it) is an action
# of its own, though the code makes it during a merge. It changes the sums over the other names in the same way as the
# one name that the proof looks at.

from __future__ import annotations

from collections.abc import Mapping

from reconverge.simulation.model.at_hub import by_hubs_clock, is_before, is_open, merges, merges_late
from reconverge.simulation.model.at_node import counts, live, needs_no_report
from reconverge.simulation.model.guards import Action, Assumption, Law, MeterClass, Move, ProofGuard
from reconverge.simulation.model.state import ModelState, Others, ReportState, holds_nothing
from reconverge.simulation.model.terms import (
    FALSE,
    NOTHING,
    TRUE,
    Fact,
    choose,
    equal,
    every,
    implies,
    larger,
    smaller,
)


def gives_up_on(scene: ModelState, law: Law) -> Move:
    """Returns the step in which the hub gives up on a name whose lease is over, or whose node has left."""
    entry, node, hub, frame = scene.entry, scene.node, scene.hub, scene.frame
    idle = entry.seen + frame.lease
    silent = law.given(ProofGuard.HUB_WAITS_FOR_LEASE, hub.now > idle)
    over = silent | entry.left if law.meter is not MeterClass.SLOTS else silent
    needs = every((entry.known, ~entry.gone, over, by_hubs_clock(scene, law)))
    if law.meter is MeterClass.WINDOW:
        needs &= law.assume(Assumption.NOT_AHEAD_WHEN_GONE, entry.left | (node.window <= hub.window))
    gone = entry._replace(gone=TRUE, left=FALSE, base=NOTHING, overdraft=NOTHING, debt=NOTHING)
    if law.meter is MeterClass.SLOTS:
        return Move(needs, scene._replace(entry=gone._replace(allowance=NOTHING, part=NOTHING, extra=NOTHING)))
    settled = entry.left & equal(entry.allowance, 0) & (entry.overdraft <= entry.debt)
    unheard = law.by(ProofGuard.ALLOWANCE_COUNTS_AS_USED, entry.allowance, 0)
    unheard += choose(settled, 0, law.by(ProofGuard.OVERDRAFT_COUNTS_AS_USED, entry.overdraft, 0))
    unheard = choose(hub.now > idle + frame.length + frame.length, 0, unheard)
    in_debt = choose(entry.debt > 0, entry.allowance + entry.debt, 0)
    used = law.any("departed", lambda after: after.entry.allowance)
    opened, before = is_open(scene), is_before(scene)
    after = gone._replace(
        allowance=used,
        part=choose(before, 0, choose(opened, smaller(entry.part + entry.extra, used), entry.part)),
        extra=choose(before | opened, 0, entry.extra),
    )
    return Move(needs & (used >= unheard) & (used >= in_debt), scene._replace(entry=after))


def lets_expire(scene: ModelState, law: Law) -> Move:
    """Returns the step in which charges with dates expire at the hub, at the time that the node's last report gave."""
    entry = scene.entry
    part, extra = smaller(entry.part, entry.allowance), smaller(entry.extra, entry.overdraft)
    spent = implies(counts(scene, law), scene.node.spent <= part + extra + scene.frame.request)
    needs = entry.known & ~entry.gone & law.assume(Assumption.DATES, spent)
    return Move(needs, scene._replace(entry=entry._replace(debt=NOTHING, part=part, extra=extra)))


def forgets_departed(scene: ModelState, law: Law) -> Move:
    """Returns the step in which the hub drops charges with dates of a departed name, because they count no more."""
    entry = scene.entry
    over = scene.hub.now >= entry.seen + scene.frame.lease + scene.frame.length
    # For a node that has left, the hub uses the dates in its last report.
    dated = law.assume(Assumption.DATES, ~counts(scene, law))
    needs = entry.gone & law.given(ProofGuard.DATES_COUNT_A_WINDOW, over | dated)
    return Move(needs, scene._replace(entry=entry._replace(part=NOTHING, allowance=NOTHING)))


def opens_window(scene: ModelState, law: Law) -> Move:
    """Returns the step in which the hub opens a window; the bases of all names become their allowances."""
    hub, entry = scene.hub, scene.entry
    window = law.any("window", lambda after: after.hub.window)
    forward = law.given(ProofGuard.NEVER_BACK, window > hub.window)
    base = law.by(ProofGuard.ROLL_TAKES_BASES, entry.base, 0)
    allowance = choose(entry.known & ~entry.gone, base, NOTHING)
    others, reached = scene.others, is_before(scene) & (window >= scene.frame.looked)
    most = others.held + choose(reached, others.overdrafts, 0)
    most_lost = others.lost + choose(reached, others.lost_overdrafts, 0)
    held = law.any("held by others", lambda after: after.others.held)
    lost = law.any("lost by others", lambda after: after.others.lost)
    after = scene._replace(
        hub=hub._replace(window=window),
        entry=entry._replace(allowance=allowance, debt=NOTHING),
        others=others._replace(held=held, lost=lost),
    )
    return Move(every((forward, held >= 0, held <= most, lost >= 0, lost <= most_lost)), after)


def loses_data(scene: ModelState, law: Law) -> Move:
    """Returns the step in which the hub loses all its data."""
    hub, entry, others, nothing = scene.hub, scene.entry, scene.others, NOTHING
    # A node that the hub has never answered holds nothing, and takes the new data for the first.
    spotless = equal(scene.node.spent, 0) if law.strict else TRUE
    unheard = holds_nothing(scene.node) & spotless & ~scene.answer.there & ~scene.errand.answered
    knows = law.either("never heard of any", lambda after: after.node.knows) & unheard & scene.node.knows
    lost = Others(nothing, nothing, others.held + others.lost, others.overdrafts + others.lost_overdrafts)
    over = entry.gone | entry.left
    after = scene._replace(
        hub=hub._replace(waits=TRUE, lost=hub.now),
        node=scene.node._replace(knows=knows),
        entry=entry._replace(
            known=FALSE, gone=FALSE, left=FALSE, allowance=nothing, base=nothing, overdraft=nothing, debt=nothing
        ),
        flight=scene.flight._replace(there=scene.flight.there & ~over),
        late=scene.late._replace(there=FALSE),
        answer=scene.answer._replace(present=FALSE, there=scene.answer.there & ~over),
        stray=scene.stray._replace(present=FALSE),
        errand=scene.errand._replace(present=FALSE, under_way=scene.errand.under_way & ~over),
        others=lost,
    )
    return Move(TRUE, after)


def ends_wait(scene: ModelState, law: Law) -> Move:
    """Returns the step that ends the hub's wait after a loss: names that have not reported since count no longer."""
    hub, entry, frame, others = scene.hub, scene.entry, scene.frame, scene.others
    matters = hub.window <= frame.looked
    unheard = ~entry.known
    until = hub.lost + law.by(ProofGuard.WAIT_A_LEASE, frame.lease, 0)
    if law.meter is not MeterClass.SLOTS:
        until += law.by(ProofGuard.WAIT_TWO_WINDOWS, frame.length + frame.length, 0)
    needs = hub.waits & by_hubs_clock(scene, law)
    mattering = implies(matters & counts(scene, law), equal(scene.node.spent, 0))
    if law.strict:
        # A hub does not wait a whole lease if no node has ever had answers from other data: no node holds anything.
        idle = holds_nothing(scene.node) & equal(scene.node.spent, 0)
        none = implies(unheard, (~live(scene) | idle) & mattering) & _only_present(scene, law)
        needs &= (hub.now > until) | none
    else:
        needs &= law.assume(Assumption.ALL_HAVE_SPOKEN, implies(unheard, ~live(scene) & mattering))
    dropped = unheard & matters
    after = scene._replace(
        hub=hub._replace(waits=FALSE),
        entry=entry._replace(part=choose(dropped, 0, entry.part), extra=choose(dropped, 0, entry.extra)),
        flight=_unless_it_says(scene.flight, unheard),
        late=_unless_it_says(scene.late, unheard),
        answer=scene.answer._replace(there=scene.answer.there & (scene.answer.present if not law.strict else TRUE)),
        errand=scene.errand._replace(
            answered=scene.errand.answered & (scene.errand.present if not law.strict else TRUE)
        ),
        others=others._replace(
            lost=choose(matters, 0, others.lost),
            lost_overdrafts=choose(matters, 0, others.lost_overdrafts),
        ),
    )
    law.assume(Assumption.NO_BATCH_OUTLIVES_A_WAIT, TRUE)
    law.assume(Assumption.NO_LATE_BATCH_AFTER_LOSS, TRUE)
    return Move(needs, after)


def _only_present(scene: ModelState, law: Law) -> Fact:
    """Returns the condition that no answer under way comes from data that the hub has lost since.

    An answer about other keys may, as it only renews the lease, if that needs no report of this key.
    """
    answer, errand = scene.answer, scene.errand
    harmless = needs_no_report(scene, law)
    return (~answer.there | answer.present) & (~errand.answered | errand.present | harmless)


def _unless_it_says(report: ReportState, unheard: Fact) -> ReportState:
    """Returns `report`; if `unheard` is true (the hub does not know its name), lost unless its amounts are 0."""
    nothing = every(equal(amount, 0) for amount in (report.allowance, report.base, report.overdraft))
    return report._replace(there=report.there & (~unheard | nothing))


def changes_quota(scene: ModelState, law: Law) -> Move:
    """Returns the step in which the hub learns that the smallest quota of all nodes has changed."""
    hub = scene.hub
    capacity = law.any("capacity", lambda after: after.hub.capacity)
    after = hub._replace(capacity=capacity, most=larger(hub.most, capacity))
    return Move(capacity >= 0, scene._replace(hub=after))


def passes_time(scene: ModelState, law: Law) -> Move:
    """Returns the step in which time passes."""
    now = law.any("now", lambda after: after.hub.now, whole=False)
    return Move(now >= scene.hub.now, scene._replace(hub=scene.hub._replace(now=now)))


def hub_actions(law: Law) -> Mapping[str, Action]:
    """Returns the hub's actions for the class of limits and the policy in `law`, by name."""
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
        found["dated use expires at the hub"] = lets_expire
    return found
