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

from __future__ import annotations

from typing import Any, Final

from reconverge.clock import MICROSECOND_NS, NEVER_NS
from reconverge.exchange.syncer import Syncer
from reconverge.hub.report import Answer, Batch, CellReport, Status
from reconverge.kernel.cell import has_share, lease_until_ns
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
        self._limit = limit
        self.key = key
        self._base_ns = base_ns
        """The hub's time, in nanoseconds, when the simulation's time was 0."""
        self._window = binding.terms.meter is MeterClass.WINDOW
        self._names: dict[Syncer, BoundName] = {}
        self._cells: dict[Syncer, Any] = {}
        self._wrote: dict[Syncer, int] = {}
        """For each node with a batch under way, the batch's sequence number."""
        self.outlived: set[BoundName] = set()
        """The names to which an answer is under way that comes from data which the hub has lost; the wait after that
        loss has ended."""

    # ------------------------------------------------------------ nodes

    def starts(self, syncer: Syncer) -> None:
        """Notes that the process of `syncer` has started under a new name."""
        self._names[syncer] = self.binding.begin(syncer.node)

    def ends(self, syncer: Syncer) -> None:
        """Notes that a process, or the use of its name, has ended."""
        name = self._names.pop(syncer)
        name.of_node = False
        if is_known(name.any_scene.node.alive):
            self.binding.step(name, "a name ends")

    def _cell(self, syncer: Syncer) -> Any:
        table = syncer.kernel.tables[self._limit]
        return table.cells.get(self.key)

    def _read(self, syncer: Syncer) -> Values:
        """Returns the fields of the model read from a node's cell; allowances are 0 if its lease is over."""
        cell = self._cell(syncer)
        scene = self._names[syncer].any_scene
        if cell is None:
            return {
                "node.window": value_of(scene.node.window),
                "node.allowance": 0,
                "node.base": 0,
                "node.overdraft": 0,
                "node.used": 0,
            }
        lapsed = syncer._lapsed
        return {
            "node.window": max(cell.epoch, int(value_of(scene.node.window))) if self._window else 0,
            "node.allowance": 0 if lapsed else cell.allowance,
            "node.base": cell.base if self._window and not (lapsed or cell.sealed) else 0,
            "node.overdraft": 0 if lapsed else cell.overdraft,
            "node.used": cell.used,
        }

    def _opens_share(self, syncer: Syncer) -> bool:
        """Returns whether a node has begun its window with a sealed share."""
        cell = self._cell(syncer)
        opens_ns = syncer.kernel.shards[0].opens_us * MICROSECOND_NS
        return cell is not None and has_share(cell) and cell.epoch * self.binding.terms.window_ns >= opens_ns

    def _until(self, syncer: Syncer) -> int:
        shard = syncer.kernel.shards[0]
        cell = self._cell(syncer)
        until_ns = shard.lease_until_ns if cell is None else lease_until_ns(cell)
        return max(LONG_AGO, until_ns + self._base_ns) if until_ns > -NEVER_NS else LONG_AGO

    def passes(self, now_ns: int) -> None:
        """Notes that time has passed until `now_ns`, by the simulation's clock."""
        self.binding.passes(now_ns + self._base_ns)

    def catches_up(self, syncer: Syncer, used: int | None = None, *, lowers: bool = True) -> Values:
        """Makes the model's steps that a node has made by itself since the last one. Returns the amounts in its cell.

        `used` is the use at which to stop, None for the present one; without `lowers`, amounts that the node has
        lowered are left to the next step.
        """
        name, binding, seen = self._names[syncer], self.binding, self._read(syncer)
        wanted = seen["node.used"] if used is None else used
        window = int(seen["node.window"])
        if window > value_of(name.any_scene.node.window):
            binding.reach(window)
            if not is_known(name.any_scene.node.alive):
                return seen  # it has left, and only makes its last report again
            if self._opens_share(syncer):
                raise OutsideAssumption("a sealed share opens")
            binding.step(name, "a node enters a window", {"node.window": window})
        elif self._window and (cell := self._cell(syncer)) is not None and 0 <= cell.epoch < window:
            raise OutsideAssumption("a node's clock goes back by a window")
        if wanted < value_of(name.any_scene.node.used):
            binding.step(name, "a node gives back", {"node.used": wanted})
        elif wanted > value_of(name.any_scene.node.used):
            cell = self._cell(syncer)
            if cell is None or self._cells.get(syncer) is cell:
                binding.reject(name, "use rises by itself", seen)
            binding.step(name, "a node settles for more", {"node.used": wanted})  # it remembers the key
        self._cells[syncer] = self._cell(syncer)
        held = {of: seen[of] for of in ("node.allowance", "node.base", "node.overdraft")}
        node = name.any_scene.node
        if lowers and (node.allowance, node.base, node.overdraft) != tuple(map(Constant, held.values())):
            now = (value_of(node.allowance), value_of(node.base), value_of(node.overdraft))
            if now != tuple(held.values()):
                binding.step(name, LOWERS, held)
        return seen

    def admits(self, syncer: Syncer, cost: int) -> None:
        """Makes the model's step of a node that has just charged a request."""
        name, cell = self._names[syncer], self._cell(syncer)
        if cell is None:
            return  # the node had no room for the key, and charged elsewhere
        self.catches_up(syncer, cell.used - cost, lowers=False)
        if value_of(name.any_scene.node.window) not in name.scenes:
            raise OutsideAssumption("a node's clock is behind by two windows")
        within = self.binding.terms.strict or self.binding.can(
            name, "a node admits a request", {"node.used": cell.used}, {}
        )
        action = "a node admits a request" if within else "a node goes beyond its allowance"
        self.binding.step(name, action, {"node.used": cell.used})

    def took(self, syncer: Syncer, batch: Batch | None) -> None:
        """Makes the model's step of a node that sends `batch`; `batch` is None if the node has nothing to report."""
        if syncer.node != self._names[syncer].title:
            self.ends(syncer)
            self._wrote.pop(syncer, None)
            self.starts(syncer)
            self.starts_with(syncer)
        elif self._wrote.get(syncer) is not None and (batch is None or self._wrote[syncer] != batch.sequence):
            self.gave_up(syncer)
        if batch is None:
            self.catches_up(syncer)
            return
        name, report = self._names[syncer], self._report(batch)
        self._wrote[syncer] = batch.sequence
        if report is None:
            self.catches_up(syncer)
            self.binding.step(name, "a node sends of other keys", {"errand.leaves": batch.leaving})
            return
        last = batch.leaving or report.forgotten
        seen = self.catches_up(syncer, self._used(report), lowers=False)
        action = "a node leaves" if batch.leaving else "a node forgets the key" if report.forgotten else "a node sends"
        held: Values
        if last:
            held = dict.fromkeys(("node.allowance", "node.base", "node.overdraft"), 0)
        else:
            held = {of: seen[of] for of in seen if of != "node.window"}
        self.binding.step(name, action, {**held, **self._written(report, "flight")})

    def starts_with(self, syncer: Syncer) -> None:
        """Makes the step by which a node's new name takes over use that was not reported under its old name."""
        used = self._read(syncer)["node.used"]
        self._cells[syncer] = self._cell(syncer)
        if used:
            name, window = self._names[syncer], int(self._read(syncer)["node.window"])
            if window > value_of(name.any_scene.node.window):
                self.binding.reach(window)
                self.binding.step(name, "a node enters a window", {"node.window": window})
            self.binding.step(name, "a node settles for more", {"node.used": used})

    def _report(self, batch: Batch) -> CellReport | None:
        for report in batch.cells:
            if report.key == self.key and batch.limits[report.limit].name == self._limit:
                return report
        return None

    @staticmethod
    def _used(report: CellReport) -> int:
        return report.current

    def _written(self, report: CellReport, place: str) -> Values:
        return {
            f"{place}.window": report.epoch if self._window else 0,
            f"{place}.allowance": report.allowance,
            f"{place}.base": report.base if self._window and not report.floats else 0,
            f"{place}.overdraft": report.overdraft,
            f"{place}.used": report.current,
        }

    def heard(self, syncer: Syncer, answer: Answer) -> None:
        """Makes the model's step of a node to which the hub's answer has come."""
        if answer.status is Status.STALE:
            return  # `gave_up` follows
        name, binding = self._names[syncer], self.binding
        self._wrote.pop(syncer, None)
        if answer.status is Status.LAPSED:
            binding.step(name, "a node gives up its batch", {"late.there": value_of(name.any_scene.late.there)})
            self.ends(syncer)
            self.starts(syncer)
            self.starts_with(syncer)
            return
        if not is_known(name.any_scene.node.alive):
            self.ends(syncer)
            self.starts(syncer)
            self.starts_with(syncer)
            return
        if name in self.outlived:
            raise OutsideAssumption("an answer from before a loss of data arrives after the wait")
        own = is_known(name.any_scene.answer.there)
        seen = self.catches_up(syncer, lowers=not own)
        seen = {of: value for of, value in seen.items() if of not in ("node.window", "node.used")}
        action = "a node hears an answer" if own else "a node hears of other keys"
        binding.step(name, action, {**seen, "node.until": self._until(syncer)})

    def gave_up(self, syncer: Syncer) -> None:
        """Makes the model's step of a node that has given up its batch, which may still arrive."""
        name, scene = self._names[syncer], self._names[syncer].any_scene
        self.outlived.discard(name)
        sequence = self._wrote.pop(syncer, None)
        if sequence is None:
            return
        if is_known(scene.flight.there):
            name.late[sequence] = scene.flight
        elif is_known(scene.errand.under_way):
            name.late[sequence] = None
        knows = is_known(scene.node.knows) or not syncer._generation
        seen = {"late.there": value_of(scene.late.there), "node.knows": knows}
        self.binding.step(name, "a node gives up its batch", seen)
