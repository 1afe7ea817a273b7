"""The invariants that the proof shows: conditions that always hold, for one name and for the sums over all names."""

from __future__ import annotations

from collections.abc import Mapping

from reconverge.simulation.model.at_hub import held, held_beyond
from reconverge.simulation.model.at_node import counts, live, may_go_on, needs_no_report
from reconverge.simulation.model.guards import Law, MeterClass
from reconverge.simulation.model.state import AnswerState, EntryState, ModelState, ReportState, holds_nothing
from reconverge.simulation.model.terms import (
    FALSE,
    TRUE,
    Amount,
    Fact,
    choose,
    equal,
    every,
    implies,
    larger,
    smaller,
)

THEOREM = "what a name has admitted is counted by the ledger, but for one request"
SUM = "what the ledger counts of all names is within the bound"


def right(scene: ModelState) -> Amount:
    """Returns the use up to which the node may admit in window `frame.looked` without asking the hub."""
    node, looked = scene.node, scene.frame.looked
    return choose(equal(node.window, looked), node.allowance, choose(node.window < looked, node.base, 0))


def _limit(scene: ModelState, report: ReportState) -> Amount:
    """Returns the use up to which a node may admit in window `frame.looked` after it has sent `report`."""
    looked = scene.frame.looked
    return choose(equal(report.window, looked), report.allowance, choose(report.window < looked, report.base, 0))


def counted(scene: ModelState) -> Amount:
    """Returns the least that the ledger counts for this name in window `frame.looked`, without the overdraft."""
    entry, hub, looked = scene.entry, scene.hub, scene.frame.looked
    held = choose(hub.window < looked, entry.base, choose(equal(hub.window, looked), entry.allowance, entry.part))
    return choose(entry.known, smaller(entry.part, held), entry.part)


def counted_beyond(scene: ModelState) -> Amount:
    """Returns the least that the ledger counts for the overdraft of this name in window `frame.looked`."""
    entry = scene.entry
    known = entry.known & (scene.hub.window <= scene.frame.looked)
    return choose(known, smaller(entry.extra, entry.overdraft), entry.extra)


def frame_holds(scene: ModelState, law: Law) -> Fact:
    """Returns the condition that the numbers of a state that no action changes are possible."""
    frame, hub = scene.frame, scene.hub
    found = [
        frame.lease > 0,
        frame.length > 0,
        frame.drift > 0,
        frame.error >= 0,
        frame.error < frame.length,
        frame.request >= 0,
        hub.overdrafts >= 0,
    ]
    if law.strict:
        found += [equal(frame.request, 0), equal(hub.overdrafts, 0)]
    if law.meter is not MeterClass.WINDOW:
        found += [
            equal(window, frame.looked)
            for window in (
                hub.window,
                scene.node.window,
                scene.flight.window,
                scene.late.window,
                scene.answer.window,
                scene.stray.window,
            )
        ]
    return every(found)


def fresh_name(scene: ModelState) -> Fact:
    """Returns the condition that a name has just begun: its node holds nothing, and the hub knows nothing of it."""
    node, entry = scene.node, scene.entry
    nothing = [
        equal(amount, 0)
        for amount in (
            node.allowance,
            node.base,
            node.overdraft,
            node.spent,
            entry.allowance,
            entry.base,
            entry.overdraft,
            entry.debt,
            entry.part,
            entry.extra,
        )
    ]
    on_the_way = [~scene.flight.there, ~scene.late.there, ~scene.answer.there, ~scene.stray.there]
    on_the_way += [~scene.errand.under_way, ~scene.errand.answered]
    return every(
        [
            *nothing,
            *on_the_way,
            node.alive,
            node.knows,
            ~node.unconfirmed,
            ~entry.known,
            ~entry.gone,
            ~entry.left,
            node.used >= 0,
            node.until <= scene.hub.now,
            node.until <= node.sent + scene.frame.lease,
            node.last <= scene.hub.now,
            node.sent <= scene.hub.now,
            entry.seen <= scene.hub.now,
            implies(node.window >= scene.frame.looked, scene.hub.now >= scene.frame.opens - scene.frame.error),
        ]
    )


def of_sums(scene: ModelState, law: Law) -> Mapping[str, Fact]:
    """Returns the invariants of the sums over all names, by a sentence that states each."""
    hub, others = scene.hub, scene.others
    before = hub.window < scene.frame.looked
    all_held = held(scene) + others.held + others.lost
    all_beyond = held_beyond(scene) + others.overdrafts + others.lost_overdrafts
    found = {
        SUM: all_held <= hub.most + choose(before, 0, hub.overdrafts),
        "the overdrafts of all names are within their sum": implies(
            hub.window <= scene.frame.looked, all_beyond <= hub.overdrafts
        ),
        "sums are no debts": every(
            amount >= 0
            for amount in (others.held, others.overdrafts, others.lost, others.lost_overdrafts, hub.capacity)
        ),
        "nothing that was lost counts after the wait": implies(
            ~hub.waits & (hub.window <= scene.frame.looked),
            equal(others.lost, 0) & equal(others.lost_overdrafts, 0),
        ),
        "no capacity is above the largest": hub.capacity <= hub.most,
        "data were lost in the past": hub.lost <= hub.now,
    }
    harmless = needs_no_report(scene, law) if law.strict else FALSE
    answers = ((scene.answer.there, scene.answer.present), (scene.errand.answered, scene.errand.present | harmless))
    present = hub.waits | every(~there | present for there, present in answers)
    took_a_lease = (hub.now > hub.lost + scene.frame.lease) if law.strict else FALSE
    found["after the wait there is no answer from before"] = present | took_a_lease
    return found


def of_a_name(scene: ModelState, law: Law) -> Mapping[str, Fact]:
    """Returns the invariants of one name, by a sentence that states each."""
    return {**_of_node(scene, law), **_of_entry(scene), **_of_leases(scene, law), **_of_messages(scene, law)}


def _of_node(scene: ModelState, law: Law) -> Mapping[str, Fact]:
    node, entry, hub, frame = scene.node, scene.entry, scene.hub, scene.frame
    active = may_go_on(scene) & ~entry.gone
    looked = frame.looked
    return {
        THEOREM: implies(counts(scene, law), node.spent <= entry.part + entry.extra + frame.request),
        "a node holds no more than the ledger counts": implies(active, right(scene) <= counted(scene)),
        "a node holds no more overdraft than the ledger counts": implies(
            active & (node.window <= looked), node.overdraft <= counted_beyond(scene)
        ),
        "what was admitted is in use": every(
            (
                node.spent >= 0,
                node.used >= 0,
                implies(equal(node.window, looked), node.spent <= node.used),
                implies(node.window < looked, equal(node.spent, 0)),
            )
        ),
        "a node that leaves does nothing else before an answer": implies(
            scene.flight.there & scene.flight.leaves, ~node.alive & (scene.flight.window >= node.window)
        ),
        "no amount at a node is negative": every(amount >= 0 for amount in (node.allowance, node.base, node.overdraft)),
        "what counts in a window was admitted no earlier": implies(
            node.spent > 0, node.last >= frame.opens - frame.error
        )
        if law.meter is MeterClass.WINDOW
        else TRUE,
        "no node is in a window before its time": implies(node.window >= looked, hub.now >= frame.opens - frame.error)
        if law.meter is MeterClass.WINDOW
        else TRUE,
    }


def _of_entry(scene: ModelState) -> Mapping[str, Fact]:
    entry, hub, looked = scene.entry, scene.hub, scene.frame.looked
    before, opened, after = hub.window < looked, equal(hub.window, looked), hub.window > looked
    kept = entry.known & ~entry.gone
    return {
        "the ledger has what it counts": every(
            (
                implies(entry.known & opened, entry.part <= entry.allowance + entry.debt),
                implies(
                    entry.known & opened,
                    entry.part + entry.extra <= entry.allowance + larger(entry.overdraft, entry.debt),
                ),
                implies(kept & before, entry.part <= entry.base),
                implies(entry.gone & before, equal(entry.part, 0)),
                implies(kept & ~after, entry.extra <= entry.overdraft),
                implies(entry.gone, equal(entry.overdraft, 0) & equal(entry.debt, 0)),
            )
        ),
        "a name that has left is over": implies(
            entry.left,
            every(
                (
                    entry.known,
                    ~entry.gone,
                    ~scene.node.alive | _is_unanswered(scene),
                    (scene.node.window <= hub.window) | (scene.node.spent <= scene.frame.request) | ~before,
                )
            ),
        ),
        "a name that is gone was known": implies(entry.gone, entry.known),
        "no overdraft of a name that is gone": implies(entry.gone & ~after, equal(entry.extra, 0)),
        "during the wait the ledger has what was reported": implies(
            hub.waits & kept,
            every(
                (
                    implies(opened, entry.allowance <= entry.part),
                    implies(before, entry.base <= entry.part),
                    implies(~after, entry.overdraft <= entry.extra),
                )
            ),
        ),
        "no amount at the hub is negative": every(amount >= 0 for amount in _amounts(entry)),
        "what no hub knows does not count after the wait": implies(
            ~entry.known & ~hub.waits & (hub.window <= looked), equal(entry.part, 0) & equal(entry.extra, 0)
        ),
    }


def _is_idle(scene: ModelState, law: Law) -> Fact:
    """Returns the condition that a node holds nothing; under `strict`, that nothing it has admitted counts any more."""
    over = equal(scene.node.spent, 0) | (scene.hub.window > scene.frame.looked) | ~counts(scene, law)
    return holds_nothing(scene.node) & (over if law.strict else TRUE)


def _is_unanswered(scene: ModelState) -> Fact:
    """Returns the condition that a node holds nothing, and that no answer is under way by which it might."""
    return holds_nothing(scene.node) & ~scene.answer.there & ~scene.errand.answered


def _amounts(entry: EntryState) -> tuple[Amount, ...]:
    return entry.allowance, entry.base, entry.overdraft, entry.debt, entry.part, entry.extra


def _of_leases(scene: ModelState, law: Law) -> Mapping[str, Fact]:
    node, entry, hub, frame = scene.node, scene.entry, scene.hub, scene.frame
    idle = _is_idle(scene, law)
    after_loss = (node.until <= hub.lost + frame.lease) | idle
    return {
        "a lease ends at the node before it does at the hub": implies(
            entry.known, node.until <= entry.seen + frame.lease
        ),
        "a name that is gone has no lease": implies(
            entry.gone & node.alive, (~live(scene) & (hub.now > entry.seen + frame.lease)) | _is_unanswered(scene)
        ),
        "after a loss no lease is renewed unheard": implies(~entry.known, after_loss),
        "what no hub knows is not used after the wait": implies(~entry.known & ~hub.waits, ~live(scene) | idle),
        "a name that counts on the present data is known": implies(~entry.known & node.knows & ~node.unconfirmed, idle),
        "all this was in the past": every(
            (
                entry.seen <= hub.now,
                node.until <= node.sent + frame.lease,
                node.sent <= hub.now,
                node.last <= hub.now,
                implies(entry.known & (node.spent > 0), node.last <= entry.seen + frame.lease),
            )
        ),
        "what was admitted unknown was admitted in the lease": implies(
            ~entry.known & (node.spent > 0) & (TRUE if law.strict else FALSE),
            (frame.opens - frame.error <= hub.lost + frame.lease if law.meter is MeterClass.WINDOW else TRUE)
            & (node.last <= hub.lost + frame.lease),
        ),
    }


def _of_messages(scene: ModelState, law: Law) -> Mapping[str, Fact]:
    node, entry, hub, flight, late = scene.node, scene.entry, scene.hub, scene.flight, scene.late
    errand = scene.errand
    void = ~entry.known & ~hub.waits & (hub.window <= scene.frame.looked)
    mattering = ~entry.gone & ~entry.left & ~void
    fresh = late.there & late.fresh
    found = {
        "a batch is no younger than its node": implies(flight.there, (flight.window <= node.window) | flight.leaves)
        & implies(late.there, (late.window <= node.window) | late.leaves),
        "an answer is of no later window than the hub": implies(scene.answer.there, scene.answer.window <= hub.window),
        "one batch is under way": every(
            (
                ~(flight.there & scene.answer.there) & ~(fresh & scene.answer.there),
                implies(errand.under_way | errand.answered, ~flight.there & ~scene.answer.there),
                implies(errand.answered, ~fresh),
                ~(errand.under_way & errand.answered),
            )
        ),
        "a last batch is of what holds nothing": implies(
            errand.leaves & (errand.under_way | errand.answered), ~node.alive & holds_nothing(node)
        ),
        "an answer about other keys renews what the hub knows": implies(errand.answered, _of_errand(scene, law)),
    }
    for name, report, there in (("a batch", flight, flight.there), ("a late batch", late, fresh)):
        found |= {f"{name} {says}": implies(there, fact) for says, fact in _of_report(scene, report, law).items()}
        found[f"{name} says no more than the ledger counts"] = implies(
            there & mattering,
            (_limit(scene, report) <= counted(scene))
            & implies(report.window <= scene.frame.looked, report.overdraft <= counted_beyond(scene)),
        )
        found[f"{name} of a name that counts no longer says nothing"] = implies(
            there & void, equal(_limit(scene, report), 0) & equal(report.overdraft, 0)
        )
    found["a batch says no more than an earlier one"] = implies(
        flight.there & fresh,
        (_limit(scene, flight) <= _limit(scene, late)) & (flight.overdraft <= late.overdraft),
    )
    if law.strict:
        found["strict has no overdrafts"] = every(
            [
                equal(node.overdraft, 0) & equal(entry.overdraft, 0) & equal(entry.extra, 0),
                *(implies(each.there, equal(each.overdraft, 0)) for each in (flight, late, scene.answer)),
            ]
        )
    found["an answer says no more than the ledger counts"] = implies(
        scene.answer.there, _of_answer(scene, scene.answer, law)
    )
    return found


def _of_report(scene: ModelState, report: ReportState, law: Law) -> Mapping[str, Fact]:
    node, looked = scene.node, scene.frame.looked
    limit = _limit(scene, report)
    of_use = choose(equal(report.window, looked), report.used, 0)
    most = larger(limit + report.overdraft, of_use) + scene.frame.request
    return {
        "has what the node holds": implies(may_go_on(scene), right(scene) <= limit)
        & implies(node.alive, node.overdraft <= report.overdraft),
        "has what was admitted": implies(counts(scene, law) & (report.window <= looked), node.spent <= most),
        "has no negative amount": every(
            amount >= 0 for amount in (report.allowance, report.base, report.overdraft, report.used)
        ),
        "is the last one only of what holds nothing": implies(
            report.final,
            every(
                (holds_nothing(node), *(equal(each, 0) for each in (report.allowance, report.base, report.overdraft)))
            ),
        ),
        "leaves only as the last one": implies(report.leaves, report.final),
    }


def _of_answer(scene: ModelState, answer: AnswerState, law: Law) -> Fact:
    node, entry, hub, looked = scene.node, scene.entry, scene.hub, scene.frame.looked
    in_time = answer.own & (hub.now < node.sent + scene.frame.lease)
    renews = node.alive & ~entry.gone & (live(scene) | in_time)
    sent = choose(answer.present, entry.seen, hub.lost)
    spotless = equal(node.spent, 0) if law.strict else TRUE
    nothing = every(equal(each, 0) for each in (answer.allowance, answer.base, answer.overdraft))
    return every(
        (
            implies(~answer.present, ~entry.known & ~node.knows),
            implies(answer.present & ~entry.known, nothing & implies(node.alive, holds_nothing(node) & spotless)),
            answer.allowance >= 0,
            answer.base >= 0,
            answer.overdraft >= 0,
            implies(~answer.present | entry.known, node.sent <= sent),
            implies(renews & equal(answer.window, looked), answer.allowance <= counted(scene)),
            implies(renews & (node.window < looked), answer.base <= counted(scene)),
            implies(
                renews & (node.window <= looked) & (answer.window <= looked), answer.overdraft <= counted_beyond(scene)
            ),
        )
    )


def _of_errand(scene: ModelState, law: Law) -> Fact:
    node, entry, errand = scene.node, scene.entry, scene.errand
    sent = choose(errand.present, entry.seen, scene.hub.lost)
    return every(
        (
            implies(~errand.present, ~entry.known & ~node.knows),
            implies(errand.present & ~entry.known & errand.own & node.alive, _is_idle(scene, law)),
            implies(~errand.present | entry.known, node.sent <= sent),
        )
    )


def state_holds(scene: ModelState, law: Law) -> Mapping[str, Fact]:
    """Returns all invariants, by a sentence that states each."""
    return {**of_sums(scene, law), **of_a_name(scene, law)}
