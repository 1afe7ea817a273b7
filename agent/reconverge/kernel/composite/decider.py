"""The interface of a whole limit for its callers, whether it has one table or several."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from reconverge.kernel.decision import Usage
from reconverge.kernel.engine import Decision
from reconverge.kernel.table.table import Charged, Table, Verdict
from reconverge.limit.limit import Limit
from reconverge.policies import Policy


class Decider(Protocol):
    """A limit that decides about requests, made of one or more tables.

    A limit with one quota is one table (`Table`). A limit with several quotas has a table for each, and all must admit
    (`AllQuotas`). A limit with a share of its parent's quota has two, of which either may admit (`ShareLimit`).

    All methods raise InvalidKey, InvalidCost, UnknownKind or CostExceedsQuota as `Limiter` does.
    """

    @property
    def name(self) -> str:
        """Returns the limit's name."""
        ...

    @property
    def tables(self) -> tuple[Table, ...]:
        """Returns all tables that take part in a decision, including a parent's pool."""
        ...

    @property
    def own_tables(self) -> tuple[Table, ...]:
        """Returns the tables that belong to this limit alone. A parent's pool belongs to the parent."""
        ...

    @property
    def is_share(self) -> bool:
        """Returns whether any one of the tables may admit a request; if False, all of them must."""
        ...

    @property
    def limit(self) -> Limit:
        """Returns the limit, or the first of its quotas if it has several."""
        ...

    @property
    def policy(self) -> Policy:
        """Returns the policy: how far past its allowance a node may go."""
        ...

    def allow(self, key: str, cost: int = 1, kind: str | None = None) -> bool:
        """Returns whether the limit admits `cost` for `key`; if so, charges it. Never waits."""
        ...

    def hit(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """Decides and charges as `allow` does; returns the decision with its grounds."""
        ...

    def settles(self, key: str, cost: int = 1, kind: str | None = None) -> bool:
        """Returns whether a quick check shows that this node can decide with certainty, without asking the hub."""
        ...

    def hit_and_mark(self, key: str, cost: int, kind: str | None = None) -> tuple[Decision, tuple[Charged, ...]]:
        """Decides and charges as `hit` does; also returns the charges, so that they can be corrected later."""
        ...

    def test(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """Returns the answer that `hit` would give, without charging anything."""
        ...

    def decide(self, key: str, cost: int, now_ns: int) -> Verdict | tuple[Verdict, ...]:
        """Decides and charges as `allow` does, at `now_ns`; returns verdicts, which tests and simulations check."""
        ...

    def usage(self, key: str) -> Usage:
        """Returns how much `key` has used, and this node's allowance."""
        ...

    def usages(self, key: str) -> dict[str, Usage]:
        """Returns how much `key` has used of each quota, by the quota's name."""
        ...

    def reset(self, key: str) -> None:
        """Forgets what `key` has used."""
        ...

    def refund(self, key: str, cost: int, kind: str | None = None, *, newest: bool = False) -> None:
        """Gives back what a request of `cost` and `kind` was charged for `key`, as far as it still counts.

        With `newest`, the request was charged just now.
        """
        ...

    def warm(self, keys: Iterable[str]) -> None:
        """Queues `keys` to be reported, so that the hub grants this node allowances on them before requests come."""
        ...

    def costs_of(self, cost: object, kind: str | None = None) -> tuple[int, ...]:
        """Returns what a request costs at each quota, in the unit of that quota: whole requests or fractions of one."""
        ...

    def able(self, costs: tuple[int, ...]) -> tuple[Table, ...]:
        """Returns the tables that could ever admit their cost in `costs`.

        Raises CostExceedsQuota if the limit never could.
        """
        ...

    def take_note(self) -> None:
        """Copies the limit and the policy of the tables, after one of them has changed."""
        ...

    def refuse_reentry(self) -> Decision:
        """Returns the refusal of a request that is made while its own thread is in the middle of another decision."""
        ...
