"""Goal: who only waits keeps nobody out, and works uncounted neither.

Method: applications behind the middleware wait in each way that there is, under a limit of one request in progress.
"""

from __future__ import annotations

import asyncio
import gc
import io
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from reconverge.integrations.shedding import LoadSheddingMiddleware, WsgiLoadSheddingMiddleware, waiting
from reconverge.shedding import AdaptiveConcurrency, Fixed, Occupancy, Stack, WorkerShedder
from reconverge.shedding.adaptive.sample import Sample
from reconverge.testing import ManualClock
from tests.support.applications.asking import answer_of, asgi_answer, ask_wsgi, environment_of, http_scope, statuses

END: Final = {"type": "http.request", "body": b"", "more_body": False}
MORE: Final = {"type": "http.request", "body": b"a", "more_body": True}


async def settle() -> None:
    """Let all tasks come to where they wait."""
    for _ in range(20):
        await asyncio.sleep(0)


class Client:
    """A client of one request, which sends and takes what a test has it."""

    def __init__(self, app: Any, **details: Any) -> None:
        self.sent: list[dict[str, Any]] = []
        self.heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.takes = asyncio.Event()
        self.takes.set()
        self.scope = http_scope("/", **details)
        self.task = asyncio.create_task(app(self.scope, self.heard.get, self._send))

    async def _send(self, message: dict[str, Any]) -> None:
        await self.takes.wait()
        self.sent.append(message)

    async def status(self) -> int:
        await self.task
        return answer_of(self.sent).status


class Front:
    """An application behind a limit of one, which notes what it hears."""

    def __init__(self, app: Callable[..., Any], **details: Any) -> None:
        self.layer = AdaptiveConcurrency(Fixed(1))
        self.stack = Stack(self.layer, **details)
        self.app = LoadSheddingMiddleware(app, self.stack)

    async def other(self) -> int:
        return (await asgi_answer(self.app, http_scope("/", method="POST"))).status


async def answered(send: Any, status: int = 200, kind: bytes = b"text/plain") -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
    await send({"type": "http.response.body", "body": b"a", "more_body": True})
    await send({"type": "http.response.body", "body": b"b"})


async def uploads(scope: Any, receive: Any, send: Any) -> None:
    """Reads the whole body of a POST, and answers."""
    if scope["method"] == "POST":
        while (message := await receive()).get("more_body"):
            pass
        if message["type"] == "http.disconnect":
            raise ConnectionResetError
    await answered(send)


async def test_idle_uploads_keep_nobody_out() -> None:
    """Sixteen uploads whose bodies do not come leave the only slot to others, and each is served when its body came."""
    front = Front(uploads)

    clients = [Client(front.app, method="POST") for _ in range(16)]
    await settle()
    first = await front.other()
    for client in clients:
        client.heard.put_nowait(MORE)
    await settle()
    seen = [first, await front.other()]
    for client in clients:
        client.heard.put_nowait(END)
        seen.append(await client.status())

    assert [200] * 18 == seen
    assert 0 == front.layer.in_flight


def test_idle_uploads_leave_no_slots_free_for_what_they_do_not_want() -> None:
    """Forty that come at one moment, and then wait, are no demand of their class: others have the slots."""
    layer = AdaptiveConcurrency(Fixed(20))
    stack = Stack(layer)
    uploads = [stack.enter("", "POST") for _ in range(40)]
    for upload in uploads[:20]:
        upload.step_aside(begun=False)

    assert 18 == sum(map(bool, [stack.enter("", "GET") for _ in range(20)]))


async def test_uploads_that_are_complete_at_one_moment_do_not_run_at_one_moment() -> None:
    """Of five whose last bytes come together one has the slot; the others are refused, and the application is told."""
    ran: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        if message["type"] == "http.disconnect":
            assert "http.disconnect" == (await receive())["type"]
            await answered(send)  # goes nowhere
            raise ConnectionResetError
        ran.append(front.layer.in_flight)
        await asyncio.sleep(0)
        await answered(send)

    front = Front(app)

    clients = [Client(front.app, method="POST") for _ in range(5)]
    await settle()
    for client in clients:
        client.heard.put_nowait(END)

    assert [200, 503, 503, 503, 503] == [await client.status() for client in clients]
    assert [1] == ran
    assert {"concurrency": {"critical": 0, "POST": 4, "GET": 0, "test": 0}} == front.stack.stats().refused
    assert 0 == front.layer.in_flight


async def test_a_layer_in_shadow_refuses_no_body_that_has_come() -> None:
    """It goes on beyond the limit, and is counted as what would have been refused."""
    front = Front(uploads, switches={"concurrency": "shadow"})

    client = Client(front.app, method="POST")
    await settle()
    held = front.stack.enter("", "POST")
    client.heard.put_nowait(END)
    status = await client.status()
    held.finish()

    assert 200 == status
    assert 1 == front.stack.stats().would_refuse["concurrency"]["POST"]
    assert 0 == front.layer.in_flight


async def test_slow_readers_keep_nobody_out_and_are_counted_when_they_read_on() -> None:
    """While nothing is taken the slot is free; then the stream goes on as a second beside it."""
    counts: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        counts.append(front.layer.in_flight)
        await send({"type": "http.response.body", "body": b"b"})

    front = Front(app)

    reader = Client(front.app)
    reader.takes.clear()
    await settle()
    other = front.stack.enter("", "POST")
    assert other
    reader.takes.set()
    status = await reader.status()
    other.finish()

    assert 200 == status
    assert [2] == counts
    assert 0 == front.layer.in_flight


def test_an_event_stream_keeps_nobody_out() -> None:
    """Between two events nothing is in progress; of another stream the same pause is work."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        kind = b"text/event-stream; charset=utf-8" if scope["method"] == "GET" else b"text/csv"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"Content-Type", kind)]})
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        await scope["more"].wait()
        await send({"type": "http.response.body", "body": b""})

    front = Front(app)

    async def run(method: str) -> int:
        client = Client(front.app, method=method)
        client.scope["more"] = asyncio.Event()
        await settle()
        during = front.layer.in_flight
        client.scope["more"].set()
        await client.status()
        return during

    assert [0, 1] == [asyncio.run(run(method)) for method in ("GET", "POST")]
    assert 0 == front.layer.in_flight


@pytest.mark.parametrize("says_so", [True, False])
async def test_a_long_poll_keeps_nobody_out_if_it_says_that_it_waits(says_so: bool) -> None:
    """A handler may await a database, which counts as work unless it stands in `waiting`."""
    news = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "GET" and says_so:
            with waiting(scope):
                await news.wait()
        elif scope["method"] == "GET":
            await news.wait()
        await answered(send)

    front = Front(app)

    polls = [Client(front.app) for _ in range(3)]
    await settle()
    other = await front.other() if says_so else front.layer.in_flight
    news.set()

    assert ((200, 200) if says_so else (1, 200)) == (other, (await polls[0].status()))
    assert 0 == front.layer.in_flight


def test_waiting_without_a_middleware_changes_nothing() -> None:
    """An application that is tested by itself needs no other code."""
    scope = http_scope("/")

    with waiting(scope):
        during = dict(scope)

    assert http_scope("/") == during == scope


async def test_a_task_that_listens_for_the_end_of_the_connection_hides_no_work() -> None:
    """A `receive` after the whole body waits beside work, so the request counts."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        listener = asyncio.create_task(receive())
        await settle()
        seen.append(front.layer.in_flight)
        listener.cancel()
        await answered(send)

    seen: list[int] = []
    front = Front(app)

    client = Client(front.app, method="POST")
    client.heard.put_nowait(END)

    assert 200 == (await client.status())
    assert [1] == seen


async def test_work_beside_a_body_that_never_comes_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    """From the beginning of the first such response, and of all later requests from their own beginning; said once."""
    before: list[int] = []
    after: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reader = asyncio.create_task(receive())
        await settle()
        before.append(front.layer.in_flight)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        after.append(front.layer.in_flight)
        await send({"type": "http.response.body", "body": b""})
        reader.cancel()

    front = Front(app)

    assert [200, 200, 200] == [await Client(front.app, method="POST").status() for _ in range(3)]
    assert [0, 1, 1] == before
    assert [1, 1, 1] == after
    assert 1 == caplog.text.count("works on a request before its body has come")


async def test_an_upload_that_is_given_up_leaves_nothing() -> None:
    """A client that leaves, and a task that is cancelled, end a request while it waits."""
    front = Front(uploads)

    gone, cancelled = Client(front.app, method="POST"), Client(front.app, method="POST")
    await settle()
    gone.heard.put_nowait({"type": "http.disconnect"})
    cancelled.task.cancel()
    await asyncio.wait([gone.task, cancelled.task])

    assert isinstance(gone.task.exception(), ConnectionResetError)
    assert cancelled.task.cancelled()

    assert 0 == front.layer.in_flight
    assert front.stack.enter("", "POST")


class Heard:
    """An algorithm that keeps its limit, and the windows that it is told of."""

    limit = 100

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def update(self, sample: Sample) -> int:
        self.samples.append(sample)
        return self.limit


def test_how_long_a_client_waits_is_no_round_trip() -> None:
    """Of requests that work for 20 ms and wait for their client for 50 ms, the round trip is 20 ms."""
    clock, algorithm = ManualClock(), Heard()
    stack = Stack(AdaptiveConcurrency(algorithm), clock=clock)
    for _ in range(20):
        with stack.enter("", "POST") as admission:
            clock.advance(0.01)
            admission.step_aside()
            clock.advance(0.05)
            admission.go_on()
            clock.advance(0.01)

    assert {20_000_000} == {sample.round_trip_ns for sample in algorithm.samples}


def test_overlapping_waits_end_with_the_last() -> None:
    """A request that waits for two reasons goes on when neither is left."""
    layer = AdaptiveConcurrency(Fixed(1))
    admission = Stack(layer).enter("")
    seen = []
    for step in (admission.step_aside, admission.step_aside, admission.go_on, admission.go_on):
        step()
        seen.append(layer.in_flight)

    assert [0, 0, 0, 1] == seen


def test_a_request_that_waits_keeps_no_worker_busy() -> None:
    """Occupancy counts it again when it goes on, and not at all when it has ended meanwhile."""
    signal = Occupancy(4)
    stack = Stack(WorkerShedder(signal, clock=ManualClock()))
    first, second = stack.enter("", "POST"), stack.enter("", "POST")
    for admission in (first, second):
        admission.step_aside()
    during = signal.busy
    second.finish()
    for admission in (first, second):
        admission.go_on()

    assert [0, 1] == [during, signal.busy]
    first.finish()
    assert 0 == signal.busy


class Upload(io.BytesIO):
    """The body of a request, which notes how many run while it is read."""

    def __init__(self, layer: AdaptiveConcurrency) -> None:
        super().__init__(b"one\ntwo\nthree\nfour\n")
        self.layer = layer
        self.seen: list[int] = []

    def read(self, size: int | None = -1, /) -> bytes:
        self.seen.append(self.layer.in_flight)
        return super().read(size)

    def readline(self, size: int | None = -1, /) -> bytes:
        self.seen.append(self.layer.in_flight)
        return super().readline(size)


def wsgi(*, parts: tuple[bytes, ...] = (b"a", b"b"), limit: int = 1) -> tuple[AdaptiveConcurrency, Any]:
    """A WSGI application that reads its body and answers in parts, behind a limit."""
    layer = AdaptiveConcurrency(Fixed(limit))

    def app(environment: Any, start_response: Any) -> Iterator[bytes]:
        body = environment["wsgi.input"]
        for read in (body.read, body.readline, body.readlines):
            read(4)
        b"".join(body).decode()
        write = start_response("200 OK", [])
        if callable(write):
            write(b"first")
        with waiting(environment):
            assert 0 == layer.in_flight
        assert 1 == layer.in_flight
        return iter(parts)

    return layer, WsgiLoadSheddingMiddleware(app, Stack(layer))


def test_a_thread_that_reads_a_body_or_sends_one_has_no_slot() -> None:
    """Nothing is in progress while input is read, `write` sends, and between two parts; the rest of the time it is."""
    layer, app = wsgi()
    upload = Upload(layer)
    written: list[int] = []

    def start_response(status: str, headers: Any) -> Any:
        return lambda _: written.append(layer.in_flight)

    body = app(environment_of("/") | {"wsgi.input": upload}, start_response)
    before = layer.in_flight
    first = next(body)
    between = layer.in_flight
    (other,) = ask_wsgi(app)
    rest = [*body]

    assert {0} == {*upload.seen, *written}
    assert (1, 0) == (before, between)
    assert (b"a", [b"b"], 200) == (first, rest, other.status)
    assert 0 == layer.in_flight


def test_a_body_that_is_exhausted_and_never_closed_ends() -> None:
    """An outer middleware that joins the parts and closes nothing has no slot left behind, sixty times."""
    layer, app = wsgi()

    def outer(environment: Any, start_response: Any) -> list[bytes]:
        return [b"".join(app(environment, start_response))]

    assert [200] * 60 == statuses(ask_wsgi(outer, times=60))
    assert 0 == layer.in_flight
    assert 0 == app.stack.stats().dropped


def test_a_body_that_is_thrown_away_ends_once(caplog: pytest.LogCaptureFixture) -> None:
    """Neither exhausted nor closed, it is given up with the next request; that is counted, and logged once."""
    layer, app = wsgi()
    for _ in range(3):
        app(environment_of("/"), lambda *_: None)
        gc.collect()
    (answer,) = ask_wsgi(app)

    assert 200 == answer.status
    assert 3 == app.stack.stats().dropped
    assert 0 == layer.in_flight
    assert 1 == caplog.text.count("admission never finished")


def test_an_admission_that_is_dropped_counts_for_a_second_more(caplog: pytest.LogCaptureFixture) -> None:
    """Its request may run all the same; after a second its slot is free, which is counted, and logged once."""
    clock, layer = ManualClock(), AdaptiveConcurrency(Fixed(2))
    stack = Stack(layer, clock=clock)
    for _ in range(2):
        stack.enter("", "POST")
    gc.collect()
    clock.advance(0.999)
    just_before = bool(stack.enter("", "POST"))
    clock.advance(0.001)

    assert not just_before
    assert stack.enter("", "POST")
    assert 2 == stack.stats().dropped
    assert [logging.WARNING] == [each.levelno for each in caplog.records]


def test_an_admission_without_a_block_is_logged_with_the_next_request(caplog: pytest.LogCaptureFixture) -> None:
    """Before the second is over for which it keeps its slot: `if stack.enter(...)` would fill the stack."""
    stack = Stack(AdaptiveConcurrency(Fixed(2)), clock=ManualClock())
    admitted = [bool(stack.enter("ada", "POST")) for _ in range(3)]

    assert [True, True, False] == admitted
    (logged,) = caplog.messages
    assert "write: with stack.enter(key, method) as admission: if admission" in logged
