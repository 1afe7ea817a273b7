"""The actions of batches that do not report the proof's key: they renew a name's lease, or end the name."""

# Theory of operation.
#
# A node that has nothing to report about a key goes on exchanging. Its batches renew its lease, at the node and at the
# hub, so they matter to every key: after a loss of data, a lease may be renewed only if all keys have been reported.

from __future__ import annotations

from collections.abc import Mapping

from reconverge.simulation.model.at_node import (
    begun_in_lease,
    idle,
    may_speak,
    needs_no_report,
    until_of,
)
from reconverge.simulation.model.guards import Action, Assumption, Law, Move, ProofGuard
from reconverge.simulation.model.state import ErrandState, ModelState, holds_nothing
from reconverge.simulation.model.terms import FALSE, TRUE, choose, decide, equal, every, implies


def sends_of_others(scene: ModelState, law: Law) -> Move:
    """Returns the step in which a node sends a batch, maybe its last one, that does not report this key."""
    node = scene.node
    leaves = law.either("leaves", lambda after: after.errand.leaves)
    needs = every((decide(leaves, holds_nothing(node), node.alive), idle(scene, law), may_speak(scene, law)))
    after = scene._replace(
        node=node._replace(sent=scene.hub.now, alive=~leaves),
        errand=ErrandState(TRUE, FALSE, leaves, FALSE, FALSE),
    )
    return Move(needs, after)


def merges_of_others(scene: ModelState, law: Law) -> Move:
    """Returns the step in which the hub merges and answers a batch under way that does not report this key."""
    entry, node, errand = scene.entry, scene.node, scene.errand
    seen = choose(entry.known, scene.hub.now, entry.seen)
    answered = ErrandState(FALSE, TRUE, errand.leaves, TRUE, node.knows & ~node.unconfirmed)
    after = scene._replace(
        entry=entry._replace(seen=seen, left=entry.known & errand.leaves),
        late=scene.late._replace(fresh=FALSE),
        errand=answered,
    )
    behind = (node.window <= scene.hub.window) | equal(node.spent, 0)
    needs = errand.under_way & law.given(ProofGuard.GONE_STAYS_GONE, ~entry.gone & ~entry.left)
    return Move(needs & law.assume(Assumption.NOT_AHEAD_WHEN_GONE, implies(errand.leaves, behind)), after)


def merges_late_of_others(scene: ModelState, law: Law) -> Move:
    """Returns the step in which the hub merges a batch that was given up, and does not report this key."""
    entry = scene.entry
    seen = choose(entry.known, scene.hub.now, entry.seen)
    needs = law.given(ProofGuard.GONE_STAYS_GONE, ~entry.gone & ~entry.left)
    return Move(needs, scene._replace(entry=entry._replace(seen=seen)))


def hears_of_others(scene: ModelState, law: Law) -> Move:
    """Returns the step in which an answer arrives to a batch that did not report this key."""
    node, errand = scene.node, scene.errand
    # A key of which a node holds nothing does not keep the lease from going on.
    until, may_last = until_of(scene, law, own=errand.own | needs_no_report(scene, law))
    after = node._replace(
        until=until,
        spent=begun_in_lease(scene, law),
        knows=errand.present | node.knows,
        unconfirmed=node.unconfirmed | ~errand.own,
    )
    needs = every((node.alive, errand.answered, may_last))
    return Move(needs, scene._replace(node=after, errand=errand._replace(answered=FALSE)))


def errands() -> Mapping[str, Action]:
    """Returns the actions of batches that do not report this key, by name."""
    return {
        "a node sends of other keys": sends_of_others,
        "a batch of other keys is merged": merges_of_others,
        "a late batch of other keys is merged": merges_late_of_others,
        "a node hears of other keys": hears_of_others,
    }
