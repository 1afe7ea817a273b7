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
        """Returns all tables that take part in a decision."""
        ...

    @property
    def own_tables(self) -> tuple[Table, ...]:
        """Returns the tables that belong to this limit alone. A parent's pool belongs to the parent."""
        ...

    @property
    def is_share(self) -> bool:
        """Returns whether any one of the tables may admit a request. Otherwise all of them must."""
        ...

    @property
    def limit(self) -> Limit:
        """Returns the limit, or the first of its quotas."""
        ...

    @property
    def policy(self) -> Policy:
        """Returns the policy: how far past its allowance a node may go."""
        ...

    def allow(self, key: str, cost: int = 1, kind: str | None = None) -> bool:
        """Returns whether the limit admits `cost` for `key`; if so, charges it. Never waits."""
        ...

    def hit(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """Decides as `allow`; returns the decision with its grounds."""
        ...

    def settles(self, key: str, cost: int = 1, kind: str | None = None) -> bool:
        """Returns whether this node can decide with certainty by a quick check; False also if a full one is needed."""
        ...

    def hit_and_mark(self, key: str, cost: int, kind: str | None = None) -> tuple[Decision, tuple[Charged, ...]]:
        """Decides as `hit`; also returns where the cost was charged, so that it can be corrected later."""
        ...

    def test(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """Returns the answer that `hit` would give, without charging anything."""
        ...

    def decide(self, key: str, cost: int, now_ns: int) -> Verdict | tuple[Verdict, ...]:
        """Decides as `allow` at a given moment; returns verdicts, by which tests and simulations check the answer."""
        ...

    def usage(self, key: str) -> Usage:
        """Returns how much `key` has used, and this node's allowance."""
        ...

    def usages(self, key: str) -> dict[str, Usage]:
        """Returns the usage of `key` by the name of the quota."""
        ...

    def reset(self, key: str) -> None:
        """Forgets what `key` has used."""
        ...

    def refund(self, key: str, cost: int, kind: str | None = None) -> None:
        """Gives a charge back, as far as it still counts."""
        ...

    def warm(self, keys: Iterable[str]) -> None:
        """Asks the hub about `keys`, and for an allowance on each."""
        ...

    def costs_of(self, cost: object, kind: str | None = None) -> tuple[int, ...]:
        """Returns the cost of a request for each quota, in the unit of that quota: whole requests, or parts of one."""
        ...

    def able(self, costs: tuple[int, ...]) -> tuple[Table, ...]:
        """Returns the tables that could ever admit those costs. Raises CostExceedsQuota if the limit never could."""
        ...

    def take_note(self) -> None:
        """Takes over the quotas and the policy of the tables, after one of them has changed."""
        ...

    def refuse_reentry(self) -> Decision:
        """Returns the refusal of a request that is made on a thread in the middle of a decision."""
        ...
