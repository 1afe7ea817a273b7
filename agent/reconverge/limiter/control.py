"""The internal methods of a limit, for the agent, guards and consoles: its counts, its bans, its settings in force."""

# Applications use `Limiter` and its two subclasses. The methods that only other parts of reconverge call are here, so
# that the public classes stay small. They may change in any release.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast
from weakref import WeakKeyDictionary, WeakSet

from reconverge.errors import InvalidLimit
from reconverge.limit.quotas import quotas_of
from reconverge.limiter.enforcement.banning import OnWithBans
from reconverge.limiter.enforcement.modes import Enforcement
from reconverge.limiter.enforcement.switches import ON, Switch, checked_switch, layered_switch
from reconverge.limiter.pauses import Pauses
from reconverge.published.caps import (
    Quotas,
    caps_as_said,
    layered_overshoot,
    layered_quotas,
    with_max_overshoot,
)
from reconverge.published.layered import Layered
from reconverge.published.settings import LimitOverride

if TYPE_CHECKING:
    from reconverge.clock import Clock
    from reconverge.decision import Decision
    from reconverge.kernel import Decider, Kernel, Table
    from reconverge.limit.limit import Limit
    from reconverge.limiter.enforcement.bans import Bans
    from reconverge.policies import Policy


_of_table: Final = WeakKeyDictionary["Table", WeakSet["LimitControl"]]()
"""For the first table of each limit, all limits of this process that count by that table. There are several if several
agents use the same `memory://NAME`."""


class LimitControl:
    """The internal side of one limit: its counts, and its quotas, policy and switch, as declared and as published."""

    def __init__(self, table: Decider, bans: Bans | None = None) -> None:
        self._table = table
        self.bans = bans
        """The banned keys of a limit with `block_for`; None for a limit without `block_for`."""
        self.key_bytes_max = table.tables[0].kernel.key_bytes_max
        """The length of the longest key, in bytes of UTF-8; a longer one raises InvalidKey."""
        self.borrows = table.is_share
        """Whether the limit may use its parent's unused quota, the pool. A cost borrowed from the pool goes back only
        when a reservation is settled."""
        self.enforcement = Enforcement(table, None if bans is None else OnWithBans(table, bans))
        """The mode in force (on, shadow or off), and the number of requests that only shadow or off admitted."""
        self._pauses: Pauses | None = None
        self.on_turn: Callable[[], None] | None = None
        """A function that is called after each switch of the mode; None if there is none."""
        self._limits_switch = Layered[Switch](ON)
        self._agents_switch = Layered[Switch](ON)
        self._override = LimitOverride()
        self._quotas: Layered[Quotas] | None = None
        """The node's own and the published quotas. None if none are published: then the tables contain the node's
        own."""
        self._policy: Layered[Policy] | None = None
        """The node's own and the published policy. None if none is published: then the tables contain the node's
        own."""
        self._caps: Quotas | None = None
        self._tier_of: tuple[str, ...] = ()
        self._sharers = _of_table.setdefault(table.tables[0], WeakSet())
        self._sharers.add(self)

    def start_over(self) -> None:
        """Deletes counts, waiting requests and bans, which belong to the parent process. Called in a forked child."""
        self.enforcement.start_over()
        if self.bans is not None:
            self.bans.start_over()

    @property
    def name(self) -> str:
        return self._table.name

    @property
    def addresses(self) -> tuple[str, ...]:
        """Returns the names by which published settings address this limit, the narrowest first.

        For most limits that is the limit's name. The limit of one plan of contracts is also addressed by the name that
        all plans share.
        """
        return self._tier_of or (self.name,)

    @property
    def is_tier(self) -> bool:
        """Whether this is the limit of one plan (tier) of contracts. The limits of all plans share a name."""
        return bool(self._tier_of)

    @property
    def clock(self) -> Clock:
        return self._table.tables[0].kernel.clock

    @property
    def table(self) -> Table:
        """Returns the kernel's table of counts for the limit's first quota."""
        return self._table.tables[0]

    @property
    def tables(self) -> tuple[Table, ...]:
        """Returns the tables of counts of all the limit's quotas. For a share, its parent's table is one of them."""
        return self._table.tables

    @property
    def all_tables(self) -> tuple[Table, ...]:
        """Returns the tables that count this limit's own quotas, bans and pauses; not the table of a parent."""
        bans = () if self.bans is None else self.bans.tables
        return (*self.enforcement.tables, *bans, *(() if self._pauses is None else (self._pauses.table,)))

    @property
    def pauses(self) -> Pauses:
        """Returns the keys with which no calls are made for a time, as servers have demanded. Made at the first use.

        Raises LimitConflict if another limit is called `name/pause`.
        """
        if self._pauses is None:
            self._pauses = Pauses(self.name, cast("Kernel", self._table.tables[0].kernel))
        return self._pauses

    def quotas_in(self, decision: Decision) -> dict[str, Limit]:
        """Returns the quotas that can have made `decision`, by name: those in force, and the ban if a ban refused."""
        bans = self.bans
        if bans is None or decision.binding != bans.table.name:
            return self.quotas
        return {**self.quotas, bans.table.name: bans.table.limit}

    @property
    def quotas(self) -> dict[str, Limit]:
        """Returns the quotas in force, by the names that the hub and `agent.stats()` use."""
        return {table.name: table.limit for table in self._table.tables}

    @property
    def own_limits(self) -> tuple[Limit, ...]:
        """Returns the quotas in force of this limit, without its parent's quota."""
        return tuple(table.limit for table in self._table.own_tables)

    @property
    def has_costs(self) -> bool:
        """Whether any quota declares a cost for each kind of request."""
        for table in self._table.own_tables:  # noqa: SIM110  # per request; faster than a generator
            if table.limit.costs is not None:
                return True
        return False

    @property
    def policy(self) -> Policy:
        """Returns the policy in force, which decides how far beyond its allowance this node may go."""
        return self.enforcement.tables[0].policy

    @property
    def own_policy(self) -> Policy:
        """Returns the policy that the node has declared, even while a published one is in force."""
        layered = self._policy
        return self.policy if layered is None else layered.own

    @property
    def switched(self) -> Switch:
        return self.enforcement.state

    @property
    def own_switch(self) -> Switch:
        """Returns the limit's switch as this process declared or set it, even while a published one is in force."""
        return self._limits_switch.own

    def switch(self, to: Switch) -> None:
        self._limits_switch.own = checked_switch(to)
        self._apply_switch()

    def set_agent_switch(self, agents: Switch) -> None:
        """Stores the agent's switch for this limit. Of limit and agent, the switch that refuses less is in force."""
        self._agents_switch.own = agents
        self._apply_switch()

    def _apply_switch(self) -> bool:
        """Sets the mode to the switch in force. Returns True if the limit's cap has overruled a published switch."""
        with self.enforcement.turning:
            switch = layered_switch(self._limits_switch, self._agents_switch, has_cap=self.has_cap)
            if switch.in_force != self.enforcement.state:
                self._turn(switch.in_force)
            return switch.capped

    def _turn(self, state: Switch) -> None:
        if self.bans is not None:
            self.bans.in_force = False
        self.enforcement.turn(state)
        if self.on_turn is not None:
            self.on_turn()
        if self.bans is not None:  # last: requests under way belong to the former mode
            self.bans.in_force = state == ON

    @property
    def own_quotas(self) -> dict[str, Limit]:
        """Returns the quotas that the node has declared, even while published ones are in force."""
        layered = self._quotas
        return {table.name: table.limit for table in self.enforcement.tables} if layered is None else layered.own

    def declared_again(self, quotas: Quotas, policy: Policy) -> tuple[Quotas, Policy]:
        """Returns the quotas and the policy to be in force after the limit was declared again with these.

        If the second declaration repeats the node's own value, a published value stays in force.
        """
        if quotas == self.own_quotas:
            in_force = self.quotas
            quotas = {name: in_force[name] for name in quotas}
        return quotas, self.policy if policy == self.own_policy else policy

    def cap(self, limit: str) -> None:
        """Sets a cap: published settings may raise the limit up to the cap, but cannot switch it off.

        Without a cap, published settings can lower the limit and switch it off, but not raise it.

        Raises InvalidSetting if the cap does not fit the limit, or is lower than the limit.
        """
        self._caps = caps_as_said(self.name, self.own_quotas, limit)

    @property
    def has_cap(self) -> bool:
        return self._caps is not None

    def be_tier_of(self, *names: str, has_cap: bool) -> None:
        """Makes this the limit of one plan (tier) of contracts. Published settings can name it by any of `names`.

        With `has_cap`, published settings can neither raise it nor switch it off.
        """
        self._tier_of = tuple(dict.fromkeys(names))
        self._caps = self.own_quotas if has_cap else None

    def apply_override(self, override: LimitOverride, fleet_switch: Switch | None = None) -> tuple[bool, str]:
        """Applies published settings: `override` for this limit, and `fleet_switch` for all limits.

        Settings that are not published stay as this node has declared them. Returns two values: whether a cap has
        replaced a published value, and why a setting cannot be applied, or "".
        """
        with self.enforcement.turning:
            self._override = override
            self._limits_switch.published, self._agents_switch.published = override.switch, fleet_switch
            capped, problem = self._apply_quotas()
            return any([capped, self._apply_policy(), self._apply_switch()]), problem

    def _apply_quotas(self) -> tuple[bool, str]:
        """Makes the tables count by the quotas in force.

        Returns whether a cap replaced a published quota, and the problem with the published quotas, or "".
        """
        layered, problem = self._layered_quotas()
        self._quotas = layered  # first: from here on the tables may hold other quotas than the node's own
        quotas = layered.in_force
        refuses_all = any(limit.refuses_all for limit in quotas.values())
        if refuses_all:
            self._close(refuses_all=True)
        for each in self.enforcement.tables:
            if each.limit != quotas[each.name] and each.why_not(quotas[each.name]) is None:
                each.change(quotas[each.name])
        self._table.take_note()
        if not refuses_all:
            self._close(refuses_all=False)
        if not layered.overridden:
            self._quotas = None
        return layered.capped, problem

    def _close(self, *, refuses_all: bool) -> None:
        """Makes the limit refuse every request if `refuses_all` (a quota is 0), else decide normally again."""
        if self.enforcement.refuses_all != refuses_all:
            self.enforcement.refuses_all = refuses_all
            self._turn(self.enforcement.state)

    def _layered_quotas(self) -> tuple[Layered[Quotas], str]:
        """Returns the node's own and the published quotas, and the problem with the published quotas, or "".

        Published quotas that have a problem are left out.
        """
        own = self.own_quotas
        try:
            layered = layered_quotas(self.name, own, self._override.limit, self._caps)
        except InvalidLimit as error:
            return Layered(own), error.problem
        problem = "" if layered.published is None else self._why_not(layered.in_force)
        return Layered(own) if problem else layered, problem

    def _apply_policy(self) -> bool:
        """Applies the policy in force. Returns whether a published overshoot was too high, and thus ignored."""
        own = self.own_policy
        overshoot = layered_overshoot(own, self._override.max_overshoot)
        layered = Layered(own, with_max_overshoot(own, overshoot.in_force))
        self._policy = layered  # first, as for quotas
        for each in self.enforcement.tables:
            if each.policy != layered.in_force:
                each.set_policy(layered.in_force)
        self._table.take_note()
        if not layered.overridden:
            self._policy = None
        return overshoot.capped

    def _why_not(self, quotas: Mapping[str, Limit]) -> str:
        """Returns the reason why `quotas` cannot replace the declared quotas of the same names; "" if they can."""
        tables = self.enforcement.tables
        if self._table.is_share and any(each.limit != quotas[each.name] for each in tables):
            return f"{self.name!r} is a share, which cannot change while it is in use; restart the process"
        problems = ((each.name, each.why_not(quotas[each.name])) for each in tables)
        return next((f"{name!r} {problem}" for name, problem in problems if problem is not None), "")

    @property
    def own_algorithm(self) -> str | None:
        """Returns the algorithm of all declared quotas; None if they differ."""
        algorithms = {limit.algorithm for limit in self.own_quotas.values()}
        return algorithms.pop() if len(algorithms) == 1 else None

    def plan_change(
        self,
        limit: str | Limit | Sequence[str | Limit],
        *,
        algorithm: str | None = None,
        soft: float | str | None = None,
        max_debt: int | None = None,
        costs: Mapping[str, int] | None = None,
    ) -> Callable[[], None]:
        """Checks a change of the limit, as `RateLimiter.change`. Returns a function that makes it and cannot fail."""
        quotas = quotas_of(self.name, limit, algorithm=algorithm, soft=soft, max_debt=max_debt, costs=costs)
        own = self.own_quotas
        if quotas != own and self._table.is_share:
            raise InvalidLimit(
                str(limit), f"{self.name!r} is a share, which cannot change while it is in use; restart the process"
            )
        if list(quotas) != list(own):
            known = ", ".join(own)
            raise InvalidLimit(str(limit), f"{self.name!r} must keep its quotas, in this order: {known}")
        for each in self.enforcement.tables:
            problem = each.why_not(quotas[each.name])
            if problem is not None:
                raise InvalidLimit(
                    str(quotas[each.name]), f"{each.name!r} {problem}; restart, or declare another limit"
                )

        refuses_all = any(limit.refuses_all for limit in quotas.values())

        def change() -> None:
            if refuses_all:
                self._close_others(refuses_all=True)
            with self.enforcement.turning:
                self._quotas = Layered(quotas)
                self._apply_quotas()
            if not refuses_all:
                self._close_others(refuses_all=False)

        return change

    def _close_others(self, *, refuses_all: bool) -> None:
        """Calls `_close` for other agents' limits with the same tables of counts, as their quota has changed, too."""
        for each in list(self._sharers):
            if each is not self:
                with each.enforcement.turning:
                    each._close(refuses_all=refuses_all)  # noqa: SLF001  # of the same class

    def take_over(self, key: str) -> None:
        """Moves `key` with its use into this limit, from the limit of the plan that had the key before."""
        for table in self._table.tables:
            table.take_over(key)

    def has_counted(self, key: str) -> bool:
        """Returns whether this process has counted `key`; also True if it has counted no key at all."""
        tables = self._table.tables
        return not any(len(table.cells) for table in tables) or any(table.cells.get(key) for table in tables)

    @property
    def has_decided(self) -> bool:
        """Returns whether this process has admitted or refused any request."""
        return any(table.admitted or table.refused for table in self._table.tables)

    def reset(self, key: str) -> None:
        """Deletes the use of `key` on all nodes, and ends its ban, as `RateLimiter.reset`."""
        self._table.reset(key)
        if self.bans is not None:
            self.bans.lift(key)
        self.tell(key)

    def reset_all(self) -> None:
        """Resets all keys that this process has counted."""
        for key in {key for table in self.all_tables for key in list(table.cells)}:
            self.reset(key)

    def keys_beside(self) -> list[str]:
        """Returns the keys that this node counts in this limit, or in the limits of other plans with the same name."""
        return [key for each in self._table.tables[0].tiers for key in list(each.cells)]

    def take_back(self, key: str, cost: int, kind: str | None) -> None:
        """Gives back a cost that was charged just now, as `RateLimiter.refund` gives back one of any time."""
        self._table.refund(key, cost, kind, newest=True)
        self.tell(key)

    def tell(self, key: str) -> None:
        """Wakes the requests that wait for the key, because there may be room now."""
        for table in self._table.tables:
            table.tell(key)
