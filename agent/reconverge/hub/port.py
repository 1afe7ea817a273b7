"""The port through which nodes meet: what a hub promises, and what it does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from reconverge.hub.report import Answer, Batch, Lent, Loan, Totals, Wishes


@runtime_checkable
class Hub(Protocol):
    """Where nodes meet.

    Promises: a batch is merged whole or not at all; a node's newest batch replaces its older ones, so that
    exchanging twice, late or out of order is harmless; the lines it grants for a key never sum to more than the
    capacity; whatever goes wrong is raised as `HubUnavailable` and nothing else.
    Does not promise: that a batch which failed was not merged, or will not be yet; that the totals are fresh.

    One hub object serves one event loop at a time, and one process.
    """

    @property
    def shards(self) -> int:
        """Into how many independent parts the keys are divided; a batch is for one of them."""
        ...

    async def exchange(self, batch: Batch) -> Answer:
        """Have the batch merged and bring the answer. Raises HubUnavailable."""
        ...

    async def totals(self) -> dict[str, Totals]:
        """What all nodes have charged and given back since the hub's data began, by limit. Raises HubUnavailable."""
        ...

    async def close(self) -> None:
        """Let go of all connections. The hub may be used again afterwards, from another loop too."""
        ...


@runtime_checkable
class SettingsStore(Protocol):
    """A hub at which settings can be posted for all nodes of its namespace; not every hub need be one.

    Promises: what was posted last is what is read, until it has been kept for its time, another is posted, or the hub
    loses its data; reading it again and again is cheap; what is longer than `bytes_max` does not reach the reader's
    memory, if that can be helped; whatever goes wrong is raised as `HubUnavailable` and nothing else.
    Does not promise: that what is read was posted by an authorized publisher. It is signed, and readers verify that.

    A broker whose retained messages come by themselves has `read` return the newest that has come.
    """

    async def post(self, payload: bytes, *, keep_s: float) -> None:
        """Have all nodes read this from now on, and for at most `keep_s` seconds. Raises HubUnavailable."""
        ...

    async def read(self, *, bytes_max: int) -> bytes | None:
        """What was posted last; None if nothing was, or is kept any more. Raises HubUnavailable.

        Of something longer than `bytes_max` its first `bytes_max + 1` bytes are enough.
        """
        ...


Bulletin = SettingsStore  # its former name, which goes with version 1.0


@runtime_checkable
class ContractStore(Protocol):
    """A hub that keeps the contracts of its namespace: an index, and pages; not every hub need be one.

    The index is one signed payload, as in `SettingsStore`. Pages are found by the SHA-256 of their bytes, in lower-case
    hexadecimal digits, which the index names.

    Promises: `swap_index` replaces the index whole and only if it is still what the caller has read, so that of two
    changes at once one fails; a page that was put is read as it was put, until it has been kept for its time, or the
    hub loses its data; what is longer than `bytes_max` does not reach the reader's memory, if that can be helped;
    whatever goes wrong is raised as `HubUnavailable` and nothing else.
    Does not promise: that what is read was put by an authorized publisher, or is what its digest says. The index is
    signed and names the digests, and readers verify both.
    """

    async def read_index(self, *, bytes_max: int) -> bytes | None:
        """The index; None if there is none, or it is kept no more. Raises HubUnavailable.

        Of something longer than `bytes_max` its first `bytes_max + 1` bytes, and no more.
        """
        ...

    async def swap_index(self, payload: bytes, *, over: bytes | None, bytes_max: int, keep_s: float) -> bool:
        """Put the index in the place of `over`, for at most `keep_s` seconds, and return whether that was done.

        `over` is what `read_index` has returned with the same `bytes_max`. Raises HubUnavailable.
        """
        ...

    async def put_page(self, digest: str, payload: bytes, *, keep_s: float) -> None:
        """Keep a page for at most `keep_s` seconds from now. Raises HubUnavailable."""
        ...

    async def get_page(self, digest: str, *, bytes_max: int) -> bytes | None:
        """A page; None if it is not there. Of a longer one as in `read_index`. Raises HubUnavailable."""
        ...

    async def keep_pages(self, digests: Sequence[str], *, keep_s: float) -> list[str]:
        """Have each of these pages be kept for `keep_s` seconds from now, longer or shorter than it would have been.

        Returns those that are not there. Raises HubUnavailable.
        """
        ...


@runtime_checkable
class Region(Protocol):
    """A hub that can be the hub of a region: its nodes have a part of each limit, and more of it can be lent to them.

    Promises: the lines it grants for a key sum to at most the region's own part and what is lent at that moment; what
    is said to be held is no less than what nodes hold beyond their own part; of one lender's loans the newest count,
    so that lending twice, late or out of order is harmless; whatever goes wrong is raised as `HubUnavailable` and
    nothing else.
    Does not promise: to remember loans for longer than they last, or when it loses its data.
    """

    @property
    def shards(self) -> int:
        """Into how many independent parts the keys are divided."""
        ...

    async def wishes(self, shard: int) -> Wishes:
        """The cells that need more than their region has, or were lent something; a bounded number of them.

        Raises HubUnavailable.
        """
        ...

    async def lend(self, shard: int, lender: str, sequence: int, loans: Sequence[Loan]) -> Lent:
        """Replace what the lender has lent for these cells; a `sequence` that has not risen since changes nothing.

        More is there at once. Of less, nodes hear as they report, and until they have let go it counts as held.
        Raises HubUnavailable.
        """
        ...

    async def close(self) -> None:
        """See `Hub.close`."""
        ...


@runtime_checkable
class Working(Protocol):
    """A hub that has something to do between exchanges, too: answering others, say. Not every hub need be one.

    It does so in tasks of its own, in the loop in which the exchanges are made. While it is at work, that loop goes on.
    """

    @property
    def at_work(self) -> bool:
        """Whether it has such tasks."""
        ...
