"""Rate limits that a whole fleet shares, decided in each process from its own memory.

Each node has an allowance, a part of the limit that it may use without asking; all allowances together never exceed the
limit. In the background, nodes exchange with a hub, which moves allowances to the nodes that have the traffic.
"""

# Each name is imported when it is first used: `from reconverge import Agent` imports the agent, but the command
# `reconverge`, which imports this package for `--version` and for each completion in a shell, imports neither kernel
# nor asyncio. Type checkers read the imports that follow; a test compares them with `_PLACES`.

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from reconverge.agent.agent import Agent
    from reconverge.agent.fleet_usage import FleetUsage
    from reconverge.clock import Clock
    from reconverge.decision import Decision, Usage
    from reconverge.errors import (
        CostExceedsQuota,
        EventletPatched,
        HubUnavailable,
        InvalidCost,
        InvalidKey,
        InvalidLimit,
        InvalidSetting,
        LeaseEnded,
        LimitConflict,
        MissingExtra,
        NeedsSlot,
        ReconvergeError,
        UnknownHub,
        UnknownKind,
        UnknownLimit,
        WrongMoment,
    )
    from reconverge.hub import Hub
    from reconverge.limit.limit import Limit
    from reconverge.limiter.faces.limiter import Limiter
    from reconverge.limiter.faces.rate_limiter import RateLimiter
    from reconverge.limiter.faces.slot_limiter import SlotLimiter
    from reconverge.limiter.reservation import Reservation
    from reconverge.limiter.slots import Slot
    from reconverge.stats import AgentStats, Health, LimitStats

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AgentStats",
    "Clock",
    "CostExceedsQuota",
    "Decision",
    "EventletPatched",
    "FleetUsage",
    "Health",
    "Hub",
    "HubUnavailable",
    "InvalidCost",
    "InvalidKey",
    "InvalidLimit",
    "InvalidSetting",
    "LeaseEnded",
    "Limit",
    "LimitConflict",
    "LimitStats",
    "Limiter",
    "MissingExtra",
    "NeedsSlot",
    "RateLimiter",
    "ReconvergeError",
    "Reservation",
    "Slot",
    "SlotLimiter",
    "UnknownHub",
    "UnknownKind",
    "UnknownLimit",
    "Usage",
    "WrongMoment",
]

_PLACES: Final = {
    "Agent": "reconverge.agent.agent",
    "AgentStats": "reconverge.stats",
    "Clock": "reconverge.clock",
    "CostExceedsQuota": "reconverge.errors",
    "Decision": "reconverge.decision",
    "EventletPatched": "reconverge.errors",
    "FleetUsage": "reconverge.agent.fleet_usage",
    "Health": "reconverge.stats",
    "Hub": "reconverge.hub",
    "HubUnavailable": "reconverge.errors",
    "InvalidCost": "reconverge.errors",
    "InvalidKey": "reconverge.errors",
    "InvalidLimit": "reconverge.errors",
    "InvalidSetting": "reconverge.errors",
    "LeaseEnded": "reconverge.errors",
    "Limit": "reconverge.limit.limit",
    "LimitConflict": "reconverge.errors",
    "LimitStats": "reconverge.stats",
    "Limiter": "reconverge.limiter.faces.limiter",
    "MissingExtra": "reconverge.errors",
    "NeedsSlot": "reconverge.errors",
    "RateLimiter": "reconverge.limiter.faces.rate_limiter",
    "ReconvergeError": "reconverge.errors",
    "Reservation": "reconverge.limiter.reservation",
    "Slot": "reconverge.limiter.slots",
    "SlotLimiter": "reconverge.limiter.faces.slot_limiter",
    "UnknownHub": "reconverge.errors",
    "UnknownKind": "reconverge.errors",
    "UnknownLimit": "reconverge.errors",
    "Usage": "reconverge.decision",
    "WrongMoment": "reconverge.errors",
}

if not TYPE_CHECKING:  # type checkers would take it to mean that every name exists

    def __getattr__(name: str) -> object:
        """Imports a public name, or a module of this package. Raises AttributeError for a name that is neither."""
        if name in _PLACES:
            found = globals()[name] = getattr(import_module(_PLACES[name]), name)
            return found
        if not name.startswith("_"):
            try:
                return import_module(f"{__name__}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{__name__}.{name}":
                    raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """Returns all public names, whether they have been imported yet or not."""
        return sorted({*globals(), *_PLACES})
