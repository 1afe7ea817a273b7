"""Rate limits for aiohttp servers."""

from reconverge.integrations.aiohttp.middleware import Limits, outcome_of
from reconverge.integrations.aiohttp.request import AiohttpRequest

__all__ = ["AiohttpRequest", "Limits", "outcome_of"]
