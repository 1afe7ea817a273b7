"""Asking one limit: its two kinds of limiter, their modes (on, shadow, off), reservations, slots, and waiting."""

from reconverge.limiter.faces.limiter import Limiter
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.limiter.faces.slot_limiter import SlotLimiter
from reconverge.limiter.slots import Slot

__all__ = ["Limiter", "RateLimiter", "Slot", "SlotLimiter"]
