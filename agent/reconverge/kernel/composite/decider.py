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
    """Decides about a whole limit, and answers questions about it.

    A limit with one quota is one table (`Table`), one with several is all of several tables (`AllQuotas`), and one with
    a share of its parent's quota is either of two (`ShareLimit`).

    All methods raise InvalidKey, InvalidCost, UnknownKind or CostExceedsQuota as `Limiter` does.
    """

    @property
    def name(self) -> str:
        """The limit's name."""
        ...

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables that take part in a decision."""
        ...

    @property
    def own_tables(self) -> tuple[Table, ...]:
        """Those of them that are the limit's own; what a parent has left for all is the parent's affair."""
        ...

    @property
    def is_share(self) -> bool:
        """Whether any one of the tables may admit a request; else all of them must."""
        ...

    @property
    def limit(self) -> Limit:
        """The limit, or the first of its quotas."""
        ...

    @property
    def policy(self) -> Policy:
        """How far past its allowance a node may go."""
        ...

    def allow(self, key: str, cost: int = 1, kind: str | None = None) -> bool:
        """Whether `cost` may be used by `key`; if so it is charged. Never waits."""
        ...

    def hit(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """Decides as `allow`, with the grounds."""
        ...

    def settles(self, key: str, cost: int = 1, kind: str | None = None) -> bool:
        """Whether memory settles a request for certain; False, too, if that takes a closer look."""
        ...

    def hit_and_mark(self, key: str, cost: int, kind: str | None = None) -> tuple[Decision, tuple[Charged, ...]]:
        """Decides as `hit`, for a charge that will be corrected later."""
        ...

    def test(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """Returns the answer that `hit` would give, without charging anything."""
        ...

    def decide(self, key: str, cost: int, now_ns: int) -> Verdict | tuple[Verdict, ...]:
        """Decides as `allow` at a given moment, with the facts by which an observer checks the answer."""
        ...

    def usage(self, key: str) -> Usage:
        """How much `key` has used, and how far this node may go."""
        ...

    def usages(self, key: str) -> dict[str, Usage]:
        """The same, by the name of the quota."""
        ...

    def reset(self, key: str) -> None:
        """Forget what `key` has used."""
        ...

    def refund(self, key: str, cost: int, kind: str | None = None) -> None:
        """Give a charge back, as far as it still counts."""
        ...

    def warm(self, keys: Iterable[str]) -> None:
        """Asks the hub about `keys`."""
        ...

    def costs_of(self, cost: object, kind: str | None = None) -> tuple[int, ...]:
        """Returns the cost of a request by each quota, in the parts of one in which that counts."""
        ...

    def able(self, costs: tuple[int, ...]) -> tuple[Table, ...]:
        """Which of the tables could ever admit those costs. Raises CostExceedsQuota if the limit could not."""
        ...

    def take_note(self) -> None:
        """The quotas or the policy have changed."""
        ...

    def refuse_reentry(self) -> Decision:
        """The answer to what asks for admission on a thread that is in the middle of a decision."""
        ...
