"""The limit of a simulated fleet on one node: with several quotas, shares or plans, alone or with a second limit."""

# Theory of operation.
#
# Everything here is production code, put together as an agent, a guard or contracts put it together:
#
#     several quotas    one decider over several tables, by one key
#     shares            a decider for each share, all by the same key
#     plans             a table for each quota, between which keys move; which one is asked depends on what the node
#                       knows of the key just now
#     jointly           the limit by the request's key, and another one by the key of the group that it belongs to, both
#                       charged in one moment or none; the first may have plans meanwhile
#
# An observer needs more than the answer: in which window a charge was put, and whether the hub had answered the node
# about the key. Where production code does not return that, it is read from the cell right after the charge, before any
# time passes.

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

from reconverge.kernel import (
    Claimed,
    Decider,
    DecidingRule,
    Part,
    ShareLimit,
    Table,
    Verdict,
    hit_at_once,
    settle_jointly,
)
from reconverge.limit.limit import Limit
from reconverge.limiter.asking import AskedCost, Asking
from reconverge.limiter.joint import Jointly

if TYPE_CHECKING:
    from reconverge.limiter.waiting.queue import Waker

Judged: TypeAlias = Sequence[tuple[str, Verdict]]
"""For each quota by which a run is judged: the key under which the quota counted the request, and its verdict."""

LIMIT_NAME: Final = "simulated"
SHARED_KEY: Final = "shared"
"""The one key of all shares; the number in a request's own key selects the share."""


@dataclass(frozen=True, slots=True)
class Plans:
    """A second, smaller quota beside the limit's: each key has one of the two, and may change between them each period.

    Nodes learn of a key's change one after the other.
    """

    smaller: Limit
    period_ns: int
    """The time, in nanoseconds, after which a key may change between the two quotas."""
    spread_ns: int
    """The time, in nanoseconds, by which the last node learns of a change later than the first; less than
    `period_ns`."""

    def on_smaller(self, key: str, lag: float, now_ns: int) -> bool:
        """Whether a node takes `key` to have the smaller quota; it learns of each change `lag` * `spread_ns` late."""
        return self.drawn(key, (now_ns - int(lag * self.spread_ns)) // self.period_ns)

    def known_since(self, key: str, now_ns: int) -> int | None:
        """Returns the number of the period in which `key` last changed quotas; None until every node knows of that."""
        number = now_ns // self.period_ns
        plan = self.drawn(key, number)
        while number >= 0 and self.drawn(key, number - 1) == plan:
            number -= 1
        return number if now_ns > number * self.period_ns + self.spread_ns else None

    @staticmethod
    def drawn(key: str, number: int) -> bool:
        """Whether `key` has the smaller quota in period `number`: drawn at random, with the arguments as the seed."""
        return bool(Random(f"{key} {number}").getrandbits(1))


@dataclass(frozen=True, slots=True)
class Beside:
    """A second limit, to which each request is charged, too; it divides all keys into `groups`, and counts by group."""

    limit: Limit
    groups: int

    def key_of(self, key: str) -> str:
        """Returns the key by which the second limit counts requests for `key`: the name of its group."""
        number = int("".join(filter(str.isdigit, key)) or 0)
        return f"group-{number % self.groups}"

    def __str__(self) -> str:
        return f"{self.limit} for {self.groups} groups"


class SimulatedLimit:
    """A limit on one simulated node: with one quota, with several quotas, or divided into shares."""

    def __init__(self, limit: Decider, shares: Sequence[ShareLimit] = ()) -> None:
        self._limit = limit
        self._shares = shares
        self._asking = [Asking(each) for each in shares or (limit,)]
        self._plans: Plans | None = None
        self._beside: Beside | None = None
        self.tables: tuple[Table, ...] = (*limit.tables, *(share.tables[0] for share in shares))

    def have_plans(self, smaller: Table, plans: Plans, lag: float) -> None:
        """Lets each key change between the limit's quota and a smaller one, which `smaller` counts.

        `lag` is the delay with which this node learns of a change, as a fraction of `plans.spread_ns`.
        """
        self._plans, self._lag = plans, lag
        self._smaller_asking = Asking(smaller)
        self.tables = (*self.tables, smaller)

    def have_beside(self, table: Table, beside: Beside) -> None:
        """Makes each request also charge a second limit, which `table` counts; both are charged at the same moment."""
        self._beside, self._beside_asking = beside, Asking(table)
        self.tables = (*self.tables, table)

    def change(self, limit: Limit) -> None:
        """Replaces the first quota of the limit on this node by that of `limit`."""
        self.tables[0].change(limit)
        self._limit.take_note()

    def decide(self, key: str, cost: int, now_ns: int) -> Judged:
        """Decides about a request from memory, without waiting for the hub.

        Returns, for each quota by which the run is judged, the key under which the quota counts the request and its
        verdict.
        """
        asking, key = self._of(key)
        limit = asking.limit
        if self._beside is not None:
            return self._decide_jointly(limit, key, cost, self._beside)
        verdicts = limit.decide(key, cost, now_ns)
        if isinstance(verdicts, Verdict):
            return [(key, verdicts)]
        return [(key, verdict) for verdict in (verdicts[-1:] if limit.is_share else verdicts)]

    def ask(self, key: str, cost: int, within_ns: int, waker: Waker) -> Generator[int, None, Judged]:
        """Decides about a request that asks the hub in doubt, as `RateLimiter.ask` does.

        Yields how long the request is to sleep, in nanoseconds. Returns, for each quota by which the run is judged, the
        key under which the quota counts the request and its verdict.
        """
        asking, key = self._of(key)
        if self._beside is not None:
            return (yield from self._ask_jointly(asking, key, cost, within_ns, waker, self._beside))
        limit = asking.limit
        request = asking.request(key, cost, None, within_ns)
        settled = asking.at_once(request)
        if settled is None:
            settled = yield from asking.steps(request, waker)
        decision, places = settled.decision, limit.tables
        if limit.is_share:
            places = places[:1] if decision.allowed and not decision.borrowed else places[-1:]
        return [(key, _seen(table, key, allowed=decision.allowed)) for table in places]

    def _of(self, key: str) -> tuple[Asking, str]:
        """Returns the limit, smaller plan or share that decides about `key`, and the key under which it counts."""
        if self._plans is not None and self._plans.on_smaller(key, self._lag, self.tables[0].now_ns()):
            return self._smaller_asking, key
        if not self._shares:
            return self._asking[0], key
        number = int("".join(filter(str.isdigit, key)) or 0) % len(self._shares)
        return self._asking[number], SHARED_KEY

    def _decide_jointly(self, limit: Decider, key: str, cost: int, beside: Beside) -> Judged:
        """Charges both limits together if both surely admit the request; else decides each of them exactly.

        Returns the key and the verdict of each limit.
        """
        other, group = self._beside_asking.limit, beside.key_of(key)
        decided = hit_at_once([Claimed(limit, key, cost), Claimed(other, group, cost)], certain=False)
        if decided is None:
            asked = [(limit, key), (other, group)]
            parts = [Part(each, its_key, each.costs_of(cost, None), DecidingRule.MEMORY) for each, its_key in asked]
            allowed = settle_jointly(parts).allowed
        else:
            allowed = not isinstance(decided, int)
        return self._seen_jointly(limit, key, beside, allowed=allowed)

    def _ask_jointly(
        self, asking: Asking, key: str, cost: int, within_ns: int, waker: Waker, beside: Beside
    ) -> Generator[int, None, Judged]:
        other, group = self._beside_asking, beside.key_of(key)
        asked = [(asking, key), (other, group)]
        members = [_LimitMember(each, each.request(its_key, cost, None, within_ns)) for each, its_key in asked]
        jointly = Jointly(members)
        answers = jointly.at_once(blocking=False)
        if answers is None:
            joint = yield from jointly.steps(waker)
            allowed = joint.allowed
        else:
            allowed = all(decision.allowed for decision, _ in answers)
        return self._seen_jointly(asking.limit, key, beside, allowed=allowed)

    def _seen_jointly(self, limit: Decider, key: str, beside: Beside, *, allowed: bool) -> Judged:
        other, group = self._beside_asking.limit.tables[0], beside.key_of(key)
        places = [(key, limit.tables[0]), (group, other)]
        return [(each, _seen(table, each, allowed=allowed)) for each, table in places]


@dataclass(frozen=True, slots=True)
class _LimitMember:
    asking: Asking
    request: AskedCost
    marks: bool = False

    @property
    def would_be_admitted(self) -> bool:
        return self.asking.limit.test(self.request.key, self.request.cost, None).allowed


def _seen(table: Table, key: str, *, allowed: bool) -> Verdict:
    """Returns the verdict on a request that `table` has just charged or refused, with the use of `key` at present."""
    return table.observe(key, table.now_ns())._replace(allowed=allowed)
