"""Measures the cost of an exchange by key, for the client and the Redis, and how long it blocks an event loop."""

from __future__ import annotations

import asyncio
import selectors
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from random import Random
from typing import Any, Final

import redis.asyncio

from bench.child import Missing, answer, in_a_process
from bench.decisions.candidate import compiled_unless_asked
from bench.decisions.decisions import key_of
from bench.decisions.timing import no_collector
from bench.report.found import Row, Spread
from bench.servers import ServerMeter, redis_on_loopback
from reconverge import Agent, Limit
from reconverge.clock import MILLISECOND_NS, SECOND_NS, ManualClock
from reconverge.exchange.syncer import CELLS_MAX, Syncer
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import Answer, Batch
from reconverge.kernel import Kernel
from reconverge.policies import BALANCED
from reconverge_sync.redis.hub import RedisHub

PART: Final = "sync"
KEYS: Final = 100_000
KEYS_QUICK: Final = 2_000
ROUNDS: Final = 5
INTERVAL_NS: Final = SECOND_NS
LIMIT: Final = Limit(1_000_000_000, 60.0)
START_S: Final = 1_750_000_000.0
FLOOR: Final = f"floor: redis-py, pipelines of {CELLS_MAX} `INCRBY`"
OURS: Final = "reconverge"
COLD, HOT = "keys new to the hub", "keys known to the hub"
PIECES: Final = ("take", "encode", "EVALSHA by redis-py", "decode", "install")
DRAIN: Final = "take and install"
CLIENT: Final = "client, all of it"
SCRIPT: Final = "Redis, in the script (elapsed)"
SERVER: Final = "Redis, all of it"
BLOCKS: Final = {"p999": "event loop, p99.9 of its blocks", "max": "event loop, longest block"}
CAUGHT_UP_S_MAX: Final = 300.0


def measure(*, quick: bool, only: str = "") -> Iterator[Row]:
    """Measures the cost for each key, and the blocks of an application's event loop."""
    if only not in OURS:
        return
    task = {"keys": KEYS_QUICK if quick else KEYS, "rounds": 1 if quick else ROUNDS}
    try:
        found = in_a_process("bench.capacity.sync", {**task, "of": "costs"})
        lags = in_a_process("bench.capacity.sync", {**task, "of": "lags"})
    except Missing as error:
        yield Row(PART, CLIENT, OURS, missing=str(error))
        return
    floor = found.pop(FLOOR)
    for what, costs in ((FLOOR, {HOT: floor}), *((f"{OURS}: {case}", {case: of}) for case, of in found.items())):
        for pieces in costs.values():
            for piece, values in pieces.items():
                least = floor[SERVER if piece in (SERVER, SCRIPT) else CLIENT]
                ratios = [value / Spread.of(least).median for value in values]
                yield Row(PART, piece, what, "floor", Spread.of(ratios), Spread.of(values), "µs for a key")
    for what, blocks in lags.items():
        for field, case in BLOCKS.items():
            ratio = blocks[field] / lags[FLOOR][field]
            yield Row(PART, case, what, "floor", Spread.of([ratio]), Spread.of([blocks[field]]), "ms")


def work(*, keys: int, rounds: int, of: str) -> dict[str, Any]:
    """Measures one case in the child process, on a Redis of its own."""
    compiled_unless_asked()
    names = [key_of(number) for number in range(keys)]
    with redis_on_loopback() as port:
        if of == "costs":
            return asyncio.run(_costs(names, port, rounds))
        with asyncio.Runner(loop_factory=_timed_loop) as runner:
            return runner.run(_lags(names, port))


# -------------------------------------------------------------------- for each key


class _Watched(RedisHub):
    """A hub that notes the CPU time of its own thread for each part of an exchange."""

    spent_ns: dict[str, int]

    async def exchange(self, batch: Batch) -> Answer:
        begun_ns = time.thread_time_ns()
        found = await super().exchange(batch)
        self.spent_ns["encode"] += self._sent_ns - begun_ns
        self.spent_ns["decode"] += time.thread_time_ns() - self._answered_ns
        return found

    async def _run(self, shard: int, keys: int, *keys_and_arguments: bytes) -> object:
        self._sent_ns = time.thread_time_ns()
        found = await super()._run(shard, keys, *keys_and_arguments)
        self._answered_ns = time.thread_time_ns()
        self.spent_ns["EVALSHA by redis-py"] += self._answered_ns - self._sent_ns
        return found


class _Node:
    """The production kernel and syncer, which exchange when this benchmark calls for it."""

    def __init__(self, keys: Sequence[str], port: int) -> None:
        self._keys = keys
        self.reports = len(keys)
        """The number of reports in the last round."""
        self._clock = ManualClock(START_S)
        self.hub = _Watched(f"redis://127.0.0.1:{port}/0", HubSettings("bench", 10.0), clock=self._clock)
        kernel = Kernel(
            self._clock,
            namespace="bench",
            interval_ns=INTERVAL_NS,
            interval_min_ns=100 * MILLISECOND_NS,
            keys_max=2 * len(keys),
            key_bytes_max=256,
            new_keys_max=100 * len(keys),  # the cost of a key is measured, not the number of reports per second
        )
        kernel.silence_max_ns = 0  # each round has to report each key
        self._table = kernel.declare("bench", LIMIT, BALANCED)
        names = count(1)
        self._syncer = Syncer(
            kernel,
            shard=0,
            random=Random(0),
            new_name=lambda: f"node-{next(names)}",
            now_ns=self._clock.monotonic_ns(),
        )

    async def round(self) -> dict[str, float]:
        """Uses every key once, and exchanges until all is reported. Returns µs for each key, by part."""
        self._clock.advance_ns(INTERVAL_NS * 11 // 10)
        for key in self._keys:
            self._table.allow(key)
        spent_ns: dict[str, int] = defaultdict(int)
        self.hub.spent_ns = spent_ns
        cells = 0
        with no_collector():
            while (now_ns := self._clock.monotonic_ns()) >= self._syncer.due_ns(now_ns):
                begun_ns = time.thread_time_ns()
                batch = self._syncer.take(now_ns)
                spent_ns["take"] += time.thread_time_ns() - begun_ns
                if batch is None:
                    continue  # the syncer has looked at some due cells, and reports none of them yet
                cells += len(batch.cells)
                found = await self.hub.exchange(batch)
                begun_ns = time.thread_time_ns()
                self._syncer.merged(batch, found, sent_ns=now_ns, now_ns=now_ns)
                spent_ns["install"] += time.thread_time_ns() - begun_ns
        if cells < len(self._keys):
            raise RuntimeError(f"only {cells} of {len(self._keys)} keys were exchanged")
        per_key = {piece: spent_ns[piece] / 1e3 / cells for piece in PIECES}
        self.reports = cells
        return {**per_key, DRAIN: per_key["take"] + per_key["install"], CLIENT: sum(per_key.values())}


async def _costs(keys: Sequence[str], port: int, rounds: int) -> dict[str, Any]:
    """Measures new keys once and known keys several times, in turn with the floor."""
    meter = ServerMeter(port)
    node = _Node(keys, port)
    client = redis.asyncio.Redis(port=port, protocol=2)
    found: dict[str, dict[str, list[float]]] = {what: defaultdict(list) for what in (FLOOR, COLD, HOT)}
    for number in range(rounds + 1):
        for what in (FLOOR, COLD if number == 0 else HOT):
            command = "incrby" if what == FLOOR else "evalsha"
            meter.in_command_us(command)
            meter.spent_us()
            costs = {CLIENT: await _floor_us(client, keys)} if what == FLOOR else await node.round()
            reports = len(keys) if what == FLOOR else node.reports
            costs[SERVER] = meter.spent_us() / reports
            costs[SCRIPT] = meter.in_command_us(command) / reports
            for piece, value in costs.items():
                found[what][piece].append(value)
    await client.aclose()
    await node.hub.close()
    return found


async def _floor_us(client: Any, keys: Sequence[str]) -> float:
    with no_collector():
        begun_ns = time.thread_time_ns()
        for start in range(0, len(keys), CELLS_MAX):
            pipeline = client.pipeline(transaction=False)
            for key in keys[start : start + CELLS_MAX]:
                pipeline.incrby(key, 1)
            await pipeline.execute()
        return (time.thread_time_ns() - begun_ns) / 1e3 / len(keys)


# -------------------------------------------------------------------- what the loop feels


class _TimedSelector(selectors.PollSelector):
    """A selector that notes the time of its thread between two polls, for which the event loop does nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks_ns: list[int] = []
        self.begun_ns: int | None = None

    def select(self, timeout: float | None = None) -> Any:
        if self.begun_ns is not None:
            self.blocks_ns.append(time.thread_time_ns() - self.begun_ns)
        found = super().select(timeout)
        self.begun_ns = time.thread_time_ns()
        return found

    def start_over(self) -> dict[str, float]:
        """Returns the blocks since the last call, in milliseconds, without one that still goes on."""
        blocks_ns, self.blocks_ns, self.begun_ns = sorted(self.blocks_ns), [], None
        if not blocks_ns:
            return {}
        return {"p999": blocks_ns[len(blocks_ns) * 999 // 1000] / 1e6, "max": blocks_ns[-1] / 1e6}


def _timed_loop() -> asyncio.AbstractEventLoop:
    return asyncio.SelectorEventLoop(_TimedSelector())


async def _lags(keys: Sequence[str], port: int) -> dict[str, Any]:
    """Reports all keys at once to a Redis that has none of them, and then once more. Returns the loop's blocks."""
    selector: Any = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]  # noqa: SLF001
    found: dict[str, Any] = {}
    client = redis.asyncio.Redis(port=port, protocol=2)
    await client.ping()
    selector.start_over()
    await _floor_us(client, keys)
    found[FLOOR] = selector.start_over()
    await client.aclose()
    agent = Agent(
        f"redis://127.0.0.1:{port}/0",
        namespace="lag",
        sync_interval=0.1,
        max_keys=2 * len(keys),
        new_keys_max=100 * len(keys),
    )
    limiter = agent.limit("bench", LIMIT)
    async with agent:
        while not agent.ready:
            limiter.allow("the first")
            await asyncio.sleep(0.01)
        for case in (COLD, HOT):
            said = agent.stats().exchanges[0].cells
            for key in keys:
                limiter.allow(key)
            selector.start_over()
            deadline_s = time.monotonic() + CAUGHT_UP_S_MAX
            while agent.stats().exchanges[0].cells < said + len(keys):
                if time.monotonic() > deadline_s:
                    raise RuntimeError("the exchanges have not caught up")
                await asyncio.sleep(0.01)
            found[f"{OURS}: {case}"] = selector.start_over()
    return found


if __name__ == "__main__":
    sys.exit(answer(work))
