"""Transports for httpx that keep the calls of all workers inside one quota."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar, Unpack

from reconverge.decision import Decision
from reconverge.errors import InvalidSetting, MissingExtra, PortableError
from reconverge.integrations.clients.outgoing import ChargeOf, Outgoing, OutgoingSettings, checked_call, used_up
from reconverge.integrations.misplaced import CallAtTransport, warn_if_unused
from reconverge.limiter.faces.rate_limiter import RateLimiter

try:
    import httpx
except ImportError as error:
    raise MissingExtra("the transports for httpx", "httpx", "httpx") from error

Key = Callable[[httpx.Request], str | None]
"""A function of a call's request that returns the key whose quota the call uses; None for a call without a limit."""
Cost = Callable[[httpx.Request], int]
_T = TypeVar("_T")


class QuotaUsedUp(PortableError, httpx.TransportError):
    """Raised in place of sending a call: the quota has no room for it, or the server's refusal has paused calls.

    `decision` has the reason. Another try may succeed in `retry_after` seconds.
    """

    def __init__(self, decision: Decision, request: httpx.Request) -> None:
        self.decision = decision
        self.retry_after = decision.retry_after
        super().__init__(used_up(by_origin(request), decision), request=request)


def by_origin(request: httpx.Request) -> str:
    """Returns the default key of a call: the host and port of its server, such as `api.example.com:443`."""
    port = request.url.port or {"http": 80, "https": 443}.get(request.url.scheme, 0)
    return f"{request.url.host}:{port}"


PAST: Final = "if there were calls, the client's proxy= or mounts= led past it; write %s(limiter, httpx.%s(proxy=...))"
ASYNC: Final = frozenset({"__aenter__", "aclose", "handle_async_request"})
SYNC: Final = frozenset({"__enter__", "close", "handle_request"})
"""The attributes of a transport that only one kind of client reads."""


def _hint(transport: object, name: str, others: frozenset[str], place: str) -> str:
    """Returns the error message for the missing attribute `name` of a transport.

    If the name is in `others`, the attributes that only the other kind of client reads, the message adds `place`: the
    client that this transport is for, and the transport to use instead.
    """
    hint = f": it is for {place}" if name in others else ""
    if name == "send":  # which a session of requests calls
        hint = ": it is for httpx; write LimitedAdapter of reconverge.integrations.requests in a session of requests"
    if name == "_loop":  # which a session of aiohttp reads
        hint = ": it is for httpx; with a client of aiohttp, write await limiter.wait(key) before each call"
    return f"{type(transport).__name__!r} object has no attribute {name!r}{hint}"


def _has_called(transport: object) -> bool:
    """Returns whether a client with this transport has sent calls."""
    clients = [each for each in gc.get_objects() if issubclass(type(each), httpx.Client | httpx.AsyncClient)]
    return any(
        getattr(each, "_transport", None) is transport
        and getattr(getattr(each, "_state", None), "name", "") == "OPENED"
        for each in clients
    )


def _checked(inner: _T, method: str, write: str) -> _T:
    """Returns a transport that has the method by which it sends. Raises InvalidSetting if it has not."""
    if not callable(getattr(inner, method, None)) or isinstance(inner, type):
        raise InvalidSetting("inner", inner, f"is no transport with {method}(); write httpx.{write}()")
    return inner


class LimitedTransport(httpx.BaseTransport):
    """A transport of an httpx client that sends calls when their quota has room for them.

    An example:

        with httpx.Client(transport=LimitedTransport(agent.limit("api", "100/minute"))) as client:
            client.get("https://api.example.com/")

    Calls wait for their turn, in order of arrival in each process. Each redirect is a call of its own. A refusal by the
    server pauses the calls of all workers until the time that it names.

    Args:
        limiter: the quota; each key has its own.
        inner: the transport that sends; `httpx.HTTPTransport()` by default.
        key: returns the key whose quota a call uses, or None for a call that is not limited; by default its server.
        cost: returns the cost of a call; 1 by default.
        timeout, max_queue, listen, in_doubt, server, resource: see
            `reconverge.integrations.clients.outgoing.Outgoing`.

    Raises:
        QuotaUsedUp: raised by a call that would wait for longer than `timeout`, or if too many calls wait already.
        InvalidSetting: a setting is invalid.
    """

    def __init__(
        self,
        limiter: RateLimiter,
        inner: httpx.BaseTransport | None = None,
        *,
        key: Key = by_origin,
        cost: Cost | None = None,
        **settings: Unpack[OutgoingSettings],
    ) -> None:
        self.outgoing = Outgoing(limiter, **settings)
        self._inner = httpx.HTTPTransport() if inner is None else _checked(inner, "handle_request", "HTTPTransport")
        self._charge_of = ChargeOf(key, cost)
        self._unused = warn_if_unused(self, limiter, PAST % ("LimitedTransport", "HTTPTransport"), _has_called)

    def handle_request(self, request: httpx.Request | None = None) -> httpx.Response:
        request = checked_call(request, LimitedTransport)
        method, path = request.method, request.url.path
        with CallAtTransport(self._unused):
            charge = self._charge_of(request)
            decision = None if charge is None else self.outgoing.admit_blocking(*charge, method, path)
        if charge is None:
            return self._inner.handle_request(request)
        if decision is not None and not decision:
            raise QuotaUsedUp(decision, request)
        response = self._inner.handle_request(request)
        self.outgoing.learn(charge[0], response.status_code, response.headers, method, path)
        return response

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(_hint(self, name, ASYNC, "httpx.Client; write AsyncLimitedTransport in AsyncClient"))

    def close(self) -> None:
        self._unused()
        self._inner.close()


class AsyncLimitedTransport(httpx.AsyncBaseTransport):
    """Limits an `httpx.AsyncClient` under asyncio, as `LimitedTransport` limits a `httpx.Client`."""

    def __init__(
        self,
        limiter: RateLimiter,
        inner: httpx.AsyncBaseTransport | None = None,
        *,
        key: Key = by_origin,
        cost: Cost | None = None,
        **settings: Unpack[OutgoingSettings],
    ) -> None:
        self.outgoing = Outgoing(limiter, **settings)
        sends = "handle_async_request"
        self._inner = httpx.AsyncHTTPTransport() if inner is None else _checked(inner, sends, "AsyncHTTPTransport")
        self._charge_of = ChargeOf(key, cost)
        self._unused = warn_if_unused(
            self, limiter, PAST % ("AsyncLimitedTransport", "AsyncHTTPTransport"), _has_called
        )

    async def handle_async_request(self, request: httpx.Request | None = None) -> httpx.Response:
        request = checked_call(request, AsyncLimitedTransport)
        method, path = request.method, request.url.path
        with CallAtTransport(self._unused):
            charge = self._charge_of(request)
            decision = None if charge is None else await self.outgoing.admit(*charge, method, path)
        if charge is None:
            return await self._inner.handle_async_request(request)
        if decision is not None and not decision:
            raise QuotaUsedUp(decision, request)
        response = await self._inner.handle_async_request(request)
        self.outgoing.learn(charge[0], response.status_code, response.headers, method, path)
        return response

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(_hint(self, name, SYNC, "httpx.AsyncClient; write LimitedTransport in Client"))

    async def aclose(self) -> None:
        self._unused()
        await self._inner.aclose()
