"""Limiters, which decide about requests to one limit, with switches, reservations, slots, bans and queues."""

from reconverge.limiter.faces.limiter import Limiter
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.limiter.faces.slot_limiter import SlotLimiter
from reconverge.limiter.slots import Slot

__all__ = ["Limiter", "RateLimiter", "Slot", "SlotLimiter"]
