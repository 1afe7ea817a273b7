"""Asking one limit: the limiter, its modes (on, shadow, off), reservations, and waiting for a turn."""

from reconverge.limiter.limiter import Limiter

__all__ = ["Limiter"]
