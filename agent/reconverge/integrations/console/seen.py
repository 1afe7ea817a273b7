"""The two newest snapshots of each node, and for how long it has been silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from reconverge.clock import SECOND_NS

REMEMBERED_S: Final = 60.0
"""For so long a node is shown that leaves no snapshots any more, unless there are too many nodes."""


class SeenSnapshot(Protocol):
    """A snapshot."""

    @property
    def at(self) -> float:
        """When it was made, in seconds since 1970 by the node's clock."""
        ...


T = TypeVar("T", bound=SeenSnapshot)


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """A node, and when a console has heard of it."""

    name: str
    newest: T
    before: T | None = None
    """The snapshot before that, if it is another one."""
    silent_s: float = 0.0
    """For how long no snapshot has been there; 0 while there is one."""

    @property
    def passed_s(self) -> float:
        """The seconds between the two snapshots, by which rates are computed; 0 if there is no rate of this moment."""
        if self.before is None or self.silent_s:
            return 0.0
        return max(0.0, self.newest.at - self.before.at)


class SnapshotMemory(Generic[T]):
    """All that was heard of, until it has been silent for long."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: dict[str, tuple[Seen[T], int]] = {}
        """By name, with the moment at which a snapshot was last there."""

    def all(self) -> list[Seen[T]]:
        """Those that have fallen silent among them."""
        return [seen for seen, _ in self._seen.values()]

    def take(self, found: Mapping[str, T], now_ns: int) -> None:
        """Take in snapshots, and forget nodes that have been silent for long."""
        for name, snapshot in found.items():
            known = self._seen.get(name)
            before = None if known is None else known[0].newest
            if known is not None and before == snapshot:
                before = known[0].before
            self._seen[name] = Seen(name, snapshot, before), now_ns
        for name, (seen, there_ns) in list(self._seen.items()):
            silent_s = (now_ns - there_ns) / SECOND_NS
            if silent_s > REMEMBERED_S:
                del self._seen[name]
            elif silent_s:
                self._seen[name] = Seen(name, seen.newest, seen.before, silent_s), there_ns
        silent = sorted((there_ns, name) for name, (seen, there_ns) in self._seen.items() if seen.silent_s)
        for _, name in silent[: max(0, len(self._seen) - self._most)]:
            del self._seen[name]
