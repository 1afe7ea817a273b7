"""Counters of a node that follows contracts."""

from __future__ import annotations

from dataclasses import dataclass

from reconverge.published.reader import ReaderStats


@dataclass(frozen=True, slots=True)
class ContractsStats(ReaderStats):
    """The counters of the contracts on one node."""

    pages_fetched: int = 0
    pages_held: int | None = None
    """The number of pages of customers that are held, if they are fetched on demand; None if all are held."""
    page_bytes: int = 0
    """About how many bytes of memory the held pages take."""
    pages_dropped: int = 0
    """The number of pages that were dropped because they were not used, or to make room for others."""
    met_without_page: int = 0
    """How often a customer was looked up whose page was not there yet."""
    hinted: int = 0
    """How often the hub has sent a hint that the contracts may have changed."""
    hints_lost: int = 0
    """How often a change was found without a hint, while the node was listening for hints."""
    hint_floods: int = 0
    """How often so many hints came within a second that the node stopped listening for some seconds."""
