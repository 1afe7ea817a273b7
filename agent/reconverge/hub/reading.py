"""Questions about the fleet's use of a key, and a hub's answers; asking changes nothing at the hub."""

from __future__ import annotations

from typing import Final, NamedTuple

from reconverge.hub.report import LimitReport

READ_MAX: Final = 256
"""The most keys of one reading: as many as one batch has, so that other nodes wait no longer for a reading than for a
batch."""


class KeyQuestion(NamedTuple):
    """A question about the use of one key. The limit is as a node declares it; its sums of charges are ignored."""

    limit: LimitReport
    key: str


class KeyReading(NamedTuple):
    """The use of one key by all nodes, as far as they have reported it; in units of the limit's quota."""

    used: int
    """The use by all nodes that counts in the current window, rounded up; including the use of departed nodes."""
    allowances: int
    """The unused part of live nodes' allowances, which they may use without asking the hub."""
    free: int
    """The part of the capacity that is granted to no node."""
    capacity: int
    """The smallest capacity that a live node or the reader declares, plus the amount lent to the region."""
    nodes: int
    """How many live nodes have reported this key, and have not forgotten it since."""
    free_us: int
    """The moment, by the hub's clock, at which a cost of 1 fits if nothing more is charged; the hub's present time if
    it fits now. For a sliding log or slices only nodes know when charges expire, so it is the latest possible
    moment."""
    learns_until_us: int
    """The moment until which the hub grants no more of this key than sealed shares, because it has lost data; 0 if it
    grants now."""


class KeyReadings(NamedTuple):
    """The hub's answers to several questions, in the order of the questions, all as of one moment."""

    hub_us: int
    generation: str
    """The name of the hub's data; empty if no node has reported anything yet."""
    keys: tuple[KeyReading, ...]
