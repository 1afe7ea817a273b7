"""Keeps outgoing calls to a server within a quota that all workers share; adapters of HTTP clients use this."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import Final, Generic, TypeAlias, TypedDict, TypeVar

from reconverge.arguments import checked_class, with_advice
from reconverge.clock import SECOND_NS, Seconds, SystemClock, in_seconds, seconds
from reconverge.decision import Decision
from reconverge.errors import CostExceedsQuota, InvalidCost, InvalidKey, InvalidSetting
from reconverge.integrations.clients.server_fields import heard
from reconverge.integrations.clients.server_numbers import ServerNumbers
from reconverge.integrations.clients.turns import wait_for_turn
from reconverge.integrations.servers import ANY_SERVER, Server
from reconverge.integrations.web.costs import price_of
from reconverge.integrations.web.failures import Failures
from reconverge.limiter.asking import ASK, within_s
from reconverge.limiter.enforcement.switches import ON
from reconverge.limiter.faces.kinds import checked_kind
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.limiter.long_keys import OURS, fitting
from reconverge.limiter.pauses import PAUSE
from reconverge.limiter.waiting.running import run, run_blocking
from reconverge.limiter.waiting.waiters import checked_room, checked_timeout_ns

TIMEOUT_S: Final = 30.0
NAP_S: Final = 1.0
"""The longest single sleep, in seconds, of a paused call. Then the call checks whether another response has made the
pause longer."""
EVERY_KEY: Final = f"{OURS}all"
"""The key of a pause that stops all calls, whichever key they have."""

T = TypeVar("T")
Steps: TypeAlias = Generator[float, None, Decision | None]
"""A generator that yields seconds to sleep while calls are paused. It returns None once no pause is left, or a refusal
if a pause outlasts the timeout."""

OF_TRANSPORT: Final = {
    name: f"is a setting of the transport that sends; write LimitedTransport(limiter, httpx.HTTPTransport({name}=...)),"
    f" or AsyncLimitedTransport(limiter, httpx.AsyncHTTPTransport({name}=...))"
    for name in ("retries", "verify", "cert", "trust_env", "http1", "http2", "limits", "proxy", "uds", "local_address")
}
"""Arguments that callers wrongly pass to a transport of httpx, each with its error message."""
MISTAKES: Final = (CostExceedsQuota, InvalidCost, InvalidKey)
"""Errors that are raised, because they are mistakes of the caller. After any other failure the call is sent."""


class ChargeOf(Generic[T]):
    """The functions of a request that return a call's key and cost. Calling it returns both; None for no limit.

    Raises InvalidSetting for a `key` or `cost` that is neither a plain function of the request nor None.
    """

    def __init__(self, key: Callable[[T], str | None], cost: Callable[[T], int] | None) -> None:
        for name, each in {"key": key, "cost": cost}.items():
            if each is not None and not callable(each):
                raise InvalidSetting(name, each, f"must be a function of the request; write {name}=lambda request: ...")
            if inspect.iscoroutinefunction(each):
                raise InvalidSetting(name, each, "is a coroutine function, which nothing awaits; write a plain one")
        self._key = key
        self._cost = cost

    def __call__(self, request: T) -> tuple[str, int] | None:
        key = self._key(request)
        return None if key is None else (key, 1 if self._cost is None else self._cost(request))


def checked_call(request: T | None, transport: type[object]) -> T:
    """Returns `request`. Raises InvalidSetting if it is None.

    It is None if a client was given the class `transport`, and not an object of it.
    """
    if request is None:
        name = transport.__name__
        raise InvalidSetting("transport", transport, f"is a class; pass an object of it: {name}(limiter)")
    return request


class OutgoingSettings(TypedDict, total=False):
    """The keyword arguments of `Outgoing` besides the limiter, for functions that accept the same ones."""

    timeout: Seconds | None
    max_queue: int | None
    listen: bool
    in_doubt: str
    server: Server
    resource: str | None


@with_advice(OF_TRANSPORT)
class Outgoing:
    """Admits outgoing calls by a quota, and adapts to the server's responses.

    Args:
        limiter: the quota; each key has its own.
        timeout: the seconds that a call may wait for its turn; 0 refuses at once, None waits without limit.
        max_queue: the most calls of this process that may wait for one key.
        listen: whether the server's refusals pause calls, and its numbers lower the remaining quota.
        in_doubt: for calls that this process admits without being certain, such as the first with a key. "ask:25ms",
            the default, asks the hub first, for at most 25 ms, also with a timeout of 0; "refuse" does not ask, and
            lets memory decide.
        server: how the server states its limits; see `reconverge.integrations.servers`.
        resource: the server's name of the quota that this limiter counts, such as GitHub's "core", or "" if the server
            has one quota without a name. By default, numbers are used only if the server states the limiter's name,
            quota and window with them.

    Raises:
        InvalidSetting: the timeout or the queue is negative or not a number, or the limiter is not a RateLimiter.
        LimitConflict: another limit has the name `NAME/pause` of this limiter's pauses.
    """

    def __init__(
        self,
        limiter: RateLimiter,
        *,
        timeout: Seconds | None = TIMEOUT_S,
        max_queue: int | None = None,
        listen: bool = True,
        in_doubt: str = ASK,
        server: Server = ANY_SERVER,
        resource: str | None = None,
    ) -> None:
        self.limiter = checked_kind("limiter", limiter, RateLimiter)
        timeout_s = in_seconds(timeout)
        checked_timeout_ns(timeout_s)
        checked_room(max_queue)
        self.failures = Failures(limiter.control.clock)
        """Counts failures of this library, after each of which the call was sent nevertheless."""
        self._timeout_s = timeout_s
        self._max_queue = max_queue
        self._listens = listen
        self._asks_s = within_s(in_doubt)
        self._in_doubt = in_doubt
        self._now_ns = limiter.control.clock.monotonic_ns
        self._pauses = limiter.control.pauses
        self._numbers = ServerNumbers(limiter, resource)
        self._server = checked_class(
            "server", server, Server, "write one of reconverge.integrations.servers, as GITHUB"
        )
        self._resource = resource

    @property
    def not_placed(self) -> int:
        """Returns how often the server's numbers were ignored, because they may be about another quota."""
        return self._numbers.not_placed

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles the settings, because a session of requests is pickled with its adapters."""
        made = functools.partial(
            Outgoing,
            timeout=self._timeout_s,
            max_queue=self._max_queue,
            listen=self._listens,
            in_doubt=self._in_doubt,
            server=self._server,
            resource=self._resource,
        )
        return made, (self.limiter,)

    async def admit(
        self, key: str, cost: int = 1, method: str | None = None, path: str | None = None
    ) -> Decision | None:
        """Waits until a call may be sent, and returns the decision: a refusal if the timeout has passed.

        Returns None if the limiter has failed; the call is to be sent then. If the limit has `costs`, `method` selects
        the cost of one call, which is charged `cost` times. With `method` and `path`, a call also waits while only its
        operation (method and path) is paused.
        """
        cost, kind = self._price(cost, method)
        began_ns = self._now_ns()
        keys = self._paused_by(key, method, path)
        while True:
            refusal = await run(self._steps(key, keys, began_ns), asyncio.sleep)
            if refusal is not None:
                return refusal
            try:
                self._numbers.give_back(key)
                decision = await self._decide(key, cost, kind, began_ns)
            except MISTAKES:
                raise
            except Exception as error:  # noqa: BLE001  # a failure of the limiter must not fail the call
                self.failures.add(error, self.limiter.name)
                return None
            if not self._paused_meanwhile(decision, key, keys, cost, kind):
                return decision

    def admit_blocking(
        self, key: str, cost: int = 1, method: str | None = None, path: str | None = None
    ) -> Decision | None:
        """Waits as `admit` on the calling thread, for synchronous clients. Returns the decision, or None."""
        cost, kind = self._price(cost, method)
        began_ns = self._now_ns()
        keys = self._paused_by(key, method, path)
        never_set = threading.Event()  # fork: this call alone uses the event
        while True:
            refusal = run_blocking(self._steps(key, keys, began_ns), never_set.wait)
            if refusal is not None:
                return refusal
            try:
                self._numbers.give_back(key)
                decision = self._decide_blocking(key, cost, kind, began_ns)
            except MISTAKES:
                raise
            except Exception as error:  # noqa: BLE001  # as above
                self.failures.add(error, self.limiter.name)
                return None
            if not self._paused_meanwhile(decision, key, keys, cost, kind):
                return decision

    def learn(
        self,
        key: str,
        status: int,
        fields: Mapping[str, str],
        method: str | None = None,
        path: str | None = None,
    ) -> None:
        """Adapts later calls to the server's limits, by the status and the header fields of a response.

        If the server refuses, later calls on all nodes wait until the time that the server names, and nothing is
        charged. If the server reports less remaining quota than the limiter has, the difference is charged to the
        limiter, until the server renews its quota.
        """
        if not self._listens:
            return
        try:
            now_s = SystemClock.wall_ns() / SECOND_NS
            said = heard(status, fields, now=now_s, server=self._server, resource=self._resource)
            if said.pause:
                if said.reach == "all":
                    self._pause(EVERY_KEY, said.pause)
                elif said.reach == "operation" and method is not None and path is not None:
                    self._pause(self._operation(key, method, path), said.pause)
                else:
                    self._pause(key, said.pause)
            for numbers in said.numbers:
                used_up_s = self._numbers.learn(key, numbers, refused=said.pause is not None)
                # The refusal's own pause counts instead, which may be shorter if something else than the quota refuses.
                if used_up_s and said.pause is None:
                    self._pause(key, used_up_s)
        except Exception as error:  # noqa: BLE001  # an error in reading the fields must not lose the response
            self.failures.add(error, self.limiter.name)

    async def _decide(self, key: str, cost: int, kind: str | None, began_ns: int) -> Decision:
        timeout_s, room = self._left_s(began_ns), self._max_queue
        return await self.limiter.wait(key, cost, timeout=timeout_s, max_queue=room, kind=kind, within=self._asks_s)

    def _decide_blocking(self, key: str, cost: int, kind: str | None, began_ns: int) -> Decision:
        timeout_s, room, asks_s = self._left_s(began_ns), self._max_queue, self._asks_s
        return wait_for_turn(self.limiter, key, cost, timeout_s=timeout_s, max_queue=room, kind=kind, within_s=asks_s)

    def _price(self, cost: int, method: str | None) -> tuple[int, str | None]:
        if method is None or not self.limiter.control.has_costs:
            return cost, None
        price = price_of(self.limiter, cost, method)
        if price.unknown is not None:
            self.failures.add(price.unknown, self.limiter.name, "costs as much as the most expensive kind")
        return price.cost, price.kind

    def _paused_by(self, key: str, method: str | None, path: str | None) -> tuple[str, ...]:
        """Returns the keys of all pauses that may stop a call: of its key, of all keys, and of its operation."""
        keys = (key, EVERY_KEY) if self._server.stops_all else (key,)
        by_operation = self._server.stops_operation or self._resource is not None
        if not by_operation or method is None or path is None:
            return keys
        return *keys, self._operation(key, method, path)

    def _operation(self, key: str, method: str, path: str) -> str:
        return fitting(f"{key} {self._server.operation(method, path)}", self.limiter.control.key_bytes_max)

    def _pause(self, key: str, pause_s: float) -> None:
        self._pauses.begin(key, self._now_ns() + round(pause_s * SECOND_NS))

    def _paused_meanwhile(
        self, decision: Decision, key: str, keys: tuple[str, ...], cost: int, kind: str | None
    ) -> bool:
        """Returns whether a pause began while the call waited for its turn; if so, refunds the call's charge."""
        if not decision or self._paused_s(keys) <= 0:
            return False
        if self.limiter.switched == ON:
            # Of a log's charges, the oldest expire during the pause. If those went back, this one would count after it.
            self.limiter.control.take_back(key, cost, kind)
        return True

    def _steps(self, key: str, keys: tuple[str, ...], began_ns: int) -> Steps:
        while True:
            paused_s = self._paused_s(keys)
            if paused_s <= 0:
                return None
            left_s = self._left_s(began_ns)
            if left_s is not None and paused_s > left_s:
                grounds = self.limiter.test(key)
                return _turned_away(grounds, self._pauses.table.name, max(paused_s, grounds.retry_after))
            yield min(paused_s, NAP_S)

    def _paused_s(self, keys: tuple[str, ...]) -> float:
        try:
            return seconds(max([self._pauses.left_ns(each) for each in keys]))
        except MISTAKES:
            raise
        except Exception as error:  # noqa: BLE001  # a failure of the limiter must not fail the call
            self.failures.add(error, self.limiter.name)
            return 0.0

    def _left_s(self, began_ns: int) -> float | None:
        if self._timeout_s is None:
            return None
        return max(0.0, self._timeout_s - seconds(self._now_ns() - began_ns))


def _turned_away(grounds: Decision, pause: str, retry_after: float) -> Decision:
    """Returns a refusal by the pause named `pause`, for `retry_after` seconds, with the other values of `grounds`."""
    return replace(
        grounds,
        binding=pause,
        allowed=False,
        remaining=0,
        retry_after=retry_after,
        reset_after=max(grounds.reset_after, retry_after),
        over_quota=False,
        borrowed=False,
    )


def used_up(where: str, decision: Decision) -> str:
    """Returns an error message for a call to the server `where` that was not sent, because `decision` refuses."""
    if decision.binding.endswith(PAUSE):
        reason = f"the server has refused calls, so calls by the limit {decision.binding.removesuffix(PAUSE)!r} pause"
    else:
        reason = f"the quota {decision.binding!r} of {decision.limit} has no room for this call"
    advice = f"try again in {decision.retry_after:.3g} s, or give it a longer timeout to wait for its turn"
    return f"{where}: {reason}; {advice}"
