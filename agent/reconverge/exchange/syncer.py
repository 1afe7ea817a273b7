"""Decides when a node exchanges with its hub, composes the reports, and merges the answers. Does no I/O.

One syncer serves one node at one shard. A driver, which does the waiting, calls it: `driver.py` with a real clock and a
real hub; the simulator and tests have drivers of their own without either.
"""

# Theory of operation: names, accounts and leases.
#
# A hub that has given up on a node has granted the node's allowances to others, and has added the node's last counts to
# those of departed nodes. If the node came back under its old name, the hub would take the small new counts for
# outdated ones, and an old batch for the node's return. So a name is never used again after a start, a fork or the end
# of a lease. The first batch under a new name contains nothing but that name. The answer shows whether the hub still
# has the data that the node last saw:
#
# - if so, the use that the hub confirmed under the old name counts as use by others, and the node reports the rest;
# - if the hub has lost them, the node reports everything.
#
# A hub keeps the totals of a process under an account, a name that outlives a lease, so that they are not doubled. It
# closes an account after a day without a report; after half a day a node opens a new one.
#
# The lease begins when the batch was *sent*, and lasts for the time that the batch asked for, less the time by which
# the hub's clock may be faster. So it ends here before it ends at the hub. An answer that takes longer is too late, so
# `lease_ttl` lasts several exchanges at least; the fuzz found fleets with a round trip of 0.5 s and a lease of 0.3 s
# whose hub never heard of a single charge.
#
# A node with nothing to report exchanges, too: so it keeps its allowances, and soon notices if the hub has lost its
# data. After a loss the hub waits for all nodes, and relies on SILENCE_NS and BACKOFF_CAP_NS; so these must change
# together with SPEAK_UP_US of the merge rule.

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Final

from reconverge.clock import MICROSECOND_NS, SECOND_NS
from reconverge.exchange.relearned import longest_wait_over_ns
from reconverge.exchange.schedule import Intervals
from reconverge.hub.clock import DRIFT, HubClock
from reconverge.hub.headroom import sealed_after_us
from reconverge.hub.report import Answer, Batch, CellReport, LimitReport, Status
from reconverge.kernel import NEVER_NS, Kernel
from reconverge.runtime.backoff import backoff_ns

CELLS_MAX: Final = 256
"""The most cells, each one key of one limit, in a batch; more would occupy the hub and this event loop for
milliseconds."""
JITTER: Final = 0.05
"""Each interval is lengthened or shortened at random by up to this fraction, so that nodes do not exchange all at
once."""
SILENCE_NS: Final = SECOND_NS
"""A node with nothing to report exchanges after this time, or after its sync interval if that is longer. So it keeps
its allowances, and learns before long that the hub has lost its data."""
SILENCE_SHARE: Final = 6
"""The fewest exchanges in each lease of a node that has nothing to report."""
UNUSED_SILENCE_NS: Final = 10 * SECOND_NS
"""The time between two exchanges with a shard to which the node has reported nothing yet, so that the shard can lose
nothing of this node's."""
AWAY_NS: Final = SECOND_NS
AWAY_INTERVALS: Final = 3
"""A hub counts as away if exchanges have failed for AWAY_NS and for AWAY_INTERVALS sync intervals, two at least."""
HUB_FULL_NS: Final = 30 * SECOND_NS
HUB_FULL_INTERVALS: Final = 30
"""The number of sync intervals for which a hub counts as full after it had no room for a key. Within them the node
reports that key again."""
ACCOUNT_KEPT_NS: Final = 12 * 3600 * SECOND_NS
"""The time without a report after which a node opens a new account: half of the day after which the hub closes a silent
account."""


@dataclass(frozen=True, slots=True)
class SyncerStats:
    """Statistics of one node's exchanges with one shard of the hub. Times are in seconds."""

    node: str
    exchanges: int
    early: int
    """The number of exchanges that began before their sync interval was over."""
    cells: int
    """The number of reports in all batches together; each report is about one key of one limit."""
    failures: dict[str, int]
    """The number of failed exchanges, by class of failure, such as "timeout"."""
    failures_in_a_row: int
    rebirths: int
    """The number of times that an answer has shown that the hub lost its data, or was replaced by another hub."""
    lapses: int
    """The number of times that the node's lease, the right to use its allowances, ended before the hub answered
    again."""
    round_trip: float
    clock_error: float
    """The largest possible error of this node's estimate of the hub's clock, in seconds."""
    staleness: float
    """The age of the hub's last answer, in seconds; infinite before the first answer."""
    pending: int = 0
    """How many keys have changes that the node has not reported yet."""
    failing: str = ""
    """The class of the last exchange's failure; empty if the last exchange was answered."""
    lease: float = 0.0
    """The seconds for which the node may still use its allowances, but for limits with a shorter lease; infinite
    without a hub."""
    not_taken: int = 0
    """The number of times that the hub had no room for a key. Requests for that key follow the policy's rule for keys
    that the hub does not know, and the node reports the key again."""
    hub_full: bool = False
    """Whether the hub had no room for a key in the last HUB_FULL_INTERVALS intervals."""


class Syncer:
    """Exchanges for a node with one shard of the hub: decides when, composes batches, applies answers. Does no I/O."""

    def __init__(self, kernel: Kernel, *, shard: int, random: Random, new_name: Callable[[], str], now_ns: int) -> None:
        self._kernel = kernel
        self._shard = kernel.shards[shard]
        self._random = random
        self._new_name = new_name
        self._clock = HubClock()
        self.account = new_name()
        """The name under which the hub keeps the totals of this process. New for every start of a process, and after a
        fork."""
        self._account_since_ns = now_ns
        self._name_number = 0
        self._sequence = 0
        self._generation = ""
        self._answered = False
        """Whether the hub has answered this node under its current name."""
        self._involved = len(kernel.shards) == 1
        """Whether this node has reported a key to this shard, or the hub has no other shard."""
        self._lapsed = False
        """Whether the node's last lease has ended, and the hub has not answered the node under its new name yet."""
        self.renounced = False
        """Whether a copy of this process may use the same name and account, so that the next batch uses new ones."""
        self._asked = False
        """Whether `speak_up` has requested an exchange, even if there is nothing to report."""
        self._leaving = False
        self.left = False
        """Whether the hub has answered the node's last report."""
        self._under_way = False
        self._more = False
        """Whether the last batch had no room for everything that the node had to report."""
        self._started_ns = now_ns - kernel.interval_ns
        self._regular = Intervals(kernel.intervals_ns, now_ns)
        """The moment of the next regular exchange of each sync interval; after a failure, of the next attempt."""
        self._busy = self._hurried = False
        """Whether the last batch reported new charges, and whether some of them could not wait for a regular
        exchange."""
        self._hasten = False
        """Whether a sync interval may have become shorter since the last check for due work."""
        self._about: frozenset[int] | None = None
        """The sync intervals whose limits the present round of batches reports, in nanoseconds; None for all limits."""
        self._failures: Counter[str] = Counter()
        self._failures_in_a_row = 0
        self._failing = ""
        self._failing_since_ns = NEVER_NS
        """When the first of the last exchanges in a row began that the hub has not answered."""
        self._beginnings = 0
        """The number of answers in a row after which this node had to start over: under another name, or because the
        hub had lost its data."""
        self._not_before_ns = -NEVER_NS
        """The earliest moment of the next exchange. It lies in the future if several answers in a row made the node
        start over."""
        self._full_until_ns = -NEVER_NS
        """The moment until which the hub counts as full, after it had no room for a key."""
        self._exchanges = self._early = self._cells = self._rebirths = self._lapses = 0

    @property
    def node(self) -> str:
        """Returns this node's name, which changes when the node's lease has ended and when the process restarts.

        A node that came back under an old name would report small counts, which the hub would take for outdated ones.
        """
        return f"{self.account}.{self._name_number}"

    @property
    def kernel(self) -> Kernel:
        return self._kernel

    @property
    def failing(self) -> bool:
        """Returns whether the last exchange with the hub has failed."""
        return self._failures_in_a_row > 0

    @property
    def asked_ns(self) -> int:
        """Returns the moment since which a request waits for the next exchange; NEVER_NS if no request waits."""
        return self._shard.asking_ns

    @property
    def unread(self) -> bool:
        """Returns whether any waiting request has yet to read the hub's last answer."""
        return bool(self._shard.unread)

    def note_turn(self, now_ns: int) -> None:
        """Records that the event loop of the exchanges ran at `now_ns`, while it waits for the hub's answer.

        So the syncer can distinguish a loop that stood still from a hub that was slow.
        """
        self._shard.note_turn(now_ns)

    def await_no_look(self) -> None:
        """Makes the next exchange wait no longer for requests that have yet to read the hub's last answer."""
        self._shard.unread.clear()

    @property
    def answers(self) -> int:
        """Returns how many exchanges the hub has answered."""
        return self._exchanges

    @property
    def begins_anew_again(self) -> bool:
        """Returns whether two or more of the hub's last answers in a row have made this node start over.

        A node starts over under another name, or because the hub has lost the data that it had before.
        """
        return self._beginnings > 1

    # ------------------------------------------------------------ when

    def due_ns(self, now_ns: int) -> int:
        """Returns the moment at which the next exchange should begin; a past moment if the exchange is due."""
        return max(self._wanted_ns(now_ns), self._not_before_ns)

    def _wanted_ns(self, now_ns: int) -> int:
        regular = self._regular
        regular.follow(self._kernel.intervals_ns, now_ns)
        if self._hasten:
            self._hasten = False
            regular.no_longer(now_ns)
            self._shard.later.give_back(self._shard)
        if self._failures_in_a_row:
            return regular.due_ns
        if self._more or self._lapsed or self.renounced or self._leaving or self._asked:
            return now_ns
        early_ns, regular_ns = self._kernel.due_ns(self._shard.index)
        if not self._answered:
            return now_ns
        regular_ns = min(regular_ns, self._silent_until_ns())
        due_ns = min(max(early_ns, self._started_ns + self._kernel.soonest_ns), max(regular_ns, regular.due_ns))
        due_ns = min(due_ns, self._shard.asking_ns)
        later = self._shard.later.intervals_ns
        return min(due_ns, regular.first_of(later)) if later else due_ns

    def stay_awake(self) -> None:
        """Records that the runner (the thread or task of the exchanges) is awake, so that no decision need wake it."""
        self._shard.stay_awake()

    def looks_ns(self, now_ns: int) -> int:
        """Returns the moment until which the runner (the thread or task of the exchanges) may sleep unless it is woken.

        Usually that is when the next exchange is due. If the last exchange reported new charges, it is the earliest
        moment of another exchange: while requests keep coming, decisions then need not wake the runner.
        """
        self._shard.sleep_until(NEVER_NS, regular_ns=-NEVER_NS, begins_ns=-NEVER_NS)  # before the look at due work
        looks_ns = self.due_ns(now_ns)
        if self._hurried and now_ns < self._begins_ns < looks_ns:
            return self._begins_ns
        if self._busy and now_ns < self._regular.due_ns < looks_ns:
            return self._regular.due_ns
        return looks_ns

    def sleep_until(self, looks_ns: int) -> None:
        """Records that the runner (the thread or task of the exchanges) sleeps until `looks_ns` or an urgent decision.

        The argument must not be later than the moment that the method `looks_ns` has returned.
        """
        regular_ns = max(self._regular.due_ns, self._not_before_ns)
        begins_ns = regular_ns if self._failures_in_a_row else self._begins_ns
        self._shard.sleep_until(looks_ns, regular_ns=regular_ns, begins_ns=begins_ns)

    @property
    def _begins_ns(self) -> int:
        return max(self._started_ns + self._kernel.soonest_ns, self._not_before_ns)

    def speak_up(self) -> None:
        """Requests an exchange soon, even if there is nothing to report; after a failure, at the next attempt."""
        self._asked = True

    def take_pace(self) -> None:
        """Makes the next check for due work apply changed sync intervals: no exchange then waits longer than these."""
        self._hasten = True  # only a flag, as another thread, the driver's, may be about to read the intervals

    def attend(self, until_ns: int) -> None:
        """Records that the runner (the thread or task of the exchanges) looks for due work by `until_ns`, if alive."""
        self._shard.attended_until_ns = until_ns

    def give_up_allowances(self, now_ns: int) -> None:
        """Gives the node a new name and account, and no allowances, as a copy of this process may use the old ones.

        The hub keeps the use that it has confirmed under the old name; the node reports the rest under the new name.
        """
        self.renounced = True
        self._void_allowances(now_ns)

    def part(self) -> None:
        """Records that the runner (the thread or task of the exchanges) ends; the next decision starts another one."""
        self._shard.attended_until_ns = -NEVER_NS
        self._shard.stay_asleep()
        self._kernel.look_around(self._shard.index)

    # ------------------------------------------------------------ what to say

    def take(self, now_ns: int) -> Batch | None:
        """Returns the batch of reports to send now; None if there is nothing to report.

        The caller must then call `merged` with the answer, or `failed`.
        """
        if self._under_way:  # a signal handler raised before the caller could report the batch as failed
            self.failed("abandoned", now_ns=now_ns)
        if self.renounced:
            self._become_another(now_ns)
        if self._answered and now_ns >= self._shard.lease_until_ns:
            self._lapse()
        self._renew_account(now_ns)  # also while the name is still good: a lease may be longer than an account is kept
        if self._lapsed:
            self._started_ns = now_ns
            return self._batch((), (), leaving=False)  # a batch with nothing but the new name
        early, begins, about = self._topics(now_ns)
        wanted_ns, regular_ns = self._kernel.due_ns(self._shard.index)
        self._busy, self._hurried = regular_ns == -NEVER_NS, wanted_ns < NEVER_NS
        self._shard.note_taken(now_ns)
        self._shard.asking_ns = NEVER_NS  # first, as a request that asks meanwhile may come too late for this batch
        limits, cells, self._more, everything = self._kernel.take(
            self._shard.index,
            now_ns=now_ns,
            cells_max=CELLS_MAX,
            early=early,
            in_touch=self._failures_in_a_row == 0,
            begins=begins,
            due=about,
            leaving=self._leaving,
        )
        if begins or (early and cells and everything):
            self._regular.begin(about, self._length_ns, now_ns)
        asked, self._asked = self._asked, False
        if not (cells or asked) and (early or self._more or not (limits or self._leaving or self._silent(now_ns))):
            self._kernel.take_back(self._shard.index)
            return None
        self._involved = self._involved or bool(cells or limits)
        self._started_ns = now_ns
        self._early += early
        self._cells += len(cells)
        return self._batch(limits, cells, leaving=self._leaving and not self._more)

    def _topics(self, now_ns: int) -> tuple[bool, bool, frozenset[int] | None]:
        """Returns whether the next batch is ahead of time, whether it begins a round, and which intervals it covers.

        The batch reports the limits that have one of these intervals; None stands for all limits. A batch ahead of time
        reports urgent keys, and the limits with the shortest interval. Any other batch reports the limits that were due
        when its round began. A round consists of as many batches as it takes to report all keys that have unreported
        changes when it begins (`reporting/agenda.py`). A key that becomes due during a round waits for the next one.
        """
        regular = self._regular
        regular.follow(self._kernel.intervals_ns, now_ns)
        due = regular.due(now_ns)
        early = not (due or self._more or self._leaving)
        goes_on = self._kernel.round_goes_on(self._shard.index, self._about)
        begins = not (early or goes_on) and (bool(due) or self._leaving)
        if len(regular) == 1 or self._leaving:
            self._about = None
        elif begins or early:
            self._about = due or regular.shortest
        return early, begins, self._about

    def leave(self, now_ns: int) -> None:
        """Makes the following batches the node's last ones: they report all counts, and give all allowances back.

        A decision after this call starts another thread or task for the exchanges.
        """
        self._shard.attended_until_ns = -NEVER_NS
        self._leaving = True
        self.left = False
        self._failures_in_a_row = 0
        self._kernel.give_up_allowances(self._shard.index, now_ns=now_ns)

    def _batch(self, limits: tuple[LimitReport, ...], cells: tuple[CellReport, ...], *, leaving: bool) -> Batch:
        self._under_way = True
        self._sequence += 1
        return Batch(
            node=self.node,
            account=self.account,
            shard=self._shard.index,
            sequence=self._sequence,
            generation=self._generation,
            interval_us=self._kernel.interval_ns // MICROSECOND_NS,
            lease_us=self._kernel.lease_ns // MICROSECOND_NS,
            leaving=leaving,
            limits=limits,
            cells=cells,
            heard_us=self._shard.heard_us,
        )

    # ------------------------------------------------------------ what to make of the answer

    def merged(self, batch: Batch, answer: Answer, *, sent_ns: int, now_ns: int) -> None:
        """Applies the hub's answer to `batch`, which was sent at `sent_ns` or later.

        The caller has checked the answer.
        """
        if answer.status is Status.STALE or (answer.status is Status.MERGED and len(answer.cells) != len(batch.cells)):
            self.failed("stale", now_ns=now_ns)
            return
        shard = self._shard
        shard.note_free(now_ns)
        if shard.lost_ns > -NEVER_NS and answer.generation == self._generation:
            # A hub that grants an allowance of a limit has ended its wait for that limit. Computed before anything
            # changes: after an exception the node reports everything again.
            wait_ns = longest_wait_over_ns(batch, answer, self._kernel.tables)
            shard.lost_ns = min(shard.lost_ns, now_ns - wait_ns) if wait_ns else shard.lost_ns
        self._set_clock(answer.hub_us, sent_ns=sent_ns, now_ns=now_ns)
        self._failures_in_a_row = 0
        self._exchanges += 1
        self._under_way = False
        if answer.status is Status.LAPSED:
            self._take_back()
            self._void_allowances(now_ns)
            self._lapse()
            self._begin_anew(now_ns)
            return
        reborn = self._generation not in ("", answer.generation)
        if self._lapsed:
            self._say_all_at(now_ns)
            self._kernel.start_under_new_name(shard.index, hub_remembers=not reborn, now_ns=now_ns)
            self._lapsed = False  # last, as an exception on the way must not leave counts from under the old name
        else:
            self._kernel.give_up_lapsed_allowances(shard.index, now_ns=now_ns)
            self._install(answer, heard_ns=(sent_ns + now_ns) // 2, now_ns=now_ns)
            self._beginnings = self._beginnings if reborn else 0
            if reborn:
                self._say_all_at(now_ns)
                self._kernel.say_everything_again(shard.index)
        self._rebirths += reborn
        if reborn:
            shard.lost_ns = now_ns
            self._begin_anew(now_ns)
        self._generation = answer.generation
        self._answered = True
        shard.acked_ns = sent_ns
        shard.away = 0
        shard.met_ns = min(shard.met_ns, now_ns)
        if batch.leaving:
            self.left = True
            self._retire()
        elif not shard.unconfirmed:
            # As that batch asked for it, and less by what the hub's clock may be faster.
            shard.lease_until_ns = sent_ns + int(batch.lease_us * MICROSECOND_NS * (1 - DRIFT))
            shard.leased_ns = sent_ns - int(batch.lease_us * MICROSECOND_NS * DRIFT)
            shard.voided.clear()
        if self.renounced:
            self._void_allowances(now_ns)
        shard.wake_askers()

    def _install(self, answer: Answer, *, heard_ns: int, now_ns: int) -> None:
        shard = self._shard
        not_taken = shard.not_taken
        self._kernel.install(shard.index, self._without_late_grants(answer), heard_ns=heard_ns, now_ns=now_ns)
        self._kernel.report_recalled(shard.index, answer.recalls, now_ns)
        shard.nodes = answer.nodes or shard.nodes
        if shard.not_taken > not_taken:
            self._full_until_ns = now_ns + max(HUB_FULL_NS, HUB_FULL_INTERVALS * self._kernel.interval_ns)

    def _without_late_grants(self, answer: Answer) -> Answer:
        """Returns `answer`; if the node is leaving, sets all its allowances to 0, as the node must take none."""
        if not self._leaving:
            return answer
        return answer._replace(cells=tuple(cell._replace(allowance=0, base=0, overdraft=0) for cell in answer.cells))

    def _say_all_at(self, now_ns: int) -> None:
        """Makes all intervals due at `now_ns`, so that the next round of batches reports all limits."""
        self._more = True
        self._regular.all_at(now_ns)

    def _set_clock(self, hub_us: int, *, sent_ns: int, now_ns: int) -> None:
        shard = self._shard
        jumped = self._clock.add(sent_ns=sent_ns, received_ns=now_ns, hub_us=hub_us)
        shard.offset_ns = self._clock.offset_ns
        shard.heard_us = max(shard.heard_us, hub_us)
        shard.opens_us = shard.heard_us + sealed_after_us()
        error_ns = self._clock.error_ns(now_ns)
        shard.lag_ns = 2 * error_ns
        shard.late_ns = min(error_ns, now_ns + shard.offset_ns - hub_us * MICROSECOND_NS)
        shard.round_trip_ns = now_ns - sent_ns
        shard.distance_ns = min(shard.without_standing_ns(shard.round_trip_ns), shard.lag_ns) if self._exchanges else 0
        if jumped:
            self._kernel.rebase(shard.index, now_ns=now_ns)

    def failed(self, kind: str, *, now_ns: int) -> None:
        """Records that the hub did not answer the last batch; it may have merged it. `kind` is the class of failure."""
        self._under_way = False
        self._shard.note_free(now_ns)
        self._failures[kind] += 1
        self._failures_in_a_row += 1
        self._failing = kind
        # The hub may have merged the batch all the same. To report everything again is safe: counts replace earlier
        # ones and are not added.
        self._take_back()
        self._regular.all_at(max(now_ns, self._started_ns + self._delay_ns(self._failures_in_a_row)))
        self._shard.note_in_vain()
        if self._failures_in_a_row == 1:
            self._failing_since_ns = self._started_ns
        elif now_ns - self._failing_since_ns >= max(AWAY_INTERVALS * self._kernel.interval_ns, AWAY_NS):
            self._shard.away = 1
        self._shard.wake_askers()

    def _begin_anew(self, now_ns: int) -> None:
        self._beginnings += 1
        if self._beginnings > 1:
            self._not_before_ns = now_ns + self._delay_ns(self._beginnings - 1)

    def _delay_ns(self, times: int) -> int:
        """Returns the pause before the next exchange, in nanoseconds, after `times` failures or new starts in a row."""
        delay_ns = backoff_ns(self._kernel.interval_ns, times)
        # Shortened at random, never lengthened: a hub that has lost its data waits for a report of every node, but no
        # longer than the cap.
        return int(delay_ns * (0.75 + 0.25 * self._random.random()))

    def abandon(self, *, now_ns: int) -> None:
        """Records that the runner (the thread or task of the exchanges) has ended, so that its last batch has failed.

        The node has not sent a last report.
        """
        self._leaving = False
        self._shard.stay_asleep()
        if self._under_way:
            self.failed("abandoned", now_ns=now_ns)

    def stats(self, now_ns: int) -> SyncerStats:
        """Returns statistics of the exchanges so far."""
        return SyncerStats(
            node=self.node,
            exchanges=self._exchanges,
            early=self._early,
            cells=self._cells,
            failures=dict(self._failures),
            failures_in_a_row=self._failures_in_a_row,
            rebirths=self._rebirths,
            lapses=self._lapses,
            round_trip=self._shard.round_trip_ns / SECOND_NS,
            clock_error=self._shard.lag_ns / 2 / SECOND_NS,
            staleness=(now_ns - self._shard.acked_ns) / SECOND_NS if self._exchanges else inf,
            pending=self._kernel.pending(self._shard.index),
            failing=self._failing if self._failures_in_a_row else "",
            lease=max(0, self._shard.lease_until_ns - now_ns) / SECOND_NS,
            not_taken=self._shard.not_taken,
            hub_full=now_ns < self._full_until_ns,
        )

    def _lapse(self) -> None:
        """Gives the node a new name, because its lease has ended and the hub may have granted its allowances to others.

        The hub still counts the use that was reported under the old name.
        """
        self._lapses += 1
        self._lapsed = True  # first: the node must not report counts of the old name under the new one
        self._name_number += 1
        self._answered = False

    def _void_allowances(self, now_ns: int) -> None:
        """Ends the node's lease at once. Makes each key's next decision check that, as some keys store a later end."""
        self._shard.lease_until_ns = min(self._shard.lease_until_ns, now_ns)
        self._kernel.look_around(self._shard.index)

    def _become_another(self, now_ns: int) -> None:
        self._open_account(now_ns)
        if self._answered:
            self._lapse()
        self.renounced = False  # last: an exception out of a signal handler may come before

    def _renew_account(self, now_ns: int) -> None:
        """Opens a new account if the hub may soon close the old one: totals sent to a closed one count twice."""
        if now_ns - max(self._shard.acked_ns, self._account_since_ns) > ACCOUNT_KEPT_NS:
            self._open_account(now_ns)

    def _open_account(self, now_ns: int) -> None:
        self.account = self._new_name()
        self._account_since_ns = now_ns
        self._kernel.open_account(self._shard.index)

    def _silent(self, now_ns: int) -> bool:
        return not self._answered or now_ns >= self._silent_until_ns()

    def _silent_until_ns(self) -> int:
        silence_ns = max(self._kernel.interval_ns, SILENCE_NS if self._involved else UNUSED_SILENCE_NS)
        lease_ns = min(self._kernel.lease_ns, self._kernel.slot_lease_ns)  # for slots, without reports
        return self._started_ns + min(silence_ns, lease_ns // SILENCE_SHARE)

    def _retire(self) -> None:
        self._lapsed = True  # first, as in `_lapse`
        self._leaving = False
        self._answered = False
        self._name_number += 1
        self._shard.lease_until_ns = min(self._shard.lease_until_ns, self._shard.acked_ns)

    def _take_back(self) -> None:
        if not self._lapsed:
            self._kernel.take_back(self._shard.index)

    def _length_ns(self, interval_ns: int) -> int:
        """Returns the time until the next regular exchange: `interval_ns`, lengthened or shortened a little at random.

        Until the hub has answered for the first time, returns a random part of `interval_ns`.
        """
        chance = self._random.random()
        share = 1 + JITTER * (2 * chance - 1) if self._answered else chance
        return int(interval_ns * share)
