"""The promises of `reconverge.hub.KeyReader`, `Adoptable` and `Eraser`, as tests that the tests of such a hub inherit."""

from __future__ import annotations

from reconverge.testing.claims.adopting import AdoptingClaims
from reconverge.testing.claims.erasing import ErasingClaims
from reconverge.testing.claims.reading import ReadingClaims


class ReaderContract(ReadingClaims, AdoptingClaims, ErasingClaims):
    """What every hub promises that tells readers of keys, or can be ordered to go on after a loss, or to forget an identity.

    To be inherited beside `HubContract`, which says what has to be given; claims of what the hub cannot do are skipped.
    """
