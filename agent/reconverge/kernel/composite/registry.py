"""The registry of a node's limits that consist of several tables: with several quotas, or with a share of a parent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from reconverge.errors import InvalidLimit, InvalidSetting, LimitConflict
from reconverge.kernel.composite.all_of import AllQuotas
from reconverge.kernel.composite.decider import Decider
from reconverge.kernel.composite.shared import ShareLimit, what_is_left
from reconverge.kernel.table.table import Table
from reconverge.limit.limit import Limit
from reconverge.policies import Policy


class Declaring(Protocol):
    """The part of a node that `Composites` needs. `Kernel` implements it."""

    tables: dict[str, Table]

    def declare(self, name: str, limit: Limit, policy: Policy, /) -> Table:
        """Returns the table of the limit `name`, and makes it if there is none. Raises LimitConflict."""
        ...

    def table(self, name: str, limit: Limit, policy: Policy, /) -> Table:
        """Does the same as `declare`, where `name` may also be the name of one quota of a limit."""
        ...


class Composites:
    """The limits of a node that have several quotas or a share of a parent's quota."""

    def __init__(self, kernel: Declaring) -> None:
        self._kernel = kernel
        self._all_of: dict[str, AllQuotas] = {}
        self._begun: dict[str, dict[str, Limit]] = {}
        """The limits with several quotas whose tables are being made: by the limit's name, its quotas by name. If a
        signal handler or another thread declares the same limit meanwhile, it may use these tables."""
        self._shares: dict[str, ShareLimit] = {}

    def declare(
        self, name: str, quotas: Mapping[str, Limit], policy: Policy, *, parents: Sequence[Table] | None = None
    ) -> Decider:
        """Declares the limit `name` and returns it. `quotas` has a `Limit` for each quota, by the quota's name.

        If the limit has a share of a parent's quota, `parents` are the parent's tables; otherwise None.

        Raises InvalidLimit, InvalidSetting or LimitConflict.
        """
        _refuse_slots(quotas, parents)
        if parents is not None:
            parent = parents[0]
            if len(parents) > 1 or self._kernel.tables.get(parent.name) is not parent:
                problem = "must be a limit of this agent with one quota and no parent of its own; name such a limit"
                raise InvalidSetting("parent", parent.name, problem)
            if len(quotas) > 1:
                raise InvalidSetting(
                    "parent",
                    parent.name,
                    f"does not go with several quotas: {', '.join(quotas)}; give one quota, or leave parent out",
                )
            return self.share(name, quotas[name], policy, parent=parent)
        return (
            self.all_of(name, quotas, policy) if len(quotas) > 1 else self._kernel.declare(name, quotas[name], policy)
        )

    def all_of(self, name: str, limits: Mapping[str, Limit], policy: Policy) -> AllQuotas:
        """Returns the limit `name` with the quotas `limits` by name, and declares it if there is none.

        Raises LimitConflict.
        """
        if not self._stands_for(name, limits):
            try:
                self.refuse(name, "; ".join(map(str, limits.values())))
                self._refuse_tables((name, *limits), limits)
            except LimitConflict:
                if not self._stands_for(name, limits):  # nor has the same declaration come meanwhile
                    raise
        self._begun[name] = dict(limits)
        tables = [self._kernel.table(each, limit, policy) for each, limit in limits.items()]
        return self._all_of.get(name) or self._all_of.setdefault(name, AllQuotas(name, tables))

    def _stands_for(self, name: str, limits: Mapping[str, Limit]) -> bool:
        """Returns whether `name` is, or is just being, declared as a limit with exactly the quotas `limits`."""
        known = self._all_of.get(name)
        return limits == (self._begun.get(name) if known is None else {each.name: each.limit for each in known.tables})

    def share(self, name: str, limit: Limit, policy: Policy, *, parent: Table) -> ShareLimit:
        """Returns the limit `name`, whose quota `limit` is a share of the parent's quota; declares it if there is none.

        Raises InvalidLimit or LimitConflict.
        """
        known = self._shares.get(name)
        if known is None:
            self.refuse(name, limit)
            self._refuse_tables((name,), limit)
            if parent.cells or parent.admitted or parent.refused:
                raise InvalidLimit(
                    str(limit),
                    f"its parent {parent.name!r} has already decided requests; declare all shares before that",
                )
            parent.leave(what_is_left(parent.pool, limit))
        elif known.tables[1] is not parent:
            raise LimitConflict(name, f"a share of {known.tables[1].name!r}", f"a share of {parent.name!r}")
        table = self._kernel.table(name, limit, policy)
        return known or self._shares.setdefault(name, ShareLimit(table, parent))

    def refuse(self, name: str, requested: object) -> None:
        """Raises LimitConflict if the name belongs to a limit made of several tables."""
        if name in self._all_of:
            raise LimitConflict(name, "; ".join(str(table.limit) for table in self._all_of[name].tables), requested)
        if name in self._shares:
            share = self._shares[name]
            raise LimitConflict(name, f"{share.limit}, a share of {share.tables[1].name!r}", requested)

    def start_over(self) -> None:
        """Replaces the locks in a forked child, which has no thread to release a lock that was held."""
        for limit in self._all_of.values():
            limit.share_lock()

    def _refuse_tables(self, names: tuple[str, ...], requested: object) -> None:
        for name in names:
            if name in self._kernel.tables:
                raise LimitConflict(name, self._kernel.tables[name].limit, requested)


def _refuse_slots(quotas: Mapping[str, Limit], parents: Sequence[Table] | None) -> None:
    """Raises InvalidLimit if a limit on work in progress is combined with other quotas or with a parent."""
    slots = next((limit for limit in quotas.values() if limit.slots), None)
    if slots is not None and len(quotas) > 1:
        problem = "limits work in progress, not a rate; declare it as a limit of its own and take its slots separately"
        raise InvalidLimit(str(slots), problem)
    if parents is not None and (slots is not None or parents[0].limit.slots):
        limit = slots or parents[0].limit
        raise InvalidLimit(
            str(limit), "limits work in progress, which cannot be divided into shares; leave the parent out"
        )
