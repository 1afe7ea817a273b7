"""Measures how long one batch occupies a Redis if many nodes share its keys: the longest run and the median.

Run as `python -m bench.capacity.many_nodes`. Starts a redis-server of its own on a unix socket, has every node report
every key, once to be known and then in rounds that are measured, and prints a Markdown table. `--script` measures
another version of the script beside the one that is installed.
"""

from __future__ import annotations

import argparse
import struct
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgpack
from redis import Redis

from bench.capacity.exchange_cost import redis_server
from reconverge.hub.report import SCHEMA_VERSION
from reconverge_sync.redis.hub import EXCHANGE
from reconverge_sync.redis.lua.scripts import filled

START_US: Final = 1_750_000_000_000_000
INTERVAL_US: Final = 1_000_000
ROUNDS: Final = 2
WINDOW_US: Final = 60_000_000
KINDS: Final = {"sliding-window, a node has just left": 1, "sliding-log": 3}
"""The cases in which the script scans entries: all cells because a node was given up, or each cell every interval
because its charges expire."""


def batch(node: int, sequence: int, kind: int, keys: list[str], hub_us: int) -> list[Any]:
    """Returns the keys and the arguments of one batch, in which a node reports every key."""
    limit = ["shared", kind, WINDOW_US, 10**9, 10**9, 100, 0, 0, "", 0, 0, 0, 0]
    leaving = sequence == ROUNDS + 1
    shared = [SCHEMA_VERSION, f"node{node}.0", f"account{node}", sequence, "", "bench", 1]
    shared += [INTERVAL_US, 30_000_000, int(leaving), [limit]]
    row = struct.pack("<qqIi9I", hub_us // WINDOW_US, 0, 0, sequence, 0, 0, 0, 0, 2000, 0, 2, 1000, sequence)
    names = ["bench:{0}:meta", "bench:{0}:nodes", "bench:{0}:accounts", *keys]
    return [len(names), *names, msgpack.packb(shared), row * len(keys), str(hub_us)]


def cpu_us(admin: Any) -> int:
    """Returns the server's CPU time so far: unlike elapsed time, it contains no pauses of a busy machine."""
    spent: dict[str, float] = admin.info("cpu")
    return round((spent["used_cpu_user"] + spent["used_cpu_sys"]) * 1e6)


def measure(admin: Any, script: bytes, kind: int, nodes: int, cells: int) -> list[int]:
    """Returns the server's CPU time in microseconds for each batch of the measured rounds."""
    admin.flushall()
    sha = admin.script_load(script)
    keys = [f"bench:{{0}}:c{SCHEMA_VERSION}:shared:{kind}:{WINDOW_US}:{number}" for number in range(cells)]
    took_us: list[int] = []
    hub_us = START_US
    for sequence in range(1, ROUNDS + 1):
        for node in range(nodes):
            hub_us += INTERVAL_US // nodes
            if sequence == 1:
                admin.evalsha(sha, *batch(node, sequence, kind, keys, hub_us))
                continue
            begun_us = cpu_us(admin)
            admin.evalsha(sha, *batch(node, sequence, kind, keys, hub_us))
            took_us.append(cpu_us(admin) - begun_us)
        hub_us += INTERVAL_US
        if sequence == 1:
            admin.evalsha(sha, *batch(nodes, ROUNDS + 1, kind, [], hub_us))  # one more node, which leaves
    return took_us


def main() -> None:
    """Makes all measurements, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--cells", type=int, default=256)
    parser.add_argument("--script", type=Path, help="another version of exchange.lua, measured as well")
    options = parser.parse_args()
    scripts = {"this version": EXCHANGE.text}
    if options.script is not None:
        other = filled(options.script.read_text(encoding="utf-8"))
        scripts = {"the other version": other.encode(), **scripts}
    print(
        f"{options.nodes} nodes, batches of {options.cells} cells that all nodes share; milliseconds of CPU per batch\n"
    )
    print("| | median | 99 % below | longest |\n|---|---|---|---|")
    with redis_server() as path, Redis(unix_socket_path=str(path)) as admin:
        for name, script in scripts.items():
            for what, kind in KINDS.items():
                took_us = sorted(measure(admin, script, kind, options.nodes, options.cells))
                shown = (median(took_us), took_us[len(took_us) * 99 // 100], took_us[-1])
                print(f"| {what}: {name} | {' | '.join(f'{us / 1000:.1f}' for us in shown)} |", flush=True)


if __name__ == "__main__":
    main()
