"""Reports to the hub what a meter has counted, on a thread of its own, until the process ends."""

# Theory of operation.
#
# Usage has a thread and a connection of its own, beside the agent's. Exchanges decide about requests, and have to be
# quick; usage may be ten seconds old, and its batches are long. A failure of the one must not delay the other.
#
# The thread gathers the new counts, sends each shard one batch after the other until nothing is unreported, and sleeps.
# In each round every shard gets at least one batch, even an empty one, so that a shard that has lost its data gets the
# reports again at once. A batch that fails is not repeated; its rows are part of the next round. At the end, the thread
# first reports all rows, and then closes the account. If the first step fails, the account stays open, so that nothing
# is reported twice.
#
# One thread reports at a time. `stop` does not wait for ever, so a thread may still be reporting when `start` is called
# again: with two of them, each would take the other's batches for those of a copy of the process, and report again the
# counts that the hub has. So `start` lets a thread that is still there go on, and a thread ends only in a section that
# excludes `start` (`_is_over`).
#
# Before each report the thread reads the orders to erase identities (`erasing.py`), so that it reports no erased one.

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from reconverge.arguments import checked_class, with_advice
from reconverge.clock import Clock, Seconds, SystemClock
from reconverge.errors import HubUnavailable
from reconverge.hub.fallback.opening import open_hubs
from reconverge.hub.port import Hub, UsageHub, Working
from reconverge.hub.registry import Credentials, HubSettings
from reconverge.hub.usage import Counts, Period, Retention, UsageKey
from reconverge.runtime import process
from reconverge.runtime.event_loop import ThreadEventLoop
from reconverge.runtime.threads import Latch, Section, WakeEvent, start_thread, thread_id
from reconverge.settings import checked_seconds
from reconverge.usage.driver import UsageDriver
from reconverge.usage.erasing import UsageErasing
from reconverge.usage.meter import Meter
from reconverge.usage.periods import checked_kept
from reconverge.usage.reading import checked_period

logger = logging.getLogger("reconverge")

INTERVAL_S: Final = 10.0
"""The seconds between two reports. A killed process loses the usage of this time at most, and live totals lag by it."""
INTERVAL_MIN_S: Final = 0.1
INTERVAL_MAX_S: Final = 3600.0
TIMEOUT_S: Final = 2.0
TIMEOUT_MIN_S: Final = 0.001
STOP_S: Final = 5.0
LOOK_S: Final = 0.1
"""The most seconds until a thread notices `stop`, while the hub has work to do in the thread's event loop."""


@dataclass(frozen=True, slots=True)
class UsageStats:
    """The state of one node's usage reports."""

    at_hub: bool
    """Whether a hub adds up the usage of all nodes; if False, usage is counted on this node only."""
    answered: int
    """The number of batches that the hub has answered."""
    failures: dict[str, int]
    """The number of failed reports, by class of failure."""
    unreported: int
    """The number of keys with counts that are not reported yet."""
    rows: int
    """The number of rows (counts of one identity, limit and route in one period) that the node keeps."""
    overflowed: int
    """The number of times that this node counted something under "(others)" for lack of room."""
    folded: int
    """The number of rows that the hub has counted under "(others)"."""
    losses: int
    """The number of times that the hub had lost this node's reports; the node sent the rows that it still kept
    again."""
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    """The number of rows that were never reported and are lost, by kind of period."""
    from_many_addresses: dict[str, int] = field(default_factory=dict[str, int])
    """Identities that have come to this node from unusually many addresses in this hour, with an estimate of the
    number; see `reconverge.usage.from_many_addresses` for the whole fleet."""
    unwatched: int = 0
    """The number of times that an address was left out, for lack of room on this node or at the hub."""
    misdated: dict[str, int] = field(default_factory=dict[str, int])
    """The number of rows, by kind of period, that the hub has refused because this machine's clock is wrong. They are
    counted in the hub's present period."""


class _ReportThread:
    """One thread that reports usage: the event that wakes it, its id, and whether it has ended."""

    __slots__ = ("ended", "thread_id", "waker")

    def __init__(self) -> None:
        self.waker = WakeEvent()
        self.ended = Latch()
        self.thread_id = 0


class UsageReporter:
    """Reports to the hub what a meter has counted, each `interval` seconds and once more when the process ends.

    Args:
        meter: the meter whose counts are reported.
        hub: a URL, or a hub object that no agent uses; a `MemoryHub` may be shared.
        namespace: the namespace of the fleet.
        interval: seconds between two reports.
        timeout: seconds that the hub may take for one batch.
        kept: how many periods the hub keeps.
        node: the name of this node where the load of the fleet is shown; by default host and process.
        key_secret: the key secret of the fleet's agents, if they have one, so that the node understands orders to erase
            an identity; by default `RECONVERGE_KEY_SECRET`, if set. Identities are not hashed with it.
        credentials: as for `Agent`.
        sigterm: whether SIGTERM ends the main thread as `sys.exit` would, so that the last report is sent; as for
            `Agent`.
        clock: a clock for tests; by default the machine's.

    Raises:
        InvalidSetting: a setting is invalid.
        UnknownHub, MissingExtra: as `open_hub` raises them.
    """

    @with_advice()
    def __init__(
        self,
        meter: Meter,
        hub: str | Hub,
        *,
        namespace: str = "default",
        interval: Seconds = INTERVAL_S,
        timeout: Seconds = TIMEOUT_S,
        kept: Retention | None = None,
        node: str | None = None,
        key_secret: str | bytes | None = None,
        credentials: Credentials | None = None,
        sigterm: bool = True,
        clock: Clock | None = None,
    ) -> None:
        interval_s = checked_seconds("interval", interval, INTERVAL_MIN_S, INTERVAL_MAX_S)
        timeout_s = checked_seconds("timeout", timeout, TIMEOUT_MIN_S, INTERVAL_MAX_S)
        self.meter = checked_class("meter", meter, Meter, "write UsageReporter(meter, hub)")
        meter.unstarted = True
        meter.reported_in = namespace
        self._clock = clock or SystemClock()
        self._interval_s = interval_s
        self._sigterm = sigterm
        opened = open_hubs(hub, None, HubSettings(namespace, timeout_s, credentials), self._clock)
        found: object = opened.hub
        self._hub: UsageHub | None = found if isinstance(found, UsageHub) else None
        ledger = None if self._hub is None else self._hub.usage
        self._orders = UsageErasing(opened.hub, self._clock, namespace=namespace, key_secret=key_secret)
        self._driver = UsageDriver(
            meter,
            ledger,
            clock=self._clock,
            timeout_s=timeout_s,
            hub_name=opened.name,
            kept=checked_kept(kept),
            node=node,
            orders=self._orders,
        )
        self._nothing_runs()
        process.register(self, sigterm=False)  # a forked child must also drop what the meter counted before `start`

    def _nothing_runs(self) -> None:
        self._section = Section()
        """The critical section in which a thread is started or ended."""
        self._wanted = False
        self._thread: _ReportThread | None = None

    @property
    def running(self) -> bool:
        """Returns whether the reporter's thread is running and was not asked to stop."""
        return self._wanted and self._thread is not None and not self._thread.ended.open

    def start(self) -> None:
        """Starts the thread that reports, unless it runs. Does not wait.

        A thread that `stop` has asked to end, and that has not ended yet, continues instead. Raises RuntimeError if no
        thread can be started.
        """
        if self.running:
            return
        self.meter.unstarted = False
        process.register(self, sigterm=self._sigterm)
        self._driver.tell_where_it_is_counted()
        self._section.run(self._begin)

    def _begin(self) -> None:
        if self._thread is None or self._thread.ended.open:
            thread = _ReportThread()
            self._wanted = True  # before the thread begins, which looks at it
            try:
                start_thread(partial(self._run, thread), name="reconverge-usage")
            except RuntimeError:
                self._wanted = False
                raise
            self._thread = thread
        self._wanted = True

    def stop(self, timeout: Seconds = STOP_S) -> None:
        """Reports all counts to the hub, and stops; waits for at most `timeout` seconds.

        A report that takes longer goes on in the background, as long as the process lives. Raises InvalidSetting.
        """
        timeout_s = checked_seconds("timeout", timeout, 0.0, INTERVAL_MAX_S)
        self._wanted = False
        thread = self._thread
        if thread is None or thread.ended.open or thread.thread_id == thread_id():
            return
        thread.waker.wake()
        ended = thread.ended.wait(timeout_s)
        unreported = self._driver.reports.unreported
        if unreported or not ended:
            beside = "" if ended else "; it is still being reported"
            logger.error(
                "reconverge: usage of %d keys was not reported to the hub before stop() returned%s", unreported, beside
            )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    def forget(self, is_named: Callable[[str], bool]) -> None:
        """Forgets the counts of the identities that `is_named` accepts, at the next report; for `Agent.on_forget`.

        Not needed with a hub, from which the reporter reads the orders to erase an identity.
        """
        self._orders.also(is_named)

    def totals(self, period: Period) -> dict[UsageKey, Counts]:
        """Returns this node's own counts in a period, as of its last report; see `reconverge.usage.totals`."""
        return self._driver.reports.totals(checked_period(period))

    def stats(self) -> UsageStats:
        """Returns a snapshot of the reporter's state."""
        driver, reports = self._driver, self._driver.reports
        return UsageStats(
            at_hub=driver.ledger is not None,
            answered=driver.answered,
            failures=dict(driver.failures),
            unreported=reports.unreported,
            rows=reports.rows,
            overflowed=self.meter.overflowed + reports.overflowed,
            folded=reports.folded,
            losses=reports.losses,
            dropped=dict(reports.dropped),
            misdated=dict(reports.misdated),
            from_many_addresses=self.meter.addresses.unusual(),
            unwatched=driver.addresses.unwatched,
        )

    def start_over_after_fork(self) -> None:
        """Forgets all counts, which the parent reports, and starts a thread if one ran. Called in a forked child."""
        running = self.running
        self._nothing_runs()
        self.meter.start_over()
        self._driver.start_over()
        if running:
            self.start()

    def stop_for_good(self, timeout_s: float) -> None:
        """Sends the last report within `timeout_s` seconds and stops, because the process ends."""
        self.meter._ends()  # noqa: SLF001  # of the same package
        self.stop(timeout_s)

    def _run(self, thread: _ReportThread) -> None:
        """Reports until `stop`, then sends the end of the account; runs as the thread's main function."""
        thread.thread_id = thread_id()
        loop = ThreadEventLoop()
        try:
            over = False
            while not over:
                self._report_each_interval(loop, thread.waker)
                self._carry_out(loop, self._driver.leave)
                self._carry_out(loop, self._close)
                over = self._section.run(partial(self._is_over, thread))
        finally:
            thread.ended.set()
            loop.close()

    def _report_each_interval(self, loop: ThreadEventLoop, waker: WakeEvent) -> None:
        while self._wanted:
            if self._hub_at_work:
                self._carry_out(loop, self._rest)
            else:
                waker.wait(self._interval_s)
            if self._wanted:
                self._carry_out(loop, self._driver.report)

    def _is_over(self, thread: _ReportThread) -> bool:
        """Returns whether the thread must end; if so, records that it has, so that the next `start` makes another one.

        The caller must be in the critical section `_section`.
        """
        if self._wanted:
            return False
        thread.ended.set()
        return True

    @property
    def _hub_at_work(self) -> bool:
        hub: object = self._hub
        return isinstance(hub, Working) and hub.at_work

    async def _rest(self) -> None:
        """Runs the event loop for one interval, as the hub has tasks in it. Returns soon after a call of `stop`."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._interval_s
        while self._wanted and (left_s := until_s - loop.time()) > 0:  # noqa: ASYNC110  # set by another thread
            await asyncio.sleep(min(LOOK_S, left_s))

    def _carry_out(self, loop: ThreadEventLoop, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Runs a coroutine, and logs any error that it raises. None is expected, but the thread must survive it."""
        try:
            loop.run_until_complete(work())
        except Exception as error:  # noqa: BLE001  # it is logged there
            self._driver.note_bug(error)

    async def _close(self) -> None:
        if self._hub is not None:
            with contextlib.suppress(HubUnavailable):
                await self._hub.close()
