"""Counts the windows in which a fleet that asks admits exactly what one central limiter would have admitted.

python -m bench.exact_windows [--quick] [--nodes N ...] [--policies P ...] [--algorithm A] [--hit]
python -m bench.exact_windows --nodes 1 --keys 0 --bursts 300 [--cost C] [--busy N]

Several processes with several agents each share one real Redis. Each key is asked about at random moments, on random
agents, at twice its limit. Every request is recorded with the window to which its own node has charged it; a window is
exact if the fleet has admitted as much as a central limiter admits of the same requests. Meanwhile keys that are new to
all agents are asked about on all of them at once, and others in bursts of exactly the limit, on random agents, with
gaps between the requests, of which all should be admitted. Prints Markdown.

With --hit no request asks: memory decides, as `hit` does. With --busy as many processes compute meanwhile, which shows
the effect of a lack of cores.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

from redis import Redis

from bench.child import answer, in_a_process
from bench.servers import ServerMeter, redis_on_loopback
from reconverge import Agent, Limit, RateLimiter
from reconverge.kernel import Cell
from reconverge.limit import FIXED_WINDOW
from reconverge.limiter.asking import WITHIN_S
from reconverge.policies import choose
from reconverge.simulation.truth import Bounds, DecidedRequest, Place, charge_of, excess_by_place, ideal_admissions

MODULE: Final = "bench.exact_windows"
WINDOW_S: Final = 2.0
QUOTAS: Final = (4, 5, 12)
DEMAND: Final = 2.0
KEYS: Final = 20
WINDOWS: Final = 10
AGENTS_MAX: Final = 8
"""The most agents in one process; with more, the figures would show how processes wait for a processor."""
STARTING_S: Final = 1.0
"""The seconds between the moment at which all processes are ready and the first request."""
READY: Final = "bench:ready"
EDGE: Final = "bench:edge"
POLL_S: Final = 0.01
WARMING: Final = 2
"""The number of windows before those that count: a hub of unknown past grants nothing at first."""
SPREAD_S: Final = 0.002
"""The time, in seconds, within which all agents are asked about a new key."""


GAPS_S: Final = (0.0, 0.0003, 0.001, 0.03)
"""The gaps, in seconds, between the requests of a burst; successive bursts have successive gaps of these."""


@dataclass(frozen=True, slots=True)
class Load:
    """The demand on a fleet."""

    nodes: int
    policy: str = "strict"
    algorithm: str = FIXED_WINDOW
    asking: bool = True
    """Whether requests ask the hub in doubt."""
    keys: int = KEYS
    """The number of keys that are in use at the same time, for each quota."""
    windows: int = WINDOWS
    new_keys: int = 20
    """The number of keys that are asked about on all agents at once, for each quota."""
    bursts: int = 0
    """The number of keys that are asked about exactly as often as the limit allows, for each quota."""
    cost: int = 1
    """The cost of each request; limits are multiplied by it."""
    busy: int = 0
    """The number of processes that compute meanwhile."""
    within_s: float = WITHIN_S
    seed: int = 1

    @property
    def processes(self) -> list[int]:
        """Returns the number of agents of each process: four processes, or more if one would have too many agents."""
        count = min(self.nodes, max(4, math.ceil(self.nodes / AGENTS_MAX)))
        return [self.nodes // count + (number < self.nodes % count) for number in range(count)]

    def limit(self, quota: int) -> Limit:
        """Returns the limit with the quota `quota`."""
        return Limit(quota * self.cost, WINDOW_S, algorithm=self.algorithm)


@dataclass(frozen=True, slots=True)
class Found:
    """The result for one quota."""

    load: Load
    quota: int
    windows: int
    exact: int
    short: int
    """The requests that a central limiter would have admitted, and that were refused."""
    admitted: int
    over: int
    """The admitted requests beyond those of a central limiter, for keys that all agents know."""
    unanswered: int
    """The requests in doubt that memory decided, as the hub had not answered in time: `strict` refuses them."""
    guessed: int
    """The number of admitted requests whose decision was not certain: memory admitted them."""
    most_over: int
    """The largest excess over the limit in a window of a key that all agents know."""
    broken: int
    """The number of windows that exceeded the limit by more than the policy promises."""
    waited: float
    """The share of requests that waited."""
    late: float
    """The share of the waiting requests that waited longer than an ask may: some waited for their own process."""
    p50_ms: float
    """The median wait of the requests that waited."""
    p99_ms: float
    new_exact: int
    """The number of new keys of which exactly the quota was admitted."""
    new_most: int
    """The most requests of a new key that were admitted in one window."""
    new_least: int
    """The fewest requests of a new key that were admitted in its fullest window."""
    bursts_whole: int
    """The bursts of exactly the limit of which every request was admitted."""
    bursts_refused: int
    """The refused requests of bursts."""
    redis_us: float
    """The Redis' processor time for each admitted request, over all quotas."""


Asked = tuple[int, int, str, int, int, bool, bool, int, bool, bool]
"""A decided request: its time by the hub's clock, the node, the key, the window, the quota, whether it was admitted,
whether the node had heard of the key, its duration, whether it waited, and whether the answer was certain."""
Unanswered = dict[str, int]
"""By quota, the number of requests in doubt that memory decided since the beginning of the windows that count."""


def measured(load: Load) -> list[Found]:
    """Runs a fleet, and judges its decisions."""
    with redis_on_loopback() as port, ThreadPoolExecutor(len(load.processes)) as threads, busy(load.busy):
        first, tasks = 0, []
        for agents in load.processes:
            tasks.append({"port": port, "first": first, "agents": agents, "load": asdict(load)})
            first += agents
        meter = ServerMeter(port)
        parts: list[tuple[list[Asked], Unanswered]] = [*threads.map(lambda task: in_a_process(MODULE, task), tasks)]
        asked = [one for part, _ in parts for one in part]
        edge_s = edge_of_all(port, 0)
        cpu_us = meter.spent_us() / max(1, sum(one[5] for one in asked))
    first_epoch = round(edge_s / WINDOW_S) + WARMING
    return [
        judged(
            load,
            quota,
            [one for one in asked if one[4] == quota],
            first_epoch,
            cpu_us,
            unanswered=sum(each[str(quota)] for _, each in parts),
        )
        for quota in QUOTAS
    ]


def judged(
    load: Load, quota: int, asked: Sequence[Asked], first_epoch: int, cpu_us: float, *, unanswered: int
) -> Found:
    """Compares the decisions with those of a central limiter, window by window, from the given window on."""
    limit = load.limit(quota)
    decided = [
        DecidedRequest(hub_ns, number, key, epoch, load.cost, 0, node, allowed, known)
        for number, (hub_ns, node, key, epoch, _, allowed, known, *_) in enumerate(sorted(asked))
    ]
    usual = [one for one in decided if one.key.startswith("key")]
    bursts = [one for one in decided if one.key.startswith("burst")]
    of_burst = Counter(one.key for one in bursts if one.allowed)
    epochs = range(first_epoch, first_epoch + load.windows)
    central = admitted_centrally(limit, usual)
    admitted = Counter((one.key, one.epoch) for one in usual if one.allowed)
    places = [place for place in sorted({(one.key, one.epoch) for one in usual}) if place[1] in epochs]
    excess = excess_by_place(limit, [charge_of(one) for one in decided if one.allowed], settling=False)
    bounds = Bounds(limit, choose(load.policy), load.nodes, decided)
    new: defaultdict[Place, int] = defaultdict(int)
    for one in decided:
        if one.key.startswith("new"):
            new[one.key, one.epoch] += one.allowed
    most_new = {key: max(count for (each, _), count in new.items() if each == key) for key, _ in new}
    waits_ms = sorted(took_ns / 1e6 for *_, took_ns, waited, _ in asked if waited) or [0.0]
    return Found(
        load,
        quota,
        windows=len(places),
        exact=sum(admitted[place] == central.get(place, 0) for place in places),
        short=sum(max(0, central.get(place, 0) - admitted[place]) for place in places),
        admitted=sum(admitted[place] for place in places),
        over=sum(max(0, admitted[place] - central.get(place, 0)) for place in places),
        unanswered=unanswered,
        guessed=sum(allowed and not certain for _, _, _, _, _, allowed, *_, certain in asked),
        most_over=max((over for place, over in excess.items() if not bounds.cold(place)), default=0),
        broken=len(bounds.broken(excess)),
        waited=len(waits_ms) / max(1, len(asked)),
        late=sum(wait_ms >= 1000 * load.within_s for wait_ms in waits_ms) / len(waits_ms),
        p50_ms=waits_ms[len(waits_ms) // 2],
        p99_ms=waits_ms[len(waits_ms) * 99 // 100],
        new_exact=sum(count == quota for count in most_new.values()),
        new_most=max(most_new.values(), default=0),
        new_least=min(most_new.values(), default=0),
        bursts_whole=sum(count == quota for count in of_burst.values()),
        bursts_refused=sum(not one.allowed for one in bursts),
        redis_us=cpu_us,
    )


def admitted_centrally(limit: Limit, decided: list[DecidedRequest]) -> dict[Place, int]:
    """Returns the number of the same requests that a central limiter admits, by window.

    The admissions of fixed windows do not depend on the order within one, and each request belongs to the window to
    which its node has charged it; so the edges of windows are not ambiguous.
    """
    cost = decided[0].cost if decided else 1
    if limit.algorithm == FIXED_WINDOW:
        offered = Counter((one.key, one.epoch) for one in decided)
        return {place: min(limit.capacity // cost, count) for place, count in offered.items()}
    return {place: spent // cost for place, spent in ideal_admissions(limit, decided, settle_after_ns=0)[0].items()}


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Runs processes that only compute, until the block ends."""
    computing = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for each in computing:
            each.kill()
            each.wait()


# -------------------------------------------------------------------- in a process of the fleet


def live(port: int, first: int, agents: int, load: dict[str, Any]) -> tuple[list[Asked], Unanswered]:
    """Makes the requests to the agents of this process. Returns the decisions."""
    fleet = Load(**load)
    return asyncio.run(_live(port, edge_of_all(port, len(fleet.processes)), range(first, first + agents), fleet))


def edge_of_all(port: int, processes: int) -> float:
    """Returns the beginning of the first window: a window's edge after all processes are ready.

    Processes that agreed on it earlier might be too busy to begin in time.
    """
    with Redis(port=port, decode_responses=True) as redis:
        if processes and redis.incr(READY) == processes:
            redis.set(EDGE, math.ceil((time.time() + STARTING_S) / WINDOW_S) * WINDOW_S)
        while (edge_s := redis.get(EDGE)) is None:
            time.sleep(POLL_S)
        return float(str(edge_s))


async def _live(port: int, edge_s: float, nodes: range, load: Load) -> tuple[list[Asked], Unanswered]:
    async with AsyncExitStack() as stack:
        limiters: dict[tuple[int, int], RateLimiter] = {}
        for node in nodes:
            agent = await stack.enter_async_context(Agent(f"redis://127.0.0.1:{port}/0"))
            for quota in QUOTAS:
                limit = load.limit(quota)
                limiters[node, quota] = agent.limit(f"q{quota}", limit, policy=load.policy)
        asked: list[Asked] = []
        before: Unanswered = {}
        async with asyncio.TaskGroup() as group:
            for moment_s, node, quota, key in requests(load):
                if moment_s >= WARMING * WINDOW_S and not before:
                    before = left_to_memory(limiters)
                if node in nodes:
                    await asyncio.sleep(edge_s + moment_s - time.time())
                    group.create_task(_ask(limiters[node, quota], node, quota, key, load, asked))
        return asked, {quota: count - before.get(quota, 0) for quota, count in left_to_memory(limiters).items()}


def left_to_memory(limiters: dict[tuple[int, int], RateLimiter]) -> Unanswered:
    """Returns the number of requests in doubt that the hub has not answered by now, by quota."""
    counts: Counter[str] = Counter({str(quota): 0 for quota in QUOTAS})
    for (_, quota), limiter in limiters.items():
        results = limiter.control.enforcement.on.asking.stats.results
        counts[str(quota)] += sum(count for result, count in results.items() if result not in {"admitted", "refused"})
    return dict(counts)


async def _ask(limiter: RateLimiter, node: int, quota: int, key: str, load: Load, asked: list[Asked]) -> None:
    suspended: list[None] = []
    began_ns = time.monotonic_ns()
    handle = asyncio.get_running_loop().call_soon(suspended.append, None)  # runs only if this task lets others run
    decision = await limiter.ask(key, load.cost, within=load.within_s) if load.asking else limiter.hit(key, load.cost)
    now_ns = time.monotonic_ns()
    handle.cancel()
    # The cell is as the decision has left it: all decisions are made in this loop, and nothing was awaited since.
    cell = limiter.control.table.cells[key]
    assert isinstance(cell, Cell)
    hub_ns = now_ns + cell.shard.offset_ns
    took_ns = now_ns - began_ns
    outcome = decision.allowed, cell.heard, took_ns, bool(suspended), decision.certain
    asked.append((hub_ns, node, key, cell.epoch, quota, *outcome))


def requests(load: Load) -> Iterator[tuple[float, int, int, str]]:
    """Returns the moment, node, quota and key of each request; every process draws the same requests."""
    draw = random.Random(f"exact windows {load.seed}")
    drawn: list[tuple[float, int, int, str]] = []
    length_s = (load.windows + WARMING) * WINDOW_S
    for quota in QUOTAS:
        for number in range(load.keys):
            moment_s = draw.expovariate(DEMAND * quota / WINDOW_S)
            while moment_s < length_s:
                drawn.append((moment_s, draw.randrange(load.nodes), quota, f"key-{number}"))
                moment_s += draw.expovariate(DEMAND * quota / WINDOW_S)
        for number in range(load.new_keys):
            moment_s = WARMING * WINDOW_S + (number % load.windows + 0.1 + 0.6 * draw.random()) * WINDOW_S
            nodes = [*range(load.nodes)] * math.ceil(DEMAND * quota / load.nodes)
            drawn += [(moment_s + draw.random() * SPREAD_S, node, quota, f"new-{number}") for node in nodes]
        for number in range(load.bursts):
            moment_s = (WARMING + number % load.windows + 0.1 + 0.6 * draw.random()) * WINDOW_S
            gap_s = GAPS_S[number % len(GAPS_S)]
            drawn += [
                (moment_s + each * gap_s, draw.randrange(load.nodes), quota, f"burst-{number}") for each in range(quota)
            ]
    return iter(sorted(drawn))


# -------------------------------------------------------------------- the command line


def main(arguments: Sequence[str] | None = None) -> None:
    """Makes all measurements, and prints them as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few windows, which shows that it works")
    parser.add_argument("--nodes", type=int, nargs="*", default=[4, 16, 32])
    parser.add_argument("--policies", nargs="*", default=["strict", "balanced"])
    parser.add_argument("--algorithm", default=FIXED_WINDOW)
    parser.add_argument("--keys", type=int, default=KEYS, help="side by side, for each limit")
    parser.add_argument("--windows", type=int, default=WINDOWS)
    parser.add_argument("--within", type=float, default=WITHIN_S, metavar="S", help="how long a request may wait")
    parser.add_argument("--hit", action="store_true", help="do not ask")
    parser.add_argument("--bursts", type=int, default=40, help="keys asked about exactly as often as the limit allows")
    parser.add_argument("--cost", type=int, default=1, help="of each request; limits are so many times larger")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="so many processes compute meanwhile")
    options = parser.parse_args(arguments)
    size = {"keys": options.keys, "windows": options.windows, "bursts": options.bursts}
    if options.quick:
        size = {"keys": 3, "windows": 2, "new_keys": 2, "bursts": 4}
    size |= {"cost": options.cost, "busy": options.busy}
    print(
        "| nodes | policy | limit | windows | exact | refused falsely | admitted beyond | most above the limit "
        "| bounds broken | waited | of these longer than the hub has | left to memory, and admitted "
        "| p50, p99 of a wait (ms) "
        "| new keys exact | admitted of a new key | bursts whole | refused of bursts "
        "| CPU of Redis per admitted request (µs) |\n" + "|---" * 18 + "|",
        flush=True,
    )
    for nodes in options.nodes:
        for policy in options.policies:
            load = Load(nodes, policy, options.algorithm, not options.hit, within_s=options.within, **size)
            for found in measured(load):
                print(row(found), flush=True)


def row(found: Found) -> str:
    """Returns one line of the table."""
    load, central = found.load, found.admitted + found.short
    return (
        f"| {load.nodes} | {load.policy} | {found.quota * load.cost}/{WINDOW_S:g} s | {found.windows} "
        f"| {100 * found.exact / max(1, found.windows):.1f} % | {100 * found.short / max(1, central):.2f} % "
        f"| {100 * found.over / max(1, central):.2f} % "
        f"| {found.most_over} | {found.broken} | {100 * found.waited:.0f} % | {100 * found.late:.1f} % "
        f"| {found.unanswered}, {found.guessed} | {found.p50_ms:.1f}, {found.p99_ms:.1f} "
        f"| {found.new_exact} of {load.new_keys} | {found.new_least} to {found.new_most} "
        f"| {found.bursts_whole} of {load.bursts} | {found.bursts_refused} of {load.bursts * found.quota} "
        f"| {found.redis_us:.0f} |"
    )


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].startswith("{"):
        sys.exit(answer(live))
    main()
