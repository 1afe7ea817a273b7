"""Rate limits that a whole fleet shares, decided in each process from its own memory.

Every node holds a line that it may fill alone; all lines together never exceed the limit; the background exchange
moves the lines to where the traffic is.
"""

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
)
from reconverge.former_names import keep_former_names
from reconverge.hub import Hub
from reconverge.limit.limit import Limit
from reconverge.limiter.limiter import Limiter
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
    "ReconvergeError",
    "Reservation",
    "Slot",
    "UnknownHub",
    "UnknownKind",
    "UnknownLimit",
    "Usage",
]

keep_former_names()
