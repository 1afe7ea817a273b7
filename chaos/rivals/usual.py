"""The usual alternatives to our agent, small enough to be read: every scenario has to show that it catches some.

All of them count on their own and report new counts to the server at a steady pace; they differ in what they do when
something goes wrong. None is a caricature: each has a good reason for its behaviour.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable
from secrets import token_hex
from typing import Any, Final
from urllib.parse import urlsplit
from zlib import crc32

import redis
from redis.exceptions import RedisClusterException

from chaos.fleet.plan import Plan
from chaos.judge.history import FAIL, OK, UNKNOWN, Recorder
from chaos.names import REPORTED, SUMS, hash_of
from chaos.rivals.clients import redis_client
from reconverge.clock import SECOND_NS, Clock
from reconverge.errors import HubUnavailable
from reconverge.kernel import Verdict
from reconverge_sync.redis.errors import as_unavailable

LAST_WORDS_S: Final = 2.0
EXPIRE_S: Final = 600


class Counting:
    """Keeps new counts until the server has received them, and believes the sums that it answers."""

    keeps_quiet_at_the_end = False

    def __init__(self, name: str, plan: Plan, recorder: Recorder, clock: Clock) -> None:
        self.name = name
        self.plan = plan
        self.recorder = recorder
        self.clock = clock
        self.account = token_hex(4)
        self.lock = threading.Lock()
        self.pending: Counter[str] = Counter()
        """The counts that the server has not received yet, by key and window."""
        self.under_way: Counter[str] = Counter()
        self.sums: dict[str, int] = {}
        """The sums in the server's last answer, by key and window."""
        self.charged = 0
        self.total = 0
        """The total charges of all nodes, in the server's last answer."""
        self.heard_ns = 0
        self.failures: Counter[str] = Counter()
        self.client = self.connect()
        self._pid = 0
        self._stopping = threading.Event()

    # ---------------------------------------------------------------- what differs

    def connect(self) -> Any:
        """Returns a client that does not retry by itself."""
        return redis_client(self.plan.rivals_url, self.plan.timeout_s)

    def failed(self, taken: Counter[str]) -> None:
        """Handles counts without an answer: they may have arrived, or not."""
        raise NotImplementedError

    def tell(self, taken: Counter[str]) -> tuple[dict[str, int], int]:
        """Reports new counts to the server. Returns the sums, and the sum of them all."""
        epoch, shards = self.epoch(), self.plan.shards
        asked: list[list[str]] = [[f"none:{epoch}"] for _ in range(shards)]
        pipeline = self.client.pipeline(transaction=False)
        for field in {*self.sums, *taken}:
            shard = crc32(field.rpartition(":")[0].encode()) % shards
            if field in taken:
                pipeline.hincrby(hash_of(self.name, SUMS, shard, shards), field, taken[field])
                pipeline.hincrby(hash_of(self.name, REPORTED, shard, shards), "all", taken[field])
            if int(field.rpartition(":")[2]) >= epoch:
                asked[shard].append(field)
        for shard, fields in enumerate(asked):
            pipeline.hmget(hash_of(self.name, SUMS, shard, shards), fields)
            pipeline.hvals(hash_of(self.name, REPORTED, shard, shards))
        answers = pipeline.execute()[-2 * shards :]
        sums = {
            field: int(value or 0)
            for fields, values in zip(asked, answers[::2], strict=True)
            for field, value in zip(fields, values, strict=True)
        }
        return sums, sum(int(value) for values in answers[1::2] for value in values)

    # ---------------------------------------------------------------- what is asked

    def epoch(self) -> int:
        """Returns the number of the window, by this node's own clock."""
        return self.clock.wall_ns() // self.plan.limit.window_ns

    def decide(self, key: str, cost: int) -> Verdict:
        if self._pid != os.getpid():
            self.begin()
        field = f"{key}:{self.epoch()}"
        with self.lock:
            used = self.sums.get(field, 0) + self.pending[field] + self.under_way[field]
            allowed = used + cost <= self.plan.limit.capacity
            if allowed:
                self.pending[field] += cost
                self.charged += cost
        return self.verdict(allowed=allowed)

    async def ask(self, key: str, cost: int) -> Verdict:
        """Decides as `decide` does: most rivals ask no server."""
        return self.decide(key, cost)

    def verdict(self, *, allowed: bool) -> Verdict:
        """Returns the verdict, with the window and the time by this node's clock."""
        return Verdict(allowed, self.epoch(), self.clock.wall_ns(), known=True)

    def knock(self, limit: int, key: str) -> bool:
        """Raises NotImplementedError: most rivals have no limit that a stranger could flood."""
        raise NotImplementedError

    def lie(self, *, lies: bool) -> None:
        """Raises NotImplementedError: most rivals have no hub object that could lie."""
        raise NotImplementedError

    def health(self) -> str:
        return ""

    def count(self, cost: int) -> None:
        """Does nothing: the sums of all keys are enough."""

    def view(self) -> int:
        return self.total + self.pending.total() + self.under_way.total()

    def used(self, key: str) -> tuple[int, int]:
        epoch = self.epoch()
        field = f"{key}:{epoch}"
        return epoch, self.sums.get(field, 0) + self.pending[field] + self.under_way[field]

    def staleness_s(self) -> float:
        return (self.clock.monotonic_ns() - self.heard_ns) / SECOND_NS

    def ages_s(self) -> list[float]:
        """Returns the same age for all shards, as one exchange is with all of them."""
        return [self.staleness_s()] * self.plan.shards

    def facts(self) -> dict[str, Any]:
        keys = len({field.rpartition(":")[0] for field in {*self.sums, *self.pending, *self.under_way}})
        return {"keys": keys, "keys_max": self.plan.keys_max, "failures": dict(self.failures)}

    # ---------------------------------------------------------------- how it goes on

    def prepare(self, keys: Iterable[str]) -> None:  # noqa: ARG002  # it learns of keys when they are asked about
        self.begin()

    @property
    def ready(self) -> bool:
        return self.heard_ns > 0

    def begin(self) -> None:
        """Begins to exchange on a thread of this process, until its end."""
        self._pid = os.getpid()
        thread = threading.Thread(target=self.go_on, name=self.name, daemon=True)
        thread.start()
        atexit.register(self.stop, thread)  # a forked child has inherited its parent's, which finds nothing to do

    def stop(self, thread: threading.Thread) -> None:
        """Ends the thread, and reports for the last time."""
        self._stopping.set()
        thread.join(LAST_WORDS_S)
        if not self.keeps_quiet_at_the_end and not thread.is_alive():
            try:
                self.exchange()
            except Exception as error:  # noqa: BLE001  # the error is this rival's alone
                self.recorder.write("escaped", who=self.name, what=str(error)[:200])

    def go_on(self) -> None:
        """Exchanges at a steady pace."""
        while not self._stopping.wait(self.plan.interval_s):
            self.exchange()

    def exchange(self) -> None:
        """Reports the new counts to the server, and reads those of the other nodes."""
        with self.lock:
            taken, self.pending = self.pending, Counter()
            self.under_way = taken
            charged = self.charged
        number = self.recorder.sent(self.name, self.account, charged)
        try:
            sums, total = self.tell(taken)
        except (redis.RedisError, RedisClusterException, OSError, EOFError) as error:
            self.note(number, as_unavailable(error))
            with self.lock:
                self.under_way = Counter()
                self.failed(taken)
            return
        self.recorder.heard(self.name, number, OK)
        with self.lock:
            self.under_way = Counter()
            self.sums, self.total = sums, total
            self.heard_ns = self.clock.monotonic_ns()

    def note(self, number: int, problem: HubUnavailable) -> None:
        """Records that an exchange got no answer."""
        self.failures[problem.kind] += 1
        self.recorder.heard(self.name, number, FAIL if problem.applied is False else UNKNOWN, problem.kind)


class Dropping(Counting):
    """Does not report again what may have arrived: it would count twice."""

    def failed(self, taken: Counter[str]) -> None:  # that is its weakness
        """Drops the counts."""


class Requeueing(Counting):
    """Reports again what may not have arrived: it would be lost."""

    def failed(self, taken: Counter[str]) -> None:
        self.pending.update(taken)


class Retrying(Dropping):
    """Leaves retries to the client, which by default retries ten times."""

    def connect(self) -> redis.Redis:
        parts = urlsplit(self.plan.rivals_url)
        # A client made from a URL would not retry.
        return redis.Redis(
            host=parts.hostname or "localhost",
            port=parts.port or 6379,
            password=parts.password,
            socket_timeout=self.plan.timeout_s,
        )


class Patient(Requeueing):
    """Waits for an answer for as long as it takes."""

    def connect(self) -> Any:
        return redis_client(self.plan.rivals_url, None)


class Expiring(Requeueing):
    """Makes all its data on the server expire, so that nothing is left behind."""

    def tell(self, taken: Counter[str]) -> tuple[dict[str, int], int]:
        answer = super().tell(taken)
        for name in ("sums", REPORTED):
            self.client.expire(f"{self.name}:{name}", EXPIRE_S)
        return answer


class Mute(Requeueing):
    """Reports nothing when its process ends."""

    keeps_quiet_at_the_end = True


class Namesake(Counting):
    """Reports its whole count, so that repeats are harmless, but under a name from the configuration."""

    def __init__(self, name: str, plan: Plan, recorder: Recorder, clock: Clock) -> None:
        super().__init__(name, plan, recorder, clock)
        self.account = f"node-{plan.node}"

    def failed(self, taken: Counter[str]) -> None:
        self.pending.update(taken)

    def tell(self, taken: Counter[str]) -> tuple[dict[str, int], int]:  # noqa: ARG002  # it reports the whole count
        reported = f"{self.name}:{REPORTED}"
        self.client.hset(reported, self.account, self.charged)
        return {}, sum(map(int, self.client.hvals(reported)))


class CatchingUp(Requeueing):
    """Exchanges a fixed number of times per second, and makes up for missed exchanges."""

    def go_on(self) -> None:
        due_s = time.monotonic()
        while not self._stopping.wait(max(0.0, due_s - time.monotonic())):
            due_s += self.plan.interval_s
            self.exchange()


class Eager(Requeueing):
    """Tries again at once when the server is gone, to be back at once, too."""

    def go_on(self) -> None:
        while not self._stopping.is_set():
            failures = self.failures.total()
            self.exchange()
            self._stopping.wait(self.plan.interval_s if self.failures.total() == failures else 0.02)


class Locking(Requeueing):
    """Holds its lock for the whole exchange, so that nothing changes meanwhile."""

    def __init__(self, name: str, plan: Plan, recorder: Recorder, clock: Clock) -> None:
        super().__init__(name, plan, recorder, clock)
        self.lock = threading.RLock()  # type: ignore[assignment]

    def exchange(self) -> None:
        with self.lock:
            super().exchange()


class Asking(Requeueing):
    """Asks the server about every request, and admits it if there is no answer."""

    def decide(self, key: str, cost: int) -> Verdict:
        try:
            used = self.client.hincrby(f"{self.name}:asked", f"{key}:{self.epoch()}", cost)
        except (redis.RedisError, OSError):
            return self.verdict(allowed=True)
        return self.verdict(allowed=int(used) <= self.plan.limit.capacity)
