"""What a hub remembers beside its cells: who the nodes are, and what each process has charged."""

from __future__ import annotations

from dataclasses import dataclass, field

from reconverge.hub.report import Totals, add_totals


@dataclass(slots=True)
class NodeRecord:
    """When a node was last heard of, and what it promised then."""

    seen_us: int
    sequence: int
    interval_us: int
    lease_us: int
    gone: bool


@dataclass(slots=True)
class Account:
    """What one process has charged to each limit, and when it last said so."""

    seen_us: int
    limits: dict[str, Totals] = field(default_factory=dict)

    def add(self, other: Account) -> None:
        """Take over the numbers of an account that is closed."""
        add_totals(self.limits, other.limits)
