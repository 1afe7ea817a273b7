"""Rivals that hang, swell, believe lies or lock customers out: each has a common weakness, for a good reason."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final

import redis

from chaos.faults.nonsense import ABSURD_COUNTS
from chaos.fleet.plan import Plan
from chaos.judge.history import OK, Recorder
from chaos.names import REPORTED
from chaos.rivals.usual import Counting, Requeueing
from reconverge.clock import Clock
from reconverge.kernel import Verdict
from reconverge_sync.redis.errors import as_unavailable

KEPT_S: Final = 3600
PIPELINED: Final = 2000
RESERVED_SHARE: Final = 2
"""A process reserves the free capacity divided by this."""
PARTS: Final = 4
"""A process of the rival that recalls begins with the quota divided by this."""


class Uncapped(Requeueing):
    """Has a counter for each key that it is asked about, and never removes it."""

    def __init__(self, name: str, plan: Plan, recorder: Recorder, clock: Clock) -> None:
        super().__init__(name, plan, recorder, clock)
        self.strangers: Counter[str] = Counter()

    def knock(self, limit: int, key: str) -> bool:
        flooded = self.plan.flooded[limit]
        field = f"{limit}:{key}:{self.clock.wall_ns() // flooded.window_ns}"
        with self.lock:
            self.strangers[field] += 1
            return self.strangers[field] <= flooded.capacity

    def facts(self) -> dict[str, Any]:
        facts = super().facts()
        return {**facts, "keys": facts["keys"] + len(self.strangers)}


class KeyPerKey(Uncapped):
    """Has one key on the server for each key that it is asked about, kept for as long as the longest window."""

    def tell(self, taken: Counter[str]) -> tuple[dict[str, int], int]:
        with self.lock:
            strangers, self.strangers = list(self.strangers.items()), Counter()
        for begin in range(0, len(strangers), PIPELINED):
            pipeline = self.client.pipeline(transaction=False)
            for key, asked in strangers[begin : begin + PIPELINED]:
                pipeline.incrby(f"{self.name}:{key}", asked)
                pipeline.expire(f"{self.name}:{key}", KEPT_S)
            pipeline.execute()
        return super().tell(taken)

    def decide(self, key: str, cost: int) -> Verdict:
        """Decides a request; if the server has not answered for long, refuses it."""
        if self.staleness_s() > self.plan.lease_s:
            return self.verdict(allowed=False)
        return super().decide(key, cost)


class Believing(Requeueing):
    """Believes any number that it receives, and goes on after any error."""

    def exchange(self) -> None:
        try:
            super().exchange()
        except Exception as error:  # noqa: BLE001  # it is to survive everything
            self.failures[f"bug:{type(error).__name__}"] += 1
            with self.lock:
                taken, self.under_way = self.under_way, Counter()
                self.failed(taken)

    def lie(self, *, lies: bool) -> None:
        self.lied_to = lies

    lied_to = False

    def tell(self, taken: Counter[str]) -> tuple[dict[str, int], int]:
        """Reports to the server; while it is lied to, returns other numbers."""
        sums, total = super().tell(taken)
        if self.lied_to:
            sums = dict.fromkeys(sums, min(ABSURD_COUNTS))
        return sums, total


class Mortal(Requeueing):
    """Exchanges on a thread that handles the errors of its client, and ends with any other."""

    lied_to = False

    def lie(self, *, lies: bool) -> None:
        self.lied_to = lies

    def tell(self, taken: Counter[str]) -> tuple[dict[str, int], int]:
        """Reports to the server; while it is lied to, tries to read a text as a number."""
        sums, total = super().tell(taken)
        return sums, int("soon") if self.lied_to else total


class PlainLock(Requeueing):
    """Guards its counters with a lock that its own thread cannot take twice."""


class LazyUnderLock(Requeueing):
    """Starts its thread at the first request, under the lock of its counters, which is not a greenlet's.

    The start lasts until another request has come, which would otherwise depend on chance.
    """

    def __init__(self, name: str, plan: Plan, recorder: Recorder, clock: Clock) -> None:
        super().__init__(name, plan, recorder, clock)
        self.lock = native_lock()
        self._begun = False
        self._asked = 0

    def decide(self, key: str, cost: int) -> Verdict:
        self._asked += 1
        with self.lock:
            if not self._begun:
                self._begun = True
                self.begin()
                while self._asked < 2:
                    time.sleep(0.001)
        return super().decide(key, cost)

    def prepare(self, keys: Iterable[str]) -> None:
        """Does nothing: it begins at the first request."""


def native_lock() -> Any:
    """Returns a lock of the operating system, as in compiled code, even if Python's locks are those of greenlets."""
    try:
        monkey = import_module("gevent.monkey")
    except ImportError:
        return threading.Lock()
    return monkey.get_original("_thread", "allocate_lock")()


class Reserving(Counting):
    """Reserves half of the free capacity for its process; the reserve of a process that is gone counts as used."""

    def __init__(self, name: str, plan: Plan, recorder: Recorder, clock: Clock) -> None:
        super().__init__(name, plan, recorder, clock)
        self.reserved: Counter[str] = Counter()
        """The capacity that this process may use in its life, by key and window."""

    def failed(self, taken: Counter[str]) -> None:
        self.pending.update(taken)

    def decide(self, key: str, cost: int) -> Verdict:
        field = f"{key}:{self.epoch()}"
        with self.lock:
            allowed = self.reserved[field] >= cost
            if allowed:
                self.reserved[field] -= cost
                self.pending[field] += cost
                self.charged += cost
            else:
                self.pending[field] += 0
        return self.verdict(allowed=allowed)

    def exchange(self) -> None:
        with self.lock:
            taken, self.pending = self.pending, Counter()
            charged = self.charged
        number = self.recorder.sent(self.name, self.account, charged)
        try:
            total = int(self.client.hincrby(f"{self.name}:{REPORTED}", "all", taken.total()))
            for field in taken:
                self._reserve(field)
        except (redis.RedisError, OSError) as error:
            self.note(number, as_unavailable(error))
            with self.lock:
                self.failed(taken)
            return
        self.recorder.heard(self.name, number, OK)
        self.total, self.heard_ns = total, self.clock.monotonic_ns()

    def _reserve(self, field: str) -> None:
        """Reserves half of the free capacity, if this process has none left."""
        if self.reserved[field] > 0:
            return
        name = f"{self.name}:reserved"
        free = self.plan.limit.capacity - int(self.client.hget(name, field) or 0)
        amount = -(-free // RESERVED_SHARE)
        if amount > 0:
            taken = int(self.client.hincrby(name, field, amount))
            if taken <= self.plan.limit.capacity:
                with self.lock:
                    self.reserved[field] += amount


class Recalling(Counting):
    """Holds a part of each window; takes over the unused parts of others when its own is used up, and informs them.

    It does not wait until they have heard that, so that it refuses nothing meanwhile.
    """

    def __init__(self, name: str, plan: Plan, recorder: Recorder, clock: Clock) -> None:
        super().__init__(name, plan, recorder, clock)
        self.parts: dict[str, int] = {}
        """The cost that this process may use up, by key and window, in the server's last answer."""
        self.spent: Counter[str] = Counter()

    def failed(self, taken: Counter[str]) -> None:
        self.pending.update(taken)

    def decide(self, key: str, cost: int) -> Verdict:
        field = f"{key}:{self.epoch()}"
        with self.lock:
            allowed = self.spent[field] + cost <= self.parts.get(field, 0)
            self.pending[field] += cost * allowed
            self.spent[field] += cost * allowed
            self.charged += cost * allowed
        return self.verdict(allowed=allowed)

    def tell(self, taken: Counter[str]) -> tuple[dict[str, int], int]:
        total = int(self.client.hincrby(f"{self.name}:{REPORTED}", "all", taken.total()))
        for field in taken:
            used, parts = f"{self.name}:used:{field}", f"{self.name}:parts:{field}"
            self.client.hset(used, self.account, self.spent[field])
            if self.client.hsetnx(parts, self.account, 0):
                self.client.hincrby(parts, self.account, self.plan.limit.capacity // PARTS)
            held = {name: int(part) for name, part in self.client.hgetall(parts).items()}
            spent = {name: int(cost) for name, cost in self.client.hgetall(used).items()}
            mine = self.account.encode()
            if self.spent[field] >= held[mine]:
                unused, name = max((part - spent.get(name, 0), name) for name, part in held.items())
                if unused > 1:
                    self.client.hincrby(parts, name, -(unused // 2))
                    held[mine] = int(self.client.hincrby(parts, mine, unused // 2))
            with self.lock:
                self.parts[field] = held[mine]
        return {}, total
