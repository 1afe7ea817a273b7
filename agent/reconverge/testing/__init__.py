"""For tests: a clock that moves when told to, and what every hub has to keep its promises about.

`HubContract` is for authors of a hub, `BulletinContract` too if settings can be published there, and
`ReaderContract` if readers are told of keys, `ContractStoreContract` if it keeps contracts; `ManualClock` is for the
tests of any application, see `reconverge.Agent`.
"""

from __future__ import annotations

import sys

# Under pytest a claim that fails then shows the values it compared. Without pytest nothing is missing.
if (_pytest := sys.modules.get("pytest")) is not None:
    for _part in ("scene", "lines", "repeats", "names", "keys", "windows", "data", "uses", "fleets"):
        _pytest.register_assert_rewrite(f"{__name__}._{_part}")
    _pytest.register_assert_rewrite(f"{__name__}.bulletin_contract", f"{__name__}.contract_store_contract")

from reconverge.clock import ManualClock
from reconverge.testing.bulletin_contract import BulletinContract
from reconverge.testing.contract_store_contract import ContractStoreContract
from reconverge.testing.hub_contract import HubContract
from reconverge.testing.reader_contract import ReaderContract

__all__ = ["BulletinContract", "ContractStoreContract", "HubContract", "ManualClock", "ReaderContract"]
