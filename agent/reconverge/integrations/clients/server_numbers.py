"""Charges a limiter until it has no more left than the server reports, if that number is certainly about its quota."""

# Theory of operation.
#
# If a server counts more calls than this fleet has sent, other clients use the same account, and less is left for the
# fleet. The difference is charged, so that all workers count it, until the server renews its quota.
#
# A server may have several quotas, and thirty searches left must not use up a limit of five thousand other calls. So
# the server's quota must have the name that the caller has given (`resource`), or the limiter's own name, quota and
# window. All other numbers are ignored, counted, and logged once.
#
# The server's number is a little older than the local one, so calls under way make the difference smaller, not larger.
# Several workers may charge the same difference before they have exchanged reports. Then less is sent than could be,
# until the server's quota is renewed.
#
# If a server reports a quota with nothing left, the calls of all nodes pause until it is renewed. A quota that fills up
# gradually causes no pause, because a part of it is available long before all of it is. The limiter is charged until it
# is empty instead; if it is a bucket of the same rate, it fills up as fast as the server's quota. A refusal causes no
# such charge: it names the time at which a part is available, and a limiter with a window would refuse for longer.

from __future__ import annotations

import logging
from math import ceil
from typing import TYPE_CHECKING, Final

from reconverge.integrations.clients.server_fields import Numbers, is_named
from reconverge.limiter.used_elsewhere import UsedElsewhere
from reconverge.runtime.log_throttle import LoggedOnce
from reconverge.runtime.threads import Total

if TYPE_CHECKING:
    from reconverge.limit.limit import Limit
    from reconverge.limiter.faces.rate_limiter import RateLimiter

logger = logging.getLogger("reconverge")

NAMES_LOGGED_MAX: Final = 16


class ServerNumbers:
    """Charges one limiter until it has no more left than a server's responses report about the same quota."""

    def __init__(self, limiter: RateLimiter, resource: str | None) -> None:
        self._limiter = limiter
        self._resource = resource
        self._elsewhere = UsedElsewhere(limiter.control)
        self.give_back = self._elsewhere.give_back
        self._logged = LoggedOnce(NAMES_LOGGED_MAX)
        self._not_placed = Total()

    @property
    def not_placed(self) -> int:
        """Returns how often the server's numbers were ignored, because they may be about another quota."""
        return self._not_placed.value

    def learn(self, key: str, said: Numbers, *, refused: bool) -> float | None:
        """Charges the limiter until it has no more left than `said`, the server's numbers, report.

        `refused` means that the response is a refusal, after which calls pause anyway. In that case, a server's quota
        with nothing left charges nothing.

        Returns the seconds until a used-up quota is renewed, during which calls must pause; else None.
        """
        quota = self._quota_of(said)
        if quota is None:
            self._not_placed.add()
            if self._logged.is_new(said.name):
                logger.info(
                    "reconverge: the limit %r ignores a server's numbers of its quota %r (%s): name that quota as "
                    "resource=%r if it is the one that the limit counts",
                    *(self._limiter.name, said.name, said.quota, said.name),
                )
            return None
        if said.remaining == 0 and (refused or (said.reset is not None and not said.gradual)):
            return said.reset
        self._elsewhere.lower(key, quota, said.remaining, said.reset)
        return None

    def _quota_of(self, said: Numbers) -> str | None:
        """Returns the limiter's name of the quota that the server's numbers are about; None if that is not certain."""
        quotas = self._limiter.control.quotas
        if self._resource is None:
            names = [each for each in quotas if is_named(said, self._limiter.name) or is_named(said, each)]
            return next((each for each in names if said.window is not None and _is_same(quotas[each], said)), None)
        if not is_named(said, self._resource):
            return None
        return next((each for each in quotas if len(quotas) == 1 or _is_same(quotas[each], said)), None)


def _is_same(limit: Limit, said: Numbers) -> bool:
    """Returns whether the server's numbers state the same quota as `limit`, and the same window, if they state one."""
    return said.quota == limit.quota and said.window in (None, ceil(limit.window))
