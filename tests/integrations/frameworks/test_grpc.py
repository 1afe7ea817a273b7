"""Goal: calls of all four kinds to both kinds of gRPC server are limited, and say so as gRPC's clients expect it.

Method: real servers and clients on loopback ports, with generic handlers whose messages are bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import any_pb2, duration_pb2

from reconverge.errors import InvalidSetting
from reconverge.integrations import Addresses, Rule
from reconverge.integrations.grpc.interceptors import (
    AioRateLimitInterceptor,
    RateLimitInterceptor,
    by_peer,
    by_rpc,
    current_outcome,
)
from reconverge.integrations.grpc.request import GrpcRequest, address_of, retry_info
from reconverge.integrations.web.request.request import Response
from tests.support.waiting import eventually

SERVICE = "shop.Orders"
KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
CALL_S_MAX = 30.0
THREADS = 8
STOPS = 20
TEN_MB = 10 * 1024 * 1024
ended = threading.Event()
"""Set when a stream without an end has ended all the same."""


class Orders:
    """The methods of a server on threads."""

    def unary_unary(self, request: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((("theirs", "1"),))
        outcome = current_outcome()
        assert outcome is not None
        outcome.spend(3)
        return request

    def unary_stream(self, request: bytes, context: Any) -> Iterator[bytes]:
        yield from (request, request)

    def stream_unary(self, requests: Iterator[bytes], context: Any) -> bytes:
        return b"".join(requests)

    def stream_stream(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        yield from requests

    def reading(self, requests: Iterator[bytes], context: Any) -> bytes:
        """One for all, whatever happens meanwhile."""
        found: list[bytes] = []
        with contextlib.suppress(Exception):
            found.extend(requests)
        return b"".join(found)

    def aborting(self, request: bytes, context: Any) -> bytes:
        context.abort(grpc.StatusCode.NOT_FOUND, "no such order")
        raise AssertionError

    def broken(self, request: bytes, context: Any) -> bytes:
        raise ZeroDivisionError

    def endless(self, request: bytes, context: Any) -> Iterator[bytes]:
        try:
            while True:
                yield request
        finally:
            ended.set()


class SlowOrders:
    """The same in an event loop."""

    async def unary_unary(self, request: bytes, context: Any) -> bytes:
        await asyncio.sleep(0)
        return Orders().unary_unary(request, context)

    async def unary_stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        for _ in range(2):
            yield request
            await asyncio.sleep(0)

    async def stream_unary(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        return b"".join([request async for request in requests])

    async def stream_stream(self, requests: AsyncIterator[bytes], context: Any) -> None:
        async for request in requests:
            await context.write(request)

    async def reading(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        """One for all, as the context hands them out."""
        found: list[bytes] = []
        aio: Any = grpc.aio
        while (request := await context.read()) != aio.EOF:
            found.append(request)
        return b"".join(found)

    async def aborting(self, request: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.NOT_FOUND, "no such order")
        raise AssertionError

    async def broken(self, request: bytes, context: Any) -> bytes:
        raise ZeroDivisionError

    async def endless(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            while True:
                yield request
                await asyncio.sleep(0)
        finally:
            ended.set()


def handlers(orders: object) -> grpc.GenericRpcHandler:
    """The service, with messages that are bytes."""
    kind = dict.fromkeys(("aborting", "broken"), "unary_unary") | {"endless": "unary_stream", "reading": "stream_unary"}
    methods = {
        name: getattr(grpc, f"{kind.get(name, name)}_rpc_method_handler")(getattr(orders, name))
        for name in (*KINDS, *kind)
    }
    return grpc.method_handlers_generic_handler(SERVICE, methods)


def health() -> grpc.GenericRpcHandler:
    """The standard method for health checks, with messages that are bytes."""
    check = grpc.unary_unary_rpc_method_handler(lambda request, _context: request)
    return grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": check})


OPTIONS = [("grpc.max_metadata_size", 2 * TEN_MB), ("grpc.absolute_max_metadata_size", 2 * TEN_MB)]


@contextlib.contextmanager
def on_threads(*arguments: Any, address: str = "127.0.0.1:0", **settings: Any) -> Iterator[str]:
    """A server on threads; where it listens."""
    interceptor = RateLimitInterceptor(*arguments, **settings)
    server = grpc.server(ThreadPoolExecutor(THREADS), interceptors=[interceptor], options=OPTIONS)
    server.add_generic_rpc_handlers((handlers(Orders()), health()))
    port = server.add_insecure_port(address)
    server.start()
    try:
        yield address.replace(":0", f":{port}")
    finally:
        server.stop(None).wait()


@contextlib.contextmanager
def in_a_loop(*arguments: Any, address: str = "127.0.0.1:0", orders: object = None, **settings: Any) -> Iterator[str]:
    """A server in an event loop on a thread of its own; where it listens."""
    started: list[Any] = []
    running = threading.Event()

    async def serve() -> None:
        interceptor = AioRateLimitInterceptor(*arguments, **settings)
        pool = ThreadPoolExecutor(THREADS)
        server = grpc.aio.server(interceptors=[interceptor], options=OPTIONS, migration_thread_pool=pool)
        server.add_generic_rpc_handlers((handlers(orders or SlowOrders()), health()))
        port = server.add_insecure_port(address)
        await server.start()
        over = asyncio.Event()
        started.extend([port, asyncio.get_running_loop(), over])
        running.set()
        await over.wait()
        await server.stop(None)
        pool.shutdown()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert running.wait(CALL_S_MAX)
    port, loop, over = started
    try:
        yield address.replace(":0", f":{port}")
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(CALL_S_MAX)


@contextlib.contextmanager
def with_handlers_on_threads(*arguments: Any, **settings: Any) -> Iterator[str]:
    """A server in an event loop whose handlers are ordinary functions, which it runs on threads."""
    with in_a_loop(*arguments, orders=Orders(), **settings) as address:
        yield address


Serves = Callable[..., contextlib.AbstractContextManager[str]]


BOTH = pytest.mark.parametrize("serving", [on_threads, in_a_loop])
"""For what gRPC itself does not do with handlers on threads in an event loop."""


@pytest.fixture(params=[on_threads, in_a_loop, with_handlers_on_threads])
def serving(request: pytest.FixtureRequest) -> Serves:
    found: Serves = request.param
    return found


class CallEnd:
    def __init__(
        self, address: str, method: str, *, kind: str | None = None, metadata: Any = (), count: int = 0
    ) -> None:
        kind = kind or (method if method in KINDS else "unary_unary")
        with grpc.insecure_channel(address, options=OPTIONS) as channel:
            call: Any = getattr(channel, kind)(f"/{SERVICE}/{method}")
            request = iter([b"a", b"b"]) if kind.startswith("stream") else b"a"
            self.replies: list[bytes] = []
            ends: Any = None
            try:
                if kind.endswith("unary"):
                    reply, ends = call.with_call(request, metadata=metadata, timeout=CALL_S_MAX)
                    self.replies.append(reply)
                else:
                    ends = call(request, metadata=metadata, timeout=CALL_S_MAX)
                    for reply in ends:
                        self.replies.append(reply)
                        if count and len(self.replies) == count:
                            ends.cancel()
            except grpc.RpcError as error:
                ends = error
            self.code = ends.code()
            self.details = ends.details()
            self.metadata = dict(ends.trailing_metadata() or ())


def codes(address: str, *methods: str, **settings: Any) -> list[str]:
    return [CallEnd(address, method, **settings).code.name for method in methods]


# -------------------------------------------------------------------- what is limited, and what is said


def test_calls_of_all_kinds_are_answered_as_before_and_the_last_one_is_refused(serving: Serves) -> None:
    """Each says in its trailing metadata what is left, beside what the application says; whatever its kind."""
    with serving("4/hour") as address:
        answers = [CallEnd(address, kind) for kind in KINDS]
        refused = [CallEnd(address, kind) for kind in KINDS]
    expected = [f'"requests";r={left}' for left in (3, 2, 1, 0)]
    if serving is with_handlers_on_threads:
        expected[0] = ""  # there gRPC does not tell what the application says, so nothing can be added to it

    assert [[b"a"], [b"a", b"a"], [b"ab"], [b"a", b"b"]] == [answer.replies for answer in answers]
    assert expected == [answer.metadata.get("ratelimit", "").rpartition(";")[0] for answer in answers]
    assert "1" == answers[0].metadata["theirs"]
    assert [grpc.StatusCode.RESOURCE_EXHAUSTED] * 4 == [answer.code for answer in refused]
    assert [[]] * 4 == [answer.replies for answer in refused]
    assert all(int(answer.metadata["retry-after"]) > 0 for answer in refused)
    assert all('"requests";q=4;w=3600' == answer.metadata["ratelimit-policy"] for answer in refused)
    assert all(answer.details.startswith("The quota requests is used up.") for answer in refused)


def test_a_refusal_tells_clients_of_any_language_when_to_try_again(serving: Serves) -> None:
    """A detail of the status, which Google's libraries read, has the seconds of retry-after."""
    with serving("1/hour") as address:
        _, refused = [CallEnd(address, "unary_unary") for _ in range(2)]

    after_s = int(refused.metadata["retry-after"])
    assert retry_info(8, refused.details, after_s) == refused.metadata["grpc-status-details-bin"]


def test_what_is_written_by_hand_is_what_protocol_buffers_write() -> None:
    """The detail is a `google.rpc.RetryInfo`, for short and for long times."""
    for after_s in (1, 127, 128, 3600, 10**9):
        delay = duration_pb2.Duration(seconds=after_s).SerializeToString()
        info = b"\x0a" + bytes([len(delay)]) + delay
        detail = any_pb2.Any(type_url="type.googleapis.com/google.rpc.RetryInfo", value=info).SerializeToString()

        assert b"\x08\x08\x12\x02no\x1a" + bytes([len(detail)]) + detail == retry_info(8, "no", after_s)


def test_refusals_keep_no_threads(serving: Serves) -> None:
    """Neither while the server goes on, with far more of them than it has threads, nor when it stops just then."""
    rules = [Rule(limits="1/hour", paths=[f"/{SERVICE}/unary_stream"])]
    with serving(rules=rules) as address:
        found = codes(address, *["unary_stream"] * (4 * THREADS))
        served = codes(address, "unary_unary")
    for _ in range(STOPS):
        with serving(rules=rules) as address:
            found += codes(address, *["unary_stream"] * 2)

    assert (1 + STOPS, 4 * THREADS - 1 + STOPS) == (found.count("OK"), found.count("RESOURCE_EXHAUSTED"))
    assert ["OK"] == served


def test_load_is_shed_as_unavailable(serving: Serves) -> None:
    """A rule of status 503 refuses so."""
    with serving(rules=[Rule(limits="1/hour", status=503)]) as address:
        assert ["OK", "UNAVAILABLE"] == codes(address, "unary_unary", "unary_unary")


def test_rules_are_about_methods(serving: Serves) -> None:
    """By path, as they are called; and whoever calls a method that is not there is told so."""
    rules = [Rule(limits="1/hour", paths=[f"/{SERVICE}/unary_stream"])]
    with serving("9/hour", rules=rules, key_func=by_rpc) as address:
        found = codes(address, "unary_unary", "unary_stream", "unary_unary", "unary_stream", "nowhere")

    assert ["OK", "OK", "OK", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED"] == found


def test_methods_of_http_are_no_methods_of_grpc() -> None:
    """A rule that could never match is a mistake, which is told when it is declared."""
    for kind in (RateLimitInterceptor, AioRateLimitInterceptor):
        with pytest.raises(InvalidSetting, match="paths="):
            kind(rules=[Rule(limits="1/hour", methods=["/shop.Orders/Place"])])


# -------------------------------------------------------------------- messages


STREAMS = {"stream_unary": "stream_unary", "stream_stream": "stream_stream", "reading": "stream_unary"}
"""Methods whose client sends a stream, of two messages here, and their kind."""


@pytest.mark.parametrize("method", STREAMS)
def test_a_call_ends_with_one_message_too_many(method: str, serving: Serves) -> None:
    """However its handler takes messages; and others go on, as messages of their clients are none of a stream."""
    with serving(messages="3/hour") as address:
        served, refused = (CallEnd(address, method, kind=STREAMS[method]) for _ in range(2))
        single = CallEnd(address, "unary_stream")

    assert (grpc.StatusCode.OK, b"ab") == (served.code, b"".join(served.replies))
    assert grpc.StatusCode.RESOURCE_EXHAUSTED == refused.code
    assert refused.replies in ([], [b"a"])
    assert "The quota messages is used up." in refused.details
    assert int(refused.metadata["retry-after"]) > 0
    assert grpc.StatusCode.OK == single.code


def test_messages_are_counted_by_method_if_asked(serving: Serves) -> None:
    """By a rule like any other, beside the limit of calls, which a call has that ends so has used."""
    rule = Rule(limits="3/hour", name="said", paths=[f"/{SERVICE}/stream_unary"])
    with serving("9/hour", messages=rule) as address:
        found = codes(address, "stream_unary", "stream_stream", "stream_stream", "stream_unary")
        left = CallEnd(address, "unary_stream").metadata["ratelimit"]

    assert ["OK", "OK", "OK", "RESOURCE_EXHAUSTED"] == found
    assert left.startswith('"requests";r=4')


def test_streams_that_end_with_a_message_keep_no_threads(serving: Serves) -> None:
    """Neither while the server goes on, nor when it stops just then."""
    with serving(messages="1/hour") as address:
        found = codes(address, *["stream_stream", "stream_unary"] * (2 * THREADS))
        served = codes(address, "unary_unary")
    for _ in range(STOPS):
        with serving(messages="1/hour") as address:
            found += codes(address, "stream_stream")

    assert {"RESOURCE_EXHAUSTED"} == set(found)
    assert ["OK"] == served


# -------------------------------------------------------------------- what depends on the end of a call


@BOTH
def test_what_depends_on_the_end_of_a_call_is_settled_by_it(serving: Serves) -> None:
    """The end of a success, an abort, and a failure is an HTTP status."""
    settled: list[int] = []

    def settle(response: Response) -> int:
        settled.append(response.status)
        return 0

    with serving(rules=[Rule(limits="3/hour", settle=settle)]) as address:
        found = codes(address, "unary_unary", "unary_stream", "aborting", "broken", "unary_unary")
        eventually(lambda: len(settled) == 5, "all calls are settled")

    assert ["OK", "OK", "NOT_FOUND", "UNKNOWN", "OK"] == found
    assert [200, 200, 404, 500, 200] == settled


@BOTH
def test_a_client_that_goes_away_ends_the_stream(serving: Serves) -> None:
    """In the middle of a stream without an end; and what it has cost is settled."""
    settled: list[Response] = []

    def settle(response: Response) -> int:
        settled.append(response)
        return 0

    ended.clear()
    with serving(rules=[Rule(limits="3/hour", settle=settle)]) as address:
        answer = CallEnd(address, "endless", kind="unary_stream", count=3)
        eventually(ended.is_set, "the stream has ended")
        eventually(lambda: settled, "the stream is settled")

    assert grpc.StatusCode.CANCELLED == answer.code
    assert (499, False) == (settled[0].status, settled[0].complete)


# -------------------------------------------------------------------- whom a call is counted for


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.0.2.1:4711", "192.0.2.1:4711"),
        ("ipv6:[2001:db8::1]:4711", "[2001:db8::1]:4711"),
        ("ipv6:%5B2001:db8::1%5D:4711", "[2001:db8::1]:4711"),
        ("unix:", None),
        ("unix:/run/shop.sock", None),
        ("unix-abstract:shop", None),
        ("inproc", None),
        ("", None),
    ],
)
def test_a_peer_has_an_address_or_none(peer: str, address: str | None) -> None:
    """GRPC of old versions and new ones writes them differently."""
    assert address == address_of(peer)


def test_ports_and_neighbours_in_ipv6_make_no_new_keys() -> None:
    """All of a network of 64 bits count as one, whatever ports they come from; an IPv4 address is one key."""

    class Call:
        """A context that says where it comes from, and a call's details."""

        method = "/shop.Orders/Place"
        invocation_metadata = ()

        def __init__(self, peer: str) -> None:
            self._peer = peer

        def peer(self) -> str:
            return self._peer

    peers = ["ipv6:[2001:db8::1]:1", "ipv6:[2001:db8::2]:2", "ipv4:192.0.2.1:1", "ipv4:192.0.2.1:2", "unix:/run/a"]
    keys = [by_peer(GrpcRequest(Call(peer), Call(peer), Addresses())) for peer in peers]

    assert ["2001:db8::/64"] * 2 + ["192.0.2.1"] * 2 + [None] == keys


def test_those_who_come_through_a_unix_socket_count_together(serving: Serves, tmp_path: Path) -> None:
    """They have no address, and none they could make up."""
    with serving("1/hour", address=f"unix:{tmp_path}/shop.sock") as address:
        forged = [(("x-forwarded-for", f"192.0.2.{number}"),) for number in range(2)]
        found = [codes(address, "unary_unary", metadata=metadata) for metadata in forged]

    assert [["OK"], ["RESOURCE_EXHAUSTED"]] == found
