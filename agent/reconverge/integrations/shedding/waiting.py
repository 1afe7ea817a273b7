"""Requests that wait and do no work: an await that has to wait, and an application's own waits."""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Generator, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from reconverge.shedding.admission import Admission

T = TypeVar("T")

ADMISSION: Final = "reconverge.admission"
"""In a scope of ASGI or an environment of WSGI: the admission of the request."""


@contextmanager
def waiting(request: MutableMapping[str, Any]) -> Iterator[None]:
    """Count a request as not in progress while it waits for news and does nothing: in a long poll, between two events.

        from reconverge.integrations.shedding import waiting

        async def poll(request, topic):
            with waiting(request.scope):
                return await topic.next()

    `request` is the scope of ASGI or the environment of WSGI. Without a middleware in front it changes nothing.
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
    """Await, and call one function as soon as that has to wait, and the other when the wait is over.

    What is there already, as the body of most requests is, calls neither.
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
                except BaseException as error:  # noqa: BLE001  # a cancelled task as well: the inner one hears of it
                    step = steps.throw(error)
                else:
                    step = next(steps) if sent is None else steps.send(sent)
        finally:
            go_on()
    except StopIteration as end:
        result: T = end.value
        return result
