"""A hub's answer about one key of one limit, to a reader that is no node and changes nothing by asking."""

from __future__ import annotations

from typing import Final, NamedTuple

from reconverge.hub.report import LimitReport

READ_MAX: Final = 256
"""The most keys of one reading: as many as one batch has, so that no node waits longer than for a batch."""


class KeyQuestion(NamedTuple):
    """A question about one key, with the limit as a node declares it; the limit's totals are not used."""

    limit: LimitReport
    key: str


class KeyReading(NamedTuple):
    """The use of one key by all nodes, as far as they have reported it; in units of the limit's quota."""

    used: int
    """The use that counts in the current window, rounded up; including that of departed nodes."""
    allowances: int
    """The rest of live nodes' allowances, which they may use without asking."""
    free: int
    """The part of the capacity that is granted to no node."""
    capacity: int
    """The smallest capacity that a live node or the reader declares, with the loans to the region."""
    nodes: int
    """How many live nodes have reported this key, and have not forgotten it."""
    free_us: int
    """From when on, by the hub's clock, a cost of 1 fits if nothing more is charged. The hub's time if it fits now. For
    charges that expire by dates, which only nodes know, it is the latest possible moment."""
    learns_until_us: int
    """Until when the hub grants nothing of this key, because it has lost data; 0 if it grants."""


class KeyReadings(NamedTuple):
    """The answers to several questions, in the same order, as of one moment."""

    hub_us: int
    generation: str
    """The name of the hub's data; empty as long as no node has reported anything."""
    keys: tuple[KeyReading, ...]
