"""Limits in an aiohttp server."""

from reconverge.integrations.aiohttp.middleware import AiohttpRequest, Limits, outcome_of

__all__ = ["AiohttpRequest", "Limits", "outcome_of"]
