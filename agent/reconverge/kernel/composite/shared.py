"""A limit with a guaranteed share of its parent's quota, which may also borrow from the parent's pool."""

# Theory of operation.
#
# The shares of all children are taken out of the parent's quota when they are declared, and what remains of it is a
# pool for limits that have used up their share, and for the parent's own requests. A request is charged to one of the
# two: so shares and pool sum to the parent's quota at all times, and no share can be used up by another limit.
#
# An idle share is not lent. Whether it is idle is known only when the window is over: until then its owner may come, on
# any node, and must be admitted at once. Simulated with eight nodes, a parent of 1000 and shares of 300 and 200,
# lending half of the shares by making the rest larger admitted 125 % of the parent's quota when all were busy, and 105
# % with one share idle: what is lent does not know whose share it is. Lending exactly what is idle would tie the cells
# of parent and shares together in the merge rule, and make a guarantee wait for what was lent to fade.

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from reconverge.errors import CostExceedsQuota, InvalidLimit
from reconverge.kernel.decision import Usage
from reconverge.kernel.engine import Decision
from reconverge.kernel.table.table import Charged, Table, Verdict
from reconverge.limit.limit import FIRST_HIT, PACED, Limit


class ShareLimit:
    """Decides by a share and its parent; a `composite.decider.Decider`."""

    is_share = True

    def __init__(self, share: Table, pool: Table) -> None:
        self.name = share.name
        self.tables = (share, pool)
        self.limit = share.limit
        self.policy = share.policy
        self._share = share
        self._pool = pool

    def allow(self, key: str, cost: int = 1, kind: str | None = None) -> bool:
        """Allows a request out of the share or else out of the pool."""
        cost = self._share.cost_of(cost, kind)
        return any(table.allow(key, cost) for table in self.able((cost,)))

    def hit(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """Decides; a refusal names the one of the two that may admit the request first."""
        cost = self._share.cost_of(cost, kind)
        return self._first(table.hit(key, cost) for table in self.able((cost,)))

    def settles(self, key: str, cost: int = 1, kind: str | None = None) -> bool:  # noqa: ARG002  # as said
        """Returns False: the pool may admit a request that the share refuses, so that takes a closer look."""
        return False

    def hit_and_mark(self, key: str, cost: int, kind: str | None = None) -> tuple[Decision, tuple[Charged, ...]]:
        """Decides; a borrowed charge goes back to the pool."""
        unit = self._share.cost_of(1, kind)
        cost = self._share.cost_of(cost, kind)
        charges: tuple[Charged, ...] = ()
        answers = []
        for table in self.able((cost,)):
            decision, made = table.hit_and_mark(key, cost)
            answers.append(decision)
            charges = tuple(charge._replace(unit=unit) for charge in made)
            if decision.allowed:
                break
        return self._first(iter(answers)), charges

    def test(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """Returns the answer that `hit` would give, without charging anything."""
        cost = self._share.cost_of(cost, kind)
        return self._first(table.test(key, cost) for table in self.able((cost,)))

    def usage(self, key: str) -> Usage:
        """How much of its share `key` has used."""
        return self._share.usage(key)

    def usages(self, key: str) -> dict[str, Usage]:
        """How much has been used of the share, and of what the parent has left for all."""
        return {table.name: table.usage(key) for table in self.tables}

    def reset(self, key: str) -> None:
        """Forget what `key` has used of its share; the pool is the parent's."""
        self._share.reset(key)

    def refund(self, key: str, cost: int, kind: str | None = None) -> None:
        """Give back to the share; borrowed cost goes back by settling."""
        self._share.refund(key, cost, kind)

    def warm(self, keys: Iterable[str]) -> None:
        """Asks the hub about `keys`, for the share and the pool."""
        keys = list(keys)
        for table in self.tables:
            table.warm(keys)

    def refuse_reentry(self) -> Decision:
        return self._share.refuse_reentry()

    def decide(self, key: str, cost: int, now_ns: int) -> tuple[Verdict, ...]:
        """Decides, with the verdict of the share, and if that refused, that of the pool."""
        verdicts: list[Verdict] = []
        for table in self.tables:
            verdicts.append(table.decide(key, cost, now_ns))
            if verdicts[-1].allowed:
                break
        return tuple(verdicts)

    def costs_of(self, cost: object, kind: str | None = None) -> tuple[int, ...]:
        """Returns the cost out of the share or out of the pool. Raises InvalidCost or UnknownKind."""
        return self._share.costs_of(cost, kind)

    @property
    def own_tables(self) -> tuple[Table, ...]:
        """The share; the pool is the parent's."""
        return (self._share,)

    def take_note(self) -> None:
        """A share does not change while it is in use; what it dares does."""
        self.policy = self._share.policy

    def able(self, costs: tuple[int, ...]) -> tuple[Table, ...]:
        """Which of share and pool could ever admit a cost. Raises CostExceedsQuota."""
        (cost,) = costs
        able = tuple(table for table in self.tables if cost <= table.capacity)
        if not able:
            raise CostExceedsQuota(self.name, cost, max(table.capacity for table in self.tables))
        return able

    def _first(self, answers: Iterator[Decision]) -> Decision:
        """The first that admits, or else whichever may be the first to do so."""
        refusals = []
        for answer in answers:
            if answer.allowed:
                return replace(answer, borrowed=True) if answer.binding == self._pool.name else answer
            refusals.append(answer)
        found = min(refusals, key=lambda refusal: refusal.retry_after)
        return replace(found, certain=all(refusal.certain for refusal in refusals))


def what_is_left(pool: Limit, share: Limit) -> Limit:
    """Subtracts a share from its parent's limit, or from the rest that other shares leave. Raises InvalidLimit.

    Shares add up with the rest to the whole, because both are counted alike: in the same windows, or, for buckets,
    filled and drained at rates and bursts that add up.
    """
    text = str(share)
    if pool.soft or share.soft:
        raise InvalidLimit(text, "soft does not go with a parent: what is beyond the share is borrowed")
    if share.align == FIRST_HIT or share.algorithm in PACED or share.initial is not None or pool.initial is not None:
        raise InvalidLimit(
            text,
            f"a share goes with none of align={FIRST_HIT!r}, initial, {', '.join(PACED)}: with these, shares would not "
            "sum to the parent's quota; leave it out",
        )
    if share.count_refused:
        raise InvalidLimit(text, "count_refused does not go with a parent: what a share refuses is borrowed")
    if _counted(pool) != _counted(share):
        raise InvalidLimit(text, f"a share needs the window and the algorithm of its parent, {pool}")
    quota, nominal = pool.quota - share.quota, pool.nominal - share.nominal
    if quota < 1 or nominal < 1:
        raise InvalidLimit(
            text,
            f"the shares of a parent must leave a part of its quota for all to borrow, and {pool} is all that is left; "
            "give this share less",
        )
    return replace(pool, quota=quota, burst=None if nominal == quota else nominal)


def _counted(limit: Limit) -> Limit:
    """Returns the part of a limit's declaration that a share and its parent must have in common."""
    return replace(limit, quota=1, burst=None, name=None, max_debt=None, costs=None)
