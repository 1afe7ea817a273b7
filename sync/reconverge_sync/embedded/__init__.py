"""The hub on a private redis-server that the processes of one machine share."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reconverge_sync.embedded.hub import EmbeddedHub, open_embedded

__all__ = ["EmbeddedHub", "open_embedded"]


def __getattr__(name: str) -> Any:
    """Returns an attribute of the module `hub`, which is imported only when needed, as it needs the Redis client."""
    if name in __all__:
        return getattr(import_module("reconverge_sync.embedded.hub"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
