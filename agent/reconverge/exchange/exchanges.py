"""Makes the exchanges of a node with its hub, one by one, in an event loop or on a blocked thread; logs outages."""

# Theory of operation.
#
# An exchange takes a batch from the syncer, waits for the hub's answer, and passes the answer or the failure to the
# syncer. These steps are one generator, `_steps_of_exchange`, which yields whenever it has to wait. Two functions run
# it. `_exchange` awaits in an event loop, beside other exchanges or the application. `_exchange_blocking` is for a
# thread that has nothing else to do, and needs no event loop (`Blocking`), so it makes a third as many calls.
#
# An outage is logged once when the first shard fails, and its end once when all shards that failed have answered: the
# answers of one shard must not end the outage of another. A hub that is too busy may answer now and then; at most
# OUTAGES_LOGGED_MAX of its outages are logged in QUIET_NS. All failures are counted.

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Generator, Iterator
from typing import Final

from reconverge.clock import SECOND_NS, Clock
from reconverge.errors import HubUnavailable
from reconverge.exchange.answer_stats import AnswerStats
from reconverge.exchange.ownership import Ownership
from reconverge.exchange.syncer import Syncer
from reconverge.hub.checking.answers import check_answer
from reconverge.hub.port import Blocking, Hub
from reconverge.hub.registry import advice_about
from reconverge.hub.report import Answer, Batch
from reconverge.kernel import TURN_NS, Kernel, first_odd_cell
from reconverge.policies import ADMIT
from reconverge.runtime.log_throttle import LoggedOnce, LogThrottle
from reconverge.runtime.threads import WakeEvent

logger = logging.getLogger("reconverge")

OUTAGES_LOGGED_MAX: Final = 5
QUIET_NS: Final = 60 * SECOND_NS
"""The period, in nanoseconds, within which at most OUTAGES_LOGGED_MAX outages of a hub are logged."""
TURN_S: Final = TURN_NS / SECOND_NS
LOOKS_S: Final = (0.0, 0.0, 0.0, 0.0, 0.0005, 0.001, 0.002)
"""The pauses in seconds, one after the other, before the next batch. In them waiting requests read the last answer: the
first pauses let the event loop run requests of its own, the others leave time to requests in other threads. All are
short beside the time that a request may wait.

That `requests.without_granted` leaves their grants out of the next batch is not enough. With the pauses, 180 of 180 new
keys that were asked about on four running agents at once admitted their quota; without, 153 of 180
(`bench.exact_windows` with `--nodes 4 --policies strict --within 0.5`, three runs each in turn)."""


class Exchanges(Ownership):
    """Makes the exchanges of one node with one hub, one at a time with each shard, and keeps statistics of them."""

    def __init__(
        self, syncers: list[Syncer], *, hub: Hub | None, clock: Clock, timeout_s: float, hub_name: str
    ) -> None:
        super().__init__()
        self._syncers = syncers
        self._clock = clock
        self._timeout_s = timeout_s
        self._hub_name = hub_name
        self._hub = hub
        """The hub; None for a node that is alone, which exchanges nothing."""
        self._blocking: Blocking | None = hub if len(syncers) == 1 and isinstance(hub, Blocking) else None
        """The hub if a thread can exchange with it without an event loop, else None."""
        self._pauses = WakeEvent()
        """Serves to pause a thread that has no event loop; nothing wakes it."""
        self._in_use = False
        """Whether the hub may have open connections or running tasks, so that `close` has to close it."""
        self.watch = AnswerStats()
        """Statistics of the hub's answers, which the agent's statistics and hooks read."""
        self.bugs = 0
        """The number of unexpected exceptions that have ended an exchange or another step of the driver."""
        self.bugs_in_a_row = 0
        """The number of unexpected exceptions since the hub last answered an exchange."""
        self.last_bug = ""
        self.answered = 0
        """The number of exchanges that the hub has answered."""
        self.troubles: dict[Syncer, HubUnavailable] = {}
        """The failure of each syncer's last exchange; a syncer whose last exchange was answered has no entry."""
        self._complained = False
        self._log = LogThrottle(OUTAGES_LOGGED_MAX, within_ns=QUIET_NS)
        self._logged = LoggedOnce()

    def _hub_in_use(self) -> Hub:
        assert self._hub is not None
        self._in_use = True
        return self._hub

    async def _exchange(self, syncer: Syncer) -> bool:
        """Makes one exchange in the event loop; returns False if it failed or the node starts over again and again."""
        steps = self._steps_of_exchange(syncer)
        try:
            step = next(steps)
            while True:
                if not isinstance(step, Batch):
                    await asyncio.sleep(step)
                    step = next(steps)
                    continue
                try:
                    # In Python 3.11 `wait_for` makes a task of its own, which takes three more turns of the loop.
                    async with asyncio.timeout(self._timeout_s):
                        with self._turns_noted(syncer):
                            answer = await self._hub_in_use().exchange(step)
                except BaseException as error:  # noqa: BLE001  # the steps tell cancellation from failure
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            return bool(end.value)

    def _exchange_blocking(self, syncer: Syncer, hub: Blocking) -> None:
        steps = self._steps_of_exchange(syncer)

        def turn() -> None:
            syncer.note_turn(self._clock.monotonic_ns())

        try:
            step = next(steps)
            while True:
                if not isinstance(step, Batch):
                    self._pauses.wait(step)
                    step = next(steps)
                    continue
                try:
                    turn()
                    answer = hub.exchange_blocking(step, turn)
                except BaseException as error:  # noqa: BLE001  # as above
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration:
            return

    def _steps_of_exchange(self, syncer: Syncer) -> Generator[float | Batch, Answer, bool]:
        """Makes one exchange of a syncer with the hub; yields each pause in seconds, and the batch to be answered.

        The caller sends back the answer, or throws what was raised in its place. Returns False if the exchange failed,
        or if answers have made the node start over several times in a row.
        """
        yield from self._pauses_for_askers(syncer)
        sent_ns = self._clock.monotonic_ns()
        batch = syncer.take(sent_ns)
        if batch is None:
            return True
        try:
            answer = yield batch
            check_answer(batch, answer, first_odd_cell)
        except HubUnavailable as error:
            self._complain(syncer, error)
            syncer.failed(error.kind, now_ns=self._clock.monotonic_ns())
        except TimeoutError:
            self._complain(syncer, HubUnavailable("timeout", f"no answer within {self._timeout_s:g} s"))
            syncer.failed("timeout", now_ns=self._clock.monotonic_ns())
        except Exception as error:
            # A hub raises HubUnavailable and nothing else, so this is its bug; the loop outlives it all the same.
            if self._logged.is_new():
                logger.exception(
                    "reconverge: the hub %s raised an error other than HubUnavailable; report this bug", self._hub_name
                )
            syncer.failed(f"bug:{type(error).__name__}", now_ns=self._clock.monotonic_ns())
        except BaseException:
            syncer.failed("cancelled", now_ns=self._clock.monotonic_ns())
            raise
        else:
            self._note_recovery(syncer)
            self.answered += 1
            self.bugs_in_a_row = 0
            now_ns = self._clock.monotonic_ns()
            try:
                syncer.merged(batch, answer, sent_ns=sent_ns, now_ns=now_ns)
            except Exception as error:
                # A bug of this package that no check has caught. The driver sends the batch again with the next
                # exchange.
                syncer.failed(f"bug:{type(error).__name__}", now_ns=now_ns)
                raise
            self._look_at(batch, answer, seconds=(now_ns - sent_ns) / SECOND_NS)
            return not (syncer.failing or syncer.begins_anew_again)
        return False

    @contextlib.contextmanager
    def _turns_noted(self, syncer: Syncer) -> Iterator[None]:
        """Returns a context in which the event loop reports to `syncer` every TURN_S seconds that the loop runs.

        So the syncer does not take a pause of this loop for a delay of the hub.
        """
        loop = asyncio.get_running_loop()
        turn: asyncio.TimerHandle

        def note() -> None:
            nonlocal turn
            syncer.note_turn(self._clock.monotonic_ns())
            turn = loop.call_later(TURN_S, note)

        syncer.note_turn(self._clock.monotonic_ns())
        turn = loop.call_later(TURN_S, note)
        try:
            yield
        finally:
            turn.cancel()

    def _pauses_for_askers(self, syncer: Syncer) -> Iterator[float]:
        """Yields the pauses in seconds, a few milliseconds in all, in which waiting requests read the last answer.

        The next batch then gives back to the hub the grants that these requests have not used.
        """
        for pause_s in LOOKS_S:
            if not syncer.unread:
                return
            yield pause_s
        syncer.await_no_look()

    def _look_at(self, batch: Batch, answer: Answer, *, seconds: float) -> None:
        try:
            self.watch.answered(batch, answer, seconds=seconds)
            self.watch.look_at_keys(self._syncers[0].kernel)
        except Exception as error:  # noqa: BLE001  # a failure of statistics must not fail the exchange
            self._note_bug(error)

    def _complain(self, syncer: Syncer, error: HubUnavailable) -> None:
        """Logs an outage of the hub once, however many exchanges fail in it."""
        self.troubles[syncer] = error
        now_ns = self._clock.monotonic_ns()
        if self._complained or not self._log.allows(now_ns):
            return
        self._complained = True
        self._log.note(now_ns)
        logger.log(
            logging.ERROR if error.misconfigured else logging.WARNING,
            "reconverge: the hub %s is unavailable%s (%s)%s; %s; deciding from memory until it answers%s",
            self._hub_name,
            f" for keys of shard {self._syncers.index(syncer)}" if len(self._syncers) > 1 else "",
            str(error).rstrip("."),
            ", probably because of a wrong setting, which will not pass by itself" if error.misconfigured else "",
            advice_about(self._hub_name),
            self._admitting(syncer.kernel),
            extra={"hub": self._hub_name, "kind": error.kind},
        )

    @staticmethod
    def _admitting(kernel: Kernel) -> str:
        names = [name for name, table in kernel.tables.items() if table.policy.when_hub_is_away == ADMIT]
        return f"; each node admits up to the whole quota of {', '.join(map(repr, names))}" if names else ""

    def _note_recovery(self, syncer: Syncer) -> None:
        self.troubles.pop(syncer, None)
        if self._complained and not self.troubles:
            logger.warning("reconverge: the hub %s answers again", self._hub_name, extra={"hub": self._hub_name})
            self._complained = False

    def _count_bug(self, error: Exception) -> None:
        self.bugs_in_a_row += 1
        self.last_bug = type(error).__name__

    def _note_bug(self, error: Exception) -> None:
        self._count_bug(error)
        self.bugs += 1
        if self.bugs == 1:
            logger.error("reconverge: an exchange failed with an unexpected error; report this bug", exc_info=error)
