"""Rate limits for Flask, as an extension."""

from reconverge.integrations.flask.extension import Limits, ServiceUnavailable, TooManyRequests

__all__ = ["Limits", "ServiceUnavailable", "TooManyRequests"]
