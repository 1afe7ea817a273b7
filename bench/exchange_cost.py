"""What an exchange costs a Redis: CPU time for each batch and each cell, beside the floor of one INCRBY for each key.

Run as `python bench/exchange_cost.py`. Starts a redis-server of its own on a unix socket, and prints a Markdown table.
"""

from __future__ import annotations

import argparse
import asyncio
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

from redis import Redis

from reconverge.clock import MILLISECOND_NS, SECOND_NS, ManualClock
from reconverge.hubs import HubSettings
from reconverge.kernel import Kernel
from reconverge.limit import Limit
from reconverge.policies import BALANCED
from reconverge.syncer import Syncer
from reconverge_sync.binary import find_redis_server
from reconverge_sync.redis import RedisHub

CELLS: Final = (1, 10, 100, 256)
NODES: Final = 8
INTERVAL_NS: Final = SECOND_NS
TURN_NS: Final = INTERVAL_NS * 11 // 10 // NODES
"""From one node's exchange to the next one's: each has just begun to find its own overdue when its turn comes."""
CELLS_PER_ROUND: Final = 10_000
"""About so many cells are exchanged for one measurement, in batches of whatever size."""
START_S_MAX: Final = 10.0
LIMIT: Final = Limit(1_000_000_000, 60.0)
"""So large that every node has something new to say each time."""

_names = count(1)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one measurement found, in microseconds."""

    in_commands_us: float
    """For each batch, as `INFO commandstats` counts it."""
    in_all_us: float
    """For each batch, CPU of the whole server: reading, parsing and answering included."""


class Node:
    """The real kernel and the real syncer, told here when to speak."""

    def __init__(self, clock: ManualClock, keys: list[str]) -> None:
        self.clock = clock
        self.keys = keys
        self.kernel = Kernel(
            clock,
            namespace="bench",
            interval_ns=INTERVAL_NS,
            interval_min_ns=100 * MILLISECOND_NS,
            keys_max=1000,
            key_bytes_max=256,
        )
        self.table = self.kernel.declare("bench", LIMIT, BALANCED)
        self.syncer = Syncer(
            self.kernel,
            shard=0,
            random=Random(0),
            new_name=lambda: f"node-{next(_names)}",
            now_ns=clock.monotonic_ns(),
        )

    async def exchange_all(self, hub: RedisHub) -> None:
        """Use every key once, and tell the hub of all of them in one batch."""
        now_ns = self.clock.monotonic_ns()
        for key in self.keys:
            self.table.decide(key, 1, now_ns)
        batch = self.syncer.take(now_ns)
        assert batch is not None
        assert len(batch.cells) == len(self.keys)
        answer = await hub.exchange(batch)
        self.syncer.merged(batch, answer, sent_ns=now_ns, now_ns=now_ns)


class Meter:
    """Reads what the server has spent."""

    def __init__(self, server: Redis) -> None:
        self._server = server

    def reset(self) -> None:
        """Begin to count."""
        self._server.config_resetstat()
        self._begun_s = self._cpu_s()

    def read(self, command: str, batches: int) -> Cost:
        """What was spent since, for each of so many batches."""
        cpu_s = self._cpu_s() - self._begun_s
        commands: Any = self._server.info("commandstats")
        return Cost(commands[f"cmdstat_{command}"]["usec"] / batches, cpu_s * 1e6 / batches)

    def _cpu_s(self) -> float:
        spent: Any = self._server.info("cpu")
        return float(spent["used_cpu_user"] + spent["used_cpu_sys"])


@contextmanager
def redis_server() -> Iterator[Path]:
    """A private server that keeps nothing; gives the path of its socket."""
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
    """Exchanges of NODES nodes that share so many keys, after two rounds in which they get to know them."""
    clock = ManualClock()
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


def cost_of_floor(server: Redis, meter: Meter, cells: int, rounds: int) -> Cost:
    """The least that shared counters can cost: one INCRBY for each key, all in one pipeline."""
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


def _line(sizes: list[int], costs: list[float]) -> tuple[float, float]:
    """What a batch costs, and what each cell adds: through the smallest batch and the largest."""
    each = (costs[-1] - costs[0]) / (sizes[-1] - sizes[0])
    return costs[0] - each * sizes[0], each


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each, of which the median is shown")
    repeats = parser.parse_args().repeats
    exchanges: dict[int, list[Cost]] = {cells: [] for cells in CELLS}
    floors: dict[int, list[Cost]] = {cells: [] for cells in CELLS}
    with redis_server() as path, Redis(unix_socket_path=str(path)) as server:
        meter = Meter(server)
        # Alternately, so that whatever else the machine does meets all of them.
        for _ in range(repeats):
            for cells in CELLS:
                rounds = max(10, CELLS_PER_ROUND // cells // NODES)
                server.flushall()
                exchanges[cells].append(asyncio.run(cost_of_batches(path, meter, cells, rounds)))
                floors[cells].append(cost_of_floor(server, meter, cells, rounds))
        facts: Any = server.info("server")
    print("| cells in a batch | script, µs | server, µs | for each cell | floor: server, µs | ratio |")
    print("|---|---|---|---|---|---|")
    for cells in CELLS:
        exchange, floor = _medians(exchanges[cells]), _medians(floors[cells])
        print(
            f"| {cells} | {exchange.in_commands_us:.0f} | {exchange.in_all_us:.0f} | {exchange.in_all_us / cells:.1f} "
            f"| {floor.in_all_us:.0f} | {exchange.in_all_us / floor.in_all_us:.1f} |"
        )
    batch_us, cell_us = _line(list(CELLS), [_medians(exchanges[cells]).in_all_us for cells in CELLS])
    print(
        f"\nredis-server {facts['redis_version']}, {NODES} nodes: {batch_us:.0f} µs of server CPU for a batch, and "
        f"{cell_us:.1f} µs for each cell in it."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
