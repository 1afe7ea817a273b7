"""Goal: the embedded hub keeps every promise of a hub. Method: what depends on the way, on its own server.

A console of another process sees snapshots there, as at any Redis; a port that is missing here would have each console
show one process alone.
"""

from __future__ import annotations

from tests.support.hubs.reached import StoreClaims, WayClaims
from tests.support.hubs.ways import Embedded


class TestEmbeddedHub(Embedded, WayClaims, StoreClaims):
    """A server for each claim, which goes by the machine's clock."""
