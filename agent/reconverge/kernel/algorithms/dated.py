"""The meter of algorithms in which each charge has a date and counts in full for one window, and then not at all.

The two algorithms, `sliding-slices` and `sliding-log`, differ only in the dates that they give (`Dating`). Use does not
fade: it stays the same until a charge expires, and the moment at which the next charge expires is known.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from reconverge.clock import MICROSECOND_NS, NEVER_NS
from reconverge.hub.report import CellAnswer, CellReport
from reconverge.kernel.algorithms.dates import Dating
from reconverge.kernel.algorithms.meter import CellMeter
from reconverge.kernel.cell import Cell, Mark
from reconverge.kernel.history import History
from reconverge.limit.limit import Limit

NEWEST: Final = NEVER_NS
"""The date, in a mark, of charges made so recently that they are the newest ones."""


class Dated(CellMeter):
    """The arithmetic of limits whose charges each have a date: the use is the sum of charges that have not expired."""

    def __init__(self, limit: Limit, dating: Dating) -> None:
        self._dating = dating
        self._window_ns = limit.window_ns
        self._enough = limit.capacity if limit.count_refused else None
        self.additive = dating.additive
        self.idle_ns = limit.window_ns

    def open_window(self, cell: Cell, steps: int, epoch: int) -> None:
        """Stores `epoch`, the window's number. Here it serves only to measure demand; use is counted by dates."""
        cell.epoch = epoch

    def settle(self, cell: Cell, now_ns: int) -> None:
        """Enters new charges into the history under their date, and removes expired charges."""
        history = begin_change(cell)
        charged = history.pending
        if charged and self.additive:  # all charges since the last call have one date
            history.add(charged, self._dating.entries_max)
            charged = 0
        date = self._dating.date(cell, history, now_ns)
        if date > history.date:
            history.date = date
            history.forget_before(date - self._dating.lasts + 1, self._dating.lasts)
        elif self._dating.follows_hub and date < history.date - self._dating.lasts:
            # The dates follow a clock that has gone back by more than a window, at the price of one extra window.
            history.clear()
            history.date = date
        if charged:
            history.add(charged, self._dating.entries_max)
        if history.owed:
            history.charge_owed(_holds(cell), self._dating.entries_max)
        if self._enough is not None:
            history.trim(self._enough)  # older entries make no difference: nothing fits beyond `_enough`
        cell.used = cell.counted = history.total
        history.changing = False

    def until_ns(self, cell: Cell) -> int:
        """Returns the monotonic moment at which the present slice ends.

        For a log, in which every charge gets a date of its own, it is the moment at which the oldest charge expires.
        """
        history = history_of(cell)
        if self.additive:
            return self._dating.begins_ns(cell, history, history.date + 1)
        oldest = history.oldest
        return NEVER_NS if oldest is None else self._expires_ns(cell, history, oldest)

    def wait_ns(self, cell: Cell, allowance: int, cost: int, now_ns: int) -> int:
        return self._freed_ns(cell, cell.used + cost - allowance, now_ns)

    def others(self, cell: Cell, now_ns: int) -> float:
        """Returns the other nodes' use at the hub's last answer; 0 one window later, when all of it has expired."""
        return cell.others_current if now_ns < history_of(cell).others_until_ns else 0

    def fleet_wait_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        """Returns the nanoseconds until the capacity may have room for `cost`.

        There is no room before the first charge of another node expires. If one may have expired, there may be room
        after an exchange.
        """
        others_ns = history_of(cell).others_from_ns - now_ns
        return self._earliest_ns(cell, cost, others_ns if others_ns > 0 else cell.table.interval_ns, now_ns)

    def fleet_earliest_ns(self, cell: Cell, cost: int, now_ns: int) -> int:
        """Returns the nanoseconds for which certainly no node has room for `cost`.

        The other nodes' use counts until its first charge expires. The hub counts that charge until its node reports
        that it has expired, so from then on any part of their use may be free.
        """
        others_ns = history_of(cell).others_from_ns - now_ns
        return self._earliest_ns(cell, cost, others_ns, now_ns) - cell.shard.lag_ns

    def _earliest_ns(self, cell: Cell, cost: int, others_ns: int, now_ns: int) -> int:
        """Returns the least nanoseconds until `cost` fits, if no use of other nodes expires for `others_ns`."""
        others = ceil(self.others(cell, now_ns))
        excess = cell.used + others + cost - cell.capacity
        by_own_ns = self._freed_ns(cell, excess, now_ns)
        if not others:
            return by_own_ns
        return min(by_own_ns, max(others_ns, self._freed_ns(cell, excess - others, now_ns)))

    def fleet_reset_ns(self, cell: Cell, now_ns: int) -> int:
        others_ns = history_of(cell).others_until_ns - now_ns if self.others(cell, now_ns) else 0
        return max(self._lasts_ns(cell, now_ns), others_ns)

    def begin(self, cell: Cell, now_ns: int) -> None:
        cell.marked_ns = 0
        cell.history = History()

    def look(self, cell: Cell) -> int:
        """Returns the present date, by which a later correction finds a charge that is made now."""
        return history_of(cell).date

    def clear(self, cell: Cell) -> None:
        history = begin_change(cell)
        history.pending = 0
        history.clear()
        super().clear(cell)
        history.changing = False

    def owe(self, cell: Cell, amount: int, now_ns: int) -> None:
        """Makes a debt of the part of `amount`, just charged without a decision, that one window cannot hold.

        `sliding-log` has no debt: there the whole amount counts for one window.
        """
        self.settle(cell, now_ns)
        history = history_of(cell)
        beyond = min(amount, history.total - history.owed - _holds(cell))
        if beyond > 0 and self._dating.carries_debt:
            history = begin_change(cell)
            history.defer(beyond)
            history.changing = False

    def rebase(self, cell: Cell, now_ns: int) -> None:
        """Adapts a key's dates to the corrected estimate of the hub's time, so that charges keep their age."""
        history = history_of(cell)
        history.shift += self._dating.date(cell, history, now_ns) - history.date

    def give_back(self, cell: Cell, epoch: int, amount: int, mark: Mark | None, now_ns: int) -> None:
        """Gives back `amount` of the charge with the date in `mark`, if that charge still counts.

        If `mark` is None, gives it back from the oldest charges, which expire no later than the charge to correct. If
        its date is NEWEST, gives it back from the newest charges.
        """
        until_ns = cell.until_ns
        history = begin_change(cell)
        if history.pending > 0:
            history.add(history.pending, self._dating.entries_max)
        if mark is None:
            history.take_oldest(amount if epoch in (cell.epoch, cell.epoch - 1) else 0)
        elif mark.look == NEWEST:
            history.take_newest(amount)
        elif mark.look > history.date - self._dating.lasts:
            history.take_from(mark.look, amount)
        self._end_taking(cell, history, until_ns)

    def report(self, cell: Cell, now_ns: int) -> tuple[int, int]:
        """Returns this node's use, and for how many microseconds at most it will count; stores that use as reported.

        A debt may count for longer; but two windows are the most that a hub accepts, and the next report comes before
        they end.
        """
        history_of(cell).reported = cell.used
        return cell.used, -(-min(self._lasts_ns(cell, now_ns), 2 * self._window_ns) // MICROSECOND_NS)

    def reported_base(self, cell: Cell, now_ns: int) -> int:
        """Returns for how many microseconds certainly none of this node's use expires; 0 if it has none."""
        if cell.used <= 0:
            return 0
        lasts_ns = min(self._freed_ns(cell, 1, now_ns), self._window_ns) - cell.shard.lag_ns
        return max(0, lasts_ns // MICROSECOND_NS)

    def confirm(self, cell: Cell) -> None:
        history = history_of(cell)
        history.confirmed = history.reported

    def hear_of_others(self, cell: Cell, report: CellReport, answer: CellAnswer, heard_ns: int, now_ns: int) -> None:
        """Computes the other nodes' use from an answer; it counts in full, for at most one window from `heard_ns`."""
        own = report.current if report.reset_us >= answer.reset_us else 0
        self._note_others(cell, max(0, answer.current - own), heard_ns, heard_ns + answer.previous * MICROSECOND_NS)
        cell.fleet_used = float(answer.current + answer.silent)

    def _note_others(self, cell: Cell, current: int, heard_ns: int, from_ns: int) -> None:
        """Stores `current`, the other nodes' use as of an answer at `heard_ns`, and when it expires.

        None of it expires before `from_ns`, and all of it within a window.
        """
        cell.others_current = current
        history = history_of(cell)
        history.others_from_ns = from_ns
        history.others_until_ns = heard_ns + self._window_ns

    def disown(self, cell: Cell, now_ns: int) -> None:
        if cell.confirmed[0] not in (cell.epoch, cell.epoch - 1):
            return
        self.settle(cell, now_ns)  # enters charges that no report contains yet
        until_ns = cell.until_ns
        history = begin_change(cell)
        taken = history.take_oldest(history.confirmed)
        self._end_taking(cell, history, until_ns)
        self._note_others(cell, cell.others_current + taken, now_ns, now_ns)

    def _end_taking(self, cell: Cell, history: History, until_ns: int) -> None:
        """Ends a change that removed charges from the history: enters debt in their place, and computes `cell.used`."""
        if history.owed:
            history.charge_owed(_holds(cell), self._dating.entries_max)
        cell.used = cell.counted = history.total
        history.changing = False
        cell.until_ns = until_ns  # last: after an exception, the cell is settled again before it is charged

    def _freed_ns(self, cell: Cell, amount: int, now_ns: int) -> int:
        """Returns the nanoseconds until `amount` of this node's use has expired; NEVER_NS if the use is less."""
        if amount <= 0:
            return 1
        history = history_of(cell)
        date = history.date_freeing(amount, self._dating.lasts, cell.used - history.total)
        return NEVER_NS if date is None else max(1, self._expires_ns(cell, history, date) - now_ns)

    def _lasts_ns(self, cell: Cell, now_ns: int) -> int:
        """Returns the nanoseconds until no use of this node counts any more."""
        history = history_of(cell)
        pending = cell.used - history.total
        newest = history.date if pending > 0 else history.newest
        if history.owed:
            newest = history.date_freeing(cell.used, self._dating.lasts, pending)
        return 0 if newest is None else max(0, self._expires_ns(cell, history, newest) - now_ns)

    def _expires_ns(self, cell: Cell, history: History, date: int) -> int:
        """Returns the moment from which charges under `date` count no more."""
        return self._dating.begins_ns(cell, history, date + self._dating.lasts)


def _holds(cell: Cell) -> int:
    """Returns the largest use that fits into a window; a charge beyond that becomes a debt."""
    return cell.capacity or cell.table.capacity


def history_of(cell: Cell) -> History:
    """Returns a key's history, its charges by date; for limits by a sliding log or slices only."""
    assert cell.history is not None
    return cell.history


def begin_change(cell: Cell) -> History:
    """Returns a key's history of charges and marks it as changing; repairs it first if a change was interrupted.

    Until the caller clears the mark, `settle` runs before any charge is made to the key.
    """
    history = history_of(cell)
    if history.changing:
        cell.used = cell.counted = history.mend()
    history.pending = cell.used - history.total
    cell.room = -1
    cell.until_ns = 0
    history.changing = True
    return history
