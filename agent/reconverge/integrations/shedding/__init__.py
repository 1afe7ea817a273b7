"""A stack of layers in front of an application: ASGI, WSGI, and its metrics."""

from reconverge.integrations.shedding.asgi import LoadSheddingMiddleware
from reconverge.integrations.shedding.waiting import waiting
from reconverge.integrations.shedding.wsgi import WsgiLoadSheddingMiddleware

__all__ = ["LoadSheddingMiddleware", "WsgiLoadSheddingMiddleware", "waiting"]
