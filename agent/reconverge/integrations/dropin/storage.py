"""Which of our limits stands for one of the library `limits`, and its answers in that library's words.

That library hands a storage the strings that it would write into Redis, such as `LIMITER/ada/login/5/1/minute`: the
identifiers, and then the amount, the multiples and the granularity of the limit. The last three say which limit it is,
even if nothing else does; the part before them is the key.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from math import ceil
from typing import Any, Final, NamedTuple

from limits.limits import GRANULARITIES

from reconverge.clock import SECOND_NS, Clock, SystemClock, seconds
from reconverge.decision import Decision
from reconverge.errors import InvalidCost, InvalidLimit, InvalidSetting
from reconverge.integrations.dropin.asking import StorageAsking
from reconverge.integrations.dropin.shared_agent import agent_at, key_of, settings_at
from reconverge.integrations.web.failures import Unbreakable, goes_on
from reconverge.limit.checks import check_name
from reconverge.limit.limit import (
    CLOCK,
    FIRST_HIT,
    FIXED_WINDOW,
    LOG_QUOTA_MAX,
    QUOTA_MAX,
    SLIDING_LOG,
    SLIDING_SLICES,
    SLIDING_WINDOW,
    WINDOW_MAX_NS,
    Limit,
)
from reconverge.limiter.certainty import for_any_node, is_known, known_keys, left_in_doubt
from reconverge.limiter.doubt import ASK, within_s
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.runtime.log_throttle import LoggedOnce

logger = logging.getLogger("reconverge")

FIXED: Final = "fixed-window"
MOVING: Final = "moving-window"
SLIDING: Final = "sliding-window-counter"
"""The strategies, as the library calls them."""
SCHEMES: Final = (
    *("redis", "rediss", "redis+unix", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel"),
    *("valkey", "valkeys", "valkey+unix", "valkey+cluster", "valkeys+cluster", "valkey+sentinel", "valkeys+sentinel"),
    *("mqtt", "mqtts", "embedded", "memory"),
)
"""Of the hubs that a storage can meet others at; each is a storage's scheme behind `reconverge+`."""
LIMITS_MAX: Final = 1000
"""So many limits of one storage are counted as they are; applications that make up limits may come to more."""
OWN: Final = frozenset(("align", "in_doubt"))
"""Settings of a storage that are none of the agent's."""
SLICES: Final = 100
"""Of a moving window whose quota is too large for a log: it is exact to a hundredth of the window."""
EXPIRY_MAX: Final = WINDOW_MAX_NS // SECOND_NS
MOMENT_S: Final = 0.001
NEAR_S: Final = 0.002
"""RESETS. Flask-Limiter cuts a reset time to whole seconds, twice, before it announces when to come again: a client
that gets a moment within a second may come up to a second before it. So reset times are whole seconds, rounded up
and a moment more; what ends within so much of a whole second ends with it, as windows of the clock do."""
CHECK_S_MAX: Final = 1.0
"""How long `check` waits for a hub that was not asked before."""
CHECK_POLL_S: Final = 0.01


class Until(float):
    """Seconds until something stops to count, of which the library takes the remainder by the window for just that.

    Of a sliding window some may go on counting for longer than a window; the remainder would tell clients to come
    again too early.
    """

    __slots__ = ()

    def __mod__(self, window: float) -> float:
        """All of it."""
        return float(self)


class StorageEntry(NamedTuple):
    """A limit of the library, and the limiter that decides about it."""

    limiter: RateLimiter | None
    """None if nothing is ever admitted."""
    amount: int
    """The library's quota; ours is no larger."""
    expiry: int
    """The window in seconds, as the library has it."""
    shared: bool = False
    """Whether other limits are counted by the same, and only whole keys tell them apart."""


class StorageLimits(Unbreakable):
    """The limits that one storage has been asked about, each declared with the first question about it.

    All methods take the strings that the library would write into Redis. `check` waits for the hub, and what decides
    does so in doubt, for as long as `in_doubt` says; see `reconverge.integrations.dropin.asking`.

    Args:
        uri, options: see `shared_agent.settings_at`. In addition, `align` says where fixed windows begin: at multiples
            of their length ("clock", by default), or each with its first hit ("first-hit"), as in the library's own
            storages; which costs about fifteen times as much for each key of an exchange. `in_doubt` says for how long
            a request may wait for the hub's word where memory cannot tell whether a quota has room ("ask:25ms",
            by default), or that it must not ("refuse").
    """

    def __init__(self, uri: str, options: Mapping[str, Any]) -> None:
        hub, settings = settings_at(uri, options, own=OWN)
        self._align = _checked(settings.pop("align", CLOCK))
        in_doubt = settings.pop("in_doubt", ASK)
        # What one storage leaves at the hub, one that asks nothing would refuse on the same node.
        self.agent = agent_at(hub, settings, apart=within_s(in_doubt), own=OWN)
        self._asking = StorageAsking(in_doubt)
        self._clock: Clock = settings.get("clock") or SystemClock()
        super().__init__()
        self._entries: dict[tuple[str, str, str, str], StorageEntry] = {}
        """By strategy, amount, multiples and granularity, as keys end."""
        self._odd: dict[tuple[str, int | None, int], StorageEntry] = {}
        """By strategy, amount and expiry: of keys that do not end so. None is the amount of what only counts."""
        self._logged = LoggedOnce()

    def now(self) -> float:
        """Seconds since 1970."""
        return seconds(self._clock.wall_ns())

    @goes_on(0)
    def count(self, key: str, expiry: int, cost: int) -> int:
        """Charge `cost` if the fixed window has room, and return the count; one above the amount says that it had not.

        What is refused is not charged. A key that names no limit is counted without one, as of the last exchange.
        """
        cost = _whole(cost)
        (limiter, amount, _, _), name = self._find(FIXED, key, expiry)
        if limiter is None or cost > limiter.limit.quota:  # which is never admitted, however little is used
            return cost + amount - (0 if limiter is None else limiter.test(name).remaining)
        return self._count_of(self._asking.hit(limiter, name, cost), amount, cost)

    @goes_on(0)
    async def count_async(self, key: str, expiry: int, cost: int) -> int:
        """Does as `count`, without holding up the event loop."""
        cost = _whole(cost)
        (limiter, amount, _, _), name = self._find(FIXED, key, expiry)
        if limiter is None or cost > limiter.limit.quota:  # which is never admitted, however little is used
            return cost + amount - (0 if limiter is None else limiter.test(name).remaining)
        return self._count_of(await self._asking.hit_async(limiter, name, cost), amount, cost)

    @goes_on(answer=True)
    def admits(self, strategy: str, key: str, amount: int, expiry: int, cost: int) -> bool:
        """Whether `cost` may be used now; if so it is charged."""
        cost = _whole(cost)
        (limiter, _, _, _), name = self._find(strategy, key, expiry, amount)
        if limiter is None or cost > limiter.limit.quota:
            return cost == 0
        return self._asking.hit(limiter, name, cost).allowed

    @goes_on(answer=True)
    async def admits_async(self, strategy: str, key: str, amount: int, expiry: int, cost: int) -> bool:
        """Does as `admits`, without holding up the event loop."""
        cost = _whole(cost)
        (limiter, _, _, _), name = self._find(strategy, key, expiry, amount)
        if limiter is None or cost > limiter.limit.quota:
            return cost == 0
        return (await self._asking.hit_async(limiter, name, cost)).allowed

    @goes_on(0)
    def used(self, key: str) -> int:
        """Returns the known count of the fixed window on all nodes; the amount if nothing would be admitted."""
        return max((self._used(entry, name) for entry, name in self._places(FIXED, key)), default=0)

    @goes_on(0.0)
    def resets_in(self, key: str) -> float:
        """Seconds until the fixed window ends; 0 if none is open."""
        waits = [
            max(decision.reset_after, decision.retry_after)
            for entry, name in self._places(FIXED, key)
            if entry.limiter is not None
            for decision in (_decision(entry.limiter, name),)
        ]
        return self._whole_s(max(waits, default=0.0))

    @goes_on((0, 0.0))
    def window(self, strategy: str, key: str, expiry: int, amount: int | None = None) -> tuple[int, float]:
        """Returns the count now, as `used` does, and seconds until some of it expires; 0 if nothing counts."""
        if amount is None:
            places = self._places(strategy, key, expiry)
        else:
            places = [self._find(strategy, key, expiry, amount)]
        used, wait_s = max((self._window(entry, name) for entry, name in places), default=(0, 0.0))
        return used, self._whole_s(wait_s)

    def moving_window(self, key: str, amount: int, expiry: int) -> tuple[float, int]:
        """When that was charged which stops to count next, in seconds since 1970, and what counts."""
        used, wait_s = self.window(MOVING, key, expiry, amount)
        return self.now() - (expiry - wait_s if used else 0.0), used

    def sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """Two counts with the seconds for which they go on counting: all of what counts is said to be in the second.

        The library takes the second time modulo the window for when some of it stops to count.
        """
        used, wait_s = self.window(SLIDING, key, expiry)
        return (0, 0.0, used, Until(wait_s)) if used else (0, 0.0, 0, 0.0)

    @goes_on(None)
    def forget(self, strategies: tuple[str, ...], key: str) -> None:
        """Forget what a key has used: here at once, on all other nodes with their next exchange.

        By those of the strategies that have counted such keys in this process; by all of them, if none has.
        """
        tail = tuple(key.rsplit("/", 3)[1:])
        at_work = [strategy for strategy in strategies if (strategy, *tail) in self._entries]
        for strategy in at_work or strategies:
            for entry, name in self._places(strategy, key):
                if entry.limiter is not None:
                    entry.limiter.reset(name)

    @goes_on(0)
    def forget_all(self) -> int:
        """Forget all keys that this process knows, likewise; returns how many had used something."""
        forgotten = 0
        for entry in {*self._entries.values(), *self._odd.values()}:
            if entry.limiter is None:
                continue
            for name in known_keys(entry.limiter):
                forgotten += entry.limiter.usage(name).total > 0
                entry.limiter.reset(name)
        return forgotten

    @goes_on(answer=False)
    def check(self) -> bool:
        """Whether the hub answers; waits up to a second if it was never asked. Without a hub: True."""
        self.agent.start()
        paused = threading.Event()  # fork: this call alone knows it
        for _ in range(round(CHECK_S_MAX / CHECK_POLL_S)):
            if self.agent.ready or any(shard.failures for shard in self.agent.stats().exchanges):
                break
            paused.wait(CHECK_POLL_S)
        return self.agent.ready and not any(shard.failures_in_a_row for shard in self.agent.stats().exchanges)

    def _find(self, strategy: str, key: str, expiry: int, amount: int | None = None) -> tuple[StorageEntry, str]:
        """The limit that the end of `key` names, and the key without it."""
        tail = key.rsplit("/", 3)
        if len(tail) == 4:  # identifiers, amount, multiples, granularity
            entry = self._entries.get((strategy, tail[1], tail[2], tail[3])) or self._declare_tail(strategy, tail)
            if entry is not None and entry.expiry == expiry and amount in (None, entry.amount):
                return entry, key_of(key if entry.shared else tail[0])
            if amount is None and tail[1].isdecimal():
                amount = int(tail[1])
        return self._declare_odd(strategy, amount, expiry), key_of(key)

    def _places(self, strategy: str, key: str, expiry: int | None = None) -> list[tuple[StorageEntry, str]]:
        """The limits and keys by which `key` may have been counted, if the caller does not name the limit."""
        places: list[tuple[StorageEntry, str]] = []
        tail = key.rsplit("/", 3)
        if len(tail) == 4:
            entry = self._entries.get((strategy, tail[1], tail[2], tail[3])) or self._declare_tail(strategy, tail)
            if entry is not None:
                places.append((entry, key_of(key if entry.shared else tail[0])))
        if self._odd:
            name = key_of(key)
            for (kind, _, window), entry in list(self._odd.items()):
                if kind == strategy and expiry in (None, window):
                    if entry.limiter is not None and is_known(entry.limiter, name):
                        places.append((entry, name))
        return places

    def _declare_tail(self, strategy: str, tail: list[str]) -> StorageEntry | None:
        """The limit that a key's last parts say; None if they say none."""
        _, amount, multiples, granularity = tail
        item = GRANULARITIES.get(granularity)
        if item is None or not amount.isdecimal() or not multiples.isdecimal():
            return None
        entry = self._declare(strategy, int(amount), int(multiples) * item.GRANULARITY[0], f"{multiples}-{granularity}")
        if len(self._entries) < LIMITS_MAX:
            self._entries[strategy, amount, multiples, granularity] = entry
        return entry

    def _declare_odd(self, strategy: str, amount: int | None, expiry: int) -> StorageEntry:
        """The limit of a key that does not end with one; without an amount, it only counts."""
        entry = self._odd.get((strategy, amount, expiry))
        if entry is None:
            if amount is None:
                entry = self._declare_counter(expiry)
            else:
                entry = self._declare(strategy, amount, expiry, f"{expiry}s")
            if len(self._odd) < LIMITS_MAX:
                self._odd[strategy, amount, expiry] = entry
        return entry

    def _declare(self, strategy: str, amount: int, expiry: int, per: str) -> StorageEntry:
        """Declares that limit, or a coarser one that never admits more."""
        quota, window_s = min(amount, QUOTA_MAX), min(max(expiry, 1), EXPIRY_MAX)
        if quota < 1:
            return StorageEntry(None, amount, expiry)
        # Elsewhere windows may begin otherwise, also on the same hub; those are other limits.
        kind = f"{strategy}-{FIRST_HIT}" if strategy == FIXED and self._align == FIRST_HIT else strategy
        name = f"{kind}/{quota}-per-{per}"
        shared = len(self._entries) + len(self._odd) >= LIMITS_MAX
        if shared:
            self._log_many()
            # What an application makes up has an end: powers of two are few. Down and up, so that never
            # more is admitted than asked for.
            quota, window_s = 1 << quota.bit_length() - 1, min(1 << (window_s - 1).bit_length(), EXPIRY_MAX)
            name = f"{kind}/{quota}-per-{window_s}s"
        try:
            check_name(name)
        except InvalidLimit:  # granularities may be called anything
            name = f"{kind}/{quota}-per-{window_s}s"
        limit = limit_for(strategy, quota, window_s, align=self._align)
        limiter = self.agent.limit(name, limit)
        self._asking.prepare(limiter)
        return StorageEntry(limiter, amount, expiry, shared)

    def _declare_counter(self, expiry: int) -> StorageEntry:
        """Count without a limit: no request is refused, so no node has to hold back any quota for others."""
        window_s = min(max(expiry, 1), EXPIRY_MAX)
        limit = limit_for(FIXED, QUOTA_MAX, window_s, align=FIRST_HIT)
        return StorageEntry(self.agent.limit(f"count/{window_s}s", limit, policy="available"), QUOTA_MAX, expiry)

    def _log_many(self) -> None:
        if self._logged.is_new():
            logger.warning(
                "reconverge: a storage was asked about more than %d limits; further ones are rounded down to powers of "
                "two, and their windows up",
                LIMITS_MAX,
            )

    @staticmethod
    def _count_of(decision: Decision, amount: int, cost: int) -> int:
        count = amount - decision.remaining
        return count if decision.allowed else count + cost

    def _whole_s(self, wait_s: float) -> float:
        """Not less than so many seconds, up to the next whole second of the wall clock: see RESETS."""
        if wait_s <= 0:
            return 0.0
        now_s = self.now()
        return ceil(now_s + wait_s - NEAR_S) + MOMENT_S - now_s

    @staticmethod
    def _used(entry: StorageEntry, name: str) -> int:
        if entry.limiter is None:
            return entry.amount
        return entry.amount - _left(entry.limiter, name, entry.limiter.test(name))

    @staticmethod
    def _window(entry: StorageEntry, name: str) -> tuple[int, float]:
        if entry.limiter is None:
            return entry.amount, 0.0
        decision = _decision(entry.limiter, name)
        remaining = _left(entry.limiter, name, decision)
        if decision.allowed and remaining >= entry.limiter.limit.quota:
            return entry.amount - remaining, 0.0
        if decision.allowed:  # when one more than what is left would fit is when something stops to count
            decision = _decision(entry.limiter, name, remaining + 1)
        return entry.amount - remaining, decision.retry_after or decision.reset_after


def _decision(limiter: RateLimiter, name: str, cost: int = 1) -> Decision:
    """Tests a request's limit for a client that may meet any node of the application next."""
    return for_any_node(limiter, limiter.test(name, cost), name, cost)


def _left(limiter: RateLimiter, name: str, decision: Decision) -> int:
    """Returns what is left, whether this process may use it or would have to ask."""
    return decision.remaining if decision.allowed or decision.certain else left_in_doubt(limiter, decision, name)


def limit_for(strategy: str, quota: int, window_s: int, *, align: str) -> Limit:
    """The limit that counts as a strategy does: exactly so on a node that is alone."""
    # By the clock unless asked otherwise. Windows that begin with the first hit, as in the library, are not
    # compiled: 80 us for each key of an exchange instead of 5, so that applications took more processor time than
    # with the library's own Redis storage.
    if strategy == FIXED:
        return Limit(quota, window_s, algorithm=FIXED_WINDOW, align=align)
    if strategy == SLIDING:
        return Limit(quota, window_s, algorithm=SLIDING_WINDOW)
    if quota <= LOG_QUOTA_MAX:
        return Limit(quota, window_s, algorithm=SLIDING_LOG)
    return Limit(quota, window_s, algorithm=SLIDING_SLICES, slices=SLICES)


def _checked(align: object) -> str:
    """Where fixed windows begin. Raises InvalidSetting."""
    if align not in (CLOCK, FIRST_HIT):
        raise InvalidSetting(
            "align", align, f"fixed windows of a storage begin by the {CLOCK!r} or with the {FIRST_HIT!r}"
        )
    return str(align)


def _whole(cost: int) -> int:
    """A cost as a whole number; slowapi passes on the result of an application's function, which may be 7.5."""
    if type(cost) is int:
        return cost
    try:
        return ceil(cost)
    except (TypeError, ValueError, OverflowError):  # a text of the query, say: a client may not choose to be unlimited
        raise InvalidCost(cost, "is not a number") from None
