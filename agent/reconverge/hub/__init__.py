"""The interface between nodes and hubs: its protocols and messages, the checks of answers, and hubs opened by URL."""

from reconverge.hub.adopting import Adoption, HubData
from reconverge.hub.erasing import Erased, Erasure, Erasures
from reconverge.hub.port import (
    AddressLedger,
    Adoptable,
    ContractHints,
    ContractStore,
    Eraser,
    Evicting,
    Hub,
    IndexHints,
    KeyMarker,
    KeyReader,
    Region,
    SettingsStore,
    SnapshotBoard,
    UsageEraser,
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
    "ContractHints",
    "ContractStore",
    "Erased",
    "Eraser",
    "Erasure",
    "Erasures",
    "Evicting",
    "Hub",
    "HubData",
    "HubFactory",
    "HubSettings",
    "IndexHints",
    "KeyMarker",
    "KeyQuestion",
    "KeyReader",
    "KeyReading",
    "KeyReadings",
    "Region",
    "SettingsStore",
    "SnapshotBoard",
    "UsageEraser",
    "UsageHub",
    "UsageLedger",
    "Working",
    "open_hub",
    "redacted",
]
