"""Limits and plans that change during a run: when each node applies a new quota, and which limits judge the run."""

# Theory of operation.
#
# A change reaches the nodes one after the other, within `spread_ns`: a new configuration that is rolled out, or
# published settings that each node reads in its turn. From the first node to the last, the larger quota counts. To
# judge all of a run by the largest quota would be of no use: a node that forgets to lower its allowances would be
# within that. So a run is judged by several limits:
#
#     declared  |########|                                              what was admitted before the first change
#     first              |.. spread ..|##############|                  ... after the last node has it, until the next
#     second                                         |.. spread ..|####
#     the largest of all |##############################################
#
# Every stretch is judged as if nothing had been charged before it. So a run that keeps to its limits is never reported,
# and a stretch in which nodes use allowances of the former quota exceeds its own quota.
#
# Where keys change plans (`asked.py`), each key has stretches of its own: the periods in a row in which it has one
# plan, without the time until the last node knows of the change. A request that has waited for the hub is of the plan
# that its node knew when the request arrived. So it belongs to a stretch only if it also arrived in that stretch.

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Final, NamedTuple

from reconverge.clock import NEVER_NS
from reconverge.limit.limit import FIRST_HIT, Limit
from reconverge.simulation.asked import Plans
from reconverge.simulation.truth import DecidedRequest

CHANGES_MAX: Final = 6
QUOTA_POWERS: Final = ((-1.0, 0.5), (-2.5, -1.0))
"""Two ranges of the power of ten by which a change multiplies a quota or burst: from a tenth to threefold, or a steep
fall."""
SPREADS: Final = (0.0, 0.0, 0.1, 1.0)
"""Candidates for the longest time, in windows, between the changes of the quota on the first node and on the last."""


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """A change of a limit's quota, which the nodes apply one after the other from `moment_ns` on."""

    limit: Limit
    moment_ns: int
    spread_ns: int
    """How many nanoseconds after the first node the last node applies the new quota."""

    def reaches_ns(self, node: int) -> int:
        """Returns the simulated time, in nanoseconds, at which `node` applies the new quota."""
        return self.moment_ns + int(self.spread_ns * Random(f"change {self.moment_ns} {node}").random())

    def __str__(self) -> str:
        return f"{self.limit} at {self.moment_ns} ns within {self.spread_ns} ns"


class Stretch(NamedTuple):
    """A part of a run, between two simulated times, and the limit that judges the requests decided in this part."""

    limit: Limit
    after_ns: int
    until_ns: int

    def includes(self, moment_ns: int) -> bool:
        """Whether the simulated time `moment_ns` lies in this part of the run."""
        return self.after_ns < moment_ns < self.until_ns


def limit_at(changes: Sequence[QuotaChange], node: int, now_ns: int) -> Limit | None:
    """Returns the limit to which the last change up to `now_ns` set `node`; None if no change has reached the node."""
    taken = [change.limit for change in changes if change.reaches_ns(node) <= now_ns]
    return taken[-1] if taken else None


def stretches(limit: Limit, changes: Sequence[QuotaChange]) -> list[Stretch]:
    """Returns the parts of a run and the limit that judges each: the whole run, and each part between two changes.

    The whole run is judged by the largest quota that any node has had.
    """
    whole = Stretch(largest_of([limit, *(change.limit for change in changes)]), -1, NEVER_NS)
    if not changes or limit.align == FIRST_HIT:
        return [whole]  # only all requests together show where a window from the first hit begins
    ends = [*changes, QuotaChange(limit, NEVER_NS, 0)]
    later = [Stretch(one.limit, one.moment_ns + one.spread_ns, other.moment_ns) for one, other in pairwise(ends)]
    return [whole, Stretch(limit, -1, changes[0].moment_ns), *later]


def on_one_plan(
    limit: Limit, plans: Plans | None, decided: Sequence[DecidedRequest], begin_ns: int
) -> list[tuple[Limit, list[DecidedRequest]]]:
    """Returns pairs of a quota and the decisions on one key made while all nodes knew the key to have this quota."""
    if plans is None or limit.align == FIRST_HIT:
        return []  # for the reason in `stretches`
    found: defaultdict[tuple[str, int], list[DecidedRequest]] = defaultdict(list)
    for one in decided:
        first = plans.known_since(one.key, one.hub_ns - begin_ns)
        if first is not None and first == plans.known_since(one.key, one.arrived_ns - begin_ns):
            found[one.key, first].append(one)
    return [(plans.smaller if plans.drawn(key, first) else limit, of_key) for (key, first), of_key in found.items()]


def largest_of(limits: Sequence[Limit]) -> Limit:
    """Returns a copy of `limits[0]` with the largest quota and the largest burst that any of `limits` has."""
    first = limits[0]
    burst = None if first.burst is None else max(limit.nominal for limit in limits)
    return replace(first, quota=max(limit.quota for limit in limits), burst=burst)


def draw_changes(random: Random, limit: Limit, windows: int, cost_max: int) -> tuple[QuotaChange, ...]:
    """Draws some changes of a limit's quota; each has reached all nodes before the next begins.

    Every changed limit admits at least `cost_max` at once.
    """
    moments = sorted(random.uniform(0, windows) for _ in range(random.randint(1, CHANGES_MAX)))
    changes = []
    for moment, following in pairwise([*moments, windows]):
        spread = min(random.choice(SPREADS) * random.random(), following - moment)
        quota_times, burst_times = (10 ** random.uniform(*random.choice(QUOTA_POWERS)) for _ in range(2))
        quota = max(cost_max, int(limit.quota * quota_times))
        burst = None if limit.burst is None else max(cost_max, int(limit.burst * burst_times))
        changed = replace(limit, quota=quota, burst=burst)
        changes.append(QuotaChange(changed, int(moment * limit.window_ns), int(spread * limit.window_ns)))
    return tuple(changes)
