"""The state of a hub's data after a loss, and the outcome of an operator's order to adopt the loss (wait no longer)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple


class HubData(NamedTuple):
    """The state of one shard's data at a hub at one moment, in particular whether earlier data may have been lost."""

    hub_us: int
    generation: str
    """The name of the hub's data; empty if no node has reported anything yet."""
    lost: bool
    """Whether a node's report has shown that the hub had earlier data, which it has lost."""
    begun_us: int
    """When the present data began, by the hub's clock; 0 if no earlier data can have been lost, or if an operator has
    adopted the loss (has ordered the hub to wait no longer)."""
    reports_until_us: int
    """Until when nodes may still report what they know of the lost data, by the hub's clock; 0 if none were lost."""
    nodes: int
    """How many live nodes have reported to the shard."""
    adopted: int
    """How often an operator has adopted a loss since the present data began."""

    @property
    def waits(self) -> bool:
        """Returns whether earlier data may have been lost, and no operator has adopted that loss yet."""
        return self.begun_us > 0

    @property
    def holds_back(self) -> bool:
        """Returns whether the hub grants nothing on strict limits at this moment, because data may have been lost.

        If no node has shown that data were lost, the hub grants again once all nodes have had the time to report.
        """
        return self.waits and (self.lost or self.hub_us < self.reports_until_us)

    @property
    def until(self) -> str:
        """Returns a phrase for messages, beginning with "until": how long the hub grants nothing on strict limits."""
        if self.lost:
            return f"until a lease and two of their windows after {_moment(self.begun_us)}"
        return f"until {_moment(self.reports_until_us)}"


class Adoption(NamedTuple):
    """The outcome of an operator's order that one shard adopt the loss of its data, and grant again at once."""

    problem: str
    """The reason why the order changed nothing, in a sentence; empty if the loss is adopted."""
    cells: int
    """The number of keys on which the hub grants allowances again because of the order."""


def _moment(us: int) -> str:
    return datetime.fromtimestamp(us // 1_000_000, tz=UTC).isoformat(sep=" ", timespec="seconds")
