"""Decides about a request to several limits, each with its own key: all limits charge it in one moment, or none does.

`limiter/joint.py` makes such a request ask the hub if it is in doubt.
"""

# Theory of operation.
#
# The problem. A user, the user's organisation and an address have a limit each. If they were charged one after the
# other, a request that the last limit refuses would occupy room in the first for a moment, and another request might
# be refused for that.
#
# How it works. Each limit has a lock of its own, so all locks are taken first. Each limit is evaluated. If all admit,
# all are charged; otherwise the limits that refuse count a refusal, and the others stay as they are. Charges on the
# fast path take no lock; they find no room meanwhile (`Together.weigh`). For a request that all limits admit, the
# compiled kernel does all of this in one call, in which no other code runs (`hit_at_once`).
#
# Locks. Two requests may need the same locks in another order. A thread that holds one lock does not wait for a second
# one (`kernel/lock.py`): it gets Reentry, releases the locks that it holds, waits for the second lock while it holds
# none, and begins again from there. So no two threads wait for each other.

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from reconverge.kernel.composite.asking import DecidingRule, Settled, Together, Weighed, groups_of
from reconverge.kernel.composite.at_once import hit_all, stores_of
from reconverge.kernel.composite.decider import Decider
from reconverge.kernel.composite.gate import Costs
from reconverge.kernel.engine import Decision, KernelFields, Lock, Reentry

T = TypeVar("T")


class Part(NamedTuple):
    """The part of a request that goes to one of several limits: the key and the costs by which that limit decides."""

    limit: Decider
    key: str
    costs: Costs
    rule: DecidingRule = DecidingRule.MEMORY
    counted: bool = False
    """Whether the request has been counted as demand already, because it has begun to ask the hub."""
    units: Costs | None = None
    """`units[i]` is what quota i charges for a cost of 1; None if the charge need not be corrected later."""


class Claimed(NamedTuple):
    """The part of a request that goes to one of several limits, as `hit_at_once` takes it: a cost for all quotas."""

    limit: Decider
    key: str
    cost: int


def hit_at_once(claims: Sequence[Claimed], *, certain: bool) -> list[Decision] | int | None:
    """Returns the decision of each limit if all admit the request; then all have charged it, in one moment.

    Otherwise charges nothing, and returns the index of a limit that refuses with certainty, or None if Python must
    decide: without the compiled kernel, or if a limit of several quotas refuses. If `certain` is True, only requests
    that fit into the node's own part of each limit are admitted.
    """
    quotas = [stores_of(limit) for limit, _, _ in claims]
    if not all(quotas):
        return None
    return hit_all(certain, quotas, [key for _, key, _ in claims], [cost for _, _, cost in claims])


class Joint(NamedTuple):
    """The answers of several limits to one request: `settled[i]` is the answer to part i; `allowed` if all admit."""

    allowed: bool
    settled: list[Settled]


def settle_jointly(parts: Sequence[Part]) -> Joint:
    """Charges all parts of a request in one moment, or none if one limit refuses; returns the answers.

    Charges nothing if it raises CostExceedsQuota or Reentry. Raises ValueError if a quota occurs in two parts: while
    the key of one part is looked up, the key of the other could be evicted before it is charged.
    """
    tables = [table for part in parts for table in part.limit.tables]
    if len(set(map(id, tables))) < len(tables):
        names = ", ".join(dict.fromkeys(table.name for table in tables))
        raise ValueError(f"one request names a quota of {names} twice; name each limit only once")
    groups = [groups_of(part.limit, part.costs) for part in parts]
    locks = list(dict.fromkeys(group.lock for each in groups for group in each))
    now_ns = parts[0].limit.tables[0].now_ns()
    return run_under(tables[0].kernel, locks, lambda: _settle(parts, groups, now_ns))


def run_under(kernel: KernelFields, locks: Sequence[Lock], work: Callable[[], T]) -> T:
    """Calls `work` with all `locks` of a kernel held, and returns its result. Raises Reentry if this thread holds one.

    Work that `work` puts off until no lock is held is done after the last lock is released.
    """
    order = list(locks)
    wanted = False

    def do() -> T:
        nonlocal wanted
        try:
            return work()
        finally:
            wanted = kernel.after_unlock
            kernel.after_unlock = False

    while True:
        reached = 0

        def take(place: int) -> T:
            nonlocal reached
            reached = place
            if place == len(order):
                return do()
            return order[place].run(take, place + 1)

        try:
            return take(0)
        except Reentry:
            # The thread waits for the first lock, unless it is in the middle of a decision already.
            if reached in (0, len(order)):
                raise
            order.insert(0, order.pop(reached))
        finally:
            if wanted:
                wanted = False
                kernel.after_unlock = True
                kernel.do_after_unlock()


def _settle(parts: Sequence[Part], groups: Sequence[Sequence[Together]], now_ns: int) -> Joint:
    weighed = [
        [group.weigh(part.key, part.costs, part.rule, now_ns) for group in each]
        for part, each in zip(parts, groups, strict=True)
    ]
    chosen = [next((option for option in options if option.fits), None) for options in weighed]
    allowed = all(option is not None for option in chosen)
    settled = [
        _refused(part, options, now_ns)
        if option is None
        else _charged(part, option, now_ns)
        if allowed
        else option.look(now_ns, counted=part.counted)
        for part, option, options in zip(parts, chosen, weighed, strict=True)
    ]
    return Joint(allowed, settled)


def _charged(part: Part, option: Weighed, now_ns: int) -> Settled:
    settled = option.charge(now_ns, counted=part.counted, units=part.units)
    borrowed = part.limit.is_share and option.tables[0] is part.limit.tables[-1]
    return settled._replace(decision=replace(settled.decision, borrowed=True)) if borrowed else settled


def _refused(part: Part, options: Sequence[Weighed], now_ns: int) -> Settled:
    """Counts a refusal at each of `options`, such as a share and its parent's pool.

    Returns the refusal with the shortest wait; it is certain only if all of them are.
    """
    answers = [option.refuse(now_ns, counted=part.counted).decision for option in options]
    certain = all(answer.certain for answer in answers)
    return Settled(replace(min(answers, key=lambda answer: answer.retry_after), certain=certain), ())
