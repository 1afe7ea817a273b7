"""For tests: a clock that a test moves, and the claims that every hub has to keep.

`HubClaims` is for authors of a hub, `SettingsStoreClaims` too if settings can be published there, and
`ReaderClaims` if it answers readers of keys, `ContractStoreClaims` if it keeps contracts, `BoardClaims` if nodes
leave snapshots there; `ManualClock` is for the tests of any application, see `reconverge.Agent`, and so is the plug-in
of pytest in `reconverge.testing.fixtures`.
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
from reconverge.testing.hub_claims import HubClaims
from reconverge.testing.reader_claims import ReaderClaims
from reconverge.testing.settings_store_claims import SettingsStoreClaims

__all__ = [
    "BoardClaims",
    "ContractStoreClaims",
    "HubClaims",
    "ManualClock",
    "ReaderClaims",
    "SettingsStoreClaims",
]
