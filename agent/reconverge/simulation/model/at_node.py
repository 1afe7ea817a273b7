"""The actions of a node in the proof: it decides, reports, applies answers, loses its lease, and begins a window."""

# Theory of operation.
#
# Each action returns the conditions that it needs, guards included, and the state after it. Amounts that production
# code computes, such as how much of an allowance to keep, are free here, within the bounds that the code keeps. So the
# proof does not depend on how demand is measured, or how shares are computed.

from __future__ import annotations

from collections.abc import Mapping

from reconverge.simulation.model.guards import Action, Assumption, Law, MeterClass, Move, ProofGuard
from reconverge.simulation.model.state import AnswerState, ModelState, NodeState, ReportState, holds_nothing
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


def live(scene: ModelState) -> Fact:
    """Returns the condition that the node may use its allowance: its process runs and its lease is not over."""
    return scene.node.alive & (scene.hub.now < scene.node.until)


def may_go_on(scene: ModelState) -> Fact:
    """Returns the condition that the node may use its allowance, now or after the answer that it waits for."""
    node, answer = scene.node, scene.answer
    errand = scene.errand
    renewed = (scene.flight.there | (errand.under_way & ~node.unconfirmed)) & node.knows
    awaits = renewed | (answer.there & answer.own) | (errand.answered & errand.own)
    in_time = scene.hub.now < node.sent + scene.frame.lease
    return node.alive & ((scene.hub.now < node.until) | (awaits & in_time))


def needs_no_report(scene: ModelState, law: Law) -> Fact:
    """Returns the condition that the node's lease may be renewed without a report about this key.

    The node holds nothing. Under `strict`, it has also admitted nothing in the window `frame.looked`, unless hub and
    node have left that window.
    """
    node, looked = scene.node, scene.frame.looked
    over = (scene.hub.window > looked) & (node.window > looked)
    return holds_nothing(node) & (equal(node.spent, 0) | over if law.strict else TRUE)


def counts(scene: ModelState, law: Law) -> Fact:
    """Returns the condition that the use which the node has admitted under this name still counts."""
    if law.meter is MeterClass.WINDOW:
        return TRUE
    if law.meter is MeterClass.DATED:
        return scene.hub.now < scene.node.last + scene.frame.length
    return scene.hub.now < scene.node.until


def _looked_at(scene: ModelState) -> Fact:
    return equal(scene.node.window, scene.frame.looked)


def _charged(scene: ModelState, cost: Amount) -> ModelState:
    node = scene.node
    spent = choose(_looked_at(scene), node.spent + cost, node.spent)
    last = choose(_looked_at(scene), scene.hub.now, node.last)
    return scene._replace(node=node._replace(used=node.used + cost, spent=spent, last=last))


def _cost(scene: ModelState, law: Law) -> Amount:
    return law.any("cost", lambda after: after.node.used - scene.node.used)


def admits(scene: ModelState, law: Law) -> Move:
    """Returns the step in which a node admits a request within its allowance."""
    node, cost = scene.node, _cost(scene, law)
    needs = every(
        (
            node.alive,
            cost >= 0,
            law.given(ProofGuard.NODE_STOPS_AT_LEASE, scene.hub.now < node.until),
            law.given(ProofGuard.WITHIN_ALLOWANCE, node.used + cost <= node.allowance),
        )
    )
    return Move(needs, _charged(scene, cost))


def goes_beyond(scene: ModelState, law: Law) -> Move:
    """Returns the step in which a node admits a request within its overdraft, or one that exceeds all that it holds.

    A node that has just got another name holds nothing, and may still decide by an answer to the old name.
    """
    node, entry, cost = scene.node, scene.entry, _cost(scene, law)
    renamed = holds_nothing(node) & (~entry.known | (scene.hub.now <= entry.seen + scene.frame.lease))
    one_request = law.given(ProofGuard.ONE_REQUEST_BEYOND, node.used <= node.allowance) & (cost <= scene.frame.request)
    needs = every(
        (
            node.alive,
            cost >= 0,
            law.given(ProofGuard.BEYOND_WHILE_FRESH, (scene.hub.now < node.until) | renamed),
            (node.used + cost <= node.allowance + node.overdraft) | one_request,
        )
    )
    return Move(needs, _charged(scene, cost))


def gives_back(scene: ModelState, law: Law) -> Move:
    """Returns the step in which use shrinks: work ends, a request is refunded or costs less, a charge expires."""
    node = scene.node
    amount = law.any("returned", lambda after: node.used - after.node.used)
    spent = choose(_looked_at(scene), larger(node.spent - amount, 0), node.spent)
    return Move(
        (amount >= 0) & (amount <= node.used),
        scene._replace(node=node._replace(used=node.used - amount, spent=spent)),
    )


def owes(scene: ModelState, law: Law) -> Move:
    """Returns the step in which use grows: a request costs more, or a new name takes over unreported use."""
    node, cost = scene.node, _cost(scene, law)
    return Move(cost >= 0, scene._replace(node=node._replace(used=node.used + cost)))


def begun(scene: ModelState, window: Amount) -> Fact:
    """Returns the condition that the node's clock may have reached `window`; true for windows before `frame.looked`."""
    return implies(window >= scene.frame.looked, scene.hub.now >= scene.frame.opens - scene.frame.error)


def enters(scene: ModelState, law: Law) -> Move:
    """Returns the step in which a node enters a later window."""
    node = scene.node
    window = law.any("window", lambda after: after.node.window)
    after = node._replace(
        window=window, used=NOTHING, allowance=law.by(ProofGuard.OPEN_FROM_BASE, node.base, node.allowance)
    )
    needs = every((node.alive, window > node.window, law.assume(Assumption.CLOCKS, begun(scene, window))))
    return Move(needs, scene._replace(node=after))


def idle(scene: ModelState, law: Law) -> Fact:
    """Returns the condition that the node may send a batch: neither a batch nor an answer is under way."""
    there = (scene.flight.there, scene.answer.there, scene.errand.under_way, scene.errand.answered)
    return law.given(ProofGuard.ONE_BATCH, every(~each for each in there))


def may_speak(scene: ModelState, law: Law) -> Fact:
    """Returns the condition that the node may still send under its name: its lease is not over, or it holds nothing."""
    return law.given(ProofGuard.NO_NAME_AFTER_LEASE, (scene.hub.now < scene.node.until) | holds_nothing(scene.node))


def under_way(scene: ModelState, node: NodeState, report: ReportState) -> ModelState:
    """Returns the state in which `report` is under way, and an earlier batch and answer have been given up."""
    flight, answer, late, stray = scene.flight, scene.answer, scene.late, scene.stray
    return scene._replace(
        node=node._replace(sent=scene.hub.now),
        flight=report,
        late=_chosen(flight.there, flight, late),
        answer=answer._replace(there=FALSE),
        stray=_chosen_answer(answer.there, answer, stray),
    )


def sends(scene: ModelState, law: Law) -> Move:
    """Returns the step in which a node lowers the amounts that it holds, and reports them."""
    node, now = scene.node, scene.hub.now
    leased = now < node.until

    def held(amount: Amount) -> Amount:
        return choose(leased, amount, law.by(ProofGuard.ZERO_AFTER_LEASE, 0, amount))

    allowance = law.any("allowance", lambda after: after.node.allowance)
    base = law.any("base", lambda after: after.node.base)
    overdraft = law.any("overdraft", lambda after: after.node.overdraft)
    needs = every(
        (
            node.alive,
            idle(scene, law),
            may_speak(scene, law),
            _between(allowance, smaller(held(node.allowance), node.used), held(node.allowance)),
            _between(base, 0, held(node.base)),
            _between(overdraft, 0, held(node.overdraft)),
            law.given(
                ProofGuard.OVERDRAFT_IN_USE_STAYS,
                overdraft >= smaller(held(node.overdraft), node.used - allowance),
            ),
        )
    )

    def lowered(to: Amount, before: Amount) -> Amount:
        return law.by(ProofGuard.LOWER_BEFORE_REPORT, to, before)

    after = node._replace(
        allowance=lowered(allowance, node.allowance),
        base=lowered(base, node.base),
        overdraft=lowered(overdraft, node.overdraft),
    )
    report = ReportState(TRUE, TRUE, FALSE, FALSE, node.window, allowance, base, overdraft, node.used)
    return Move(needs, under_way(scene, after, report))


def _between(amount: Amount, least: Amount | int, most: Amount) -> Fact:
    return (amount >= least) & (amount <= most)


def gives_up(scene: ModelState, law: Law) -> Move:
    """Returns the step in which a node gives up its batch, as no answer comes; the batch may be lost or come late.

    If the node has never had an answer, it takes the next one for the first, even if the hub has lost its data since.
    """
    flight, answer, late, node = scene.flight, scene.answer, scene.late, scene.node
    keeps = law.either("keeps", lambda after: after.late.there)
    first = law.either("never heard of any", lambda after: after.node.knows) & needs_no_report(scene, law)
    after = scene._replace(
        node=node._replace(knows=node.knows | first),
        flight=flight._replace(there=FALSE),
        late=_chosen(flight.there & keeps, flight, late),
        answer=answer._replace(there=FALSE),
        stray=_chosen_answer(answer.there, answer, scene.stray),
        errand=scene.errand._replace(under_way=FALSE, answered=FALSE),
    )
    return Move(~idle(scene, Law(law.meter, strict=law.strict)), after)


def _chosen(fact: Fact, one: ReportState, other: ReportState) -> ReportState:
    return ReportState(
        decide(fact, one.there, other.there),
        decide(fact, one.fresh, other.fresh),
        decide(fact, one.final, other.final),
        decide(fact, one.leaves, other.leaves),
        choose(fact, one.window, other.window),
        choose(fact, one.allowance, other.allowance),
        choose(fact, one.base, other.base),
        choose(fact, one.overdraft, other.overdraft),
        choose(fact, one.used, other.used),
    )


def _chosen_answer(fact: Fact, one: AnswerState, other: AnswerState) -> AnswerState:
    return AnswerState(
        decide(fact, one.there, other.there),
        decide(fact, one.present, other.present),
        decide(fact, one.own, other.own),
        choose(fact, one.window, other.window),
        choose(fact, one.allowance, other.allowance),
        choose(fact, one.base, other.base),
        choose(fact, one.overdraft, other.overdraft),
    )


def hears(scene: ModelState, law: Law) -> Move:
    """Returns the step in which the answer to the batch under way arrives."""
    move = _installs(scene, scene.answer, law)
    after = move.after._replace(answer=scene.answer._replace(there=FALSE))
    return Move(scene.answer.there & move.needs, after)


def hears_stray(scene: ModelState, law: Law) -> Move:
    """Returns the step in which an answer arrives to a batch that the node had given up."""
    ignored = law.given(ProofGuard.ANSWER_UNDER_WAY, FALSE) | law.given(ProofGuard.ONE_BATCH, FALSE)
    move = _installs(scene, scene.stray, law)
    return Move(every((ignored, scene.stray.there, move.needs)), move.after)


def _installs(scene: ModelState, answer: AnswerState, law: Law) -> Move:
    node, hub = scene.node, scene.hub
    leased = hub.now < node.until
    kept = choose(leased | ~law.either("voids", lambda after: equal(after.node.allowance, 0)), node.allowance, 0)
    own = law.given(ProofGuard.INSTALL_OWN_WINDOW, equal(answer.window, node.window))
    allowance = law.any("allowance", lambda after: after.node.allowance)
    base = law.any("base", lambda after: after.node.base)
    overdraft = law.any("overdraft", lambda after: after.node.overdraft)
    until, may_last = until_of(scene, law, own=answer.own)
    needs = every(
        (
            node.alive,
            decide(own, _between(allowance, 0, answer.allowance), equal(allowance, kept)),
            _between(base, 0, answer.base),
            _between(overdraft, 0, answer.overdraft),
            may_last,
        )
    )
    ahead = answer.window > node.window
    needs &= law.given(ProofGuard.OVERDRAFT_NOT_AHEAD, ~ahead | (overdraft <= node.overdraft))
    after = node._replace(
        allowance=allowance,
        base=base,
        overdraft=overdraft,
        until=until,
        spent=begun_in_lease(scene, law),
        knows=answer.present | node.knows,
        unconfirmed=~answer.own,
    )
    return Move(needs, scene._replace(node=after))


def until_of(scene: ModelState, law: Law, *, own: Fact) -> tuple[Amount, Fact]:
    """Returns the end of the node's lease after an answer, and the condition that the lease may end then.

    `own` is the condition that the hub has not lost its data since the last answer. A lease may always end sooner.
    """
    until = law.any("until", lambda after: after.node.until, whole=False)
    end = law.by(ProofGuard.LEASE_FROM_SENDING, scene.node.sent, scene.hub.now) + scene.frame.lease
    end = law.by(ProofGuard.LEASE_LESS_DRIFT, end, end + scene.frame.drift)
    return until, decide(law.given(ProofGuard.CONFIRM_BEFORE_LEASE, own), until <= end, until <= scene.node.until)


def begun_in_lease(scene: ModelState, law: Law) -> Amount:
    """Returns the admitted cost that counts under a new lease: 0 for slots if the last lease was over before."""
    ended = scene.hub.now >= scene.node.until
    return choose(ended, 0, scene.node.spent) if law.meter is MeterClass.SLOTS else scene.node.spent


def lowers(scene: ModelState, law: Law) -> Move:
    """Returns the step in which a node lowers the amounts that it holds, even if they are in use.

    It does so when it learns of a smaller quota or overdraft, or drops the key.
    """
    node = scene.node
    allowance = law.any("allowance", lambda after: after.node.allowance)
    base = law.any("base", lambda after: after.node.base)
    overdraft = law.any("overdraft", lambda after: after.node.overdraft)
    needs = every(
        (
            _between(allowance, 0, node.allowance),
            _between(base, 0, node.base),
            _between(overdraft, 0, node.overdraft),
        )
    )
    return Move(needs, scene._replace(node=node._replace(allowance=allowance, base=base, overdraft=overdraft)))


def node_actions(law: Law) -> Mapping[str, Action]:
    """Returns a node's actions for the class of limits and the policy in `law`, by name."""
    found: dict[str, Action] = {
        "a node admits a request": admits,
        "a node gives back": gives_back,
        "a node settles for more": owes,
        "a node sends": sends,
        "a node gives up its batch": gives_up,
        "a node hears an answer": hears,
        "a node hears a stray answer": hears_stray,
        "a node lowers what it holds": lowers,
    }
    if not law.strict:
        found["a node goes beyond its allowance"] = goes_beyond
    if law.meter is MeterClass.WINDOW:
        found["a node enters a window"] = enters
    return found
