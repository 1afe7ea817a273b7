"""Changing what a limit admits, and how often it is exchanged, without forgetting what was used."""

# Theory of operation.
#
# Lines may be lowered by their node at any moment, and are: in the proportion in which the capacity falls, so that
# those of all nodes sum to the new one at most as soon as every node has changed. They are raised by the hub alone,
# once the last node has told it of the larger capacity. Until then the smallest capacity of all nodes counts, as ever.

from __future__ import annotations

from dataclasses import fields
from typing import Final

from reconverge.hub.report import UNBOUNDED
from reconverge.kernel.cell import Cell
from reconverge.kernel.engine import Reentry
from reconverge.kernel.reporting.deferred import Pace
from reconverge.kernel.table.table import Table
from reconverge.limit.limit import PACED, Limit
from reconverge.policies import Policy

CHANGEABLE: Final = frozenset({"quota", "burst", "soft", "max_debt", "costs"})
"""The others say how it is counted: a limit that counts differently is another one."""


class Changes(Table):
    """A limit that can be changed."""

    own_pace: Pace | None = None
    """How often its cells are exchanged, if that is not as often as those of the agent's other limits."""

    def why_not(self, limit: Limit) -> str | None:
        """What keeps this limit from becoming that one, if anything does."""
        fixed = [field.name for field in fields(Limit) if field.name not in CHANGEABLE]
        changed = [name for name in fixed if getattr(limit, name) != getattr(self.limit, name)]
        if changed:
            before = ", ".join(f"{name}={getattr(self.limit, name)!r}" for name in changed)
            return f"counts with {before}, which cannot change while it is in use"
        if limit != self.limit and limit.algorithm in PACED:
            return f"is a {limit.algorithm}, whose quota cannot change while it is in use"
        if self.limit not in (limit, self.pool):
            return "has shares set aside from it, so its quota cannot change while it is in use"
        return None

    def change(self, limit: Limit) -> None:
        """Admit as `limit` says from now on; whatever has been used counts on. Nothing may speak against it."""
        try:
            self.lock.run(self._change, limit, self.now_ns())
        except Reentry:
            self.put_off(self.change, limit)

    def _change(self, limit: Limit, now_ns: int) -> None:
        cells, before = self.all_cells(), self.capacity
        for cell in cells:
            self.advance(cell, now_ns)
            self.measure(cell)
        self.limit = limit
        self._count_by(limit)
        self.soft = self.capacity > self.nominal
        self.costs = None if limit.costs is None else dict(limit.costs)
        self.withheld = limit.withheld
        self.choose_path()
        for cell in cells:
            self._adapt(cell, before, now_ns)

    def set_policy(self, policy: Policy) -> None:
        """Go as far past the line as `policy` says from now on; of the overdraft, its part of that is kept at most."""
        try:
            self.lock.run(self._set_policy, policy, self.now_ns())
        except Reentry:
            self.put_off(self.set_policy, policy)

    def _set_policy(self, policy: Policy, now_ns: int) -> None:
        cells = self.all_cells()
        for cell in cells:
            self.advance(cell, now_ns)
            self.measure(cell)
        self.policy = policy
        self.choose_path()
        for cell in cells:
            cell.room = -1
            if policy.overshoot_milli != UNBOUNDED:
                overdrafts = cell.capacity * policy.overshoot_milli // 1000
                cell.overdraft = min(cell.overdraft, overdrafts // max(1, cell.nodes))
            if not cell.shard.alone:
                self._call(cell, now_ns)
            self.set_until(cell, now_ns)

    def leave_spare_at_hub(self, *, leave: bool = True) -> None:
        """Hold no right that is not used or asked for, from the next exchange on; or, with False, do so again.

        For small quotas whose callers wait for the hub when they are in doubt. What is free is then in one place, and
        not spread over nodes in parts that are too small for a request. It costs an exchange for each request that is
        admitted; and while the hub is away, a key that it knows is refused until it has been forgotten.
        Buckets drain by their lines, so they are not for this, nor are policies that go by the total.
        """
        if self.meter.bucket or self.policy.keeps_lines or self.policy.merged_only:
            return
        try:
            self.lock.run(self._leave_spare_at_hub, leave)
        except Reentry:
            self.put_off(self._leave_spare_at_hub, leave)

    def _leave_spare_at_hub(self, leave: bool) -> None:
        self.keeps_spare = not leave
        self.choose_path()

    def take_lease(self, lease_ns: int) -> None:
        """Have lines on it last for so long; to be called before any is granted."""
        self.lease_ns = lease_ns
        self.choose_path()

    def take_pace(self) -> None:
        """Heed the interval that it has now, or else the kernel's."""
        try:
            self.lock.run(self._take_pace)
        except Reentry:
            self.put_off(self.take_pace)

    def _take_pace(self) -> None:
        kernel = self.kernel
        self.interval_ns, self.interval_min_ns = self.own_pace or Pace(kernel.interval_ns, kernel.interval_min_ns)
        self.choose_path()

    def _adapt(self, cell: Cell, before: int, now_ns: int) -> None:
        """Have a cell keep to the new capacity, where it was `before`."""
        cell.room = -1
        if cell.shard.alone:
            cell.line = cell.base = cell.capacity = self.capacity
        else:
            cell.capacity = min(cell.capacity, self.capacity) if cell.heard else self.capacity
            # Lowering is always a node's own to do: once every node has done so, lines sum to the new
            # capacity. Raising is the hub's, when the last node has told it.
            if self.capacity < before:
                cell.line = cell.line * self.capacity // before
                cell.base = cell.base * self.capacity // before
                cell.overdraft = cell.overdraft * self.capacity // before
            cell.low_water = self.low_water(max(0, self.meter.headroom(cell, now_ns)))
            self._call(cell, now_ns)
        self.set_until(cell, now_ns)
