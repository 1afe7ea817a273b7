"""Compares limiters without messages with the least loss possible: `python -m reconverge.simulation.studies.frontier`.

Each limiter has to pass two kinds of partitions, each as long as a window: one in which every node gets requests for
more than the limit; and, once for each node, one in which that node alone gets as many.
"""

# Theory of operation. A node that hears nothing decides by its own arrivals: it admits the same, a, whether the other
# nodes are busy or idle. If all are busy, the fleet admits the sum of all a, so it is over by (sum of a) - L at least.
# If one alone is, it leaves L - a unused, and for the node with the smallest a that is L - (sum of a) / N at least. So
#
#     over + N * unused  >=  (sum of a) - L  +  N * L - (sum of a)  =  (N - 1) * L
#
# for every limiter, as long as the two demands do not differ for the node that is busy in both. Here they do not: until
# the judged window begins, both runs are the same, and in it a node's own requests are. docs/internals/
# what-cannot-be-had.md explains what that means for a fleet.

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.limit.limit import FIXED_WINDOW, Limit
from reconverge.policies import AVAILABLE, BALANCED, NAIVE, STRICT, Policy
from reconverge.simulation.fault import Fault
from reconverge.simulation.fleet import AskSettings, Fleet
from reconverge.simulation.pattern import SimulatedArrival, Traffic
from reconverge.simulation.studies.experiment import PROCESSES, mapped
from reconverge.simulation.world import World

NODES: Final = (2, 4, 8)
QUOTA: Final = 160
"""The limit L: a multiple of every simulated number of nodes, and large enough for each allowance to be several
requests."""
WINDOW_S: Final = 10
KEY: Final = "key-0"
BUSY, CALM, NEW = 3.0, 0.5, 0.0
"""Values of `Situation.demand_before`: high and low demand for the key before the judged window, as a multiple of the
limit; 0 for a key that is new in it."""
BUSY_NODE_DEMAND: Final = 2
"""The cost that each busy node is asked for in the judged window, as a multiple of the limit; more than it may
admit."""
BEFORE: Final = 3
"""The number of windows before the judged one."""
CUT: Final = f"cut:all@{BEFORE - 0.05}w+1.05w"
"""A partition of all nodes from the hub. It begins so early that no message sent before it arrives in the judged
window."""
LIMIT: Final = Limit(QUOTA, WINDOW_S, algorithm=FIXED_WINDOW)
WITHIN_NS: Final = 25 * MILLISECOND_NS
SEED: Final = 7_000
PERCENT: Final = 100.0


@dataclass(frozen=True, slots=True)
class Situation:
    """The traffic before the judged window, and the network during it."""

    name: str
    cut: bool
    demand_before: float = BUSY
    """The demand on all nodes in each window before the judged one, as a multiple of the limit."""
    at_once: bool = False
    """Whether all requests of the judged window come at one time, or evenly spread."""


SITUATIONS: Final = (
    Situation("cut off, busy", cut=True),
    Situation("cut off, calm", cut=True, demand_before=CALM),
    Situation("cut off, new", cut=True, demand_before=NEW),
    Situation("one moment", cut=False, at_once=True),
    Situation("steady", cut=False),
)
ACROSS: Final = SITUATIONS[0]
"""The situation for which the table has each number of nodes."""


@dataclass(frozen=True, slots=True)
class SimulatedLimiter:
    """A limiter of the comparison that is a policy of reconverge, and is simulated."""

    policy: Policy
    waits: bool = False
    """Whether requests in doubt wait for the hub's answer."""


@dataclass(frozen=True, slots=True)
class RuleLimiter:
    """A limiter of the comparison that is a formula, and is not simulated."""

    rule: Callable[[Situation, Sequence[int]], int]
    """Returns the cost that the fleet admits in a situation, given the cost that each node is asked for."""
    waits: bool = False


def limit_for_each(_situation: Situation, asked: Sequence[int]) -> int:
    """Returns the cost that the fleet admits if each node applies the whole limit to its own requests alone."""
    return sum(min(each, QUOTA) for each in asked)


def split_evenly(_situation: Situation, asked: Sequence[int]) -> int:
    """Returns the cost that the fleet admits if each node has an equal, fixed part of the limit."""
    return sum(min(each, QUOTA // len(asked)) for each in asked)


def leased(situation: Situation, asked: Sequence[int]) -> int:
    """Returns the cost that the fleet admits if nodes lease L/2N at a time, and an idle node keeps one such lease.

    A node that has used up its lease refuses and asks for another, which it does not get without messages. No node has
    a lease for a new key.
    """
    lease = QUOTA // (2 * len(asked))
    if situation.cut or situation.at_once:
        return sum(min(each, lease) for each in asked) if situation.demand_before else 0
    return min(sum(asked), QUOTA - lease * asked.count(0))


def central_or_all(situation: Situation, asked: Sequence[int]) -> int:
    """Returns the cost that the fleet admits if a central store decides, and nodes admit all while it is away."""
    return sum(asked) if situation.cut else min(sum(asked), QUOTA)


def central_or_none(situation: Situation, asked: Sequence[int]) -> int:
    """Returns the cost that the fleet admits if a central store decides, and nodes refuse all while it is away."""
    return 0 if situation.cut else min(sum(asked), QUOTA)


LIMITERS: Final[dict[str, SimulatedLimiter | RuleLimiter]] = {
    "strict": SimulatedLimiter(STRICT),
    "strict, asking": SimulatedLimiter(STRICT, waits=True),
    "balanced": SimulatedLimiter(BALANCED),
    "available": SimulatedLimiter(AVAILABLE),
    "naive": SimulatedLimiter(NAIVE),
    "leases, L/2N": RuleLimiter(leased),
    "L/N each": RuleLimiter(split_evenly),
    "L each": RuleLimiter(limit_for_each),
    "store, or refused": RuleLimiter(central_or_none, waits=True),
    "store, or admitted": RuleLimiter(central_or_all, waits=True),
}


@dataclass(frozen=True, slots=True)
class FrontierTask:
    """A limiter to compare in one situation, on a fleet of `nodes` nodes."""

    limiter: str
    situation: Situation
    nodes: int

    @property
    def hears(self) -> bool:
        """Whether a message sent in the judged window can arrive in time to change a decision in the same window."""
        return not self.situation.cut and (LIMITERS[self.limiter].waits or not self.situation.at_once)


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """The largest losses of one limiter in one situation: cost admitted above the limit, and cost left unused."""

    nodes: int
    over: int
    """The admitted cost above the limit when all nodes are busy."""
    unused: int
    """The unused rest of the limit when only one node is busy; the largest such rest of any node."""

    @property
    def together(self) -> int:
        """Returns `over`, plus `unused` once for each node; no limiter without messages gets this below `least`."""
        return self.over + self.nodes * self.unused

    @property
    def least(self) -> int:
        """Returns the least possible value of `together`: (N - 1) * L, for N nodes and the limit L."""
        return (self.nodes - 1) * QUOTA

    def __str__(self) -> str:
        return f"{PERCENT * self.over / QUOTA:.0f}/{PERCENT * self.unused / QUOTA:.0f}"


def point_of(task: FrontierTask) -> FrontierPoint:
    """Returns the losses of a limiter, from runs with all nodes busy and with each node busy alone."""
    everywhere = sum(admitted(task, busy=range(task.nodes)))
    alone = min(sum(admitted(task, busy=(node,))) for node in range(task.nodes))
    return FrontierPoint(task.nodes, max(0, everywhere - QUOTA), max(0, QUOTA - alone))


def admitted(task: FrontierTask, *, busy: Iterable[int]) -> list[int]:
    """Returns the cost that each node admits in the judged window, in which only the nodes in `busy` get requests.

    For a RuleLimiter the list has one element: the sum over all nodes.
    """
    busy = frozenset(busy)
    limiter = LIMITERS[task.limiter]
    if isinstance(limiter, RuleLimiter):
        asked = [BUSY_NODE_DEMAND * QUOTA if node in busy else 0 for node in range(task.nodes)]
        return [limiter.rule(task.situation, asked)]
    asks = AskSettings(WITHIN_NS) if limiter.waits else None
    fleet = Fleet(task.nodes, LIMIT, SECOND_NS, asks=asks)
    cut = Fault.parse(CUT, nodes=task.nodes, window_ns=LIMIT.window_ns, random=Random(SEED))
    world = World(fleet, limiter.policy, [cut] if task.situation.cut else [], seed=SEED)
    begin_ns, end_ns = (number * LIMIT.window_ns for number in (BEFORE, BEFORE + 1))
    (decided,) = world.run(arrivals(task, busy), until_ns=end_ns).by_quota
    found = [0] * task.nodes
    for one in decided:
        if one.allowed and begin_ns <= one.hub_ns - world.begin_ns < end_ns:
            found[one.node] += one.cost
    return found


def arrivals(task: FrontierTask, busy: frozenset[int]) -> list[SimulatedArrival]:
    """Returns the requests of a run: before the judged window on all nodes, and in it only on the `busy` nodes.

    Requests before the window are the same for any `busy`, and so are a given node's requests in the window.
    """
    before: list[SimulatedArrival] = []
    if task.situation.demand_before:
        traffic = Traffic("uniform", task.situation.demand_before)
        before = traffic.arrivals(nodes=task.nodes, quota=QUOTA, window_ns=LIMIT.window_ns, windows=BEFORE, seed=SEED)
    count = BUSY_NODE_DEMAND * QUOTA
    inside = sorted(
        SimulatedArrival(_moment_ns(task.situation, number / count), node, before[0].key if before else KEY, 1)
        for number in range(count)
        for node in busy
    )
    return [*before, *inside]


def _moment_ns(situation: Situation, part: float) -> int:
    """Returns the time of a request in the judged window; `part` is the fraction of its node's requests before it."""
    into = 0.5 if situation.at_once else 0.01 + 0.98 * part
    return round((BEFORE + into) * LIMIT.window_ns)


def tasks() -> Iterator[FrontierTask]:
    """Yields the tasks of the table, row by row."""
    for limiter in LIMITERS:
        yield from (FrontierTask(limiter, situation, NODES[-1]) for situation in SITUATIONS)
        yield from (FrontierTask(limiter, ACROSS, nodes) for nodes in NODES[:-1])


def page(points: Mapping[FrontierTask, FrontierPoint]) -> str:
    """Returns the table in Markdown: each limiter's losses in each situation, and the ratios `together / least`."""
    heads = [*(situation.name for situation in SITUATIONS), f"sum, N = {', '.join(map(str, NODES))}"]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for limiter in LIMITERS:
        found = [points[FrontierTask(limiter, situation, NODES[-1])] for situation in SITUATIONS]
        across = [points[FrontierTask(limiter, ACROSS, nodes)] for nodes in NODES]
        sums = "/".join(f"{each.together / each.least:.2f}" for each in across)
        lines.append(f"| {limiter} | {' | '.join(map(str, found))} | {sums} |")
    return "\n".join(lines)


def main() -> int:
    """Prints the table of all limiters. Returns the exit status, 0."""
    todo = list(tasks())
    print(page(dict(zip(todo, mapped(point_of, todo, processes=PROCESSES), strict=True))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
