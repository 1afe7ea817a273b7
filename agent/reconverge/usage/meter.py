"""Counts what this node charges to identities, by limit, route and minute."""

# Theory of operation.
#
# `add` finds a row in a dictionary and adds to it, under a lock. `take` holds the lock longest, as it goes through all
# rows of the node. A signal handler may call `add` at any moment, even while its thread holds the lock: the thread may
# take the lock again, and the interpreter adds to a row in one step.
#
# `take` returns the counts since the last call. It keeps the rows of the present minute, set to zero, so that
# `rows_max` bounds the rows of a minute however often `take` is called. It deletes all other minutes, as nothing is
# counted in them any more.
#
# The minute is always that of the wall clock: after the clock has jumped back, charges count in the earlier minute.
#
# Memory is bounded by a number of rows for each minute, and a number of routes for the life of a meter. Charges beyond
# these bounds are counted under OTHERS, so none is lost; the first such case is logged, and all are counted.

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from reconverge.clock import SECOND_NS, Clock, SystemClock
from reconverge.errors import InvalidCost, InvalidKey, shown
from reconverge.hub.usage import OTHERS, Counts, UsageKey
from reconverge.limit.limit import QUOTA_MAX
from reconverge.runtime.locks import new_lock
from reconverge.runtime.log_throttle import LoggedOnce
from reconverge.settings import check_count
from reconverge.usage.addresses import TEXT_MAX, AddressBook

logger = logging.getLogger("reconverge")

MINUTE_NS: Final = 60 * SECOND_NS
ROWS_MAX: Final = 10_000
"""The most rows (identity, limit and route) of one minute, which take 2 MB. A node that serves more identities in a
minute needs a larger bound."""
ROUTES_MAX: Final = 200
"""The most routes that are counted separately. An application with more probably reports paths in place of routes."""
OTHERS_MAX: Final = 1000
"""The most limits that are counted separately under OTHERS; contracts have at most this many."""
COST_MAX: Final = QUOTA_MAX
"""The largest cost of one request, as in limits. Sums of a period are exact up to 2**53."""

DEFAULT: Final = "default"
"""The namespace of agents and reporters that are given none."""

_COST, _REQUESTS, _REFUSED = 0, 1, 2
"""The indices of the three counts in a row."""

_Rows: TypeAlias = dict[tuple[str, str, str], list[int]]


class Taken(NamedTuple):
    """The counts of one identity, limit and route in one minute, as far as they are new since the last `Meter.take`."""

    minute: int
    """The number of the minute since 1970."""
    key: UsageKey
    counts: Counts


class Meter:
    """Counts what this node charges to identities. Threads, signal handlers and greenlets may share a meter.

    Args:
        clock: the clock whose minutes, in UTC, the meter counts by.
        rows_max: the most combinations of identity, limit and route that are counted separately within one minute.
        routes_max: the most routes that are counted separately.

    Raises:
        InvalidSetting: a bound is less than 1.
    """

    def __init__(self, clock: Clock | None = None, *, rows_max: int = ROWS_MAX, routes_max: int = ROUTES_MAX) -> None:
        for name, value in (("rows_max", rows_max), ("routes_max", routes_max)):
            check_count(name, value)
        self._wall_ns = (clock or SystemClock()).wall_ns
        self._rows_max = rows_max
        self._routes_max = routes_max
        self.overflowed = 0
        """The number of times that something was counted under OTHERS, because there was no room for its name."""
        self.unstarted = False
        """Whether a `UsageReporter` was made for this meter, and was not started."""
        self.reported_in: str | None = None
        """The namespace of the `UsageReporter` that was made for this meter; None without one."""
        self.namespaces = set[str]()
        """The namespaces of the agents whose guards count in this meter."""
        self._taken = False
        """Whether any code has taken counts, to report them."""
        self._logged = LoggedOnce()
        self._lock = new_lock()
        self.start_over()

    def start_over(self) -> None:
        """Forgets all counts in a forked child, because its parent reports them."""
        self._minutes: dict[int, _Rows] = {}
        self._routes: dict[str, str] = {}
        self._companions = 0
        self.addresses = AddressBook()
        """The book that estimates how many addresses each identity comes from."""

    def add(self, identity: str, limit: str, cost: int = 1, route: str = "", *, refused: bool = False) -> None:
        """Counts one request of an identity. Does no input or output.

        Args:
            identity: the customer; a charge under a longer name than 512 characters goes to "(others)".
            limit: the name of the limit that was charged.
            cost: the charge; negative for a refund when a reservation is settled for less. A refund does
                not count as a request.
            route: the pattern of the route that matched the request's path.
            refused: the request was refused, so that `cost` was not charged.

        Raises:
            InvalidCost: the cost is no whole number, or larger than 10**12.
            InvalidKey: a name is no text, or holds NUL.
        """
        if type(cost) is not int or abs(cost) > COST_MAX:
            raise _wrong_cost(cost)
        minute = self._wall_ns() // MINUTE_NS
        with self._lock:
            try:
                row = self._minutes[minute][identity, limit, route]
            except (KeyError, TypeError):  # a new row, or a name that is no text
                row = self._new_row(minute, identity, limit, route)
            if refused:
                row[_REFUSED] += 1
            else:
                row[_COST] += cost
                row[_REQUESTS] += cost >= 0

    def add_request(
        self,
        identity: str,
        charges: Iterable[tuple[str, int]],
        route: str = "",
        *,
        refused: bool = False,
        address: str | None = None,
    ) -> None:
        """Counts one request that was charged to several limits. `charges` pairs each limit with its cost; see `add`.

        Each limit counts the request, but the node's load (requests per second) counts it once. `address` is the
        client's address; from it, the meter estimates how many addresses the identity comes from; see `AddressBook`.
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
        """Corrects the node's load (its requests per second), to which each call of `add` adds one request.

        If `add` was called for several limits of one request, `count` is the number of calls after the first.
        """
        if type(count) is not int or not 0 <= count <= COST_MAX:
            raise _wrong_cost(count)
        with self._lock:
            self._companions += count

    def amend(
        self, identity: str, limit: str, route: str = "", *, cost: int = 0, requests: int = 0, refused: int = 0
    ) -> None:
        """Corrects counts of a request made earlier by adding numbers, which may be negative, to the present minute.

        A request that was admitted and is refused afterwards has requests=-1, refused=1. Raises as `add` does.
        """
        for count in (cost, requests, refused):
            if type(count) is not int or abs(count) > COST_MAX:
                raise _wrong_cost(count)
        with self._lock:
            row = self._new_row(self._wall_ns() // MINUTE_NS, identity, limit, route)
            row[_COST] += cost
            row[_REQUESTS] += requests
            row[_REFUSED] += refused

    def take(self) -> list[Taken]:
        """Returns the counts since the last call, for each minute. Only the thread that reports them may call it."""
        self._taken, taken = True, list[Taken]()
        current = self._wall_ns() // MINUTE_NS
        with self._lock:
            for minute, rows in list(self._minutes.items()):
                for key, row in list(rows.items()):  # a signal handler may add one
                    if any(row):
                        taken.append(Taken(minute, UsageKey(*key), Counts(*row)))
                        row[:] = 0, 0, 0
                if minute != current:
                    del self._minutes[minute]
        if taken and self.reported_in == DEFAULT and self.namespaces and DEFAULT not in self.namespaces:
            self._log_namespace(min(self.namespaces))
        return taken

    def erase(self, is_named: Callable[[str], bool]) -> None:
        """Forgets the identities for which `is_named` returns True: their counts not yet taken, and their addresses."""
        with self._lock:
            for rows in list(self._minutes.values()):
                for key in [each for each in list(rows) if is_named(each[0])]:
                    del rows[key]
        self.addresses.erase(is_named)

    def take_companions(self) -> int:
        """Returns the sum of the numbers passed to `join_requests` since the last call of this method."""
        with self._lock:
            companions, self._companions = self._companions, 0
        return companions

    def _new_row(self, minute: int, identity: str, limit: str, route: str) -> list[int]:
        for name in (identity, limit, route):
            if not isinstance(name, str) or "\0" in name:
                raise InvalidKey(f"{shown(name)} cannot be counted as usage: names are text without NUL")
        if not identity or not limit:
            raise InvalidKey(f"{(identity, limit)} cannot be counted as usage: name the customer and the limit")
        if self._minutes and minute not in self._minutes:
            self._log_unreported()
        rows = self._minutes.setdefault(minute, {})
        key = identity, limit, self._known_route(route)
        if key not in rows and (len(rows) >= self._rows_max or max(len(identity), len(limit)) > TEXT_MAX):
            self._overflows("identities", f"{self._rows_max} rows in a minute, and names of {TEXT_MAX} characters")
            limit = limit if len(rows) < self._rows_max + OTHERS_MAX and len(limit) <= TEXT_MAX else OTHERS
            key = OTHERS, limit, ""
        return rows.setdefault(key, [0, 0, 0])

    def _ends(self) -> None:
        """Notes that the process ends; logs a warning if there are counts that no reporter has been started for."""
        if self._minutes:
            self._log_unreported()

    def _log_namespace(self, namespace: str) -> None:
        if self._logged.is_new("namespace"):
            logger.warning(
                "reconverge: the usage of an agent with namespace=%r is reported in the namespace %r, as the "
                "UsageReporter was given none, and `reconverge usage` looks for it in the agent's; write "
                "UsageReporter(meter, hub, namespace=%r)",
                namespace,
                DEFAULT,
                namespace,
            )

    def _log_unreported(self) -> None:
        """Logs a warning, once, if no reporter was started for the meter, or none was made although guards count in it.

        Without a reporter and guards the application itself may take what it has counted.
        """
        if not self.unstarted and (self.reported_in is not None or self._taken or not self.namespaces):
            return
        if self._logged.is_new("unreported"):
            logger.warning(
                "reconverge: usage is counted, and nothing reports it to the hub, because %s; call reporter.start(), or"
                " write: with %s",
                *(
                    ("its UsageReporter was never started", "reporter")
                    if self.unstarted
                    else ("its Meter has no UsageReporter", "UsageReporter(meter, hub, namespace=...)")
                ),
            )

    def _known_route(self, route: str) -> str:
        """Returns the name under which a route is counted; "" for no route, and OTHERS if there are too many."""
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
                " routes_max, or count by fewer names. Further cases are not logged, but counted as `overflowed`",
                what,
                OTHERS,
                bound,
            )


def _wrong_cost(cost: object) -> InvalidCost:
    return InvalidCost(cost, f"cannot be counted as usage: it must be a whole number up to {COST_MAX}")
