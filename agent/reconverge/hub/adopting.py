"""The state of a hub's data after a loss, and the outcome of an operator's order to accept the loss."""

from __future__ import annotations

from typing import NamedTuple


class HubData(NamedTuple):
    """The state of one shard's data at one moment."""

    hub_us: int
    generation: str
    """The name of the hub's data; empty as long as no node has reported anything."""
    lost: bool
    """Whether a node has shown that the hub had other data before these."""
    begun_us: int
    """When these data began, if others may have been lost then; 0 if that is ruled out, or the loss was adopted."""
    reports_until_us: int
    """Until when nodes may still report the data from before; 0 where there is nothing to report."""
    nodes: int
    """How many live nodes have reported."""
    adopted: int
    """How often an operator has adopted a loss in these data."""

    @property
    def waits(self) -> bool:
        """Whether the hub grants nothing on strict limits now, because data may be lost."""
        return self.begun_us > 0


class Adoption(NamedTuple):
    """The outcome of the order to accept the loss of data in one shard."""

    problem: str
    """Why nothing was changed, in a sentence; empty if the loss is adopted."""
    cells: int
    """How many keys the hub grants again from now on."""
