"""Charges a limiter for the part of its quota that the server counts and this fleet does not, until the server renews.

Numbers are believed only of a quota that is certainly the limiter's own.
"""

# Theory of operation.
#
# A server that counts more than this fleet has sent has other clients with the same account, so less is left for us.
# The difference is charged, so that all workers count it. Three mistakes would cost more than that saves:
#
#     another quota      the 30 searches that are left must not empty the 5000 other calls. So the server's quota must
#                        have the name that the caller has given (`resource`), or the limiter's name, quota and window
#     for too long       the charge ends when the server's quota is renewed, and not one window after it was made:
#                        `Extra` remembers what is to be given back
#     to other quotas    the limiter's quota for a day does not pay for what the server's quota for a minute has lost:
#     of the limiter     the charge is made to one table
#
# The server's number is a little older than the local one, so calls under way make the difference smaller, not larger.
# Several workers may charge the same difference before they have exchanged reports: less is sent than could be, until
# the server's quota is renewed.

from __future__ import annotations

import logging
from collections import deque
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from reconverge.clock import SECOND_NS
from reconverge.integrations.clients.server_fields import Numbers, is_named
from reconverge.kernel import settle
from reconverge.runtime.log_throttle import LoggedOnce
from reconverge.runtime.threads import Total

if TYPE_CHECKING:
    from reconverge.kernel import Charged, Table
    from reconverge.limiter.faces.rate_limiter import RateLimiter

logger = logging.getLogger("reconverge")

EXTRAS_MAX: Final = 1000
"""The most charges that are given back early; beyond that, the oldest stay until the limiter's own window ends."""
NAMES_LOGGED_MAX: Final = 16


class Extra(NamedTuple):
    """A charge for calls of others, and when the server's quota is renewed."""

    key: str
    charged: Charged
    amount: int
    made_ns: int
    until_ns: int


class ServerNumbers:
    """The numbers of one server's quotas, as far as they are about the quotas of one limiter."""

    def __init__(self, limiter: RateLimiter, resource: str | None) -> None:
        self._limiter = limiter
        self._resource = resource
        self._now_ns = limiter.control.clock.monotonic_ns
        self._extras: deque[Extra] = deque(maxlen=EXTRAS_MAX)
        self._logged = LoggedOnce(NAMES_LOGGED_MAX)
        self._not_placed = Total()

    @property
    def not_placed(self) -> int:
        """Returns how many numbers were ignored, because they may be about another quota."""
        return self._not_placed.value

    def learn(self, key: str, said: Numbers) -> float | None:
        """Lowers the limiter to the server's number; returns for how many seconds the quota is used up, if it is."""
        table = self._table_of(said)
        if table is None:
            self._not_placed.add()
            if self._logged.is_new(said.name):
                logger.info(
                    "reconverge: the limit %r ignores a server's numbers of its quota %r (%s): name that quota as "
                    "resource=%r if it is the one that the limit counts",
                    *(self._limiter.name, said.name, said.quota, said.name),
                )
            return None
        if said.remaining == 0 and said.reset is not None and not said.gradual:
            return said.reset
        self._charge(key, table, said)
        return None

    def give_back(self, key: str) -> None:
        """Gives back what was charged for quotas that the server has renewed since."""
        now_ns = self._now_ns()
        for _ in range(len(self._extras)):
            try:
                extra = self._extras.popleft()
            except IndexError:  # another thread is at it
                return
            if extra.key != key or now_ns < extra.until_ns:
                self._extras.append(extra)
                continue
            self._give_back(extra, now_ns)

    @staticmethod
    def _give_back(extra: Extra, now_ns: int) -> None:
        table, mark, unit = extra.charged
        if mark.cell is not table.cells.get(extra.key) or mark.reset_us != mark.cell.reset_us:
            return  # the key has been forgotten since, and the charge with it
        if table.dated is not None and now_ns - extra.made_ns >= table.window_ns:
            return
        # Without the mark, which is of the moment before the charge: a log would look for the charge there, and a
        # bucket would take it for drained.
        table.correct(extra.key, mark.epoch, -extra.amount * unit)
        table.tell(extra.key)

    def _table_of(self, said: Numbers) -> Table | None:
        """Returns the table that counts what the server has stated numbers of; None if that is not certain."""
        tables = self._limiter.control.tables
        if self._resource is None:
            name = self._limiter.name
            found = [each for each in tables if is_named(said, name) or is_named(said, each.name)]
            return next((each for each in found if _is_same(each, said) and said.window is not None), None)
        if not is_named(said, self._resource):
            return None
        return tables[0] if len(tables) == 1 else next((each for each in tables if _is_same(each, said)), None)

    def _charge(self, key: str, table: Table, said: Numbers) -> None:
        _, charges = self._limiter.control.enforcement.answers.hit_and_mark(key, 0, None)
        for charged in charges:
            if charged.table is not table:
                continue
            amount = (table.test(key, 0).remaining - said.remaining) // charged.unit
            if amount > 0:
                settle([charged], key, amount)
                if said.reset is not None:
                    now_ns = self._now_ns()
                    until_ns = now_ns + round(said.reset * SECOND_NS)
                    self._extras.append(Extra(key, charged, amount, now_ns, until_ns))


def _is_same(table: Table, said: Numbers) -> bool:
    """Returns whether quota and window are those of a table, as far as the server has stated them."""
    limit = table.limit
    return said.quota == limit.quota and said.window in (None, ceil(limit.window))
