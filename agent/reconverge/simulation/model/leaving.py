"""The actions in the proof by which a node leaves or forgets a key, and by which a name ends, or is used again."""

# Theory of operation.
#
# A node that stops sends a last report, and gives back all that it holds. If no answer comes, its process may go on all
# the same, under the same name: an application has closed its event loop while the hub was away, and opens another.
# The last report may then arrive late. Either the hub has heard of the node again by then, so that it is outdated, or
# the name ends with it: no further batch of that name is merged, and its node holds nothing meanwhile.

from __future__ import annotations

from collections.abc import Mapping

from reconverge.simulation.model.at_node import begun, idle, may_speak, under_way
from reconverge.simulation.model.guards import Action, Assumption, Law, Move, ProofGuard
from reconverge.simulation.model.state import ModelState, NodeState, ReportState, holds_nothing
from reconverge.simulation.model.terms import FALSE, NOTHING, TRUE, choose, equal, every


def leaves(scene: ModelState, law: Law) -> Move:
    """Returns the step in which a node stops in good order, and reports for the last time.

    If that report is given up, the node makes it again, maybe in a later window, unless it goes on.
    """
    node = scene.node
    window = law.any("window", lambda after: after.flight.window)
    later = ~node.alive & (window > node.window) & law.assume(Assumption.CLOCKS, begun(scene, window))
    move = _lets_go(scene, law, node._replace(alive=FALSE))
    flight = move.after.flight._replace(
        leaves=TRUE, window=window, used=choose(equal(window, node.window), node.used, 0)
    )
    return Move(move.needs & (equal(window, node.window) | later), move.after._replace(flight=flight))


def forgets(scene: ModelState, law: Law) -> Move:
    """Returns the step in which a node reports a key for the last time, because it evicts the key from its memory."""
    move = _lets_go(scene, law, scene.node)
    return Move(scene.node.alive & move.needs, move.after)


def _lets_go(scene: ModelState, law: Law, node: NodeState) -> Move:
    after = node._replace(allowance=NOTHING, base=NOTHING, overdraft=NOTHING)
    report = ReportState(TRUE, TRUE, TRUE, FALSE, node.window, NOTHING, NOTHING, NOTHING, node.used)
    return Move(idle(scene, law) & may_speak(scene, law), under_way(scene, after, report))


def ends(scene: ModelState, law: Law) -> Move:
    """Returns the step in which a name ends: its process is killed or forks, or its lease is over."""
    del law
    return Move(scene.node.alive, scene._replace(node=scene.node._replace(alive=FALSE)))


def stays(scene: ModelState, law: Law) -> Move:
    """Returns the step in which a node that has left in vain, as no answer came, goes on under its name."""
    needs = every((~scene.node.alive, idle(scene, law), holds_nothing(scene.node)))
    return Move(needs, scene._replace(node=scene.node._replace(alive=TRUE)))


def comes_back(scene: ModelState, law: Law) -> Move:
    """Returns the step in which a process starts under a name that was used before."""
    after = scene.node._replace(
        alive=TRUE, allowance=NOTHING, base=NOTHING, overdraft=NOTHING, used=NOTHING, knows=TRUE, unconfirmed=FALSE
    )
    return Move(law.given(ProofGuard.NAMES_ONCE, FALSE) & ~scene.node.alive, scene._replace(node=after))


def leaving() -> Mapping[str, Action]:
    """Returns these actions, by name."""
    return {
        "a node leaves": leaves,
        "a node forgets the key": forgets,
        "a name ends": ends,
        "a node goes on after it has left in vain": stays,
        "a name comes back": comes_back,
    }
