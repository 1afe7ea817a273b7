"""Rate limits for ASGI applications."""

from reconverge.integrations.asgi.middleware import CLOSE_CODES, POLICY_VIOLATION, AsgiRequest, RateLimitMiddleware

__all__ = ["CLOSE_CODES", "POLICY_VIOLATION", "AsgiRequest", "RateLimitMiddleware"]
