"""Keeps outgoing calls to a server within a quota that all workers share. Adapters of HTTP clients send the calls."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import OrderedDict, deque
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Final, TypeAlias, TypedDict

from reconverge.clock import SECOND_NS, Seconds, SystemClock, in_seconds, seconds
from reconverge.decision import Decision
from reconverge.errors import CostExceedsQuota, InvalidCost, InvalidKey
from reconverge.integrations.clients.server_fields import heard
from reconverge.integrations.clients.turns import wait_for_turn
from reconverge.integrations.web.costs import price_of
from reconverge.integrations.web.failures import Failures
from reconverge.limiter.doubt import ASK, within_s
from reconverge.limiter.faces.kinds import checked_kind
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.limiter.waiting.running import run, run_blocking
from reconverge.limiter.waiting.waiters import checked_room, checked_timeout_ns
from reconverge.runtime.interruptions import has_a_loop
from reconverge.runtime.threads import Section

TIMEOUT_S: Final = 30.0
HELD_KEYS_MAX: Final = 1000
"""The most servers whose Retry-After is remembered; beyond that, the oldest are forgotten."""
NAP_S: Final = 3600.0
"""The longest single sleep, in seconds."""

Steps: TypeAlias = Generator[float, None, Decision | None]
"""Yields seconds to sleep, and returns a refusal, or None when no server's Retry-After is left to wait for."""

MISTAKES: Final = (CostExceedsQuota, InvalidCost, InvalidKey)
"""Mistakes of the caller, which are raised."""


class OutgoingSettings(TypedDict, total=False):
    """The keyword arguments of `Outgoing` besides the limiter, for functions that accept the same ones."""

    timeout: Seconds | None
    max_queue: int | None
    listen: bool
    in_doubt: str


class Outgoing:
    """Admits outgoing calls by a quota, and adapts to the server's responses.

    Args:
        limiter: the quota; each key has its own.
        timeout: the seconds that a call may wait for its turn; 0 refuses at once, None waits without limit.
        max_queue: the most calls of this process that may wait for one key.
        listen: whether the server's fields (Retry-After, RateLimit, X-RateLimit) lower what is left of the quota.
        in_doubt: for calls that memory admits without certainty, as on a key that is new to this process. "ask:25ms",
            the default, asks the hub first, for at most 25 ms and no longer than the timeout; "refuse" sends such
            calls without asking.

    Raises:
        InvalidSetting: the timeout or the queue is negative or not a number, or the limiter is not a RateLimiter.
    """

    def __init__(
        self,
        limiter: RateLimiter,
        *,
        timeout: Seconds | None = TIMEOUT_S,
        max_queue: int | None = None,
        listen: bool = True,
        in_doubt: str = ASK,
    ) -> None:
        self.limiter = checked_kind("limiter", limiter, RateLimiter)
        timeout_s = in_seconds(timeout)
        checked_timeout_ns(timeout_s)
        checked_room(max_queue)
        self.failures = Failures(limiter.control.clock)
        """Failures of the library during calls, which went on regardless."""
        self._timeout_s = timeout_s
        self._max_queue = max_queue
        self._listens = listen
        self._asks_s = within_s(in_doubt)
        self._in_doubt = in_doubt
        self._now_ns = limiter.control.clock.monotonic_ns
        self._section = Section()
        """Guards changes of the holds, not reads: a signal handler may make a call in the middle of a change."""
        self._said: deque[tuple[str, int]] = deque()
        """New holds that are not stored yet: a key, and the time until which its server asked for no more calls."""
        self._held_until_ns: OrderedDict[str, int] = OrderedDict()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles the settings, as a session is pickled with its adapters; holds stay in this process."""
        made = functools.partial(
            Outgoing,
            timeout=self._timeout_s,
            max_queue=self._max_queue,
            listen=self._listens,
            in_doubt=self._in_doubt,
        )
        return made, (self.limiter,)

    async def admit(self, key: str, cost: int = 1, method: str | None = None) -> Decision | None:
        """Waits until a call may go. Returns a refusal after the timeout, and None if the limiter has failed.

        If the limit has `costs`, `method` selects the cost of one call, which is charged `cost` times.
        """
        cost, kind = self._price(cost, method)
        began_ns = self._now_ns()
        refusal = await run(self._steps(key, began_ns), asyncio.sleep)
        if refusal is not None:
            return refusal
        try:
            ask_s = self._ask_s(key, cost, kind, began_ns)
            if ask_s and (decision := await self.limiter.ask(key, cost, within=ask_s, kind=kind)):
                return decision
            timeout_s = self._left_s(began_ns)
            return await self.limiter.wait(key, cost, timeout=timeout_s, max_queue=self._max_queue, kind=kind)
        except MISTAKES:
            raise
        except Exception as error:  # noqa: BLE001  # a failure of the limiter must not fail the call
            self.failures.add(error, self.limiter.name)
            return None

    def admit_blocking(self, key: str, cost: int = 1, method: str | None = None) -> Decision | None:
        """Does the same as `admit`, and blocks the thread."""
        cost, kind = self._price(cost, method)
        began_ns = self._now_ns()
        never_set = threading.Event()  # fork: this call alone uses the event
        refusal = run_blocking(self._steps(key, began_ns), never_set.wait)
        if refusal is not None:
            return refusal
        try:
            ask_s = 0.0 if has_a_loop() else self._ask_s(key, cost, kind, began_ns)
            if ask_s and (decision := self.limiter.ask_blocking(key, cost, within=ask_s, kind=kind)):
                return decision
            timeout_s = self._left_s(began_ns)
            room = self._max_queue
            return wait_for_turn(self.limiter, key, cost, timeout_s=timeout_s, max_queue=room, kind=kind)
        except MISTAKES:
            raise
        except Exception as error:  # noqa: BLE001  # as above
            self.failures.add(error, self.limiter.name)
            return None

    def learn(self, key: str, status: int, fields: Mapping[str, str]) -> None:
        """Learns the server's limits from a response.

        If the server asks for no calls for a time, later calls wait. If the server reports less remaining quota than
        the limiter has, the difference is charged to the limiter.
        """
        if not self._listens:
            return
        try:
            said = heard(status, fields, now=SystemClock.wall_ns() / SECOND_NS)
            if said.hold is not None and said.hold > 0:
                self._hold(key, said.hold)
            # The server may report another quota in `remaining`; the one that refused is used up.
            remaining = 0 if status == 429 else said.remaining
            if remaining is not None:
                self._lower(key, remaining)
        except Exception as error:  # noqa: BLE001  # an error in reading the fields must not lose the response
            self.failures.add(error, self.limiter.name)

    def _price(self, cost: int, method: str | None) -> tuple[int, str | None]:
        if method is None or not self.limiter.control.has_costs:
            return cost, None
        price = price_of(self.limiter, cost, method)
        if price.unknown is not None:
            self.failures.add(price.unknown, self.limiter.name, "costs as much as the dearest kind")
        return price.cost, price.kind

    def _ask_s(self, key: str, cost: int, kind: str | None, began_ns: int) -> float:
        """Returns for how many seconds a call asks the hub before it waits for its turn.

        Returns 0 if this process is certain that the quota has room, or would refuse the call, which then waits anyway.
        """
        left_s = self._left_s(began_ns)
        ask_s = self._asks_s if left_s is None else min(self._asks_s, left_s)
        tested = self.limiter.test(key, cost, kind) if ask_s else None
        return ask_s if tested is not None and tested.allowed and not tested.certain else 0.0

    def _hold(self, key: str, hold_s: float) -> None:
        until_ns = self._now_ns() + round(hold_s * SECOND_NS)
        self._said.append((key, until_ns))
        # If this thread is inside the loop already, that loop takes the new entry, too.
        while self._said and not self._section.entered():
            self._section.run(self._take_in)

    def _take_in(self) -> None:
        held = self._held_until_ns
        while self._said:
            key, until_ns = self._said[0]
            # The hold is stored before the queue's entry goes, so that readers always see one of the two.
            held[key] = max(until_ns, held.get(key, 0))
            held.move_to_end(key)
            self._said.popleft()
        if len(held) > HELD_KEYS_MAX:
            now_ns = self._now_ns()
            for each in [each for each, until_ns in held.items() if until_ns <= now_ns]:
                del held[each]
        while len(held) > HELD_KEYS_MAX:
            held.popitem(last=False)

    def _lower(self, key: str, remaining: int) -> None:
        """Charges the limiter for the quota that clients outside this fleet have used, so that all workers count it.

        `remaining` is the rest of the quota by the server's last response. It is a little older than the local figure,
        so calls under way never make the difference too large. Several workers may charge the same difference before
        they have exchanged reports: then less is sent than could be, until the window ends.
        """
        reservation = self.limiter.reserve(key, 0)
        known = reservation.decision.remaining
        if reservation and remaining < known:
            reservation.settle(known - remaining)

    def _steps(self, key: str, began_ns: int) -> Steps:
        while True:
            held_s = self._held_s(key)
            if held_s <= 0:
                return None
            left_s = self._left_s(began_ns)
            if left_s is not None and held_s > left_s:
                grounds = self.limiter.test(key)
                return _turned_away(grounds, max(held_s, grounds.retry_after))
            yield min(held_s, NAP_S)

    def _held_s(self, key: str) -> float:
        said = [until_ns for each, until_ns in self._said.copy() if each == key] if self._said else []
        until_ns = max([self._held_until_ns.get(key, 0), *said])
        return max(0.0, seconds(until_ns - self._now_ns()))

    def _left_s(self, began_ns: int) -> float | None:
        if self._timeout_s is None:
            return None
        return max(0.0, self._timeout_s - seconds(self._now_ns() - began_ns))


def _turned_away(grounds: Decision, retry_after: float) -> Decision:
    return replace(
        grounds,
        allowed=False,
        remaining=0,
        retry_after=retry_after,
        reset_after=max(grounds.reset_after, retry_after),
        over_quota=False,
        borrowed=False,
    )


def used_up(where: str, decision: Decision) -> str:
    """Returns the message of an error for a call to `where` that was refused."""
    return (
        f"{where}: the quota {decision.binding!r} of {decision.limit} has no room for this call; "
        f"try again in {decision.retry_after:.3g} s, or give it a longer timeout to wait for its turn"
    )
