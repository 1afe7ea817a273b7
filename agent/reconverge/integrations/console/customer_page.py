"""The page on which a customer with a signed link sees the used and remaining quota of its own limits."""

# Theory of operation.
#
# The page shows the limits in the contract of this one customer, and how much of them is used on all nodes. It shows no
# plan, node, key or switch. If something cannot be shown, it gives no reason, because a reason may name something of
# the operator's. Some limits do not count this customer alone, but each of its users, or all customers together: the
# page shows only how many of these there are.
#
# Any holder of a link can load the page, so its cost has bounds. The use of one customer is read at the hub once in
# `KEPT_NS`, however often its page asks. At most `READ_AT_ONCE_MAX` customers are read at once; the page of a further
# customer gets a Retry-After.

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from reconverge.clock import SECOND_NS, Clock
from reconverge.errors import ReconvergeError
from reconverge.integrations.contracts.problems import RETRY_AFTER_S, Problem
from reconverge.integrations.customer_links import PAGE, CustomerLink, CustomerLinks

logger = logging.getLogger("reconverge")

DATA: Final = f"{PAGE}.json"
LINK: Final = "link"
"""The query parameter that carries the link."""
NO_LINK: Final = (
    "This link is not valid. It may have expired, or was not copied completely; ask for a new one where you got it."
)
"""The response to an invalid link, the same for all reasons."""
NOT_NOW: Final = "Your limits cannot be shown at this moment; try again soon."
KEPT_NS: Final = 2 * SECOND_NS
KEPT_MAX: Final = 1000
READ_AT_ONCE_MAX: Final = 8
SHOWN: Final = ("name", "quota", "window_s", "at_once", "used", "remaining", "refill_s", "wait_s", "allowed", "former")
"""The properties of each limit that its customer may see."""

Standing = Callable[[str], Awaitable[Mapping[str, Any]]]
"""A function like `ContractPages.own_limits`: it returns the limits that count only the given customer, with their
use."""


class CustomerPage:
    """Answers requests for customers' pages."""

    def __init__(self, links: CustomerLinks, standing: Standing, clock: Clock) -> None:
        self._links = links
        self._standing = standing
        self._clock = clock
        self._reading = 0
        self._kept: OrderedDict[str, tuple[dict[str, Any], int]] = OrderedDict()
        """The cached limits by customer, the oldest first, each with the monotonic time at which they expire."""

    def forget(self, is_named: Callable[[str], bool]) -> None:  # noqa: ARG002  # all are dropped
        """Drops the cached limits of all customers, not only of those in `is_named`, when an identity is erased."""
        self._kept.clear()

    def opened(self, links: list[str]) -> CustomerLink:
        """Returns the content of the only link in `links`: its customer and its end.

        Raises Problem (403) if there is not exactly one link, or the link is invalid; the visitor does not learn which.
        """
        link = self._links.opened(links[0]) if len(links) == 1 else None
        if link is None:
            raise Problem(403, NO_LINK)
        return link

    async def standing(self, link: CustomerLink) -> dict[str, Any]:
        """Returns the customer's limits with their present use. Raises Problem (503) if these cannot be read now."""
        now_ns = self._clock.monotonic_ns()
        while self._kept and next(iter(self._kept.values()))[1] <= now_ns:
            self._kept.popitem(last=False)
        known = self._kept.get(link.identity)
        standing = known[0] if known is not None else await self._read(link.identity)
        return {"identity": link.identity, "expires": link.expires, **standing}

    async def _read(self, identity: str) -> dict[str, Any]:
        if self._reading >= READ_AT_ONCE_MAX:
            raise Problem(503, NOT_NOW, fields={"Retry-After": str(RETRY_AFTER_S)})
        self._reading += 1
        try:
            found = await self._standing(identity)
        except ReconvergeError:
            logger.debug("reconverge: the page of a customer could not be shown", exc_info=True)
            raise Problem(503, NOT_NOW, fields={"Retry-After": str(RETRY_AFTER_S)}) from None
        finally:
            self._reading -= 1
        limits = [{name: each[name] for name in SHOWN} for each in found["limits"] if each["switch"] != "off"]
        standing = {
            "sentence": found["sentence"]
            if limits
            else "",  # without limits, the sentence would name the plan, or what is off
            "limits": limits,
            "left_out": found["left_out"],
        }
        self._kept[identity] = standing, self._clock.monotonic_ns() + KEPT_NS
        self._kept.move_to_end(identity)
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return standing
