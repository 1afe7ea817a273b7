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

    Promises: a batch is merged whole or not at all; a node's newest batch replaces its older ones, so that a batch may
    arrive twice, late or out of order without harm; the allowances that the hub grants for a key never sum to more than
    the capacity; each failure is raised as `HubUnavailable`.
    Does not promise: that a batch was not merged, or will not be merged later, if its exchange failed; that the totals
    are fresh.

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

    Promises: `read` returns the last post, until its time is over, another is posted, or the hub loses its data;
    reading it again and again is cheap; a post longer than `bytes_max` does not reach the reader's memory as a whole,
    if the hub can avoid that; each failure is raised as `HubUnavailable`.
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

    The index is one signed payload, as in `SettingsStore`. It lists the pages, which contain the contracts. A page is
    found by its digest, the SHA-256 of its bytes in lower-case hexadecimal digits.

    Promises: `swap_index` replaces the index whole, and only if it is still the one that the caller has read, so that
    of two changes at the same time one fails; a page is read as it was put, until its time is over or the hub loses its
    data; an index or page longer than `bytes_max` does not reach the reader's memory as a whole, if the hub can avoid
    that; each failure is raised as `HubUnavailable`.
    Does not promise: that an authorized publisher has put a page, or that the page fits its digest. The index is signed
    and names the digests, and readers verify both.
    """

    async def read_index(self, *, bytes_max: int) -> bytes | None:
        """Returns the index; None if there is none, or if it has expired. Raises HubUnavailable.

        Of an index longer than `bytes_max`, returns the first `bytes_max + 1` bytes and no more.
        """
        ...

    async def swap_index(self, payload: bytes, *, over: bytes | None, bytes_max: int, keep_s: float) -> bool:
        """Replaces the index by `payload` if it still is `over`; returns whether it was replaced.

        `over` is the index that `read_index` has returned with the same `bytes_max`. The new index is kept for at most
        `keep_s` seconds. Raises HubUnavailable.
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
        """Makes the hub keep each of these pages for `keep_s` seconds from now, be that longer or shorter than before.

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

    Promises: each failure is raised as `HubUnavailable`; a listener has a connection of its own, and goes on while
    those of the hub are closed.
    Does not promise: that a hint comes, or comes only once, or comes in time, or that anything has changed. A reader
    also reads the index without hints; a hint only makes it read sooner.
    """

    def hints(self) -> IndexHints | None:
        """Returns a listener with a connection of its own; None if the hub cannot push any hints.

        The connection is opened when the listener is first used.
        """
        ...


@runtime_checkable
class Region(Protocol):
    """A hub of a region. The region's nodes have a part of each limit, and other regions can lend them more of it.

    Promises: the allowances that it grants for a key sum to at most the region's own part and its loans at that moment;
    the amount that it reports as held is no less than what nodes hold beyond the region's own part; of one lender's
    loans the newest count, so that a call may arrive twice, late or out of order without harm; each failure is raised
    as `HubUnavailable`.
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
        """Replaces the lender's loans on these keys, unless it has made a call with this or a higher `sequence` before.

        Returns how much of each loan nodes may hold. A larger loan is available at once. Nodes learn of a smaller loan
        when they report; until they have given the difference back, it counts as held. Raises HubUnavailable.
        """
        ...

    async def close(self) -> None: ...


class UsageLedger(Protocol):
    """A ledger that adds up the usage of a fleet, and from which the usage is exported.

    A row is the usage under one key in one period; an event is an amount of a row that was exported.

    Promises: a batch is merged whole or not at all; a batch that is repeated or late changes nothing; the total of a
    row is the sum of the last reports of all accounts; an event, once issued, is issued to every exporter that asks,
    with the same number and counts, until it is confirmed; the events of a row sum to its total; rows of periods more
    than `AHEAD_MS` ahead of the hub's clock, or older than the ledger keeps, are refused, and the answer names them;
    each failure is raised as `HubUnavailable`.

    Does not promise: that a batch was not merged if its call failed; to remember anything when it loses its data.
    """

    @property
    def shards(self) -> int:
        """Returns the number of shards, the independent parts of the identities; see `shard_of`."""
        ...

    async def record(self, batch: UsageBatch) -> Recorded:
        """Replaces the account's counts with those of the batch. Raises HubUnavailable."""
        ...

    async def totals(self, period: Period, shard: int, page: int) -> Sequence[UsageRow]:
        """Returns the total usage in a period, of the rows in one of the `PAGES` of a shard. Raises HubUnavailable."""
        ...

    async def loads(self) -> Sequence[NodeLoad]:
        """Returns the load of each node by its last report. Raises HubUnavailable."""
        ...

    async def lead_export(self, kind: str, exporter: str, keep_s: float) -> ExportLease:
        """Makes `exporter` the leader in exporting periods of `kind`, for `keep_s` seconds, unless another one leads.

        Returns the lease of the leader. With a leader, two exporters do not do the same work; without one, they would
        still bill nothing twice. With 0 seconds the exporter gives up the lead. Raises HubUnavailable.
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
        """Returns a page's events that are not confirmed yet; first makes events for usage that has none.

        Raises HubUnavailable.
        """
        ...

    async def confirm(self, events: Sequence[UsageEvent], shard: int, page: int) -> None:
        """Stores that `events`, all of one period, were delivered, so that they are not issued again.

        Raises HubUnavailable.
        """
        ...

    async def finish(self, period: Period, shard: int, late_mark: int | None) -> None:
        """Stores that a period that is over has been exported completely: all its events are confirmed.

        `late_mark` is the value for this period in `ExportMarks.late`, or None if there was none. The period then is
        not late any more, unless more usage has been recorded since `marks` was called. Raises HubUnavailable.
        """
        ...


@runtime_checkable
class AddressLedger(Protocol):
    """A ledger that estimates from how many addresses each identity comes, over all nodes, by a HyperLogLog sketch.

    Not every ledger need be one. Promises: each register of an identity's sketch keeps the highest rank that any node
    has reported in that hour, so that it does no harm if a report is repeated or late. Each failure is raised as
    `HubUnavailable`.

    Does not promise: to keep sketches of more than SKETCHES_MAX identities for an hour and shard, or to keep them
    after the next hour.
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
        """Returns, by identity, the sketches of an hour that were made with `secret`. Raises HubUnavailable."""
        ...


@runtime_checkable
class UsageHub(Protocol):
    """A hub that also adds up usage; not every hub need be one.

    Each event loop and process that reports or reads usage has connections of its own, beside those of the exchanges.
    """

    @property
    def usage(self) -> UsageLedger:
        """Returns the hub's usage ledger, which uses the hub's connections; `Hub.close` closes them."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class KeyReader(Protocol):
    """A hub that returns how much the whole fleet has used of a key; not every hub need be one.

    Promises: reading changes nothing: it neither makes a record of a key nor prolongs its life; all questions of one
    call are answered as of one moment; the answer includes all merged reports; the allowance that a node whose lease
    has ended may have used counts as used; each failure is raised as `HubUnavailable`.
    Does not promise: to include what nodes have charged since their last report, which is at most the `allowances` in
    the answer and the nodes' overdrafts; to distinguish the key from one that no node has used; that the answer is
    still true when it arrives. So no request may be admitted because of it.
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
    """A hub that waits for nodes' reports after a loss of its data, until an operator orders it to wait no longer.

    While it waits, it grants nothing on strict limits. Not every hub need be one.

    Promises: an order applies only to the data whose generation (name) it gives, and changes nothing while nodes may
    still report what they know; the hub stores the order and the number of orders with these data, so that it waits
    again after the next loss; it keeps the reports of live nodes; each failure is raised as `HubUnavailable`.
    Does not promise: that strict limits hold. As much as departed nodes had used before the loss, or cut-off nodes have
    used, may be admitted once more.
    """

    @property
    def shards(self) -> int:
        """Returns the number of shards, the independent parts of the keys."""
        ...

    async def data(self, shard: int) -> HubData:
        """Returns the state of a shard's data, such as whether earlier data were lost. Raises HubUnavailable."""
        ...

    async def adopt(self, shard: int, generation: str) -> Adoption:
        """Ends the wait of a shard after a loss, if its present data are named `generation`; returns the outcome.

        Raises HubUnavailable. If the call fails half-way, the shard still grants nothing on some keys until the call is
        repeated.
        """
        ...


@runtime_checkable
class Eraser(Protocol):
    """A hub from which one identity can be erased; not every hub need be one. See `hub/erasing.py`.

    An order makes all nodes erase an identity. It names the identity by a mark, a hash (`erasure_mark`).

    Promises: nodes can read an order until it has been kept for `KEPT_S`, there are `ORDERS_MAX` newer ones, or the hub
    loses its data; of two orders the later one has the later moment; a key stays as long as any node with a running
    lease has reported it and not forgotten it, and is then dropped with all its use; data under other names stay as
    they are; each failure is raised as `HubUnavailable`.
    Does not promise: that a key does not come back. A node that has not read the order yet may report it again.
    """

    @property
    def shards(self) -> int:
        """Returns the number of shards, the independent parts of the keys."""
        ...

    async def order_erasure(self, marks: Sequence[str]) -> int:
        """Stores an order to erase the identity of each mark. Returns the moment of the last order.

        Raises HubUnavailable.
        """
        ...

    async def erasures(self, since_us: int) -> Erasures:
        """Returns the orders to erase given after the moment `since_us`, and the hub's time. Raises HubUnavailable."""
        ...

    async def drop_keys(self, shard: int, questions: Sequence[KeyQuestion]) -> int:
        """Drops each of the named keys that no live node has; returns how many keys stay. Raises HubUnavailable.

        `questions` names at most `READ_MAX` keys of the shard.
        """
        ...

    async def erase(self, shard: int, identity: str, names: Sequence[str], *, cursor: int = 0) -> Erased:
        """Searches a part of a shard's data for an identity, and erases the data that it finds. Raises HubUnavailable.

        Usage is found by the identity, and keys of limits by any of `names` (see `names_in`); keys are dropped as by
        `drop_keys`. The caller passes cursor 0 first, and then each time the cursor that the last call returned.
        """
        ...


@runtime_checkable
class UsageEraser(Protocol):
    """A ledger from which an account can withdraw its reports; not every ledger need be one."""

    async def retract(self, account: str, shard: int, rows: Sequence[tuple[Period, UsageKey]]) -> None:
        """Removes the account's counts from these rows, of which there are at most about BATCH_ROWS_MAX.

        A row is the usage under one key in one period. A row in which no account has counts any more is removed with
        its events. Raises HubUnavailable.
        """
        ...


@runtime_checkable
class KeyMarker(Protocol):
    """A hub that stores marks, by which nodes notice that they count the same keys apart; not every hub need be one.

    A mark is a fingerprint of the secret with which nodes hash all keys, or the terms by which they count the keys of a
    limit.

    Promises: the hub stores one mark of a name at a time, for as long as a node renews it; a node with another mark
    gets the stored mark back, and so learns that the two differ; each failure is raised as `HubUnavailable`.

    Does not promise: to keep a mark when it loses its data.
    """

    async def mark_keys(self, mark: str, *, keep_s: float, limit: str = "") -> str:
        """Stores `mark` for `keep_s` seconds unless another mark is stored. Returns the stored mark.

        The mark is of the keys of `limit`; by default of all keys, that is, of their secret. Raises HubUnavailable.
        """
        ...


@runtime_checkable
class Evicting(Protocol):
    """A hub on a server that may be set to evict keys when its memory runs short; not every hub need be one.

    Promises: each failure is raised as `HubUnavailable`, also a lack of the right to ask.
    """

    async def evicts(self) -> str:
        """Returns the setting by which the server may evict keys, as text; empty if it evicts none.

        Raises HubUnavailable.
        """
        ...


@runtime_checkable
class SnapshotBoard(Protocol):
    """A hub that stores snapshots of nodes while a console is open; not every hub need be one.

    See `hub/board.py`. Promises: a snapshot is accepted only while a console is open; `snapshots` returns the newest
    snapshot of each name whole, until its time is over; no more than `SNAPSHOTS_MAX` names are accepted; checking
    whether a console is open is cheap; each failure is raised as `HubUnavailable`.
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
        """Returns whether this thread may call `exchange_blocking` now; if not, it must await `exchange` to connect."""
        ...

    def exchange_blocking(self, batch: Batch, turn: Callable[[], None]) -> Answer:
        """Exchanges as `exchange` does, and blocks this thread until the answer has come; calls `turn` every 2 ms."""
        ...


@runtime_checkable
class Working(Protocol):
    """A hub that also works between exchanges, for example to answer other nodes. Not every hub need be one.

    The hub works in tasks of its own in the event loop of the exchanges. That loop must go on while `at_work` is true.
    """

    @property
    def at_work(self) -> bool:
        """Returns whether the hub has tasks of its own now, for which the event loop has to go on."""
        ...
