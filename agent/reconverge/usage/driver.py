"""Sends the new counts of a usage meter to the hub, in batches, and waits for the hub's answers."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from secrets import token_hex
from typing import Final

from reconverge.clock import SECOND_NS, Clock
from reconverge.errors import HubUnavailable
from reconverge.hub.port import UsageLedger
from reconverge.hub.usage import NodeLoad, Retention, UsageBatch
from reconverge.runtime.log_throttle import LoggedOnce
from reconverge.usage.address_reports import AddressReports
from reconverge.usage.erasing import UsageErasing
from reconverge.usage.meter import Meter
from reconverge.usage.reports import UsageReports

logger = logging.getLogger("reconverge")

ROUNDS_MAX: Final = 10_000
"""The most batches that one round sends to a shard; no node has enough rows to fill them."""


class UsageDriver:
    """Sends a node's usage reports to the hub and waits for the answers.

    If the hub cannot add up usage, it only collects the counts on this node.
    """

    def __init__(
        self,
        meter: Meter,
        ledger: UsageLedger | None,
        *,
        clock: Clock,
        timeout_s: float,
        hub_name: str,
        kept: Retention,
        node: str | None = None,
        orders: UsageErasing | None = None,
        new_name: Callable[[], str] = lambda: token_hex(8),
    ) -> None:
        self.ledger = ledger
        self._clock = clock
        self._timeout_s = timeout_s
        self._hub_name = hub_name
        self._node = node
        shards = 1 if ledger is None else ledger.shards
        self.reports = UsageReports(meter, shards=shards, new_name=new_name, kept=kept, alone=ledger is None)
        self._meter = meter
        self._orders = orders
        self._logged = LoggedOnce()
        self.answered = 0
        """The number of batches that the hub has answered."""
        self.failures: Counter[str] = Counter()
        """The number of failed reports, by class of failure."""
        self.addresses = AddressReports(meter, ledger, clock)
        self.start_over()

    def start_over(self) -> None:
        """Forgets all counts. Called in a forked child: the parent reports the counts from before the fork."""
        self.reports.start_over()
        if self._orders is not None:
            self._orders.begin()
        self._gathered_ns = self._clock.monotonic_ns()
        self._complained = False
        self.addresses.start_over()

    def tell_where_it_is_counted(self) -> None:
        """Logs a warning, once, if the hub cannot add up usage, so that each node's usage is counted on its own."""
        if self.ledger is None and self._logged.is_new("no ledger"):
            logger.warning(
                "reconverge: usage is counted on this node only: the hub %s does not add it up, so there are no totals"
                " of the fleet and nothing to export; name a hub on Redis, on a broker of MQTT, or embedded://",
                self._hub_name,
            )

    async def report(self) -> bool:
        """Sends all new counts to the hub. Returns whether the hub has answered all batches.

        Raises no error except for cancellation.
        """
        load = self._gather()
        erased = await self._erase()
        if self.ledger is None or not erased:
            self.addresses.turn_hour()
            return erased
        reported = [await self._report(shard, load if shard == 0 else None) for shard in range(self.ledger.shards)]
        if all(reported):
            ask = partial(asyncio.wait_for, timeout=self._timeout_s)
            reported.append(await self._answered(self.addresses.tell(ask, losses=self.reports.losses)))
        self.addresses.turn_hour()
        if all(reported) and self._complained:
            self._complained = False
            logger.warning("reconverge: usage is reported to the hub %s again", self._hub_name)
        return all(reported)

    async def leave(self) -> bool:
        """Sends all new counts, and ends the node's account (its name at the hub). Returns True if the hub has all."""
        if not await self.report() or self.ledger is None:
            return False
        for shard in range(self.ledger.shards):
            await self._say(self.reports.last_word(shard))
            if self.reports.unreported and not await self._report_last_words_again(shard):
                return False
        # All counts are reported. A shard that did not get the last batch keeps the account's rows until it drops their
        # period.
        self.reports.start_over()
        return True

    async def _report_last_words_again(self, shard: int) -> bool:
        """Sends all rows again to a shard whose answer to the account's last batch shows that it has lost its data.

        Returns whether the shard has received all counts.
        """
        if not await self._report(shard, None):
            return False
        await self._say(self.reports.last_word(shard))
        return not self.reports.unreported

    def note_bug(self, error: Exception) -> None:
        """Counts an unexpected `error`, a bug, that was raised while usage was reported; logs the first one."""
        self.failures[f"bug:{type(error).__name__}"] += 1
        if self._logged.is_new("bug"):
            logger.error(
                "reconverge: a report of usage failed unexpectedly, and the next one follows; report this bug",
                exc_info=error,
            )

    def _gather(self) -> NodeLoad:
        now_ns = self._clock.monotonic_ns()
        elapsed_s = max(now_ns - self._gathered_ns, 1) / SECOND_NS
        self._gathered_ns = now_ns
        companions = self._meter.take_companions()
        new = self.reports.gather(now_ns)
        requests = max(0, new.requests + new.refused - companions)
        node = self._node or f"{socket.gethostname()}:{os.getpid()}"
        return NodeLoad(node, requests / elapsed_s, new.cost / elapsed_s, 0)

    async def _report(self, shard: int, load: NodeLoad | None) -> bool:
        batch = self.reports.batch(shard, load=load, speak=True)
        for _ in range(ROUNDS_MAX):
            if batch is None:
                return True
            if not await self._say(batch):
                return False
            batch = self.reports.batch(shard)
        return False

    async def _erase(self) -> bool:
        """Erases the identities that the hub has orders to erase. Called before each report.

        Returns whether the hub has answered.
        """
        if self._orders is None:
            return True
        return await self._answered(asyncio.wait_for(self._orders.obey(self.ledger, self.reports), self._timeout_s))

    async def _say(self, batch: UsageBatch) -> bool:
        return await self._answered(self._record(batch))

    async def _record(self, batch: UsageBatch) -> None:
        assert self.ledger is not None
        answer = await asyncio.wait_for(self.ledger.record(batch), self._timeout_s)
        self.answered += 1
        self.reports.recorded(batch, answer, self._clock.monotonic_ns())

    async def _answered(self, asked: Awaitable[None]) -> bool:
        """Awaits a call of the hub. Returns whether the hub has answered; if not, counts and logs the failure."""
        try:
            await asked
        except HubUnavailable as error:
            self._complain(error.kind, str(error))
        except TimeoutError:
            self._complain("timeout", f"no answer within {self._timeout_s:g} s")
        else:
            return True
        return False

    def _complain(self, kind: str, problem: str) -> None:
        self.failures[kind] += 1
        if not self._complained:
            self._complained = True
            logger.warning(
                "reconverge: usage cannot be reported to the hub %s (%s); this node keeps it and reports it later",
                self._hub_name,
                problem.rstrip("."),
                extra={"kind": kind},
            )
