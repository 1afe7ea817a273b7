"""Limits in gRPC servers: one interceptor for servers on threads, and one for servers on asyncio.

server = grpc.server(pool, interceptors=[RateLimitInterceptor("100/minute", agent="redis://localhost:6379/0")])
server = grpc.aio.server(interceptors=[AioRateLimitInterceptor("100/minute", agent="redis://localhost:6379/0")])
"""

# gRPC clients rarely read response headers; their libraries read the time to wait from a `google.rpc.RetryInfo` in the
# details of the status. That detail is encoded by hand, as three numbers and three strings do not justify a dependency
# on protocol buffers. An interceptor learns the peer only when the handler is called, and gRPC decides by the kind of a
# function how to call it. So the handler is wrapped in a function of the same kind. A refused synchronous stream is not
# aborted, but sets the status and ends: if an asyncio server stops after such a stream was aborted, its thread waits
# for ever.
from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, Unpack, cast

from reconverge.errors import InvalidSetting, MissingExtra
from reconverge.integrations.grpc.request import Context, Details, GrpcRequest, retry_info, text_of
from reconverge.integrations.web.bound_rule import Declared
from reconverge.integrations.web.fields import OF_CONTENT, RETRY_AFTER
from reconverge.integrations.web.guard import Guard
from reconverge.integrations.web.options import GuardSettings, one_of
from reconverge.integrations.web.outcome import Outcome
from reconverge.integrations.web.request.key_sources import check_unrouted
from reconverge.integrations.web.request.keys import by_header, by_ip, by_route
from reconverge.integrations.web.request.paths import BELOW
from reconverge.integrations.web.request.request import CANCELLED, FAILED, Response
from reconverge.integrations.web.rules import Limits, Rule, all_rules, check_blocking

try:
    import grpc
    import grpc.aio
except ModuleNotFoundError as error:
    raise MissingExtra("the interceptor for gRPC", error.name or "grpcio", "grpc") from error

Metadata: TypeAlias = list[tuple[str, str | bytes]]

by_peer = by_ip
"""A key function: returns the address of the peer, or of the client that a trusted proxy names."""
by_metadata = by_header
"""Makes a key function that returns the value of a metadata key, such as an API key."""
by_rpc = by_route
"""A key function: returns the full name of the called method, such as `/shop.Orders/Place`."""

HTTP_STATUS: Final = (200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401)
"""The HTTP status for each of gRPC's status codes 0 to 16. Functions of rules that take a response get this status."""
ONE_OR_MANY: Final = {False: "unary", True: "stream"}
HEALTH: Final = "/grpc.health.v1.Health/"
"""The beginning of the names of the standard methods for health checks."""
STATUS_DETAILS: Final = "grpc-status-details-bin"

THREADS: Final = "a server on threads"

_outcome: ContextVar[Outcome | None] = ContextVar("reconverge_outcome", default=None)


class Interceptor:
    """Limits the calls of a gRPC server; the base class of both interceptors.

    Args:
        limits: the limits of all calls together except health checks, counted per key; see `Rule.limits`.
        rules: further limits, for example of some methods: `paths=["/shop.Orders/*"]`. Only a rule with `paths` can
            limit health checks: an orchestrator restarts a server that refuses them.
        messages: limits of the messages in clients' streams, counted per key over all its calls; a message over the
            limit ends its call.
        guard: the settings that all the limits share; or give these settings, such as `agent`, as keyword arguments.

    Raises:
        InvalidLimit, InvalidSetting, LimitConflict: a limit or a setting is invalid, or a name is taken.
    """

    waits = True

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        rules: Sequence[Rule] = (),
        messages: Rule | Limits | None = None,
        guard: Guard | None = None,
        **settings: Unpack[GuardSettings],
    ) -> None:
        self.guard = one_of(guard, self, **settings) or Guard(**settings)
        if not self.waits:
            self.guard.check_blocking(THREADS)
        self._rules = [self._declared(rule) for rule in all_rules(limits, rules, besides=messages)]
        self._of_health = [declared for declared in self._rules if declared.places is not None]
        self._messages: list[Declared] = []
        if messages is not None:
            rule = messages if isinstance(messages, Rule) else Rule(limits=messages)
            self._messages.append(self._declared(rule, name="messages"))

    if not TYPE_CHECKING:  # hidden from type checkers, which find the mistake themselves

        def __iter__(self) -> NoReturn:
            """Raises InvalidSetting: a server of gRPC was given an interceptor in place of a list of them."""
            raise InvalidSetting("interceptors", self, "is not a list; write interceptors=[interceptor]")

    def _declared(self, rule: Rule, *, name: str | None = None) -> Declared:
        if rule.methods is not None:
            raise InvalidSetting("methods", rule.methods, "is for HTTP only; write paths=['/package.Service/Method']")
        if not self.waits:
            check_blocking(rule, THREADS)
        for path in rule.paths or ():
            if not (path.endswith(BELOW) or {"{", "<"} & {*path} or len([*filter(None, path.split("/"))]) == 2):
                problem = "is no full method, so no call would match; write /shop.Orders/* or /shop.Orders/Create"
                raise InvalidSetting("paths", path, problem)
        declared = self.guard.declare(rule, name=name)
        check_unrouted(
            declared.key_function, "finds no key, as gRPC has no path parameters; use by_metadata, by_peer or by_rpc"
        )
        return declared

    def _handler(self, handler: Any, details: Details) -> Any:
        """Returns the limited handler of a method; None if the method does not exist."""
        if handler is None:
            return None
        kind = f"{ONE_OR_MANY[handler.request_streaming]}_{ONE_OR_MANY[handler.response_streaming]}"
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        behavior = getattr(handler, kind)
        if self._messages and handler.request_streaming:
            behavior = self._counting(behavior, details, streams=handler.response_streaming)
        behavior = self._behavior(behavior, details, streams=handler.response_streaming)
        return make(behavior, handler.request_deserializer, handler.response_serializer)

    def _behavior(self, behavior: Any, details: Details, *, streams: bool) -> Any:
        """Wraps the handler `behavior` so that each call is checked first; `streams` means that it streams responses.

        The wrapper is the same kind of function as the handler (plain, generator, coroutine), because gRPC depends on
        it.
        """
        kinds = (self._stream_slowly, self._answer_slowly, self._stream, self._answer)
        return _alike(behavior, *(functools.partial(each, behavior, details) for each in kinds), streams=streams)

    def _counting(self, behavior: Any, details: Details, *, streams: bool) -> Any:
        """Wraps the handler `behavior`, by a function of the same kind, so that the client's messages are counted."""

        def call_of(context: Context) -> _CountedCall:
            return _CountedCall(self.guard, self._messages, details, context)

        async def stream_slowly(requests: Any, context: Context) -> AsyncIterator[Any]:
            call = call_of(context)
            async with aclosing(behavior(call.all_slowly(requests), call)) as parts:
                async for part in parts:
                    yield part

        async def answer_slowly(requests: Any, context: Context) -> Any:
            call = call_of(context)
            return await behavior(call.all_slowly(requests), call)

        def stream(requests: Any, context: Context) -> Iterator[Any]:
            with suppress(_TooMany):  # not aborted, for the reason in `_stream`
                yield from behavior(call_of(context).all(requests), context)

        def answer(requests: Any, context: Context, *more: Any) -> Any:
            try:
                return behavior(call_of(context).all(requests), context, *more)
            except _TooMany as error:
                return context.abort(*error.args)

        return _alike(behavior, stream_slowly, answer_slowly, stream, answer, streams=streams)

    def _rules_for(self, details: Details) -> Sequence[Declared]:
        return self._of_health if details.method.startswith(HEALTH) else self._rules

    def _check(self, details: Details, context: Context) -> Outcome:
        return self.guard.check(GrpcRequest(details, context, self.guard.addresses), self._rules_for(details))

    async def _check_slowly(self, details: Details, context: Context) -> Outcome:
        request = GrpcRequest(details, context, self.guard.addresses)
        return await self.guard.check_async(request, self._rules_for(details))

    def _answer(self, behavior: Any, details: Details, request: Any, context: Context, *more: Any) -> Any:
        outcome = self._check(details, context)
        if not outcome.allowed:
            return context.abort(*_refusal(outcome, context))
        with _ServingCall(outcome, context):
            return behavior(request, context, *more)

    def _stream(self, behavior: Any, details: Details, request: Any, context: Context) -> Iterator[Any]:
        outcome = self._check(details, context)
        if not outcome.allowed:
            # Not aborted: if an asyncio server stops, an aborted synchronous stream may keep its thread.
            code, message = _refusal(outcome, context)
            context.set_code(code)
            context.set_details(message)
            return
        with _ServingCall(outcome, context):
            yield from behavior(request, context)

    async def _answer_slowly(self, behavior: Any, details: Details, request: Any, context: Context) -> Any:
        outcome = await self._check_slowly(details, context)
        if not outcome.allowed:
            await context.abort(*_refusal(outcome, context))
        with _ServingCall(outcome, context):
            return await behavior(request, context)

    async def _stream_slowly(
        self, behavior: Any, details: Details, request: Any, context: Context
    ) -> AsyncIterator[Any]:
        outcome = await self._check_slowly(details, context)
        if not outcome.allowed:
            await context.abort(*_refusal(outcome, context))
        with _ServingCall(outcome, context):
            async with aclosing(behavior(request, context)) as parts:
                async for part in parts:
                    yield part


def _alike(behavior: Any, stream_slowly: Any, answer_slowly: Any, stream: Any, answer: Any, *, streams: bool) -> Any:
    """Returns the one of four wrappers that is the same kind of function as the handler `behavior`, with its name.

    `streams` means that the handler streams its responses.
    """
    wrapper = answer
    if inspect.isasyncgenfunction(behavior):
        wrapper = stream_slowly
    elif inspect.iscoroutinefunction(behavior):
        wrapper = answer_slowly
    elif streams and not getattr(behavior, "experimental_non_blocking", False):
        wrapper = stream
    return functools.wraps(behavior)(wrapper)


class RateLimitInterceptor(Interceptor, grpc.ServerInterceptor):  # type: ignore[misc]  # gRPC has no types
    """Limits the calls to a `grpc.server`; see `Interceptor`."""

    waits = False

    def intercept_service(
        self, continuation: Callable[[Details], Any], handler_call_details: Details | None = None
    ) -> Any:
        if handler_call_details is None:  # the server was given the class, and calls its function
            said = "is a class; pass an object of it: RateLimitInterceptor('100/minute')"
            raise InvalidSetting("interceptors", RateLimitInterceptor, said)
        return self._handler(continuation(handler_call_details), handler_call_details)


class AioRateLimitInterceptor(Interceptor, grpc.aio.ServerInterceptor):  # type: ignore[misc]  # likewise
    """Limits the calls to a `grpc.aio.server`; see `Interceptor`. Functions in settings may be coroutine functions."""

    @classmethod
    def __subclasshook__(cls, other: type[object], /) -> Any:
        """Raises InvalidSetting for the other interceptor; `grpc.aio.server` checks its interceptors' classes so.

        Its own error names neither the interceptor nor the one to write.
        """
        if RateLimitInterceptor in other.__mro__:
            said = "is for grpc.server; write AioRateLimitInterceptor in grpc.aio.server"
            raise InvalidSetting("interceptors", other, said)
        return NotImplemented

    # As a coroutine function it would end the thread of a `grpc.server`, before it could raise.
    def intercept_service(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, continuation: Callable[[Details], Any], handler_call_details: Details
    ) -> Awaitable[Any]:
        found = continuation(handler_call_details)
        if not inspect.isawaitable(found):
            said = "is for grpc.aio.server; write RateLimitInterceptor in grpc.server"
            raise InvalidSetting("interceptors", type(self), said)
        return self._handler_slowly(found, handler_call_details)

    async def _handler_slowly(self, found: Awaitable[Any], details: Details) -> Any:
        return self._handler(await found, details)


def current_outcome() -> Outcome | None:
    """Returns the outcome of the call that is being served; None outside of a call."""
    return _outcome.get()


class _TooMany(Exception):
    """Raised in a handler on threads for a message over the limit; its arguments are the call's status and its text."""


class _CountedCall:
    """A call of gRPC whose messages from the client are counted.

    An asynchronous handler gets this object as its context: all attributes not defined here are those of gRPC's
    context.
    """

    def __init__(self, guard: Guard, rules: Sequence[Declared], details: Details, context: Context) -> None:
        self._guard = guard
        self._rules = rules
        self._request = GrpcRequest(details, context, guard.addresses)
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def all(self, messages: Any) -> Iterator[Any]:
        """Yields the client's messages; raises _TooMany for a message over the limit.

        The call then ends with the status of a refusal, even if the handler catches the error.
        """
        for message in messages:
            outcome = self._guard.check(self._request, self._rules)
            outcome.finish(Response(200))
            if not outcome.allowed:
                code, said = _refusal(outcome, self._context)
                self._context.set_code(code)
                self._context.set_details(said)
                raise _TooMany(code, said)
            yield message

    async def all_slowly(self, messages: Any) -> AsyncIterator[Any]:
        """Yields the client's messages. Aborts the call at a message over the limit."""
        async for message in messages:
            yield await self._count(message)

    async def read(self) -> Any:
        """Returns the client's next message, as gRPC's context does. Aborts the call at a message over the limit."""
        message, aio = await self._context.read(), cast("Any", grpc.aio)  # its type stubs lack EOF
        return message if message is aio.EOF else await self._count(message)

    async def _count(self, message: Any) -> Any:
        outcome = await self._guard.check_async(self._request, self._rules)
        outcome.finish(Response(200))
        if not outcome.allowed:
            await self._context.abort(*_refusal(outcome, self._context))
        return message


class _ServingCall:
    """A context manager around an admitted call: it sends the limits' fields as metadata, and settles the outcome."""

    def __init__(self, outcome: Outcome, context: Context) -> None:
        self._outcome = outcome
        self._context = context
        self._fields = _metadata(outcome.fields)

    def __enter__(self) -> None:
        _outcome.set(self._outcome)
        _add_metadata(self._context, self._fields)

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: object) -> None:
        metadata = getattr(self._context, "trailing_metadata", None)
        if metadata is not None:  # otherwise the application's own metadata is unknown, and would be overwritten
            _add_metadata(self._context, self._fields)
        if self._outcome.unsettled:
            headers = {key: text_of(value) for key, value in (metadata() if metadata else ()) or ()}
            status = self._status(error)
            self._outcome.finish(Response(status, headers, complete=error is None, raw=self._context))

    def _status(self, error: BaseException | None) -> int:
        code = getattr(self._context, "code", int)()
        number = code.value[0] if isinstance(code, grpc.StatusCode) else code or 0
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            return CANCELLED
        return FAILED if error is not None and number == 0 else HTTP_STATUS[number]


def _refusal(outcome: Outcome, context: Context) -> tuple[Any, str]:
    """Adds a refusal's fields to a call's trailing metadata; returns the status that ends it, and its message."""
    refusal = outcome.refusal
    assert refusal is not None
    code = grpc.StatusCode.UNAVAILABLE if refusal.status == 503 else grpc.StatusCode.RESOURCE_EXHAUSTED
    message = refusal.detail.encode("ascii", "replace").decode()
    metadata = _metadata(refusal.fields)
    for name, value in refusal.fields:
        if name == RETRY_AFTER:
            metadata.append((STATUS_DETAILS, retry_info(code.value[0], message, int(value))))
    _add_metadata(context, metadata)
    return code, message


def _metadata(fields: Sequence[tuple[str, str]]) -> Metadata:
    return [(name.lower(), value) for name, value in fields if name.lower() not in OF_CONTENT]


def _add_metadata(context: Context, metadata: Metadata) -> None:
    there: tuple[Any, ...] = tuple(getattr(context, "trailing_metadata", tuple)() or ())
    missing = [each for each in metadata if each not in there]
    if missing:
        context.set_trailing_metadata((*there, *missing))
