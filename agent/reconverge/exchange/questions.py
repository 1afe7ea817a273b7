"""A queue of the application's questions to the hub, which are asked in the event loop of the exchanges.

A hub object serves one event loop at a time, that of the exchanges. So the application puts a question into this queue,
wakes the loop, and gets the answer through a future, for which any thread or loop can wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from reconverge.errors import HubUnavailable
from reconverge.hub.port import Hub
from reconverge.runtime.locks import new_future

T = TypeVar("T")
WAITING_MAX: Final = 1000
"""The most questions that may wait, so that they cannot fill the memory while a hub does not answer."""


class Questions:
    """A queue of the application's questions to the hub, such as reading a key; the loop of the exchanges asks them."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[Hub], Awaitable[Any]], Future[Any]]] = deque()

    @property
    def waiting(self) -> bool:
        """Returns whether the queue has any question."""
        return bool(self._waiting)

    def ask(self, question: Callable[[Hub], Awaitable[T]]) -> Future[T]:
        """Adds a question, a function that is called with the hub; returns the future of the function's result.

        Raises HubUnavailable if WAITING_MAX questions wait already. The future raises any exception of `question`
        unchanged; any other than `HubUnavailable` is a bug.
        """
        if len(self._waiting) >= WAITING_MAX:
            raise HubUnavailable(
                "busy", f"{WAITING_MAX} questions wait for the hub already; try again later", applied=False
            )
        future: Future[T] = new_future()
        self._waiting.append((question, future))
        return future

    async def answer(self, hub: Hub, timeout_s: float) -> None:
        """Calls all queued questions with the hub, side by side, for at most `timeout_s` seconds each.

        Raises only CancelledError: the future of each question gets its answer or its exception.
        """
        taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            await asyncio.gather(*(_answer(question, future, hub, timeout_s) for question, future in taken))
        finally:
            for _, future in taken:
                _fail(
                    future,
                    HubUnavailable("cancelled", "the agent's exchanges ended before the hub's answer came; ask again"),
                )

    def refuse(self) -> None:
        """Fails the futures of all waiting questions, because the exchanges have ended and no runner will ask them."""
        while self._waiting:
            _, future = self._waiting.popleft()
            _fail(
                future,
                HubUnavailable("stopped", "the agent's exchanges have ended; ask while the agent runs", applied=False),
            )


async def _answer(question: Callable[[Hub], Awaitable[T]], future: Future[T], hub: Hub, timeout_s: float) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(await asyncio.wait_for(question(hub), timeout_s))
    except TimeoutError:
        _fail(future, HubUnavailable("timeout", f"the hub has not answered within {timeout_s:g} s; try again"))
    except Exception as error:  # noqa: BLE001  # the question's caller hears of it, and the exchanges go on
        _fail(future, error)


def _fail(future: Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
