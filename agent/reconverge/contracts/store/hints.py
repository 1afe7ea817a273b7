"""Listens for a hub's hints that contracts have changed, so that a node need not read the hub in every interval."""

# Theory of operation.
#
# The problem. A change arrives within an interval because each node reads the hub's index in each interval. While no
# contract changes for days, all these reads are for nothing.
#
# A hub with `ContractHints` pushes a hint when the index may have changed. A node reads the index then, and otherwise
# once in PERIOD intervals. No decision depends on a hint, and a hint contains no data: it only makes a node read the
# index. A lost hint delays the change by a period, and after it the node reads in every interval until the next hint:
#
#     the node listens, and hints come             reads once in PERIOD intervals, or PERIOD_S
#     a read finds a change without a hint         reads once in an interval, and connects anew
#     there is no connection, or it was lost       reads at once, and then once in an interval
#     too many hints come in a second              reads at once, and then once in an interval; closes the connection,
#                                                  and listens again after FLOODED_S
#
# So a client that floods the channel makes nodes read the index at most once in GAP_S, and makes them receive HEARD_MAX
# messages in FLOODED_S. Nodes spread their reads over a tenth of an interval, since all of them receive a hint at the
# same moment.
#
# Listening has a thread, a loop and a connection of its own. The thread of the exchanges sleeps on a lock between them,
# so its loop does not run all the time; a loop that always runs would cost an idle agent more than these reads.

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from random import Random
from typing import Any, Final

from reconverge.clock import SECOND_NS, Clock
from reconverge.errors import HubUnavailable
from reconverge.hub.port import ContractHints, Hub, IndexHints
from reconverge.runtime.event_loop import ThreadEventLoop
from reconverge.runtime.log_throttle import LoggedOnce
from reconverge.runtime.threads import Latch, start_thread

logger = logging.getLogger("reconverge")

PERIOD: Final = 10
"""The number of intervals after which a node that listens reads the index without a hint."""
PERIOD_S: Final = 10.0
"""The longest time between two reads of the index, in seconds, unless the interval is longer."""
GAP_S: Final = 0.02
"""The least seconds between two reads of the index because of hints."""
HEARD_MAX: Final = 200
"""The most hints that are read in a second: more than writers send; to read them takes half a percent of a core."""
FLOODED_S: Final = 5.0
"""The seconds for which a node does not listen after more than HEARD_MAX hints in a second."""
SPREAD: Final = 0.1
"""The fraction of an interval over which nodes spread their reads of the index after the same hint."""
AGAIN_S: Final = (0.1, 30.0)
"""The seconds to wait before connecting again: after the first failure, and the longest wait."""
FORBIDDEN_S: Final = 600.0
"""The seconds to wait before connecting again if the hub does not permit to listen."""
RENEWED_S: Final = 60.0
"""The least seconds between two new connections that are made because a hint was lost."""
END_POLL_S: Final = 0.002
FORBIDDEN: Final = ("permission", "denied")


class HintListener:
    """Listens for hints of changed contracts, and computes when to read the hub's index, the list of their pages.

    Args:
        clock: the reader's clock.
        interval_ns: returns the nanoseconds between two reads of the index without hints.
        wake: wakes the reader's loop so that the loop checks `due_ns`; called from the thread that listens.
        random: the source of random delays; for tests.
    """

    def __init__(
        self, clock: Clock, *, interval_ns: Callable[[], int], wake: Callable[[], None], random: Random | None = None
    ) -> None:
        self._clock = clock
        self._interval_ns = interval_ns
        self._wake = wake
        self._random = random or Random()
        self._logged = LoggedOnce()
        self.heard = self.lost = self.floods = 0
        self._second_ns: int | None = None
        """The beginning of the second in which hints are being counted, in nanoseconds; None before the first hint."""
        self._in_second = 0
        self._flooded_ns: int | None = None
        self._thread: _Listening | None = None
        self._trusted = True
        """Whether hints can be relied on: none was found to be lost since the last one that came."""
        self._hinted_ns: int | None = None
        """The moment to read the index because of a hint, or of the end of hints, in nanoseconds; None if there is no
        cause."""
        self._listened_ns: int | None = None
        """The moment at which the listener connected, in nanoseconds; None if it is not connected."""
        self._renewed_ns: int | None = None

    @property
    def listening(self) -> bool:
        """Returns whether the listener is connected and receives hints."""
        return self._listened_ns is not None

    def counted(self) -> dict[str, Any]:
        """Returns the counters of hints, under the names that they have in `ContractsStats`."""
        return {"hinted": self.heard, "hints_lost": self.lost, "hint_floods": self.floods}

    # ------------------------------------------------------------ in the reader's loop

    def listen(self, hub: Hub) -> None:
        """Starts the thread that listens for hints, unless it runs already or the hub has no hints."""
        thread = self._thread
        if (thread is not None and thread.alive) or not isinstance(hub, ContractHints):
            return
        hints = hub.hints()
        if hints is None:
            return
        self._listened_ns = None
        self._thread = _Listening(self, hints)
        try:
            self._thread.start()
        except RuntimeError as error:  # no thread can be started: the reader looks once in an interval
            self._thread = None
            if self._logged.is_new("thread"):
                logger.warning(
                    "reconverge: no thread can listen for hints of contracts; this node looks for changes once in an "
                    "interval: %s",
                    error,
                )

    def due_ns(self, next_ns: int, *, looked_ns: int) -> int:
        """Returns the moment to read the hub's index, in nanoseconds of the clock: `next_ns`, or earlier after a hint.

        `looked_ns` is when the index was last read.
        """
        hinted_ns = self._hinted_ns
        if hinted_ns is None:
            return next_ns
        return min(next_ns, max(hinted_ns, looked_ns + round(GAP_S * SECOND_NS)))

    def period_ns(self, interval_ns: int) -> int:
        """Returns the nanoseconds between two reads of the index without a hint: above `interval_ns` if hints work."""
        if not self.listening or not self._trusted:
            return interval_ns
        return max(interval_ns, min(PERIOD * interval_ns, round(PERIOD_S * SECOND_NS)))

    def take(self) -> bool:
        """Returns whether a hint, or the end of hints, has caused the present read of the index; clears that cause."""
        hinted, self._hinted_ns = self._hinted_ns is not None, None
        return hinted

    def found(self, *, new: bool, hinted: bool, looked_ns: int) -> None:
        """Processes the result of a read of the index: a change found without a hint shows that a hint was lost.

        `new`: whether a change was found; `hinted`: the result of `take`; `looked_ns`: when the index was read before.
        """
        since_ns = self._listened_ns
        if not new or hinted or self._hinted_ns is not None or since_ns is None or since_ns >= looked_ns:
            return
        self.lost += 1
        self._trusted = False
        if self._logged.is_new("lost"):
            logger.warning(
                "reconverge: contracts have changed, but no hint came, which is the hub's message about a change; until"
                " hints come again, this node looks for changes once in an interval. Writers need the right to PUBLISH"
                " (see docs/operate/redis.md)"
            )
        now_ns = self._clock.monotonic_ns()
        if self._renewed_ns is None or now_ns - self._renewed_ns >= RENEWED_S * SECOND_NS:
            self._renewed_ns = now_ns
            self._end()

    async def stop(self, timeout_s: float) -> None:
        """Stops listening, and waits at most `timeout_s` seconds until the connection is closed."""
        thread = self._thread
        self._end()
        for _ in range(round(timeout_s / END_POLL_S)):
            if thread is None or not thread.alive:
                return
            await asyncio.sleep(END_POLL_S)

    def _end(self) -> None:
        thread, self._thread, self._listened_ns = self._thread, None, None
        if thread is not None:
            thread.stop()

    # ------------------------------------------------------------ in the thread that listens

    def hear(self, thread: _Listening, *, first: bool) -> bool:
        """Processes a hint that contracts may have changed; if `first`, there is no hint, but listening has just begun.

        Returns whether to go on listening: False if too many hints have come within a second.
        """
        if thread is not self._thread:
            return True
        now_ns = self._clock.monotonic_ns()
        self._logged.forget("away")
        if first:
            self._listened_ns = self._hinted_ns = now_ns
            self._wake()
            return True
        self.heard += 1
        self._trusted = True
        self._logged.forget("lost")
        if self._is_flooded(now_ns):
            self._flooded(now_ns)
            return False
        if self._hinted_ns is None:
            self._hinted_ns = now_ns + round(self._random.uniform(0.0, SPREAD) * self._interval_ns())
            self._wake()
        return True

    def _is_flooded(self, now_ns: int) -> bool:
        """Counts a hint. Returns whether more than HEARD_MAX have come in the present second."""
        if self._second_ns is None or now_ns - self._second_ns >= SECOND_NS:
            self._second_ns, self._in_second = now_ns, 0
        self._in_second += 1
        return self._in_second > HEARD_MAX

    def _flooded(self, now_ns: int) -> None:
        """Counts and logs a flood of hints. From now on, the node reads the index of the contracts in every interval.

        The first read is at once.
        """
        self.floods += 1
        if self._flooded_ns is None or now_ns - self._flooded_ns >= RENEWED_S * SECOND_NS:
            logger.warning(
                "reconverge: more than %d hints of changed contracts have come within a second; they are dropped for"
                " %.0f s, and this node looks for changes once in an interval. Find the client that floods the channel"
                " (see docs/operate/redis.md)",
                HEARD_MAX,
                FLOODED_S,
            )
        self._flooded_ns = self._hinted_ns = now_ns
        self._listened_ns = self._second_ns = None
        self._wake()

    def miss(self, thread: _Listening, error: HubUnavailable) -> None:
        """Logs that listening has failed with `error`; from now on the node reads the hub's index in every interval."""
        if thread is not self._thread:
            return
        was_listening, self._listened_ns = self.listening, None
        forbidden = error.kind in FORBIDDEN
        if self._logged.is_new("forbidden" if forbidden else "away"):
            why = "the hub does not permit it (see docs/operate/redis.md)" if forbidden else str(error)
            logger.log(
                logging.WARNING if forbidden else logging.INFO,
                "reconverge: hints of changed contracts cannot be received: %s; this node looks for changes once in an"
                " interval",
                why,
            )
        if was_listening:
            self._hinted_ns = self._clock.monotonic_ns()
            self._wake()


class _Listening:
    """A thread that listens for hints, in the process that has started it."""

    def __init__(self, listener: HintListener, hints: IndexHints) -> None:
        self._listener = listener
        self._hints = hints
        self._pid = os.getpid()
        self._stopping = False
        self._ended = Latch()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Returns whether the thread runs or is about to; False in a fork, which has no threads of its parent."""
        return self._pid == os.getpid() and not self._ended.open

    def start(self) -> None:
        """Starts the thread. Raises RuntimeError if none can be started."""
        start_thread(self._run, name="reconverge-hints")

    def stop(self) -> None:
        """Makes the thread end, without waiting for its end."""
        self._stopping = True
        loop, task = self._loop, self._task
        if self._pid == os.getpid() and loop is not None and task is not None:
            with contextlib.suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(task.cancel)

    def _run(self) -> None:
        loop = ThreadEventLoop()
        try:
            self._task = loop.create_task(self._listen(), name="reconverge-hints")
            self._loop = loop
            if self._stopping:
                self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                loop.run_until_complete(self._task)
            loop.run_until_complete(loop.shutdown_asyncgens())
        except Exception:
            logger.exception(
                "reconverge: listening for hints of changed contracts failed; this node looks for changes once in an "
                "interval"
            )
        finally:
            loop.close()
            self._ended.set()

    async def _listen(self) -> None:
        failures = 0
        while not self._stopping:
            first = True
            try:
                while True:
                    await self._hints.changed()
                    if not self._listener.hear(self, first=first):
                        break
                    first, failures = False, 0
                pause_s = FLOODED_S
            except HubUnavailable as error:
                failures += 1
                self._listener.miss(self, error)
                least_s, most_s = AGAIN_S
                pause_s = FORBIDDEN_S if error.kind in FORBIDDEN else min(most_s, least_s * 2 ** min(failures, 20))
            finally:
                await self._hints.close()
            await self._rest(pause_s)

    async def _rest(self, seconds: float) -> None:
        """Waits `seconds` before the thread connects again."""
        await asyncio.sleep(seconds)
