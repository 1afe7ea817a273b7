"""Evicts keys when a node is nearly full, and removes keys that an operator erases."""

# Theory of operation.
#
# The problem. A node counts at most `keys_max` keys. An attacker that makes up keys uses all this room, and every new
# key after that shares one count with the attacker's keys. So keys have to be evicted; but if a node forgets use that
# still counts, that key could use its limit once more.
#
# The rule, in this order:
#
# 1. A key without use on which the node holds no allowance leaves at once: there is nothing to remember.
# 2. With a hub, the key with the least use leaves; among equals the one that has used least in all, then the one whose
#    last request is longest ago. All its use must be reported and acknowledged. The node drops its allowances on the
#    key, sends a last report (see `CellReport.forgotten`) and forgets the key when the hub has confirmed that it counts
#    the use from there on. If the answer is lost, the key stays; the hub may then count its use twice until that has
#    faded, never less than once. Only the node knows the debt of a smooth limit, and would forget it with the key; so a
#    key with a debt stays until that is paid off, or it would get credit once more. A key with work in progress stays,
#    too: the hub would forget that work with the key.
# 3. Without a hub, of two keys the one that has used less leaves, if it has used half of its quota at most; its use is
#    remembered (`lookup.py`, `evicted.py`).
# 4. Nothing else leaves. A new key that finds no room is counted together with all others like it (`lookup.look_up`).
#
# Because rule 2 takes an exchange, it begins ahead of need, when less than 1/HIGH_SHARE of `keys_max` is free, and goes
# on until 1/LOW_SHARE is. It compares a sample of keys: an exchange looks at LOOKS places from all over the store and
# evicts at most half of the keys found there. A decision looks at two places, and only when the node is full. So no
# decision and no exchange takes longer the more keys there are.
#
# A key with a request within the last UNTOUCHED_NS stays, however little it has used.
#
# A key that was evicted while its use counted may come back. It is remembered approximately (`evicted.py`), and does
# not get the cold allowance of a new key: it waits for the hub's answer.
#
# A key that an operator erases (`hub/erasing.py`) leaves in the same way, with any use and however recent its last
# request is. It takes a few exchanges: a report under way has to be answered first, and unreported use has to be
# reported. So `let_leave` is called again until the key is gone. Only a request keeps the key: one that waits for room,
# or one that comes before the hub has confirmed. A key that was never reported leaves at once.

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from reconverge.clock import SECOND_NS
from reconverge.hub.report import FORGOTTEN, CellAnswer, CellReport
from reconverge.kernel.cell import Cell, measure
from reconverge.kernel.engine import Reports
from reconverge.kernel.reporting.renaming import forget_confirmed
from reconverge.kernel.reporting.requests import let_stay, mark_dirty
from reconverge.kernel.shard import ShardState
from reconverge.kernel.store import PLACES_PASSED
from reconverge.kernel.table.lookup import UNTOUCHED_NS, drop, is_idle, let_go, used_now
from reconverge.kernel.table.state import LimitState
from reconverge.kernel.table.table import Table
from reconverge.kernel.table.tiers import home_of

LOOKS: Final = 256
"""The most keys that one exchange checks in search of keys to evict."""
HIGH_SHARE: Final = 10
"""A node begins to evict keys when less than 1/HIGH_SHARE of its `max_keys` is free."""
LOW_SHARE: Final = 4
"""A node stops evicting keys when 1/LOW_SHARE of its `max_keys` is free."""
KEPT_NS: Final = 60 * SECOND_NS
"""For how many nanoseconds a node evicts no keys after the hub has declined to go on counting the use of a key."""
_PARTS: Final = 1_000_000


class Evictable(NamedTuple):
    """A key that may be evicted after a last report. In a sorted list, the keys that should leave first come first."""

    used_ppm: int
    """The key's use that counts now, in millionths of the capacity."""
    charged: int
    """The sum of all costs charged to the key since this node has had it."""
    touched_ns: int
    number: int
    cell: Cell


class Farewell(NamedTuple):
    """A key's last report, which the hub has not answered yet; `number` is the index of the report in the batch."""

    number: int
    cell: Cell
    report: CellReport


class FullNode(Protocol):
    """The part of a node that `Room` needs. `Kernel` implements it."""

    keys: int
    keys_max: int
    turn: int
    shards: list[ShardState]
    tables: dict[str, Table]

    def is_under_way(self, cell: Cell, /) -> bool:
        """Returns whether a report of `cell` waits for the hub's answer."""
        ...


class Room:
    """Evicts keys of one node to make room for new keys."""

    def __init__(self, kernel: FullNode) -> None:
        self._kernel = kernel
        self.high = kernel.keys_max - max(1, kernel.keys_max // HIGH_SHARE)
        self.low = kernel.keys_max - max(1, kernel.keys_max // LOW_SHARE)
        self.start_over()

    def start_over(self) -> None:
        """Stops evicting keys, until the node is nearly full again."""
        self._making = False

    @property
    def leaving(self) -> int:
        """Returns how many keys wait to send their last report, or for the hub's answer to it."""
        shards = self._kernel.shards
        return shards[0].leaving if len(shards) == 1 else sum(shard.leaving for shard in shards)

    @property
    def wanted(self) -> bool:
        """Returns whether the node is so full that keys should be evicted."""
        return self._making or self._kernel.keys > self.high

    def sweep(self, now_ns: int, shard: ShardState) -> bool:
        """Checks some keys if the node is nearly full, and marks some for eviction; returns whether it marked any.

        The next batch is for `shard`. A marked key of that shard joins the batch; a marked key of another shard waits
        for a batch to its own shard.
        """
        kernel = self._kernel
        if not self._making and kernel.keys <= self.high:
            return False
        excess = kernel.keys - self.leaving - self.low
        self._making = excess > 0 and (self._making or kernel.keys > self.high)
        if not self._making:
            return False
        found: list[Evictable] = []
        for table, groups in self._turns():
            for _ in range(groups):
                self._look(table, now_ns, found)
        found.sort()
        count = min(kernel.keys - self.leaving - self.low, -(-len(found) // 2))
        chosen, others = found[: max(0, count)], found[max(0, count) :]
        for each in chosen:
            each.cell.table.lock.run(self._choose, each.cell, now_ns, shard)
        rest = [(kernel.tables[each.cell.table.name], each.cell.key) for each in others]
        found.clear()
        others.clear()
        _let_rest(rest)
        return bool(chosen)

    def _choose(self, cell: Cell, now_ns: int, shard: ShardState) -> None:
        """Marks a key for eviction with its next report, unless the key must not be evicted any more."""
        if self._may_be_forgotten(cell, now_ns):
            cell.leaving = True
            cell.shard.leaving += 1
            if cell.shard is shard:
                shard.round.append(cell)
            else:
                mark_dirty(cell)

    def _turns(self) -> Iterable[tuple[Table, int]]:
        """Yields the limits whose keys to check next, and for each how many groups of PLACES_PASSED keys to check.

        That number is in proportion to the limit's number of keys, and at least one.
        """
        groups = LOOKS // PLACES_PASSED
        tables = [table for table in list(self._kernel.tables.values()) if table.cells]
        self._kernel.turn += 1
        keys = max(1, self._kernel.keys)
        for number in range(len(tables)):
            table = tables[(self._kernel.turn + number) % len(tables)]
            share = min(groups, max(1, groups * len(table.cells) // keys))
            groups -= share
            yield table, share
            if groups <= 0:
                return

    def _look(self, table: Table, now_ns: int, found: list[Evictable]) -> None:
        """Checks the next few keys of a limit: drops idle keys, and adds the keys that may be evicted to `found`."""
        _let_rest(table.lock.run(self._sort_out, table, now_ns, found))

    def _sort_out(self, table: Table, now_ns: int, found: list[Evictable]) -> list[tuple[Table, str]]:
        """Checks the next few keys: drops idle ones, adds to `found` those that may be evicted, returns the others."""
        rest: list[tuple[Table, str]] = []
        table.cells.jump()
        for cell in table.cells.pass_by(PLACES_PASSED):
            used = used_now(cell, now_ns)
            if is_idle(table, cell, used, now_ns):
                let_go(table, cell, now_ns)
            elif self._may_be_forgotten(cell, now_ns):
                used_ppm = max(0, used) * _PARTS // max(1, cell.capacity)
                found.append(Evictable(used_ppm, cell.charged, cell.touched_ns, len(found), cell))
            else:
                rest.append((table, cell.key))
        return rest

    def _may_be_forgotten(self, cell: Cell, now_ns: int) -> bool:
        """Returns whether the node may forget a key: all its use is reported, and the hub can go on counting it."""
        if not cell.heard or cell.dirty or cell.leaving or cell.waiters or cell.unconfirmed:
            return False
        if now_ns - cell.touched_ns < UNTOUCHED_NS or self._kernel.is_under_way(cell):
            return False
        if cell.table.meter.slots and cell.used > 0:
            return False  # the hub would not go on counting work in progress, which only this node knows of
        if cell.table.smooth and cell.level > 0:
            return False  # the node would give the key credit once more
        shard = cell.shard
        return shard.keeps_until_ns <= now_ns < shard.lease_until_ns

    def farewells(self, reports: Reports) -> list[Farewell]:
        """Returns the reports of a batch after which their keys will be evicted."""
        if not self.leaving:
            return []
        cells = [(number, cell) for number, cell in enumerate(reports.cells) if cell.leaving]
        return [Farewell(number, cell, report) for number, cell in cells if (report := reports[number]).forgotten]

    def hear(self, farewells: Sequence[Farewell], answers: Sequence[CellAnswer], now_ns: int) -> None:
        """Drops each key whose last report the hub has confirmed in `answers`, except keys with new requests."""
        answered = tuple(answers) if farewells else ()
        for number, cell, _ in farewells:
            cell.table.lock.run(self._hear_one, cell, answered[number].nodes == FORGOTTEN, now_ns)

    def _hear_one(self, cell: Cell, confirmed: bool, now_ns: int) -> None:
        table = cell.table
        if not confirmed:
            cell.shard.keeps_until_ns = now_ns + KEPT_NS
            let_stay(cell)
        elif cell.dirty or cell.waiters or cell.used != cell.counted:
            # The hub now counts the reported use as that of other nodes.
            let_stay(cell)
            table.edges.advance(cell, now_ns)
            measure(cell)
            cell.allowance = cell.base = cell.overdraft = 0
            forget_confirmed(cell, now_ns)
            cell.confirmed = (-1, 0, 0)
            cell.room = -1
            mark_dirty(cell)
        else:
            let_go(self._kernel.tables[cell.table.name], cell, now_ns)


def _let_rest(keys: Iterable[tuple[Table, str]]) -> None:
    """Releases the Python objects of keys that were only looked at; the compiled store keeps the keys itself."""
    for table, key in keys:
        table.lock.run(table.cells.rest, key)


def let_leave(table: LimitState, key: str, now_ns: int) -> bool:
    """Drops a key, or marks it for eviction with its next report; returns True if the node does not have it any more.

    The caller holds the lock of `table`.
    """
    home = home_of(table, key)
    cell = home.cells.get(key)
    if cell is None:
        return True
    if cell.waiters or (not cell.shard.alone and home.kernel.is_under_way(cell)):
        return False
    if cell.shard.alone:
        if drop(home, cell):
            home.kernel.keys -= 1
        return True
    if not cell.heard:
        let_go(home, cell, now_ns)
        return True
    shard = cell.shard
    if not (cell.dirty or cell.leaving or cell.unconfirmed or now_ns >= shard.lease_until_ns):
        cell.leaving = True
        shard.leaving += 1
        mark_dirty(cell)
    return False
