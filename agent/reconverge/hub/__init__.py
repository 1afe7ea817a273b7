"""The port through which nodes exchange, how a URL opens one, and what a node knows of the hub behind it."""

from reconverge.hub.port import Bulletin, ContractStore, Hub, Region, SettingsStore, Working
from reconverge.hub.registry import HubFactory, HubSettings, open_hub, redacted

__all__ = [
    "Bulletin",
    "ContractStore",
    "Hub",
    "HubFactory",
    "HubSettings",
    "Region",
    "SettingsStore",
    "Working",
    "open_hub",
    "redacted",
]
