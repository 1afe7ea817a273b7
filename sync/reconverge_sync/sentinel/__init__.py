"""The hub on the Redis that its Sentinels name as the master."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reconverge_sync.sentinel.hub import SentinelHub, open_sentinel

__all__ = ["SentinelHub", "open_sentinel"]


def __getattr__(name: str) -> Any:
    """Returns an attribute of the module `hub`, which is imported only when needed, as it needs the Redis client."""
    if name in __all__:
        return getattr(import_module("reconverge_sync.sentinel.hub"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
