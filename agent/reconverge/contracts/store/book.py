"""The interface of a book, a store of the contracts of a fleet: its promises, and what it does not promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from reconverge.contracts.model import Document
from reconverge.errors import ReconvergeError


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the contracts, as an entry of the history."""

    version: int
    """The version of the contracts that this change made."""
    author: str
    when: float
    """The moment of the change, in seconds since 1970."""
    identity: str | None
    """The customer whose contract changed; None if the whole document was replaced."""
    before: Any
    """The entry before the change, as `table_of` or `table_of_customer` writes it; None if there was none."""
    after: Any
    """The entry after the change, in the same form; None if there is none."""


class VersionConflict(ReconvergeError):
    """Raised when the contracts have changed since the version that a change was made for."""

    def __init__(self, expected: int, found: int) -> None:
        self.expected = expected
        self.found = found
        super().__init__(
            f"the contracts are at version {found}, and the change was made for version {expected}; "
            "read them again and repeat the change"
        )


@runtime_checkable
class Book(Protocol):
    """A store of the contracts of a fleet, with former versions, and with the author of each version.

    Promises: a change is made whole or not at all; each change raises the version by one; of two changes at once one
    fails with VersionConflict; if a change gives a customer's limit another algorithm or window, the former limit stays
    in force beside the new one for as long as charges to it count. A failure of a hub is raised as `HubUnavailable`,
    and invalid input as `InvalidContracts`, with nothing changed. Does not promise: that the change is in force on all
    nodes when a call returns; they adopt it within one interval.
    """

    async def read(self) -> tuple[int, Document]:
        """Returns the version and the contracts; version 0 and a document without plans if there are none yet."""
        ...

    async def set_customer(self, identity: str, said: Any, *, author: str, expected: int | None = None) -> int:
        """Sets a customer's contract to `said`, a dict or a plan's name; None removes it. Returns the new version.

        With `expected`, raises VersionConflict unless the contracts are at that version.
        """
        ...

    async def replace(self, said: Any, *, author: str, expected: int | None = None) -> int:
        """Replaces the whole document by `said`, a dict. Returns the new version.

        With `expected`, raises VersionConflict unless the contracts are at that version.
        """
        ...

    async def rollback(self, version: int, *, author: str) -> int:
        """Makes the contracts of a former version a new version. Returns the new version, which is the highest.

        Raises LookupError if the former version is not kept any more.
        """
        ...

    async def history(self, *, most: int = 50, identity: str | None = None) -> Sequence[Change]:
        """Returns the last `most` changes, the newest first; with `identity`, only those of that customer."""
        ...

    async def forget(self, identity: str, *, author: str) -> int | None:
        """Erases a customer's contract from the present version, from all former versions and from the history.

        Returns the new version; None if no version that is kept has the customer. When nodes adopt the new version,
        they end the contract and drop the customer's use.
        """
        ...
