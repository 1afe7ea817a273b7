"""The claims about a hub that depend on the way to it, and those about what it keeps beside counts."""

from __future__ import annotations

from reconverge.testing import BoardClaims, ContractStoreClaims, SettingsStoreClaims
from reconverge.testing.claims.fleets import FleetClaims
from reconverge.testing.claims.reading import ReadingClaims
from reconverge.testing.claims.uses import UseClaims


class WayClaims(UseClaims, FleetClaims, ReadingClaims):
    """Promises of a hub whose way differs from another one's, and whose merging does not.

    Fleets exchange, readers read, connections close, and a server that is absent is told. What batches become is merged
    by the same rule, which the full contract tries where it differs: in memory, by the script, among members.
    """


class StoreClaims(SettingsStoreClaims, ContractStoreClaims, BoardClaims):
    """Promises of a hub that keeps settings, contracts and snapshots."""
