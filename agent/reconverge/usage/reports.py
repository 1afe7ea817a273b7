"""The usage counts of one node, and the batches that report them to its hub. Does no I/O."""

# Theory of operation.
#
# The meter's counts of a minute are added to the rows of four periods: the minute, its hour, its day and its month. A
# row is the total, not a difference, of a key (identity, limit, route) in a period. It counts for an account, the name
# under which this process reports. The node also stores the counts that the hub got last; while the two differ, the row
# is part of the next batch. So a batch that fails is not repeated: the next one contains its rows, with newer counts.
#
# A batch states the number of the last batch that the hub has answered. A hub that knows only lower numbers of the
# account has lost reports, and refuses the batch; then every row that the node keeps counts as unreported. A hub that
# knows a higher number than this process has sent got it from a copy of this process: the account is left to the copy,
# and this process begins another account with its unreported counts.
#
# Rows are kept until their period was exported and delivered (`done`), or for a few periods if nothing is exported;
# unreported rows for as long as the hub would take them. The age of a period is measured by the monotonic clock, from
# its last count on. Measured by the numbers of periods, all later counts would seem too old after the wall clock had
# gone ahead and back. Counts for a period that was dropped, from a clock that is behind, are added to the first open
# period after it (`open_periods.py`).
#
# The hub refuses rows whose date comes from a wrong wall clock: one that is ahead, or further back than the hub keeps
# periods. Their counts are moved to the hub's present period, so nothing is lost, and all kinds of period have the same
# sum. Only the part of such a row that the hub has merged before stays where it is.
#
# The last batch ends the account: the hub forgets the account's own rows, and the next start has a new account.

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from reconverge.clock import MILLISECOND_NS
from reconverge.hub.usage import (
    AHEAD_MS,
    BATCH_ROWS_MAX,
    DAY,
    HOUR,
    LENGTH_MS,
    MINUTE,
    MONTH,
    NOTHING,
    OTHERS,
    Counts,
    NodeLoad,
    Period,
    Recorded,
    Retention,
    UsageBatch,
    UsageKey,
    UsageRow,
    shard_of,
)
from reconverge.runtime.locks import new_lock
from reconverge.runtime.log_throttle import LoggedOnce
from reconverge.usage.meter import Meter
from reconverge.usage.open_periods import OpenPeriods
from reconverge.usage.periods import period_at, period_name, periods_of_minute

logger = logging.getLogger("reconverge")

KEPT_REPORTED: Final[Mapping[str, int]] = {MINUTE: 5, HOUR: 1, DAY: 1, MONTH: 1}
"""By kind of period, the number of reported past periods that a node keeps if that kind is not exported."""
ROWS_KEPT_MAX: Final = 400_000
"""The most rows that a node keeps, of all periods: about 150 MB. Beyond that, keys that are new to a period are
counted under OTHERS. A node with 10,000 customers keeps 40,000 rows, and as many for each further period."""


class _Row:
    """One row: the account's own count of a key in a period, and the count that was last reported to the hub."""

    __slots__ = ("counts", "merged", "reported")

    def __init__(self) -> None:
        self.counts = NOTHING
        self.reported = NOTHING
        self.merged = NOTHING
        """The highest counts that the hub has ever confirmed, even if it has lost them since."""


class UsageReports:
    """The usage rows of one node, and the batches that report them.

    `new_name` returns a name for a new account; `kept` is how many periods the hub keeps; `alone`: whether there is no
    hub. Only one thread may report at a time; other threads may read `totals`.
    """

    def __init__(
        self,
        meter: Meter,
        *,
        shards: int,
        new_name: Callable[[], str],
        kept: Retention,
        rows_max: int = ROWS_KEPT_MAX,
        alone: bool = False,
    ) -> None:
        self.meter = meter
        self._shards_count = shards
        self._new_name = new_name
        self._kept = kept
        self._rows_max = rows_max
        self._alone = alone
        self._logged = LoggedOnce()
        self.losses = 0
        """The number of times that the hub has lost this node's reports."""
        self.reported_again = 0
        """The number of rows that were reported again because the hub had lost them."""
        self.dropped: Counter[str] = Counter()
        """The number of rows, by kind of period, that were never reported in the time for which the hub keeps them."""
        self.misdated: Counter[str] = Counter()
        """The number of rows, by kind of period, that were moved to the hub's present period for their wrong date."""
        self.folded = 0
        """The number of rows that the hub has counted under OTHERS."""
        self.overflowed = 0
        """The number of rows that this node has counted under OTHERS, because it had no room for more."""
        self.lock = new_lock()
        self.start_over()

    def start_over(self) -> None:
        """Begins a new account without rows. Called in a forked child, and when the hub has ended the old account."""
        self.account = self._new_name()
        self._rows: dict[Period, dict[UsageKey, _Row]] = {}
        self._count = 0
        self._counted_ns: dict[Period, int] = {}
        """For each period, the moment of its last count, in nanoseconds of the monotonic clock."""
        self._open = OpenPeriods()
        self._done: dict[str, int] = {}
        self._shards = [_ShardReports() for _ in range(self._shards_count)]

    @property
    def unreported(self) -> int:
        """Returns how many keys have counts that the hub has not confirmed yet."""
        return sum(len(shard.dirty) for shard in self._shards)

    @property
    def rows(self) -> int:
        """Returns the number of rows that this node keeps, of all periods."""
        return self._count

    def gather(self, now_ns: int) -> Counts:
        """Adds the meter's new counts to the rows. Returns the sum of these counts over all keys.

        `now_ns` is the time of the monotonic clock.
        """
        with self.lock:
            taken = self.meter.take()
            periods = {minute: periods_of_minute(minute) for minute in {each.minute for each in taken}}
            for each in taken:
                for period in periods[each.minute]:
                    self._add(self._open.first_from(period), each.key, each.counts, now_ns)
            self._drop_old(now_ns)
            return Counts(*(sum(column) for column in zip(NOTHING, *(each.counts for each in taken), strict=True)))

    def batch(self, shard: int, *, load: NodeLoad | None = None, speak: bool = False) -> UsageBatch | None:
        """Returns the next batch for a shard, with unreported rows and the node's load `load`.

        If no row is unreported, returns None, or an empty batch if `speak` is True.
        """
        with self.lock:
            state = self._shards[shard]
            rows: list[UsageRow] = []
            for key, periods in state.dirty.items():
                if len(rows) + len(periods) > BATCH_ROWS_MAX and rows:
                    break
                rows += (UsageRow(each, key, self._rows[each][key].counts) for each in sorted(periods))
            if not (rows or speak):
                return None
            state.sequence += 1
            return UsageBatch(self.account, shard, state.sequence, state.answered, rows, self._kept, load=load)

    def erase(self, is_named: Callable[[str], bool]) -> dict[int, list[tuple[Period, UsageKey]]]:
        """Forgets the rows of the identities for which `is_named` returns True. Returns them by shard.

        The hub may have these rows. As the identities are counted from zero again, the caller must retract the rows
        from the hub (`UsageEraser.retract`) before the next report.
        """
        retracted: dict[int, list[tuple[Period, UsageKey]]] = {}
        with self.lock:
            self.meter.erase(is_named)
            for period, rows in self._rows.items():
                for key in [each for each in rows if is_named(each.identity)]:
                    del rows[key]
                    self._count -= 1
                    shard = self._shard_of(key)
                    self._shards[shard].dirty.pop(key, None)
                    if not self._alone:
                        retracted.setdefault(shard, []).append((period, key))
        return retracted

    def last_word(self, shard: int) -> UsageBatch:
        """Returns the batch that ends the account at a shard. All counts must have been reported to all shards."""
        with self.lock:
            state = self._shards[shard]
            state.sequence += 1
            periods = self._periods_of(shard)
            return UsageBatch(self.account, shard, state.sequence, state.answered, (), self._kept, periods)

    def recorded(self, batch: UsageBatch, answer: Recorded, now_ns: int) -> None:
        """Applies the hub's answer to a batch: marks its rows as reported.

        If the hub has lost its data, marks all rows of the shard as unreported. `now_ns` is as for `gather`.
        """
        with self.lock:
            if batch.account != self.account:
                return
            state = self._shards[batch.shard]
            if not answer.merged:
                if answer.known >= batch.sequence:
                    self._become_another()
                else:
                    state.answered = answer.known
                    self._report_again(batch.shard)
                return
            state.answered = batch.sequence
            for place, row in enumerate(batch.rows):
                if place in answer.refused:
                    self._date_anew(row, answer.hub_us, now_ns)
                else:
                    self._note_reported(state, row)
            for kind, number in answer.done.items():
                self._done[kind] = max(number, self._done.get(kind, number))
            self._note_folded(answer.folded)

    def totals(self, period: Period) -> dict[UsageKey, Counts]:
        """Returns this account's own counts in a period, as far as the node keeps them."""
        with self.lock:
            return {key: row.counts for key, row in self._rows.get(period, {}).items()}

    def _add(self, period: Period, key: UsageKey, counts: Counts, now_ns: int) -> None:
        rows = self._rows.setdefault(period, {})
        if key not in rows:
            if self._count >= self._rows_max and key.identity != OTHERS:
                key = UsageKey(OTHERS, key.limit, "")
                self._note_overflow()
            if key not in rows:
                rows[key] = _Row()
                self._count += 1
        row = rows[key]
        row.counts = _plus(row.counts, counts)
        self._counted_ns[period] = now_ns
        if self._alone:
            row.reported = row.counts
        else:
            self._shards[self._shard_of(key)].dirty.setdefault(key, set()).add(period)

    def _date_anew(self, row: UsageRow, hub_us: int, now_ns: int) -> None:
        """Moves counts into the hub's present period, because the hub has refused the period that they had.

        The part of the counts that the hub has merged before stays in the old period.
        """
        period, key, _ = row
        rows = self._rows.get(period, {})
        kept = rows.get(key)
        if kept is None:
            return
        self._shards[self._shard_of(key)].reported(key, period)
        new = _plus(kept.counts, kept.merged, -1)
        if kept.reported != kept.merged:
            self._note_dropped(period.kind, 1)  # the hub has lost reported counts, and takes them no more
        kept.counts = kept.reported = kept.merged
        if kept.merged == NOTHING:
            del rows[key]
            self._count -= 1
            if not rows:
                del self._rows[period], self._counted_ns[period]
        if new != NOTHING:
            self._note_misdated(period, hub_us)
            if (present := self._open.nearest_at_hub(period.kind, hub_us, self._kept)) is None:
                self._note_dropped(period.kind, 1)
            else:
                self._add(present, key, new, now_ns)

    def _drop_old(self, now_ns: int) -> None:
        """Drops the rows of old periods, which this node will not report any more."""
        for period, counted_ns in sorted(self._counted_ns.items()):
            kind, number = period
            age_ms, length_ms = (now_ns - counted_ns) // MILLISECOND_NS, LENGTH_MS[kind]
            if age_ms <= length_ms:
                continue  # this may be the present period
            unreported = sum(row.counts != row.reported for row in self._rows[period].values())
            kept_ms = (KEPT_REPORTED[kind] + 1) * length_ms
            over = number <= self._done[kind] if kind in self._done else age_ms > kept_ms
            if (over and not unreported) or age_ms > (int(getattr(self._kept, kind)) + 1) * length_ms:
                self._drop(period, unreported)

    def _drop(self, period: Period, unreported: int) -> None:
        self._count -= len(self._rows.pop(period))
        del self._counted_ns[period]
        self._open.close(period)
        if not unreported:
            return
        for shard in self._shards:
            for key in [key for key, periods in shard.dirty.items() if period in periods]:
                shard.reported(key, period)
        self._note_dropped(period.kind, unreported)

    def _report_again(self, shard: int) -> None:
        """Marks all rows of a shard as unreported, because the shard has lost its data."""
        state = self._shards[shard]
        count = 0
        for period, rows in self._rows.items():
            for key, row in rows.items():
                if self._shard_of(key) == shard and any(row.counts):
                    row.reported = NOTHING
                    state.dirty.setdefault(key, set()).add(period)
                    count += 1
        self.losses += 1
        self.reported_again += count
        logger.warning(
            "reconverge: the hub has lost reported usage; this node reports %d rows again. Usage that departed nodes"
            " had reported, and that was not exported, is lost unless the hub's own data have come back",
            count,
        )

    def _become_another(self) -> None:
        """Begins a new account with the unreported counts, as another process reports under the present account."""
        self.account = self._new_name()
        for rows in self._rows.values():
            for row in rows.values():
                row.counts, row.reported, row.merged = _plus(row.counts, row.reported, -1), NOTHING, NOTHING
        for shard in self._shards:
            shard.sequence = shard.answered = 0
        if self._logged.is_new("copy"):
            logger.warning(
                "reconverge: another process reports usage under the account of this process, which may be a copy,"
                " restored from an image of its memory; this process goes on under a new account"
            )

    def _note_reported(self, state: _ShardReports, row: UsageRow) -> None:
        kept = self._rows.get(row.period, {}).get(row.key)
        if kept is None:
            return
        kept.reported = kept.merged = row.counts
        if kept.counts == row.counts:
            state.reported(row.key, row.period)

    def _note_dropped(self, kind: str, rows: int) -> None:
        self.dropped[kind] += rows
        if self._logged.is_new(("dropped", kind)):
            logger.error(
                "reconverge: usage of %d rows was never reported to the hub and is lost for the kind of period %r,"
                " because the hub has not answered for as long as it keeps such periods. Longer periods still contain"
                " this usage. Further cases are not logged, but counted as `dropped`",
                rows,
                kind,
            )

    def _note_misdated(self, period: Period, hub_us: int) -> None:
        self.misdated[period.kind] += 1
        if self._logged.is_new("misdated"):
            logger.error(
                "reconverge: this node dated usage %s, but by the hub's clock it is %s; the hub counts no usage that is"
                " more than %d s ahead, or older than the hub keeps. So that none is lost, the usage is counted in the"
                " nearest period that the hub counts; put the clock of this machine right. Further cases are not"
                " logged, but counted as `misdated`",
                period_name(period),
                period_name(period_at(MINUTE, hub_us / 1_000_000)),
                AHEAD_MS // 1000,
            )

    def _note_folded(self, folded: int) -> None:
        self.folded += folded
        if folded and self._logged.is_new("folded"):
            logger.warning(
                "reconverge: the hub has no room for usage of further identities and routes in this period; their usage"
                " is counted under %r. Further cases are not logged, but counted as `folded`",
                OTHERS,
            )

    def _note_overflow(self) -> None:
        self.overflowed += 1
        if self._logged.is_new("overflowed"):
            logger.warning(
                "reconverge: this node keeps usage of at most %d rows; usage of further rows is counted under %r."
                " Further cases are not logged, but counted as `overflowed`",
                self._rows_max,
                OTHERS,
            )

    def _periods_of(self, shard: int) -> list[Period]:
        """Returns the periods in which this node has rows that belong to the shard."""
        return [period for period, rows in self._rows.items() if any(self._shard_of(key) == shard for key in rows)]

    def _shard_of(self, key: UsageKey) -> int:
        return shard_of(key.identity, self._shards_count)


class _ShardReports:
    """The state of the reports to one shard: the rows that it has not confirmed, and the numbers of batches."""

    def __init__(self) -> None:
        self.dirty: dict[UsageKey, set[Period]] = {}
        self.sequence = 0
        self.answered = 0
        """The sequence number of the last batch that the hub has merged."""

    def reported(self, key: UsageKey, period: Period) -> None:
        """Notes that the shard has confirmed the row of `key` in `period`."""
        periods = self.dirty.get(key, set())
        periods.discard(period)
        if not periods:
            self.dirty.pop(key, None)


def _plus(counts: Counts, other: Counts, sign: int = 1) -> Counts:
    return Counts(*(one + sign * another for one, another in zip(counts, other, strict=True)))
