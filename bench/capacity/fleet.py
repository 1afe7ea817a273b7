"""A fleet in virtual time on a real Redis: the production kernels, syncers and client."""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import count
from random import Random
from typing import Any, Final, Self

from redis import Redis

from bench.decisions.timing import no_collector
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.exchange.syncer import Syncer
from reconverge.hub.registry import HubSettings
from reconverge.kernel import NEW_KEYS_MAX, Kernel
from reconverge.limit import Limit
from reconverge.policies import BALANCED
from reconverge_sync.redis.hub import RedisHub

START_S: Final = 1_750_000_000.0
LIMIT: Final = Limit(1_000_000, 60.0)
"""A limit so large that no node ever exchanges ahead of time, as nodes do near a limit."""
LOOKS: Final = 8
"""The number of times in an interval that each node checks whether an exchange is due."""
TIMEOUT_S: Final = 30.0
KEY: Final = "customer-{:08}"
KEY_BYTES: Final = len(KEY.format(0))
COLD_FROM: Final = KEY.format(10_000_000)


@dataclass(frozen=True, slots=True)
class Shape:
    """A point of the grid. All nodes ask about hot keys all the time, and about each cold key once in a window."""

    nodes: int
    hot: int
    """The number of keys that all nodes share."""
    cold: int = 0
    """The number of further keys that each node has for itself."""
    intervals: int = 60
    """The number of sync intervals in a window."""
    rounds: int = 4
    """The number of intervals that are measured. Before them run as many that are not measured if there are cold keys,
    else `warmup`."""
    warmup: int = 2
    once: bool = False
    """Whether cold keys are asked about in the first measured interval only."""
    limit: Limit = LIMIT
    max_silence_ns: int = 0
    """The agents' `max_silence`; 0, as the model's hot keys are near their limits, and reported in each interval."""

    @property
    def interval_ns(self) -> int:
        """Returns the sync interval in nanoseconds."""
        return self.limit.window_ns // self.intervals


@dataclass(frozen=True, slots=True)
class Spent:
    """The totals over the measured intervals of one shape."""

    seconds: float
    """The virtual time of the measured intervals, in seconds."""
    batches: float
    cells: float
    """The number of reports of one key each."""
    cold_cells: float
    """The number of these reports that are about cold keys."""
    server_us: float
    """The CPU time of the whole server."""
    script_us: float
    """The elapsed time of the script, as `INFO commandstats` counts it."""
    node_us: float
    """CPU time of the nodes for their exchanges, without the decisions."""
    in_bytes: float
    """The bytes sent to the server."""
    out_bytes: float
    """The bytes sent by the server."""
    memory_bytes: float
    """The memory that the server has taken for the fleet, from the beginning."""

    def as_json(self) -> dict[str, Any]:
        """Returns the figures for a JSON file."""
        return {name: round(value, 3) for name, value in asdict(self).items()}


class Meter:
    """Measures the time, the bytes and the memory that a server uses, without the cost of the measurement."""

    def __init__(self, server: Redis) -> None:
        self._server = server
        self.begin()

    def begin(self) -> None:
        """Begins to count, and measures the cost of one reading."""
        first, self._begun = self._read(), self._read()
        self._own = {name: self._begun[name] - first[name] for name in ("in_bytes", "out_bytes")}

    def since(self) -> dict[str, float]:
        """Returns the time and bytes spent since."""
        return {name: value - self._begun[name] - self._own.get(name, 0.0) for name, value in self._read().items()}

    def memory_bytes(self) -> float:
        """Returns the server's allocated bytes."""
        info: Any = self._server.info("memory")
        return float(info["used_memory"])

    def _read(self) -> dict[str, float]:
        found: Any = {}
        for section in ("stats", "cpu", "commandstats"):
            found |= self._server.info(section)
        return {
            "server_us": (found["used_cpu_user"] + found["used_cpu_sys"]) * 1e6,
            "script_us": float(found.get("cmdstat_evalsha", {"usec": 0})["usec"]),
            "in_bytes": float(found["total_net_input_bytes"]),
            "out_bytes": float(found["total_net_output_bytes"]),
        }


class Node:
    """One node, and the CPU time of its exchanges."""

    def __init__(self, clock: ManualClock, number: int, shape: Shape) -> None:
        self._clock = clock
        self._random = Random(number)
        self._window_ns = shape.limit.window_ns
        names = count(1)
        kernel = Kernel(
            clock,
            namespace="capacity",
            interval_ns=shape.interval_ns,
            interval_min_ns=shape.interval_ns // 10,
            keys_max=2 * (shape.hot + shape.cold) + 1000,
            key_bytes_max=256,
            # The hub knows all hot keys when the measurement begins, however many they are.
            new_keys_max=max(NEW_KEYS_MAX, LOOKS * shape.hot * SECOND_NS // shape.interval_ns),
        )
        kernel.silence_max_ns = shape.max_silence_ns
        self._table = kernel.declare("bench", shape.limit, BALANCED)
        # This name is as long as one that an agent gives itself.
        self._syncer = Syncer(
            kernel,
            shard=0,
            random=self._random,
            new_name=lambda: f"{number:08x}-{next(names):016x}",
            now_ns=clock.monotonic_ns(),
        )
        self._hot = [KEY.format(key) for key in range(shape.hot)]
        self._cold = [KEY.format(10_000_000 + number * shape.cold + key) for key in range(shape.cold)]
        self._once = shape.once
        self._batches_max = 10 + (shape.hot + shape.cold) // 100
        """The most batches of one exchange: far more than are needed to report all keys once."""
        self._due = [] if shape.once else [(self._random.randrange(self._window_ns), key) for key in self._cold]
        heapq.heapify(self._due)
        self.begin()

    def begin(self) -> None:
        """Begins to count."""
        self.batches = self.cells = self.cold_cells = 0
        self.spent_ns = 0

    def ask_once(self) -> None:
        """Asks about all cold keys, if the shape has them asked about once only."""
        if self._once:
            self._ask(self._cold)

    def ask_hot(self) -> None:
        """Asks about all hot keys."""
        self._ask(self._hot)

    def ask_cold(self) -> None:
        """Asks about the cold keys that are due: each comes after half a window to one and a half windows."""
        while self._due and self._due[0][0] <= self._clock.monotonic_ns():
            due_ns, key = self._due[0]
            self._ask([key])
            again_ns = due_ns + self._random.randrange(self._window_ns // 2, self._window_ns * 3 // 2)
            heapq.heapreplace(self._due, (again_ns, key))

    def _ask(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._table.allow(key)

    async def exchange(self, hub: RedisHub) -> None:
        """Reports all that is due, in as many batches as it needs."""
        now_ns = self._clock.monotonic_ns()
        for _ in range(self._batches_max):
            if self._syncer.due_ns(now_ns) > now_ns:
                return
            begun_ns = time.thread_time_ns()
            batch = self._syncer.take(now_ns)
            if batch is not None:
                answer = await hub.exchange(batch)
                self._syncer.merged(batch, answer, sent_ns=now_ns, now_ns=now_ns)
            self.spent_ns += time.thread_time_ns() - begun_ns
            if batch is not None:
                # Busy keys are in use all the time, so also before the next batch of the round.
                self._ask([cell.key for cell in batch.cells if cell.key < COLD_FROM])
                self.batches += 1
                self.cells += len(batch.cells)
                if self._cold:
                    self.cold_cells += sum(cell.key >= COLD_FROM for cell in batch.cells)
        raise RuntimeError(f"a node with {len(self._hot)} hot keys exchanges without a pause")


class Fleet:
    """All nodes of one shape, with one connection."""

    def __init__(self, port: int, shape: Shape) -> None:
        self._port = port
        self._shape = shape
        self._server = Redis(port=port)

    def __enter__(self) -> Self:
        self._server.flushall()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    async def run(self) -> Spent:
        """Runs all intervals. Returns the totals of those that are measured."""
        shape, clock = self._shape, ManualClock(START_S)
        hub = RedisHub(f"redis://127.0.0.1:{self._port}/0", HubSettings("capacity", TIMEOUT_S), clock=clock)
        await hub.totals()  # the bytes of connecting are not counted
        meter = Meter(self._server)
        empty_bytes = meter.memory_bytes()
        self._nodes = [Node(clock, number, shape) for number in range(shape.nodes)]
        warmup = shape.rounds if shape.cold and not shape.once else shape.warmup
        with no_collector():
            for number in range(warmup + shape.rounds):
                if number == warmup:
                    for node in self._nodes:
                        node.begin()
                        node.ask_once()
                    meter.begin()
                await self._round(hub, clock)
        spent = meter.since()
        memory_bytes = meter.memory_bytes() - empty_bytes
        await hub.close()
        return Spent(
            seconds=shape.rounds * shape.interval_ns / SECOND_NS,
            batches=sum(node.batches for node in self._nodes),
            cells=sum(node.cells for node in self._nodes),
            cold_cells=sum(node.cold_cells for node in self._nodes),
            node_us=sum(node.spent_ns for node in self._nodes) / 1e3,
            memory_bytes=memory_bytes,
            **spent,
        )

    async def _round(self, hub: RedisHub, clock: ManualClock) -> None:
        """Runs one interval: each node is asked about its hot keys at a time of its own."""
        for look in range(LOOKS):
            clock.advance_ns(self._shape.interval_ns // LOOKS)
            for number, node in enumerate(self._nodes):
                if number % LOOKS == look:
                    node.ask_hot()
                node.ask_cold()
                await node.exchange(hub)
