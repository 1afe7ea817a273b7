"""A stack of load-shedding layers in front of any WSGI application.

app = WsgiLoadSheddingMiddleware(app, workers=8)
"""

# Theory of operation.
#
# A thread of a WSGI server serves one request at a time, so the load is the number of busy threads, and there is no
# event loop whose lag could be measured. A stack that measures an event loop would never shed here, so it is an error.
#
# A request ends when its response body is exhausted, or when the server closes that body, which servers do even if they
# have not sent all of it. An outer middleware may join the parts without closing; a body that was neither exhausted nor
# closed ends the request when it is garbage-collected. Only the first of these ends has an effect.
#
# As in `asgi.py`, a request steps aside while it waits for its client: in `wsgi.input`, between two parts of its body,
# in `write`, and within `waiting`. WSGI does not allow as much as ASGI:
#
# - The thread stays occupied. As many idle clients as there are threads stop a threaded server, and an application
#   cannot prevent that; a buffering proxy or a time limit of the server can.
# - It is unknown whether a part of the body has arrived already, so each read and each part counts as a wait, even if
#   it takes no time.
# - A request cannot be refused after its body has arrived, because a read cannot send a response. It goes on, if
#   necessary beyond the limit; there are never more of these requests than threads.
# - A buffering server reads the body before it calls the application, so there are no waits for a client.

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from weakref import finalize

from reconverge.errors import InvalidSetting
from reconverge.integrations.misplaced import SHEDDING, warn_if_dropped
from reconverge.integrations.shedding.response import (
    Deciding,
    FieldWriter,
    KeyFunc,
    checked_stack,
    outcome_of,
    response_to,
)
from reconverge.integrations.shedding.waiting import ADMISSION
from reconverge.integrations.web.options import check_wsgi
from reconverge.integrations.wsgi import App, Environment, StartResponse
from reconverge.shedding.adaptive.concurrency import AdaptiveConcurrency
from reconverge.shedding.admission import Admission
from reconverge.shedding.classes import TrafficClasses
from reconverge.shedding.layers import DROPPED, IGNORED, Outcome
from reconverge.shedding.stack import Stack
from reconverge.shedding.worker.shedder import WorkerShedder
from reconverge.shedding.worker.signals import Occupancy

INPUT: Final = "wsgi.input"


class WsgiLoadSheddingMiddleware:
    """Refuses requests that an application cannot serve now, the least important ones first.

    Args:
        app: the application.
        stack: the layers. Give either this or `workers`.
        workers: how many requests this process serves at once; makes a stack of adaptive concurrency and a worker
            shedder that measures how many workers are busy.
        key_func: returns the key that a `RequestRate` layer counts by, from the WSGI environment.
        fields: whether responses to admitted requests have the fields RateLimit and RateLimit-Policy, which show what
            is left of the limits.

    Raises InvalidSetting if neither or both of `stack` and `workers` are given, for a stack that measures an event
    loop, and if `key_func` is missing or has no effect.
    """

    def __init__(
        self,
        app: App,
        stack: Stack | None = None,
        *,
        workers: int | None = None,
        key_func: KeyFunc | None = None,
        fields: bool = True,
    ) -> None:
        check_wsgi(app, "LoadSheddingMiddleware of reconverge.integrations.shedding")
        self.app = app
        self.stack = _stack_of(stack, workers)
        if self.stack.needs_loop:
            problem = "measures an event loop, which WSGI does not have; use WorkerShedder(Occupancy(workers=...))"
            raise InvalidSetting("stack", self.stack, problem)
        self._deciding = Deciding(self.stack, key_func)
        self._writer = FieldWriter() if fields else None
        header = self.stack.classes.header
        self._header = None if header is None else "HTTP_" + header.upper().replace("-", "_")
        self._unserved: finalize[..., WsgiLoadSheddingMiddleware] | None = warn_if_dropped(self, SHEDDING)

    @property
    def failures(self) -> int:
        """Returns how many requests were served without a decision because a function of the application failed."""
        return self._deciding.failures

    def __call__(self, environment: Environment, start_response: StartResponse) -> Iterable[bytes]:
        if self._unserved is not None:
            self._unserved.detach()
            self._unserved = None
        method = environment["REQUEST_METHOD"]
        field = None if self._header is None else environment.get(self._header)
        admission = self._deciding.admission(environment, method, field)
        if admission is None:
            return self.app(environment, start_response)
        if admission.refusal is not None:
            status, fields, body = response_to(admission.refusal)
            start_response(f"{status} {HTTPStatus(status).phrase}", list(fields))
            return [] if method == "HEAD" else [body]
        starting = _StartingShed(admission, start_response, self._writer)
        environment[ADMISSION] = admission
        read = environment.get(INPUT)
        if read is not None:
            environment[INPUT] = _Input(read, admission)
        try:
            body_parts = self.app(environment, starting)
        except BaseException as error:
            admission.finish(DROPPED if isinstance(error, TimeoutError) else IGNORED)
            raise
        return _Body(body_parts, admission, starting)


class _StartingShed:
    """Wraps WSGI's `start_response` to add the response fields of an admission."""

    def __init__(self, admission: Admission, start_response: StartResponse, writer: FieldWriter | None) -> None:
        self._admission = admission
        self._start_response = start_response
        self._writer = writer
        self.status = 0

    def __call__(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        """Begins the response; WSGI allows a second call after an error."""
        self.status = int(status[:3]) if status[:3].isdecimal() else 0
        if self._writer is not None:
            # List fields are sent in addition to the application's own.
            headers = [*headers, *self._writer.fields(self._admission)]
        extra = () if exc_info is None else (exc_info,)
        write = self._start_response(status, headers, *extra)
        return partial(_aside, self._admission, write) if callable(write) else write


def _aside(admission: Admission, wait: Callable[..., Any], *arguments: Any, begun: bool = True, **named: Any) -> Any:
    """Calls `wait`, which waits for the client, and returns the result. Meanwhile the request's slot is free.

    `begun` is False while the body of the request is being read, as in `Admission.step_aside`.
    """
    admission.step_aside(begun=begun)
    try:
        return wait(*arguments, **named)
    finally:
        admission.go_on()


class _Input:
    """Wraps a request's body to free the request's slot during each read; has all attributes of the body, too."""

    def __init__(self, own: Any, admission: Admission) -> None:
        self._own = own
        self.read = partial(_aside, admission, own.read, begun=False)
        self.readline = partial(_aside, admission, own.readline, begun=False)
        self.readlines = partial(_aside, admission, own.readlines, begun=False)

    def __iter__(self) -> _Input:
        return self

    def __next__(self) -> bytes:
        line: bytes = self.readline()
        if not line:
            raise StopIteration
        return line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


class _Body:
    """Wraps a response's body, and ends the admission when the body is exhausted, closed or garbage-collected."""

    def __init__(self, body: Iterable[bytes], admission: Admission, starting: _StartingShed) -> None:
        self._body = body
        self._parts: Iterator[bytes] | None = None
        self._admission = admission
        self._starting = starting
        self._timed_out = self._sending = False

    def __iter__(self) -> _Body:
        return self

    def __next__(self) -> bytes:
        if self._sending:
            self._sending = False
            self._admission.go_on()
        if self._parts is None:
            self._parts = iter(self._body)
        try:
            part = next(self._parts)
        except StopIteration:
            self._admission.finish(outcome_of(self._starting.status))
            raise
        except TimeoutError:
            self._timed_out = True
            raise
        self._sending = True
        self._admission.step_aside()  # until the server asks for the next part
        return part

    def close(self) -> None:
        """Closes the body and ends the admission. Servers call this even if they have not sent all of the body."""
        outcome: Outcome = DROPPED if self._timed_out else outcome_of(self._starting.status)
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            self._admission.finish(outcome)

    def __del__(self) -> None:
        self._admission.drop()


def _stack_of(stack: Stack | None, workers: int | None) -> Stack:
    if (stack is None) == (workers is None):
        raise InvalidSetting("stack", stack, "must be given, unless workers=... is given; give one, not both")
    if stack is not None:
        return checked_stack(stack)
    assert workers is not None
    classes = TrafficClasses()
    return Stack(AdaptiveConcurrency(classes=classes), WorkerShedder(Occupancy(workers), classes=classes))
