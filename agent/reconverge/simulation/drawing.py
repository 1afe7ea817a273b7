"""Draws the parts of the fuzz's cases from a random generator: policies, limits, traffic, fleets and faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from random import Random
from typing import Final

from reconverge.clock import SECOND_NS
from reconverge.limit.limit import (
    BUCKETS,
    BURSTING,
    CALENDAR,
    CLOCK,
    FILLED,
    FIRST_HIT,
    FIXED_WINDOW,
    INTERVAL,
    METERED,
    SLIDING_LOG,
    SLIDING_SLICES,
    SMOOTH,
    SMOOTH_WARMING_UP,
    Limit,
)
from reconverge.policies import AVAILABLE, BALANCED, STRICT, Policy
from reconverge.simulation.asked import Beside
from reconverge.simulation.fleet import Fleet
from reconverge.simulation.pattern import PATTERNS, Traffic

LEASE_TIMEOUTS_MIN: Final = 3
LEASE_MAX_NS: Final = 50 * 86_400 * SECOND_NS
"""The longest lease of a case, in nanoseconds: hubs refuse leases of more than sixty days, which no agent can have."""
CALENDAR_SHARE: Final = 0.2
FIRST_HIT_SHARE: Final = 0.4
CALENDAR_INSTEAD_NS: Final = 60 * SECOND_NS
"""The longest window, in nanoseconds, that a case may replace by a day. The case takes no more steps then, as it lasts
for a number of windows."""
DAY_S: Final = 86_400
ZONES: Final = ("UTC", "Europe/Berlin", "America/New_York", "Africa/Cairo", "Asia/Kolkata")


def draw_policy(random: Random) -> Policy:
    """Draws strict, balanced or available; at random, balanced gets another `max_overshoot` than its own."""
    policy = random.choice([STRICT, BALANCED, BALANCED, AVAILABLE])
    if policy is BALANCED and random.random() < 0.5:
        policy = replace(policy, max_overshoot=round(random.uniform(0.01, 1.0), 3))
    return policy


def draw_limit(random: Random, window: float, algorithms: Sequence[str]) -> Limit:
    """Draws a limit with a window of `window` seconds and one of `algorithms`."""
    algorithm = random.choice(algorithms)
    quota = ceil(10 ** random.uniform(0, 2.7))
    burst = None
    if algorithm in BURSTING and random.random() < 0.7:
        burst = max(1, int(quota * 10 ** random.uniform(-1, 0.3)))
    slices = random.choice([1, 2, 3, 10, 100]) if algorithm == SLIDING_SLICES else None
    count_refused = algorithm == SLIDING_LOG and random.random() < 0.3
    warmup = window * 10 ** random.uniform(-1, 0.5) if algorithm == SMOOTH_WARMING_UP else None
    soft = random.choice([0.0] * 5 + [0.1, 0.5]) if algorithm not in SMOOTH else 0.0
    limit = Limit(
        quota,
        window,
        algorithm=algorithm,
        burst=burst,
        slices=slices,
        count_refused=count_refused,
        warmup=warmup,
        soft=soft,
    )
    return _twisted(random, limit)


def _twisted(random: Random, limit: Limit) -> Limit:
    """Returns the limit, at random with other beginnings of its windows, or another start or refill of its bucket."""
    twist, share = random.random(), random.random()
    if limit.algorithm == FIXED_WINDOW:
        if twist < CALENDAR_SHARE and limit.window_ns <= CALENDAR_INSTEAD_NS:
            return replace(limit, window=DAY_S, align=CALENDAR, timezone=random.choice(ZONES))
        return replace(limit, align=FIRST_HIT) if twist < CALENDAR_SHARE + FIRST_HIT_SHARE else limit
    if limit.algorithm in FILLED:
        if twist < 2 * CALENDAR_SHARE:
            limit = replace(limit, initial=int(share * limit.nominal))
        if CALENDAR_SHARE <= twist < CALENDAR_SHARE + FIRST_HIT_SHARE:
            limit = replace(limit, refill=INTERVAL)
    return limit


def draw_further(random: Random, limit: Limit) -> tuple[Limit, ...]:
    """Draws up to two more quotas for a limit, mostly none, each small enough to refuse some requests."""
    further: list[Limit] = []
    if limit.align != CLOCK:
        return ()
    for _ in range(random.choice([0] * 6 + [1, 1, 2])):
        times = random.choice([0.1, 0.5, 1, 3, 10])
        quota = max(5, ceil(limit.quota * times * 10 ** random.uniform(-0.5, 0.3)))
        algorithm = random.choice([name for name in METERED if name not in BUCKETS or name == limit.algorithm])
        further.append(Limit(quota, limit.window * times, algorithm=algorithm))
    return tuple(further)


def draw_beside(random: Random, limit: Limit) -> Beside:
    """Draws a second limit small enough to refuse some requests, which counts by groups of keys; see `Beside`."""
    groups = random.choice([1, 1, 2, 3])
    times = random.choice([0.1, 0.5, 1, 1, 3])
    quota = max(5, ceil(limit.quota * times * 10 ** random.uniform(-0.5, 0.5)))
    algorithm = random.choice(METERED)
    return Beside(Limit(quota, limit.window * times, algorithm=algorithm), groups)


def draw_traffic(random: Random, limit: Limit, *, demand: float) -> Traffic:
    """Draws a pattern of requests whose cost in a window is `demand` times the limit."""
    cost_max = random.choice([1, 1, 1, min(5, limit.capacity)])
    return Traffic(random.choice(list(PATTERNS)), demand, random.choice([1, 1, 1, 3]), cost_max)


def outlasting(windows: int, window_ns: int) -> int:
    """Returns a lease, in nanoseconds, that is longer than a case of this many windows.

    Cases in which the hub loses its data have this lease: when a node's lease has ended, the hub alone remembers the
    node, and loses it with the data.
    """
    return max((windows + 2) * window_ns, min(10 * (windows + 2) * window_ns, LEASE_MAX_NS))


def draw_fleet(random: Random, nodes: int, limit: Limit, interval_ns: int, lease_ns: int) -> Fleet:
    """Draws a fleet whose lease is longer than any exchange can take, as an agent requires."""
    timeout_ns = min(lease_ns // LEASE_TIMEOUTS_MIN, SECOND_NS)
    round_trip_ns = int(min(limit.window_ns * 10 ** random.uniform(-4, -1), timeout_ns / 2))
    return Fleet(nodes, limit, interval_ns, round_trip_ns, lease_ns=lease_ns, timeout_ns=timeout_ns)


def draw_faults(random: Random, nodes: int, begin_w: float, end_w: float) -> dict[str, str]:
    """Draws a fault of every kind, which begins between two times, in windows.

    Returns texts for `Fault.parse`, by kind.
    """

    def when() -> float:
        return random.uniform(begin_w, end_w)

    def spell() -> str:
        start = when()
        return f"{start:.4f}w+{max(0.0001, random.uniform(0, min(6.0, end_w - start))):.4f}w"

    node = random.randint(1, nodes)
    direction = random.choice(["", ":requests", ":replies"])
    return {
        "cut": f"cut:{node}{direction}@{spell()}",
        "down": f"down@{spell()}",
        "slow": f"slow:{10 ** random.uniform(0, 2):.1f}@{spell()}",
        "loss": f"loss:{random.uniform(0, 0.5):.2f}@{spell()}",
        "repeat": f"repeat:{random.uniform(0, 0.5):.2f}@{spell()}",
        "offset": f"offset:{node}:{random.uniform(-5, 5):.2f}",
        "jump": f"jump:{node}:{random.uniform(-100, 100):.1f}@{when():.4f}w",
        "crash": f"crash:{node}@{spell()}",
        "stop": f"stop:{node}@{spell()}",
    }


def choose_faults(
    random: Random, drawn: dict[str, str], numbers: tuple[int, int], policy: Policy, loses_data_by_w: float | None
) -> tuple[str, ...]:
    """Returns a random choice of the faults in `drawn`, at least `numbers[0]` and at most `numbers[1]` of them.

    If `loses_data_by_w` is a number, the choice ends with a loss of the hub's data before that time, in windows, and
    contains only faults for which the promises hold together with such a loss.
    """
    if loses_data_by_w is None:
        return tuple(drawn[name] for name in random.sample(sorted(drawn), random.randint(*numbers)))
    beside = sorted(drawn.keys() - {"crash", "stop"})
    # Except in strict, a hub that has lost its data waits for no absent node: so no fault keeps a node away.
    chosen = random.sample(beside, random.randint(*numbers)) if policy is STRICT else []
    return (*(drawn[name] for name in chosen), f"lose-data@{random.uniform(0, loses_data_by_w):.3f}w")
