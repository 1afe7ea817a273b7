"""One limit, ready to be asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from reconverge.clock import Seconds, in_seconds
from reconverge.errors import InvalidKey, InvalidLimit, InvalidSetting, shown
from reconverge.kernel import for_any_node
from reconverge.limit.quotas import quotas_of
from reconverge.limiter.asking import WITHIN_S, checked_within_ns
from reconverge.limiter.banning import OnWithBans
from reconverge.limiter.modes import Enforcement
from reconverge.limiter.reservation import KEEP, OnAbandon, Reservation, check_on_abandon
from reconverge.limiter.slots import FIFO, OnLeaseEnd, Order, Slot, SlotDoor, SlotTerms, needs_slot
from reconverge.limiter.switches import ON, Switch, checked_switch, layered_switch
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
    from reconverge.decision import Decision, Usage
    from reconverge.kernel import Decider, Many, Table
    from reconverge.limit.limit import Limit
    from reconverge.limiter.bans import Bans
    from reconverge.policies import Policy


LEAKS: Final = (
    "allow",
    "allow_many",
    "hit",
    "ask",
    "ask_blocking",
    "reserve",
    "reserve_ask",
    "reserve_ask_blocking",
    "wait",
    "wait_blocking",
    "refund",
    "reset",
)
"""The methods that charge, or give back, with no slot that stands for it."""
PLAIN: Final = (1, None, None, None, FIFO, WITHIN_S, None)
"""What `slot` is told if nothing is said beside the key."""


class Limiter:
    """Decides about one limit from this process's memory. Nothing fails for a healthy call.

    Only `wait` and `wait_blocking` wait, and `ask` and its kin in doubt, and not for any input or output. All methods
    raise InvalidKey for a key that is not a usable string, InvalidCost for a cost that is not a whole number of zero or
    more, and CostExceedsQuota for one that could never be admitted. A cost of 0 asks whether the key is free to go on,
    and charges nothing. With a `kind`, `cost` counts requests of that kind, each of which costs what the limit's
    `costs` say; UnknownKind is raised for one that they do not name.

    A limit may have several quotas. Then all of them must hold and are charged in one moment, or none is.
    """

    def __init__(self, table: Decider, bans: Bans | None = None) -> None:
        self._table = table
        self.bans = bans
        """Which keys are banned, of a limit with `block_for`; else None."""
        self.key_bytes_max = table.tables[0].kernel.key_bytes_max
        """The longest key, in UTF-8; a longer one raises InvalidKey."""
        self.borrows = table.is_share
        """Whether a charge may fall to its parent, to which only a reservation gives it back."""
        self.enforcement = Enforcement(table, None if bans is None else OnWithBans(table, bans))
        """Decides by the mode in force, and counts what was admitted without or against the limit."""
        self._limits_switch = Layered[Switch](ON)
        self._agents_switch = Layered[Switch](ON)
        self._override = LimitOverride()
        self._quotas: Layered[Quotas] | None = None
        """None while the tables hold the node's own quotas, which other agents of `memory://NAME` may change there."""
        self._policy: Layered[Policy] | None = None
        """None while the tables hold the node's own policy."""
        self._caps: Quotas | None = None
        self._tier_of: tuple[str, ...] = ()
        self._slots: SlotDoor | None = None
        if table.limit.slots:
            self._slots = SlotDoor(self.enforcement)
            self._refuse_what_leaks()
        self._let_answer()

    def _refuse_what_leaks(self) -> None:
        """Have all raise NeedsSlot that would charge what nothing gives back."""
        for method in LEAKS:
            setattr(self, method, needs_slot(self.name, method))

    def _let_answer(self) -> None:
        if self._slots is not None:
            return
        # The instance's own attributes hide the methods below and save one call of every decision, about 60 ns.
        self.allow = self.enforcement.answers.allow  # type: ignore[method-assign]
        self.hit = self.enforcement.answers.hit  # type: ignore[method-assign]

    def start_over(self) -> None:
        """In a forked child: the parent's counts, waiters and bans are none of its own."""
        self.enforcement.start_over()
        if self.bans is not None:
            self.bans.start_over()

    @property
    def name(self) -> str:
        """The limit's name."""
        return self._table.name

    @property
    def addresses(self) -> tuple[str, ...]:
        """By which names published settings mean this limit, the narrowest first; of most its name.

        What a plan of contracts says of a limit is meant by the name of that limit, which all of its plans share.
        """
        return self._tier_of or (self.name,)

    @property
    def is_tier(self) -> bool:
        """Whether it is one of several that are meant by one name: what one plan of contracts says of a limit."""
        return bool(self._tier_of)

    @property
    def clock(self) -> Clock:
        """The agent's."""
        return self._table.tables[0].kernel.clock

    @property
    def table(self) -> Table:
        """The limit's part of the kernel, for tests that check decisions against the truth; of several, the first."""
        return self._table.tables[0]

    @property
    def tables(self) -> tuple[Table, ...]:
        """All parts of the kernel that this limit decides with: one for each quota, or its share and its parent's."""
        return self._table.tables

    @property
    def all_tables(self) -> tuple[Table, ...]:
        """All that is exchanged for this limit: what it decides with, and what counts its bans."""
        return self.enforcement.tables if self.bans is None else (*self.enforcement.tables, *self.bans.tables)

    def quotas_in(self, decision: Decision) -> dict[str, Limit]:
        """The quotas that a decision was about, by name: what was declared, and the ban of a key that is banned."""
        bans = self.bans
        if bans is None or decision.binding != bans.table.name:
            return self.quotas
        return {**self.quotas, bans.table.name: bans.table.limit}

    @property
    def quotas(self) -> dict[str, Limit]:
        """What was declared, by the names under which the hub and `agent.stats()` know each quota."""
        return {table.name: table.limit for table in self._table.tables}

    @property
    def limit(self) -> Limit:
        """What was declared; the first, if there are several quotas."""
        return self._table.limit

    @property
    def own_limits(self) -> tuple[Limit, ...]:
        """The quotas in force that are this limit's own, without what its parent has left for all."""
        return tuple(table.limit for table in self._table.own_tables)

    @property
    def has_costs(self) -> bool:
        """Whether any of them has a table of costs by kind."""
        for table in self._table.own_tables:  # noqa: SIM110  # guards ask for each request; faster than a generator
            if table.limit.costs is not None:
                return True
        return False

    @property
    def policy(self) -> Policy:
        """How far past its allowance this node may go."""
        return self.enforcement.tables[0].policy

    @property
    def own_policy(self) -> Policy:
        """What the node itself says about that, whatever has been published and is in force."""
        layered = self._policy
        return self.policy if layered is None else layered.own

    @property
    def switched(self) -> Switch:
        """What is in force: whichever of its own switch and the agent's refuses less."""
        return self.enforcement.state

    def switch(self, to: Switch) -> None:
        """Switch the limit "on", "off" or into "shadow", from the next decision on; all waiters return at once.

        Off, it admits whatever comes, and counts nothing but how often it was asked. In shadow it decides and charges
        as ever, but admits all the same what it would refuse: such a decision says `would_refuse`, and never waits.
        Where the agent is switched so that it refuses less, that is in force.

        `limiter.allow` and `limiter.hit` are other functions afterwards. A reference that was kept
        while the limit was on goes on asking the limit itself; one kept in another mode obeys all later switches.

        Settings that are published for the fleet come before this one, as long as they are in force.

        Raises InvalidSetting for anything else.
        """
        self._limits_switch.own = checked_switch(to)
        self._apply_switch()

    def set_agent_switch(self, agents: Switch) -> None:
        """Follow the agent's switch."""
        self._agents_switch.own = agents
        self._apply_switch()

    def _apply_switch(self) -> bool:
        """Have the mode in force decide. Returns whether a cap kept the limit from being switched as published."""
        with self.enforcement.turning:
            switch = layered_switch(self._limits_switch, self._agents_switch, has_cap=self._caps is not None)
            if switch.in_force != self.enforcement.state:
                if self.bans is not None:
                    self.bans.in_force = False
                self.enforcement.turn(switch.in_force)
                self._let_answer()
                if self.bans is not None:  # last: what is under way is of the former mode
                    self.bans.in_force = switch.in_force == ON
            return switch.capped

    @property
    def own_quotas(self) -> dict[str, Limit]:
        """What the node itself says, quota by quota, whatever else has been published and is in force."""
        layered = self._quotas
        return {table.name: table.limit for table in self.enforcement.tables} if layered is None else layered.own

    def declared_again(self, quotas: Quotas, policy: Policy) -> tuple[Quotas, Policy]:
        """What is in force of a second declaration: where it repeats the node's own, what is published may be."""
        if quotas == self.own_quotas:
            in_force = self.quotas
            quotas = {name: in_force[name] for name in quotas}
        return quotas, self.policy if policy == self.own_policy else policy

    def cap(self, limit: str) -> None:
        """Let published settings raise this limit so far, and no further; they cannot switch it off then, either.

        Without a cap they can lower what the node itself says, and switch, and raise nothing.

        Raises InvalidSetting unless it fits the limit, and is no lower.
        """
        self._caps = caps_as_said(self.name, self.own_quotas, limit)

    def be_tier_of(self, *names: str, has_cap: bool) -> None:
        """Be what one plan says of the limit of these names; with a cap, published settings cannot switch it off."""
        self._tier_of = tuple(dict.fromkeys(names))
        self._caps = self.own_quotas if has_cap else None

    def apply_override(self, override: LimitOverride, fleet_switch: Switch | None = None) -> tuple[bool, str]:
        """Go by published settings from now on: those for this limit, and the switch for all.

        What is not said in them is as the node says. Returns whether a cap has been kept to instead, and what else
        cannot be obeyed, or nothing.
        """
        with self.enforcement.turning:
            self._override = override
            self._limits_switch.published, self._agents_switch.published = override.switch, fleet_switch
            capped, problem = self._apply_quotas()
            return any([capped, self._apply_policy(), self._apply_switch()]), problem

    def _apply_quotas(self) -> tuple[bool, str]:
        """Have the tables count by the quotas in force. Returns what `apply_override` returns."""
        layered, problem = self._layered_quotas()
        self._quotas = layered  # first: from here on the tables may hold other quotas than the node's own
        quotas = layered.in_force
        for each in self.enforcement.tables:
            if each.limit != quotas[each.name] and each.why_not(quotas[each.name]) is None:
                each.change(quotas[each.name])
        self._table.take_note()
        if not layered.overridden:
            self._quotas = None
        return layered.capped, problem

    def _layered_quotas(self) -> tuple[Layered[Quotas], str]:
        """Both layers of the quotas, and what keeps the published ones from being in force, or nothing.

        The published layer is left out then.
        """
        own = self.own_quotas
        try:
            layered = layered_quotas(self.name, own, self._override.limit, self._caps)
        except InvalidLimit as error:
            return Layered(own), error.problem
        problem = "" if layered.published is None else self._why_not(layered.in_force)
        return Layered(own) if problem else layered, problem

    def _apply_policy(self) -> bool:
        """Have the tables go by the policy in force. Returns whether more was published than the node itself dares."""
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
        """What keeps these quotas, of the same names, from being in force; or nothing."""
        tables = self.enforcement.tables
        if self._table.is_share and any(each.limit != quotas[each.name] for each in tables):
            return f"{self.name!r} is a share, which cannot change while it is in use"
        problems = ((each.name, each.why_not(quotas[each.name])) for each in tables)
        return next((f"{name!r} {problem}" for name, problem in problems if problem is not None), "")

    def change(
        self,
        limit: str | Limit | Sequence[str | Limit],
        *,
        algorithm: str | None = None,
        soft: float | str | None = None,
        max_debt: int | None = None,
        costs: Mapping[str, int] | None = None,
    ) -> None:
        """Have the limit be another one from the next decision on, in which all that was used counts on.

        Quota, burst, `soft`, `max_debt` and `costs` can change, and are as said here, the same way as for
        `Agent.limit`; a limit string that names no algorithm means the limit's own. How is counted cannot change, nor
        the quota of a limit that has to do with shares. A larger quota is in force when the last node has changed; of a
        smaller one, every node keeps to its part at once. Of a paced limit, requests that wait are let out at the new
        rate, in their order; of a smooth one, the next request goes when it would have gone without the change, as
        after `setRate` of Guava's RateLimiter.
        Settings that are published for the fleet come before this one, as long as they are in force.

        Raises:
            InvalidLimit: the limit cannot be used, or cannot become this one; nothing has changed then.
            InvalidSetting: a setting contradicts what the limit says.
        """
        if algorithm is None and isinstance(limit, str):
            algorithm = self._own_algorithm()
        self.plan_change(limit, algorithm=algorithm, soft=soft, max_debt=max_debt, costs=costs)()

    def _own_algorithm(self) -> str | None:
        """The algorithm of all its quotas, if it is one."""
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
        """See `change`: finds out whether that can be done, and returns what does it, which does not fail."""
        quotas = quotas_of(self.name, limit, algorithm=algorithm, soft=soft, max_debt=max_debt, costs=costs)
        own = self.own_quotas
        if quotas != own and self._table.is_share:
            raise InvalidLimit(str(limit), f"{self.name!r} is a share, which cannot change while it is in use")
        if list(quotas) != list(own):
            known = ", ".join(own)
            raise InvalidLimit(str(limit), f"{self.name!r} has the quotas {known}; it must keep them, and their order")
        for each in self.enforcement.tables:
            problem = each.why_not(quotas[each.name])
            if problem is not None:
                raise InvalidLimit(
                    str(quotas[each.name]), f"{each.name!r} {problem}; restart, or declare another limit"
                )

        def change() -> None:
            with self.enforcement.turning:
                self._quotas = Layered(quotas)
                self._apply_quotas()

        return change

    def allow(self, key: str, cost: int = 1, kind: str | None = None) -> bool:
        """Whether `key` may use `cost` now; if so it is charged."""
        return self.enforcement.answers.allow(key, cost, kind)

    def allow_many(self, keys: Sequence[str], costs: Many | None = None) -> list[bool]:
        """As `allow` for each of `keys`, in that order, at a fraction of the price: for gateways.

        `costs` has one whole number for each key; a buffer of signed 64-bit numbers, such as `array("q")`, is read as
        it is. All keys and costs are looked at before anything is charged. A few hundred at a time are best: other
        threads wait meanwhile.

        Raises:
            InvalidKey, InvalidCost, CostExceedsQuota: as `allow` does; nothing has been charged then.
            InvalidSetting: there are more costs than keys, or fewer.
        """
        check_keys(keys)
        return self.enforcement.answers.allow_many(keys, costs)

    def hit(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """As `allow`, with what a response header wants to know."""
        return self.enforcement.answers.hit(key, cost, kind)

    def test(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """What `hit` would answer now; nothing is charged, and `remaining` is what is left before this cost."""
        return self.enforcement.answers.test(key, cost, kind)

    def for_any_node(self, decision: Decision, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """A refusal of this cost, with a `retry_after` after which any node is likely to admit it; never earlier.

        For clients that may meet another node when they come again. All other decisions are returned as they are.
        """
        return for_any_node(self._table, decision, key, cost, kind)

    def usage(self, key: str) -> Usage:
        """How much `key` has used, on this node and on all; of several quotas, of the one with the least left."""
        return self._table.usage(key)

    def usages(self, key: str) -> dict[str, Usage]:
        """How much `key` has used of every quota, by name, all at the same moment."""
        return self._table.usages(key)

    def reset(self, key: str) -> None:
        """Forget what `key` has used, and end its ban: here at once, on all other nodes with their next exchange."""
        self._table.reset(key)
        if self.bans is not None:
            self.bans.lift(key)
        self._tell(key)

    def slot(
        self,
        key: str,
        cost: int = 1,
        *,
        kind: str | None = None,
        timeout: Seconds | None = None,
        max_queue: int | None = None,
        order: Order = FIFO,
        within: Seconds = WITHIN_S,
        on_lease_end: OnLeaseEnd = None,
    ) -> Slot:
        """A slot of a limit on what is in progress, such as `20 in flight`, for a `with` or `async with` block.

        It is taken where the block begins, and given back where it ends, however that is. True within the block if
        there was one. Without a `timeout` no other work is waited for: in doubt the hub is asked, for `within` seconds
        at most (0: not at all). With one, the block waits for so many seconds in the queue of the key, unless
        `max_queue` wait already; "fifo" lets those in first that came first, "lifo" those that came last. `cost` is how
        many slots it takes at once. `on_lease_end` says what becomes of a task whose node has not heard of the hub for
        so long that others may have its slots: "cancel" cancels it, and the block raises LeaseEnded; a function is
        called with the slot, in the event loop.

        Raises:
            InvalidKey, InvalidCost, CostExceedsQuota, UnknownKind: as `hit` does.
            InvalidSetting: a setting is wrong or has no effect; or this is a limit on a rate, which has no slots.
        """
        if self._slots is None:
            problem = f"limits a rate ({self.limit}), and has no slots; declare one like '20 in flight' for that"
            raise InvalidSetting("slot", self.name, problem)
        if (cost, kind, timeout, max_queue, order, within, on_lease_end) == PLAIN:
            return Slot(self._slots, key, self._slots.plain)
        terms = SlotTerms(
            cost=cost,
            kind=kind,
            timeout=timeout,
            max_queue=max_queue,
            order=order,
            within=within,
            on_lease_end=on_lease_end,
        )
        return Slot(self._slots, key, terms)

    @property
    def has_slots(self) -> bool:
        """Whether it limits what is in progress, so that it is asked for a `slot`."""
        return self._slots is not None

    @property
    def dropped_slots(self) -> int:
        """How many slots the interpreter has given back, because nothing else could: each is a missing `with`."""
        return self.enforcement.slots_dropped

    def reserve(self, key: str, estimate: int, kind: str | None = None, *, on_abandon: OnAbandon = KEEP) -> Reservation:
        """Charge an estimate now and the truth later, with `Reservation.settle`, which counts in the same unit.

        `on_abandon` says what becomes of the charge when the reservation's block is left without a settlement: it is
        kept, or given back with "return". Raises InvalidSetting for anything else.
        """
        check_on_abandon(on_abandon)
        decision, charges = self.enforcement.answers.hit_and_mark(key, estimate, kind)
        return Reservation(charges, key, estimate, decision, on_abandon)

    async def ask(self, key: str, cost: int = 1, *, within: Seconds = WITHIN_S, kind: str | None = None) -> Decision:
        """As `hit`, but in doubt it asks the hub: no refusal and no admission is a guess where there is time to ask.

        A certain answer comes at once. In doubt (the key is new to this node, or its part of the limit is used up
        while others may have some) the request joins the node's next batch to the hub, and is answered by what the hub
        says; after `within` seconds (at most 10; 0: do not ask) by what memory says. Time in which the exchanges of
        this process stand still is not taken from that, up to a second. No request waits for a hub that
        has left one unanswered, until it answers again. What is cancelled is not charged.

        Raises:
            InvalidKey, InvalidCost, CostExceedsQuota, UnknownKind: as `hit` does.
            InvalidSetting: `within` is no such number of seconds.
        """
        within_ns = checked_within_ns(in_seconds(within))
        return (await self.enforcement.answers.ask(key, cost, kind, within_ns, marks=False))[0]

    def ask_blocking(self, key: str, cost: int = 1, *, within: Seconds = WITHIN_S, kind: str | None = None) -> Decision:
        """As `ask`, for a thread. On one that runs an event loop, in a signal handler or a finalizer, memory answers.

        That is said once, and counted.
        """
        within_ns = checked_within_ns(in_seconds(within))
        return self.enforcement.answers.ask_blocking(key, cost, kind, within_ns, marks=False)[0]

    async def reserve_ask(
        self,
        key: str,
        estimate: int,
        kind: str | None = None,
        *,
        within: Seconds = WITHIN_S,
        on_abandon: OnAbandon = KEEP,
    ) -> Reservation:
        """As `reserve`, but in doubt it asks the hub, as `ask` does."""
        check_on_abandon(on_abandon)
        within_ns = checked_within_ns(in_seconds(within))
        decision, charges = await self.enforcement.answers.ask(key, estimate, kind, within_ns, marks=True)
        return Reservation(charges, key, estimate, decision, on_abandon)

    def reserve_ask_blocking(
        self,
        key: str,
        estimate: int,
        kind: str | None = None,
        *,
        within: Seconds = WITHIN_S,
        on_abandon: OnAbandon = KEEP,
    ) -> Reservation:
        """As `reserve_ask`, for a thread; where it must not wait, memory answers."""
        check_on_abandon(on_abandon)
        within_ns = checked_within_ns(in_seconds(within))
        decision, charges = self.enforcement.answers.ask_blocking(key, estimate, kind, within_ns, marks=True)
        return Reservation(charges, key, estimate, decision, on_abandon)

    def refund(self, key: str, cost: int = 1, kind: str | None = None) -> None:
        """Give back what was charged to `key` on this node, as far as it still counts.

        It never takes what is used below zero: more than the quota is never left. Of a limit with a parent, its own
        share gets it back; what was borrowed comes back when a reservation is settled.
        """
        self._table.refund(key, cost, kind)
        self._tell(key)

    async def wait(
        self,
        key: str,
        cost: int = 1,
        *,
        timeout: Seconds | None = None,
        max_queue: int | None = None,
        kind: str | None = None,
    ) -> Decision:
        """Wait until `key` may use `cost`, which is then charged; first come, first served on this node.

        The answer is a refusal, with the time after which another try may be worth it, if that cannot be within
        `timeout` seconds (0: do not wait at all) or if `max_queue` wait already. What is cancelled is not charged. A
        `leaky-bucket` lets out what waits at a steady rate; the other algorithms as soon as they would admit it.
        `allow` and `hit` do not queue, and may overtake.

        Of several quotas all have room, and are charged, in the moment in which one's turn ends; a refusal is that of
        the quota to wait for longest. With a parent one waits for the share and for what may be borrowed, whichever
        comes first; a waiter for the parent, or for another share of it, stands in a queue of its own.

        Raises:
            InvalidKey, InvalidCost, CostExceedsQuota: as `hit` does.
            InvalidSetting: `timeout` or `max_queue` is negative, or no number.
        """
        return await self.enforcement.answers.wait(key, cost, kind, in_seconds(timeout), max_queue)

    def wait_blocking(
        self,
        key: str,
        cost: int = 1,
        *,
        timeout: Seconds | None = None,
        max_queue: int | None = None,
        kind: str | None = None,
    ) -> Decision:
        """As `wait`, for a thread, in the same queue.

        Raises:
            RuntimeError: an event loop runs on this thread, and would be held up.
        """
        return self.enforcement.answers.wait_blocking(key, cost, kind, in_seconds(timeout), max_queue)

    def warm(self, keys: Iterable[str]) -> None:
        """Ask the hub about `keys` ahead of their first request, so that none of them is new to this node then."""
        check_keys(keys)
        self._table.warm(keys)

    def take_over(self, key: str) -> None:
        """Have a key be here that another limit has which counts with this one, see `Agent.tier`."""
        for table in self._table.tables:
            table.take_over(key)

    def keys_beside(self) -> list[str]:
        """All keys that this node has, here or in a limit that counts with this one."""
        return [key for each in self._table.tables[0].tiers for key in list(each.cells)]

    def _tell(self, key: str) -> None:
        """Tell the queues of the key that there may be room now."""
        for table in self._table.tables:
            table.tell(key)

    def __repr__(self) -> str:
        limits = "; ".join(map(str, self.quotas.values()))
        switched = "" if self.switched == ON else f", switched {self.switched}"
        return f"Limiter({self.name!r}, {limits}, policy={self.policy.name}{switched})"


def check_keys(keys: object) -> None:
    """Raise InvalidKey for one string in the place of several: each of its letters would count as a key."""
    if isinstance(keys, str | bytes):
        raise InvalidKey(f"a list of keys is wanted, and {shown(keys)} is one key; write [{shown(keys)}]")
