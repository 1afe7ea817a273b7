"""Drops the tables of quotas that no contract plan has any more, once no key is in them; see `tiers.py`."""

# Theory of operation.
#
# The problem. Each quota of a limit has a table (its keys and counts) on each node, and quotas are edited: after 1,500
# edits there were 1,501 tables, of which one was in use. So unused tables are dropped. But a thread may have found a
# table just before it is dropped, and use it afterwards. The charges of that thread must count, and be reported.
#
# How it works. A table is dropped when it has no keys and another table has the same name at the hub; that table takes
# over the sums of its charges. A dropped table is not destroyed: code that still refers to it can send it a request,
# and then the node takes it back before it has its first new key. Until then the compiled kernel leaves it to Python,
# whose `look_up` calls `fetch`. As long as any code refers to the table, the node finds it by its name, so that no two
# tables have one name.
#
# The tables of one limit share a memory of evicted keys. The last of these tables stays until the memory has faded.
#
# Reports refer to tables by name, so none is dropped while a batch is under way.

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol
from weakref import WeakValueDictionary

from reconverge.errors import LimitConflict
from reconverge.kernel.engine import Lock, Reentry, Reports
from reconverge.kernel.shard import ShardState
from reconverge.kernel.store import PLACES_PASSED
from reconverge.kernel.table.lookup import drop_unused
from reconverge.kernel.table.table import Table

GROUPS_LOOKED_AT: Final = 32
"""How many groups of keys one call checks for idle keys on a node without a hub, where no other code drops them."""
DROPPED_AT_ONCE: Final = 100
"""The most tables that one call drops, which takes about a millisecond."""


class Dropping(Protocol):
    """The part of a node that `Dropped` needs. `Kernel` implements it."""

    alone: bool
    keys: int
    tables: dict[str, Table]
    flights: dict[int, Reports]
    shards: list[ShardState]


class Dropped:
    """The tables of limits that a node has dropped because no key was in them; drops tables, and takes them back."""

    def __init__(self, kernel: Dropping, reported: dict[str, list[Table]], *, forget: Callable[[str], None]) -> None:
        self._kernel = kernel
        self._reported = reported
        self._forget = forget
        """Called with the name of each table that is dropped."""
        self._held: WeakValueDictionary[str, Table] = WeakValueDictionary()
        """The dropped tables that other code still refers to."""
        self.back: list[str] = []
        """The names of dropped tables that a request has brought back. The caller of `drop` reads this list."""

    def start_over(self) -> None:
        """Replaces the locks of all dropped tables in a forked child, as threads of the parent may have held them."""
        self.back.clear()
        for table in self._all_held():
            table.share_lock(table.tiers[0].lock if table.tiers else Lock(table.kernel))

    def drop(self, names: Iterable[str]) -> set[str]:
        """Drops those tables in `names` that have no keys; returns the names that belong to no table any more.

        Drops at most DROPPED_AT_ONCE tables. Only the thread of the exchange loop calls it.
        """
        gone: set[str] = set()
        left = 0
        for name in names:
            table = self._kernel.tables.get(name)
            if table is None:
                gone.add(name)
            elif not self._kernel.flights and left < DROPPED_AT_ONCE and self._drops(table):
                gone.add(name)
                left += 1
        return gone

    def held(self, name: str) -> Table | None:
        """Returns the dropped table `name` if other code still refers to it; otherwise None."""
        return self._held.get(name)

    def held_of(self, reported_as: str) -> list[Table]:
        """Returns the dropped tables with the name `reported_as` at the hub to which other code still refers."""
        return [table for table in self._all_held() if table.reported_as == reported_as]

    def _all_held(self) -> list[Table]:
        # A loop over `values` would fail if another thread dropped a table meanwhile; this is a single step.
        return [table for reference in self._held.valuerefs() if (table := reference()) is not None]

    def take_in_again(self, table: Table) -> None:
        """Makes a dropped table one of the node's tables again. The caller holds the table's lock."""
        if not table.dropped:
            return
        if self._kernel.tables.setdefault(table.name, table) is not table:
            raise LimitConflict(table.name, self._kernel.tables[table.name].limit, table.limit)
        self._held.pop(table.name, None)
        self._reported.setdefault(table.reported_as, []).append(table)
        table.dropped = False
        table.join_tiers()
        table.choose_path()
        self.back.append(table.name)

    def _drops(self, table: Table) -> bool:
        beside = self._reported.get(table.reported_as, [])
        if len(beside) < 2 or table not in beside:
            return False
        try:
            gone = table.lock.run(self._take_out, table, beside, table.now_ns())
        except Reentry:
            return False
        if gone:
            self._forget(table.name)
            for shard in self._kernel.shards:
                shard.voided.discard(table.name)
        return gone

    def _take_out(self, table: Table, beside: list[Table], now_ns: int) -> bool:
        if self._kernel.alone:
            for _ in range(min(GROUPS_LOOKED_AT, len(table.cells) // PLACES_PASSED + 1)):
                self._kernel.keys -= drop_unused(table, now_ns, PLACES_PASSED, keep=table.withheld > 0)
        if table.cells or table.overflow is not None or any(tally.fresh for tally in table.tallies):
            return False
        if table.tiers == [table] and now_ns - table.cells.let_go_ns < 2 * table.evicted.fade_ns:
            return False
        table.dropped = True
        table.tiers.remove(table)
        if table.tiers:  # stored in one of the others, so that the last table to be dropped knows the latest moment
            rest = table.tiers[-1].cells
            rest.let_go_ns = max(rest.let_go_ns, table.cells.let_go_ns)
        if table.cells.wide and table.cells.beside is not None:
            table.cells.beside.remove(table.cells)
            table.cells.wide = False
        beside.remove(table)
        # Before the lock is released, which all tables of one limit share: to take it again might fail, and then no
        # table would report these charges.
        for own, its in zip(table.tallies, beside[0].tallies, strict=True):
            its.absorb(own)
        self._held[table.name] = table
        del self._kernel.tables[table.name]
        table.choose_path()
        return True
