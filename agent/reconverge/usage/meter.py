"""Counts what was charged on this node, by identity, limit, route and minute."""

# Theory of operation.
#
# `add` runs in every request, so in the common case it looks at the clock, finds a row in a dictionary and adds to it,
# without a lock: between finding the row and the sums nothing is called, so the interpreter does not switch threads in
# the midst of a sum (`kernel/table/fast_path.py` says why). Where that is not known to hold, a lock is taken. What it
# needs is at hand in a closure (`_adding_at_once`), which costs a quarter less than a method that looks it up.
#
# A row is never taken away under a caller: `take` reads what has come since the last time and leaves the row where it
# is. A minute that is over stays for a while, for a thread that was held up between finding a row and adding to it.
#
# The minute is the wall clock's, to both sides: after a clock has jumped back, counting goes on in the earlier minute.
#
# Memory is bounded by rows for each minute and by routes for the life of a meter. What goes beyond is counted under
# OTHERS, which is logged once and counted; nothing is lost.

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from reconverge.clock import SECOND_NS, Clock, SystemClock
from reconverge.errors import InvalidCost, InvalidKey, InvalidSetting, shown
from reconverge.hub.usage import OTHERS, Counts, UsageKey
from reconverge.kernel.table.fast_path import goes_straight_on
from reconverge.limit.limit import QUOTA_MAX
from reconverge.runtime.locks import new_lock
from reconverge.runtime.log_throttle import LoggedOnce
from reconverge.usage.addresses import TEXT_MAX, AddressBook

logger = logging.getLogger("reconverge")

MINUTE_NS: Final = 60 * SECOND_NS
SETTLED_MINUTES: Final = 2
SETTLED_TAKES: Final = 3
"""For so long, and so many times without finding anything, a minute that is over is looked at for what comes late: of a
thread that was held up between finding a row and adding to it. A process that is paused as a whole takes nothing
meanwhile, so that its threads have that many reports to go on in."""
ROWS_MAX: Final = 10_000
"""Rows of one minute: 2 MB. A node that serves more identities in a minute raises it."""
ROUTES_MAX: Final = 200
"""An application has so many routes; more of them mean that paths are taken for routes."""
OTHERS_MAX: Final = 1000
"""Limits that are told apart among OTHERS; contracts have at most so many."""
COST_MAX: Final = QUOTA_MAX
"""The largest cost of one request, as limits have it. Sums of a period are exact up to 2**53."""

_COST, _REQUESTS, _REFUSED, _ONES, _SEEN = 0, 1, 2, 3, 4
"""Places in a row: sums; requests of cost 1, which are in neither of the sums; and what of all was taken before."""
_ROW: Final = (0, 0, 0, 0, 0, 0, 0)
_ONE: Final = 1

_Rows: TypeAlias = dict[tuple[str, str, str], list[int]]
_Turn: TypeAlias = Callable[[_Rows, int, int], None]
"""Has the fast path count in the rows of another minute, from one moment until another."""


class Taken(NamedTuple):
    """What has come under one key in one minute."""

    minute: int
    """Its number since 1970."""
    key: UsageKey
    counts: Counts


class Meter:
    """Counts what was charged on this node. Threads, signal handlers and greenlets may share it.

    Args:
        clock: whose minutes it counts by, in UTC.
        rows_max: identities times limits times routes that are told apart within one minute.
        routes_max: routes that are told apart.

    Raises:
        InvalidSetting: a bound is less than 1.
    """

    def __init__(self, clock: Clock | None = None, *, rows_max: int = ROWS_MAX, routes_max: int = ROUTES_MAX) -> None:
        for name, value in (("rows_max", rows_max), ("routes_max", routes_max)):
            if type(value) is not int or value < 1:
                raise InvalidSetting(name, value, "is not a whole number of at least 1")
        self._wall_ns = (clock or SystemClock()).wall_ns
        self._rows_max = rows_max
        self._routes_max = routes_max
        self.overflowed = 0
        """How many times something was counted under OTHERS, because there was no room for its name."""
        self._logged = LoggedOnce()
        self._straight_on = goes_straight_on()
        self._lock = new_lock()
        self._turn_at_once: _Turn | None = None
        if self._straight_on and type(self).add is Meter.add:
            add, self._turn_at_once = _adding_at_once(self._wall_ns, self._add_slowly)
            vars(self)["add"] = add  # an attribute of the instance hides the method
        self.start_over()

    def start_over(self) -> None:
        """In a forked child: what was counted is the parent's."""
        self._rows: _Rows = {}
        self._minutes: dict[int, _Rows] = {}
        self._settled: dict[int, int] = {}
        """By minute, how many times in a row nothing has come to it any more."""
        self._routes: dict[str, str] = {}
        self._begins_ns = self._ends_ns = 0
        if self._turn_at_once is not None:
            self._turn_at_once({}, 0, 0)
        self._companions = [0]
        self._companions_seen = 0
        self.addresses = AddressBook()
        """From how many addresses each identity comes."""

    def add(self, identity: str, limit: str, cost: int = 1, route: str = "", *, refused: bool = False) -> None:
        """Count one request of an identity. Never waits, and does no input or output.

        Args:
            identity: the customer; what is counted under a longer name than 512 characters goes to "(others)".
            limit: which limit was charged.
            cost: what was charged; negative for what is given back when a reservation is settled for less. That does
                not count as a request.
            route: the pattern that the request's path was found by.
            refused: the request was refused, so that `cost` was not charged.

        Raises:
            InvalidCost: the cost is no whole number, or larger than 10**12.
            InvalidKey: a name is no text, or holds NUL.
        """
        self._add_slowly(identity, limit, cost, route, refused)

    def add_request(
        self,
        identity: str,
        charges: Iterable[tuple[str, int]],
        route: str = "",
        *,
        refused: bool = False,
        address: str | None = None,
    ) -> None:
        """Count one request that several limits were charged for, each with its cost. See `add`.

        Each limit counts the request; the load of the node counts it once. With an `address`, that of the client, the
        identity is watched for coming from unusually many; see `AddressBook`.
        """
        add, limits = self.add, 0
        for limit, cost in charges:
            add(identity, limit, cost, route, refused=refused)
            limits += 1
        if limits > 1:
            self.join_requests(limits - 1)
        if address is not None:
            self.addresses.note(identity, address)

    def join_requests(self, count: int = 1) -> None:
        """So many that were counted are of a request that was counted before, so the load of the node is less by them.

        For what counts the limits of a request one by one.
        """
        companions = self._companions
        if self._straight_on:
            companions[0] += count
        else:
            with self._lock:
                companions[0] += count

    def amend(
        self, identity: str, limit: str, route: str = "", *, cost: int = 0, requests: int = 0, refused: int = 0
    ) -> None:
        """Count a correction of what was counted before, in the minute that it is: each number may be negative.

        A request that was admitted and then is not has requests=-1, refused=1. Raises as `add` does.
        """
        self._check(identity, limit, cost, route)
        with self._lock:
            row = self._row(identity, limit, self._known_route(route))
            row[_COST] += cost
            row[_REQUESTS] += requests
            row[_REFUSED] += refused

    def take(self) -> list[Taken]:
        """What has come since `take` was called last, by minute; for the one thread that reports it."""
        self._turn()
        taken: list[Taken] = []
        current = self._begins_ns // MINUTE_NS
        for minute, rows in list(self._minutes.items()):
            before = len(taken)
            for key, row in list(rows.items()):
                cost, requests, refused, ones = row[:_SEEN]
                counts = Counts(cost + ones, requests + ones, refused)
                cost, requests, refused = row[_SEEN:]
                new = Counts(counts.cost - cost, counts.requests - requests, counts.refused - refused)
                if any(new):
                    row[_SEEN:] = counts
                    taken.append(Taken(minute, UsageKey(*key), new))
            self._let_go_of(minute, over=len(taken) == before and abs(minute - current) > SETTLED_MINUTES)
        return taken

    def erase(self, is_named: Callable[[str], bool]) -> None:
        """Forget what was counted of the identities that are named, also what was not taken yet.

        What a thread counts at that very moment may be lost with it.
        """
        for rows in list(self._minutes.values()):
            for key in [each for each in list(rows) if is_named(each[0])]:
                rows.pop(key, None)
        self.addresses.erase(is_named)

    def _let_go_of(self, minute: int, *, over: bool) -> None:
        """Look at a minute no more, if it is over and nothing has come to it several times in a row."""
        times = self._settled.get(minute, 0) + 1 if over else 0
        self._settled[minute] = times
        if times >= SETTLED_TAKES:
            self._minutes.pop(minute, None)
            del self._settled[minute]

    def take_companions(self) -> int:
        """How many limits beyond the first of their requests were counted since this was called last."""
        companions = self._companions[0]
        new, self._companions_seen = companions - self._companions_seen, companions
        return new

    def _turn(self) -> None:
        """Count by the minute that it is."""
        minute = self._wall_ns() // MINUTE_NS
        self._rows = self._minutes.setdefault(minute, {})
        self._begins_ns, self._ends_ns = minute * MINUTE_NS, (minute + 1) * MINUTE_NS
        if self._turn_at_once is not None:
            self._turn_at_once(self._rows, self._begins_ns, self._ends_ns)

    def _add_slowly(self, identity: str, limit: str, cost: int, route: str, refused: bool) -> None:  # noqa: FBT001
        """Count for the first time in a minute, a cost that has to be looked at, and where threads need a lock."""
        self._check(identity, limit, cost, route)
        with self._lock:
            row = self._row(identity, limit, self._known_route(route))
            if refused:
                row[_REFUSED] += 1
            else:
                row[_COST] += cost
                row[_REQUESTS] += cost >= 0

    @staticmethod
    def _check(identity: object, limit: object, cost: object, route: object) -> None:
        """Raise InvalidCost or InvalidKey for what cannot be counted."""
        if type(cost) is not int or abs(cost) > COST_MAX:
            raise InvalidCost(cost, f"cannot be counted as usage: it must be a whole number up to {COST_MAX}")
        for name in (identity, limit, route):
            if not isinstance(name, str) or "\0" in name:
                raise InvalidKey(f"{shown(name)} cannot be counted as usage: names are text without NUL")

    def _row(self, identity: str, limit: str, route: str) -> list[int]:
        """The row of that key in this minute, or that of OTHERS if there is no room for it."""
        if not self._begins_ns <= self._wall_ns() < self._ends_ns:
            self._turn()
        rows = self._rows
        if (identity, limit, route) in rows:
            return rows[identity, limit, route]
        if len(rows) >= self._rows_max or max(map(len, (identity, limit))) > TEXT_MAX:
            self._overflows("identities", f"{self._rows_max} rows in a minute, and names of {TEXT_MAX} characters")
            limit = limit if len(rows) < self._rows_max + OTHERS_MAX and len(limit) <= TEXT_MAX else OTHERS
            identity, route = OTHERS, ""
        return rows.setdefault((identity, limit, route), list(_ROW))

    def _known_route(self, route: str) -> str:
        """The route as it is counted; "" if it is none, and OTHERS if there are too many."""
        if not route or route in self._routes:
            return route
        if len(self._routes) < self._routes_max and len(route) <= TEXT_MAX:
            return self._routes.setdefault(route, route)
        self._overflows("routes", f"{self._routes_max} routes, and names of {TEXT_MAX} characters")
        return OTHERS

    def _overflows(self, what: str, bound: str) -> None:
        self.overflowed += 1
        if self._logged.is_new(what):
            logger.warning(
                "reconverge: usage of some %s is counted under %r, because this node has room for %s; raise rows_max or"
                " routes_max, or count by fewer names. From now on that is only counted, as `overflowed`",
                what,
                OTHERS,
                bound,
            )


def _adding_at_once(wall_ns: Callable[[], int], slowly: Callable[..., None]) -> tuple[Callable[..., None], _Turn]:
    """`Meter.add` with everything at hand, and what has it count in another minute; `slowly` does what it leaves."""
    rows: _Rows = {}
    begins_ns = ends_ns = 0

    def turn(now_rows: _Rows, now_begins_ns: int, now_ends_ns: int) -> None:
        nonlocal rows, begins_ns, ends_ns
        rows, begins_ns, ends_ns = now_rows, now_begins_ns, now_ends_ns

    def add(identity: str, limit: str, cost: int = 1, route: str = "", *, refused: bool = False) -> None:
        if begins_ns <= wall_ns() < ends_ns:
            try:
                row = rows[identity, limit, route]
            except (KeyError, TypeError):  # a new row, or a name that is no text
                return slowly(identity, limit, cost, route, refused)
            # Nothing may be called between finding the row and the sums.
            if cost is _ONE and not refused:
                row[_ONES] += 1
                return None
            if cost.__class__ is int and 0 <= cost <= COST_MAX:
                if refused:
                    row[_REFUSED] += 1
                else:
                    row[_COST] += cost
                    row[_REQUESTS] += 1
                return None
        return slowly(identity, limit, cost, route, refused)

    return add, turn
