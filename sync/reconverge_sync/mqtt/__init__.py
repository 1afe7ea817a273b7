"""The hub on an MQTT broker: its members elect one of them, the leader, which keeps the ledger for all."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reconverge_sync.mqtt.hub import MqttHub, open_mqtt

__all__ = ["MqttHub", "open_mqtt"]


def __getattr__(name: str) -> Any:
    """Returns an attribute of the module `hub`, which is imported only when needed, as it needs the MQTT client."""
    if name in __all__:
        return getattr(import_module("reconverge_sync.mqtt.hub"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
