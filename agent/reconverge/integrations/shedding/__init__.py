"""Load shedding in front of an application, by a stack of layers: middlewares for ASGI and WSGI, and metrics."""

from reconverge.integrations.shedding.asgi import LoadSheddingMiddleware
from reconverge.integrations.shedding.waiting import waiting
from reconverge.integrations.shedding.wsgi import WsgiLoadSheddingMiddleware

__all__ = ["LoadSheddingMiddleware", "WsgiLoadSheddingMiddleware", "waiting"]
