"""Exports the rate limits for FastAPI, which are dependencies of routes, routers and applications."""

from reconverge.integrations.fastapi.limits import Limits, TooManyRequests

__all__ = ["Limits", "TooManyRequests"]
