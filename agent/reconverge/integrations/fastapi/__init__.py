"""Limits as dependencies of FastAPI's routes, routers and applications."""

from reconverge.integrations.fastapi.limits import Limits, TooManyRequests

__all__ = ["Limits", "TooManyRequests"]
