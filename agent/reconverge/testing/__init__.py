"""For tests: a clock that moves when told to, and what every hub has to keep its promises about.

`HubContract` is for authors of a hub, `BulletinContract` too if settings can be published there, and
`ReaderContract` if readers are told of keys, `ContractStoreContract` if it keeps contracts, `BoardContract` if nodes
leave snapshots there; `ManualClock` is for the tests of any application, see `reconverge.Agent`, and so is the plug-in
of pytest in `reconverge.testing.fixtures`.
"""

from __future__ import annotations

import sys

# Under pytest a claim that fails then shows the values it compared. Without pytest nothing is missing.
if (_pytest := sys.modules.get("pytest")) is not None:
    for _part in ("claims", "board_contract", "bulletin_contract", "contract_store_contract"):
        _pytest.register_assert_rewrite(f"{__name__}.{_part}")

from reconverge.clock import ManualClock
from reconverge.testing.board_contract import BoardContract
from reconverge.testing.bulletin_contract import BulletinContract
from reconverge.testing.contract_store_contract import ContractStoreContract
from reconverge.testing.hub_contract import HubContract
from reconverge.testing.reader_contract import ReaderContract

__all__ = [
    "BoardContract",
    "BulletinContract",
    "ContractStoreContract",
    "HubContract",
    "ManualClock",
    "ReaderContract",
]
