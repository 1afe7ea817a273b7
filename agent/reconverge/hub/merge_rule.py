"""The rule by which hubs merge reports, for programs that need no network: simulations and tests."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from reconverge.clock import Clock
from reconverge.hub.report import Answer, Batch, Lent, Loan, Totals, Wishes

GROUP = "reconverge.merge_rule"
"""The entry-point group whose entries make a `MergeRule` each."""
REFERENCE = "reference"
"""The rule and nothing else."""
ELECTED = "elected"
"""The rule as members of a broker's cluster apply it that keep the ledger among themselves, with the faults of that."""


class MergeRule(Protocol):
    """A hub's part in an exchange, apart from all waiting."""

    def merge(self, batch: Batch) -> Answer:
        """Merge a batch and answer. Raises HubUnavailable when no member can."""
        ...

    def sums(self) -> dict[str, Totals]:
        """Returns the charges and refunds of all nodes since the data began, by limit."""
        ...

    def lose_data(self) -> None:
        """Forget everything, as a server does that comes back empty."""
        ...


@runtime_checkable
class RegionRule(MergeRule, Protocol):
    """A rule that also knows of loans, as a region's hub does."""

    def tell_wishes(self, shard: int) -> Wishes: ...

    def take_loans(self, shard: int, lender: str, sequence: int, loans: Sequence[Loan]) -> Lent: ...


def open_merge_rule(
    *, clock: Clock, new_name: Callable[[], str], kind: str = REFERENCE, **settings: object
) -> MergeRule:
    """The rule of the hubs that come with this package; `clock` is the hub's, `new_name` names its data.

    It remembers nothing yet, and takes it for certain that no node holds allowances from before. A caller that cannot
    be certain, such as a server that may have been restarted, calls `lose_data` first. One thread at a time may use it.
    """
    (entry,) = importlib.metadata.entry_points(group=GROUP, name=kind)
    make: Callable[..., MergeRule] = entry.load()
    return make(clock=clock, new_name=new_name, **settings)
