"""The cost of an exchange: a Redis for keys in constant and in occasional use, and the client for a cell.

Run as `python -m bench.capacity.exchange_cost`. Starts a redis-server of its own on a unix socket, and prints tables.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final

import redis.asyncio
from redis import Redis

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.exchange.syncer import CELLS_MAX, Syncer
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import SCHEMA_VERSION, Batch
from reconverge.kernel import Kernel
from reconverge.kernel.reporting.agenda import PROMISED_SHARE
from reconverge.limit import Limit
from reconverge.policies import BALANCED
from reconverge_sync.codec import decode_answer, encode_batch
from reconverge_sync.embedded.supervisor import find_redis_server
from reconverge_sync.redis.hub import RedisHub, _keys

FULL: Final = CELLS_MAX - CELLS_MAX // PROMISED_SHARE
"""The number of cells with news that fit into a batch, while the rest of the batch is kept for cells whose next look is
due."""
CELLS: Final = (1, 10, 100, FULL)
NODES: Final = 8
INTERVAL_NS: Final = SECOND_NS
TURN_NS: Final = INTERVAL_NS * 11 // 10 // NODES
"""The time between the exchanges of two successive nodes: each node's own exchange has just become overdue in its
turn."""
CELLS_PER_ROUND: Final = 10_000
"""The approximate number of cells that are exchanged for one measurement, in batches of any size."""
START_S_MAX: Final = 10.0
LIMIT: Final = Limit(1_000_000_000, 60.0)
"""A limit so large that every node has something new to report each time."""
START_S: Final = 1_750_000_000.0
COLD_INTERVALS: Final = (10, 60, 600)
"""The numbers of sync intervals in a window in which a cold key is used about once."""
COLD_KEYS: Final = 400
"""The number of cold keys of each node."""
COLD_LIMIT: Final = Limit(100, 60.0)
CLIENT_CELLS: Final = FULL
CLIENT_BATCHES: Final = 40

_names = count(1)


@dataclass(frozen=True, slots=True)
class Cost:
    """The result of one measurement, in microseconds."""

    in_commands_us: float
    """The time in commands for each batch, as `INFO commandstats` counts it."""
    in_all_us: float
    """The CPU time of the whole server for each batch, which includes reading, parsing and answering."""


class Node:
    """The real kernel and the real syncer, which exchange when this benchmark calls for it."""

    def __init__(
        self, clock: ManualClock, keys: list[str], *, limit: Limit = LIMIT, interval_ns: int = INTERVAL_NS
    ) -> None:
        self.clock = clock
        self.keys = keys
        self.cells = 0
        self.kernel = Kernel(
            clock,
            namespace="bench",
            interval_ns=interval_ns,
            interval_min_ns=interval_ns // 10,
            keys_max=1000,
            key_bytes_max=256,
        )
        self.kernel.silence_max_ns = 0  # each round has to report each key
        self.table = self.kernel.declare("bench", limit, BALANCED)
        self.syncer = Syncer(
            self.kernel,
            shard=0,
            random=Random(0),
            new_name=lambda: f"node-{next(_names)}",
            now_ns=clock.monotonic_ns(),
        )

    async def exchange_all(self, hub: RedisHub) -> Batch:
        """Uses every key once, and reports all of them to the hub in one batch."""
        now_ns = self.clock.monotonic_ns()
        for key in self.keys:
            self.table.decide(key, 1, now_ns)
        batch = self.syncer.take(now_ns)
        assert batch is not None
        assert len(batch.cells) == len(self.keys)
        answer = await hub.exchange(batch)
        self.syncer.merged(batch, answer, sent_ns=now_ns, now_ns=now_ns)
        return batch

    async def exchange_what_is_due(self, hub: RedisHub) -> None:
        """Reports all that is due, in as many batches as it needs."""
        now_ns = self.clock.monotonic_ns()
        while self.syncer.due_ns(now_ns) <= now_ns:
            batch = self.syncer.take(now_ns)
            if batch is None:
                return
            self.cells += len(batch.cells)
            answer = await hub.exchange(batch)
            self.syncer.merged(batch, answer, sent_ns=now_ns, now_ns=now_ns)


class Meter:
    """Measures the CPU time that the server uses."""

    def __init__(self, server: Redis) -> None:
        self._server = server

    def reset(self) -> None:
        """Begins to count."""
        self._server.config_resetstat()
        self._begun_s = self._cpu_s()

    def spent_us(self) -> float:
        """Returns the CPU time of the whole server since `reset`, in microseconds."""
        return (self._cpu_s() - self._begun_s) * 1e6

    def read(self, command: str, batches: int) -> Cost:
        """Returns the time used since `reset`, divided by `batches`."""
        cpu_us = self.spent_us()
        commands: Any = self._server.info("commandstats")
        return Cost(commands[f"cmdstat_{command}"]["usec"] / batches, cpu_us / batches)

    def _cpu_s(self) -> float:
        spent: Any = self._server.info("cpu")
        return float(spent["used_cpu_user"] + spent["used_cpu_sys"])


@contextmanager
def redis_server() -> Iterator[Path]:
    """Starts a private server that stores nothing on the disk; yields the path of its socket."""
    with tempfile.TemporaryDirectory(prefix="reconverge-bench-") as directory:
        path = Path(directory, "redis.sock")
        options = ["--port", "0", "--unixsocket", str(path), "--dir", directory, "--save", "", "--appendonly", "no"]
        process = subprocess.Popen([find_redis_server(), *options], stdout=subprocess.DEVNULL)
        try:
            deadline_s = time.monotonic() + START_S_MAX
            while not path.exists():
                if process.poll() is not None or time.monotonic() > deadline_s:
                    raise RuntimeError("redis-server did not start")
                time.sleep(0.01)
            yield path
        finally:
            process.kill()
            process.wait()


async def cost_of_batches(path: Path, meter: Meter, cells: int, rounds: int) -> Cost:
    """Measures exchanges of NODES nodes that share `keys` keys, after two rounds in which the nodes meet all keys."""
    clock = ManualClock(START_S)
    hub = RedisHub(f"redis+unix://{path}", HubSettings(f"bench-{cells}", 10.0), clock=clock)
    keys = [f"customer-{number:06}" for number in range(cells)]
    nodes = [Node(clock, keys) for _ in range(NODES)]
    for number in range(rounds + 2):
        if number == 2:
            meter.reset()
        for node in nodes:
            clock.advance_ns(TURN_NS)
            await node.exchange_all(hub)
    await hub.close()
    return meter.read("evalsha", rounds * NODES)


@dataclass(frozen=True, slots=True)
class ColdCost:
    """The cost of keys used about once per window, averaged over all of them and all sync intervals."""

    reports: float
    """The reports of a key in each window."""
    server_us: float
    """The server's CPU time for each key and sync interval."""


async def cost_of_cold_keys(path: Path, meter: Meter, intervals: int) -> ColdCost:
    """Measures two windows in which each node uses keys of its own, each after half a window to one and a half windows.

    Two other windows come before, without being measured.
    """
    clock, random = ManualClock(START_S), Random(intervals)
    window_ns = round(COLD_LIMIT.window * SECOND_NS)
    interval_ns = window_ns // intervals
    hub = RedisHub(f"redis+unix://{path}", HubSettings(f"cold-{intervals}", 10.0), clock=clock)
    nodes = [
        Node(
            clock,
            [f"cold-{node}-{number:06}" for number in range(COLD_KEYS)],
            limit=COLD_LIMIT,
            interval_ns=interval_ns,
        )
        for node in range(NODES)
    ]
    uses = [(random.randrange(window_ns), number, key) for number, node in enumerate(nodes) for key in node.keys]
    heapq.heapify(uses)
    turns = 2 * NODES * intervals
    for turn in range(2 * turns):
        if turn == turns:
            meter.reset()
            for node in nodes:
                node.cells = 0
        clock.advance_ns(interval_ns // NODES)
        while uses[0][0] <= clock.monotonic_ns():
            used_ns, number, key = heapq.heappop(uses)
            nodes[number].table.decide(key, 1, clock.monotonic_ns())
            heapq.heappush(uses, (used_ns + random.randrange(window_ns // 2, window_ns * 3 // 2), number, key))
        for node in nodes:
            await node.exchange_what_is_due(hub)
    spent_us = meter.spent_us()
    await hub.close()
    keys = NODES * COLD_KEYS
    return ColdCost(sum(node.cells for node in nodes) / keys / 2, spent_us / keys / (2 * intervals))


async def cost_of_client(path: Path) -> dict[str, float]:
    """Measures this process's CPU time for each cell of a batch, part by part, in microseconds."""
    clock = ManualClock(START_S)
    settings = HubSettings("client", 10.0)
    hub = RedisHub(f"redis+unix://{path}", settings, clock=clock)
    node = Node(clock, [f"customer-{number:06}" for number in range(CLIENT_CELLS)])
    await node.exchange_all(hub)
    clock.advance_ns(INTERVAL_NS * 11 // 10)
    batch = await node.exchange_all(hub)
    keys = _keys("client", batch)
    shared, rows = encode_batch(batch, "0" * 16, certainly_new=False)
    # The floor gets back an answer of the same size, and does nothing else.
    size = 16 + 16 + 72 * CLIENT_CELLS
    connection = redis.asyncio.Redis(unix_socket_path=str(path), protocol=2)
    sha: Any = await connection.script_load(f"return string.rep('\\0', {size})")
    header = SCHEMA_VERSION.to_bytes(2, "little") + bytes([0, 4]) + CLIENT_CELLS.to_bytes(4, "little")
    answer = header + bytes(size - len(header) - 16) + b"0" * 16

    async def floor() -> None:
        for _ in range(CLIENT_BATCHES):
            await connection.execute_command("EVALSHA", sha, len(keys), *keys, shared, rows)

    async def whole() -> None:
        for number in range(CLIENT_BATCHES):
            await hub.exchange(batch._replace(sequence=batch.sequence + 1 + number))

    async def encoding() -> None:
        for _ in range(CLIENT_BATCHES):
            encode_batch(batch, "0" * 16, certainly_new=False)

    async def decoding() -> None:
        for _ in range(CLIENT_BATCHES):
            decode_answer(answer)

    async def naming() -> None:
        for _ in range(CLIENT_BATCHES):
            _keys("client", batch)

    costs: dict[str, float] = {}
    for part in (encoding, naming, decoding, floor, whole):
        begun_s = time.process_time()
        await part()
        costs[part.__name__] = (time.process_time() - begun_s) * 1e6 / CLIENT_BATCHES / CLIENT_CELLS
    await connection.aclose()
    await hub.close()
    return costs


def cost_of_floor(server: Redis, meter: Meter, cells: int, rounds: int) -> Cost:
    """Measures the least cost of shared counters: one INCRBY for each key, all in one pipeline."""
    keys = [f"floor-{number:06}" for number in range(cells)]
    meter.reset()
    for _ in range(rounds * NODES):
        pipeline = server.pipeline(transaction=False)
        for key in keys:
            pipeline.incrby(key, 1)
        pipeline.execute()
    return meter.read("incrby", rounds * NODES)


def _medians(costs: list[Cost]) -> Cost:
    return Cost(median(cost.in_commands_us for cost in costs), median(cost.in_all_us for cost in costs))


def _allowance(sizes: list[int], costs: list[float]) -> tuple[float, float]:
    """Returns the cost of a batch, and of each cell: the line through the smallest batch and the largest."""
    each = (costs[-1] - costs[0]) / (sizes[-1] - sizes[0])
    return costs[0] - each * sizes[0], each


def print_hot(exchanges: dict[int, list[Cost]], floors: dict[int, list[Cost]]) -> None:
    """Prints the table of keys that every node uses all the time."""
    print("| cells in a batch | script, µs | server, µs | for each cell | floor: server, µs | ratio |")
    print("|---|---|---|---|---|---|")
    for cells in CELLS:
        exchange, floor = _medians(exchanges[cells]), _medians(floors[cells])
        print(
            f"| {cells} | {exchange.in_commands_us:.0f} | {exchange.in_all_us:.0f} | {exchange.in_all_us / cells:.1f} "
            f"| {floor.in_all_us:.0f} | {exchange.in_all_us / floor.in_all_us:.1f} |"
        )


def print_cold(colds: dict[int, list[ColdCost]]) -> None:
    """Prints the table of keys that one node uses about once per window."""
    print("\n| sync intervals in a window | reports of a key in a window | server, µs for each key and interval |")
    print("|---|---|---|")
    for intervals, costs in colds.items():
        server_us = median(cost.server_us for cost in costs)
        print(f"| {intervals} | {costs[0].reports:.1f} | {server_us:.2f} |")


def print_client(clients: list[dict[str, float]]) -> None:
    """Prints the table of the client's costs for a cell."""
    print("\n| client, µs of CPU for each cell | |")
    print("|---|---|")
    for part in clients[0]:
        print(f"| {part} | {median(client[part] for client in clients):.2f} |")


def main() -> int:
    """Measures all costs, and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each, of which the median is shown")
    repeats = parser.parse_args().repeats
    exchanges: dict[int, list[Cost]] = {cells: [] for cells in CELLS}
    floors: dict[int, list[Cost]] = {cells: [] for cells in CELLS}
    colds: dict[int, list[ColdCost]] = {intervals: [] for intervals in COLD_INTERVALS}
    clients: list[dict[str, float]] = []
    with redis_server() as path, Redis(unix_socket_path=str(path)) as server:
        meter = Meter(server)
        # They take turns, so that other work on the machine slows all of them alike.
        for _ in range(repeats):
            for cells in CELLS:
                rounds = max(10, CELLS_PER_ROUND // cells // NODES)
                server.flushall()
                exchanges[cells].append(asyncio.run(cost_of_batches(path, meter, cells, rounds)))
                floors[cells].append(cost_of_floor(server, meter, cells, rounds))
            for intervals in COLD_INTERVALS:
                server.flushall()
                colds[intervals].append(asyncio.run(cost_of_cold_keys(path, meter, intervals)))
            clients.append(asyncio.run(cost_of_client(path)))
        facts: Any = server.info("server")
    print_hot(exchanges, floors)
    batch_us, cell_us = _allowance(list(CELLS), [_medians(exchanges[cells]).in_all_us for cells in CELLS])
    print(
        f"\nredis-server {facts['redis_version']}, {NODES} nodes: {batch_us:.0f} µs of server CPU for a batch, and "
        f"{cell_us:.1f} µs for each cell in it."
    )
    print_cold(colds)
    print_client(clients)
    return 0


if __name__ == "__main__":
    sys.exit(main())
