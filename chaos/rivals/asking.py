"""Rivals that ask the server about every request, in an event loop; they differ in what they do without an answer."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from chaos.fleet.plan import Plan
from chaos.judge.history import Recorder
from chaos.rivals.usual import Requeueing
from reconverge.clock import Clock
from reconverge.kernel import Verdict
from reconverge.limiter.asking import WITHIN_S

AGAIN_S: Final = 0.05
CONNECTIONS_MAX: Final = 2000
"""The most connections: one for each request that waits."""


class Insistent(Requeueing):
    """Waits for the answer to each request for as long as it takes, and asks again after an error."""

    def __init__(self, name: str, plan: Plan, recorder: Recorder, clock: Clock) -> None:
        super().__init__(name, plan, recorder, clock)
        self._asked: Any = None

    async def ask(self, key: str, cost: int) -> Verdict:
        while True:
            try:
                return await self.asked(key, cost)
            except (redis.RedisError, OSError):
                await asyncio.sleep(AGAIN_S)

    async def asked(self, key: str, cost: int) -> Verdict:
        """Returns the server's answer. Raises RedisError or OSError."""
        if self._asked is None:
            self._asked = self._connect()
        used = await self._asked.hincrby(f"{self.name}:asked", f"{key}:{self.epoch()}", cost)
        return self.verdict(allowed=int(used) <= self.plan.limit.capacity)

    def _connect(self) -> Any:
        parts = urlsplit(self.plan.rivals_url)
        return redis.asyncio.Redis(
            host=parts.hostname or "localhost",
            port=parts.port or 6379,
            password=unquote(parts.password or "") or None,
            max_connections=CONNECTIONS_MAX,
            retry=Retry(NoBackoff(), 0),
        )


class Trusting(Insistent):
    """Asks the server about each request, and admits it if no answer comes in time."""

    async def ask(self, key: str, cost: int) -> Verdict:
        return await self.asked_in_time(key, cost, otherwise=True)

    async def asked_in_time(self, key: str, cost: int, *, otherwise: bool) -> Verdict:
        """Returns the server's answer, or the default one if the server does not answer in time."""
        try:
            async with asyncio.timeout(WITHIN_S):
                return await self.asked(key, cost)
        except (redis.RedisError, OSError):
            return self.verdict(allowed=otherwise)


class Oblivious(Trusting):
    """Asks the server about each request, and refuses it if no answer comes in time, without any memory of that."""

    async def ask(self, key: str, cost: int) -> Verdict:
        return await self.asked_in_time(key, cost, otherwise=False)
