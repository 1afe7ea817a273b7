"""The hub on one Redis server, whose script `exchange.lua` is the twin of the merge rule."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reconverge_sync.redis.hub import RedisHub, open_redis

__all__ = ["RedisHub", "open_redis"]


def __getattr__(name: str) -> Any:
    """Returns a name of the module `hub`, imported only now, because that module needs the client of a server."""
    if name in __all__:
        return getattr(import_module("reconverge_sync.redis.hub"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
