"""The port through which nodes exchange, how a URL opens one, and what a node knows of the hub behind it."""

from reconverge.hub.adopting import Adoption, HubData
from reconverge.hub.port import (
    AddressLedger,
    Adoptable,
    Bulletin,
    ContractStore,
    Hub,
    KeyMarker,
    KeyReader,
    Region,
    SettingsStore,
    UsageHub,
    UsageLedger,
    Working,
)
from reconverge.hub.reading import KeyQuestion, KeyReading, KeyReadings
from reconverge.hub.registry import HubFactory, HubSettings, open_hub, redacted

__all__ = [
    "AddressLedger",
    "Adoptable",
    "Adoption",
    "Bulletin",
    "ContractStore",
    "Hub",
    "HubData",
    "HubFactory",
    "HubSettings",
    "KeyMarker",
    "KeyQuestion",
    "KeyReader",
    "KeyReading",
    "KeyReadings",
    "Region",
    "SettingsStore",
    "UsageHub",
    "UsageLedger",
    "Working",
    "open_hub",
    "redacted",
]
