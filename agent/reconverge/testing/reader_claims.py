"""Tests of the promises of `KeyReader`, `Adoptable` and `Eraser` of `reconverge.hub`, for a hub's tests to inherit."""

from __future__ import annotations

from reconverge.testing.claims.adopting import AdoptingClaims
from reconverge.testing.claims.erasing import ErasingClaims
from reconverge.testing.claims.reading import ReadingClaims


class ReaderClaims(ReadingClaims, AdoptingClaims, ErasingClaims):
    """Tests of hubs that answer readers about keys, go on after a loss by an operator's order, or erase identities.

    To be inherited beside `HubClaims`, which describes the methods to define. Claims about features that the hub does
    not have are skipped.
    """
