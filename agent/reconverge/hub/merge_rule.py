"""The merge rule, by which hubs merge nodes' reports, for programs without a network: simulations and tests."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from functools import cache
from typing import Protocol, runtime_checkable

from reconverge.clock import Clock
from reconverge.hub.report import Answer, Batch, Lent, Loan, Totals, Wishes

GROUP = "reconverge.merge_rule"
"""The entry-point group of merge rules; each entry is a function that makes a `MergeRule`."""
REFERENCE = "reference"
"""The name of the plain merge rule: one hub, which never fails."""
ELECTED = "elected"
"""The name of the merge rule of a simulated MQTT hub, whose members elect one of them to keep the ledger, and fail at
random."""


class MergeRule(Protocol):
    """The logic of a hub: merges batches and computes answers, without any I/O."""

    def merge(self, batch: Batch) -> Answer:
        """Merges a batch and returns the answer.

        A rule of the kind ELECTED raises HubUnavailable if its leader cannot be reached.
        """
        ...

    def sums(self) -> dict[str, Totals]:
        """Returns the charges and refunds of all nodes since the data began, by limit."""
        ...

    def lose_data(self) -> None:
        """Forgets all data, as a server does that has lost them in a restart."""
        ...


@runtime_checkable
class RegionRule(MergeRule, Protocol):
    """The logic of a region's hub: a merge rule that also lists the keys which need loans, and stores loans."""

    def tell_wishes(self, shard: int) -> Wishes: ...

    def take_loans(self, shard: int, lender: str, sequence: int, loans: Sequence[Loan]) -> Lent: ...


def open_merge_rule(
    *, clock: Clock, new_name: Callable[[], str], kind: str = REFERENCE, **settings: object
) -> MergeRule:
    """Returns the merge rule of the hubs in this package, in one of two kinds: REFERENCE or ELECTED.

    `clock` is the hub's clock, `new_name` makes names for generations of the hub's data, and `settings` are passed on
    to the rule. The rule begins empty, and assumes that no node holds allowances from before. A caller that cannot be
    sure of that, such as a server that may have been restarted, calls `lose_data` first. One thread at a time may use
    it.
    """
    make: Callable[..., MergeRule] = _entry_point(kind).load()
    return make(clock=clock, new_name=new_name, **settings)


@cache
def _entry_point(kind: str) -> importlib.metadata.EntryPoint:
    """Returns the entry point of the rule of `kind`; cached, as the search reads a file of each installed package."""
    (entry,) = importlib.metadata.entry_points(group=GROUP, name=kind)
    return entry
