"""Calls to a metered server, kept inside a quota that all workers share; adapters send them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import OrderedDict, deque
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Final, TypeAlias, TypedDict

from reconverge.clock import SECOND_NS, Seconds, SystemClock, in_seconds, seconds
from reconverge.decision import Decision
from reconverge.errors import CostExceedsQuota, InvalidCost, InvalidKey
from reconverge.integrations.clients.server_fields import heard
from reconverge.integrations.web.costs import price_of
from reconverge.integrations.web.failures import Failures
from reconverge.limiter.doubt import ASK, within_s
from reconverge.limiter.faces.kinds import checked_kind
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.limiter.waiters import checked_room, checked_timeout_ns
from reconverge.runtime.interruptions import has_a_loop
from reconverge.runtime.threads import Section

TIMEOUT_S: Final = 30.0
HELD_KEYS_MAX: Final = 1000
"""So many servers are remembered that want to be left alone; of more, those that said so first are forgotten."""
NAP_S: Final = 3600.0
"""The longest sleep at a time."""

Steps: TypeAlias = Generator[float, None, Decision | None]
"""Yields seconds to sleep; ends with a refusal, or None when no server wants to be left alone any more."""

MISTAKES: Final = (CostExceedsQuota, InvalidCost, InvalidKey, RuntimeError)
"""Mistakes of the caller, which are raised; RuntimeError says that the call would block a running event loop."""


class OutgoingSettings(TypedDict, total=False):
    """The settings of `Outgoing` besides the limiter; for functions that pass them on."""

    timeout: Seconds | None
    max_queue: int | None
    listen: bool
    in_doubt: str


class Outgoing:
    """Admits the calls of a transport by a quota, and learns from responses.

    Args:
        limiter: the quota; every key has one of its own.
        timeout: seconds that a call may wait for its turn; 0 refuses at once, None waits as long as it takes.
        max_queue: so many calls of this process may wait for one key.
        listen: whether what the server says (Retry-After, RateLimit, X-RateLimit) lowers what is left of the quota.
        in_doubt: a call that memory would admit on trust, as on a key that is new to this process, asks the hub first,
            for at most so long ("ask:25ms", by default) and no longer than the timeout; or it goes ("refuse").

    Raises:
        InvalidSetting: the timeout or the queue is negative or no number, or the limiter is none.
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
        """Failures in here while the call went on."""
        self._timeout_s = timeout_s
        self._max_queue = max_queue
        self._listens = listen
        self._asks_s = within_s(in_doubt)
        self._now_ns = limiter.control.clock.monotonic_ns
        self._section = Section()
        """Entered to change the hold, and never to look: a signal handler may call in the middle of a change."""
        self._said: deque[tuple[str, int]] = deque()
        """Servers and until when they want to be left alone, which are to be taken in."""
        self._held_until_ns: OrderedDict[str, int] = OrderedDict()

    async def admit(self, key: str, cost: int = 1, method: str | None = None) -> Decision | None:
        """Wait for one's turn; the answer is false if that takes too long, and None if the limiter has failed.

        With the method of the call, a limit that has `costs` charges what these say for it, `cost` times.
        """
        cost, kind = self._price(cost, method)
        began_ns = self._now_ns()
        steps = self._steps(key, began_ns)
        with contextlib.closing(steps):
            try:
                while True:  # noqa: ASYNC110  # it waits for time alone
                    await asyncio.sleep(next(steps))
            except StopIteration as end:
                if end.value is not None:
                    refusal: Decision = end.value
                    return refusal
        try:
            ask_s = self._ask_s(key, cost, kind, began_ns)
            if ask_s and (decision := await self.limiter.ask(key, cost, within=ask_s, kind=kind)):
                return decision
            timeout_s = self._left_s(began_ns)
            return await self.limiter.wait(key, cost, timeout=timeout_s, max_queue=self._max_queue, kind=kind)
        except MISTAKES:
            raise
        except Exception as error:  # noqa: BLE001  # a call must not fail because of what should only pace it
            self.failures.add(error, self.limiter.name)
            return None

    def admit_blocking(self, key: str, cost: int = 1, method: str | None = None) -> Decision | None:
        """Does as `admit`, on a thread."""
        cost, kind = self._price(cost, method)
        began_ns = self._now_ns()
        steps = self._steps(key, began_ns)
        never_set = threading.Event()  # fork: this call alone knows it
        with contextlib.closing(steps):
            try:
                while True:
                    never_set.wait(next(steps))
            except StopIteration as end:
                if end.value is not None:
                    refusal: Decision = end.value
                    return refusal
        try:
            ask_s = 0.0 if has_a_loop() else self._ask_s(key, cost, kind, began_ns)
            if ask_s and (decision := self.limiter.ask_blocking(key, cost, within=ask_s, kind=kind)):
                return decision
            timeout_s = self._left_s(began_ns)
            return self.limiter.wait_blocking(key, cost, timeout=timeout_s, max_queue=self._max_queue, kind=kind)
        except MISTAKES:
            raise
        except Exception as error:  # noqa: BLE001  # likewise
            self.failures.add(error, self.limiter.name)
            return None

    def learn(self, key: str, status: int, fields: Mapping[str, str]) -> None:
        """Read a response's limits; leave the server alone, or use less of the quota, by them."""
        if not self._listens:
            return
        try:
            said = heard(status, fields, now=SystemClock.wall_ns() / SECOND_NS)
            if said.hold is not None and said.hold > 0:
                self._hold(key, said.hold)
            remaining = 0 if status == 429 else said.remaining  # other quotas may have more, this one has nothing
            if remaining is not None:
                self._lower(key, remaining)
        except Exception as error:  # noqa: BLE001  # a response must not be lost because of its fields about limits
            self.failures.add(error, self.limiter.name)

    def _price(self, cost: int, method: str | None) -> tuple[int, str | None]:
        if method is None or not self.limiter.control.has_costs:
            return cost, None
        price = price_of(self.limiter, cost, method)
        if price.unknown is not None:
            self.failures.add(price.unknown, self.limiter.name, "costs as much as the dearest kind")
        return price.cost, price.kind

    def _ask_s(self, key: str, cost: int, kind: str | None, began_ns: int) -> float:
        """For how long a call asks before it waits for its turn; one that memory refuses waits there anyway."""
        left_s = self._left_s(began_ns)
        ask_s = self._asks_s if left_s is None else min(self._asks_s, left_s)
        tested = self.limiter.test(key, cost, kind) if ask_s else None
        return ask_s if tested is not None and tested.allowed and not tested.certain else 0.0

    def _hold(self, key: str, hold_s: float) -> None:
        until_ns = self._now_ns() + round(hold_s * SECOND_NS)
        self._said.append((key, until_ns))
        # Where this thread takes something in already, that goes on until nothing is left.
        while self._said and not self._section.entered():
            self._section.run(self._take_in)

    def _take_in(self) -> None:
        held = self._held_until_ns
        while self._said:
            key, until_ns = self._said[0]
            held[key] = max(until_ns, held.get(key, 0))  # at no moment is it left out
            held.move_to_end(key)
            self._said.popleft()
        if len(held) > HELD_KEYS_MAX:
            now_ns = self._now_ns()
            for each in [each for each, until_ns in held.items() if until_ns <= now_ns]:
                del held[each]
        while len(held) > HELD_KEYS_MAX:
            held.popitem(last=False)

    def _lower(self, key: str, remaining: int) -> None:
        """Charge what clients outside this fleet have used of the quota, so that all workers learn of it.

        The server's figure is a little older than the one here, so the difference is never too large because
        of calls under way. Several workers may charge the same difference before they hear of each other: then less is
        sent than could have been, until the window is over.
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
