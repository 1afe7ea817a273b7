"""The classes to inherit for the tests of a hub: its promises to agents, and its promises to readers of keys."""

from __future__ import annotations

from reconverge.testing.claims.adopting import AdoptingClaims
from reconverge.testing.claims.allowances import LineClaims
from reconverge.testing.claims.asking import AskingClaims
from reconverge.testing.claims.data import DataClaims
from reconverge.testing.claims.erasing import ErasingClaims
from reconverge.testing.claims.fleets import FleetClaims
from reconverge.testing.claims.in_progress.slots import SlotClaims
from reconverge.testing.claims.keys import KeyClaims
from reconverge.testing.claims.names import NameClaims
from reconverge.testing.claims.reading import ReadingClaims
from reconverge.testing.claims.repeats import RepeatClaims
from reconverge.testing.claims.uses import UseClaims
from reconverge.testing.claims.windows import WindowClaims


class HubClaims(
    LineClaims,
    RepeatClaims,
    SlotClaims,
    NameClaims,
    KeyClaims,
    WindowClaims,
    DataClaims,
    UseClaims,
    AskingClaims,
    FleetClaims,
):
    """Tests of the promises of every hub.

    Inherit it under a name that your test runner collects, and define which hub to test:

        class TestMyHub(HubClaims):
            def make_hub(self, clock):
                return MyHub(URL, clock=clock)

    Each claim is an ordinary method `test_...` that runs its own event loop and uses `assert`; it needs no plugin, and
    nothing but what `reconverge` itself needs. Only `make_hub` must be defined. A claim that needs one of the other
    methods is skipped if that method is not defined (`unittest.SkipTest`).
    """


class ReaderClaims(ReadingClaims, AdoptingClaims, ErasingClaims):
    """Tests of hubs that answer readers about keys, adopt a loss of data on an operator's order, or erase identities.

    To be inherited beside `HubClaims`, which describes the methods to define. Claims about features that the hub does
    not have are skipped.
    """
