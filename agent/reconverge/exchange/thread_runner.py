"""Makes the exchanges on a daemon thread, beside an application of any kind."""

from __future__ import annotations

import logging
import threading
from typing import Final

from reconverge.clock import SECOND_NS, SystemClock
from reconverge.errors import EventletPatched
from reconverge.exchange.driver import ExchangeDriver
from reconverge.exchange.ownership import TAKE_OVER_POLL_S
from reconverge.runtime.event_loop import ThreadEventLoop
from reconverge.runtime.threads import EVENTLET, Latch, WakeEvent, green_threads, start_thread, thread_id

logger = logging.getLogger("reconverge")

BEGIN_NS: Final = 2 * SECOND_NS
"""The nanoseconds for which a launched thread that has not begun to run counts as alive.

A signal handler may raise between the note that a thread is launched and the launch itself. Then there is no thread,
and a later decision launches one. If the first thread was merely slow, only one of both gets to exchange."""
RESTART_MIN_S: Final = 0.1
RESTART_MAX_S: Final = 30.0
"""The longest pause in seconds before a failed exchange loop starts again; the pause doubles with each failure until
the hub answers."""


def refuse_eventlet() -> None:
    """Raises EventletPatched if eventlet has replaced Python's threads; such a thread cannot run the exchanges."""
    if green_threads() == EVENTLET:
        raise EventletPatched


class ThreadRunner:
    """Runs the exchanges on a daemon thread, with an event loop that runs only while it is needed.

    Between exchanges the thread waits on a plain lock, so that waking it takes no system call on a socket. While it
    waits for one of several shards, or has work between exchanges, its loop checks regularly whether it was woken. The
    thread begins to exchange when the former thread or task has ended. If another one has begun meanwhile, this thread
    ends silently.
    """

    def __init__(self, exchanges: ExchangeDriver) -> None:
        self._exchanges = exchanges
        self._waker = WakeEvent()
        self._stops = exchanges.stops
        self._stopping = False
        self._launched_ns: int | None = None
        self._begun = False
        self._ended = Latch()
        self._thread: threading.Thread | None = None
        self._thread_id = 0
        self.left = False

    def start(self) -> None:
        """Starts the thread. Raises RuntimeError if no thread can be started, and EventletPatched under eventlet."""
        refuse_eventlet()
        self._launched_ns = SystemClock.monotonic_ns()
        try:
            self._thread = start_thread(self.run, name="reconverge")
        except RuntimeError:
            self._launched_ns = None
            raise

    @property
    def alive(self) -> bool:
        if self._begun:
            return not self._ended.open
        launched_ns = self._launched_ns
        return launched_ns is not None and SystemClock.monotonic_ns() - launched_ns < BEGIN_NS

    @property
    def listening(self) -> bool:
        return self.alive and not self._stopping

    @property
    def end_is_noticed(self) -> bool:
        """Returns True: when the thread ends, even by an error, `run` notifies the driver."""
        return True

    def wake(self) -> None:
        self._exchanges.wake()
        self._waker.wake()

    def request_stop(self) -> None:
        self._stopping = True
        self.wake()

    def join(self, timeout_s: float) -> None:
        if not self.alive or self._thread_id == thread_id():
            return
        self._ended.wait(timeout_s)
        if self._thread is not None:
            self._thread.join(timeout_s)

    def run(self) -> None:
        """Makes the exchanges until a stop is requested.

        If no thread can be started, a caller runs this in its own thread.
        """
        self._thread_id = thread_id()
        self._begun = True
        try:
            self._exchange_again_and_again()
        except BaseException:
            logger.exception("reconverge: the thread that exchanges ended; a later decision starts another one")
        finally:
            self._ended.set()
            if self._exchanges.owner is self and not self.left:
                self._exchanges.runner_is_gone()

    def _exchange_again_and_again(self) -> None:
        exchanges = self._exchanges
        while not exchanges.claim(self):
            owner = exchanges.owner
            if owner is not None and owner.listening:
                return
            self._waker.wait(TAKE_OVER_POLL_S)
        if exchanges.stops != self._stops and not self._stopping:
            return  # the agent was stopped before this thread had begun, and did not know of it
        pause_s, answered = RESTART_MIN_S, exchanges.answered
        while True:
            try:
                self._exchange_until_stopped()
            except Exception as error:  # noqa: BLE001  # nothing here should fail; if it does, it must not be the end
                exchanges.note_restart(error)
            else:
                return
            if self._stopping:
                return
            pause_s = RESTART_MIN_S if exchanges.answered != answered else min(2 * pause_s, RESTART_MAX_S)
            answered = exchanges.answered
            exchanges.pause(pause_s)
            self._wait_for_stop(pause_s)

    def _wait_for_stop(self, pause_s: float) -> None:
        until_ns = SystemClock.monotonic_ns() + round(pause_s * SECOND_NS)
        while not self._stopping and (left_ns := until_ns - SystemClock.monotonic_ns()) > 0:
            self._waker.wait(left_ns / SECOND_NS)

    def _exchange_until_stopped(self) -> None:
        exchanges, waker = self._exchanges, self._waker
        loop = ThreadEventLoop()
        try:
            exchanges.take_over()
            while not self._stopping:
                if exchanges.at_work:
                    loop.run_until_complete(exchanges.rest(lambda: waker.woken))
                    waker.clear()
                else:
                    waker.wait(exchanges.due_in_s())
                if not (self._stopping or exchanges.carry_out_blocking()):
                    loop.run_until_complete(exchanges.carry_out(lambda: not self._stopping))
            loop.run_until_complete(exchanges.leave())
            self.left = True
            loop.run_until_complete(exchanges.close())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()
