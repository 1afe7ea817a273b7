"""The interface of a hub for nodes: the promises of each of its protocols, and their limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from reconverge.hub.adopting import Adoption, HubData
from reconverge.hub.erasing import Erased, Erasures
from reconverge.hub.reading import KeyQuestion, KeyReadings
from reconverge.hub.report import Answer, Batch, Lent, Loan, Totals, Wishes
from reconverge.hub.usage import (
    AddressReport,
    ExportLease,
    ExportMarks,
    NodeLoad,
    Period,
    Recorded,
    UsageBatch,
    UsageEvent,
    UsageKey,
    UsageRow,
)


@runtime_checkable
class Hub(Protocol):
    """A store through which nodes exchange: it merges their reports and answers with totals and allowances.

    Promises: a batch is merged whole or not at all; a node's newest batch replaces its older ones, so that
    exchanging twice, late or out of order is harmless; the allowances it grants for a key never sum to more than the
    capacity; each failure is raised as `HubUnavailable`.
    Does not promise: that a batch which failed was not merged, or will not be yet; that the totals are fresh.

    One hub object serves one event loop at a time, and one process.
    """

    @property
    def shards(self) -> int:
        """Into how many independent parts the keys are divided; a batch is for one of them."""
        ...

    async def exchange(self, batch: Batch) -> Answer:
        """Sends a batch to be merged, and returns the answer. Raises HubUnavailable."""
        ...

    async def totals(self) -> dict[str, Totals]:
        """Returns the charges and refunds of all nodes since the hub's data began, by limit. Raises HubUnavailable."""
        ...

    async def close(self) -> None:
        """Close all connections. The hub may be used again afterwards, from another event loop, too."""
        ...


@runtime_checkable
class SettingsStore(Protocol):
    """A hub at which settings can be posted for all nodes of its namespace; not every hub need be one.

    Promises: the last post is read, until it has been kept for its time, another is posted, or the hub
    loses its data; reading it again and again is cheap; what is longer than `bytes_max` does not reach the reader's
    memory, if that can be helped; each failure is raised as `HubUnavailable`.
    Does not promise: that an authorized publisher has posted it. It is signed, and readers verify that.

    A broker whose retained messages come by themselves has `read` return the newest that has come.
    """

    async def post(self, payload: bytes, *, keep_s: float) -> None:
        """Publishes a payload to all nodes, for at most `keep_s` seconds. Raises HubUnavailable."""
        ...

    async def read(self, *, bytes_max: int) -> bytes | None:
        """Returns the last post; None if there is none, or it has expired. Raises HubUnavailable.

        Of something longer than `bytes_max` its first `bytes_max + 1` bytes are enough.
        """
        ...


@runtime_checkable
class ContractStore(Protocol):
    """A hub that keeps the contracts of its namespace: an index, and pages; not every hub need be one.

    The index is one signed payload, as in `SettingsStore`. Pages are found by the SHA-256 of their bytes, in lower-case
    hexadecimal digits, which the index names.

    Promises: `swap_index` replaces the index whole and only if it is still what the caller has read, so that of two
    changes at once one fails; a page that was put is read as it was put, until it has been kept for its time, or the
    hub loses its data; what is longer than `bytes_max` does not reach the reader's memory, if that can be helped;
    each failure is raised as `HubUnavailable`.
    Does not promise: that an authorized publisher has put it, or that it fits its digest. The index is
    signed and names the digests, and readers verify both.
    """

    async def read_index(self, *, bytes_max: int) -> bytes | None:
        """Returns the index; None if there is none, or if it has expired. Raises HubUnavailable.

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
        """Keeps each of these pages for `keep_s` seconds from now, longer or shorter than before.

        Returns those that are not there. Raises HubUnavailable.
        """
        ...


class IndexHints(Protocol):
    """Wakes one listener when the index of the contracts may have changed. For one event loop, which may be its own."""

    async def changed(self) -> None:
        """Return as soon as hints are listened for, and, called again, each time the index may have changed since.

        What is said between two calls is not lost. Raises HubUnavailable; then what was said meanwhile may be, and the
        next call begins to listen anew.
        """
        ...

    async def close(self) -> None:
        """Close the connection. The next call of `changed` makes another one."""
        ...


@runtime_checkable
class ContractHints(Protocol):
    """A hub that keeps contracts and pushes a hint when the index has changed; not every hub need be one.

    Promises: each failure is raised as `HubUnavailable`; listening needs nothing of the hub's
    own connections, and goes on while these are closed. Does not promise: that a hint comes, or comes once, or comes in
    time, or that anything has changed. Readers look for themselves, and hints only say when.
    """

    def hints(self) -> IndexHints | None:
        """A listener with a connection of its own, which is made by its first use; None if the hub cannot push any."""
        ...


@runtime_checkable
class Region(Protocol):
    """A hub that can be the hub of a region: its nodes have a part of each limit, and more of it can be lent to them.

    Promises: the allowances it grants for a key sum to at most the region's own part and what is lent at that moment;
    what is said to be held is no less than what nodes hold beyond their own part; of one lender's loans the newest
    count, so that lending twice, late or out of order is harmless; each failure is raised as `HubUnavailable`. Does not
    promise: to remember loans for longer than they last, or when it loses its data.
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

    async def close(self) -> None: ...


class UsageLedger(Protocol):
    """A store that adds up the usage of a fleet, and from which it is exported.

    Promises: a batch is merged whole or not at all; one that is repeated or late changes nothing; the total of a row is
    the sum of what all accounts have said of it last; an event, once issued, is issued again with the same number and
    the same counts until it is confirmed, to every exporter that asks; the events of a row sum to its total; rows that
    are dated further ahead of the hub's clock than `AHEAD_MS`, or longer ago than is kept, are refused, and the answer
    names them. Each failure is raised as `HubUnavailable`.
    Does not promise: that a batch which failed was not merged; to remember anything when it loses its data.
    """

    @property
    def shards(self) -> int:
        """Into how many independent parts the identities are divided; see `shard_of`."""
        ...

    async def record(self, batch: UsageBatch) -> Recorded:
        """Replaces the account's counts with those of the batch. Raises HubUnavailable."""
        ...

    async def totals(self, period: Period, shard: int, page: int) -> Sequence[UsageRow]:
        """Returns the use of all accounts in a period: one of the `PAGES` of a shard. Raises HubUnavailable."""
        ...

    async def loads(self) -> Sequence[NodeLoad]:
        """Returns the load that each node has reported last. Raises HubUnavailable."""
        ...

    async def lead_export(self, kind: str, exporter: str, keep_s: float) -> ExportLease:
        """Makes this exporter the one of that kind of periods for `keep_s` seconds, unless another one is.

        It keeps two from doing the same work. That they bill nothing twice does not depend on it. With 0 seconds the
        exporter makes room for others. Raises HubUnavailable.
        """
        ...

    async def marks(self, kind: str, shard: int) -> ExportMarks:
        """Returns how far the export has come. Raises HubUnavailable."""
        ...

    async def close_period(self, period: Period, shard: int) -> bool:
        """Count records up to the end of that period as late from now on. Raises HubUnavailable.

        Returns whether the period is over by the hub's clock; nothing is done if not.
        """
        ...

    async def issue(self, period: Period, shard: int, page: int) -> Sequence[UsageEvent]:
        """Events that are not confirmed yet, new ones among them; empty when there are none. Raises HubUnavailable."""
        ...

    async def confirm(self, events: Sequence[UsageEvent], shard: int, page: int) -> None:
        """These events, all of one period, were delivered, and are issued no more. Raises HubUnavailable."""
        ...

    async def finish(self, period: Period, shard: int, late_mark: int | None) -> None:
        """All events of the period, which is over, are confirmed, and so are those of all periods before it.

        With a `late_mark` of `marks`, the period is not late any more unless more has come. Raises HubUnavailable.
        """
        ...


@runtime_checkable
class AddressLedger(Protocol):
    """A ledger that counts the distinct addresses of each identity, over all nodes; not every ledger need be one.

    Promises: a register of an identity's sketch keeps the highest rank that any node has reported of it in that hour,
    so that a report which is repeated or late changes nothing else. Each failure is raised as `HubUnavailable`.
    Does not promise: to keep sketches of more than SKETCHES_MAX identities of an hour and shard, or beyond the hour
    after that.
    """

    async def address_secret(self, proposed: bytes = b"") -> bytes:
        """The secret by which all nodes hash addresses: the first that was proposed; empty if none was.

        Raises HubUnavailable.
        """
        ...

    async def note_addresses(self, report: AddressReport) -> int:
        """Merge a node's report; returns how many identities there was no room for. Raises HubUnavailable."""
        ...

    async def address_sketches(self, hour: int, shard: int, secret: bytes) -> Mapping[str, bytes]:
        """The registers of each identity in an hour. Raises HubUnavailable."""
        ...


@runtime_checkable
class UsageHub(Protocol):
    """A hub that adds usage up, too; not every hub need be one. Usage has connections of its own loop and process."""

    @property
    def usage(self) -> UsageLedger:
        """The ledger, over the hub's connections; `close` of the hub lets go of them."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class KeyReader(Protocol):
    """A hub that answers how much the whole fleet has used of a key; not every hub need be one.

    Promises: reading changes nothing, and neither begins a cell nor lets one live longer; all questions of one call are
    answered as of one moment; what a node's merged report says is in the answer, whichever node or reader asks; what a
    node whose lease is over may have used counts as used; each failure is raised as `HubUnavailable`.
    Does not promise: what nodes have charged since their last report, which is at most what `allowances` says and their
    overdrafts; that the answer distinguishes the key from one that no node has used; that the answer is true any more
    when it arrives. A reader must admit nothing by its answer.
    """

    @property
    def shards(self) -> int:
        """Into how many independent parts the keys are divided."""
        ...

    async def read_keys(self, shard: int, questions: Sequence[KeyQuestion]) -> KeyReadings:
        """Reads up to `READ_MAX` keys of one shard, in the order of the questions. Raises HubUnavailable."""
        ...


@runtime_checkable
class Adoptable(Protocol):
    """A hub that can be ordered to go on after it has lost its data; not every hub need be one.

    Promises: nothing is changed in other data than those that are named, nor while nodes may still be reporting what
    they know; the order is part of the data, so that the next loss has the hub wait again; it is counted there; what
    live nodes have reported stays known; each failure is raised as `HubUnavailable`.
    Does not promise: that strict limits hold. What departed nodes had used before the loss, and what nodes use that
    are cut off, may be admitted once more, and that is the price.
    """

    @property
    def shards(self) -> int:
        """Into how many independent parts the keys are divided."""
        ...

    async def data(self, shard: int) -> HubData:
        """Whether a shard has lost data, and waits. Raises HubUnavailable."""
        ...

    async def adopt(self, shard: int, generation: str) -> Adoption:
        """Ends a shard's wait, if its data still have that generation. Raises HubUnavailable.

        If that fails half-way, some keys go on to wait until it is done again.
        """
        ...


@runtime_checkable
class Eraser(Protocol):
    """A hub from which one identity can be erased; not every hub need be one. See `hub/erasing.py`.

    Promises: an order that was left is read by all until it has been kept for `KEPT_S`, there are `ORDERS_MAX` newer
    ones, or the hub loses its data; of two orders the later one has the later moment; a key is dropped only when no
    node whose lease runs has reported it and not forgotten it; a key is dropped whole, and with it what was used; all
    that bears other names stays as it is; each failure is raised as `HubUnavailable`.
    Does not promise: that a key does not come back. A node that has yet to hear of the order may report it again.
    """

    @property
    def shards(self) -> int:
        """Into how many independent parts the keys are divided."""
        ...

    async def order_erasure(self, marks: Sequence[str]) -> int:
        """Leave an order for each of these marks, and return the moment of the last one. Raises HubUnavailable."""
        ...

    async def erasures(self, since_us: int) -> Erasures:
        """The orders that were given after that moment of the hub's clock, and its time. Raises HubUnavailable."""
        ...

    async def drop_keys(self, shard: int, questions: Sequence[KeyQuestion]) -> int:
        """Drop up to `READ_MAX` keys of one shard that no live node has, and return how many stay.

        Raises HubUnavailable.
        """
        ...

    async def erase(self, shard: int, identity: str, names: Sequence[str], *, cursor: int = 0) -> Erased:
        """One step of a search for all that a shard has of an identity, which is dropped as in `drop_keys`.

        Usage is found by the identity; keys of limits by any of the `names`, see `names_in`. The first step has the
        cursor 0, each further one that of the step before. Raises HubUnavailable.
        """
        ...


@runtime_checkable
class UsageEraser(Protocol):
    """A ledger from which an account can take back its reports; not every ledger need be one."""

    async def retract(self, account: str, shard: int, rows: Sequence[tuple[Period, UsageKey]]) -> None:
        """Count as if the account had said nothing of these rows, of which there are at most about BATCH_ROWS_MAX.

        A row of which no account has said anything then is gone, with its events. Raises HubUnavailable.
        """
        ...


@runtime_checkable
class KeyMarker(Protocol):
    """A hub at which nodes leave a mark of the secret with which they hash keys; not every hub need be one.

    Promises: of nodes with different marks all but those of one learn of another mark, as long as a node renews that
    one; each failure is raised as `HubUnavailable`.
    Does not promise: to keep a mark before any node has exchanged, or when it loses its data.
    """

    async def mark_keys(self, mark: str, *, keep_s: float) -> str:
        """Leave a mark for so many seconds unless another one is there. Returns the one that is there then.

        Raises HubUnavailable.
        """
        ...


@runtime_checkable
class SnapshotBoard(Protocol):
    """A hub at which nodes leave snapshots of themselves while a console is open; not every hub need be one.

    See `hub/board.py`. Promises: a snapshot is taken only while a console is open; the newest of a name is what is
    read, whole, until it has been kept for its time; of one name more than `SNAPSHOTS_MAX` none is taken; looking
    whether a console is open is cheap; each failure is raised as `HubUnavailable`.
    Does not promise: that a snapshot comes from a node, or is true; to remember anything when it loses its data.
    """

    async def watch(self, *, keep_s: float) -> None:
        """Asks nodes to leave snapshots for so many seconds from now, or longer. Raises HubUnavailable."""
        ...

    async def watched_s(self) -> float:
        """For how many seconds nodes are to leave snapshots; 0.0 if no console is open. Raises HubUnavailable."""
        ...

    async def leave_snapshot(self, name: str, payload: bytes, *, keep_s: float) -> bool:
        """Keep a node's snapshot for so many seconds, and return whether it was taken.

        Raises HubUnavailable, and ValueError for what `check_snapshot` refuses.
        """
        ...

    async def snapshots(self) -> Mapping[str, bytes]:
        """All snapshots that are kept, by name, each of at most `SNAPSHOT_BYTES_MAX`. Raises HubUnavailable."""
        ...


@runtime_checkable
class Working(Protocol):
    """A hub that works between exchanges, too, such as a member that answers others; not every hub need be one.

    It does so in tasks of its own, in the loop in which the exchanges are made. While it is at work, that loop goes on.
    """

    @property
    def at_work(self) -> bool:
        """Whether the hub has such tasks now."""
        ...
