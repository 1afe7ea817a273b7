"""Tiers: the tables of one limit, one for each plan's quota; each key is in one of them. The caller holds the lock."""

# Theory of operation.
#
# Customers on different plans have different quotas of one limit, and change plans while they use it. With a limit of
# its own for each plan, a customer that changes plans would begin without use. With a quota in each cell, every
# decision would have to read it, also for all limits without plans.
#
# So each plan has a table of its own, and the tables of one limit share their keys: their cells are the same at the
# hub, which identifies them by one name, algorithm and window, and takes the quota from each report (a report refers to
# its limit, and a batch may contain one limit several times, with several quotas). A key is in one of the tables at a
# time. A request for the key on another table moves its cell there, with all use, reports and grants. A decision about
# a key in its own table takes as long as without plans.
#
# A cell (a key's record) that moves follows the rules of a limit that changes (`changes.py`): its allowances shrink
# with the capacity at once, and only the hub raises them, once all nodes have reported the larger capacity; so the
# allowances of all nodes never sum to more than the largest capacity that any of them has. Allowances whose lease has
# ended stay lost, even if the other table has a longer lease. An answer that is under way contains the capacity by
# which the hub has granted, and its allowances are lowered in the same way.
#
# There may be thousands of tables, if customers have quotas of their own, with a key each. So one index lists which
# table has a key. The keys of a table with many keys are not in the index, as each would take more memory there than in
# the table; such a table is searched instead, and there are few of them.
#
# The tables share one lock, so that no key is ever in two of them, and one memory of evicted keys. Reports contain the
# sum of their charges, as the hub has one sum for the name.

from __future__ import annotations

from functools import partial
from typing import cast

from reconverge.kernel.cell import lease_until_ns, measure
from reconverge.kernel.engine import Cell, Store
from reconverge.kernel.reporting.renaming import give_up_lapsed_allowance
from reconverge.kernel.reporting.requests import let_stay
from reconverge.kernel.table.changes import adapt_to_quota
from reconverge.kernel.table.state import LimitState


def fetch(table: LimitState, key: str, now_ns: int) -> Cell | None:
    """Moves a key into `table` from the table of another plan; returns its cell (its counts), or None if none has it.

    If `table` was dropped, it becomes one of the node's tables again.
    """
    if table.dropped:
        table.kernel.take_in_again(table)
    cell = _cell_beside(table.cells, key)
    if cell is not None:
        _move(cell, cast("LimitState", cell.table), table, now_ns)
    return cell


def home_of(table: LimitState, key: str) -> LimitState:
    """Returns the table that has `key`: `table`, or one that shares keys with it. If none has the key, `table`."""
    cell = _cell_beside(table.cells, key) if key not in table.cells else None
    return table if cell is None else cast("LimitState", cell.table)


def _cell_beside(store: Store, key: str) -> Cell | None:
    """Returns the cell of a key from another store that shares its keys with `store`; None if none has the key."""
    if store.homes is None or store.beside is None:
        return None
    home = store.homes.get(key)
    for each in (*store.beside, *(() if home is None else (home,))):
        cell: Cell | None = None if each is store else each.get(key)
        if cell is not None:
            return cell
    return None


def _move(cell: Cell, source: LimitState, target: LimitState, now_ns: int) -> None:
    source.edges.advance(cell, now_ns)
    measure(cell)
    if now_ns >= lease_until_ns(cell) and not source.policy.keeps_allowances:
        give_up_lapsed_allowance(cell)
    former = None if source.pacer is None else source.pacer.terms(cell)
    let_stay(cell)
    cell.shard.agenda.forget(cell)
    source.cells.hand_over(cell, target.cells)
    cell.table = target
    adapt_to_quota(target, cell, source.capacity, former, now_ns)
    if cell.waiters:
        # Wakes the requests that wait in the table that the key has left; no answer would reach them there.
        source.kernel.put_off(partial(_tell, source, cell.key))


def _tell(table: LimitState, key: str) -> None:
    for listener in list(table.listeners.values()):
        listener.tell(key)
