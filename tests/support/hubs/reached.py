"""The claims about a hub that depend on the connection to it, and those about its stores."""

from __future__ import annotations

from reconverge.testing import BoardClaims, ContractStoreClaims, SettingsStoreClaims
from reconverge.testing.claims.fleets import FleetClaims
from reconverge.testing.claims.reading import ReadingClaims
from reconverge.testing.claims.uses import UseClaims


class WayClaims(UseClaims, FleetClaims, ReadingClaims):
    """Promises of a hub that is reached in another way, and merges in the same way as another one.

    Fleets exchange, readers read, connections close, and an absent server is reported. All these hubs merge batches by
    the same rule, which the full contract tries where it differs: in memory, by the script, among members.
    """


class StoreClaims(SettingsStoreClaims, ContractStoreClaims, BoardClaims):
    """Promises of a hub that keeps settings, contracts and snapshots."""
