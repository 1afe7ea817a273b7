"""Runs two hundred agents on one machine and one Redis: measures their agreement, their cost and their reconnection.

Run as `python -m bench.capacity.many_agents`. Takes about a minute, most of which is waiting.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Final, Self

from redis import Redis

from bench.capacity.fleet import Meter
from bench.child import ROOT
from bench.report.machine import circumstances, in_a_sentence
from bench.servers import OwnRedis
from reconverge import Agent, Limit
from reconverge.hub.registry import HubSettings
from reconverge.limit import FIXED_WINDOW
from reconverge_sync.redis.hub import RedisHub

AGENTS: Final = 200
PROCESSES: Final = 8
INTERVAL_S: Final = 1.0
LIMIT: Final = Limit(1_000_000, 86_400.0, algorithm=FIXED_WINDOW)
KEYS: Final = 50
NAME: Final = "bench"
REQUESTS_PER_S: Final = 10
"""The requests per second of each agent."""
WARMUP_S: Final = 20.0
"""The warm-up: afterwards the allowances follow the traffic; while keys are new, nodes ask ahead of time."""
STEADY_S: Final = 15.0
OUTAGE_S: Final = 5.0
READY_S_MAX: Final = 120.0
LOOK_S: Final = 0.02
AGREE_LOOK_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Found:
    """The findings; integers without a unit are counts."""

    agents: int
    processes: int
    agree_s: float
    """The time from the last request until all agents see the same total, in seconds."""
    admitted: int
    counted: int
    """The cost that the hub has counted in the end."""
    exchanges_per_s: float
    redis_cpu_pct: float
    """The hub's CPU time in percent of a core, while all agents get requests."""
    redis_bytes_per_s: float
    redis_memory_bytes: float
    """The hub's memory while all agents are connected."""
    agent_cpu_pct: float
    """The CPU time of each agent in percent of a core, its requests included."""
    tries_per_s: float
    """The attempts per second, in the outage, of the agent that tried most often."""
    back_s: float
    """The time from the first agent that has reconnected to the last, in seconds."""
    back_in_100_ms: int
    """The connections made in the busiest tenth of a second."""

    def table(self) -> str:
        """Returns the findings as a table in Markdown."""
        rows = {
            f"{self.agents} agents in {self.processes} processes agree after": f"{self.agree_s:.1f} s",
            "admitted / counted by the hub": f"{self.admitted} / {self.counted}",
            "exchanges": f"{self.exchanges_per_s:.0f}/s",
            "Redis: CPU": f"{self.redis_cpu_pct:.1f} % of a core",
            "Redis: bytes, both ways": f"{self.redis_bytes_per_s / 1e3:.0f} kB/s",
            "Redis: memory": f"{self.redis_memory_bytes / 1e6:.1f} MB",
            "an agent: CPU": f"{self.agent_cpu_pct:.2f} % of a core",
            f"outage of {OUTAGE_S:g} s: tries of the busiest agent": f"{self.tries_per_s:.1f}/s",
            "back again, from the first agent to the last": f"{self.back_s:.1f} s",
            "connected within the busiest 0.1 s": str(self.back_in_100_ms),
        }
        return "\n".join(["| | |", "|---|---|", *(f"| {what} | {value} |" for what, value in rows.items())])


# -------------------------------------------------------------------- in the child


class Worker:
    """The agents of one process, which are used as an application uses them."""

    def __init__(self, port: int, agents: int, seed: int) -> None:
        url = f"redis://127.0.0.1:{port}/0"
        self.agents = [Agent(url, namespace="many", sync_interval=INTERVAL_S) for _ in range(agents)]
        self._limiters = [agent.limit(NAME, LIMIT) for agent in self.agents]
        self._random = Random(seed)
        self._admitted: Counter[str] = Counter()
        self._asking: asyncio.Task[None] | None = None

    def ask(self) -> None:
        """Begins to ask every agent about one of the keys, at the given rate."""
        self._asking = asyncio.get_running_loop().create_task(self._ask())

    def rest(self) -> None:
        """Ends the requests."""
        if self._asking is not None:
            self._asking.cancel()

    def cpu(self) -> float:
        """Returns this process's CPU time in seconds."""
        return time.process_time()

    def admitted(self) -> dict[str, int]:
        """Returns the admitted cost by key."""
        return dict(self._admitted)

    def look(self) -> None:
        """Asks every agent about every key with cost 0, so that the hub's next answer names the use of the key."""
        for limiter in self._limiters:
            for key in range(KEYS):
                limiter.allow(f"key-{key}", 0)

    def seen(self) -> list[list[int]]:
        """Returns each agent's estimate of the use of each key."""
        return [[limiter.usage(f"key-{key}").total for key in range(KEYS)] for limiter in self._limiters]

    def exchanges(self) -> list[list[int]]:
        """Returns, for each agent, the numbers of answered and of failed exchanges."""
        stats = [agent.stats().exchanges[0] for agent in self.agents]
        return [[one.exchanges, sum(one.failures.values())] for one in stats]

    async def _ask(self) -> None:
        while True:
            await asyncio.sleep(1 / REQUESTS_PER_S)
            for limiter in self._limiters:
                key = f"key-{self._random.randrange(KEYS)}"
                self._admitted[key] += limiter.allow(key)


async def _work(port: int, agents: int, seed: int) -> None:
    """Carries out the orders from the standard input, one word in a line, and answers each with one line."""
    worker, loop = Worker(port, agents, seed), asyncio.get_running_loop()
    words: dict[str, Callable[[], Any]] = {
        one.__name__: one
        for one in (worker.ask, worker.rest, worker.cpu, worker.admitted, worker.look, worker.seen, worker.exchanges)
    }
    async with contextlib.AsyncExitStack() as stack:
        for agent in worker.agents:
            await stack.enter_async_context(agent)
        while word := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            print(json.dumps(words[word]()), flush=True)


# -------------------------------------------------------------------- in the parent


class Crowd:
    """All agents, divided among processes."""

    def __init__(self, port: int, agents: int, processes: int) -> None:
        each = agents // processes
        self.agents, self.processes = each * processes, processes
        self._children = [
            subprocess.Popen(
                [sys.executable, "-m", "bench.capacity.many_agents", "--child", str(port), str(each), str(number)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(processes)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.kill()
            child.wait()

    def say(self, word: str) -> list[Any]:
        """Sends an order to all processes. Returns the answer of each."""
        for child in self._children:
            assert child.stdin is not None
            child.stdin.write(f"{word}\n")
            child.stdin.flush()
        answers = []
        for child in self._children:
            assert child.stdout is not None
            answers.append(json.loads(child.stdout.readline()))
        return answers

    def exchanges(self) -> list[list[int]]:
        """Returns, for each agent, the numbers of answered and of failed exchanges."""
        return [one for found in self.say("exchanges") for one in found]

    def admitted(self) -> list[int]:
        """Returns the cost that all agents have admitted, by key."""
        found = self.say("admitted")
        return [sum(one.get(f"key-{key}", 0) for one in found) for key in range(KEYS)]

    def agree(self) -> float:
        """Waits until all agents see the same use, equal to the admitted cost. Returns the waiting time in seconds."""
        admitted, begun_s = self.admitted(), time.monotonic()
        self.say("look")
        _wait(
            lambda: all(seen == admitted for found in self.say("seen") for seen in found),
            "all agents agree",
            AGREE_LOOK_S,
        )
        return time.monotonic() - begun_s


def measure(agents: int, processes: int) -> Found:
    """Makes all measurements, with a Redis of its own."""
    with OwnRedis() as server, Crowd(server.port, agents, processes) as crowd:
        _wait(lambda: all(one[0] > 0 for one in crowd.exchanges()), "all agents have been answered")
        crowd.say("ask")
        time.sleep(WARMUP_S)
        meter = Meter(Redis(port=server.port))
        before, cpu_s, begun_s = crowd.exchanges(), sum(crowd.say("cpu")), time.monotonic()
        meter.begin()
        time.sleep(STEADY_S)
        spent, elapsed_s = meter.since(), time.monotonic() - begun_s
        exchanged = sum(one[0] for one in crowd.exchanges()) - sum(one[0] for one in before)
        cpu_s = sum(crowd.say("cpu")) - cpu_s
        memory_bytes = meter.memory_bytes()
        crowd.say("rest")
        agree_s = crowd.agree()
        admitted = sum(crowd.admitted())
        counted = asyncio.run(_counted(server.port))
        tries_per_s, back_s, at_once = _outage(server, crowd)
    return Found(
        agents=crowd.agents,
        processes=crowd.processes,
        agree_s=agree_s,
        admitted=admitted,
        counted=counted,
        exchanges_per_s=exchanged / elapsed_s,
        redis_cpu_pct=spent["server_us"] / elapsed_s / 1e4,
        redis_bytes_per_s=(spent["in_bytes"] + spent["out_bytes"]) / elapsed_s,
        redis_memory_bytes=memory_bytes,
        agent_cpu_pct=100 * cpu_s / elapsed_s / crowd.agents,
        tries_per_s=tries_per_s,
        back_s=back_s,
        back_in_100_ms=at_once,
    )


def _outage(server: OwnRedis, crowd: Crowd) -> tuple[float, float, int]:
    """Kills the Redis and starts it again.

    Returns the most attempts of an agent per second, the seconds until the last agent is back, and the most connections
    in 0.1 s.
    """
    server.kill()
    before, begun_s = crowd.exchanges(), time.monotonic()
    time.sleep(OUTAGE_S)
    after, elapsed_s = crowd.exchanges(), time.monotonic() - begun_s
    tries_per_s = max(now[1] - then[1] for now, then in zip(after, before, strict=True)) / elapsed_s
    server.start()
    looks: list[tuple[float, int]] = []
    with Redis(port=server.port) as watcher:
        deadline_s = time.monotonic() + READY_S_MAX
        while not looks or looks[-1][1] < crowd.agents:
            if time.monotonic() > deadline_s:
                raise RuntimeError("not all agents came back")
            info: Any = watcher.info("stats")
            # Two connections are not the agents': the watcher's own, and that of the test whether the server listens.
            looks.append((time.monotonic(), info["total_connections_received"] - 2))
            time.sleep(LOOK_S)
    first_s = next(at_s for at_s, count in looks if count > 0)
    at_once = max(
        count - max((earlier for then_s, earlier in looks if then_s <= at_s - 0.1), default=0) for at_s, count in looks
    )
    return tries_per_s, looks[-1][0] - first_s, at_once


async def _counted(port: int) -> int:
    hub = RedisHub(f"redis://127.0.0.1:{port}/0", HubSettings("many", 10.0))
    totals = await hub.totals()
    await hub.close()
    return totals[NAME].charged


def _wait(until: Callable[[], bool], what: str, look_s: float = LOOK_S) -> None:
    deadline_s = time.monotonic() + READY_S_MAX
    while not until():
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"not within {READY_S_MAX:g} s: {what}")
        time.sleep(look_s)


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes all measurements, and prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.capacity.many_agents", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--agents", type=int, default=AGENTS, help="in all")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="in which they run, as many in each")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--child", type=int, nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child is not None:
        asyncio.run(_work(*options.child))
        return 0
    about = circumstances()
    found = measure(options.agents, options.processes)
    if options.json:
        print(json.dumps(asdict(found)))
    else:
        print(f"{in_a_sentence(about)}\n\n{found.table()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
