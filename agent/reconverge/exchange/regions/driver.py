"""Runs a region's bridge: exchanges with the region's hub and with the wide hub, the hub of all regions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from reconverge.clock import SECOND_NS, Clock
from reconverge.errors import HubUnavailable
from reconverge.exchange.regions.bridge import Bridge
from reconverge.exchange.regions.loans import CLOCKS_APART_NS, LendCall
from reconverge.hub.checking.answers import check_answer, check_lent, check_totals, check_wishes
from reconverge.hub.port import Hub, Region
from reconverge.hub.report import Answer, Batch
from reconverge.kernel import first_odd_cell
from reconverge.runtime.log_throttle import LoggedOnce

logger = logging.getLogger("reconverge")

T = TypeVar("T")
TOTALS_ROUNDS: Final = 10
"""The number of rounds of exchanges for each report of the region's total charges."""
LAST_ROUND_S: Final = 0.25
"""The longest pause in seconds between two rounds of exchanges of a bridge that is ending."""


class Side:
    """Asks one of the two hubs of a bridge, and logs when that hub ceases to answer and when it answers again."""

    def __init__(self, name: str, timeout_s: float) -> None:
        self.name = name
        self._timeout_s = timeout_s
        self._away = False
        self._logged = LoggedOnce()

    async def ask(self, question: Awaitable[T], check: Callable[[T], None]) -> T | None:
        """Awaits `question`, a call of the hub, and returns the hub's answer; None if the call fails or takes too long.

        Warns once when such failures begin, and once when they are over. `check` is called with the answer, and raises
        HubUnavailable for an answer that no hub may give.
        """
        try:
            answer = await asyncio.wait_for(question, self._timeout_s)
            check(answer)
        except HubUnavailable as error:
            self._complain(str(error).rstrip("."))
        except TimeoutError:
            self._complain(f"no answer within {self._timeout_s:g} s")
        except Exception as error:
            if self._logged.is_new():
                logger.exception(
                    "reconverge: the hub %s raised an error other than HubUnavailable; report this bug", self.name
                )
            self._complain(type(error).__name__)
        else:
            if self._away:
                logger.warning("reconverge: the hub %s answers again", self.name)
            self._away = False
            return answer
        return None

    def _complain(self, problem: str) -> None:
        if not self._away:
            logger.warning("reconverge: the hub %s is unavailable (%s)", self.name, problem)
        self._away = True


class BridgeDriver:
    """Runs a bridge, which borrows capacity at the wide hub for one region: exchanges with both hubs in rounds.

    Args:
        bridge: decides what to exchange.
        home, home_name: the hub of the bridge's region, and the name of that hub in warnings.
        wide, wide_name: the hub of all regions, and the name of that hub in warnings.
        clock: the source of time.
        interval_s: seconds between two rounds.
        timeout_s: seconds that one answer may take.
    """

    def __init__(
        self,
        bridge: Bridge,
        home: Region,
        wide: Hub,
        *,
        home_name: str,
        wide_name: str,
        clock: Clock,
        interval_s: float,
        timeout_s: float,
    ) -> None:
        self._bridge = bridge
        self._home, self._wide = home, wide
        self._home_side, self._wide_side = Side(home_name, timeout_s), Side(wide_name, timeout_s)
        self._clock = clock
        self._interval_s = interval_s
        self._rounds = 0

    async def run(self, stopping: asyncio.Event, *, patience_s: float) -> None:
        """Makes rounds of exchanges until `stopping` is set.

        Then gives back the loans that the region does not use, for up to `patience_s` seconds.
        """
        while not stopping.is_set():
            await self.go_round()
            await _pause(stopping, self._interval_s)
        self._bridge.leave()
        until_ns = self._clock.monotonic_ns() + round(patience_s * SECOND_NS) + 2 * CLOCKS_APART_NS
        while not self._bridge.free and self._clock.monotonic_ns() < until_ns:
            await self.go_round()
            await asyncio.sleep(min(self._interval_s, LAST_ROUND_S))
        for batch in self._bridge.last_words(self._clock.monotonic_ns()):
            await self._exchange(batch)

    async def go_round(self) -> None:
        """Makes one round: reads which keys of the region need a loan, borrows at the wide hub, and lends.

        Raises nothing.
        """
        shards = range(self._home.shards)
        await asyncio.gather(*(self._listen(shard) for shard in shards))
        if isinstance(self._home, Hub) and self._rounds % TOTALS_ROUNDS == 0:
            totals = await self._home_side.ask(self._home.totals(), check_totals)
            if totals is not None:
                self._bridge.hear_totals(totals)
        self._rounds += 1
        await asyncio.gather(*(self._tell(batch) for batch in self._bridge.batches(self._clock.monotonic_ns())))
        now_ns = self._clock.monotonic_ns()
        lendings = [(shard, lending) for shard in shards for lending in self._bridge.lendings(shard, now_ns)]
        await asyncio.gather(*(self._lend(shard, lending) for shard, lending in lendings))

    async def _listen(self, shard: int) -> None:
        sent_ns = self._clock.monotonic_ns()
        wishes = await self._home_side.ask(self._home.wishes(shard), check_wishes)
        if wishes is not None:
            self._bridge.hear_wishes(shard, wishes, sent_ns=sent_ns, now_ns=self._clock.monotonic_ns())

    async def _tell(self, batch: Batch) -> None:
        sent_ns = self._clock.monotonic_ns()
        answer = await self._exchange(batch)
        if answer is None:
            self._bridge.failed(batch)
        else:
            self._bridge.merged(batch, answer, sent_ns=sent_ns)

    async def _exchange(self, batch: Batch) -> Answer | None:
        return await self._wide_side.ask(
            self._wide.exchange(batch), lambda answer: check_answer(batch, answer, first_odd_cell)
        )

    async def _lend(self, shard: int, lending: LendCall) -> None:
        sent_ns = self._clock.monotonic_ns()
        lent = await self._home_side.ask(
            self._home.lend(shard, lending.lender.name, lending.sequence, lending.loans),
            lambda lent: check_lent(lending.loans, lent),
        )
        if lent is not None:
            self._bridge.hear_lent(shard, lending, lent, sent_ns=sent_ns, now_ns=self._clock.monotonic_ns())


async def _pause(stopping: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), seconds)


async def close_quietly(close: Callable[[], Awaitable[None]], timeout_s: float) -> None:
    """Awaits `close()` for at most `timeout_s` seconds, and ignores failures."""
    with contextlib.suppress(Exception):
        await asyncio.wait_for(close(), timeout_s)
