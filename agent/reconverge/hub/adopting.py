"""The state of a hub's data after a loss, and the outcome of an operator's order to accept the loss."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple


class HubData(NamedTuple):
    """The state of one shard's data at one moment."""

    hub_us: int
    generation: str
    """The name of the hub's data; empty as long as no node has reported anything."""
    lost: bool
    """Whether a node has shown that the hub had other data before these."""
    begun_us: int
    """When these data began, by the hub's clock, if earlier data may have been lost then; 0 if not, or after an
    adoption."""
    reports_until_us: int
    """Until when nodes may still report what they know of the earlier data; 0 if there were none."""
    nodes: int
    """How many live nodes have reported."""
    adopted: int
    """How often an operator has adopted a loss in these data."""

    @property
    def waits(self) -> bool:
        """Returns whether the hub's data may have replaced earlier ones that were lost."""
        return self.begun_us > 0

    @property
    def holds_back(self) -> bool:
        """Whether the hub grants nothing of strict limits at this moment.

        If no node has shown a loss, the hub grants again as soon as all nodes have had the time to report.
        """
        return self.waits and (self.lost or self.hub_us < self.reports_until_us)

    @property
    def until(self) -> str:
        """Returns until when the hub grants nothing of strict limits, as the end of a sentence."""
        if self.lost:
            return f"until a lease and two of their windows after {_moment(self.begun_us)}"
        return f"until {_moment(self.reports_until_us)}"


class Adoption(NamedTuple):
    """The outcome of the order to accept the loss of data in one shard."""

    problem: str
    """Why nothing was changed, in a sentence; empty if the loss is adopted."""
    cells: int
    """How many keys the hub grants again from now on."""


def _moment(us: int) -> str:
    return datetime.fromtimestamp(us // 1_000_000, tz=UTC).isoformat(sep=" ", timespec="seconds")
