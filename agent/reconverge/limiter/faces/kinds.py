"""Makes a `RateLimiter` or a `SlotLimiter` for a limit, and checks the class of a given limiter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from reconverge.errors import InvalidSetting
from reconverge.limiter.control import LimitControl
from reconverge.limiter.faces.limiter import Limiter
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.limiter.faces.slot_limiter import SlotLimiter

if TYPE_CHECKING:
    from reconverge.kernel import Decider
    from reconverge.limiter.enforcement.bans import Bans

AnyLimiter = TypeVar("AnyLimiter", bound=Limiter)
MADE_BY: Final[dict[type, str]] = {RateLimiter: "agent.limit", SlotLimiter: "agent.concurrency", Limiter: "agent.limit"}
"""For each class of limiters, the name of the method that returns such a limiter."""
GIVES: Final[dict[type, str]] = {
    RateLimiter: "limits a rate, and has no slots",
    SlotLimiter: "limits work in progress, and only grants slots",
}


def limiter_of(table: Decider, bans: Bans | None = None) -> Limiter:
    """Returns a new limiter for a declared limit: a `SlotLimiter` for slots, else a `RateLimiter`."""
    return (SlotLimiter if table.limit.slots else RateLimiter)(LimitControl(table, bans))


def checked_kind(name: str, limiter: object, kind: type[AnyLimiter]) -> AnyLimiter:
    """Returns `limiter` if it is a `kind`. Otherwise raises InvalidSetting, for the setting called `name`."""
    if isinstance(limiter, kind):
        return limiter
    if isinstance(limiter, Limiter):
        problem = f"{GIVES[type(limiter)]}; expected a {kind.__name__}, as {MADE_BY[kind]} returns"
        raise InvalidSetting(name, limiter.name, problem)
    raise InvalidSetting(name, limiter, f"is no {kind.__name__}; pass what {MADE_BY[kind]} returned")
