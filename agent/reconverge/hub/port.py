"""The interface of a hub for nodes: the promises of each of its protocols, and their limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    """A store through which the nodes of a fleet exchange their counts.

    Promises: a batch is merged whole or not at all; a node's newest batch replaces its older ones, so that exchanging
    twice, late or out of order is harmless; the allowances it grants for a key never sum to more than the capacity;
    each failure is raised as `HubUnavailable`.
    Does not promise: that a batch which failed was not merged, or will not be yet; that the totals are fresh.

    One hub object serves one event loop at a time, and one process.
    """

    @property
    def shards(self) -> int:
        """Returns the number of shards, the independent parts of the keys; each batch is for one shard."""
        ...

    async def exchange(self, batch: Batch) -> Answer:
        """Sends a batch to be merged, and returns the answer. Raises HubUnavailable."""
        ...

    async def totals(self) -> dict[str, Totals]:
        """Returns the charges and refunds of all nodes since the hub's data began, by limit. Raises HubUnavailable."""
        ...

    async def close(self) -> None:
        """Closes all connections. The hub may be used again afterwards, also from another event loop."""
        ...


@runtime_checkable
class SettingsStore(Protocol):
    """A hub at which settings can be posted for all nodes of its namespace; not every hub need be one.

    Promises: the last post is read, until it has been kept for its time, another is posted, or the hub loses its data;
    reading it again and again is cheap; a post longer than `bytes_max` does not reach the reader's memory as a whole,
    if that can be helped; each failure is raised as `HubUnavailable`.
    Does not promise: that a post comes from an authorized publisher. Posts are signed, and readers verify that.

    If the hub is a broker that pushes retained messages, `read` returns the newest message that has come.
    """

    async def post(self, payload: bytes, *, keep_s: float) -> None:
        """Publishes a payload to all nodes, for at most `keep_s` seconds. Raises HubUnavailable."""
        ...

    async def read(self, *, bytes_max: int) -> bytes | None:
        """Returns the last post; None if there is none, or if its time is over. Raises HubUnavailable.

        Of a payload longer than `bytes_max`, returns at least the first `bytes_max + 1` bytes.
        """
        ...


@runtime_checkable
class ContractStore(Protocol):
    """A hub that keeps the contracts of its namespace: an index, and pages; not every hub need be one.

    The index is one signed payload, as in `SettingsStore`. Pages are found by the SHA-256 of their bytes, in lower-case
    hexadecimal digits, which the index names.

    Promises: `swap_index` replaces the index whole and only if it is still what the caller has read, so that of two
    changes at once one fails; a page that was put is read as it was put, until it has been kept for its time, or the
    hub loses its data; what is longer than `bytes_max` does not reach the reader's memory, if that can be helped; each
    failure is raised as `HubUnavailable`.
    Does not promise: that an authorized publisher has put it, or that it fits its digest. The index is signed and names
    the digests, and readers verify both.
    """

    async def read_index(self, *, bytes_max: int) -> bytes | None:
        """Returns the index; None if there is none, or if it has expired. Raises HubUnavailable.

        Of an index longer than `bytes_max`, returns the first `bytes_max + 1` bytes and no more.
        """
        ...

    async def swap_index(self, payload: bytes, *, over: bytes | None, bytes_max: int, keep_s: float) -> bool:
        """Replaces the index `over` by `payload`, for at most `keep_s` seconds; returns whether it was replaced.

        `over` is the index that `read_index` has returned with the same `bytes_max`. Raises HubUnavailable.
        """
        ...

    async def put_page(self, digest: str, payload: bytes, *, keep_s: float) -> None:
        """Stores a page for at most `keep_s` seconds from now. Raises HubUnavailable."""
        ...

    async def get_page(self, digest: str, *, bytes_max: int) -> bytes | None:
        """Returns a page; None if there is none.

        Of a page longer than `bytes_max`, returns the first `bytes_max + 1` bytes and no more. Raises HubUnavailable.
        """
        ...

    async def keep_pages(self, digests: Sequence[str], *, keep_s: float) -> list[str]:
        """Keeps each of these pages for `keep_s` seconds from now, longer or shorter than before.

        Returns the digests of the pages that are missing. Raises HubUnavailable.
        """
        ...


class IndexHints(Protocol):
    """A listener for the hub's hints that the index of the contracts may have changed. It serves one event loop."""

    async def changed(self) -> None:
        """Waits for a hint that the index may have changed; on the first call, only until it listens for hints.

        If a hint comes between two calls, the later call returns at once. After HubUnavailable was raised, hints may
        have been lost, and the next call begins to listen anew.
        """
        ...

    async def close(self) -> None:
        """Closes the connection. The next call of `changed` opens another one."""
        ...


@runtime_checkable
class ContractHints(Protocol):
    """A hub that keeps contracts and pushes a hint when the index has changed; not every hub need be one.

    Promises: each failure is raised as `HubUnavailable`; listening needs nothing of the hub's own connections, and goes
    on while these are closed.
    Does not promise: that a hint comes, or comes once, or comes in time, or that anything has changed. Readers look for
    themselves, and hints only say when.
    """

    def hints(self) -> IndexHints | None:
        """Returns a listener with a connection of its own; None if the hub cannot push any hints.

        The connection is opened when the listener is first used.
        """
        ...


@runtime_checkable
class Region(Protocol):
    """A hub of a region. Its nodes have a part of each limit, and more of it can be lent to them.

    Promises: the allowances it grants for a key sum to at most the region's own part and its loans at that moment; the
    amount that it reports as held is no less than what nodes hold beyond their own part; of one lender's loans the
    newest count, so that lending twice, late or out of order is harmless; each failure is raised as `HubUnavailable`.
    Does not promise: to remember loans for longer than they last, or when it loses its data.
    """

    @property
    def shards(self) -> int:
        """Returns the number of shards, the independent parts of the keys."""
        ...

    async def wishes(self, shard: int) -> Wishes:
        """Returns the keys of `shard` that need more capacity than the region has, or that have a loan.

        A hub returns a limited number of keys. Raises HubUnavailable.
        """
        ...

    async def lend(self, shard: int, lender: str, sequence: int, loans: Sequence[Loan]) -> Lent:
        """Replaces the lender's loans on these keys; does nothing unless `sequence` is above that of its last call.

        Returns how much of each loan nodes may hold. A larger loan is available at once. Nodes learn of a smaller loan
        when they report; until they have given the difference back, it counts as held. Raises HubUnavailable.
        """
        ...

    async def close(self) -> None: ...


class UsageLedger(Protocol):
    """A ledger that adds up the usage of a fleet, and from which the usage is exported.

    Promises: a batch is merged whole or not at all; a batch that is repeated or late changes nothing; the total of a
    row, the usage under one key in one period, is the sum of the last reports of all accounts; an event, once issued,
    is issued again with the same number and the same counts until it is confirmed, to every exporter that asks; the
    events of a row sum to its total; rows that are dated further ahead of the hub's clock than `AHEAD_MS`, or longer
    ago than the ledger keeps, are refused, and the answer names them. Each failure is raised as `HubUnavailable`.

    Does not promise: that a batch which failed was not merged; to remember anything when it loses its data.
    """

    @property
    def shards(self) -> int:
        """Returns the number of shards, the independent parts of the identities; see `shard_of`."""
        ...

    async def record(self, batch: UsageBatch) -> Recorded:
        """Replaces the account's counts with those of the batch. Raises HubUnavailable."""
        ...

    async def totals(self, period: Period, shard: int, page: int) -> Sequence[UsageRow]:
        """Returns the usage of all accounts in a period, from one of the `PAGES` of a shard. Raises HubUnavailable."""
        ...

    async def loads(self) -> Sequence[NodeLoad]:
        """Returns the load of each node by its last report. Raises HubUnavailable."""
        ...

    async def lead_export(self, kind: str, exporter: str, keep_s: float) -> ExportLease:
        """Makes `exporter` the leader in exporting periods of `kind`, for `keep_s` seconds, unless another one leads.

        Returns the lease of the leader. A leader keeps two exporters from doing the same work; that nothing is billed
        twice does not depend on it. With 0 seconds the exporter gives up the lead. Raises HubUnavailable.
        """
        ...

    async def marks(self, kind: str, shard: int) -> ExportMarks:
        """Returns how far the export of periods of `kind` has come at one shard. Raises HubUnavailable."""
        ...

    async def close_period(self, period: Period, shard: int) -> bool:
        """Closes a period if it is over by the hub's clock, and returns whether it is. Raises HubUnavailable.

        Usage that is recorded later in a closed period counts as late.
        """
        ...

    async def issue(self, period: Period, shard: int, page: int) -> Sequence[UsageEvent]:
        """Returns the events of a page that are not confirmed yet, and makes new ones for usage that has no event.

        Raises HubUnavailable.
        """
        ...

    async def confirm(self, events: Sequence[UsageEvent], shard: int, page: int) -> None:
        """Notes that `events`, all of one period, were delivered, so that they are not issued again.

        Raises HubUnavailable.
        """
        ...

    async def finish(self, period: Period, shard: int, late_mark: int | None) -> None:
        """Notes that the export of a period that is over is complete: all its events are confirmed.

        `late_mark` is the mark that `marks` returned if the period was late; the period is late no longer, unless more
        usage was recorded since then. Raises HubUnavailable.
        """
        ...


@runtime_checkable
class AddressLedger(Protocol):
    """A ledger that estimates from how many addresses each identity comes, over all nodes, by a HyperLogLog sketch.

    Not every ledger need be one. Promises: a register of an identity's sketch keeps the highest rank that any node has
    reported in that hour, so that a report which is repeated or late changes nothing else. Each failure is raised as
    `HubUnavailable`.

    Does not promise: to keep sketches of more than SKETCHES_MAX identities of an hour and shard, or beyond the hour
    after that.
    """

    async def address_secret(self, proposed: bytes = b"") -> bytes:
        """Returns the secret with which all nodes hash addresses: the one that was proposed first; empty if none was.

        Raises HubUnavailable.
        """
        ...

    async def note_addresses(self, report: AddressReport) -> int:
        """Merges a node's sketches; returns for how many identities there was no room. Raises HubUnavailable."""
        ...

    async def address_sketches(self, hour: int, shard: int, secret: bytes) -> Mapping[str, bytes]:
        """Returns the registers of the sketches of an hour and secret, by identity. Raises HubUnavailable."""
        ...


@runtime_checkable
class UsageHub(Protocol):
    """A hub that adds usage up, too; not every hub need be one.

    The event loop and the process that report or read usage have connections of their own, beside those of the
    exchanges.
    """

    @property
    def usage(self) -> UsageLedger:
        """Returns the hub's usage ledger, which uses the hub's connections; `Hub.close` closes them."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class KeyReader(Protocol):
    """A hub that returns how much the whole fleet has used of a key; not every hub need be one.

    Promises: reading changes nothing, and neither begins a cell nor lets one live longer; all questions of one call are
    answered as of one moment; the answer includes all merged reports, whichever node or reader asks; the possible use
    of a node whose lease has ended counts as used; each failure is raised as `HubUnavailable`.
    Does not promise: to include what nodes have charged since their last report, which is at most the `allowances` in
    the answer and the nodes' overdrafts; to distinguish the key from one that no node has used; that the answer is
    still true when it arrives. No request may be admitted by it.
    """

    @property
    def shards(self) -> int:
        """Returns the number of shards, the independent parts of the keys."""
        ...

    async def read_keys(self, shard: int, questions: Sequence[KeyQuestion]) -> KeyReadings:
        """Returns the use of up to `READ_MAX` keys of one shard, in the order of the questions.

        Raises HubUnavailable.
        """
        ...


@runtime_checkable
class Adoptable(Protocol):
    """A hub that can be ordered to go on after it has lost its data; not every hub need be one.

    Promises: an order is only about the data whose generation it names, and changes nothing while nodes may still be
    reporting what they know; the order is stored with these data, so that the hub waits again after the next loss; the
    number of orders is stored, too; the reports of live nodes stay known; each failure is raised as `HubUnavailable`.
    Does not promise: that strict limits hold. The use of departed nodes from before the loss, and that of nodes that
    are cut off, may be admitted once more, and that is the price.
    """

    @property
    def shards(self) -> int:
        """Returns the number of shards, the independent parts of the keys."""
        ...

    async def data(self, shard: int) -> HubData:
        """Returns the state of a shard's data, with whether earlier data were lost. Raises HubUnavailable."""
        ...

    async def adopt(self, shard: int, generation: str) -> Adoption:
        """Ends the wait of a shard after a loss, if its present data are named `generation`; returns the outcome.

        Raises HubUnavailable. If the call fails half-way, some keys go on waiting until the call is repeated.
        """
        ...


@runtime_checkable
class Eraser(Protocol):
    """A hub from which one identity can be erased; not every hub need be one. See `hub/erasing.py`.

    Promises: an order is read by all nodes until it has been kept for `KEPT_S`, there are `ORDERS_MAX` newer ones, or
    the hub loses its data; of two orders the later one has the later moment; a key stays as long as a node with a
    running lease has an entry for it, and is dropped whole, with its use, when none has; data under other names stay
    as they are; each failure is raised as `HubUnavailable`.
    Does not promise: that a key does not come back. A node that has not read the order yet may report it again.
    """

    @property
    def shards(self) -> int:
        """Returns the number of shards, the independent parts of the keys."""
        ...

    async def order_erasure(self, marks: Sequence[str]) -> int:
        """Stores one order for each of `marks`; returns the moment of the last order. Raises HubUnavailable."""
        ...

    async def erasures(self, since_us: int) -> Erasures:
        """Returns the orders given after `since_us` of the hub's clock, and the hub's time. Raises HubUnavailable."""
        ...

    async def drop_keys(self, shard: int, questions: Sequence[KeyQuestion]) -> int:
        """Drops those of the keys that no live node has; returns how many keys stay. Raises HubUnavailable.

        `questions` names at most `READ_MAX` keys of the shard.
        """
        ...

    async def erase(self, shard: int, identity: str, names: Sequence[str], *, cursor: int = 0) -> Erased:
        """Searches some of a shard's data for an identity, and erases those that it finds. Raises HubUnavailable.

        Usage is found by the identity, and keys of limits by any of `names` (see `names_in`); keys are dropped as
        `drop_keys` does. The first step has the cursor 0, and each further step the cursor that the step before has
        returned.
        """
        ...


@runtime_checkable
class UsageEraser(Protocol):
    """A ledger from which an account can withdraw its reports; not every ledger need be one."""

    async def retract(self, account: str, shard: int, rows: Sequence[tuple[Period, UsageKey]]) -> None:
        """Removes the account's counts from these rows, of which there are at most about BATCH_ROWS_MAX.

        A row has the usage under one key in one period. If no account has counts in it any more, the row is removed,
        with its events. Raises HubUnavailable.
        """
        ...


@runtime_checkable
class KeyMarker(Protocol):
    """A hub that stores a mark of the secret with which nodes hash keys; not every hub need be one.

    Promises: the hub stores one mark at a time, for as long as a node renews it; nodes with another mark get the stored
    mark back, and so learn of the difference; each failure is raised as `HubUnavailable`.

    Does not promise: to keep a mark before any node has exchanged, or when it loses its data.
    """

    async def mark_keys(self, mark: str, *, keep_s: float) -> str:
        """Stores `mark` for `keep_s` seconds unless another mark is stored. Returns the stored mark.

        Raises HubUnavailable.
        """
        ...


@runtime_checkable
class SnapshotBoard(Protocol):
    """A hub that stores snapshots of nodes while a console is open; not every hub need be one.

    See `hub/board.py`. Promises: a snapshot is accepted only while a console is open; the newest snapshot of a name is
    read, whole, until it has been kept for its time; no more than `SNAPSHOTS_MAX` names are accepted; checking whether
    a console is open is cheap; each failure is raised as `HubUnavailable`.
    Does not promise: that a snapshot comes from a node, or is true; to remember anything when it loses its data.
    """

    async def watch(self, *, keep_s: float) -> None:
        """Requests snapshots from all nodes for the next `keep_s` seconds; a longer earlier request stays in force.

        Raises HubUnavailable.
        """
        ...

    async def watched_s(self) -> float:
        """Returns for how many seconds nodes should send snapshots; 0.0 without a console. Raises HubUnavailable."""
        ...

    async def leave_snapshot(self, name: str, payload: bytes, *, keep_s: float) -> bool:
        """Stores a node's snapshot for `keep_s` seconds; returns whether it was accepted.

        Raises HubUnavailable, and ValueError for what `check_snapshot` refuses.
        """
        ...

    async def snapshots(self) -> Mapping[str, bytes]:
        """Returns all stored snapshots by name, each of at most `SNAPSHOT_BYTES_MAX`. Raises HubUnavailable."""
        ...


@runtime_checkable
class Blocking(Protocol):
    """A hub with which a thread can exchange without an event loop once it is connected. Not every hub need be one."""

    def ready_to_block(self) -> bool:
        """Returns whether this thread may call `exchange_blocking` now; it has to await `exchange` to connect."""
        ...

    def exchange_blocking(self, batch: Batch, turn: Callable[[], None]) -> Answer:
        """Exchanges as `exchange` does, and blocks this thread until the answer has come; calls `turn` every 2 ms."""
        ...


@runtime_checkable
class Working(Protocol):
    """A hub that also works between exchanges, for example to answer other nodes. Not every hub need be one.

    The hub works in tasks of its own, in the event loop of the exchanges, which must go on while `at_work` is true.
    """

    @property
    def at_work(self) -> bool:
        """Returns whether the hub has tasks of its own now, for which the event loop has to go on."""
        ...
