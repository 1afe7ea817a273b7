"""Listens for what a hub says of changed contracts, so that a node need not look in every interval."""

# Theory of operation.
#
# The problem. To look once in an interval is what makes a change arrive within an interval, and in a fleet where no
# contract changes for days it is what nodes do all day.
#
# A hub that can (`ContractHints`) pushes a hint: the index may have changed. A node looks then, and otherwise once in
# PERIOD intervals. No decision depends on a hint, and none is believed: it says nothing but "look". One that is lost
# costs a period, and after it the node looks in every interval until a hint is heard again:
#
#     listens, and hints come                         looks once in PERIOD intervals, or PERIOD_S
#     a look finds what no hint announced              looks once in an interval, and connects anew
#     the connection is lost, or was never there      looks at once, and then once in an interval
#
#     too many hints come in a second     looks at once, and then once in an interval; listens again after FLOODED_S
#
# So a client that floods the channel has nodes look every GAP_S and no more often, and costs them HEARD_MAX messages in
# FLOODED_S: a message costs more than it says, and what comes after that is sent to no connection. Nodes spread their
# looks over a tenth of an interval, since all of them hear a hint in the same moment.
#
# Listening has a thread, a loop and a connection of its own. The thread of the exchanges sleeps on a lock between them
# and has no loop that goes on; to keep one going for this would cost an agent at rest more than the looks do.

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
"""A node that hints reach looks once in so many intervals."""
PERIOD_S: Final = 10.0
"""But no less often than that, unless its interval is longer."""
GAP_S: Final = 0.02
"""Looks that hints ask for are so far apart."""
HEARD_MAX: Final = 200
"""So many hints are read in a second: more than writers make, and than looks follow; half a percent of a core."""
FLOODED_S: Final = 5.0
"""For so long a channel is not listened to on which more come."""
SPREAD: Final = 0.1
"""Over so much of an interval the looks of all nodes are spread that hear the same hint."""
AGAIN_S: Final = (0.1, 30.0)
"""How long to wait before connecting again: at first, and at most."""
FORBIDDEN_S: Final = 600.0
"""How long if the hub forbids it."""
RENEWED_S: Final = 60.0
"""A connection is given up so often at most because a hint was lost."""
END_POLL_S: Final = 0.002
FORBIDDEN: Final = ("permission", "denied")


class HintListener:
    """Decides when a reader should look, by the hints of its hub.

    Args:
        clock: the reader's.
        interval_ns: says how often to look without hints, in nanoseconds.
        wake: has the reader's loop look at what is due; called from the thread that listens.
        random: for tests.
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
        """When the second has begun in which hints are counted just now."""
        self._in_second = 0
        self._flooded_ns: int | None = None
        self._thread: _Listening | None = None
        self._trusted = True
        """Whether no hint was lost since the last one that came."""
        self._hinted_ns: int | None = None
        """When to look, because of a hint or because there are none any more."""
        self._listened_ns: int | None = None
        """Since when hints are listened for; None if they are not."""
        self._renewed_ns: int | None = None

    @property
    def listening(self) -> bool:
        """Whether hints are listened for."""
        return self._listened_ns is not None

    def counted(self) -> dict[str, Any]:
        """Returns the counts of hints, as `ContractsStats` names them."""
        return {"hinted": self.heard, "hints_lost": self.lost, "hint_floods": self.floods}

    # ------------------------------------------------------------ in the reader's loop

    def listen(self, hub: Hub) -> None:
        """Listens for hints from now on, unless it does already or the hub has none."""
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
        except RuntimeError as error:  # no thread can be had: it is looked at once in an interval
            self._thread = None
            if self._logged.is_new("thread"):
                logger.warning("reconverge: hints of changed contracts are not listened for: %s", error)

    def due_ns(self, next_ns: int, *, looked_ns: int) -> int:
        """When to look next, if it would be at `next_ns` without hints."""
        hinted_ns = self._hinted_ns
        if hinted_ns is None:
            return next_ns
        return min(next_ns, max(hinted_ns, looked_ns + round(GAP_S * SECOND_NS)))

    def period_ns(self, interval_ns: int) -> int:
        """How long until the next look, unless a hint comes."""
        if not self.listening or not self._trusted:
            return interval_ns
        return max(interval_ns, min(PERIOD * interval_ns, round(PERIOD_S * SECOND_NS)))

    def take(self) -> bool:
        """Whether a hint asked for a look; the look that begins now answers it."""
        hinted, self._hinted_ns = self._hinted_ns is not None, None
        return hinted

    def found(self, *, new: bool, hinted: bool, looked_ns: int) -> None:
        """Notes the find of the look that began after `take`; `looked_ns` is when the one before it was."""
        since_ns = self._listened_ns
        if not new or hinted or self._hinted_ns is not None or since_ns is None or since_ns >= looked_ns:
            return
        self.lost += 1
        self._trusted = False
        if self._logged.is_new("lost"):
            logger.warning(
                "reconverge: contracts have changed and no hint came; they are looked at once in an interval until"
                " hints come again. Writers need the right to PUBLISH (see docs/operate/redis.md)"
            )
        now_ns = self._clock.monotonic_ns()
        if self._renewed_ns is None or now_ns - self._renewed_ns >= RENEWED_S * SECOND_NS:
            self._renewed_ns = now_ns
            self._end()

    async def stop(self, timeout_s: float) -> None:
        """Listen no more, and wait for so many seconds at most until the connection is closed."""
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
        """The hub has said that the index may have changed; `first`: or it is listened to from now on.

        Returns whether to go on listening; no if too many hints have come within a second.
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
        """Whether this hint is one more than a second has room for."""
        if self._second_ns is None or now_ns - self._second_ns >= SECOND_NS:
            self._second_ns, self._in_second = now_ns, 0
        self._in_second += 1
        return self._in_second > HEARD_MAX

    def _flooded(self, now_ns: int) -> None:
        """The hints of the next seconds are dropped by the hub, as the connection is left."""
        self.floods += 1
        if self._flooded_ns is None or now_ns - self._flooded_ns >= RENEWED_S * SECOND_NS:
            logger.warning(
                "reconverge: more than %d hints of changed contracts have come within a second; they are dropped for"
                " %.0f s, and contracts are looked at once in an interval. Find the client that floods the channel"
                " (see docs/operate/redis.md)",
                HEARD_MAX,
                FLOODED_S,
            )
        self._flooded_ns = self._hinted_ns = now_ns
        self._listened_ns = self._second_ns = None
        self._wake()

    def miss(self, thread: _Listening, error: HubUnavailable) -> None:
        """The hub cannot be listened to."""
        if thread is not self._thread:
            return
        was_listening, self._listened_ns = self.listening, None
        forbidden = error.kind in FORBIDDEN
        if self._logged.is_new("forbidden" if forbidden else "away"):
            why = "the hub does not permit it (see docs/operate/redis.md)" if forbidden else str(error)
            logger.log(
                logging.WARNING if forbidden else logging.INFO,
                "reconverge: hints of changed contracts are not listened for: %s; contracts are looked at once in an"
                " interval",
                why,
            )
        if was_listening:
            self._hinted_ns = self._clock.monotonic_ns()
            self._wake()


class _Listening:
    """One thread that listens, in the process that has started it."""

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
        """Whether it runs, or is about to; a fork has no thread of its parent's."""
        return self._pid == os.getpid() and not self._ended.open

    def start(self) -> None:
        """Raises RuntimeError if no thread can be had."""
        start_thread(self._run, name="reconverge-hints")

    def stop(self) -> None:
        """Ends it, without waiting for that."""
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
            logger.exception("reconverge: listening for hints failed; contracts are looked at once in an interval")
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
        """Do nothing for so long, before connecting again."""
        await asyncio.sleep(seconds)
