"""Exchanging on a thread of its own, for applications of any kind."""

from __future__ import annotations

import asyncio
import threading

from reconverge.exchanges import Exchanges


class ThreadLoop:
    """Runs the exchanges on a daemon thread, with an event loop that runs only while one is under way.

    Between exchanges the thread waits on a plain lock, so that waking it takes no system call on a socket.
    """

    def __init__(self, exchanges: Exchanges) -> None:
        self._exchanges = exchanges
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="reconverge", daemon=True)

    def start(self) -> None:
        """Begin to exchange."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread is there to be woken."""
        return self._thread.is_alive()

    def wake(self) -> None:
        """Have a look at once at what is due. Never waits."""
        self._wake.set()

    def stop(self, timeout_s: float) -> bool:
        """Say the last words and stop; returns whether that was done within `timeout_s`."""
        self._stopping = True
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        loop = asyncio.new_event_loop()
        try:
            while not self._stopping:
                self._wake.wait(self._exchanges.due_in_s())
                self._wake.clear()
                if not self._stopping:
                    loop.run_until_complete(self._exchanges.carry_out())
            loop.run_until_complete(self._exchanges.leave())
            loop.run_until_complete(self._exchanges.close())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()
