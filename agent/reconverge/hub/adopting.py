"""The state of a hub's data after a loss, and the outcome of an operator's order to accept the loss."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple


class HubData(NamedTuple):
    """The state of one shard's data at a hub, at one moment, after a possible loss of earlier data."""

    hub_us: int
    generation: str
    """The name of the hub's data; empty if no node has reported anything yet."""
    lost: bool
    """Whether a node's report has shown that the hub had other data before the present ones."""
    begun_us: int
    """When the present data began, by the hub's clock, if earlier data may have been lost then; 0 if none were lost, or
    if an operator has adopted the loss."""
    reports_until_us: int
    """Until when nodes may still report what they know of the lost data, by the hub's clock; 0 if there were none."""
    nodes: int
    """How many live nodes have reported to the shard."""
    adopted: int
    """How often an operator has adopted a loss since the present data began."""

    @property
    def waits(self) -> bool:
        """Returns whether the present data may have replaced lost data, a loss that no operator has adopted yet."""
        return self.begun_us > 0

    @property
    def holds_back(self) -> bool:
        """Returns whether the hub grants nothing on strict limits at this moment.

        If no node has shown a loss, the hub grants again as soon as all nodes have had the time to report.
        """
        return self.waits and (self.lost or self.hub_us < self.reports_until_us)

    @property
    def until(self) -> str:
        """Returns until when the hub grants nothing on strict limits: a phrase for people that begins with "until"."""
        if self.lost:
            return f"until a lease and two of their windows after {_moment(self.begun_us)}"
        return f"until {_moment(self.reports_until_us)}"


class Adoption(NamedTuple):
    """The outcome of an operator's order to one shard to go on without the data that it has lost."""

    problem: str
    """The reason why the order changed nothing, in a sentence; empty if the loss is adopted."""
    cells: int
    """The number of keys on which the hub grants allowances again because of the order."""


def _moment(us: int) -> str:
    return datetime.fromtimestamp(us // 1_000_000, tz=UTC).isoformat(sep=" ", timespec="seconds")
