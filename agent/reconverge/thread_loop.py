"""Exchanging on a thread of its own, for applications of any kind."""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from reconverge.exchanges import TAKE_OVER_POLL_S, Exchanges, Runner

P = ParamSpec("P")
T = TypeVar("T")


class ThreadLoop:
    """Runs the exchanges on a daemon thread, with an event loop that runs only while it is needed.

    Between exchanges the thread waits on a plain lock, so that waking it takes no system call on a socket; while one of
    several shards has yet to answer, or there is work between exchanges, the loop looks by itself whether it was woken.
    It begins when `after`, the runner before it, is gone.
    """

    def __init__(self, exchanges: Exchanges, *, after: Runner | None = None) -> None:
        self._exchanges = exchanges
        self._after = after
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self.run, name="reconverge", daemon=True)
        self._ended = threading.Event()
        self.left = False
        """See `Runner.left`."""

    def start(self) -> None:
        """Begin to exchange."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """See `Runner.alive`."""
        # Before Python 3.13 a thread whose `join` a signal interrupts passes for dead from then on.
        return self._thread.ident is not None and not self._ended.is_set()

    @property
    def listening(self) -> bool:
        """See `Runner.listening`."""
        return self.alive and not self._stopping

    def wake(self) -> None:
        """Have a look at once at what is due. Never waits."""
        self._wake.set()
        self._exchanges.wake()

    def request_stop(self) -> None:
        """See `Runner.request_stop`."""
        self._stopping = True
        self.wake()

    def join(self, timeout_s: float) -> None:
        """See `Runner.join`."""
        if self.alive and self._thread is not threading.current_thread() and self._ended.wait(timeout_s):
            self._thread.join(timeout_s)

    def run(self) -> None:
        """What the thread does; for a caller who cannot start one any more, on the caller's own."""
        try:
            self._exchange_until_stopped()
        finally:
            self._ended.set()

    def _exchange_until_stopped(self) -> None:
        while self._after is not None and self._after.alive:
            self._after.join(TAKE_OVER_POLL_S)
        self._after = None
        # An epoll would be shared with forked children, and what they do to their copies of these connections would
        # happen to ours; poll keeps nothing in the operating system.
        loop = asyncio.SelectorEventLoop(selectors.PollSelector())
        loop.set_default_executor(_LastResort())
        try:
            self._exchanges.take_over()
            while not self._stopping:
                if self._exchanges.at_work:
                    loop.run_until_complete(self._exchanges.rest(self._wake.is_set))
                else:
                    self._wake.wait(self._exchanges.due_in_s())
                self._wake.clear()
                if not self._stopping:
                    loop.run_until_complete(self._exchanges.carry_out(lambda: not self._stopping))
            loop.run_until_complete(self._exchanges.leave())
            self.left = True
            loop.run_until_complete(self._exchanges.close())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


class _LastResort(ThreadPoolExecutor):
    """Threads for what would hold up the loop, such as looking up a host's name; or the loop's own, at the very end.

    When the interpreter ends it lends no more threads, and the last words may still need a connection.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See `Executor.submit`."""
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError:
            future: Future[T] = Future()
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:  # noqa: BLE001  # it is for whoever waits for the result
                future.set_exception(error)
            return future
