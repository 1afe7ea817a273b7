"""The event loop of the thread that exchanges: it blocks that thread alone, and does not delay the end of the process.

Calls that may hang for long, above all to a name server, run on threads that the end of the process does not wait for.
The executor of asyncio joins its threads at the end, so a resolver that hangs would delay the end by half a minute. If
several callers look up the same name, only one call runs, so that a name server that never answers occupies one thread.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

from reconverge.errors import PortableError
from reconverge.runtime.threads import addresses_of, in_main_interpreter, new_selector, start_thread

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Name lookups use this codec. It is imported here, as a child that is forked while a thread imports a module inherits
# the lock of that import, and would wait for it for ever.
codecs.lookup("idna")

HELPERS_MAX: Final = 8
"""The most threads of one event loop that may hang in calls; a further call fails at once, and its caller tries
later."""


class HelpersBusy(PortableError, OSError):
    """Raised when all helper threads of an event loop hang in calls, so that none is free for another call."""

    def __init__(self) -> None:
        super().__init__(
            f"{HELPERS_MAX} threads already wait for the operating system, such as to look up a name; try again later"
        )


class ThreadEventLoop(asyncio.SelectorEventLoop):
    """An event loop for a thread of the operating system, also in a process with greenlets."""

    def __init__(self) -> None:
        super().__init__(new_selector())
        self._helpers = 0
        self._asked: dict[tuple[Any, ...], asyncio.Future[Any]] = {}

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Runs `func(*args)` on another thread, and returns a future of its result.

        If `executor` is None, that is a new thread, which does not delay the end of the process.
        """
        if executor is not None:
            return super().run_in_executor(executor, func, *args)
        future: asyncio.Future[T] = self.create_future()
        if self._helpers >= HELPERS_MAX:
            future.set_exception(HelpersBusy())
            return future
        self._helpers += 1
        run = partial(self._help, future, partial(func, *args))
        if not in_main_interpreter():
            run()  # a thread that outlives this interpreter would crash the process
            return future
        try:
            start_thread(run, name="reconverge-helper")
        except RuntimeError:  # an interpreter that ends starts no threads, and the last reports may need a connection
            run()
        return future

    async def getaddrinfo(self, host: Any, port: Any, **how: int) -> Any:
        question = (host, port, *(how.get(name, 0) for name in ("family", "type", "proto", "flags")))
        asked = self._asked.get(question)
        if asked is None:
            asked = self._asked[question] = self.run_in_executor(None, addresses_of, *question)
            asked.add_done_callback(partial(self._answered, question))
        return await asyncio.shield(asked)

    def _answered(self, question: tuple[Any, ...], asked: asyncio.Future[Any]) -> None:
        self._asked.pop(question, None)
        if not asked.cancelled():
            asked.exception()  # marks an error as seen: maybe nothing waits for the answer any more

    def _help(self, future: asyncio.Future[Any], function: Callable[[], Any]) -> None:
        result: Any = None
        problem: Exception | None = None
        try:
            result = function()
        except Exception as error:  # noqa: BLE001  # raised where the result is awaited
            problem = error
        try:
            self.call_soon_threadsafe(self._helped, future, result, problem)
        except RuntimeError:  # the loop was closed meanwhile
            return

    def _helped(self, future: asyncio.Future[Any], result: Any, problem: Exception | None) -> None:
        self._helpers -= 1
        if future.cancelled():
            return
        if problem is not None:
            future.set_exception(problem)
        else:
            future.set_result(result)
