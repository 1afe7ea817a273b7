"""An adapter for requests that keeps the calls of all workers inside one quota."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from copy import copy
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import urlsplit

from reconverge.arguments import NAMELESS, with_advice
from reconverge.clock import Seconds
from reconverge.decision import Decision
from reconverge.errors import MissingExtra, PortableError
from reconverge.integrations.clients.outgoing import TIMEOUT_S, ChargeOf, Outgoing, checked_call, used_up
from reconverge.integrations.misplaced import CallAtTransport, warn_if_unused
from reconverge.integrations.servers import ANY_SERVER, Server
from reconverge.limiter.asking import ASK
from reconverge.limiter.faces.rate_limiter import RateLimiter

try:
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.response import BaseHTTPResponse
    from urllib3.util.retry import Retry
except ImportError as error:
    raise MissingExtra("the adapter for requests", "requests", "requests") from error

Key = Callable[[requests.PreparedRequest], str | None]
"""A function of a call's request that returns the key whose quota the call uses; None for a call without a limit."""
Cost = Callable[[requests.PreparedRequest], int]
PAST: Final = (
    "if there were calls, the session had no prefix for them; mount the adapter at one with a scheme, as in"
    " session.mount('https://api.example.com/', adapter)"
)


class QuotaUsedUp(PortableError, requests.RequestException):
    """Raised in place of sending a call: the quota has no room for it, or the server's refusal has paused calls.

    `decision` has the reason. Another try may succeed in `retry_after` seconds.
    """

    def __init__(self, decision: Decision, request: requests.PreparedRequest) -> None:
        self.decision = decision
        self.retry_after = decision.retry_after
        super().__init__(used_up(by_origin(request), decision), request=request)


def by_origin(request: requests.PreparedRequest) -> str:
    """Returns the default key of a call: the host and port of its server, such as `api.example.com:443`."""
    parts = urlsplit(request.url or "")
    return f"{parts.hostname or ''}:{parts.port or {'http': 80, 'https': 443}.get(parts.scheme, 0)}"


def _has_called(adapter: object) -> bool:
    """Returns whether a session with this adapter has sent calls by another one."""
    sessions = [each for each in gc.get_objects() if issubclass(type(each), requests.Session)]
    beside = [set(each.adapters.values()) for each in sessions if adapter in each.adapters.values()]
    pools = [getattr(getattr(each, "poolmanager", None), "pools", ()) for several in beside for each in several]
    return any(map(len, pools))


OF_ADAPTER: Final = {NAMELESS: "stands without a name; write LimitedAdapter(limiter, max_retries=3), with each name"}
OF_OPTIONS: Final = {
    "retries": "is called max_retries here, as in requests; write LimitedAdapter(limiter, max_retries=3)"
}
"""Arguments that callers wrongly pass to `LimitedAdapter`, each with its error message."""


@with_advice(OF_ADAPTER)
class LimitedAdapter(HTTPAdapter):
    """An adapter of a requests session that sends calls when their quota has room for them.

    An example:

        session = requests.Session()
        session.mount("https://api.example.com/", LimitedAdapter(agent.limit("api", "100/minute")))

    It works as `reconverge.integrations.httpx.LimitedTransport`, with the same arguments; further `options` are those
    of `requests.adapters.HTTPAdapter`. If that adapter retries a call by itself (`max_retries`), each try is charged,
    waits for its turn and for pauses, and may raise QuotaUsedUp.
    """

    def __init__(
        self,
        limiter: RateLimiter,
        *,
        key: Key = by_origin,
        cost: Cost | None = None,
        timeout: Seconds | None = TIMEOUT_S,
        max_queue: int | None = None,
        listen: bool = True,
        in_doubt: str = ASK,
        server: Server = ANY_SERVER,
        resource: str | None = None,
        **options: Any,
    ) -> None:
        self.outgoing = Outgoing(
            limiter,
            timeout=timeout,
            max_queue=max_queue,
            listen=listen,
            in_doubt=in_doubt,
            server=server,
            resource=resource,
        )
        self._charge_of = ChargeOf(key, cost)
        self._unused = warn_if_unused(self, limiter, PAST, _has_called)
        with_advice(OF_OPTIONS)(super().__init__)(**options)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state to pickle with a session. The method of `HTTPAdapter` would leave out the limit."""
        ours = {"outgoing": self.outgoing, "_charge_of": self._charge_of}
        return {**super().__getstate__(), **ours, "max_retries": _as_given(self.max_retries)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._unused = warn_if_unused(self, self.outgoing.limiter, PAST, _has_called)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            of_httpx = name in ("handle_request", "handle_async_request", "__enter__", "__aenter__")
            hint = ": it is for requests; write LimitedTransport of reconverge.integrations.httpx" if of_httpx else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    def close(self) -> None:
        self._unused()
        super().close()

    def send(self, request: requests.PreparedRequest | None = None, *args: Any, **options: Any) -> requests.Response:
        request = checked_call(request, LimitedAdapter)
        this: _Tries | None = None
        with CallAtTransport(self._unused):
            charge = self._charge_of(request)
            if charge is not None:
                this = _Tries(self.outgoing, request, *charge)
                this.admit()
        if this is None:
            return super().send(request, *args, **options)
        if not isinstance(self.max_retries, _EachTry):
            self.max_retries = _charging(self.max_retries)
        outer = _tries.set(this)
        try:
            response = super().send(request, *args, **options)
        except _NotSent as not_sent:
            raise not_sent.error from None
        finally:
            _tries.reset(outer)
        this.learn(response.status_code, response.headers)
        return response


class _NotSent(Exception):
    """Carries a QuotaUsedUp through urllib3 and requests, which would take that OSError for a failed connection."""

    def __init__(self, error: QuotaUsedUp) -> None:
        self.error = error
        super().__init__(str(error))


class _Tries:
    """One call of an adapter. Each try to send the call is charged, waits for its turn, and may be refused."""

    def __init__(self, outgoing: Outgoing, request: requests.PreparedRequest, key: str, cost: int) -> None:
        self._outgoing = outgoing
        self._request = request
        self._key = key
        self._cost = cost
        self._method = request.method or ""
        self._path = urlsplit(request.url or "").path

    def admit(self) -> None:
        decision = self._outgoing.admit_blocking(self._key, self._cost, self._method, self._path)
        if decision is not None and not decision:
            raise QuotaUsedUp(decision, self._request)

    def learn(self, status: int, fields: Mapping[str, str]) -> None:
        self._outgoing.learn(self._key, status, fields, self._method, self._path)


_tries: Final[ContextVar[_Tries]] = ContextVar("reconverge_tries")


class _EachTry(Retry):
    """A retry policy of urllib3 that charges the quota before each further try is sent."""

    def sleep(self, response: BaseHTTPResponse | None = None) -> None:
        this = _tries.get(None)
        if this is not None and response is not None:
            this.learn(response.status, response.headers)
        super().sleep(response)
        if this is not None:
            try:
                this.admit()
            except QuotaUsedUp as error:
                raise _NotSent(error) from None


def _charging(retries: Retry) -> Retry:
    """Returns a copy of the retry policy `retries` that charges the quota for each further try."""
    charged = copy(retries)
    charged.__class__ = type(type(retries).__name__, (_EachTry, type(retries)), {})
    return charged


def _as_given(retries: Retry) -> Retry:
    """Returns `retries` as the application has passed it, so that it can be pickled: the reverse of `_charging`."""
    if not isinstance(retries, _EachTry):
        return retries
    given = copy(retries)
    given.__class__ = type(retries).__bases__[1]
    return given
