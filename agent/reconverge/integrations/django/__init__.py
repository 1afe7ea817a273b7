"""Rate limits for Django: a middleware, a decorator for views, and a cache whose counts all processes share."""

from reconverge.integrations.django.middleware import (
    DjangoRequest,
    RateLimitMiddleware,
    exempt,
    guard,
    limit,
    outcome_of,
)

__all__ = ["DjangoRequest", "RateLimitMiddleware", "exempt", "guard", "limit", "outcome_of"]
