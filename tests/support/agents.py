"""A vocabulary for tests of the agent: the hub's counts, the threads of a process, and waits."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

from reconverge import Agent, RateLimiter
from reconverge.exchange.thread_runner import ThreadRunner
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import Totals
from reconverge.limiter.asking import WITHIN_MAX_S
from reconverge_sync.redis.hub import RedisHub
from tests.support.threads import running_threads
from tests.support.waiting import eventually

NEVER_FULL = "1000000000/day"
"""A limit that is never near: after the first exchange no decision asks for another one."""
HOUR_S = 3600.0
"""A `sync_interval` that leaves all but the first exchanges to the last report: an agent without one loses counts."""


def net_at(url: str, limit: str = "login", *, namespace: str = "default") -> int:
    """Returns the admitted cost that the hub at `url` has counted, on all nodes, since its data began."""

    async def ask() -> dict[str, Totals]:
        hub = RedisHub(url, HubSettings(namespace, 5.0))
        try:
            return await hub.totals()
        finally:
            await hub.close()

    return asyncio.run(ask()).get(limit, Totals(0, 0)).net


def until_near(agent: Agent, *, within: float) -> None:
    """Waits until a request may wait `within_s` for an agent's hub, which has answered faster than that.

    On a busy machine an answer may take longer, and a hub that is too far is not asked. No other limit is asked about.
    """
    limiter, keys = agent.limit("until-near", "5/minute"), count()

    def near() -> bool:
        limiter.ask_blocking(f"key{next(keys)}", within=WITHIN_MAX_S)
        told = agent.stats().exchanges[0]
        return min(told.round_trip, 2 * told.clock_error) < within / 2

    eventually(near, "an answer that does not take long")
    eventually(lambda: not agent.stats().exchanges[0].pending, "all is said")


def node_of(agent: Agent) -> str:
    """Returns the name under which an agent reports to the first shard of its hub."""
    return agent.stats().exchanges[0].node


def exchanges_of(agent: Agent) -> int:
    return agent.stats().exchanges[0].exchanges


def admitted_of(limiter: RateLimiter, attempts: int, key: str = "ada") -> int:
    return sum(limiter.allow(key) for _ in range(attempts))


def heard(limiter: RateLimiter, key: str = "ada") -> bool:
    """Returns whether the hub has answered about a key; the call makes the agent ask the hub."""
    return limiter.usage(key).staleness < float("inf")


def introduce(limiter: RateLimiter, *keys: str) -> int:
    """Admits one request of each key, and waits for the hub's answer, which grants an allowance.

    Returns the admitted cost.
    """
    keys = keys or ("ada",)
    admitted = sum(limiter.allow(key) for key in keys)
    eventually(lambda: all(heard(limiter, key) for key in keys), f"the hub's answer for {keys}")
    return admitted


def exchange_threads() -> list[ThreadRunner]:
    """Returns the threads on which agents exchange, or are about to."""
    return running_threads()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
