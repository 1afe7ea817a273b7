"""Measures each part of an exchange beside its floor, the least cost of doing it. A part of `python -m bench`.

The parts are keys used now and then, keys with dated charges, decisions of `reconverge demo`, and these:

- take and install; the floor is a dictionary of as many keys, in which each key is counted twice, once in each
  direction;
- keys with dated charges; the floor is a sliding window that Python decides, whose charges have no dates;
- the client; the floor sends the same bytes by redis-py to a script that does nothing and answers as many;
- the Redis; the floor is a script that reads, unpacks, packs and writes as a merge does (`pieces.lua`);
- a decision in the demo; the floor is the increment in a dictionary that each of its processes times beside it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Final

from redis import Redis

from bench.capacity.exchange_cost import (
    FULL,
    START_S,
    Meter,
    Node,
    cost_of_client,
    cost_of_cold_keys,
    redis_server,
)
from bench.child import Missing, answer, in_a_process
from bench.decisions.candidate import compiled_unless_asked
from bench.decisions.decisions import key_of
from bench.decisions.timing import no_collector
from bench.report.found import Row, Spread
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.exchange.syncer import CELLS_MAX
from reconverge.limit import SLIDING_LOG, SLIDING_SLICES, SLIDING_WINDOW, Limit
from reconverge_sync.memory import MemoryHub

PART: Final = "exchange"
UNIT: Final = "µs for a key"
ROUNDS: Final = 5
KEYS: Final = 20_000
COLD: Final = 10
"""The number of sync intervals in a window in which a cold key is used about once."""
OURS: Final = "reconverge"
FLOOR: Final = "floor"
DRAIN: Final = "take and install"
CLIENT: Final = "client, all of it"
SERVER: Final = "Redis, all of it"
COLD_KEYS: Final = f"Redis, a key used once in a window of {COLD} intervals, for each interval"
DEMO: Final = "a decision in `reconverge demo`, median"
DICTIONARY: Final = f"{DRAIN}: a dictionary of 100 k keys, each counted twice"
DATED: Final = {SLIDING_LOG: "take and install, sliding log", SLIDING_SLICES: "take and install, slices"}
NODE: Final = b"node"
ROW: Final = bytes(60)
DATED_FLOOR: Final = "dated in Python"
TASKS: Final = ("drain", "dated", DATED_FLOOR, "client", "server", "cold")
DEMO_S_MAX: Final = 300.0


def measure(*, quick: bool, only: str = "") -> Iterator[Row]:
    """Measures each part, beside a floor of its own if it has one."""
    for task in TASKS:
        if only not in task:
            continue
        try:
            found = in_a_process(
                "bench.capacity.pieces", {"of": task, "rounds": 1 if quick else ROUNDS}, pure=task == DATED_FLOOR
            )
        except Missing as error:
            yield Row(PART, task, OURS, missing=str(error))
            continue
        for case, what, values in found:
            yield Row(PART, case, what, measured=Spread.of(values), unit=UNIT)
    if only in DEMO and not quick:
        yield from _demo()


def _demo() -> Iterator[Row]:
    """Runs the demo as a user calls it. Each node measures, and the median is taken."""
    command = [sys.executable, "-m", "reconverge.cli", "demo", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=DEMO_S_MAX, check=False)
    try:
        found = json.loads(ran.stdout)["policies"].values()
    except (ValueError, LookupError):
        yield Row(PART, DEMO, OURS, missing=f"it ended with status {ran.returncode}")
        return
    for what, field in ((OURS, "decision_p50_ns"), (FLOOR, "floor_p50_ns")):
        yield Row(PART, DEMO, what, measured=Spread.of([run[field] / 1e3 for run in found]), unit="µs")


# -------------------------------------------------------------------- in the child

Found = list[tuple[str, str, list[float]]]


def work(*, of: str, rounds: int) -> Found:
    """Measures the part `case`, `name` in this process."""
    if of != DATED_FLOOR:
        compiled_unless_asked()
    return WORK[of](rounds)


def _drain(rounds: int) -> Found:
    """Increments each key twice: it is read and written once on its way out, and once on its way in."""
    counts = dict.fromkeys(map(key_of, range(100_000)), 0)
    keys = list(map(key_of, range(100_000)))

    def count_all() -> None:
        for key in keys:
            counts[key] += 1
        for key in keys:
            counts[key] += 1

    return [(DICTIONARY, FLOOR, [_spent_us(count_all) / len(keys) for _ in range(rounds)])]


def _dated(rounds: int) -> Found:
    """Measures keys with dated charges, each charged once between two exchanges."""
    return [(case, OURS, _exchanged_us(algorithm, rounds)) for algorithm, case in DATED.items()]


def _undated(rounds: int) -> Found:
    """Measures keys whose charges have no dates, in a process in which Python decides."""
    costs = _exchanged_us(SLIDING_WINDOW, rounds)
    return [(case, FLOOR, costs) for case in DATED.values()]


def _exchanged_us(algorithm: str, rounds: int) -> list[float]:
    clock = ManualClock(START_S)
    node = Node(clock, [key_of(number) for number in range(FULL)], limit=Limit(100, 60, algorithm=algorithm))
    hub = MemoryHub(clock=clock)
    _exchange_us(node, hub, clock)
    return [median(_exchange_us(node, hub, clock) for _ in range(4)) for _ in range(rounds)]


def _exchange_us(node: Node, hub: MemoryHub, clock: ManualClock) -> float:
    """Measures take and install, in microseconds for each key."""
    clock.advance_ns(SECOND_NS * 11 // 10)
    now_ns = clock.monotonic_ns()
    for key in node.keys:
        node.table.decide(key, 1, now_ns)
    spent_ns, cells = 0, 0
    with no_collector():
        while node.syncer.due_ns(now_ns) <= now_ns:
            begun_ns = time.thread_time_ns()
            batch = node.syncer.take(now_ns)
            spent_ns += time.thread_time_ns() - begun_ns
            if batch is None:
                continue
            found = hub.merge(batch)
            begun_ns = time.thread_time_ns()
            node.syncer.merged(batch, found, sent_ns=now_ns, now_ns=now_ns)
            spent_ns += time.thread_time_ns() - begun_ns
            cells += len(batch.cells)
    return spent_ns / 1e3 / cells


def _client(rounds: int) -> Found:
    """Sends and receives the same bytes by redis-py alone."""
    with redis_server() as path:
        costs = [asyncio.run(cost_of_client(path))["floor"] for _ in range(rounds)]
    return [(CLIENT, FLOOR, costs)]


def _server(rounds: int) -> Found:
    """Measures a script that reads and writes as a merge does."""
    text = Path(__file__).with_name("pieces.lua").read_bytes()
    keys = [key_of(number).encode() for number in range(KEYS)]
    with redis_server() as path, Redis(unix_socket_path=str(path)) as server:
        meter, script = Meter(server), server.register_script(text)

        def all_keys_us() -> float:
            meter.reset()
            for start in range(0, KEYS, CELLS_MAX):
                batch = keys[start : start + CELLS_MAX]
                script(keys=batch, args=[ROW * len(batch), NODE])
            return meter.spent_us() / KEYS

        all_keys_us()  # this exchange creates the keys
        return [(SERVER, FLOOR, [all_keys_us() for _ in range(rounds)])]


def _cold(rounds: int) -> Found:
    """Measures keys of eight nodes, each used about once in a window."""
    costs: list[float] = []
    with redis_server() as path, Redis(unix_socket_path=str(path)) as server:
        for _ in range(rounds):
            server.flushall()
            costs.append(asyncio.run(cost_of_cold_keys(path, Meter(server), COLD)).server_us)
    return [(COLD_KEYS, OURS, costs)]


def _spent_us(call: Callable[[], object]) -> float:
    with no_collector():
        begun_ns = time.thread_time_ns()
        call()
        return (time.thread_time_ns() - begun_ns) / 1e3


WORK: Final[dict[str, Callable[[int], Found]]] = {
    "drain": _drain,
    "dated": _dated,
    DATED_FLOOR: _undated,
    "client": _client,
    "server": _server,
    "cold": _cold,
}


if __name__ == "__main__":
    sys.exit(answer(work))
