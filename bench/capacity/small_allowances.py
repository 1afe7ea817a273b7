"""Measures the cost and the gain of small allowances for long windows in the simulated fleet.

The cases are crash loops, bursts and partitions. Run as `python -m bench.capacity.small_allowances`; prints Markdown
tables. Sync interval 1 s, round trip 2 ms, policy `balanced`, default lease (600 s), all keys warm. It uses nothing but
the simulation, so it runs on other versions, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from reconverge.clock import SECOND_NS
from reconverge.limit import FIXED_WINDOW, SLIDING_LOG, SLIDING_SLICES, SLIDING_WINDOW, TOKEN_BUCKET, Limit
from reconverge.policies import BALANCED, choose
from reconverge.simulation.fault import Fault
from reconverge.simulation.fleet import Fleet
from reconverge.simulation.pattern import SimulatedArrival
from reconverge.simulation.world import World

HOUR: Final = 3600
ALGORITHMS: Final = (FIXED_WINDOW, SLIDING_WINDOW, SLIDING_SLICES, SLIDING_LOG, TOKEN_BUCKET)
WARM: Final = choose("balanced", cold_allowance=0.0)
LIVES: Final = 40
ASKED_IN_A_LIFE: Final = 20
LIFE_S: Final = 60
CUT_AT_S: Final = 1200
CUTS_S: Final = {"1 min": 60, "the lease": 600, "1 h": 3600}
LIMITS: Final = {"1000 an hour": (1000, HOUR), "10,000 a day": (10_000, 24 * HOUR)}


def world(nodes: int, limit: Limit, faults: Sequence[str], *, cold: bool = False, interval_s: float = 1.0) -> World:
    """Returns the world of a fleet, with its faults."""
    interval_ns = round(interval_s * SECOND_NS)
    random = Random(1)
    parsed = [Fault.parse(text, nodes=nodes, window_ns=limit.window_ns, random=random) for text in faults]
    return World(Fleet(nodes, limit, interval_ns), BALANCED if cold else WARM, parsed, seed=1)


def at(seconds: float, node: int = 0) -> SimulatedArrival:
    """Returns a request."""
    return SimulatedArrival(round(seconds * SECOND_NS), node, "ada", 1)


def crash_loop(algorithm: str) -> tuple[int, int]:
    """Runs a lone worker that crashes again and again in an hour.

    Returns the number of its lives in which all requests were admitted, and the cost admitted in the hour.
    """
    lives = [5.0 + life * LIFE_S for life in range(LIVES)]
    arrivals = [at(begins + 0.5 * number) for begins in lives for number in range(ASKED_IN_A_LIFE)]
    crashes = [f"crash:1@{begins + 0.6 * LIFE_S}s+1s" for begins in lives]
    fleet = world(1, Limit(1000, HOUR, algorithm=algorithm), crashes, cold=True)
    decided = fleet.run(arrivals, until_ns=HOUR * SECOND_NS).by_quota[0]
    admitted = [sum(one.allowed for one in decided[first : first + ASKED_IN_A_LIFE]) for first in range(0, 800, 20)]
    return sum(each == ASKED_IN_A_LIFE for each in admitted), sum(admitted)


def burst(count: int, within_s: float, interval_s: float) -> int:
    """Returns the number of requests that a lone, warm worker refuses in a short burst."""
    calm = [at(10.0 + 5.0 * number) for number in range(20)]
    burst = [at(600.0 + within_s * number / count) for number in range(count)]
    fleet = world(1, Limit(1000, HOUR, algorithm=SLIDING_WINDOW), (), interval_s=interval_s)
    decided = fleet.run([*calm, *burst], until_ns=700 * SECOND_NS)
    return sum(not one.allowed for one in decided.by_quota[0][20:])


def cut(nodes: int, quota: int, window_s: int, cut_s: int, busy: float) -> float:
    """Returns the share of the requests in a cut of all nodes that is refused though the limit would have admitted it.

    The fleet gets requests for 0.8 of the limit, at an even pace, and for `busy` times as much while it is cut off.
    """
    random = Random(2)
    arrivals: list[SimulatedArrival] = []
    moment_s = 0.0
    while moment_s < CUT_AT_S + cut_s:
        rate = 0.8 * quota / window_s * (busy if moment_s >= CUT_AT_S else 1.0)
        moment_s += random.expovariate(rate)
        arrivals.append(at(moment_s, random.randrange(nodes)))
    fleet = world(nodes, Limit(quota, window_s, algorithm=SLIDING_WINDOW), [f"cut:all@{CUT_AT_S}s+{cut_s}s"])
    decided = fleet.run(arrivals, until_ns=(CUT_AT_S + cut_s) * SECOND_NS).by_quota[0]
    asked = [one.allowed for one, arrival in zip(decided, arrivals, strict=False) if arrival[0] >= CUT_AT_S * SECOND_NS]
    room = max(0, quota - (len(decided) - len(asked)))
    wanted = min(len(asked), room)
    return 100 * max(0.0, 1 - sum(asked) / wanted) if wanted else 0.0


def main() -> None:
    """Makes all measurements, and prints the tables."""
    print("Crash loop: 20 requests in each life of a lone worker, 1000 an hour, 40 lives\n")
    print("| | lives that got all they asked for | admitted of 800 |\n|---|---|---|")
    for algorithm in ALGORITHMS:
        lives, admitted = crash_loop(algorithm)
        print(f"| {algorithm} | {lives} | {admitted} |", flush=True)
    print("\nBurst on a lone warm worker, 1000 an hour: refused, by sync interval\n\n| | 0.1 s | 1 s |\n|---|---|---|")
    for count, within_s in ((50, 0.001), (200, 0.001), (200, 0.1), (200, 1.0), (200, 10.0), (500, 10.0)):
        refused = [burst(count, within_s, interval_s) for interval_s in (0.1, 1.0)]
        print(f"| {count} in {within_s:g} s | {' | '.join(map(str, refused))} |", flush=True)
    print("\nAll nodes cut off: % refused of what the limit would admit\n")
    print(f"| | {' | '.join(CUTS_S)} |\n|---{'|---' * len(CUTS_S)}|")
    for name, (quota, window_s) in LIMITS.items():
        for nodes in (1, 4, 32):
            for busy in (1.0, 5.0):
                shares = [cut(nodes, quota, window_s, cut_s, busy) for cut_s in CUTS_S.values()]
                shown = " | ".join(f"{share:.0f}" for share in shares)
                print(f"| {name}, {nodes} nodes, asked {busy:g} times as often while cut | {shown} |", flush=True)


if __name__ == "__main__":
    main()
