"""Asking one limit: the limiter, its modes (on, shadow, off), reservations, and waiting for a turn."""

from reconverge.limiter.limiter import Limiter
from reconverge.limiter.slots import Slot

__all__ = ["Limiter", "Slot"]
