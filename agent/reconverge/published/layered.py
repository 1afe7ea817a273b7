"""A setting with two values, a node's own and one published for the fleet, and the rules for which is in force."""

# Theory of operation. The rules for every setting that can be published:
#
#   1. A published value wins over the node's own. If nothing is published, the node's own value is in force.
#   2. A cap bounds the published value: beyond the cap, the part that the cap allows is in force.
#   3. A cap does not bound the node's own value, because the cap is the node's, too: `RateLimiter.change` may exceed
#      it.
#   4. Each layer changes independently. When settings expire, the node's own value at that time is in force, not the
#      one at the time of their publication.
#
# Settings differ in their cap, and in the part of a published value that the cap allows:
#
#   setting            cap                                                allows
#   quota and burst    the limit's `cap`; without one the node's own      the smaller, quota by quota
#   max_overshoot      the node's own                                     the smaller
#   switch             if the limit has a `cap`, the node's own; else -   the one that refuses more
#   sync interval      none
#
# Different parts of the process write the two values: threads and signal handlers of the application, and the exchange.
# So each value is assigned by itself, in one step. If both were replaced together, a thread could write back an old
# copy of the other value, and undo a change made meanwhile, which may be a kill switch.
#
# A published quota such as "50/minute" is only a part of a limit; the rest is the node's own. So the published value is
# computed again whenever the node's own limit changes.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def smaller(value: Any, cap: Any) -> Any:
    """Returns the smaller of `value` and `cap`; the default of `Layered.leave`, for numeric settings."""
    return min(value, cap)


@dataclass(slots=True)
class Layered(Generic[T]):
    """A setting's own value on a node, the value published for the fleet, and the cap on the published value.

    `leave(value, cap)` returns the part of a value that a cap allows, which is the value itself if it is within the
    cap.
    """

    own: T
    published: T | None = None
    """The published value; None if there is none."""
    cap: T | None = None
    """The bound of the published value; None if it has no bound."""
    leave: Callable[[T, T], T] = field(default=smaller, repr=False, kw_only=True)

    @property
    def in_force(self) -> T:
        """Returns the published value, lowered to the cap if necessary; without a published value, the node's own."""
        published = self.published  # read once, because another thread may remove it
        if published is None:
            return self.own
        return published if self.cap is None else self.leave(published, self.cap)

    @property
    def capped(self) -> bool:
        """Returns whether there is a published value beyond the cap."""
        return self.published is not None and self.in_force != self.published

    @property
    def overridden(self) -> bool:
        """Returns whether the value in force differs from the node's own."""
        return self.in_force != self.own
