"""Frees the slot of a request while it only waits: for a value, or within a block of the application."""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Generator, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from reconverge.shedding.admission import Admission

T = TypeVar("T")

ADMISSION: Final = "reconverge.admission"
"""The key under which an ASGI scope or a WSGI environment holds the admission of the request."""


@contextmanager
def waiting(request: MutableMapping[str, Any]) -> Iterator[None]:
    """Frees the slot of a request within the block, in which the request only waits, as in a long poll.

        from reconverge.integrations.shedding import waiting

        async def poll(request, topic):
            with waiting(request.scope):
                return await topic.next()

    `request` is the ASGI scope or the WSGI environment. Without a load-shedding middleware, this has no effect.
    """
    admission: Admission | None = request.get(ADMISSION)
    if admission is None:
        yield
        return
    admission.step_aside()
    try:
        yield
    finally:
        admission.go_on()


@types.coroutine
def stepping_aside(
    awaited: Awaitable[T], step_aside: Callable[[], object], go_on: Callable[[], object]
) -> Generator[Any, Any, T]:
    """Awaits `awaited` and returns its value. Calls `step_aside` before a wait, and `go_on` after the wait.

    If the value is available at once, as the body of most requests is, neither function is called.
    """
    steps: Any = awaited.__await__()
    try:
        step = next(steps)
        step_aside()
        try:
            while True:
                try:
                    sent = yield step
                except GeneratorExit:
                    steps.close()
                    raise
                except BaseException as error:  # noqa: BLE001  # a cancellation, too, is passed to the inner awaitable
                    step = steps.throw(error)
                else:
                    step = next(steps) if sent is None else steps.send(sent)
        finally:
            go_on()
    except StopIteration as end:
        result: T = end.value
        return result
