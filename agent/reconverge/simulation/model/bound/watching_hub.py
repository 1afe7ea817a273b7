"""Follows one key at the hub, as `watching.py` does at nodes: merges, and their effects on other nodes' entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from reconverge.clock import MICROSECOND_NS
from reconverge.hub.headroom import sealed_after_us
from reconverge.hub.report import AT_HUB, SEALED, Answer, Batch, CellAnswer, CellReport, Status
from reconverge.limit.limit import CONCURRENCY, FIRST_HIT, FIXED_WINDOW, Limit
from reconverge.policies import ADMIT, Policy
from reconverge.simulation.model.bound.states import BoundName, KeyTerms, OutsideAssumption, is_known, value_of
from reconverge.simulation.model.bound.watching import NodeWatch, Values
from reconverge.simulation.model.guards import MeterClass
from reconverge.simulation.model.state import ReportState
from reconverge.simulation.model.terms import FALSE, TRUE, Number


def class_of(limit: Limit) -> MeterClass | None:
    """Returns the kind of meter by which the model bounds `limit`; None if the model does not cover the limit."""
    if limit.algorithm == CONCURRENCY:
        return MeterClass.SLOTS
    if limit.dated:
        return MeterClass.DATED
    plain = limit.counts_as == FIXED_WINDOW and limit.align != FIRST_HIT and limit.calendar is None
    return MeterClass.WINDOW if plain else None


def is_bound(limit: Limit, policy: Policy) -> bool:
    """Whether the model covers `limit` under `policy`: its class, a bound at all times, and no `cold_allowance`."""
    bounded = policy.overshoot_milli >= 0 and policy.when_hub_is_away != ADMIT
    return class_of(limit) is not None and bounded and policy.cold_allowance == 0


def terms_of(limit: Limit, policy: Policy, lease_ns: int, capacity: int, request: int) -> KeyTerms:
    """Returns the settings of a key that are the same in all its states; `lease_ns` is the lease of its nodes."""
    meter = class_of(limit)
    if meter is None:
        raise NotImplementedError(f"the model does not cover {limit}; ask `is_bound` first")
    strict = policy.max_overshoot == 0
    overdrafts = capacity * policy.overshoot_milli // 1000
    lease_ns = lease_ns // MICROSECOND_NS * MICROSECOND_NS
    return KeyTerms(
        meter,
        strict,
        limit.window_ns,
        _counts_ns(limit),
        lease_ns,
        capacity,
        overdrafts,
        request=0 if strict else request,
    )


def _counts_ns(limit: Limit) -> int:
    """Returns the shortest time for which a charge counts, in ns; with slices, of a charge at the end of its slice."""
    return limit.window_ns - limit.window_ns // limit.slices if limit.dated and limit.slices else limit.window_ns


class LedgerEntry(NamedTuple):
    """The entry of one name in the hub's ledger, with its amounts in the present window of the cell."""

    allowance: int = 0
    base: int = 0
    overdraft: int = 0
    debt: int = 0


class LedgerSums(NamedTuple):
    """The hub's cell of the followed key: its window, its entries and the sums over them."""

    window: int
    capacity: int
    entries: Mapping[str, LedgerEntry]
    sums: LedgerEntry
    uncovered: int
    aside: bool = False
    """Whether the hub may count a sealed share as the allowance with which its node has begun the window."""


class Watch(NodeWatch):
    """Follows one key of one limit at all nodes and at the hub."""

    def ledger(self, hub: Any) -> LedgerSums | None:
        """Returns the hub's cell of the followed key; None if the hub has no such cell."""
        for (name, _, _, key), cell in hub._shards[0].cells.items():
            if name == self.limit and key == self.key:
                entries = {of: self._entry(cell, entry) for of, entry in cell.entries.items()}
                shares = sum(entry.base for entry in cell.entries.values() if entry.sealed)
                sums = LedgerEntry(cell.allowances, cell.bases - shares, cell.overdrafts, cell.debts)
                window = cell.epoch if self._window else 0
                aside = any(self._is_aside(hub, cell, of, entry) for of, entry in cell.entries.items())
                return LedgerSums(window, cell.capacity, entries, sums, cell.uncovered, aside)
        return None

    def _is_aside(self, hub: Any, cell: Any, of: str, entry: Any) -> bool:
        if not (entry.sealed and entry.base):
            return False
        record, begins_us = hub._shards[0].nodes.get(of), cell.epoch * self.binding.terms.window_ns // MICROSECOND_NS
        if record is None or record.heard_us + sealed_after_us() <= begins_us:
            return True
        return bool(record.apart_from_us <= begins_us < record.apart_until_us)

    def _entry(self, cell: Any, entry: Any) -> LedgerEntry:
        """Returns an entry of the cell with the amounts that it has in the cell's present window."""
        base = entry.base if self._window and not entry.sealed else 0
        if self._window and entry.epoch != cell.epoch:
            return LedgerEntry(base, base, entry.overdraft, 0)
        return LedgerEntry(entry.allowance, base, entry.overdraft, entry.debt)

    def merged(self, batch: Batch, answer: Answer, before: LedgerSums | None, after: LedgerSums | None) -> None:
        """Makes the model's steps of a hub that has merged a batch; `before` and `after` are its cell then and now."""
        name = self.binding.names.get(batch.node)
        if answer.status is not Status.MERGED or name is None:
            return
        if batch.sequence <= name.before_loss:
            raise OutsideAssumption("a batch from before a loss of data arrives after it")
        if (before is not None and before.aside) or (after is not None and after.aside):
            raise OutsideAssumption("a sealed share is set aside")
        late = name.late.get(batch.sequence, Ellipsis)
        report = self._report(batch)
        answered = next((cell for each, cell in zip(batch.cells, answer.cells, strict=True) if each is report), None)
        if after is None and answered is not None:  # nothing is left in the cell, and it is forgotten
            window = answered.epoch if self._window else 0
            after = LedgerSums(window, int(value_of(self.binding.hub.capacity)), {}, LedgerEntry(), 0)
        self._look_at_others(batch.node, before, after)
        self._wait_is_over(name, report, before, after, batch.node)
        if late is not Ellipsis:
            self._merge_late(name, late, report, answered, after)
        elif report is None or answered is None:
            self.binding.step(name, "a batch of other keys is merged")
        else:
            seen = {**self._there(name, after), **self._answered(answered)}
            self.binding.step(
                name, "a batch is merged", {**seen, "late.there": False}, self._sums(name, after, answered)
            )
        name.sequence = batch.sequence
        name.late = {number: kept for number, kept in name.late.items() if number > batch.sequence}

    def _merge_late(
        self,
        name: BoundName,
        late: ReportState | Any | None,
        report: CellReport | None,
        answered: CellAnswer | None,
        after: LedgerSums | None,
    ) -> None:
        if late is None or report is None or answered is None:
            self.binding.step(name, "a late batch of other keys is merged")
            return
        ready = late._replace(there=TRUE, fresh=TRUE)
        name.scenes = {looked: scene._replace(late=ready) for looked, scene in name.scenes.items()}
        sums = self._sums(name, after, answered, "late")
        self.binding.step(name, "a late batch is merged", self._there(name, after), sums)
        gone = ready._replace(there=FALSE, fresh=FALSE)
        name.scenes = {looked: scene._replace(late=gone) for looked, scene in name.scenes.items()}

    def _there(self, name: BoundName, after: LedgerSums | None) -> Values:
        entry = LedgerEntry() if after is None else after.entries.get(name.title, LedgerEntry())
        return {f"entry.{of}": value for of, value in entry._asdict().items()}

    def _answered(self, answered: CellAnswer) -> Values:
        return {
            "answer.window": answered.epoch if self._window else 0,
            "answer.allowance": answered.allowance,
            "answer.base": answered.base if self._window and answered.nodes < AT_HUB + SEALED else 0,
            "answer.overdraft": answered.overdraft,
        }

    def _sums(
        self, name: BoundName, after: LedgerSums | None, answered: CellAnswer, named: str = "in time"
    ) -> dict[str, Number]:
        own = LedgerEntry() if after is None else after.entries.get(name.title, LedgerEntry())
        sums = LedgerEntry() if after is None else after.sums
        uncovered = 0 if after is None else after.uncovered - max(0, own.debt - own.overdraft)
        found: dict[str, Number] = {
            f"allowances of others {named}": sums.allowance - own.allowance,
            f"bases of others {named}": sums.base - own.base if self._window else 0,
            f"overdrafts of others {named}": sums.overdraft - own.overdraft,
            f"debts of others {named}": sums.debt - own.debt,
            f"uncovered of others {named}": uncovered,
        }
        for of, value in self._answered(answered).items():
            found[f"answered {of.removeprefix('answer.')} {named}"] = value
        return found

    def _look_at_others(self, merged: str, before: LedgerSums | None, after: LedgerSums | None) -> None:
        binding = self.binding
        if binding.terms.meter is MeterClass.DATED:
            binding.forget_departed()
        if after is None:
            return
        if after.window > value_of(binding.hub.window):
            binding.opens(after.window)
        elif after.window < value_of(binding.hub.window):
            raise OutsideAssumption("the hub's clock goes back by a window")
        for title, name in list(binding.names.items()):
            entry = name.any_scene.entry
            if title == merged or is_known(entry.gone):
                continue
            there = before is not None and title in before.entries
            if title in after.entries:
                if there:
                    self._compare(name, after.entries[title])
            elif there or any(value_of(getattr(entry, of)) for of in LedgerEntry._fields):
                self._gives_up_on(name)  # if it was not there any more, the hub has forgotten the whole cell meanwhile
        if binding.terms.meter is MeterClass.DATED:
            binding.forget_departed()
        binding.changes_capacity(after.capacity)

    def _gives_up_on(self, name: BoundName) -> None:
        """Makes the model's steps by which a name's dated charges expire and the hub gives up on the name."""
        entry = name.any_scene.entry
        if not is_known(entry.known):
            return
        expires = "dated use expires at the hub"
        dated = self.binding.terms.meter is MeterClass.DATED
        if dated and value_of(entry.debt) and self.binding.can(name, expires, {"entry.debt": 0}, {}):
            self.binding.step(name, expires, {"entry.debt": 0})
        gives_up, chosen = "the hub gives up on a name", {"departed": self._departed(name)}
        holds_nothing = not any(value_of(getattr(entry, of)) for of in LedgerEntry._fields)
        if holds_nothing and not self.binding.can(name, gives_up, {}, chosen):
            return  # the hub drops an entry without anything in it at any time; the model keeps it, empty
        self.binding.step(name, gives_up, None, chosen)

    def _compare(self, name: BoundName, there: LedgerEntry) -> None:
        """Raises UnboundStep if the entry of `name`, now `there`, has changed without a merge of its node's batch."""
        entry = name.any_scene.entry
        if there.debt < value_of(entry.debt) and self.binding.terms.meter is MeterClass.DATED:
            self.binding.step(name, "dated use expires at the hub", {"entry.debt": there.debt})
            entry = name.any_scene.entry
        kept = LedgerEntry(*(int(value_of(getattr(entry, of))) for of in LedgerEntry._fields))
        if kept != there:
            seen = {f"entry.{of}": value for of, value in there._asdict().items()}
            self.binding.reject(name, "an entry changes by itself", seen)

    def _departed(self, name: BoundName) -> int:
        """Returns the least use that the hub must count for a name on which it has given up."""
        entry = name.any_scene.entry
        allowance, overdraft, debt = (int(value_of(each)) for each in (entry.allowance, entry.overdraft, entry.debt))
        if is_known(entry.left) and allowance == 0 and overdraft <= debt:
            overdraft = 0
        terms = self.binding.terms
        idle_ns = value_of(entry.seen) + terms.lease_ns
        outdated = value_of(self.binding.hub.now) > idle_ns + 2 * terms.window_ns
        return max(0 if outdated else allowance + overdraft, allowance + debt if debt > 0 else 0)

    def _wait_is_over(
        self,
        name: BoundName,
        report: CellReport | None,
        before: LedgerSums | None,
        after: LedgerSums | None,
        title: str,
    ) -> None:
        """Makes the step that ends the hub's wait after a loss of data, if the merge of `report` granted anything."""
        if not is_known(self.binding.hub.waits) or report is None or after is None:
            return
        had = before.entries.get(title) if before is not None else None
        has = after.entries.get(title, LedgerEntry())
        entry = name.any_scene.entry
        base = 0 if report.floats else report.base
        least = (report.allowance, base, report.overdraft)
        if had is not None and is_known(entry.known):
            # The report has lowered the entry, except an allowance of another window and an overdraft in use.
            kept = LedgerEntry(*(int(value_of(getattr(entry, of))) for of in LedgerEntry._fields))
            same = not self._window or report.epoch == after.window
            least = (
                min(kept.allowance, report.allowance) if same else kept.allowance,
                min(kept.base, base),
                min(kept.overdraft, max(report.overdraft, has.debt)),
            )
        elif report.epoch < after.window and self._window:
            least = (base, base, report.overdraft)
        if has.allowance > least[0] or (self._window and has.base > least[1]) or has.overdraft > least[2]:
            awaits = [name for name in self.binding.names.values() if self._is_answered(name)]
            self.binding.ends_wait()
            self.outlived.update(name for name in awaits if not self._is_answered(name))

    def loses_data(self) -> None:
        """Makes the model's step of a hub that has lost its data."""
        fresh = {name: not (node in self._heard or self._is_answered(name)) for node, name in self._names.items()}
        knows = {name: each and is_known(name.any_scene.node.knows) for name, each in fresh.items()}
        self.binding.loses_data(knows)

    @staticmethod
    def _is_answered(name: BoundName) -> bool:
        return is_known(name.any_scene.answer.there) or is_known(name.any_scene.errand.answered)
