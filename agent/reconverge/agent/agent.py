"""The facade: one node, its limits and its exchanges."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar, overload

from reconverge.agent.assembly import Parts, assemble, reader_of
from reconverge.agent.environment import HUB, hub_as_said, log_variables
from reconverge.agent.erasing import WAIT_S, Erasing, Forgotten, plain_identity
from reconverge.agent.fleet_usage import ANSWERS, FleetUsage, ask_fleet, fleet_usages
from reconverge.agent.hook_dispatcher import HookDispatcher
from reconverge.agent.hub_check import CHECK_S, RequiredHub
from reconverge.agent.lifecycle import Lifecycle
from reconverge.agent.notice import ShortWindows, log_installation, log_soft
from reconverge.agent.overrides import Overrides
from reconverge.agent.past_tiers import PastTiers
from reconverge.agent.snapshots.load_snapshot import LoadSnapshot
from reconverge.agent.snapshots.publishing import Publishing
from reconverge.agent.snapshots.snapshot import NodeSnapshot
from reconverge.arguments import with_advice
from reconverge.clock import SECOND_NS, Clock, Seconds, SystemClock, in_seconds
from reconverge.errors import HubUnavailable, InvalidSetting, LimitConflict, UnknownLimit
from reconverge.exchange.answer_stats import AnswerStats
from reconverge.exchange.follower import Follower
from reconverge.exchange.schedule import Pacing, pace_of
from reconverge.exchange.task_runner import TaskRunner
from reconverge.exchange.thread_runner import ThreadRunner
from reconverge.hooks import Hooks
from reconverge.hub.port import Hub
from reconverge.kernel import ASKS_MAX, IMPLEMENTATION, NEW_KEYS_MAX, Table
from reconverge.limit.checks import check_name
from reconverge.limit.limit import Limit
from reconverge.limit.quotas import check_rate, quotas_of, slots_of
from reconverge.limiter.bans import Bans, BanTerms, ban_terms, names_of
from reconverge.limiter.doubt import ASK, within_s
from reconverge.limiter.faces.kinds import AnyLimiter, checked_kind, limiter_of
from reconverge.limiter.faces.limiter import Limiter
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.limiter.faces.slot_limiter import SlotLimiter
from reconverge.limiter.switches import Switch, checked_switch, switch_as_said
from reconverge.policies import BALANCED, NAIVE, SLOTS_DEFAULT, Policy, choose
from reconverge.published.caps import caps_as_said
from reconverge.published.settings import FleetSettings
from reconverge.runtime.process import register
from reconverge.settings import (
    AgentSettings,
    check_lease,
    check_slot_lease,
    checked_clock,
    checked_pace,
)
from reconverge.stats import AgentStats, Health, health_of, stats_of_limits

logger = logging.getLogger("reconverge")

AnyRunner = TypeVar("AnyRunner", ThreadRunner, TaskRunner)
AnyFollower = TypeVar("AnyFollower", bound=Follower)
T = TypeVar("T")

AWAITING: Final = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""Of a function's code: it may await."""
OF_LIMIT: Final = "is a setting of the limit itself; write agent.limit(name, Limit(quota, window, {}))"
ELSEWHERE: Final = {
    "burst": OF_LIMIT.format("algorithm='token-bucket', burst=..."),
    **{
        name: OF_LIMIT.format(f"{name}=...")
        for name in ("slices", "count_refused", "warmup", "align", "timezone", "initial", "refill")
    },
    "key_func": "is a setting of the limits of a web framework; here the key stands with each decision, as in"
    " limiter.allow('ada')",
    "key": "stands with each decision, as in agent.limit(name, '5/minute').allow('ada')",
}
"""Words that are written for a setting of `Agent.limit`, and where each belongs."""
OF_RATES: Final[dict[str, str]] = dict.fromkeys(
    ("algorithm", "soft", "max_debt", "parent", "block_after", "block_for"),
    "goes with limits on a rate, and slots have none; leave it out",
)
"""The same for `Agent.concurrency`."""
OF_AGENT: Final = {
    "url": "is called hub here; write Agent('redis://localhost:6379/0')",
}
"""The same for `Agent`."""


class Agent:
    """One node of a fleet that shares limits: decides from its own memory, and exchanges in the background.

        agent = Agent("redis://localhost:6379/0", namespace="shop")
        login = agent.limit("login", "100/minute")
        if login.allow("ada"): ...

    Exchanging begins with the first decision, on a thread of its own; `with agent:` begins it at once and says the
    last words at the end, `async with agent:` does the same as a task of the running loop.

    Args:
        hub: a URL (`memory://`, `embedded://`, `redis://`, ...) or a `Hub`. By default `RECONVERGE_HUB`, or
            `memory://`.
        namespace: fleets with different namespaces share nothing.
        sync_interval: seconds between exchanges, as a number or a `timedelta`, as all durations. Longer is cheaper and
            less exact; the bound does not depend on it.
        min_sync_interval: seconds at least between an exchange and one ahead of time; by default a tenth.
        lease_ttl: seconds for which allowances may be used after the hub was last heard; by default ten of the
            windows of each limit, between 30 s and 600 s, but at least six sync intervals and three exchange timeouts.
        policy, max_overshoot, cold_allowance: how much a node dares, for all limits that do not say otherwise;
            see `reconverge.policies`. By default `balanced`, and `strict` for work in progress.
        scarce: "hub" or "nodes": where requests lie of which there are few for each node, of a limit about which
            requests ask in doubt. At the hub none is refused falsely, and most are refused while the hub is away; at
            the nodes it is the other way round. By default at the hub.
        max_keys: how many keys are counted each on its own. When that is nearly reached, those that are idle leave, and
            those that are used least, which the hub or a small memory goes on counting; a key that finds no room shares
            one count with others, or is refused in `strict`.
        new_keys_max: how many keys per second the hub is asked about for the first time; further ones wait for that and
            are decided about by `cold_allowance` meanwhile. Limits share it evenly.
        asks_max: how many exchanges per second requests in doubt may call for, see `RateLimiter.ask`; beyond that
            memory answers. 0: none asks.
        in_doubt: what integrations do about a request that memory cannot settle, unless their settings differ: ask
            the hub for at most so long ("ask:25ms"), or let memory decide ("refuse"). `allow` and `hit` never wait.
        key_bytes_max: the longest key, in UTF-8.
        exchange_timeout: seconds that one exchange may take.
        stop_timeout: seconds that the last words may take.
        sigterm: let SIGTERM end the main thread as `sys.exit` would, so that nothing is lost, unless the application
            has a handler of its own. Only the main thread can see to that: by making the agent, or by using it first.
            In a daemon of `multiprocessing`, such as a worker of a `Pool`, SIGTERM is left alone.
        switch: "on", "shadow" or "off", for all limits; see `switch`. By default `RECONVERGE_SWITCH`, or "on".
        settings_secret: obey what is published for the fleet and signed with this, at least 16 bytes; several,
            separated by blanks or as a sequence, are all believed. By default `RECONVERGE_SETTINGS_SECRET`, if set.
        key_secret: have the hub see a hash in place of each key, keyed with this secret of at least 16 bytes. All nodes
            of the namespace need the same: those with another one count apart. By default `RECONVERGE_KEY_SECRET`, if
            set; without, the hub sees the keys.
        fallback: another hub, a URL or a `Hub`, to exchange with while `hub` does not answer; up to twice the bound may
            be admitted while some nodes are with one and some with the other.
        region_share: the part of every limit that all agents at this hub have by themselves; the shares of all regions
            sum to at most 1, and what is left over a bridge lends to whichever region needs it. By default 1.0: there
            are no other regions.
        require_hub: have `start`, `with agent` and `async with agent` wait for the hub's answer, as `check` does, and
            raise `HubUnavailable` without one; the agent is stopped then. The guards of web frameworks start such an
            agent when they are made.
        clock: where time comes from.

    Raises:
        InvalidSetting, UnknownHub, MissingExtra, EventletPatched: see there.
    """

    @with_advice(OF_AGENT)
    def __init__(
        self,
        hub: str | Hub | None = None,
        *,
        namespace: str = "default",
        sync_interval: Seconds = 0.1,
        min_sync_interval: Seconds | None = None,
        lease_ttl: Seconds | None = None,
        policy: str | None = None,
        max_overshoot: float | None = None,
        cold_allowance: float | None = None,
        scarce: str | None = None,
        max_keys: int = 100_000,
        new_keys_max: int = NEW_KEYS_MAX,
        asks_max: int = ASKS_MAX,
        in_doubt: str = ASK,
        key_bytes_max: int = 256,
        exchange_timeout: Seconds = 1.0,
        stop_timeout: Seconds = 2.0,
        sigterm: bool = True,
        switch: Switch | None = None,
        settings_secret: str | bytes | Sequence[str | bytes] | None = None,
        key_secret: str | bytes | None = None,
        fallback: str | Hub | None = None,
        region_share: float = 1.0,
        require_hub: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._required = RequiredHub(required=require_hub, named=hub is not None or HUB in os.environ)
        hub = hub_as_said(hub)
        self._settings = settings = AgentSettings.checked(
            namespace=namespace,
            sync_interval=sync_interval,
            min_sync_interval=min_sync_interval,
            lease_ttl=lease_ttl,
            exchange_timeout=exchange_timeout,
            stop_timeout=stop_timeout,
            sigterm=sigterm,
            max_keys=max_keys,
            new_keys_max=new_keys_max,
            asks_max=asks_max,
            key_bytes_max=key_bytes_max,
            region_share=region_share,
        )
        self._policy = choose(policy, max_overshoot=max_overshoot, cold_allowance=cold_allowance, scarce=scarce)
        said = policy is not None or max_overshoot is not None
        self._slots_policy = self._policy if said else choose(scarce=scarce, default=SLOTS_DEFAULT)
        self._switched: Switch = switch_as_said(switch)
        within_s(in_doubt)
        self._in_doubt = in_doubt
        self._clock = SystemClock() if clock is None else checked_clock(clock)
        parts = assemble(
            settings,
            hub,
            fallback,
            self._clock,
            require_hub=require_hub,
            region_share=region_share,
            key_secret=key_secret,
        )
        self._hub_name, self._kernel = parts.hub_name, parts.kernel
        self._limiters: dict[str, Limiter] = {}
        self._prepare_pace_and_overrides(parts, settings_secret)
        log_installation()
        log_variables()
        self._hook_dispatcher = HookDispatcher(self)
        self._prepare_exchanges(parts)

    def _prepare_pace_and_overrides(self, parts: Parts, secret: str | bytes | Sequence[str | bytes] | None) -> None:
        """Make what knows the sync intervals, and what reads and applies the settings published for the fleet."""
        settings = self._settings
        self._short_windows = ShortWindows()
        self._pacing = Pacing(
            parts.kernel,
            pace_of(settings.sync_interval, settings.min_sync_interval),
            timeout_s=settings.exchange_timeout,
            tables_of=lambda name: self._limiters[name].control.all_tables,
            changed=self._take_pace,
        )
        self._overrides = Overrides(self._pacing.publish)
        self._reader = reader_of(
            secret,
            parts,
            namespace=settings.namespace,
            clock=self._clock,
            # As often as it exchanges, and as it would by its own settings: too long an interval can be taken back.
            interval_ns=self._pacing.shortest_ns,
            apply=self._apply,
        )

    def _prepare_exchanges(self, parts: Parts) -> None:
        """Make what exchanges with the hub from the first decision or `start` on, and have the process know of it."""
        settings = self._settings
        self._lifecycle = Lifecycle(
            parts,
            clock=self._clock,
            timeout_s=settings.exchange_timeout,
            required=self._required,
            register=lambda: register(self, sigterm=settings.sigterm),
        )
        self._erasing = Erasing(
            parts.kernel,
            self._clock,
            namespace=settings.namespace,
            hasher=parts.hasher,
            interval_ns=self._pacing.shortest_ns,
        )
        self._erasing.forget_keys = self._forget_keys
        self._past_tiers = PastTiers(self._kernel, self._clock, self._limiters, self._overrides.lock)
        self._publishing = Publishing(self, parts.kernel, self._clock, parts.hasher)
        self._erasing.listen(self._publishing.forget)
        if self._reader is not None:
            self._lifecycle.followers.append(self._reader)
        if not self._kernel.alone:
            self._lifecycle.followers += (self._erasing, self._past_tiers, self._publishing)
        register(self, sigterm=settings.sigterm and not self._kernel.alone)

    # ------------------------------------------------------------ limits

    @with_advice(ELSEWHERE)
    def limit(
        self,
        name: str,
        limit: str | Limit | Sequence[str | Limit],
        *,
        algorithm: str | None = None,
        soft: float | str | None = None,
        max_debt: int | None = None,
        costs: Mapping[str, int] | None = None,
        parent: RateLimiter | None = None,
        policy: str | None = None,
        max_overshoot: float | None = None,
        cold_allowance: float | None = None,
        scarce: str | None = None,
        sync_interval: Seconds | None = None,
        switch: Switch | None = None,
        cap: str | None = None,
        block_after: str | None = None,
        block_for: Seconds | str | None = None,
    ) -> RateLimiter:
        """Declare a limit on a rate, as a string like `100/minute` or a `Limit`; declaring it again alike is harmless.

        Several quotas, as in `10/second; 1000/hour` or as a sequence of strings and `Limit`, must all hold. Settings
        are for all of them; see `Limit` for `soft` (which may be "10%"), `max_debt` and `costs`. With a `parent`,
        another limiter of this agent, the limit is a share of the parent's that no other limit can use; beyond it what
        the parent has left for all may be borrowed. `switch` is as in `Limiter.switch`; without, a limit is as it was,
        or on.
        `sync_interval` is how many seconds pass between two exchanges of the counts here, if not as many as for
        the agent's other limits; see `change_pace`. `cap` is a limit string over the same windows, up to which
        published settings may raise this one, and no further; without, they can lower and switch it, and raise nothing.
        After as many certain refusals as `block_after` says ("20/minute"), on all nodes together, a key is refused for
        `block_for` ("10 minutes", or a number of seconds), whatever it has left; see docs/guide/bans.md.

        What is in progress is limited by `concurrency`.

        Raises:
            InvalidLimit: the name or the limit cannot be used, or it limits what is in progress.
            LimitConflict: the name stands for another limit already.
            InvalidSetting: the policy or the interval makes no sense, or a setting contradicts the limit.
        """
        quotas = quotas_of(name, limit, algorithm=algorithm, soft=soft, max_debt=max_debt, costs=costs)
        check_rate(name, quotas)
        limiter = self._declared(
            name,
            quotas,
            (policy, max_overshoot, cold_allowance, scarce),
            sync_interval=sync_interval,
            switch=switch,
            cap=cap,
            parents=_parts_of(parent),
            terms=self._ban_terms(name, block_after, block_for, quotas),
        )
        return checked_kind("name", limiter, RateLimiter)

    @with_advice(OF_RATES)
    def concurrency(
        self,
        name: str,
        limit: int | str | Limit,
        *,
        lease: Seconds | None = None,
        costs: Mapping[str, int] | None = None,
        policy: str | None = None,
        max_overshoot: float | None = None,
        cold_allowance: float | None = None,
        scarce: str | None = None,
        sync_interval: Seconds | None = None,
        switch: Switch | None = None,
        cap: str | None = None,
    ) -> SlotLimiter:
        """Declare a limit on what is in progress at once, for each key and on all nodes together.

            render = agent.concurrency("render", 20)
            with render.slot("ada") as slot:
                if slot: ...

        The limit is a number of slots, a string like `20 in flight`, or a `Limit`. `lease` is how many seconds the
        slots of a node that has fallen silent stay taken, by default 5: at least six sync intervals, and three exchange
        timeouts. See `SlotLimiter.slot`, and `limit` for all else.

        Raises:
            InvalidLimit: it is no such limit, or the name cannot be used.
            LimitConflict, InvalidSetting: as `limit` does.
        """
        limiter = self._declared(
            name,
            quotas_of(name, slots_of(limit, lease), costs=costs),
            (policy, max_overshoot, cold_allowance, scarce),
            sync_interval=sync_interval,
            switch=switch,
            cap=cap,
        )
        return checked_kind("name", limiter, SlotLimiter)

    def declare(self, name: str, limit: str | Limit | Sequence[str | Limit], **settings: Any) -> Limiter:
        """As `limit` or `concurrency`, by what is limited: for limits that are written in a file or in a rule."""
        said = {each: value for each, value in settings.items() if value is not None}
        quotas = list(quotas_of(name, limit, algorithm=said.get("algorithm")).values())
        if len(quotas) == 1 and quotas[0].slots:
            said.pop("algorithm", None)
            return self.concurrency(name, quotas[0], **said)
        return self.limit(name, limit, **said)

    def _declared(
        self,
        name: str,
        quotas: dict[str, Limit],
        daring: tuple[str | None, float | None, float | None, str | None],
        *,
        sync_interval: Seconds | None,
        switch: Switch | None,
        cap: str | None,
        parents: tuple[Any, ...] | None = None,
        terms: BanTerms | None = None,
    ) -> Limiter:
        """The limiter of these quotas, declared with the settings that both kinds have."""
        sync_interval = in_seconds(sync_interval)
        self._check_switch_and_interval(switch, sync_interval, quotas)
        slots = any(quota.slots for quota in quotas.values())
        chosen = self._policy_for(slots=slots)
        if daring != (None, None, None, None):
            policy, max_overshoot, cold_allowance, scarce = daring
            chosen = choose(
                policy,
                max_overshoot=max_overshoot,
                cold_allowance=cold_allowance,
                scarce=scarce,
                default=SLOTS_DEFAULT if slots else BALANCED,
            )
        if cap is not None:
            caps_as_said(name, quotas, cap)
        with self._overrides.lock:
            limiter, known = self._declare(name, quotas, chosen, parents, terms)
            self._set(limiter, cap, switch, sync_interval)
            if cap is not None or not known:
                self._overrides.apply_to(limiter)
                self._look_at_windows([limiter])
                log_soft(quotas)
        return limiter

    def tier(
        self,
        limit_name: str,
        name: str,
        limit: Limit,
        *,
        policy: str | None = None,
        called: str | None = None,
        has_cap: bool = False,
    ) -> Limiter:
        """Declare one of several limits that the hub knows by one name, such as those of several plans.

        Its keys count with those of all limits that were declared for that name and are counted alike: a key that is
        asked about here comes here, with what it has used there. `name` is that of this one in `stats()`. Published
        settings switch all of them as one, under `limit_name` or as they are `called`; where one `has_cap`, not that.

        Raises:
            InvalidLimit, LimitConflict: as `limit` does; so does a policy that the others do not have.
            InvalidSetting: the policy makes no sense, or the lease of a limit on work in progress is too short.
        """
        check_name(limit_name)
        self._check_switch_and_interval(None, None, {name: limit})
        chosen = self._policy_for(slots=limit.slots) if policy is None else choose(policy)
        with self._overrides.lock:
            limiter = self._limiters.get(name)
            self._past_tiers.keep(name)
            if limiter is None:
                limiter = limiter_of(self._kernel.tier(name, limit, chosen, reported_as=limit_name))
                limiter.control.be_tier_of(limit_name, called or limit_name, has_cap=has_cap)
                limiter.control.set_agent_switch(self._switched)
                limiter = self._limiters.setdefault(name, limiter)
                self._overrides.apply_to(limiter)
                self._look_at_windows([limiter])
            elif limiter.limit != limit:
                raise LimitConflict(name, limiter.limit, limit)
        return limiter

    def _policy_for(self, *, slots: bool) -> Policy:
        """The policy of a limit that names none."""
        return self._slots_policy if slots else self._policy

    def drop_tiers(self, names: Iterable[str]) -> None:
        """Drops limits that `tier` declared, each as soon as it has no key.

        `stats()` includes them until then. The last one of those that the hub knows by one name stays. To declare one
        again keeps it, or makes it anew. Names of which there is no limit any more do no harm.

        Raises InvalidSetting for the name of a limit that `limit` declared.
        """
        named = list(names)
        for name in named:
            table = self._kernel.tables.get(name)
            if table is not None and table.reported_as == name:
                raise InvalidSetting("names", name, "is no tier; a limit that `limit` declared stays with its agent")
        self._past_tiers.add(named)

    def _check_switch_and_interval(
        self, switch: Switch | None, sync_interval: float | None, quotas: Mapping[str, Limit]
    ) -> None:
        """Raise InvalidSetting for what cannot be set of a limit with these quotas, before it is declared."""
        if switch is not None:
            checked_switch(switch)
        if sync_interval is not None:
            checked_pace(sync_interval, None)
            lease_ns = max(self._kernel.lease_with(each) for each in quotas.values())
            check_lease(sync_interval, self._settings.exchange_timeout, lease_ns / SECOND_NS)
        for each in quotas.values():
            if each.slots:
                interval_s = self._pacing.shortest_ns() / SECOND_NS if sync_interval is None else sync_interval
                check_slot_lease(interval_s, self._settings.exchange_timeout, each.window)

    def _declare(
        self,
        name: str,
        quotas: dict[str, Limit],
        policy: Policy,
        parents: tuple[Any, ...] | None,
        terms: BanTerms | None,
    ) -> tuple[Limiter, bool]:
        """The limiter of that name, made if there is none, and whether there was one. Raises LimitConflict."""
        limiter = self._limiters.get(name)
        if limiter is not None:
            quotas, policy = limiter.control.declared_again(quotas, policy)
        table = self._kernel.composites.declare(name, quotas, policy, parents=parents)
        known = name in self._limiters
        if limiter is None:
            bans = None if terms is None else self._bans_of(name, terms)
            limiter = limiter_of(table, bans)
            limiter.control.set_agent_switch(self._switched)
            # In one step: a signal handler may have declared it meanwhile.
            limiter = self._limiters.setdefault(name, limiter)
        return limiter, known

    def _ban_terms(
        self, name: str, block_after: str | None, block_for: Seconds | str | None, quotas: Mapping[str, Limit]
    ) -> BanTerms | None:
        """Returns the terms of a ban; None if none was declared.

        Raises InvalidSetting if that makes no sense of such a limit, or differs from what the limit was declared with.
        """
        terms = ban_terms(block_after, block_for)
        if terms is None:
            return None
        if any(each.smooth for each in quotas.values()):
            problem = "counts certain refusals, and those of a smooth limit never are; leave it out"
            raise InvalidSetting("block_for", block_for, problem)
        known = self._limiters.get(name)
        bans = None if known is None else known.control.bans
        if known is not None and (bans is None or bans.terms != terms):
            problem = f"differs from what {name!r} was declared with; say the same, or leave it out to keep that"
            raise InvalidSetting("block_for", block_for, problem)
        if known is None:
            self._check_free(zip(names_of(name), terms, strict=True))
        return terms

    def _check_free(self, wanted: Iterable[tuple[str, Limit]]) -> None:
        """Raise LimitConflict if a name stands for another limit than is wanted."""
        for name, limit in wanted:
            self._kernel.composites.refuse(name, limit)
            table = self._kernel.tables.get(name)
            if table is not None and (name in self._limiters or table.limit != limit):
                raise LimitConflict(name, table.limit, limit)

    def _bans_of(self, name: str, terms: BanTerms) -> Bans:
        """Returns the bans of a limit. Raises LimitConflict if another limit has got one of both names meanwhile."""
        refusals, ban = (
            self._kernel.declare(each, limit, NAIVE) for each, limit in zip(names_of(name), terms, strict=True)
        )
        bans = Bans(refusals, ban)
        self.on_forget(bans.forget)
        return bans

    def _set(self, limiter: Limiter, cap: str | None, switch: Switch | None, sync_interval: float | None) -> None:
        """Set a declaration's settings beside the quotas and the policy; None leaves it as it is."""
        if cap is not None:
            limiter.control.cap(cap)
        if switch is not None:
            limiter.switch(switch)
        if sync_interval is not None:
            self.change_pace(sync_interval, limit=limiter.name)

    @overload
    def limiter(self, name: str) -> RateLimiter: ...

    @overload
    def limiter(self, name: str, kind: type[AnyLimiter]) -> AnyLimiter: ...

    def limiter(self, name: str, kind: type[Limiter] = RateLimiter) -> Limiter:
        """The limiter of a declared limit, on a rate; of another one with its `kind`: `SlotLimiter`, or `Limiter`.

        Raises UnknownLimit, and InvalidSetting for a limit of another kind.
        """
        if name not in self._limiters:
            raise UnknownLimit(name, self._limiters)
        return checked_kind("kind", self._limiters[name], kind)

    @property
    def switched(self) -> Switch:
        """How the agent is switched; its limits may each refuse less than that."""
        return self._switched

    def switch(self, to: Switch) -> None:
        """Switch all limits at once, from the next decision on: the kill switch. See `Limiter.switch`.

        Of this and a limit's own switch, whichever refuses less is in force; so "on" gives each its own back.
        Exchanges go on. A switch that is published for the fleet comes before this one, as long as it is in force.
        Raises InvalidSetting for a word that is no switch.
        """
        self._switched = checked_switch(to)
        for limiter in list(self._limiters.values()):
            limiter.control.set_agent_switch(self._switched)

    @property
    def limiters(self) -> dict[str, Limiter]:
        """The limiters of all limits that this agent has declared, by name."""
        return dict(self._limiters)

    def change_pace(
        self, sync_interval: Seconds | None, min_sync_interval: Seconds | None = None, *, limit: str | None = None
    ) -> None:
        """Exchange every `sync_interval` seconds from now on, as if the agent had been made so.

        With the name of a `limit`, what is counted for that one alone, all others as before; None then has it exchanged
        with the others again. A limit at a longer interval takes no part in the exchanges in between, but for keys in a
        hurry; one at a shorter interval has exchanges of its own. Other agents of the fleet may differ.

        Raises:
            InvalidSetting: leases are too short for that; nothing has changed then.
            UnknownLimit: no limit has that name.
        """
        self.plan_pace(sync_interval, min_sync_interval, limit=limit)()

    def plan_pace(
        self, sync_interval: Seconds | None, min_sync_interval: Seconds | None = None, *, limit: str | None = None
    ) -> Callable[[], None]:
        """Checks a change of pace, and returns the function that makes it, which does not fail; see `change_pace`."""
        if limit is not None:
            self.limiter(limit, Limiter)
        return self._pacing.plan(in_seconds(sync_interval), in_seconds(min_sync_interval), limit=limit)

    def _look_at_windows(self, limiters: Sequence[Limiter]) -> None:
        """Log windows that are too short for the sync interval that is in force now."""
        for limiter in () if self._kernel.alone else limiters:
            bans = limiter.control.bans
            self._short_windows.look((*limiter.control.tables, *(() if bans is None else bans.tables)))

    def _take_pace(self) -> None:
        """All or some are exchanged at another pace from now on."""
        self._look_at_windows(list(self._limiters.values()))
        for syncer in self._lifecycle.syncers:
            syncer.take_pace()
        if self._lifecycle.running:
            self._lifecycle.wake()

    # ------------------------------------------------------------ running

    def start(self) -> None:
        """Begin to exchange on a thread of its own, unless that has begun. Waits for the hub with `require_hub` alone.

        Raises HubUnavailable with `require_hub`, when the hub does not answer; the agent is stopped then.
        """
        self._lifecycle.start()
        if self._required.required and not self._lifecycle.ended:
            try:
                self._check(CHECK_S)
            except HubUnavailable:
                self.stop(0)
                raise

    def check(self, timeout: Seconds = CHECK_S) -> None:
        """Find out whether the hub answers: start, if need be, and wait until every shard has answered once more.

        It waits, so in a coroutine use `check_async`. A function that a coroutine calls may call this: servers import
        modules while their loop runs, and a module cannot await.

        Args:
            timeout: seconds after which a hub counts as one that does not answer. A setting that is wrong, such as a
                password, ends the check at once.

        Raises:
            HubUnavailable: the hub does not answer; its kind and problem state why.
            InvalidSetting: no hub was named. An agent of `memory://`, named as such, has nothing to check.
            RuntimeError: it is called in a coroutine, or in the loop that `async with agent` exchanges in.
        """
        if sys._getframe(1).f_code.co_flags & AWAITING:  # noqa: SLF001  # `inspect` has it so, and reads files
            raise RuntimeError("check() would block the event loop; write `await agent.check_async()` here")
        self._check(timeout)

    def _check(self, timeout: Seconds) -> None:
        runner = self._lifecycle.listening
        if isinstance(runner, TaskRunner) and runner.is_here:
            raise RuntimeError("check() would block the loop that exchanges; write `await agent.check_async()` here")
        paused = threading.Event()  # fork: this call alone knows it
        for pause_s in self._lifecycle.look_for_answers(timeout):
            paused.wait(pause_s)

    async def check_async(self, timeout: Seconds = CHECK_S) -> None:
        """The same without blocking the event loop."""
        for pause_s in self._lifecycle.look_for_answers(timeout):
            await asyncio.sleep(pause_s)

    def stop(self, timeout: Seconds | None = None) -> None:
        """Say the last words and stop; waits for at most `timeout` seconds (by default `stop_timeout`).

        Within the loop that `async with agent` exchanges in it cannot wait; the end of that block does.
        Decisions go on afterwards, and the first of them begins to exchange again, under a new name.
        """
        self._lifecycle.stop(self._settings.stop_timeout if timeout is None else in_seconds(timeout))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        if self._kernel.alone or self._lifecycle.ended:
            return self
        self._lifecycle.hand_over_to_task()
        if self._required.required:
            try:
                await self.check_async()
            except BaseException as error:
                await self.__aexit__(type(error), error, None)
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        runner = self._lifecycle.runner
        if isinstance(runner, TaskRunner):
            await self._lifecycle.stop_task(runner, self._settings.stop_timeout)
        elif runner is not None:
            await asyncio.to_thread(self.stop)

    async def fleet_usage(self, limiter: Limiter, key: str) -> FleetUsage:
        """Returns the use of a key on all nodes, by the quota of which least is left; see `fleet_usages`."""
        usages = await self.fleet_usages(limiter, key)
        return min(usages.values(), key=lambda usage: usage.left)

    async def fleet_usages(self, limiter: Limiter, key: str) -> dict[str, FleetUsage]:
        """Asks the hub for the use of a key on all nodes, by quota; in one round trip for each shard.

        The same on every node: what all have reported, which is at most a sync interval old. Nothing is charged, the
        hub begins to keep nothing, and no decision waits. Where the hub cannot be asked, the answer is as far as this
        node knows, as `fleetwide` and `problem` show. Waits for two exchange timeouts at most.

        Raises:
            InvalidKey: the key is not a usable string.
            InvalidSetting: the limiter is another agent's.
        """
        self._check_own(limiter)
        return await fleet_usages(
            limiter, key, self._kernel, self._lifecycle, timeout_s=self._settings.exchange_timeout
        )

    async def fleet_usages_of(self, asked: Sequence[tuple[Limiter, str]]) -> list[FleetUsage]:
        """Asks the hub about several keys at once, each with its limiter: in one round trip for each shard.

        Keys of one shard are read at one moment. Without the hub, nothing is read.

        Raises:
            HubUnavailable: the hub does not answer, keeps no keys, or shows them to no reader.
            InvalidKey, InvalidSetting: as `fleet_usages` does.
        """
        pairs: list[tuple[Table, str]] = []
        for limiter, key in asked:
            self._check_own(limiter)
            checked = limiter.control.table.check_key(key)
            pairs += [(table, checked) for table in limiter.control.tables]
        if self._kernel.alone:
            raise HubUnavailable("unsupported", f"{self._lifecycle.hub_name} keeps no keys", applied=False)
        usages = iter(await ask_fleet(pairs, self._kernel, self._lifecycle, timeout_s=self._settings.exchange_timeout))
        return [
            min((next(usages) for _ in limiter.control.tables), key=lambda usage: usage.left) for limiter, _ in asked
        ]

    def _check_own(self, limiter: Limiter) -> None:
        """Raise InvalidSetting for an object that is no limiter of this agent."""
        if not isinstance(limiter, Limiter) or self._limiters.get(limiter.name) is not limiter:
            raise InvalidSetting("limiter", limiter, "is no limiter of this agent; pass one that agent.limit returned")

    async def forget(self, identity: str, *, wait: Seconds = WAIT_S) -> Forgotten:
        """Erase all that is known of an identity: here, on all other nodes and at the hub, its usage included.

        The identity is a customer or another thing that limits count by: every key that is its name goes, and every key
        of a contract that has it among its facts. It is an order to all nodes; this waits for at most `wait` seconds
        until none of them has the identity any more, and the result counts the remainder.

        The use of limits is forgotten, too, as by a reset: if the identity comes again it begins anew. So end its
        requests first; while they go on it stays known, and what it uses goes on to count. Usage that was not exported
        is not billed. Contracts are kept elsewhere; see `Book.forget`.

        Raises:
            InvalidKey: that is no identity.
            HubUnavailable: the hub does not answer, may not be searched, or is none from which anything can be erased.
                The order stays; do it again.
        """
        return await self._erasing.forget(
            plain_identity(identity),
            self._lifecycle,
            wait_s=in_seconds(wait),
            timeout_s=self._settings.exchange_timeout,
        )

    def on_forget(self, method: Callable[[Callable[[str], bool]], None]) -> None:
        """Calls a bound method when an identity is erased, as long as its object lives.

        It gets a function that returns whether a name is to be erased; it must not wait, nor fail.
        """
        self._erasing.listen(method)

    @property
    def in_doubt(self) -> str:
        """Returns the default of integrations for a request that memory cannot settle."""
        return self._in_doubt

    @property
    def namespace(self) -> str:
        """Returns the namespace, which it shares with the agents of its fleet and with no other."""
        return self._settings.namespace

    @property
    def clock(self) -> Clock:
        """Where time comes from."""
        return self._clock

    @property
    def answers(self) -> int:
        """How many exchanges the hub has answered in this process."""
        return self._lifecycle.exchanges.answered

    @property
    def cut_off(self) -> bool:
        """Whether some shard did not answer the last exchange; false before the first."""
        return any(syncer.failing for syncer in self._lifecycle.syncers)

    @property
    def requires_hub(self) -> bool:
        """Whether it was made with `require_hub`."""
        return self._required.required

    @property
    def ready(self) -> bool:
        """Whether the hub has answered, and not so long ago that the allowances are void."""
        now_ns = self._clock.monotonic_ns()
        return all(now_ns < shard.lease_until_ns for shard in self._kernel.shards)

    def stats(self) -> AgentStats:
        """A snapshot of decisions and exchanges."""
        now_ns = self._clock.monotonic_ns()
        self.watch.look_at_room(self._kernel)
        limiters = list(self._limiters.values())
        boards = [limiter.control.enforcement for limiter in limiters]
        bans = [limiter.control.bans for limiter in limiters]
        by_ban = {each.table.name: each.refused for each in bans if each is not None}
        return AgentStats(
            hub=self._hub_name,
            running=self._lifecycle.running,
            kernel=IMPLEMENTATION,
            keys=self._kernel.keys,
            limits=stats_of_limits(dict(self._kernel.tables), boards, self.watch, by_ban),
            exchanges=tuple(syncer.stats(now_ns) for syncer in self._lifecycle.syncers),
            bugs=self._lifecycle.exchanges.bugs,
            bugs_in_a_row=self._lifecycle.exchanges.bugs_in_a_row,
            last_bug=self._lifecycle.exchanges.last_bug,
            restarts=self._lifecycle.exchanges.restarts,
            restorations=self._lifecycle.exchanges.restorations,
            overdue=self._lifecycle.exchanges.overdue_s,
            durations=self.watch.durations.copy(),
            orders=None if self._reader is None else self._overrides.with_refusals(self._reader.stats()),
        )

    def health(self) -> Health:
        """How well it can decide now, for a readiness probe: true while it can be sent requests."""
        return health_of(self.stats(), keys_max=self._kernel.keys_max)

    def snapshot(self) -> NodeSnapshot:
        """How this node stands, as a console shows it: `stats`, and the keys that have used most."""
        return self._publishing.snapshot(self)

    def load_snapshot(self) -> LoadSnapshot | None:
        """Returns this process's load, as a console shows it; None if there is none."""
        return self._publishing.load()

    def hide_from_consoles(self) -> None:
        """Leave no snapshots at the hub: this agent is part of a console, and none of the fleet that it shows."""
        self._publishing.hidden = True

    async def ask_hub(self, question: Callable[[Hub], Awaitable[T]]) -> T:
        """Put a question to the hub, over this agent's connections; waits for two exchange timeouts at most.

        Raises HubUnavailable: the hub does not answer, or there is none.
        """
        if self._kernel.alone:
            raise HubUnavailable("unsupported", f"{self._hub_name} is no hub that nodes share; name one", applied=False)
        timeout_s = ANSWERS * self._settings.exchange_timeout
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self._lifecycle.ask(question)), timeout_s)
        except TimeoutError:
            raise HubUnavailable("timeout", f"no answer within {timeout_s:g} s") from None

    @property
    def watch(self) -> AnswerStats:
        """Returns the facts in the hub's answers beside the allowances."""
        return self._lifecycle.exchanges.watch

    def add_hooks(self, hooks: Hooks) -> None:
        """Reports events to `hooks`, on a thread of its own that looks once a second; see `reconverge.hooks`."""
        self._hook_dispatcher.add(hooks)

    def remove_hooks(self, hooks: Hooks) -> None:
        """Send no more events to them."""
        self._hook_dispatcher.remove(hooks)

    def look(self) -> None:
        """Send the hooks now all events since the last look."""
        self._hook_dispatcher.look()

    def __repr__(self) -> str:
        return f"Agent({self._hub_name!r}, namespace={self._settings.namespace!r}, limits={sorted(self._limiters)})"

    def follow(self, make: Callable[[Clock, Callable[[], int]], AnyFollower]) -> AnyFollower:
        """Reads something else at the hub that all nodes share, once in an interval and beside the exchanges.

        `make` is handed the agent's clock, and what says how long the interval is, in nanoseconds; what it makes is
        returned. Raises InvalidSetting for an agent without a hub.
        """
        if self._lifecycle.hub is None:
            raise InvalidSetting(
                "hub", self._hub_name, "holds the data of this process alone; name a hub that nodes share"
            )
        follower = make(self._clock, self._pacing.shortest_ns)
        self._lifecycle.followers.append(follower)
        if self._lifecycle.running:
            self._lifecycle.wake()  # it may sleep for longer, as it had nothing to read
        return follower

    def wake_followers(self) -> None:
        """Makes followers look now, as far as they are due. Never waits, and may be called from any thread.

        For what makes a follower due ahead of time; unlike a decision it begins no exchanges.
        """
        if self._lifecycle.running:
            self._lifecycle.wake()

    # ------------------------------------------------------------ what the process does to it

    def start_over_after_fork(self) -> None:
        """In a forked child: the allowances, the counts and the connections are the parent's."""
        self._lifecycle.runner = None
        self._kernel.forget_everything()
        for limiter in self._limiters.values():
            limiter.control.start_over()
        self._erasing.begin()
        self._lifecycle.begin()
        if self._reader is not None:  # another thread of the parent's may have been about to obey
            self._pacing.forget_published()
            self._apply(self._reader.in_force)
        self._hook_dispatcher.start_over()
        self._publishing.begin()  # after that: the parent's thread may hold what the hooks wait with

    def stop_for_good(self, timeout_s: float) -> None:
        """Say the last words; the process ends, and no further decision brings the exchanges back."""
        self._lifecycle.ended = True
        self.stop(timeout_s)
        self._hook_dispatcher.stop()

    # ------------------------------------------------------------ inside

    def _forget_keys(self, keys: set[tuple[str, str]]) -> None:
        self.watch.forget(keys)

    def _apply(self, fleet_settings: FleetSettings | None) -> None:
        self._overrides.apply(fleet_settings, list(self._limiters.values()))


def _parts_of(parent: RateLimiter | None) -> tuple[Any, ...] | None:
    """Returns the tables of a parent. Raises InvalidSetting for a value that is no limiter, such as the name of one."""
    return None if parent is None else checked_kind("parent", parent, RateLimiter).control.tables
