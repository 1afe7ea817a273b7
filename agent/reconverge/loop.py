"""Exchanging as a task of the application's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading

from reconverge.exchanges import Exchanges


class TaskLoop:
    """Runs the exchanges as a task. Made, started and stopped in the loop that it runs in."""

    def __init__(self, exchanges: Exchanges) -> None:
        self._exchanges = exchanges
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._wake = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to exchange."""
        self._task = self._loop.create_task(self._run(), name="reconverge")

    @property
    def alive(self) -> bool:
        """Whether the task is there to be woken."""
        return self._task is not None and not self._task.done() and not self._loop.is_closed()

    @property
    def cut_short(self) -> bool:
        """Whether it ended with its loop, before the task had come to its last words."""
        return not self.alive and not self._stopping

    def wake(self) -> None:
        """Have a look at once at what is due. Never waits, and never fails."""
        if threading.get_ident() == self._thread_id:
            self._wake.set()
            return
        # The loop may be closing, or its self-pipe broken; then there is nobody to wake.
        with contextlib.suppress(RuntimeError, OSError):
            self._loop.call_soon_threadsafe(self._wake.set)

    def request_stop(self) -> None:
        """Have the task say its last words and stop, when the loop next runs."""
        self._stopping = True
        self.wake()

    async def stop(self, timeout_s: float) -> bool:
        """Say the last words and stop; returns whether that was done within `timeout_s`."""
        assert self._task is not None
        self.request_stop()
        done, _ = await asyncio.wait({self._task}, timeout=timeout_s)
        if not done:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=timeout_s)
        return bool(done)

    async def _run(self) -> None:
        try:
            while not self._stopping:
                alarm = self._loop.call_later(self._exchanges.due_in_s(), self._wake.set)
                try:
                    await self._wake.wait()
                finally:
                    alarm.cancel()
                self._wake.clear()
                if not self._stopping:
                    await self._exchanges.carry_out()
            await self._exchanges.leave()
        finally:
            await self._exchanges.close()
