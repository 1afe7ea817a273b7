"""Exports the rate limits for Flask, which are an extension of Flask."""

from reconverge.integrations.flask.extension import Limits, ServiceUnavailable, TooManyRequests

__all__ = ["Limits", "ServiceUnavailable", "TooManyRequests"]
