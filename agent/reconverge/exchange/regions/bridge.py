"""Decides what a region's bridge sends to the region's hub and to the wide hub, the hub of all regions. Does no I/O."""

# Theory of operation.
#
# To the wide hub a region is one node: for each key it has an allowance there, which is the most that may be lent to
# the region, and a need. The steps come in the same order as for every node: a loan grows after the wide hub has
# granted it, and the bridge reports a lower allowance to the wide hub when the region's hub has confirmed that its
# nodes hold no more. A loan ends by itself, some time after the wide hub's last answer. The wide hub keeps a silent
# region's allowance until all use of it has ceased to count.
#
# `Bridge` is driven by `regions/driver.py`, which can wait, and by the simulation.

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from reconverge.clock import MICROSECOND_NS, SECOND_NS
from reconverge.exchange.regions.loans import CLOCKS_APART_NS, Holding, LendCall, Lender, need_of
from reconverge.hub.clock import DRIFT, HubClock
from reconverge.hub.report import (
    WHOLE_MAX,
    Answer,
    Batch,
    CellReport,
    Lent,
    LimitReport,
    Loan,
    Status,
    Totals,
    Wish,
    Wishes,
)
from reconverge.limit.limit import SLIDING_LOG
from reconverge.settings import MILLION

CELLS_MAX: Final = 256
"""The most cells, each one key of one limit, in a batch and in a call of `lend`."""
LEASES: Final = 3
"""The number of leases of its nodes for which a region may still use a loan that has ended. In the first lease each
node reports a lower allowance or loses its allowances; for two more leases the hub keeps the cells of a silent node."""
HOLD_MIN_S: Final = 64
HOLD_MAX_S: Final = 1 << 22
"""The longest time in seconds, about seven weeks, for which the wide hub keeps a cell without a report. A cell that
needs more, because its charges count for longer, is never lent."""
HELD_US: Final = 1_000_000
"""The window, in microseconds, that the bridge declares at the wide hub for all cells. No node charges these cells."""
VARIANT: Final = "regions"
KEY_BYTES_MAX: Final = 1024


@dataclass(slots=True)
class _Home:
    clock: HubClock = field(default_factory=HubClock)
    generation: str = ""
    lease_us: int = 0
    known: bool = False


class Bridge:
    """Borrows capacity for one region from the wide hub, the hub of all regions, and lends it to the region's nodes.

    The wide hub holds the part of each limit that belongs to no region. A loan is for one key of one limit.

    Args:
        region: the region's name, under which its totals are reported.
        name: the name of this bridge; new for every start of a process.
        movable_ppm: the part of every capacity that belongs to no region, in millionths; the same for all bridges.
        interval_ns: the nanoseconds between two rounds of exchanges.
        loan_ns: the nanoseconds that a loan lasts after the wide hub's last answer.
        home_shards, wide_shards: the number of shards of the region's hub, and of the wide hub.
        hold_min_s: the least seconds for which the wide hub keeps a cell without a report, after its loans have ended.
    """

    def __init__(
        self,
        region: str,
        name: str,
        *,
        movable_ppm: int,
        interval_ns: int,
        loan_ns: int,
        home_shards: int = 1,
        wide_shards: int = 1,
        hold_min_s: int = HOLD_MIN_S,
    ) -> None:
        self._account = f"region {region}"
        self._name = name
        self._movable_ppm = movable_ppm
        self._interval_ns = interval_ns
        self._loan_ns = loan_ns
        self._wide_shards = wide_shards
        self._homes = [_Home() for _ in range(home_shards)]
        self._lenders: dict[tuple[int, int], Lender] = {}
        self._lendings = 0
        self._totals: dict[str, Totals] = {}
        self._hold_min_s = hold_min_s
        self._teller = self._lender(0, hold_min_s)
        """The lender, a name at the wide hub, under which the region's totals are reported, even before any loan."""
        self.leaving = False

    def hear_wishes(self, shard: int, wishes: Wishes, *, sent_ns: int, now_ns: int) -> None:
        """Stores the needs of keys: `wishes` lists the keys of one shard of the region's hub that need a loan."""
        self._hear_home(shard, wishes.hub_us, wishes.generation, sent_ns=sent_ns, now_ns=now_ns)
        home = self._homes[shard]
        home.lease_us = max(home.lease_us, wishes.lease_us)
        heard: set[tuple[Lender, str]] = set()
        for wish in wishes.wishes:
            lender = self._lender_for(wish, home.lease_us)
            movable = wish.capacity * self._movable_ppm // MILLION
            if lender is None or movable < 1:
                continue
            holding = lender.holdings.get(wish.cell)
            if holding is None:
                holding = lender.holdings[wish.cell] = Holding(wish, shard, movable, lender)
            holding.wish, holding.movable = wish, movable
            holding.need = 0 if self.leaving else min(movable, need_of(wish, holding.amount, self._interval_ns))
            heard.add((lender, wish.cell))
        for lender in self._lenders.values():
            for cell, holding in lender.holdings.items():
                if holding.shard == shard and (lender, cell) not in heard:
                    holding.need = 0

    def lendings(self, shard: int, now_ns: int) -> list[LendCall]:
        """Returns the calls of `Region.lend` that are due at a shard of the region's hub.

        They set new amounts of loans, and prolong loans that end soon.
        """
        home = self._homes[shard]
        if not home.known:
            return []
        due: list[LendCall] = []
        for lender in self._lenders.values():
            here = [each for each in lender.holdings.values() if each.shard == shard]
            loans = [(self._loan(each, home, now_ns), each) for each in here if self._is_due(each, now_ns)]
            for first in range(0, len(loans), CELLS_MAX):
                some = loans[first : first + CELLS_MAX]
                self._lendings += 1
                due.append(
                    LendCall(lender, self._lendings, tuple(loan for loan, _ in some), tuple(each for _, each in some))
                )
        return due

    def hear_lent(self, shard: int, lending: LendCall, lent: Lent, *, sent_ns: int, now_ns: int) -> None:
        """Stores `lent`, the answer of the region's hub to `lending`: how much of each loan nodes may hold.

        Until the answer comes, the bridge assumes the largest amount that the nodes may have got.
        """
        self._hear_home(shard, lent.hub_us, lent.generation, sent_ns=sent_ns, now_ns=now_ns)
        if lent.status is not Status.MERGED or len(lent.held) != len(lending.loans):
            return
        for loan, holding, held in zip(lending.loans, lending.holdings, lent.held, strict=True):
            holding.confirmed = holding.confirmed or (loan.amount == holding.amount and held >= 0)
            if now_ns < holding.doubtful_until_ns or (held < 0 and now_ns <= holding.ends_ns):
                continue  # a hub that has lost the loan may yet learn of it from a node's report or a late message
            holding.maybe = min(holding.maybe, max(held, loan.amount if held >= 0 else 0))

    def _hear_home(self, shard: int, hub_us: int, generation: str, *, sent_ns: int, now_ns: int) -> None:
        home = self._homes[shard]
        home.clock.add(sent_ns=sent_ns, received_ns=now_ns, hub_us=hub_us)
        if home.known and home.generation not in ("", generation):
            for lender in self._lenders.values():
                for holding in lender.holdings.values():
                    if holding.shard == shard:
                        holding.doubtful_until_ns = now_ns + lender.hold_ns
                        holding.confirmed = False
        home.known, home.generation = True, generation or home.generation

    def _is_due(self, holding: Holding, now_ns: int) -> bool:
        target = holding.target(now_ns, self._loan_ns)
        if target != holding.amount or not holding.confirmed:
            return True
        lowering = holding.most(now_ns) > target
        return lowering or (target > 0 and holding.ends_ns - now_ns < self._loan_ns // 2)

    def _loan(self, holding: Holding, home: _Home, now_ns: int) -> Loan:
        holding.amount = holding.target(now_ns, self._loan_ns)
        holding.confirmed = False
        holding.maybe = max(holding.maybe, holding.amount)
        holding.peak = max(holding.peak, holding.maybe)
        if holding.acked_ns is not None:
            ends_ns = holding.acked_ns + int(self._loan_ns * (1 - DRIFT))
            # By the earliest reading of that hub's clock, so that the loan is over there before it counts
            # as over here.
            until_ns = ends_ns + home.clock.offset_ns - home.clock.error_ns(now_ns)
            holding.until_us = max(holding.until_us, until_ns // MICROSECOND_NS)
            holding.ends_ns = max(holding.ends_ns, ends_ns + 2 * home.clock.error_ns(now_ns))
        return Loan(holding.wish.cell, holding.amount, max(0, holding.until_us))

    def batches(self, now_ns: int) -> list[Batch]:
        """Returns the batches of reports to send to the wide hub now. Each must be passed to `merged` or `failed`."""
        return [batch for lender in self._lenders.values() if (batch := self._batch(lender, now_ns)) is not None]

    def merged(self, batch: Batch, answer: Answer, *, sent_ns: int) -> None:
        """Applies the wide hub's answer to `batch`, which was sent at `sent_ns` or later."""
        lender = self._lender_of(batch)
        if lender is None or lender.under_way is None or answer.status is Status.STALE:
            self.failed(batch)
            return
        sent, lender.under_way = lender.under_way, None
        if answer.status is Status.LAPSED:
            lender.name_number += 1
            for holding in lender.holdings.values():
                holding.granted, holding.answer, holding.acked_ns, holding.reported = 0, None, None, 0
            return
        lender.generation = answer.generation
        lender.left = batch.leaving
        for holding, report, cell in zip(sent, batch.cells, answer.cells, strict=False):
            holding.granted, holding.answer, holding.acked_ns, holding.reported = (
                cell.allowance,
                cell,
                sent_ns,
                report.allowance,
            )
            if cell.allowance == 0 and holding.need == 0 and holding.maybe == holding.peak == holding.peak_before == 0:
                lender.holdings.pop(holding.wish.cell, None)

    def failed(self, batch: Batch) -> None:
        """Records that the wide hub did not answer `batch`. The hub may have merged it all the same."""
        lender = self._lender_of(batch)
        if lender is not None:
            lender.under_way = None

    def hear_totals(self, totals: Mapping[str, Totals]) -> None:
        """Stores the sums of charges and refunds of the region's nodes, by limit, to report them to the wide hub."""
        # Sums over many nodes may be larger than the largest number in a message.
        self._totals = {
            name: Totals(min(each.charged, WHOLE_MAX), min(each.refunded, WHOLE_MAX)) for name, each in totals.items()
        }

    def leave(self) -> None:
        """Begins the bridge's end: all further rounds give loans back, and borrow nothing."""
        self.leaving = True
        for holding in self._holdings():
            holding.need = 0

    @property
    def lent(self) -> int:
        """Returns the number of keys for which nodes of the region may still hold a loan."""
        return sum(1 for holding in self._holdings() if holding.maybe > 0)

    @property
    def free(self) -> bool:
        """Returns whether no loan is left: the wide hub grants none, and no node of the region can hold one."""
        return not any(
            holding.granted or holding.reported or holding.maybe or holding.peak or holding.peak_before
            for holding in self._holdings()
        )

    def last_words(self, now_ns: int) -> list[Batch]:
        """Returns the bridge's last batches: they report the loans that nodes may still hold, and give back all others.

        The wide hub keeps the reported loans until the bridge's lease has ended.
        """
        batches = [self._batch(lender, now_ns) for lender in self._lenders.values()]
        return [batch._replace(leaving=True) for batch in batches if batch is not None]

    def _batch(self, lender: Lender, now_ns: int) -> Batch | None:
        if lender.under_way is not None:
            return None
        holdings = list(lender.holdings.values())
        if not holdings and not self._tells_totals(lender):
            return None
        if len(holdings) > CELLS_MAX:
            lender.first %= len(holdings)
            holdings = (holdings[lender.first :] + holdings[: lender.first])[:CELLS_MAX]
            lender.first += CELLS_MAX
        limits: dict[LimitReport, int] = {}
        cells = tuple(self._report(holding, limits, now_ns) for holding in holdings)
        lender.under_way = tuple(holdings)
        lender.sequence += 1
        return Batch(
            node=lender.node,
            account=self._account,
            shard=lender.shard,
            sequence=lender.sequence,
            generation=lender.generation,
            interval_us=self._interval_ns // MICROSECOND_NS,
            lease_us=int((self._loan_ns + lender.hold_ns) * (1 + 2 * DRIFT)) // MICROSECOND_NS,
            leaving=False,
            limits=(*limits, *self._lifetime(lender)),
            cells=cells,
        )

    def _report(self, holding: Holding, limits: dict[LimitReport, int], now_ns: int) -> CellReport:
        # Never below what nodes of the region may hold: the wide hub grants the difference to another region.
        allowance = max(holding.most(now_ns), min(holding.granted, holding.fair()))
        holding.granted = min(holding.granted, allowance)
        limit = LimitReport(
            holding.wish.limit, SLIDING_LOG, HELD_US, holding.movable, holding.movable, 0, 0, 0, variant=VARIANT
        )
        return CellReport(
            limit=limits.setdefault(limit, len(limits)),
            key=holding.wish.cell,
            epoch=0,
            current=0,
            previous=0,
            allowance=allowance,
            base=0,
            overdraft=0,
            need_milli=holding.need * 1000,
            ask=0,
            asked=min(1, holding.need),
            demand_milli=0,
            window_demand=0,
            reset_us=0,
        )

    def _lifetime(self, lender: Lender) -> Iterable[LimitReport]:
        if not self._tells_totals(lender):
            return
        for name, totals in self._totals.items():
            yield LimitReport(name, SLIDING_LOG, HELD_US, 1, 1, 0, totals.charged, totals.refunded, variant=VARIANT)

    def _tells_totals(self, lender: Lender) -> bool:
        return lender is self._teller

    def _lender_for(self, wish: Wish, lease_us: int) -> Lender | None:
        """Returns the lender (a name at the wide hub) that borrows for the key in `wish`; None if it cannot get a loan.

        That is so if the key is too long, or if the wide hub would have to keep the loan for too long.
        """
        if len(wish.cell.encode(errors="replace")) > KEY_BYTES_MAX:
            return None
        keeps_s = (wish.fades_us + LEASES * lease_us) / MILLION + 2 * CLOCKS_APART_NS / SECOND_NS
        hold_s = self._hold_min_s
        # A lease belongs to a node name, so each doubling of the time has a name: a loan of a limit per minute is not
        # held for a day.
        while hold_s < keeps_s:
            hold_s *= 2
        if hold_s > HOLD_MAX_S:
            return None
        hashed = blake2b(wish.cell.encode(errors="replace"), digest_size=8).digest()
        return self._lender(int.from_bytes(hashed, "big") % self._wide_shards, hold_s)

    def _lender(self, shard: int, hold_s: int) -> Lender:
        known = self._lenders.get((shard, hold_s))
        if known is None:
            known = Lender(f"{self._name}-{hold_s}-{shard}", shard, hold_s * SECOND_NS)
            self._lenders[shard, hold_s] = known
        return known

    def _lender_of(self, batch: Batch) -> Lender | None:
        lenders = self._lenders.values()
        return next((each for each in lenders if (each.node, each.sequence) == (batch.node, batch.sequence)), None)

    def _holdings(self) -> Iterable[Holding]:
        return (holding for lender in self._lenders.values() for holding in lender.holdings.values())
