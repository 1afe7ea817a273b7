"""The rule by which a hub adds usage up and issues events of it, for one shard; the definition of the Lua scripts."""

# Theory of operation.
#
# Each account says absolute counts. The ledger keeps what an account said last of a row (`own`), and moves the total by
# the difference. A sequence that has not risen is refused, so that a repeated or late batch changes nothing. So is a
# batch of an account that was answered to more than the ledger knows: the ledger has lost something, and the account
# has to hear of that, however often the answer is lost. Then it says everything again, which changes what is missing
# and no more.
#
# When an account leaves, its own rows go and the totals stay. Its sequence stays at GONE for as long as any message may
# be under way.
#
# Events are issued before they are delivered: what an event says is fixed here, under a number, and is the same for
# every exporter until it is confirmed. So an exporter that dies between delivering and confirming has the same events
# delivered again, and two exporters at once deliver the same ones; a receiver that tells events by their id bills once.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
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
    ExportMarks,
    NodeLoad,
    Period,
    Recorded,
    Retention,
    UsageBatch,
    UsageEvent,
    UsageKey,
    UsageRow,
    field_of,
    others_route,
    page_of,
)

T = TypeVar("T")
GONE: Final = WHOLE_MAX
"""In place of the sequence of an account that has left."""
ACCOUNTS_MAX: Final = 1 << 16
"""So many accounts are known where rows are bounded; of those that have left, the one that came first is forgotten."""


@dataclass(slots=True)
class Page:
    """A part of the rows of one period."""

    totals: dict[UsageKey, Counts] = field(default_factory=dict[UsageKey, Counts])
    rows: int = 0
    """Rows beside those of OTHERS."""
    issued: dict[UsageKey, tuple[int, Counts]] = field(default_factory=dict[UsageKey, tuple[int, Counts]])
    """How many events there were, and what they sum to."""
    pending: dict[tuple[UsageKey, int], Counts] = field(default_factory=dict[tuple[UsageKey, int], Counts])


@dataclass(slots=True)
class UsageState:
    """All that is remembered of the usage of one shard."""

    sequences: dict[str, int] = field(default_factory=dict[str, int])
    """By account, that of its last batch."""
    own: dict[str, dict[Period, dict[UsageKey, Counts]]] = field(
        default_factory=dict[str, dict[Period, dict[UsageKey, Counts]]]
    )
    """What each account said last."""
    pages: dict[Period, list[Page]] = field(default_factory=dict[Period, list[Page]])
    first: dict[str, int] = field(default_factory=dict[str, int])
    closed: dict[str, int] = field(default_factory=dict[str, int])
    done: dict[str, int] = field(default_factory=dict[str, int])
    """By kind of period, as `ExportMarks` has them; and so have these:"""
    late: dict[Period, int] = field(default_factory=dict[Period, int])
    loads: dict[str, NodeLoad] = field(default_factory=dict[str, NodeLoad])
    leader: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    """By kind of period, the exporter that leads, and until when by the hub's clock."""

    def pages_of(self, period: Period) -> list[Page]:
        """All pages of a period, made now if there are none."""
        return self.pages.setdefault(period, [Page() for _ in range(PAGES)])

    def counted(self) -> int:
        """How many rows there are: those of accounts, and the totals."""
        own = sum(len(rows) for periods in self.own.values() for rows in periods.values())
        return own + sum(len(page.totals) for pages in self.pages.values() for page in pages)


class UsageShard:
    """The usage of the identities of one shard.

    Args:
        shard: its number.
        rows_max: how many rows a page may have.
        held_max: how many rows there may be in all, those of accounts included; None: any number. A batch that would
            bring more is refused with HubUnavailable.
        state: what to go on with.
    """

    def __init__(
        self, *, shard: int = 0, rows_max: int = ROWS_MAX, held_max: int | None = None, state: UsageState | None = None
    ) -> None:
        self._shard = shard
        self._rows_max = rows_max
        self._held_max = held_max
        self.state = state or UsageState()
        self._held = self.state.counted()

    def record(self, batch: UsageBatch, *, hub_us: int) -> Recorded:
        """See `UsageLedger.record`. Raises HubUnavailable, with nothing changed, when there is no room."""
        known = self.state.sequences.get(batch.account, 0)
        merged, folded = batch.answered <= known < batch.sequence, 0
        if merged:
            self._check_room(batch)
            self.state.sequences[batch.account] = batch.sequence if batch.leaving is None else GONE
            folded = sum(self._replace(batch.account, row) for row in batch.rows)
            if batch.leaving is not None:
                self._held -= sum(map(len, self.state.own.pop(batch.account, {}).values()))
            if batch.load is not None:
                self.loads(hub_us)
                self.state.loads[batch.load.node] = batch.load._replace(at_us=hub_us)
            self._forget(batch.kept)
        return Recorded(known, merged, folded, dict(self.state.done))

    def totals(self, period: Period, page: int) -> list[UsageRow]:
        """See `UsageLedger.totals`."""
        return [UsageRow(period, key, counts) for key, counts in self._page(period, page).totals.items()]

    def loads(self, hub_us: int) -> list[NodeLoad]:
        """See `UsageLedger.loads`."""
        self.state.loads = {name: load for name, load in self.state.loads.items() if load.at_us + LOAD_KEPT_US > hub_us}
        return list(self.state.loads.values())

    def lead_export(self, kind: str, exporter: str, until_us: int, hub_us: int) -> bool:
        """See `UsageLedger.lead_export`."""
        leader, kept_us = self.state.leader.get(kind, ("", 0))
        if leader != exporter and hub_us < kept_us:
            return False
        self.state.leader[kind] = exporter, until_us
        return True

    def marks(self, kind: str) -> ExportMarks:
        """See `UsageLedger.marks`."""
        late = {period.number: mark for period, mark in self.state.late.items() if period.kind == kind}
        return ExportMarks(self.state.first.get(kind), self.state.closed.get(kind), self.state.done.get(kind), late)

    def close_period(self, period: Period) -> None:
        """See `UsageLedger.close_period`."""
        _raise(self.state.closed, period)

    def issue(self, period: Period, page: int) -> list[UsageEvent]:
        """See `UsageLedger.issue`."""
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
        """See `UsageLedger.confirm`."""
        for event in events:
            self._page(event.period, page).pending.pop((event.key, event.number), None)

    def finish(self, period: Period, late_mark: int | None) -> None:
        """See `UsageLedger.finish`."""
        _raise(self.state.done, period)
        if late_mark is not None and self.state.late.get(period) == late_mark:
            del self.state.late[period]

    def erase(self, identity: str) -> int:
        """Forget an identity: its totals, its events, and what accounts have said; returns how many those were.

        An account that goes on counting a row from where it was would have all of it count again: see `retract`.
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
        """See `UsageEraser.retract`."""
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

    def _replace(self, account: str, row: UsageRow) -> bool:
        """Have the account's counts of a row be these; returns whether they went to OTHERS."""
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

    def _forget(self, kept: Retention) -> None:
        """Drop periods that are older than those that are kept, counted from the newest of their kind."""
        newest: dict[str, int] = {}
        for kind, number in self.state.pages:
            newest[kind] = max(number, newest.get(kind, number))
        old = [each for each in self.state.pages if each.number < newest[each.kind] - int(getattr(kept, each.kind))]
        for period in old:
            self._held -= sum(len(page.totals) for page in self.state.pages.pop(period))
            self.state.late.pop(period, None)
            for own in self.state.own.values():
                self._held -= len(own.pop(period, ()))

    def _check_room(self, batch: UsageBatch) -> None:
        """Raise HubUnavailable if the rows of a batch are too many beside those that there are."""
        if self._held_max is None:
            return
        sequences = self.state.sequences
        if batch.account not in sequences and len(sequences) >= ACCOUNTS_MAX:
            gone = next((name for name, sequence in sequences.items() if sequence == GONE), None)
            if gone is None:
                raise HubUnavailable("full", f"{ACCOUNTS_MAX} accounts tell usage, and no more can", applied=False)
            del sequences[gone]
        if self._held + 2 * len(batch.rows) <= self._held_max:
            return
        own = self.state.own.get(batch.account, {})
        new = sum(row.key not in own.get(row.period, ()) for row in batch.rows)
        if new and self._held + 2 * new > self._held_max:
            problem = f"there are {self._held} rows of usage, and no more than {self._held_max} are kept: keep fewer "
            raise HubUnavailable("full", f"{problem}periods or routes, or use a hub on Redis", applied=False)


def _without(rows: dict[UsageKey, T], identity: str) -> int:
    """Take the rows of an identity out; returns how many those were."""
    found = [key for key in rows if key.identity == identity]
    for key in found:
        del rows[key]
    return len(found)


def _less(counts: Counts, other: Counts) -> Counts:
    return Counts(counts.cost - other.cost, counts.requests - other.requests, counts.refused - other.refused)


def _raise(marks: dict[str, int], period: Period) -> None:
    marks[period.kind] = max(period.number, marks.get(period.kind, period.number))
