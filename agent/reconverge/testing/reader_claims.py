"""The promises of `KeyReader`, `Adoptable` and `Eraser` of `reconverge.hub`, as tests that those of a hub inherit."""

from __future__ import annotations

from reconverge.testing.claims.adopting import AdoptingClaims
from reconverge.testing.claims.erasing import ErasingClaims
from reconverge.testing.claims.reading import ReadingClaims


class ReaderClaims(ReadingClaims, AdoptingClaims, ErasingClaims):
    """Promises of every hub that answers readers of keys, goes on after a loss by order, or forgets identities.

    To be inherited beside `HubClaims`, which says what has to be given; claims of what the hub cannot do are skipped.
    """
