"""The hub on one Redis server, whose script `exchange.lua` does the same as the merge rule in Python."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reconverge_sync.redis.hub import RedisHub, open_redis

__all__ = ["RedisHub", "open_redis"]


def __getattr__(name: str) -> Any:
    """Returns an attribute of the module `hub`, which is imported only when needed, as it needs the Redis client."""
    if name in __all__:
        return getattr(import_module("reconverge_sync.redis.hub"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
