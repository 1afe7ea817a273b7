"""Maps limits of the library `limits` to limits of reconverge, and answers in that library's terms.

The library passes a storage the strings that it would write into Redis, such as `LIMITER/ada/login/5/1/minute`: the
identifiers, then the amount, the multiples and the granularity of the limit. The last three identify the limit, and the
part before them is the key.
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
from reconverge.limiter.asking import ASK, within_s
from reconverge.limiter.certainty import for_any_node, is_known, known_keys, left_in_doubt
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.runtime.log_throttle import LoggedOnce

logger = logging.getLogger("reconverge")

FIXED: Final = "fixed-window"
MOVING: Final = "moving-window"
SLIDING: Final = "sliding-window-counter"
"""The library's name for its third strategy; the two constants above are its names for the other two."""
SCHEMES: Final = (
    *("redis", "rediss", "redis+unix", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel"),
    *("valkey", "valkeys", "valkey+unix", "valkey+cluster", "valkeys+cluster", "valkey+sentinel", "valkeys+sentinel"),
    *("mqtt", "mqtts", "embedded", "memory"),
)
"""The URL schemes of hubs that a storage supports; each becomes a storage's scheme after `reconverge+`."""
LIMITS_MAX: Final = 1000
"""The most limits of one storage that are counted exactly; applications that generate limits may have more."""
OWN: Final = frozenset(("align", "in_doubt"))
"""Settings of a storage that are not settings of an agent."""
SLICES: Final = 100
"""The number of slices into which a moving window is divided if its quota is too large for a log of single charges."""
EXPIRY_MAX: Final = WINDOW_MAX_NS // SECOND_NS
MOMENT_S: Final = 0.001
NEAR_S: Final = 0.002
"""RESETS. Flask-Limiter truncates a reset time to whole seconds, twice, before it sends Retry-After. With a reset time
between two seconds, a client could come up to a second too early. Therefore reset times are whole seconds, rounded up,
plus MOMENT_S. A window that ends within NEAR_S after a whole second counts as ending with that second, as windows that
are aligned to the clock do."""
CHECK_S_MAX: Final = 1.0
"""The most seconds for which `check` waits for a hub that was not asked before."""
CHECK_POLL_S: Final = 0.01


class Until(float):
    """The seconds until a part of a sliding window's count expires, as a float that the operator `%` does not change.

    The library computes the time until a reset as the remainder of these seconds divided by the window. A part may
    count for longer than a window, and then the remainder would let clients come back too early.
    """

    __slots__ = ()

    def __mod__(self, window: float) -> float:
        """Returns the seconds unchanged, not their remainder in a division by `window`."""
        return float(self)


class StorageEntry(NamedTuple):
    """A limit of the library `limits`, with the limiter of reconverge that decides about it."""

    limiter: RateLimiter | None
    """The limiter; None if the limit admits nothing."""
    amount: int
    """The quota of the library's limit; the limiter's own quota may be smaller."""
    expiry: int
    """The window of the library's limit, in seconds."""
    shared: bool = False
    """Whether other limits share this limiter. Then it counts by whole keys, each of which contains its limit."""


class StorageLimits(Unbreakable):
    """The limits of one storage of the library; each is declared to the agent at its first use.

    All methods take the strings that the library would write into Redis. `check` waits for the hub. The deciding
    methods wait for it if memory is not certain, for as long as `in_doubt` allows; see
    `reconverge.integrations.dropin.asking`.

    Args:
        uri, options: see `shared_agent.settings_at`. In addition, `align` sets where fixed windows begin: at multiples
            of their length ("clock", the default), or with the first hit ("first-hit"), as in the library's own
            storages. Each key of an exchange costs about fifteen times as much with "first-hit". `in_doubt` sets for
            how long a request waits for the hub's answer if memory cannot know whether a quota has room: "ask:25ms"
            (the default) for at most 25 ms, "refuse" not at all.
    """

    def __init__(self, uri: str, options: Mapping[str, Any]) -> None:
        hub, settings = settings_at(uri, options, own=OWN)
        self._align = _checked(settings.pop("align", CLOCK))
        in_doubt = settings.pop("in_doubt", ASK)
        # Storages with different `in_doubt` need separate agents: one would refuse the part that another leaves at the
        # hub.
        self.agent = agent_at(hub, settings, apart=within_s(in_doubt), own=OWN)
        self._asking = StorageAsking(in_doubt)
        self._clock: Clock = settings.get("clock") or SystemClock()
        super().__init__()
        self._entries: dict[tuple[str, str, str, str], StorageEntry] = {}
        """The entries of limits that stand at the end of keys, by strategy, amount, multiples and granularity."""
        self._odd: dict[tuple[str, int | None, int], StorageEntry] = {}
        """The entries for keys that do not end with a limit, by strategy, amount and expiry. The amount is None for a
        count without a limit."""
        self._logged = LoggedOnce()

    def now(self) -> float:
        """Returns the time in seconds since 1970."""
        return seconds(self._clock.wall_ns())

    @goes_on(0)
    def count(self, key: str, expiry: int, cost: int) -> int:
        """Charges `cost` to a fixed window if it has room. Returns the count, which exceeds the amount after a refusal.

        A refused cost is not charged. If the key does not end with a limit, nothing is refused, and the other nodes'
        part of the count is as of the last exchange.
        """
        cost = _whole(cost)
        (limiter, amount, _, _), name = self._find(FIXED, key, expiry)
        if limiter is None or cost > limiter.limit.quota:  # such a cost is never admitted
            return cost + amount - (0 if limiter is None else limiter.test(name).remaining)
        return self._count_of(self._asking.hit(limiter, name, cost), amount, cost)

    @goes_on(0)
    async def count_async(self, key: str, expiry: int, cost: int) -> int:
        """Counts as `count`, without blocking the event loop. Returns the count."""
        cost = _whole(cost)
        (limiter, amount, _, _), name = self._find(FIXED, key, expiry)
        if limiter is None or cost > limiter.limit.quota:  # such a cost is never admitted
            return cost + amount - (0 if limiter is None else limiter.test(name).remaining)
        return self._count_of(await self._asking.hit_async(limiter, name, cost), amount, cost)

    @goes_on(answer=True)
    def admits(self, strategy: str, key: str, amount: int, expiry: int, cost: int) -> bool:
        """Charges `cost` and returns True if the limit has room for it; else returns False."""
        cost = _whole(cost)
        (limiter, _, _, _), name = self._find(strategy, key, expiry, amount)
        if limiter is None or cost > limiter.limit.quota:
            return cost == 0
        return self._asking.hit(limiter, name, cost).allowed

    @goes_on(answer=True)
    async def admits_async(self, strategy: str, key: str, amount: int, expiry: int, cost: int) -> bool:
        """Decides as `admits`, without blocking the event loop. Returns True if the limit had room."""
        cost = _whole(cost)
        (limiter, _, _, _), name = self._find(strategy, key, expiry, amount)
        if limiter is None or cost > limiter.limit.quota:
            return cost == 0
        return (await self._asking.hit_async(limiter, name, cost)).allowed

    @goes_on(0)
    def used(self, key: str) -> int:
        """Returns the count of a fixed window on all nodes, as far as this node knows."""
        return max((self._used(entry, name) for entry, name in self._places(FIXED, key)), default=0)

    @goes_on(0.0)
    def resets_in(self, key: str) -> float:
        """Returns the seconds until the fixed window of `key` ends; 0 if no window is open."""
        waits = [
            max(decision.reset_after, decision.retry_after)
            for entry, name in self._places(FIXED, key)
            if entry.limiter is not None
            for decision in (_decision(entry.limiter, name),)
        ]
        return self._whole_s(max(waits, default=0.0))

    @goes_on((0, 0.0))
    def window(self, strategy: str, key: str, expiry: int, amount: int | None = None) -> tuple[int, float]:
        """Returns the present count of `key`, and the seconds until a part of it expires; two zeros without a count."""
        if amount is None:
            places = self._places(strategy, key, expiry)
        else:
            places = [self._find(strategy, key, expiry, amount)]
        used, wait_s = max((self._window(entry, name) for entry, name in places), default=(0, 0.0))
        return used, self._whole_s(wait_s)

    def moving_window(self, key: str, amount: int, expiry: int) -> tuple[float, int]:
        """Returns the time of the oldest charge that still counts, in seconds since 1970, and the present count.

        Without a count, the time is the present.
        """
        used, wait_s = self.window(MOVING, key, expiry, amount)
        return self.now() - (expiry - wait_s if used else 0.0), used

    def sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """Returns four numbers for the library: count and seconds of the former window, then those of the present one.

        The former window's numbers are 0. The present window's numbers are the whole count, and the seconds until a
        part of it expires; from these the library takes the remainder modulo the window.
        """
        used, wait_s = self.window(SLIDING, key, expiry)
        return (0, 0.0, used, Until(wait_s)) if used else (0, 0.0, 0, 0.0)

    @goes_on(None)
    def forget(self, strategies: tuple[str, ...], key: str) -> None:
        """Resets a key: here at once, on all other nodes with their next exchange.

        The key is reset under those of `strategies` by which this process has counted the key's limit; under all of
        them if there is none.
        """
        tail = tuple(key.rsplit("/", 3)[1:])
        at_work = [strategy for strategy in strategies if (strategy, *tail) in self._entries]
        for strategy in at_work or strategies:
            for entry, name in self._places(strategy, key):
                if entry.limiter is not None:
                    entry.limiter.control.reset(name)

    @goes_on(0)
    def forget_all(self) -> int:
        """Resets all keys that this process knows, as `forget` does. Returns how many of them had a count."""
        forgotten = 0
        for entry in {*self._entries.values(), *self._odd.values()}:
            if entry.limiter is None:
                continue
            for name in known_keys(entry.limiter):
                forgotten += entry.limiter.usage(name).total > 0
                entry.limiter.control.reset(name)
        return forgotten

    @goes_on(answer=False)
    def check(self) -> bool:
        """Returns whether the hub answers; waits up to a second if it was never asked. Without a hub, returns True."""
        self.agent.start()
        paused = threading.Event()  # fork: this call alone uses the event
        for _ in range(round(CHECK_S_MAX / CHECK_POLL_S)):
            if self.agent.ready or any(shard.failures for shard in self.agent.stats().exchanges):
                break
            paused.wait(CHECK_POLL_S)
        return self.agent.ready and not any(shard.failures_in_a_row for shard in self.agent.stats().exchanges)

    def _find(self, strategy: str, key: str, expiry: int, amount: int | None = None) -> tuple[StorageEntry, str]:
        """Returns the entry of the limit with which `key` ends, and the key without that limit."""
        tail = key.rsplit("/", 3)
        if len(tail) == 4:  # identifiers, amount, multiples, granularity
            entry = self._entries.get((strategy, tail[1], tail[2], tail[3])) or self._declare_tail(strategy, tail)
            if entry is not None and entry.expiry == expiry and amount in (None, entry.amount):
                return entry, key_of(key if entry.shared else tail[0])
            if amount is None and tail[1].isdecimal():
                amount = int(tail[1])
        return self._declare_odd(strategy, amount, expiry), key_of(key)

    def _places(self, strategy: str, key: str, expiry: int | None = None) -> list[tuple[StorageEntry, str]]:
        """Returns all entries, each with the name, under which `key` may have been counted.

        It is for calls that do not state the amount of the limit.
        """
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
        """Returns the entry of the limit that a key's last parts (`tail`) describe; None if they describe no limit."""
        _, amount, multiples, granularity = tail
        item = GRANULARITIES.get(granularity)
        if item is None or not amount.isdecimal() or not multiples.isdecimal():
            return None
        entry = self._declare(strategy, int(amount), int(multiples) * item.GRANULARITY[0], f"{multiples}-{granularity}")
        if len(self._entries) < LIMITS_MAX:
            self._entries[strategy, amount, multiples, granularity] = entry
        return entry

    def _declare_odd(self, strategy: str, amount: int | None, expiry: int) -> StorageEntry:
        """Returns the entry for a storage key that does not end with a limit, such as `/5/1/minute`.

        Without an amount, the entry counts and refuses nothing.
        """
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
        """Declares a limit to the agent. If there are too many, declares a coarser one that several limits share.

        The coarser limit never admits more.
        """
        quota, window_s = min(amount, QUOTA_MAX), min(max(expiry, 1), EXPIRY_MAX)
        if quota < 1:
            return StorageEntry(None, amount, expiry)
        # Another process may align windows differently at the same hub, so these are separate limits.
        kind = f"{strategy}-{FIRST_HIT}" if strategy == FIXED and self._align == FIRST_HIT else strategy
        name = f"{kind}/{quota}-per-{per}"
        shared = len(self._entries) + len(self._odd) >= LIMITS_MAX
        if shared:
            self._log_many()
            # Powers of two are few, so the number of limits stays bounded. The quota is rounded down and the window up,
            # so that never more is admitted than asked for.
            quota, window_s = 1 << quota.bit_length() - 1, min(1 << (window_s - 1).bit_length(), EXPIRY_MAX)
            name = f"{kind}/{quota}-per-{window_s}s"
        try:
            check_name(name)
        except InvalidLimit:  # granularities may have any name
            name = f"{kind}/{quota}-per-{window_s}s"
        limit = limit_for(strategy, quota, window_s, align=self._align)
        limiter = self.agent.limit(name, limit)
        self._asking.prepare(limiter)
        return StorageEntry(limiter, amount, expiry, shared)

    def _declare_counter(self, expiry: int) -> StorageEntry:
        """Declares a count without a limit: a limit with the largest quota, which never refuses."""
        window_s = min(max(expiry, 1), EXPIRY_MAX)
        limit = limit_for(FIXED, QUOTA_MAX, window_s, align=FIRST_HIT)
        return StorageEntry(self.agent.limit(f"count/{window_s}s", limit, policy="available"), QUOTA_MAX, expiry)

    def _log_many(self) -> None:
        if self._logged.is_new():
            logger.warning(
                "reconverge: a storage was asked about more than %d limits; the quota of each further limit is rounded "
                "down to a power of two, and its window is rounded up; use fewer different limits",
                LIMITS_MAX,
            )

    @staticmethod
    def _count_of(decision: Decision, amount: int, cost: int) -> int:
        count = amount - decision.remaining
        return count if decision.allowed else count + cost

    def _whole_s(self, wait_s: float) -> float:
        """Returns `wait_s`, prolonged so that the wait ends just after a whole second of the wall clock; 0 stays 0.

        The reason is in the comment RESETS of this file.
        """
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
        if decision.allowed:  # some of the count has expired once one more than the remaining quota fits
            decision = _decision(entry.limiter, name, remaining + 1)
        return entry.amount - remaining, decision.retry_after or decision.reset_after


def _decision(limiter: RateLimiter, name: str, cost: int = 1) -> Decision:
    """Returns a limiter's decision about the key `name` without a charge, with the wait that holds on every node."""
    return for_any_node(limiter, limiter.test(name, cost), name, cost)


def _left(limiter: RateLimiter, name: str, decision: Decision) -> int:
    """Returns the remaining quota of the key `name`, including any part that the hub has not granted to this node."""
    return decision.remaining if decision.allowed or decision.certain else left_in_doubt(limiter, decision, name)


def limit_for(strategy: str, quota: int, window_s: int, *, align: str) -> Limit:
    """Returns a limit that counts like the library's `strategy`; very large moving windows count in slices."""
    # Windows are aligned to the clock by default. Windows that begin with the first hit, as in the library, have no
    # compiled code: they took 80 us instead of 5 for each key of an exchange, and applications needed more processor
    # time than with the library's own Redis storage.
    if strategy == FIXED:
        return Limit(quota, window_s, algorithm=FIXED_WINDOW, align=align)
    if strategy == SLIDING:
        return Limit(quota, window_s, algorithm=SLIDING_WINDOW)
    if quota <= LOG_QUOTA_MAX:
        return Limit(quota, window_s, algorithm=SLIDING_LOG)
    return Limit(quota, window_s, algorithm=SLIDING_SLICES, slices=SLICES)


def _checked(align: object) -> str:
    if align not in (CLOCK, FIRST_HIT):
        raise InvalidSetting(
            "align",
            align,
            f"must be {CLOCK!r} (windows begin at multiples of their length) or {FIRST_HIT!r} (with the first hit)",
        )
    return str(align)


def _whole(cost: int) -> int:
    """Returns a cost rounded up to a whole number; slowapi passes on an application function's result, such as 7.5."""
    if type(cost) is int:
        return cost
    try:
        return ceil(cost)
    # For example text from the query: a client must not choose to be unlimited.
    except (TypeError, ValueError, OverflowError):
        raise InvalidCost(cost, "is not a number") from None
