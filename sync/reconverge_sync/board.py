"""The rule by which a hub accepts and keeps snapshots of nodes; scripts do the same in Redis.

The comments in `reconverge/hub/board.py` explain it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from reconverge.hub.board import SNAPSHOTS_MAX, check_snapshot

SECOND_US: Final = 1_000_000


class KeptSnapshot(NamedTuple):
    """A stored snapshot of a node, and the moment of the hub's clock until which it is kept."""

    payload: bytes
    until_us: int


@dataclass(slots=True)
class Board:
    """Stores nodes' snapshots, and until when a console counts as open. See `reconverge.hub.SnapshotBoard`."""

    _until_us: int = 0
    _kept: dict[str, KeptSnapshot] = field(default_factory=dict[str, KeptSnapshot])

    def watch(self, keep_s: float, hub_us: int) -> None:
        self._until_us = max(self._until_us, hub_us + round(keep_s * SECOND_US))

    def watched_s(self, hub_us: int) -> float:
        return max(0, self._until_us - hub_us) / SECOND_US

    def leave(self, name: str, payload: bytes, keep_s: float, hub_us: int) -> bool:
        """Stores the snapshot of a node and returns True; returns False if no console is open or the board is full.

        The first snapshot under a new name also removes expired snapshots.
        """
        check_snapshot(name, payload)
        if self._until_us <= hub_us:
            return False
        if name not in self._kept:
            self._kept = {each: kept for each, kept in self._kept.items() if kept.until_us > hub_us}
            if len(self._kept) >= SNAPSHOTS_MAX:
                return False
        self._kept[name] = KeptSnapshot(payload, hub_us + round(keep_s * SECOND_US))
        return True

    def snapshots(self, hub_us: int) -> dict[str, bytes]:
        """Removes expired snapshots, as they contain keys, and returns the other snapshots by name."""
        self._kept = {name: kept for name, kept in list(self._kept.items()) if kept.until_us > hub_us}
        return {name: kept.payload for name, kept in self._kept.items()}
