"""A limit with a guaranteed share of its parent's quota, which may also borrow from the parent's pool."""

# Theory of operation.
#
# The shares of all children are taken out of the parent's quota when they are declared; the remaining quota is a pool
# for limits that have used up their share, and for the parent's own requests. A request is charged to its share or to
# the pool: so shares and pool sum to the parent's quota at all times, and no limit can use up another's share.
#
# An idle share is not lent to others. Whether it is idle is known only when the window is over: until then its owner's
# requests may come, to any node, and must be admitted at once. In a simulation with eight nodes, a parent of 1000 and
# shares of 300 and 200, half of the shares was lent by making the pool larger. Then 125 % of the parent's quota was
# admitted when all were busy, and 105 % with one share idle: the pool does not know whose share it lends. If exactly
# the idle part were lent, the merge rule would have to know which keys belong together, and an owner would have to wait
# until lent use has faded.

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from reconverge.errors import CostExceedsQuota, InvalidLimit
from reconverge.kernel.decision import Usage
from reconverge.kernel.engine import Decision
from reconverge.kernel.table.table import Charged, Table, Verdict
from reconverge.limit.limit import FIRST_HIT, PACED, Limit


class ShareLimit:
    """A limit that has a share of a parent's quota: the share decides first, and if it refuses, the parent's pool.

    Implements `Decider`.
    """

    is_share = True

    def __init__(self, share: Table, pool: Table) -> None:
        self.name = share.name
        self.tables = (share, pool)
        self.limit = share.limit
        self.policy = share.policy
        self._share = share
        self._pool = pool

    def allow(self, key: str, cost: int = 1, kind: str | None = None) -> bool:
        """Returns whether the share has room for the request, or else the pool; if so, charges it there."""
        cost = self._share.cost_of(cost, kind)
        return any(table.allow(key, cost) for table in self.able((cost,)))

    def hit(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """Decides and charges as `allow` does; returns the decision with its grounds.

        If both the share and the pool refuse, returns the refusal with the shorter wait.
        """
        cost = self._share.cost_of(cost, kind)
        return self._first(table.hit(key, cost) for table in self.able((cost,)))

    def settles(self, key: str, cost: int = 1, kind: str | None = None) -> bool:  # noqa: ARG002  # see below
        """Returns False: the pool may admit a request that the share refuses, so only a full check can tell."""
        return False

    def hit_and_mark(self, key: str, cost: int, kind: str | None = None) -> tuple[Decision, tuple[Charged, ...]]:
        """Decides and charges as `hit` does; also returns the charges, so that they can be corrected later.

        If the pool has admitted the request, the charge is one to the pool, and so is a later correction.
        """
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
        cost = self._share.cost_of(cost, kind)
        return self._first(table.test(key, cost) for table in self.able((cost,)))

    def usage(self, key: str) -> Usage:
        """Returns how much `key` has used of its share."""
        return self._share.usage(key)

    def usages(self, key: str) -> dict[str, Usage]:
        """Returns how much `key` has used of the share and of the parent's pool, by the names of both tables."""
        return {table.name: table.usage(key) for table in self.tables}

    def reset(self, key: str) -> None:
        """Forgets what `key` has used of its share.

        Its use of the pool stays, because the pool belongs to the parent.
        """
        self._share.reset(key)

    def refund(self, key: str, cost: int, kind: str | None = None, *, newest: bool = False) -> None:
        """Gives a cost back to the share, even if the pool has admitted the request.

        The pool belongs to the parent, and gets cost back only when a reservation is settled.
        """
        self._share.refund(key, cost, kind, newest=newest)

    def warm(self, keys: Iterable[str]) -> None:
        """Queues `keys` to be reported, for the share and the pool, so that the hub grants allowances on them."""
        keys = list(keys)
        for table in self.tables:
            table.warm(keys)

    def refuse_reentry(self) -> Decision:
        return self._share.refuse_reentry()

    def decide(self, key: str, cost: int, now_ns: int) -> tuple[Verdict, ...]:
        """Decides and charges as `allow` does, at `now_ns`.

        Returns the verdict of the share, and if the share has refused, also the verdict of the pool.
        """
        verdicts: list[Verdict] = []
        for table in self.tables:
            verdicts.append(table.decide(key, cost, now_ns))
            if verdicts[-1].allowed:
                break
        return tuple(verdicts)

    def costs_of(self, cost: object, kind: str | None = None) -> tuple[int, ...]:
        """Returns the cost of a request in a tuple of one: it is the same for the share and for the pool.

        Raises InvalidCost or UnknownKind.
        """
        return self._share.costs_of(cost, kind)

    @property
    def own_tables(self) -> tuple[Table, ...]:
        """Returns the table of the share. The pool's table belongs to the parent."""
        return (self._share,)

    def take_note(self) -> None:
        """Copies the policy from the share's table, after it has changed. The quota of a share never changes."""
        self.policy = self._share.policy

    def able(self, costs: tuple[int, ...]) -> tuple[Table, ...]:
        """Returns the tables that could ever admit the cost: that of the share, that of the pool, or both.

        Raises CostExceedsQuota if neither could.
        """
        (cost,) = costs
        able = tuple(table for table in self.tables if cost <= table.capacity)
        if not able:
            raise CostExceedsQuota(self.name, cost, max(table.capacity for table in self.tables))
        return able

    def _first(self, answers: Iterator[Decision]) -> Decision:
        """Returns the first answer that admits the request; if none does, the refusal with the shortest wait."""
        refusals = []
        for answer in answers:
            if answer.allowed:
                return replace(answer, borrowed=True) if answer.binding == self._pool.name else answer
            refusals.append(answer)
        found = min(refusals, key=lambda refusal: refusal.retry_after)
        return replace(found, certain=all(refusal.certain for refusal in refusals))


def what_is_left(pool: Limit, share: Limit) -> Limit:
    """Returns the limit of a parent's pool after one more share is taken out of it: `pool` less `share`.

    All shares and the pool add up to the parent's limit, because all count in the same windows, or in buckets whose
    rates and bursts add up. Raises InvalidLimit if the share cannot be taken out.
    """
    text = str(share)
    if pool.soft or share.soft:
        raise InvalidLimit(
            text,
            "soft cannot be combined with a parent, as use beyond the share is borrowed from the parent; leave it out",
        )
    if share.align == FIRST_HIT or share.algorithm in PACED or share.initial is not None or pool.initial is not None:
        raise InvalidLimit(
            text,
            f"a share cannot have align={FIRST_HIT!r}, initial, {' or '.join(PACED)}: with these, shares would not "
            "sum to the parent's quota; leave it out",
        )
    if share.count_refused:
        raise InvalidLimit(
            text, "count_refused cannot be combined with a parent, as what a share refuses is borrowed; leave it out"
        )
    if _counted(pool) != _counted(share):
        raise InvalidLimit(text, f"a share needs the window and the algorithm of its parent, {pool}; give it these")
    quota, nominal = pool.quota - share.quota, pool.nominal - share.nominal
    if quota < 1 or nominal < 1:
        raise InvalidLimit(
            text,
            f"the shares of a parent must leave a part of its quota for all to borrow, and {pool} is all that is left; "
            "give this share less",
        )
    return replace(pool, quota=quota, burst=None if nominal == quota else nominal)


def _counted(limit: Limit) -> Limit:
    """Returns `limit` with only the settings that decide how it counts, such as window and algorithm, not its quota."""
    return replace(limit, quota=1, burst=None, name=None, max_debt=None, costs=None)
