"""Measures the time of a request in doubt that asks the hub, beside the same EVALSHA through the same proxy.

Each request is about a key that is new to the agent, so memory can settle none. The requests come at random moments,
even if earlier ones still wait.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from bench.child import Missing, answer, in_a_process
from bench.decisions.candidate import compiled_unless_asked
from bench.decisions.peers import peer
from bench.report.found import Row, Spread
from bench.servers import redis_on_loopback
from reconverge import Agent, Limit, RateLimiter
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import Answer, Batch
from reconverge_sync.redis.hub import RedisHub

PART: Final = "asks"
ADDED_MS: Final = 5
ROUNDS: Final = 5
SECONDS: Final = 2.0
RATE: Final = 1000
"""Requests in doubt per second."""
FLOOR_CALLS: Final = 100
"""The calls of the floor in each round."""
TIMEOUT_S: Final = 1.0
LIMIT: Final = Limit(5, 60.0)

PROXIED: Final = f"{ADDED_MS} ms added"
DIRECT: Final = "no proxy"
FLOOR: Final = "floor: the same EVALSHA, one at a time"
EXCHANGE: Final = "EVALSHA of the agent, meanwhile"
ASK: Final = f"reconverge, `ask`, {RATE:,} in doubt a second"
PER_EXCHANGE: Final = "requests answered by one exchange"
LEFT: Final = "left to memory"
SHARES: Final = {"median": 50, "p99": 99}


def case_of(place: str, share: str) -> str:
    """Returns the name of a column."""
    return f"{place}, {share}"


def measure(*, quick: bool, only: str = "") -> Iterator[Row]:
    """Measures with a proxy that adds some milliseconds to each answer, and without a proxy."""
    for place, added_ms in ((PROXIED, ADDED_MS), (DIRECT, 0)):
        if only not in place:
            continue
        try:
            task = {"added_ms": added_ms, "rounds": 1 if quick else ROUNDS, "seconds": 0.5 if quick else SECONDS}
            rounds: list[dict[str, Any]] = in_a_process("bench.capacity.asks", task)
        except Missing as error:
            yield Row(PART, case_of(place, "median"), ASK, missing=str(error))
            continue
        for share in SHARES:
            for what in (FLOOR, EXCHANGE, ASK):
                values = [each[what][share] for each in rounds]
                ratios = [each[what][share] / each[FLOOR]["median"] for each in rounds]
                beside = "the median of the floor"
                yield Row(PART, case_of(place, share), what, beside, Spread.of(ratios), Spread.of(values), "ms")
        for what, unit in ((PER_EXCHANGE, "requests"), (LEFT, "% of the requests")):
            yield Row(
                PART, case_of(place, "in all"), what, measured=Spread.of([each[what] for each in rounds]), unit=unit
            )


# -------------------------------------------------------------------- in the child


class _Timed(RedisHub):
    """A hub that notes the duration of each EVALSHA, and the last batch that had cells."""

    def __init__(self, port: int, namespace: str) -> None:
        super().__init__(f"redis://127.0.0.1:{port}/0", HubSettings(namespace, TIMEOUT_S))
        self.took_ms: list[float] = []
        self.last: Batch | None = None

    async def exchange(self, batch: Batch) -> Answer:
        if batch.cells:
            self.last = batch
        return await super().exchange(batch)

    async def _run(self, shard: int, keys: int, *keys_and_arguments: bytes) -> object:
        begun_ns = time.perf_counter_ns()
        found = await super()._run(shard, keys, *keys_and_arguments)
        self.took_ms.append((time.perf_counter_ns() - begun_ns) / 1e6)
        return found


def work(*, added_ms: int, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Returns the findings of each round."""
    compiled_unless_asked()
    with redis_on_loopback() as port:
        return asyncio.run(_work(port, added_ms, rounds, seconds))


async def _work(port: int, added_ms: int, rounds: int, seconds: float) -> list[dict[str, Any]]:
    async with AsyncExitStack() as stack:
        port = await _proxied(stack, port, added_ms) if added_ms else port
        hub, floor = _Timed(port, "bench"), _Timed(port, "floor")
        stack.push_async_callback(floor.close)
        agent = await stack.enter_async_context(Agent(hub, namespace="bench"))
        limiter = agent.limit("login", LIMIT)
        await _ask_often(limiter, "warming up", 0.5)
        found = []
        for number in range(rounds):
            assert hub.last is not None
            floor.took_ms.clear()
            for sequence in range(FLOOR_CALLS):
                again = hub.last._replace(account="floor", sequence=number * FLOOR_CALLS + sequence + 1)
                await floor.exchange(again)
            hub.took_ms.clear()
            before = agent.stats().limits["login"].asks.results
            took_ms = await _ask_often(limiter, f"round {number}", seconds)
            after = agent.stats().limits["login"].asks.results
            asked = sum(after.values()) - sum(before.values())
            answered = sum(after[result] - before[result] for result in ("admitted", "refused"))
            found.append(
                {
                    FLOOR: _shares(floor.took_ms),
                    EXCHANGE: _shares(hub.took_ms),
                    ASK: _shares(took_ms),
                    PER_EXCHANGE: asked / max(1, len(hub.took_ms)),
                    LEFT: 100 * (asked - answered) / max(1, asked),
                }
            )
        return found


async def _proxied(stack: AsyncExitStack, port: int, added_ms: int) -> int:
    """Returns the port of a Toxiproxy that delays each answer by `added_ms`. Raises Missing."""
    peer("toxiproxy")
    from chaos.faults.proxy import Toxic, Toxiproxy  # noqa: PLC0415  # its client need not be installed

    if lacking := Toxiproxy.missing():
        raise Missing(lacking)
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reconverge-bench-")))
    proxies = stack.enter_context(Toxiproxy(directory / "toxiproxy.log"))
    wire = await proxies.wire("hub", port)
    await wire.add(Toxic("latency", "downstream", {"latency": added_ms}))
    return wire.port


async def _ask_often(limiter: RateLimiter, name: str, seconds: float) -> list[float]:
    """Asks about a new key each time, even if earlier requests still wait. Returns the durations in milliseconds."""
    took_ms: list[float] = []

    async def ask(key: str) -> None:
        begun_ns = time.perf_counter_ns()
        await limiter.ask(key)
        took_ms.append((time.perf_counter_ns() - begun_ns) / 1e6)

    draw = random.Random(name)
    loop = asyncio.get_running_loop()
    begun_s, due_s = loop.time(), 0.0
    async with asyncio.TaskGroup() as group:
        while (due_s := due_s + draw.expovariate(RATE)) < seconds:
            await asyncio.sleep(begun_s + due_s - loop.time())
            group.create_task(ask(f"{name}, {due_s}"))
    return took_ms


def _shares(took_ms: list[float]) -> dict[str, float]:
    cuts = quantiles(took_ms, n=100, method="inclusive")
    return {name: cuts[share - 1] for name, share in SHARES.items()}


if __name__ == "__main__":
    sys.exit(answer(work))
