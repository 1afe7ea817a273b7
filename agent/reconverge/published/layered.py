"""A setting in two layers, as its node says it and as it is published for the fleet: which value is in force."""

# Theory of operation. The rule, for every setting that can be published:
#
#   1. A published value comes before the node's own. Where nothing is published, the node's own value is in force.
#   2. A cap bounds the published value: if that is beyond the cap, what the cap leaves of it is in force.
#   3. A cap does not bound the node's own value, as the cap is the node's, too: `RateLimiter.change` may go past it.
#   4. Each layer changes without the other. When settings expire, the node's own value is in force as it is then, and
#      not as it was when they came.
#
# Settings differ in what their cap is, and in what it leaves:
#
#   setting            cap                                                leaves
#   quota and burst    the limit's `cap`; without one the node's own      the smaller, quota by quota
#   max_overshoot      the node's own                                     the smaller
#   switch             if the limit has a `cap`, the node's own; else -   the one that refuses more
#   sync interval      none
#
# The layers have different writers: threads and signal handlers of the application, and the exchange. So a layer is
# assigned by itself, in one step. A frozen value, made from the other layer as it was a moment ago, would undo what has
# been said in that moment, which may be a kill switch.
#
# A published quota such as "50/minute" is only a part of a limit: the rest of it is the node's own. So its layer is
# made anew whenever the node's own limit changes.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def smaller(value: Any, cap: Any) -> Any:
    """A cap leaves the smaller number."""
    return min(value, cap)


@dataclass(slots=True)
class Layered(Generic[T]):
    """A setting's own and published value, and the cap of the published one.

    `leave(value, cap)` is what a cap leaves of a value: the value itself if that is within the cap.
    """

    own: T
    published: T | None = None
    """None if nothing is published."""
    cap: T | None = None
    """None if any published value may be in force."""
    leave: Callable[[T, T], T] = field(default=smaller, repr=False, kw_only=True)

    @property
    def in_force(self) -> T:
        """The published value as far as the cap allows, or else the node's own."""
        published = self.published  # read once: another thread may take it back
        if published is None:
            return self.own
        return published if self.cap is None else self.leave(published, self.cap)

    @property
    def capped(self) -> bool:
        """Whether the cap keeps the published value from being in force as it is."""
        return self.published is not None and self.in_force != self.published

    @property
    def overridden(self) -> bool:
        """Whether another value than the node's own is in force."""
        return self.in_force != self.own
