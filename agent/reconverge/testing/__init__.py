"""Tools for tests: a clock that only a test moves, and tests of the promises that every hub has to keep.

Authors of a hub inherit `HubClaims`. They also inherit `SettingsStoreClaims` if settings can be published at the hub,
`ReaderClaims` if it answers readers about keys, `ContractStoreClaims` if it keeps contracts, and `BoardClaims` if nodes
leave snapshots there. `ManualClock` is for the tests of any application, see `reconverge.Agent`, and so is the pytest
plug-in in `reconverge.testing.fixtures`.
"""

from __future__ import annotations

import sys

# Under pytest a claim that fails then shows the values it compared. Without pytest nothing is missing.
if (_pytest := sys.modules.get("pytest")) is not None:
    for _part in ("claims", "board_claims", "settings_store_claims", "contract_store_claims"):
        _pytest.register_assert_rewrite(f"{__name__}.{_part}")

from reconverge.clock import ManualClock
from reconverge.testing.board_claims import BoardClaims
from reconverge.testing.contract_store_claims import ContractStoreClaims
from reconverge.testing.hub_claims import HubClaims, ReaderClaims
from reconverge.testing.settings_store_claims import SettingsStoreClaims

pytest_plugins = ["reconverge.testing.fixtures"]
"""The plug-in with the fixtures, so that pytest loads it also for a `conftest.py` that names this package."""

__all__ = [
    "BoardClaims",
    "ContractStoreClaims",
    "HubClaims",
    "ManualClock",
    "ReaderClaims",
    "SettingsStoreClaims",
]
