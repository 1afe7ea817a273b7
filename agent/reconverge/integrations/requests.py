"""An adapter for requests that keeps the calls of all workers inside one quota."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from reconverge.clock import Seconds
from reconverge.decision import Decision
from reconverge.errors import MissingExtra, PortableError
from reconverge.integrations.clients.outgoing import TIMEOUT_S, Outgoing, used_up
from reconverge.limiter.doubt import ASK
from reconverge.limiter.faces.rate_limiter import RateLimiter

try:
    import requests
    from requests.adapters import HTTPAdapter
except ImportError as error:
    raise MissingExtra("the adapter for requests", "requests", "requests") from error

Key = Callable[[requests.PreparedRequest], str | None]
"""Returns the key whose quota a call uses; None for a call that is not limited."""
Cost = Callable[[requests.PreparedRequest], int]


class QuotaUsedUp(PortableError, requests.RequestException):
    """Raised instead of sending a call for which the quota has no room, or whose server asked for no calls at present.

    `decision` has the reason. Another try may succeed in `retry_after` seconds.
    """

    def __init__(self, decision: Decision, request: requests.PreparedRequest) -> None:
        self.decision = decision
        self.retry_after = decision.retry_after
        super().__init__(used_up(by_origin(request), decision), request=request)


def by_origin(request: requests.PreparedRequest) -> str:
    """Returns the default key of a call: its server, as `api.example.com:443`."""
    parts = urlsplit(request.url or "")
    return f"{parts.hostname or ''}:{parts.port or {'http': 80, 'https': 443}.get(parts.scheme, 0)}"


class LimitedAdapter(HTTPAdapter):
    """An adapter of a requests session that sends calls when their quota has room for them.

    A session of requests uses it so:

        session = requests.Session()
        session.mount("https://api.example.com/", LimitedAdapter(agent.limit("api", "100/minute")))

    It works as `reconverge.integrations.httpx.LimitedTransport`, with the same arguments; further `options` are those
    of `requests.adapters.HTTPAdapter`. If that adapter retries a call by itself (`max_retries`), the call is charged
    once.
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
        **options: Any,
    ) -> None:
        self.outgoing = Outgoing(limiter, timeout=timeout, max_queue=max_queue, listen=listen, in_doubt=in_doubt)
        self._key = key
        self._cost = cost
        super().__init__(**options)

    def __getstate__(self) -> dict[str, Any]:
        """Returns what is pickled with a session; requests would leave out the limit."""
        return {**super().__getstate__(), "outgoing": self.outgoing, "_key": self._key, "_cost": self._cost}

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        key = self._key(request)
        if key is None:
            return super().send(request, *args, **options)
        cost = 1 if self._cost is None else self._cost(request)
        decision = self.outgoing.admit_blocking(key, cost, request.method)
        if decision is not None and not decision:
            raise QuotaUsedUp(decision, request)
        response = super().send(request, *args, **options)
        self.outgoing.learn(key, response.status_code, response.headers)
        return response
