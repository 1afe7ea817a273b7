"""Follows one key of one limit in the production code, and checks each step against the model (`states.py`)."""

# Theory of operation.
#
# Steps are observed at calls that both a small world and the fuzz make: a decision, `Syncer.take`, the hub's `merge`,
# `Syncer.merged` and `Syncer.failed`. The values in the objects after a call are compared with the model's state. A
# call of the code may be several steps of the model, in the order of the code: before a node reports, it has entered
# its window, and dated charges have expired; before a hub merges, it has opened a window, or given up on other names.
#
# A sealed share of a fixed window (`merge/sealing.py`) is no base for the model, in cells, messages and the ledger: no
# window begins with it while its node hears the hub. When a node opens one, or the hub sets one aside, the checks of
# the run end.
#
# Between two calls a node changes by time alone: it enters a window, and charges expire. Any other change between calls
# is rejected.
#
# `node` is any value by which the caller tells nodes apart, also when their names change. `at` is a node's state after
# the step that is reported (`snapshots.py`).

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from reconverge.clock import MICROSECOND_NS, NEVER_NS
from reconverge.hub.report import Answer, Batch, CellReport, Status
from reconverge.simulation.model.bound.snapshots import BoundSnapshot
from reconverge.simulation.model.bound.states import (
    LONG_AGO,
    BoundKey,
    BoundName,
    OutsideAssumption,
    is_known,
    value_of,
)
from reconverge.simulation.model.guards import MeterClass
from reconverge.simulation.model.terms import Constant, Number

Values = dict[str, Number | bool]
LOWERS: Final = "a node lowers what it holds"


class NodeWatch:
    """Follows one key of one limit at all nodes of a run, and checks each step against the model."""

    def __init__(self, binding: BoundKey, limit: str, key: str, base_ns: int) -> None:
        self.binding = binding
        self.limit = limit
        self.key = key
        self.base_ns = base_ns
        """The hub's time, in nanoseconds, when the nodes' clock was at 0. At a broker it changes with the leader."""
        self._sent_base_ns: dict[Hashable, int] = {}
        """The same at the moment at which each node sent its last batch, from which its lease runs."""
        self._untils: dict[Hashable, tuple[int, int]] = {}
        """The end of each node's lease, by its clock and by the hub's."""
        self._window = binding.terms.meter is MeterClass.WINDOW
        self._names: dict[Hashable, BoundName] = {}
        self._cells: dict[Hashable, int] = {}
        self._heard: set[Hashable] = set()
        """The nodes that the hub has ever answered."""
        self._wrote: dict[Hashable, int] = {}
        """For each node with a batch under way, the batch's sequence number."""
        self.outlived: set[BoundName] = set()
        """The names to which an answer is under way that comes from data which the hub has lost; the wait after that
        loss has ended."""

    # ------------------------------------------------------------ nodes

    def knows(self, node: Hashable) -> bool:
        """Returns whether a node has a name that is followed."""
        return node in self._names

    def starts(self, node: Hashable, at: BoundSnapshot) -> None:
        """Notes that a node has started under a new name."""
        self._names[node] = self.binding.begin(at.node)

    def ends(self, node: Hashable) -> None:
        """Notes that a process, or the use of its name, has ended."""
        name = self._names.pop(node)
        name.of_node = False
        if is_known(name.any_scene.node.alive):
            self.binding.step(name, "a name ends")

    def _read(self, node: Hashable, at: BoundSnapshot) -> Values:
        """Returns the fields of the model read from a node's cell; allowances are 0 if its lease is over."""
        before = self._names[node].any_scene.node
        if at.heard:
            self._heard.add(node)
        if not at.cell:
            return {
                "node.window": value_of(before.window),
                "node.allowance": 0,
                "node.base": 0,
                "node.overdraft": 0,
                "node.used": 0,
            }
        return {
            "node.window": max(at.epoch, int(value_of(before.window))) if self._window else 0,
            "node.allowance": 0 if at.lapsed else at.allowance,
            "node.base": at.base if self._window and not (at.lapsed or at.sealed) else 0,
            "node.overdraft": 0 if at.lapsed else at.overdraft,
            "node.used": at.used,
        }

    def _opens_share(self, at: BoundSnapshot) -> bool:
        """Returns whether a node has begun its window with a sealed share."""
        return at.shares and at.epoch * self.binding.terms.window_ns >= at.opens_us * MICROSECOND_NS

    def _until(self, node: Hashable, at: BoundSnapshot) -> int:
        if at.until_ns <= -NEVER_NS:
            return LONG_AGO
        if node not in self._untils or self._untils[node][0] != at.until_ns:
            base_ns = self._sent_base_ns.get(node, self.base_ns)
            self._untils[node] = at.until_ns, max(LONG_AGO, at.until_ns + base_ns)
        return self._untils[node][1]

    def passes(self, now_ns: int) -> None:
        """Notes that time has passed until `now_ns`, by the nodes' clock."""
        self.binding.passes(now_ns + self.base_ns)

    def catches_up(self, node: Hashable, at: BoundSnapshot, used: int | None = None, *, lowers: bool = True) -> Values:
        """Makes the model's steps that a node has made by itself since the last one. Returns the amounts in its cell.

        `used` is the use at which to stop, None for the present one; without `lowers`, amounts that the node has
        lowered are left to the next step.
        """
        name, binding, seen = self._names[node], self.binding, self._read(node, at)
        wanted = seen["node.used"] if used is None else used
        window = int(seen["node.window"])
        if window > value_of(name.any_scene.node.window):
            binding.reach(window)
            if not is_known(name.any_scene.node.alive):
                return seen  # it has left, and only makes its last report again
            if self._opens_share(at):
                raise OutsideAssumption("a sealed share opens")
            binding.step(name, "a node enters a window", {"node.window": window})
        elif self._window and at.cell and 0 <= at.epoch < window:
            raise OutsideAssumption("a node's clock goes back by a window")
        if wanted < value_of(name.any_scene.node.used):
            binding.step(name, "a node gives back", {"node.used": wanted})
        elif wanted > value_of(name.any_scene.node.used):
            if at.cell in (0, self._cells.get(node)):
                binding.reject(name, "use rises by itself", seen)
            binding.step(name, "a node settles for more", {"node.used": wanted})  # it remembers the key
        self._cells[node] = at.cell
        held = {of: seen[of] for of in ("node.allowance", "node.base", "node.overdraft")}
        its = name.any_scene.node
        if lowers and (its.allowance, its.base, its.overdraft) != tuple(map(Constant, held.values())):
            now = (value_of(its.allowance), value_of(its.base), value_of(its.overdraft))
            if now != tuple(held.values()):
                binding.step(name, LOWERS, held)
        return seen

    def admits(self, node: Hashable, at: BoundSnapshot, cost: int) -> None:
        """Makes the model's step of a node that has just charged a request."""
        name = self._names[node]
        if not at.cell:
            return  # the node had no room for the key, and charged elsewhere
        self._goes_on(node)
        self.catches_up(node, at, at.used - cost, lowers=False)
        if value_of(name.any_scene.node.window) not in name.scenes:
            raise OutsideAssumption("a node's clock is behind by two windows")
        within = self.binding.terms.strict or self.binding.can(
            name, "a node admits a request", {"node.used": at.used}, {}
        )
        action = "a node admits a request" if within else "a node goes beyond its allowance"
        self.binding.step(name, action, {"node.used": at.used})

    def took(self, node: Hashable, at: BoundSnapshot, batch: Batch | None) -> None:
        """Makes the model's step of a node that sends `batch`; `batch` is None if the node has nothing to report."""
        if at.node != self._names[node].title:
            self._wrote.pop(node, None)
            self._renames(node, at)
        elif self._wrote.get(node) is not None and (batch is None or self._wrote[node] != batch.sequence):
            self.gave_up(node, at)
        if batch is None:
            self.catches_up(node, at)
            return
        if not batch.leaving:
            self._goes_on(node)
        name, report = self._names[node], self._report(batch)
        self._wrote[node], self._sent_base_ns[node] = batch.sequence, self.base_ns
        if report is None:
            self.catches_up(node, at)
            self.binding.step(name, "a node sends of other keys", {"errand.leaves": batch.leaving})
            return
        last = batch.leaving or report.forgotten
        seen = self.catches_up(node, at, report.current, lowers=False)
        action = "a node leaves" if batch.leaving else "a node forgets the key" if report.forgotten else "a node sends"
        held: Values
        if last:
            held = dict.fromkeys(("node.allowance", "node.base", "node.overdraft"), 0)
        else:
            held = {of: seen[of] for of in seen if of != "node.window"}
        self.binding.step(name, action, {**held, **self._written(report, "flight")})

    def _goes_on(self, node: Hashable) -> None:
        """Makes the step of a node that goes on after a last report without an answer, if this one does."""
        name = self._names[node]
        if not is_known(name.any_scene.node.alive):
            self.binding.step(name, "a node goes on after it has left in vain")

    def _renames(self, node: Hashable, at: BoundSnapshot) -> None:
        """Makes the steps by which a node's new name takes over use that was not reported under its old name."""
        self.ends(node)
        self.starts(node, at)
        used = self._read(node, at)["node.used"]
        self._cells[node] = at.cell
        if used:
            name, window = self._names[node], int(self._read(node, at)["node.window"])
            if window > value_of(name.any_scene.node.window):
                self.binding.reach(window)
                self.binding.step(name, "a node enters a window", {"node.window": window})
            self.binding.step(name, "a node settles for more", {"node.used": used})

    def _report(self, batch: Batch) -> CellReport | None:
        for report in batch.cells:
            if report.key == self.key and batch.limits[report.limit].name == self.limit:
                return report
        return None

    def _written(self, report: CellReport, place: str) -> Values:
        return {
            f"{place}.window": report.epoch if self._window else 0,
            f"{place}.allowance": report.allowance,
            f"{place}.base": report.base if self._window and not report.floats else 0,
            f"{place}.overdraft": report.overdraft,
            f"{place}.used": report.current,
        }

    def heard(self, node: Hashable, at: BoundSnapshot, answer: Answer) -> None:
        """Makes the model's step of a node to which the hub's answer has come."""
        if answer.status is Status.STALE:
            return  # `gave_up` follows
        name, binding = self._names[node], self.binding
        self._wrote.pop(node, None)
        if answer.status is Status.LAPSED:
            binding.step(name, "a node gives up its batch", {"late.there": value_of(name.any_scene.late.there)})
            self._renames(node, at)
            return
        if not is_known(name.any_scene.node.alive):
            self._renames(node, at)
            return
        if name in self.outlived:
            raise OutsideAssumption("an answer from before a loss of data arrives after the wait")
        own = is_known(name.any_scene.answer.there)
        seen = self.catches_up(node, at, lowers=not own)
        seen = {of: value for of, value in seen.items() if of not in ("node.window", "node.used")}
        action = "a node hears an answer" if own else "a node hears of other keys"
        binding.step(name, action, {**seen, "node.until": self._until(node, at)})

    def gave_up(self, node: Hashable, at: BoundSnapshot) -> None:
        """Makes the model's step of a node that has given up its batch, which may still arrive."""
        name, scene = self._names[node], self._names[node].any_scene
        self._read(node, at)
        self.outlived.discard(name)
        sequence = self._wrote.pop(node, None)
        if sequence is None:
            return
        if is_known(scene.flight.there):
            name.late[sequence] = scene.flight
        elif is_known(scene.errand.under_way):
            name.late[sequence] = None
        knows = is_known(scene.node.knows) or not at.heard
        seen = {"late.there": value_of(scene.late.there), "node.knows": knows}
        self.binding.step(name, "a node gives up its batch", seen)
