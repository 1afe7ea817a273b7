"""The rule by which a shard adds usage up, and issues events for its export; Lua scripts do the same in Redis."""

# Theory of operation.
#
# Each account reports absolute counts. The ledger keeps an account's last report of each row (`own`), and changes the
# total by the difference. The ledger refuses a sequence that has not risen, so that a repeated or late batch changes
# nothing. It also refuses a batch of an account that has an answer to a later batch than the ledger knows: the ledger
# has lost data, and the account has to learn of that, however often the answer is lost. Then the account reports
# everything again, which adds what is missing and no more.
#
# A row is dated by its node's clock, within bounds set by the hub's clock (`counted_us`): the hub refuses a row of a
# period that lies ahead, or longer ago than it keeps periods, and the node counts it under the hub's date instead. A
# row that the account has reported before is never refused, because a node takes a refusal to mean that the hub has
# nothing of the row. Periods are forgotten by the hub's clock, too, never by dates in reports, and only after they have
# been expired for FORGET_US, because that clock may be wrong for a moment. A period is exported only when it is over by
# the hub's clock.
#
# When an account leaves, its own rows are dropped, and the totals stay. Its sequence stays at GONE for as long as any
# message may be under way.
#
# Events are issued before they are delivered: an event's content is fixed here, under a number, and is the same for
# every exporter until it is confirmed. So an exporter that dies between delivering and confirming has the same events
# delivered again, and two exporters at once deliver the same ones; a receiver that identifies events by their id bills
# once.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Final, TypeVar

from reconverge.errors import HubUnavailable
from reconverge.hub.report import WHOLE_MAX
from reconverge.hub.usage import (
    EVENTS_MAX,
    LOAD_KEPT_US,
    NOTHING,
    OTHERS,
    PAGES,
    ROWS_MAX,
    Counts,
    ExportLease,
    ExportMarks,
    NodeLoad,
    Period,
    Recorded,
    Retention,
    UsageBatch,
    UsageEvent,
    UsageKey,
    UsageRow,
    counted_us,
    field_of,
    others_route,
    page_of,
    period_end_s,
)

T = TypeVar("T")
GONE: Final = WHOLE_MAX
"""The value in place of an account's sequence number after the account has left."""
ACCOUNTS_MAX: Final = 1 << 16
"""The most accounts of a hub that bounds its rows; for a further account it forgets the oldest account that has left.
"""
FORGET_US: Final = 3600 * 1_000_000
"""For how many microseconds a period must have been expired before it is forgotten; within this time a clock that was
wrongly put ahead is corrected."""
FORGET_EACH_US: Final = 60 * 1_000_000
"""The microseconds between two searches for expired periods; one search goes through a thousand periods."""


@dataclass(slots=True)
class Page:
    """One page (a part) of a period's usage: the totals of its rows, and the export's events about them."""

    totals: dict[UsageKey, Counts] = field(default_factory=dict[UsageKey, Counts])
    rows: int = 0
    """The number of rows of the page, without rows of OTHERS (the sum of all identities that have no row of their own).
    """
    issued: dict[UsageKey, tuple[int, Counts]] = field(default_factory=dict[UsageKey, tuple[int, Counts]])
    """For each row, the number of events that were issued, and the sum of their counts."""
    pending: dict[tuple[UsageKey, int], Counts] = field(default_factory=dict[tuple[UsageKey, int], Counts])


@dataclass(slots=True)
class UsageState:
    """The usage that one shard keeps: the reports of accounts, the totals, and the progress of the export."""

    sequences: dict[str, int] = field(default_factory=dict[str, int])
    """For each account, the sequence number of its last batch."""
    own: dict[str, dict[Period, dict[UsageKey, Counts]]] = field(
        default_factory=dict[str, dict[Period, dict[UsageKey, Counts]]]
    )
    """For each account, the counts that it has reported last."""
    pages: dict[Period, list[Page]] = field(default_factory=dict[Period, list[Page]])
    first: dict[str, int] = field(default_factory=dict[str, int])
    closed: dict[str, int] = field(default_factory=dict[str, int])
    done: dict[str, int] = field(default_factory=dict[str, int])
    """For each kind of period, the last one up to which all events were delivered; `first`, `closed` and `late` are as
    in `ExportMarks`."""
    late: dict[Period, int] = field(default_factory=dict[Period, int])
    loads: dict[str, NodeLoad] = field(default_factory=dict[str, NodeLoad])
    leader: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    """For each kind of period, the exporter that leads, and until when by the hub's clock."""

    def pages_of(self, period: Period) -> list[Page]:
        """Returns all pages of a period; makes empty pages if there are none."""
        return self.pages.setdefault(period, [Page() for _ in range(PAGES)])

    def counted(self) -> int:
        """Returns how many rows are stored: the rows of all accounts, and the rows of totals."""
        own = sum(len(rows) for periods in self.own.values() for rows in periods.values())
        return own + sum(len(page.totals) for pages in self.pages.values() for page in pages)


class UsageShard:
    """The usage of the identities of one shard.

    Args:
        shard: its number.
        rows_max: how many rows a page may have.
        held_max: how many rows there may be in all, those of accounts included; None: any number. A batch that would
            bring more is refused with HubUnavailable.
        state: the data to continue with.
    """

    def __init__(
        self, *, shard: int = 0, rows_max: int = ROWS_MAX, held_max: int | None = None, state: UsageState | None = None
    ) -> None:
        self._shard = shard
        self._rows_max = rows_max
        self._held_max = held_max
        self.state = state or UsageState()
        self._held = self.state.counted()
        self._kept = Retention(0, 0, 0, 0)
        """The longest retention that any node has requested here so far."""
        self._old: dict[Period, int] = {}
        """For each expired period, when the shard found it expired, in microseconds of the hub's clock."""
        self._looked = -1

    def record(self, batch: UsageBatch, *, hub_us: int) -> Recorded:
        """Merges a batch of usage, and returns the result.

        If the shard is full, raises HubUnavailable without a change.
        """
        known = self.state.sequences.get(batch.account, 0)
        merged, folded = batch.answered <= known < batch.sequence, 0
        refused: tuple[int, ...] = ()
        if merged:
            self._check_room(batch)
            self.state.sequences[batch.account] = batch.sequence if batch.leaving is None else GONE
            counts = [self._counts(batch, row, hub_us) for row in batch.rows]
            refused = tuple(place for place, counted in enumerate(counts) if not counted)
            folded = sum(self._replace(batch.account, row) for row in compress(batch.rows, counts))
            if batch.leaving is not None:
                self._held -= sum(map(len, self.state.own.pop(batch.account, {}).values()))
            if batch.load is not None:
                self.loads(hub_us)
                self.state.loads[batch.load.node] = batch.load._replace(at_us=hub_us)
            self._forget(batch.kept, hub_us)
        return Recorded(known, merged, folded, dict(self.state.done), hub_us, refused)

    def totals(self, period: Period, page: int) -> list[UsageRow]:
        return [UsageRow(period, key, counts) for key, counts in self._page(period, page).totals.items()]

    def loads(self, hub_us: int) -> list[NodeLoad]:
        self.state.loads = {name: load for name, load in self.state.loads.items() if load.at_us + LOAD_KEPT_US > hub_us}
        return list(self.state.loads.values())

    def lead_export(self, kind: str, exporter: str, until_us: int, hub_us: int) -> ExportLease:
        leader, kept_us = self.state.leader.get(kind, ("", 0))
        if leader != exporter and hub_us < kept_us:
            return ExportLease(leads=False, exporter=leader, until_us=kept_us, hub_us=hub_us)
        self.state.leader[kind] = exporter, until_us
        return ExportLease(leads=True, exporter=exporter, until_us=until_us, hub_us=hub_us)

    def marks(self, kind: str) -> ExportMarks:
        late = {period.number: mark for period, mark in self.state.late.items() if period.kind == kind}
        return ExportMarks(self.state.first.get(kind), self.state.closed.get(kind), self.state.done.get(kind), late)

    def close_period(self, period: Period, hub_us: int) -> bool:
        return _raise(self.state.closed, period, hub_us)

    def issue(self, period: Period, page: int) -> list[UsageEvent]:
        found = self._page(period, page)
        for key, counts in found.totals.items():
            if len(found.pending) >= EVENTS_MAX:
                break
            number, said = found.issued.get(key, (0, NOTHING))
            if counts != said:
                found.pending[key, number] = _less(counts, said)
                found.issued[key] = number + 1, counts
        pending = list(found.pending.items())[:EVENTS_MAX]
        return [UsageEvent(period, key, number, counts) for (key, number), counts in pending]

    def confirm(self, events: Sequence[UsageEvent], page: int) -> None:
        for event in events:
            self._page(event.period, page).pending.pop((event.key, event.number), None)

    def finish(self, period: Period, late_mark: int | None, hub_us: int) -> None:
        if (
            _raise(self.state.done, period, hub_us)
            and late_mark is not None
            and self.state.late.get(period) == late_mark
        ):
            del self.state.late[period]

    def erase(self, identity: str) -> int:
        """Removes an identity's totals, events and rows of accounts; returns how many rows and events were removed.

        If an account goes on counting under a removed key, its whole count is added to the totals again: see `retract`.
        """
        own = [rows for periods in self.state.own.values() for rows in periods.values()]
        pages = [page for pages in self.state.pages.values() for page in pages]
        said = sum(_without(rows, identity) for rows in own)
        self._held -= said
        gone = said
        for page in pages:
            totals = _without(page.totals, identity)
            page.rows = max(0, page.rows - totals)
            self._held -= totals
            gone += totals + _without(page.issued, identity)
            pending = [each for each in page.pending if each[0].identity == identity]
            for each in pending:
                del page.pending[each]
            gone += len(pending)
        return gone

    def retract(self, account: str, rows: Sequence[tuple[Period, UsageKey]]) -> None:
        for period, key in rows:
            said = self.state.own.get(account, {}).get(period, {}).pop(key, None)
            self._held -= said is not None
            page = self._page(period, page_of(field_of(key)))
            total = page.totals.get(key)
            if said is None or total is None:
                continue
            left = _less(total, said)
            if left != NOTHING:
                page.totals[key] = left
                continue
            del page.totals[key]
            self._held -= 1
            page.rows = max(0, page.rows - 1)
            number, _ = page.issued.pop(key, (0, NOTHING))
            for each in range(number):
                page.pending.pop((key, each), None)

    def _page(self, period: Period, page: int) -> Page:
        return self.state.pages[period][page] if period in self.state.pages else Page()

    def _counts(self, batch: UsageBatch, row: UsageRow, hub_us: int) -> bool:
        """Returns whether the hub counts a row: its date is acceptable, or the account has reported the row before."""
        from_us, until_us = counted_us(row.period, batch.kept)
        return from_us <= hub_us < until_us or row.key in self.state.own.get(batch.account, {}).get(row.period, ())

    def _replace(self, account: str, row: UsageRow) -> bool:
        """Replaces the account's counts in a row. Returns whether they were added to the row of OTHERS.

        That row takes the counts of all identities for which the page has no further row.
        """
        period, key, counts = row
        own = self.state.own.setdefault(account, {}).setdefault(period, {})
        said = own.get(key, NOTHING)
        if counts == said:
            return False
        number = page_of(field_of(key))
        page = self.state.pages_of(period)[number]
        self._held += key not in own
        own[key], target = counts, key
        if key.identity != OTHERS and key not in page.totals:
            if page.rows >= self._rows_max:
                target = UsageKey(OTHERS, key.limit, others_route(self._shard, number))
            else:
                page.rows += 1
        self._held += target not in page.totals
        page.totals[target] = _less(page.totals.get(target, NOTHING), _less(said, counts))
        self.state.first.setdefault(period.kind, period.number)
        self.state.first[period.kind] = min(self.state.first[period.kind], period.number)
        if period.number <= self.state.closed.get(period.kind, -1):
            self.state.late[period] = self.state.late.get(period, 0) + 1
        return target != key

    def _forget(self, kept: Retention, hub_us: int) -> None:
        """Drops periods that expired at least FORGET_US ago, by the longest retention that any node has requested."""
        self._kept = Retention(*map(max, self._kept, kept))
        if hub_us // FORGET_EACH_US == self._looked:
            return
        self._looked = hub_us // FORGET_EACH_US
        old = [period for period in self.state.pages if counted_us(period, self._kept)[1] <= hub_us]
        self._old = {period: self._old.get(period, hub_us) for period in old}
        for period in [each for each in old if self._old[each] + FORGET_US <= hub_us]:
            del self._old[period]
            self._held -= sum(len(page.totals) for page in self.state.pages.pop(period))
            self.state.late.pop(period, None)
            for own in self.state.own.values():
                self._held -= len(own.pop(period, ()))

    def _check_room(self, batch: UsageBatch) -> None:
        """Raises HubUnavailable if the shard has no room for the new rows or the new account of a batch."""
        if self._held_max is None:
            return
        sequences = self.state.sequences
        if batch.account not in sequences and len(sequences) >= ACCOUNTS_MAX:
            gone = next((name for name, sequence in sequences.items() if sequence == GONE), None)
            if gone is None:
                raise HubUnavailable(
                    "full",
                    f"{ACCOUNTS_MAX} accounts report usage, the most that a hub takes; try again later",
                    applied=False,
                )
            del sequences[gone]
        if self._held + 2 * len(batch.rows) <= self._held_max:
            return
        own = self.state.own.get(batch.account, {})
        new = sum(row.key not in own.get(row.period, ()) for row in batch.rows)
        if new and self._held + 2 * new > self._held_max:
            problem = (
                f"this hub keeps {self._held} rows of usage, and {new} more would exceed {self._held_max}; keep fewer "
            )
            raise HubUnavailable("full", f"{problem}periods or routes, or use a hub on Redis", applied=False)


def _without(rows: dict[UsageKey, T], identity: str) -> int:
    """Removes all rows of an identity from `rows`; returns how many there were."""
    found = [key for key in rows if key.identity == identity]
    for key in found:
        del rows[key]
    return len(found)


def _less(counts: Counts, other: Counts) -> Counts:
    return Counts(counts.cost - other.cost, counts.requests - other.requests, counts.refused - other.refused)


def _raise(marks: dict[str, int], period: Period, hub_us: int) -> bool:
    """If `period` is over, raises the mark of its kind to its number at least. Returns whether it is over."""
    if period_end_s(period) * 1_000_000 > hub_us:
        return False
    marks[period.kind] = max(period.number, marks.get(period.kind, period.number))
    return True
