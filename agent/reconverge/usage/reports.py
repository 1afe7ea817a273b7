"""What a node has yet to tell its hub of usage, and what it keeps to tell again. Does no I/O."""

# Theory of operation.
#
# The meter's minutes are added to the rows of four periods each: its minute, hour, day and month. A row is the
# account's own count of a key in a period, and absolute. What the hub was told of it last stands beside it; where they
# differ, the row is told with the next batch. So a batch that fails, or whose answer is lost, is not repeated: what has
# not been answered is told again, as it is by then.
#
# A batch says what the account was answered to. A hub that knows less has lost what it was told, all of it or the last
# moments, and refuses the batch. Then every row that is kept counts as untold. A hub that knows more than the account
# has said knows it from another process, a copy of this one: the account is left to that, and another begins with
# nothing.
#
# Rows are kept until their period was exported and delivered (`done`), or for a few periods if nothing is exported;
# those that are not told yet for as long as the hub would take them. A row that is gone is never begun again under the
# same account, because a smaller count would take away what the hub has: what comes later for such a period, from a
# clock that is behind, is counted in the first period after it (`_floor`).
#
# The last word ends the account: the hub forgets the account's own rows, and the next start has a new account.

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from reconverge.hub.usage import (
    BATCH_ROWS_MAX,
    DAY,
    HOUR,
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
from reconverge.runtime.log_throttle import LoggedOnce
from reconverge.usage.meter import Meter, Taken
from reconverge.usage.periods import periods_of_minute

logger = logging.getLogger("reconverge")

KEPT_TOLD: Final[Mapping[str, int]] = {MINUTE: 5, HOUR: 1, DAY: 1, MONTH: 1}
"""So many periods of a kind that is not exported are kept before the present one, after they were told."""
ROWS_KEPT_MAX: Final = 400_000
"""Rows that a node keeps, of all periods: about 150 MB if they are all used. Beyond that keys that are new to a period
are counted under OTHERS. A node with 10,000 customers keeps 40,000 rows, and as many for each further period."""


class _Row:
    """An account's own count of a key in a period, and what the hub was told of it."""

    __slots__ = ("counts", "told")

    def __init__(self) -> None:
        self.counts = NOTHING
        self.told = NOTHING


class UsageReports:
    """The rows of one node. `new_name` names accounts; `kept` says what the hub keeps; `alone`, that there is no hub.

    One thread reports at a time; others may read `totals`.
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
        """How often the hub had lost what this node had told it."""
        self.told_again = 0
        """Rows that were told again for that."""
        self.dropped: Counter[str] = Counter()
        """Rows that were never told, by kind of period: the hub did not answer for as long as it keeps them."""
        self.folded = 0
        """Rows that the hub has counted under OTHERS."""
        self.overflowed = 0
        """Rows that this node has counted under OTHERS, because it keeps no more."""
        self.start_over()

    def start_over(self) -> None:
        """In a forked child, and after the last word: another account, which has nothing to tell yet."""
        self.lock = threading.RLock()
        self.account = self._new_name()
        self._rows: dict[Period, dict[UsageKey, _Row]] = {}
        self._count = 0
        self._floor: dict[str, int] = {}
        """By kind, the first period that rows can still be begun in."""
        self._newest: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self._shards = [_Shard() for _ in range(self._shards_count)]

    @property
    def untold(self) -> int:
        """Keys of which something is not told."""
        return sum(len(shard.dirty) for shard in self._shards)

    @property
    def rows(self) -> int:
        """Rows that are kept."""
        return self._count

    def gather(self) -> Counts:
        """Add what the meter has counted since; returns how much that was, under all keys together."""
        with self.lock:
            taken = self.meter.take()
            periods = {minute: periods_of_minute(minute) for minute in {each.minute for each in taken}}
            for each in taken:
                self._add(each, periods[each.minute])
            self._drop_old()
            return Counts(*(sum(column) for column in zip(NOTHING, *(each.counts for each in taken), strict=True)))

    def batch(self, shard: int, *, load: NodeLoad | None = None, speak: bool = False) -> UsageBatch | None:
        """What to tell a shard next; None if there is nothing, unless it is to `speak` in any case."""
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
        """Forget the rows of the identities that are named; returns those that the hub may have, by shard.

        The account has to take them back there before it tells of them again (`UsageEraser.retract`): from here on they
        are counted from zero.
        """
        told: dict[int, list[tuple[Period, UsageKey]]] = {}
        with self.lock:
            self.meter.erase(is_named)
            for period, rows in self._rows.items():
                for key in [each for each in rows if is_named(each.identity)]:
                    del rows[key]
                    self._count -= 1
                    shard = self._shard_of(key)
                    self._shards[shard].dirty.pop(key, None)
                    if not self._alone:
                        told.setdefault(shard, []).append((period, key))
        return told

    def last_word(self, shard: int) -> UsageBatch:
        """Tells a shard that the account ends; only when nothing is untold at any shard."""
        with self.lock:
            state = self._shards[shard]
            state.sequence += 1
            periods = self._periods_of(shard)
            return UsageBatch(self.account, shard, state.sequence, state.answered, (), self._kept, periods)

    def recorded(self, batch: UsageBatch, answer: Recorded) -> None:
        """The hub has answered."""
        with self.lock:
            if batch.account != self.account:
                return
            state = self._shards[batch.shard]
            if not answer.merged:
                if answer.known >= batch.sequence:
                    self._become_another()
                else:
                    state.answered = answer.known
                    self._tell_again(batch.shard)
                return
            state.answered = batch.sequence
            for row in batch.rows:
                self._note_told(state, row)
            for kind, number in answer.done.items():
                self._done[kind] = max(number, self._done.get(kind, number))
            self._note_folded(answer.folded)

    def totals(self, period: Period) -> dict[UsageKey, Counts]:
        """What this account alone has counted in a period, as far as the node keeps it."""
        with self.lock:
            return {key: row.counts for key, row in self._rows.get(period, {}).items()}

    def _add(self, taken: Taken, periods: tuple[Period, ...]) -> None:
        for kind, number in periods:
            period = Period(kind, max(number, self._floor.get(kind, number)))
            key = taken.key
            rows = self._rows.setdefault(period, {})
            if key not in rows:
                if self._count >= self._rows_max and key.identity != OTHERS:
                    key = UsageKey(OTHERS, key.limit, "")
                    self._note_overflow()
                if key not in rows:
                    rows[key] = _Row()
                    self._count += 1
            row = rows[key]
            row.counts = _plus(row.counts, taken.counts)
            self._newest[kind] = max(period.number, self._newest.get(kind, 0))
            if self._alone:
                row.told = row.counts
            else:
                self._shards[self._shard_of(key)].dirty.setdefault(key, set()).add(period)

    def _drop_old(self) -> None:
        """Let go of periods that no hub will be told of again."""
        for period in sorted(self._rows):
            kind, number = period
            behind = self._newest[kind] - number
            if not behind:
                continue
            untold = sum(row.counts != row.told for row in self._rows[period].values())
            exported = number <= self._done[kind] if kind in self._done else behind > KEPT_TOLD[kind]
            expired = behind > int(getattr(self._kept, kind))
            if (exported and not untold) or expired:
                self._drop(period, untold)

    def _drop(self, period: Period, untold: int) -> None:
        rows = self._rows.pop(period)
        self._count -= len(rows)
        self._floor[period.kind] = max(period.number + 1, self._floor.get(period.kind, 0))
        if not untold:
            return
        for shard in self._shards:
            for key in [key for key, periods in shard.dirty.items() if period in periods]:
                shard.told(key, period)
        self.dropped[period.kind] += untold
        if self._logged.is_new(("dropped", period.kind)):
            logger.error(
                "reconverge: usage of %d rows was never told to the hub and is lost for the kind of period %r: the hub"
                " has not answered for as long as it keeps them. Longer periods still have it. From now on that is only"
                " counted, as `dropped`",
                untold,
                period.kind,
            )

    def _tell_again(self, shard: int) -> None:
        """The hub has lost what it was told: all that is kept of this shard is new to it."""
        state = self._shards[shard]
        count = 0
        for period, rows in self._rows.items():
            for key, row in rows.items():
                if self._shard_of(key) == shard and any(row.counts):
                    row.told = NOTHING
                    state.dirty.setdefault(key, set()).add(period)
                    count += 1
        self.losses += 1
        self.told_again += count
        logger.warning(
            "reconverge: the hub has lost usage that it was told of; this node tells %d rows again. What nodes had told"
            " that are gone, and what was not exported, is lost unless the hub's own data have come back",
            count,
        )

    def _become_another(self) -> None:
        """Another process has this account: go on under a new one, with what was not told yet."""
        self.account = self._new_name()
        for rows in self._rows.values():
            for row in rows.values():
                row.counts, row.told = _plus(row.counts, row.told, -1), NOTHING
        for shard in self._shards:
            shard.sequence = shard.answered = 0
        if self._logged.is_new("copy"):
            logger.warning(
                "reconverge: another process reports usage under the account of this one, so this may be a copy,"
                " restored from an image of its memory; going on under a new account"
            )

    def _note_told(self, state: _Shard, row: UsageRow) -> None:
        kept = self._rows.get(row.period, {}).get(row.key)
        if kept is None:
            return
        kept.told = row.counts
        if kept.counts == row.counts:
            state.told(row.key, row.period)

    def _note_folded(self, folded: int) -> None:
        self.folded += folded
        if folded and self._logged.is_new("folded"):
            logger.warning(
                "reconverge: the hub has no room for usage of further identities and routes in this period; they are"
                " counted under %r. From now on that is only counted, as `folded`",
                OTHERS,
            )

    def _note_overflow(self) -> None:
        self.overflowed += 1
        if self._logged.is_new("overflowed"):
            logger.warning(
                "reconverge: this node keeps usage of %d rows and no more; further ones are counted under %r. From now"
                " on that is only counted, as `overflowed`",
                self._rows_max,
                OTHERS,
            )

    def _periods_of(self, shard: int) -> list[Period]:
        """The periods in which the account has rows of this shard."""
        return [period for period, rows in self._rows.items() if any(self._shard_of(key) == shard for key in rows)]

    def _shard_of(self, key: UsageKey) -> int:
        return shard_of(key.identity, self._shards_count)


class _Shard:
    """What one shard of the hub was told."""

    def __init__(self) -> None:
        self.dirty: dict[UsageKey, set[Period]] = {}
        self.sequence = 0
        self.answered = 0
        """The sequence of the last batch that was merged."""

    def told(self, key: UsageKey, period: Period) -> None:
        """Nothing is to be told of that row."""
        periods = self.dirty.get(key, set())
        periods.discard(period)
        if not periods:
            self.dirty.pop(key, None)


def _plus(counts: Counts, other: Counts, sign: int = 1) -> Counts:
    return Counts(*(one + sign * another for one, another in zip(counts, other, strict=True)))
