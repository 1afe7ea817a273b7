"""Rate limits for FastAPI, as dependencies of routes, routers and applications."""

from reconverge.integrations.fastapi.limits import Limits, TooManyRequests

__all__ = ["Limits", "TooManyRequests"]
