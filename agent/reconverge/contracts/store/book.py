"""The port to where contracts are kept: what keeping them promises, and what it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from reconverge.contracts.model import Document
from reconverge.errors import ReconvergeError


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the contracts."""

    version: int
    """Of the contracts from this change on."""
    author: str
    when: float
    """In seconds since 1970."""
    identity: str | None
    """The customer that it is about; None if it is about the whole document."""
    before: Any
    """The entry before, as `table_of` or `table_of_customer` writes it; None if there was none."""
    after: Any
    """The entry since, likewise."""


class VersionConflict(ReconvergeError):
    """Raised when the contracts have changed since the version that a change was made for."""

    def __init__(self, expected: int, found: int) -> None:
        self.expected = expected
        self.found = found
        super().__init__(
            f"the contracts are at version {found}, and the change was made for {expected}; look at them again"
        )


@runtime_checkable
class Book(Protocol):
    """Where the contracts of a fleet are kept, with all former versions, and by which author each was made.

    Promises: a change is made whole or not at all; the version rises by one with each; of two changes at once one
    fails with VersionConflict; what a change says of a customer whose limits are counted otherwise from then on holds
    beside what was said before, for as long as that counts. Whatever goes wrong with a hub is raised as
    `HubUnavailable`, and what is said wrongly as `InvalidContracts`, with nothing changed.
    Does not promise: that all nodes obey when a change returns; they do within one interval.
    """

    async def read(self) -> tuple[int, Document]:
        """The version and the contracts; version 0 and no plan if there are none yet."""
        ...

    async def set_customer(self, identity: str, said: Any, *, author: str, expected: int | None = None) -> int:
        """Writes a customer's contract from a table or the name of a plan; None ends it. Returns the version.

        With `expected`, raises VersionConflict unless the contracts are at that version.
        """
        ...

    async def replace(self, said: Any, *, author: str, expected: int | None = None) -> int:
        """Replaces the whole document by that of a table. Returns the version."""
        ...

    async def rollback(self, version: int, *, author: str) -> int:
        """Restores the contracts of a former version. Returns the new version; that is higher, too.

        Raises LookupError if that version is not kept any more.
        """
        ...

    async def history(self, *, most: int = 50, identity: str | None = None) -> Sequence[Change]:
        """The last changes, the newest first; of one customer, or of all."""
        ...

    async def forget(self, identity: str, *, author: str) -> int | None:
        """Erase a customer: its contract, and all that former versions and the history contain of it.

        Returns the new version; None if no version that is kept knows the customer. Nodes obey as they do a change
        that ends the contract: what was used of it is one of the things that are forgotten.
        """
        ...
