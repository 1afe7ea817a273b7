"""Counters of a node that follows contracts."""

from __future__ import annotations

from dataclasses import dataclass

from reconverge.published.reader import ReaderStats


@dataclass(frozen=True, slots=True)
class ContractsStats(ReaderStats):
    """The state of contracts on one node."""

    pages_fetched: int = 0
    pages_held: int | None = None
    """Of customers, where they are fetched on demand; None where all of them are held."""
    page_bytes: int = 0
    """About how much memory these take."""
    pages_dropped: int = 0
    """How many were not in use, or had to go for others."""
    met_without_page: int = 0
    """How often a customer was met whose page was not there yet."""
    hinted: int = 0
    """How often the hub has said that the contracts may have changed."""
    hints_lost: int = 0
    """How often that was found without having been said, while hints were listened for."""
    hint_floods: int = 0
    """How often so many hints came within a second that further ones were dropped for some seconds."""
