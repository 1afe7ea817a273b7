"""Remembers the two newest snapshots of each node, and how long the node has been silent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from reconverge.clock import SECOND_NS

REMEMBERED_S: Final = 60.0
"""The seconds for which a silent node is still shown, unless there are too many nodes."""


class SeenSnapshot(Protocol):
    """The interface of a node's snapshot, as far as its age is concerned."""

    @property
    def at(self) -> float:
        """Returns the time at which the snapshot was made, in seconds since 1970 by the node's clock."""
        ...


T = TypeVar("T", bound=SeenSnapshot)


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """A node with its two newest snapshots, and how long it has been silent."""

    name: str
    newest: T
    before: T | None = None
    """The snapshot before the newest one; None if there was none yet."""
    silent_s: float = 0.0
    """The seconds since the node's snapshot was last at the hub; 0 while it is there."""

    @property
    def passed_s(self) -> float:
        """Returns the seconds between the two snapshots; 0 if there is only one, or if the node is silent now."""
        if self.before is None or self.silent_s:
            return 0.0
        return max(0.0, self.newest.at - self.before.at)


class SnapshotMemory(Generic[T]):
    """The newest snapshots of all nodes; forgets a node that has been silent for long."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: dict[str, tuple[Seen[T], int]] = {}
        """The nodes by name, each with the monotonic time since which it is silent, if it is."""

    def all(self) -> list[Seen[T]]:
        """Returns all remembered nodes, silent ones included."""
        return [seen for seen, _ in self._seen.values()]

    def begin(self, heard_by_ns: Callable[[T], int]) -> None:
        """Counts no known node as silent before the monotonic time that `heard_by_ns` returns for its last snapshot.

        To be called when watching begins anew, as nodes have left no snapshots meanwhile.
        """
        self._seen = {
            name: (Seen(name, seen.newest), heard_by_ns(seen.newest)) for name, (seen, _) in self._seen.items()
        }

    def take(self, found: Mapping[str, T | None], now_ns: int) -> None:
        """Stores `found`, the snapshots at the hub by node, and forgets nodes that have been silent for long.

        None stands for a node that has ended, which is forgotten at once.
        """
        for name, snapshot in found.items():
            if snapshot is None:
                self._seen.pop(name, None)
                continue
            known = self._seen.get(name)
            before = None if known is None else known[0].newest
            if known is not None and before == snapshot:
                before = known[0].before
            self._seen[name] = Seen(name, snapshot, before), now_ns
        for name, (seen, there_ns) in list(self._seen.items()):
            silent_s = (now_ns - there_ns) / SECOND_NS
            if silent_s > REMEMBERED_S:
                del self._seen[name]
            elif silent_s > 0:
                self._seen[name] = Seen(name, seen.newest, seen.before, silent_s), there_ns
        silent = sorted((there_ns, name) for name, (seen, there_ns) in self._seen.items() if seen.silent_s)
        for _, name in silent[: max(0, len(self._seen) - self._most)]:
            del self._seen[name]
