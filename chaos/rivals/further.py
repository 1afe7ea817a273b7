"""Further baselines, whose weakness is how their process runs, not what they report to the server."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote, urlsplit

import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from chaos.fleet.plan import Plan
from chaos.judge.history import OK, Recorder
from chaos.names import REPORTED
from chaos.rivals.usual import Counting, Requeueing
from reconverge.clock import Clock
from reconverge.kernel import Verdict
from reconverge_sync.redis.errors import as_unavailable

REPLY_BYTES: Final = 65_536


class Unlocked(Requeueing):
    """Trusts that no other thread runs between its check and its change."""

    def decide(self, key: str, cost: int) -> Verdict:
        field = f"{key}:{self.epoch()}"
        used = self.sums.get(field, 0) + self.pending[field] + self.under_way[field]
        pending, charged = self.pending[field], self.charged
        verdict = self.verdict(allowed=used + cost <= self.plan.limit.capacity)
        if verdict.allowed:
            self.pending[field] = pending + cost
            self.charged = charged + cost
        return verdict


class Orphaned(Requeueing):
    """Begins to exchange when the application is loaded, which is enough if no process forks."""

    def __init__(self, name: str, plan: Plan, recorder: Recorder, clock: Clock) -> None:
        super().__init__(name, plan, recorder, clock)
        self._begun = False

    def begin(self) -> None:
        if not self._begun:
            self._begun = True
            super().begin()


class Unbounded(Requeueing):
    """Counts every key that it is asked about, and puts it into a command unchanged."""

    def exchange(self) -> None:
        with self.lock:
            taken, self.pending = self.pending, Counter()
            self.under_way = taken
        number = self.recorder.sent(self.name, self.account, self.charged)
        try:
            self.sums, self.total = self.tell(taken)
        except redis.RedisError as error:
            self.note(number, as_unavailable(error))
            self.pending.update(taken)
            return
        self.recorder.heard(self.name, number, OK)
        self.heard_ns = self.clock.monotonic_ns()


class OneGulp(Requeueing):
    """Speaks the server's protocol by itself, and takes the bytes of one read for the whole answer."""

    def __init__(self, name: str, plan: Plan, recorder: Recorder, clock: Clock) -> None:
        super().__init__(name, plan, recorder, clock)
        self._line: socket.socket | None = None

    def tell(self, taken: Counter[str]) -> tuple[dict[str, int], int]:
        try:
            if self._line is None:
                parts = urlsplit(self.plan.rivals_url)
                line = socket.create_connection((parts.hostname, parts.port or 6379), self.plan.timeout_s)
                line.settimeout(self.plan.timeout_s)
                self._line = line
                self._say("AUTH", unquote(parts.password or ""))
            total = self._say("HINCRBY", f"{self.name}:{REPORTED}", "all", str(taken.total()))
            return {}, int(total.removeprefix(":"))
        except (OSError, ValueError) as error:
            if self._line is not None:
                self._line.close()
            self._line = None
            raise OSError(str(error)) from None

    def _say(self, *words: str) -> str:
        assert self._line is not None
        parts = [f"*{len(words)}\r\n", *(f"${len(word)}\r\n{word}\r\n" for word in words)]
        self._line.sendall("".join(parts).encode())
        reply = self._line.recv(REPLY_BYTES).decode()
        if not reply.endswith("\r\n"):
            raise ValueError("no answer that can be understood")
        return reply.strip()


class FirstLoop(Counting):
    """Makes one asynchronous client, for the first event loop that runs it."""

    def __init__(self, name: str, plan: Plan, recorder: Recorder, clock: Clock) -> None:
        super().__init__(name, plan, recorder, clock)
        self._asynchronous = redis.asyncio.Redis.from_url(
            plan.rivals_url, socket_timeout=plan.timeout_s, retry=Retry(NoBackoff(), 0)
        )

    def failed(self, taken: Counter[str]) -> None:
        self.pending.update(taken)

    def prepare(self, keys: Iterable[str]) -> None:
        """Does nothing outside a loop."""

    def begin(self) -> None:
        """Does nothing outside a loop."""

    @property
    def ready(self) -> bool:
        """Returns True, as it needs no preparation."""
        return True

    async def live(self) -> None:
        """Exchanges within the running loop, until it is cancelled."""
        while True:
            await asyncio.sleep(self.plan.interval_s)
            taken, self.pending = self.pending, Counter()
            number = self.recorder.sent(self.name, self.account, self.charged)
            try:
                self.total = int(await self._asynchronous.hincrby(f"{self.name}:{REPORTED}", "all", taken.total()))
            except Exception as error:  # noqa: BLE001  # each error counts as a failure
                self.note(number, as_unavailable(error))
                self.failed(taken)
            except asyncio.CancelledError:
                self.failed(taken)
                raise
            else:
                self.recorder.heard(self.name, number, OK)


class CatchingUpInLoop(FirstLoop):
    """Exchanges a fixed number of times per second as a task, and makes up for missed exchanges."""

    async def live(self) -> None:
        due_s = time.monotonic()
        while True:
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            due_s += self.plan.interval_s
            self.exchange()
