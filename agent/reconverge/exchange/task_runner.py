"""Makes the exchanges in an asyncio task, in the application's own event loop."""

from __future__ import annotations

import asyncio
import contextlib

from reconverge.exchange.driver import ExchangeDriver
from reconverge.exchange.ownership import TAKE_OVER_POLL_S
from reconverge.runtime.threads import Latch, thread_id


class TaskRunner:
    """Runs the exchanges as an asyncio task. Create, start and stop it in the event loop of that task.

    If another thread or task makes the agent's exchanges, this task asks it to stop, and waits until it has ended.
    """

    def __init__(self, exchanges: ExchangeDriver) -> None:
        self._exchanges = exchanges
        self._loop = asyncio.get_running_loop()
        self._thread_id = thread_id()
        self._wake = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._begun = False
        self._ended = Latch()
        self.left = False

    def start(self) -> None:
        """Starts the task that exchanges."""
        self._task = self._loop.create_task(self._run(), name="reconverge")

    @property
    def alive(self) -> bool:
        if self._loop.is_closed():
            return False
        if self._task is not None:
            return not self._task.done()
        return self._begun and not self._ended.open

    @property
    def listening(self) -> bool:
        return self.alive and not self._stopping

    @property
    def end_is_noticed(self) -> bool:
        """Returns False: an event loop can be closed without any notice to this task or to the driver."""
        return False

    @property
    def is_here(self) -> bool:
        """Returns whether the calling thread runs this task's event loop; the caller must not wait for it then."""
        return thread_id() == self._thread_id

    def wake(self) -> None:
        self._exchanges.wake()
        # Only a call from another task of this loop returns to the loop afterwards. A signal handler may have
        # interrupted this very task just before it waits, or the loop while it waits for the operating system.
        if thread_id() == self._thread_id and asyncio.current_task(self._loop) not in (None, self._task):
            self._wake.set()
            return
        # The loop may be closing, or its self-pipe broken; then there is no task to wake.
        with contextlib.suppress(RuntimeError, OSError):
            self._loop.call_soon_threadsafe(self._wake.set)

    def request_stop(self) -> None:
        self._stopping = True
        self.wake()

    def join(self, timeout_s: float) -> None:
        if thread_id() != self._thread_id:
            self._ended.wait(timeout_s)
        elif self._task is not None and self.alive and not self._loop.is_running():
            with contextlib.suppress(RuntimeError):  # another loop is running here, and must not be held up
                self._loop.run_until_complete(asyncio.wait({self._task}, timeout=timeout_s))

    async def stop(self, timeout_s: float) -> None:
        """Sends the node's last reports and ends the task. Gives up sending reports after `timeout_s` seconds."""
        assert self._task is not None
        self.request_stop()
        done, _ = await asyncio.wait({self._task}, timeout=timeout_s)
        if not done:
            self.left = True
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=timeout_s)

    async def _run(self) -> None:
        self._begun = True
        try:
            while not self._exchanges.claim(self):
                owner = self._exchanges.owner
                if owner is not None and owner.listening:
                    owner.request_stop()
                await asyncio.sleep(TAKE_OVER_POLL_S)
            await self._exchange_until_stopped()
        finally:
            self._ended.set()

    async def _exchange_until_stopped(self) -> None:
        try:
            self._exchanges.take_over()
            while not self._stopping:
                alarm = self._loop.call_later(self._exchanges.due_in_s(), self._wake.set)
                try:
                    await self._wake.wait()
                finally:
                    alarm.cancel()
                self._wake.clear()
                if not self._stopping:
                    await self._exchanges.carry_out(lambda: not self._stopping)
                    _heed_cancellation()
            await self._exchanges.leave()
            self.left = True
        except GeneratorExit:  # the loop was closed under this task: nothing can be awaited any more
            raise
        except BaseException:
            await self._exchanges.close()
            raise
        await self._exchanges.close()


def _heed_cancellation() -> None:
    """Raises the cancellation of this task again, if code that the task has awaited has swallowed it.

    In Python 3.11 `asyncio.wait_for` swallows a cancellation if the awaited operation ends at the same moment, and
    clients of hubs use it, too. The caller does not repeat the cancellation: the end of `asyncio.run` would wait for
    this task for ever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
