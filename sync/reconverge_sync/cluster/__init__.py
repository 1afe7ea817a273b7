"""The hub on a Redis Cluster."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reconverge_sync.cluster.hub import ClusterHub, open_cluster

__all__ = ["ClusterHub", "open_cluster"]


def __getattr__(name: str) -> Any:
    """Returns an attribute of the module `hub`, which is imported only when needed, as it needs the Redis client."""
    if name in __all__:
        return getattr(import_module("reconverge_sync.cluster.hub"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
