"""The public `Agent`: one node of a fleet, with its limits and its exchanges with the hub."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NoReturn, Self, TypeVar, overload

from reconverge.agent.assembly import Parts, assemble, reader_of
from reconverge.agent.environment import HUB, hub_as_said, log_variables
from reconverge.agent.erasing import WAIT_S, Erasing, Forgotten, plain_identity
from reconverge.agent.eviction_check import EvictionCheck
from reconverge.agent.fleet_usage import FleetUsage, ask_fleet, fleet_usages
from reconverge.agent.hook_dispatcher import HookDispatcher
from reconverge.agent.hub_check import CHECK_S, RequiredHub
from reconverge.agent.key_marks import KeyMarks
from reconverge.agent.lifecycle import Lifecycle
from reconverge.agent.notice import (
    ShortWindows,
    log_idle,
    log_idle_cap,
    log_installation,
    log_manual_clock,
    log_many,
    log_soft,
    log_switch_again,
)
from reconverge.agent.overrides import Overrides
from reconverge.agent.past_tiers import PastTiers
from reconverge.agent.snapshots.load_snapshot import LoadSnapshot
from reconverge.agent.snapshots.publishing import Publishing
from reconverge.agent.snapshots.snapshot import NodeSnapshot
from reconverge.arguments import NAMELESS, NUMBER, TakesArgumentsOnly, taken_by, with_advice
from reconverge.clock import SECOND_NS, Clock, ManualClock, Seconds, SystemClock, in_seconds
from reconverge.errors import HubUnavailable, InvalidSetting, LimitConflict, UnknownLimit, WrongMoment
from reconverge.exchange.answer_stats import AnswerStats
from reconverge.exchange.follower import Follower
from reconverge.exchange.schedule import Pacing, pace_of
from reconverge.exchange.task_runner import TaskRunner
from reconverge.exchange.thread_runner import ThreadRunner
from reconverge.hooks import Hooks
from reconverge.hub.headroom import SILENCE_MAX_S
from reconverge.hub.port import Hub
from reconverge.hub.registry import Credentials
from reconverge.kernel import ASKS_MAX, IMPLEMENTATION, NEW_KEYS_MAX, Table
from reconverge.limit.checks import check_name
from reconverge.limit.limit import Limit
from reconverge.limit.quotas import check_rate, quotas_of, slots_of
from reconverge.limiter.asking import ASK, within_s
from reconverge.limiter.enforcement.bans import Bans, BanTerms, ban_terms, names_of
from reconverge.limiter.enforcement.switches import Switch, checked_switch, switch_as_said
from reconverge.limiter.faces.kinds import AnyLimiter, checked_kind, limiter_of
from reconverge.limiter.faces.limiter import Limiter
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.limiter.faces.slot_limiter import SlotLimiter
from reconverge.policies import BALANCED, NAIVE, SLOTS_DEFAULT, Policy, choose
from reconverge.published.caps import caps_as_said
from reconverge.published.settings import FleetSettings
from reconverge.runtime.process import register
from reconverge.settings import (
    WAIT_MAX,
    AgentSettings,
    check_lease,
    check_slot_lease,
    checked_clock,
    checked_pace,
    checked_seconds,
)
from reconverge.stats import AgentStats, Health, health_of, stats_of_limits

logger = logging.getLogger("reconverge")

AnyRunner = TypeVar("AnyRunner", ThreadRunner, TaskRunner)
AnyFollower = TypeVar("AnyFollower", bound=Follower)
T = TypeVar("T")

AWAITING: Final = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""The flags in the code of a function that may await."""
OF_LIMIT: Final = "is a setting of the limit itself; write agent.limit(name, Limit(quota, window, {}))"
ELSEWHERE: Final = {
    "burst": OF_LIMIT.format("algorithm='token-bucket', burst=..."),
    **{
        name: OF_LIMIT.format(f"{name}=...")
        for name in ("slices", "count_refused", "warmup", "align", "timezone", "initial", "refill")
    },
    "key_func": "is a setting of the limits of a web framework; here pass the key with each decision, as in"
    " limiter.allow('ada')",
    **dict.fromkeys(("name", "limit"), "is missing; write agent.limit('login', '100/minute')"),
    "key": "belongs to each decision; write agent.limit(name, '5/minute').allow('ada')",
    NUMBER: "stands without a name; a window is a part of the limit, so write agent.limit('login', '100/minute'), or "
    "Limit(100, 60)",
}
"""Arguments that callers wrongly pass to `Agent.limit`, each with the error message that names the right place."""
OF_RATES: Final[dict[str, str]] = dict.fromkeys(
    ("algorithm", "soft", "max_debt", "parent", "block_after", "block_for"),
    "is a setting of limits on a rate, and this limit counts slots; leave it out",
)
"""Arguments that callers wrongly pass to `Agent.concurrency`, each with its error message."""
HUB_ALONE: Final = "Agent('redis://localhost:6379/0')"
OF_AGENT: Final = {
    **dict.fromkeys(
        ("url", "redis", "redis_url", "storage_uri", "storage", "broker", "uri", "client"),
        f"is called hub here; write {HUB_ALONE}",
    ),
    **dict.fromkeys(
        ("host", "port", "db", "password", "username", "ssl"), f"is a part of the hub's URL here; write {HUB_ALONE}"
    ),
    **dict.fromkeys(
        ("limit", "limits", "rate", "default_limits", "algorithm"),
        "belongs to a limit; write agent.limit('login', '5/minute')",
    ),
    NAMELESS: f"stands without a name, which only the hub may; write {HUB_ALONE}, and each other setting as name=value",
}
"""Arguments that callers wrongly pass to `Agent`, each with its error message."""


class Agent(TakesArgumentsOnly):
    """One node of a fleet that shares limits: decides from its own memory, and exchanges in the background.

        agent = Agent("redis://localhost:6379/0", namespace="shop")
        login = agent.limit("login", "100/minute")
        if login.allow("ada"): ...

    Exchanges begin with the first decision, on a thread of their own. `with agent:` begins them at once and sends the
    last reports at the end; `async with agent:` does the same in a task of the running loop.

    Args:
        hub: a URL (`memory://`, `embedded://`, `redis://`, ...) or a `Hub`. By default `RECONVERGE_HUB`, or
            `memory://`.
        namespace: fleets with different namespaces share nothing.
        sync_interval: seconds between exchanges, as a number or a `timedelta`, as all durations. A longer interval is
            cheaper and less exact; the most that the fleet admits beyond a limit does not depend on it.
        min_sync_interval: the fewest seconds before an urgent exchange may follow another exchange; by default a tenth
            of `sync_interval`.
        max_silence: seconds for which a node may leave charges unreported while their key is far from its limit; never
            more than a sixteenth of the window. If it is less than two sync intervals, each charge is reported with the
            next exchange.
        lease_ttl: seconds for which allowances may be used after the hub's last answer; by default ten windows of each
            limit, between 30 s and 600 s, but at least six sync intervals and three exchange timeouts.
        policy, max_overshoot, cold_allowance: how far a node may go beyond what it knows, for all limits without
            policies of their own; see `reconverge.policies`. By default `balanced`, and `strict` for work in progress.
        scarce: "hub" or "nodes": which side keeps the last few free requests of a quota, for limits whose requests ask
            the hub in doubt. With "hub", no request is refused falsely, but most are refused while the hub is away;
            with "nodes" it is the other way round. By default "hub".
        when_hub_is_away: how a node decides after a second (and three sync intervals) in which the hub answered no
            exchange. "share", the default: by its own parts of the quotas, so that the fleet keeps its bound, and
            refuses some requests that fit. "admit": as if the other nodes used nothing more, so that each node admits
            up to the whole quota. When the hub is back, it counts all that was admitted.
        max_keys: the number of keys that are counted separately. When it is nearly reached, keys that are idle or used
            least are evicted; the hub or a small memory goes on counting them. A key for which there is no room shares
            one count with others, or is refused in `strict`.
        new_keys_max: how many keys per second the hub is asked about for the first time; further keys wait for that and
            are decided by `cold_allowance` meanwhile. Limits share it evenly.
        asks_max: how many exchanges per second requests in doubt may cause, see `RateLimiter.ask`; beyond that
            memory decides. 0: no request asks.
        in_doubt: the default of integrations for a request that memory cannot decide for certain: ask the hub and wait
            at most 25 ms ("ask:25ms"), or let memory decide ("refuse"). `allow` and `hit` never wait.
        key_bytes_max: the length of the longest key, in bytes of UTF-8.
        exchange_timeout: seconds that one exchange may take.
        stop_timeout: seconds that sending the last reports may take.
        sigterm: whether SIGTERM ends the main thread as `sys.exit` would, so that no report is lost, unless the
            application has a handler of its own. Only the main thread can install that: it must make the agent, or be
            the first to use it. In a daemon of `multiprocessing`, such as a worker of a `Pool`, SIGTERM is left alone.
        switch: "on", "shadow" or "off", for all limits; see `switch`. By default `RECONVERGE_SWITCH`, or "on".
        settings_secret: the secret, at least 16 bytes, that signs the published settings which this agent applies.
            Several, separated by blanks or as a sequence, are all valid. By default `RECONVERGE_SETTINGS_SECRET`, if
            set.
        key_secret: a secret of at least 16 bytes, with which keys are hashed before the hub sees them. All nodes of the
            namespace need the same secret: nodes with different secrets count apart. By default
            `RECONVERGE_KEY_SECRET`, if set; without a secret the hub sees the keys.
        credentials: a function that returns the login to a Redis hub, `(user, password)` or `(password,)`, if the login
            changes. It is called on a thread before each connection; `get_credentials` of redis-py's providers is such
            a function. The URL then has no login. A `fallback` has its login in its own URL.
        fallback: another hub, a URL or a `Hub`, to exchange with while `hub` does not answer. While some nodes use
            `hub` and some the fallback, the fleet may admit up to twice as much as at one hub.
        region_share: the fraction of every limit that the agents at this hub have for themselves. The shares of all
            regions sum to at most 1; a bridge lends the rest to regions that need it. By default 1.0, for a fleet
            without other regions.
        require_hub: whether `start`, `with agent` and `async with agent` wait for the hub's answer, as `check` does,
            and stop the agent and raise `HubUnavailable` if no answer comes. The guards of web frameworks start such
            an agent when they are made.
        clock: the source of time.

    Raises:
        InvalidSetting: a setting is invalid.
        UnknownHub: no hub has the scheme of the URL.
        MissingExtra: the hub needs a package that is not installed.
        EventletPatched: eventlet has patched the threads that exchanges need.
    """

    @with_advice(OF_AGENT)
    def __init__(
        self,
        hub: str | Hub | None = None,
        *,
        namespace: str = "default",
        sync_interval: Seconds = 0.1,
        min_sync_interval: Seconds | None = None,
        max_silence: Seconds = SILENCE_MAX_S,
        lease_ttl: Seconds | None = None,
        policy: str | None = None,
        max_overshoot: float | None = None,
        cold_allowance: float | str | None = None,
        scarce: str | None = None,
        when_hub_is_away: str | None = None,
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
        credentials: Credentials | None = None,
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
            max_silence=max_silence,
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
        self._policy = choose(
            policy,
            max_overshoot=max_overshoot,
            cold_allowance=cold_allowance,
            scarce=scarce,
            when_hub_is_away=when_hub_is_away,
        )
        said = policy is not None or max_overshoot is not None
        self._slots_policy = (
            self._policy if said else choose(scarce=scarce, when_hub_is_away=when_hub_is_away, default=SLOTS_DEFAULT)
        )
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
            credentials=credentials,
        )
        self._hub_name, self._kernel = parts.hub_name, parts.kernel
        if isinstance(hub, str) and parts.hub is not None and isinstance(clock, ManualClock):
            log_manual_clock(parts.hub_name)
        self._limiters: dict[str, Limiter] = {}
        self._prepare_pace_and_overrides(parts, settings_secret)
        log_installation()
        log_variables()
        self._hook_dispatcher = HookDispatcher(self)
        self._prepare_exchanges(parts)

    def _prepare_pace_and_overrides(self, parts: Parts, secret: str | bytes | Sequence[str | bytes] | None) -> None:
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
            # Read as often as the node exchanges, by the shorter of its own and the published interval: so a published
            # interval that is too long can be replaced.
            interval_ns=self._pacing.shortest_ns,
            apply=self._apply,
        )

    def _prepare_exchanges(self, parts: Parts) -> None:
        """Makes the objects that exchange with the hub, without starting them, and registers the agent in its process.

        A registered agent starts over in a forked child, and sends its last reports when the process ends.
        """
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
            marks = KeyMarks(parts.hasher, parts.kernel, self._clock)
            evictions = EvictionCheck(self._clock)
            self._lifecycle.followers += (self._erasing, self._past_tiers, self._publishing, marks, evictions)
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
        cold_allowance: float | str | None = None,
        scarce: str | None = None,
        when_hub_is_away: str | None = None,
        sync_interval: Seconds | None = None,
        switch: Switch | None = None,
        cap: str | None = None,
        block_after: str | None = None,
        block_for: Seconds | str | None = None,
    ) -> RateLimiter:
        """Declares a limit on a rate, as a string like `100/minute` or a `Limit`, and returns its limiter.

        Declaring a limit again with the same settings returns the same limiter. Several quotas, as in `10/second;
        1000/hour` or as a sequence of strings and `Limit`, must all admit a request. Settings are for all of them; see
        `Limit` for `soft` (which may be "10%"), `max_debt` and `costs`.

        With a `parent`, another limiter of this agent, the limit is a share of the parent's quota that no other limit
        can use. Beyond its share the limit may borrow from the part of the parent's quota that is left for all.
        `switch` is as in `Limiter.switch`; by default a limit stays as it was, or is on. `sync_interval` is the number
        of seconds between two exchanges of this limit's counts, by default the agent's; see `change_pace`.

        `cap` is the highest limit that published settings may set, as a limit string with the same windows. Without a
        `cap`, they can lower the limit or switch it off, but not raise it. `block_after` ("20/minute") begins a ban of
        a key that all nodes together have refused so often, for certain: for `block_for` ("10 minutes", or seconds) it
        is refused even if it has quota left; see docs/guide/bans.md. Use `concurrency` to limit work in progress.

        Raises:
            InvalidLimit: the name or the limit is invalid, or the limit is one on work in progress.
            LimitConflict: another limit has the name already.
            InvalidSetting: the policy or the interval is invalid, or a setting contradicts the limit.
        """
        quotas = quotas_of(name, limit, algorithm=algorithm, soft=soft, max_debt=max_debt, costs=costs)
        check_rate(name, quotas)
        limiter = self._declared(
            name,
            quotas,
            (policy, max_overshoot, cold_allowance, scarce, when_hub_is_away),
            sync_interval=sync_interval,
            switch=switch,
            cap=cap,
            parents=None if parent is None else checked_kind("parent", parent, RateLimiter).control.tables,
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
        cold_allowance: float | str | None = None,
        scarce: str | None = None,
        when_hub_is_away: str | None = None,
        sync_interval: Seconds | None = None,
        switch: Switch | None = None,
        cap: str | None = None,
    ) -> SlotLimiter:
        """Declares a limit on work in progress at once, for each key and on all nodes together. Returns its limiter.

            render = agent.concurrency("render", 20)
            with render.slot("ada") as slot:
                if slot: ...

        The limit is a number of slots, a string like `20 in flight`, or a `Limit`. `lease` is the number of seconds for
        which the slots of a silent node stay taken, by default 5; at least six sync intervals and three exchange
        timeouts. See `SlotLimiter.slot`, and `limit` for the other settings.

        Raises:
            InvalidLimit: it does not limit work in progress, or the name cannot be used.
            LimitConflict, InvalidSetting: as `limit` does.
        """
        limiter = self._declared(
            name,
            quotas_of(name, slots_of(limit, lease), costs=costs),
            (policy, max_overshoot, cold_allowance, scarce, when_hub_is_away),
            sync_interval=sync_interval,
            switch=switch,
            cap=cap,
        )
        return checked_kind("name", limiter, SlotLimiter)

    def declare(self, name: str, limit: str | Limit | Sequence[str | Limit], **settings: Any) -> Limiter:
        """Declares a limit by `concurrency` if it limits work in progress, else by `limit`. Returns its limiter.

        For limits from a file or a rule. A setting that is None counts as left out.
        """
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
        daring: tuple[str | None, float | None, float | str | None, str | None, str | None],
        *,
        sync_interval: Seconds | None,
        switch: Switch | None,
        cap: str | None,
        parents: tuple[Any, ...] | None = None,
        terms: BanTerms | None = None,
    ) -> Limiter:
        """Declares a limit with these quotas, by the settings that rate limits and slots share. Returns its limiter.

        `daring` holds `policy`, `max_overshoot`, `cold_allowance`, `scarce` and `when_hub_is_away`; `parents` are the
        tables of the limit whose share this is, and `terms` define the bans.
        """
        sync_interval = in_seconds(sync_interval)
        self._check_switch_and_interval(switch, sync_interval, quotas)
        slots = any(quota.slots for quota in quotas.values())
        chosen = self._policy_for(slots=slots)
        if any(setting is not None for setting in daring):
            policy, max_overshoot, cold_allowance, scarce, when_hub_is_away = daring
            chosen = choose(
                policy,
                max_overshoot=max_overshoot,
                cold_allowance=cold_allowance,
                scarce=scarce,
                when_hub_is_away=when_hub_is_away,
                default=SLOTS_DEFAULT if slots else BALANCED,
            )
        if cap is not None:
            caps_as_said(name, quotas, cap)
            if self._reader is None and not self._kernel.alone:
                log_idle_cap(name, cap)
        with self._overrides.lock:
            limiter, known = self._declare(name, quotas, chosen, parents, terms)
            if known and switch is not None:
                log_switch_again(name, limiter.control.own_switch, switch)
            self._set(limiter, cap, switch, sync_interval)
            if cap is not None or not known:
                self._overrides.apply_to(limiter)
                self._look_at_windows([limiter])
                log_soft(quotas)
            if not known:
                log_many(len(self._limiters), name)
                self._lifecycle.has_declared(name)
                if cap is None:  # otherwise published settings may raise the other quota
                    log_idle(quotas)
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
        """Declares one of several limits that share a name at the hub, such as one limit for each plan of customers.

        Limits with the same `limit_name` that differ only in their quotas share their keys. A key is in one of them at
        a time; when its next request goes to another one, the key moves there with its use. `name` is this limit's name
        in `stats()`. Of published settings, only the switch (on, shadow, off) applies to such limits. It is published
        for `limit_name` or for `called`, and applies to all limits with that name. With `has_cap`, a published switch
        that refuses less than this node's own has no effect.

        Raises:
            InvalidLimit, LimitConflict: as `limit` does; LimitConflict also if the other limits have another policy.
            InvalidSetting: the policy is invalid, or the lease of a limit on work in progress is too short.
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
        return self._slots_policy if slots else self._policy

    def drop_tiers(self, names: Iterable[str]) -> None:
        """Removes limits that `tier` declared, each as soon as it counts no key.

        `stats()` includes them until then. Of the limits that share a name at the hub, the last one stays. A limit that
        is declared again before then stays. Names without a limit are ignored.

        Raises InvalidSetting for the name of a limit that `limit` declared.
        """
        named = list(names)
        for name in named:
            table = self._kernel.tables.get(name)
            if table is not None and table.reported_as == name:
                raise InvalidSetting(
                    "names",
                    name,
                    "was declared by `limit`, and only limits declared by `tier` can be dropped; leave it out",
                )
        self._past_tiers.add(named)

    def _check_switch_and_interval(
        self, switch: Switch | None, sync_interval: float | None, quotas: Mapping[str, Limit]
    ) -> None:
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
        """Returns the limiter called `name`, newly made if needed, and True if the limit was declared before.

        Raises LimitConflict.
        """
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
        """Returns the terms of a limit's bans: how many refusals begin a ban, and how long it lasts. None without bans.

        Raises InvalidSetting if the limit cannot have bans, or was declared before with other terms.
        """
        terms = ban_terms(block_after, block_for)
        if terms is None:
            return None
        if any(each.smooth for each in quotas.values()):
            problem = "counts only certain refusals, and a smooth limit has none; leave out block_after and block_for"
            raise InvalidSetting("block_after", block_after, problem)
        known = self._limiters.get(name)
        bans = None if known is None else known.control.bans
        if known is not None and (bans is None or bans.terms != terms):
            problem = f"differs from the ban that {name!r} was declared with; pass the same, or leave it out to keep it"
            raise InvalidSetting("block_for", block_for, problem)
        if known is None:
            self._check_free(zip(names_of(name), terms, strict=True))
        return terms

    def _check_free(self, wanted: Iterable[tuple[str, Limit]]) -> None:
        for name, limit in wanted:
            self._kernel.composites.refuse(name, limit)
            table = self._kernel.tables.get(name)
            if table is not None and (name in self._limiters or table.limit != limit):
                raise LimitConflict(name, table.limit, limit)

    def _bans_of(self, name: str, terms: BanTerms) -> Bans:
        """Makes the bans of a limit, with a table that counts refusals and a table that counts bans.

        Raises LimitConflict if another limit has the name of one of these tables.
        """
        refusals, ban = (
            self._kernel.declare(each, limit, NAIVE) for each, limit in zip(names_of(name), terms, strict=True)
        )
        bans = Bans(refusals, ban)
        self.on_forget(bans.forget)
        return bans

    def _set(self, limiter: Limiter, cap: str | None, switch: Switch | None, sync_interval: float | None) -> None:
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
        """Returns the limiter called `name`, which must be of class `kind` (`Limiter`: of any class).

        Raises UnknownLimit if no limit has the name, and InvalidSetting for a limiter of another class.
        """
        if name not in self._limiters:
            raise UnknownLimit(name, self._limiters)
        return checked_kind("kind", self._limiters[name], kind)

    @property
    def switched(self) -> Switch:
        """Returns the agent's own switch: "on", "shadow" or "off".

        If a limit's own switch refuses less than the agent's, the limit's own is in force for it.
        """
        return self._switched

    def switch(self, to: Switch) -> None:
        """Switches all limits of this agent to "on", "shadow" (refuse nothing) or "off", from the next decision on.

        Each limit follows the agent's switch or its own, whichever refuses less; so when the agent is "on", each limit
        follows its own. Exchanges go on. A switch that is published for the fleet replaces the agent's as long as it is
        in force. Raises InvalidSetting for a word that is no switch.
        """
        self._switched = checked_switch(to)
        for limiter in list(self._limiters.values()):
            limiter.control.set_agent_switch(self._switched)

    def reset(self) -> None:
        """Erases the counts and bans of all keys that this process has counted, on all nodes, as between two tests.

        Each key is reset as by `RateLimiter.reset`. Slots that are held stay held.
        """
        for limiter in list(self._limiters.values()):
            if isinstance(limiter, RateLimiter):
                limiter.control.reset_all()

    @property
    def limiters(self) -> dict[str, Limiter]:
        """Returns the limiters of all limits that this agent has declared, by name."""
        return dict(self._limiters)

    def change_pace(
        self, sync_interval: Seconds | None, min_sync_interval: Seconds | None = None, *, limit: str | None = None
    ) -> None:
        """Changes the interval of exchanges to `sync_interval` seconds, as if the agent had been made with it.

        With the name of a `limit`, changes only that limit's interval; None makes it use the agent's interval again. A
        limit with a longer interval takes no part in the exchanges in between, except for urgent keys; one with a
        shorter interval has exchanges of its own. Other agents of the fleet may have other intervals.

        Raises:
            InvalidSetting: leases are too short for that; nothing has changed then.
            UnknownLimit: no limit has that name.
        """
        self.plan_pace(sync_interval, min_sync_interval, limit=limit)()

    def plan_pace(
        self, sync_interval: Seconds | None, min_sync_interval: Seconds | None = None, *, limit: str | None = None
    ) -> Callable[[], None]:
        """Checks a change of the sync interval as `change_pace`. Returns a function that makes it and cannot fail."""
        if limit is not None:
            self.limiter(limit, Limiter)
        return self._pacing.plan(in_seconds(sync_interval), in_seconds(min_sync_interval), limit=limit)

    def _look_at_windows(self, limiters: Sequence[Limiter]) -> None:
        for limiter in () if self._kernel.alone else limiters:
            bans = limiter.control.bans
            self._short_windows.look((*limiter.control.tables, *(() if bans is None else bans.tables)))

    def _take_pace(self) -> None:
        self._look_at_windows(list(self._limiters.values()))
        for syncer in self._lifecycle.syncers:
            syncer.take_pace()
        if self._lifecycle.running:
            self._lifecycle.wake()

    # ------------------------------------------------------------ running

    def start(self) -> None:
        """Starts the exchanges on a thread of their own, unless they run. Waits for the hub only with `require_hub`.

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
        """Checks whether the hub answers: starts the exchanges if needed, and waits until every shard has answered.

        This method blocks, so use `check_async` in a coroutine. A plain function may call it even while an event loop
        runs on its thread: servers import modules while their loop runs, and a module cannot await.

        Args:
            timeout: seconds after which a hub counts as one that does not answer. A wrong setting, such as a password,
                ends the check at once.

        Raises:
            HubUnavailable: the hub does not answer; the error's kind and problem have the reason.
            InvalidSetting: neither the program nor the environment has named a hub. If they name `memory://`, the
                check succeeds at once.
            WrongMoment: the caller is a coroutine, or runs in the event loop that `async with agent` exchanges in.
        """
        if sys._getframe(1).f_code.co_flags & AWAITING:  # noqa: SLF001  # `inspect` has it so, and reads files
            raise WrongMoment("check() would block the event loop; write `await agent.check_async()` here")
        self._check(timeout)

    def _check(self, timeout: Seconds) -> None:
        runner = self._lifecycle.listening
        if isinstance(runner, TaskRunner) and runner.is_here:
            raise WrongMoment(
                "check() would block the event loop in which this agent exchanges with its hub; "
                "write `await agent.check_async()` here"
            )
        paused = threading.Event()  # fork: no other thread has this generator
        for pause_s in self._lifecycle.look_for_answers(timeout):
            paused.wait(pause_s)

    async def check_async(self, timeout: Seconds = CHECK_S) -> None:
        """Checks the hub as `check` does, without blocking the event loop."""
        for pause_s in self._lifecycle.look_for_answers(timeout):
            await asyncio.sleep(pause_s)

    def stop(self, timeout: Seconds | None = None) -> None:
        """Sends the last reports and stops exchanging; waits at most `timeout` seconds (by default `stop_timeout`).

        In the event loop of an `async with agent` block, `stop` returns at once; the end of the block waits instead.
        Decisions stay possible, and the next decision starts exchanges again, under a new node name.
        """
        given = self._settings.stop_timeout if timeout is None else timeout
        self._lifecycle.stop(checked_seconds("timeout", given, 0.0, WAIT_MAX))

    def __enter__(self) -> Self:
        self._lifecycle.in_a_block()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        self._lifecycle.in_a_block()
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
        """Returns the use of a key on all nodes, for the quota that has the least left; see `fleet_usages`."""
        usages = await self.fleet_usages(limiter, key)
        return min(usages.values(), key=lambda usage: usage.left)

    async def fleet_usages(self, limiter: Limiter, key: str) -> dict[str, FleetUsage]:
        """Asks the hub for the use of a key on all nodes, for each quota; in one round trip for each shard.

        The result is the same on every node: the sum of all reports, at most a sync interval old. Nothing is charged,
        the hub stores nothing new, and no decision waits. If the hub cannot be asked, the result is from this node's
        memory; `fleetwide` and `problem` show that. Waits for two exchange timeouts at most.

        Raises:
            InvalidKey: the key is not a usable string.
            InvalidSetting: the limiter is another agent's.
        """
        self._check_own(limiter)
        return await fleet_usages(limiter, key, self._kernel, self._lifecycle)

    async def fleet_usages_of(self, asked: Sequence[tuple[Limiter, str]]) -> list[FleetUsage]:
        """Asks the hub for the use of several keys at once, each with its limiter; one round trip for each shard.

        Returns a usage for each pair, for the quota that has the least left. Keys of one shard are read at one moment.

        Raises:
            HubUnavailable: the hub does not answer, keeps no keys, or does not let keys be read.
            InvalidKey, InvalidSetting: as `fleet_usages` does.
        """
        pairs: list[tuple[Table, str]] = []
        for limiter, key in asked:
            self._check_own(limiter)
            checked = limiter.control.table.check_key(key)
            pairs += [(table, checked) for table in limiter.control.tables]
        if self._kernel.alone:
            problem = f"the hub {self._lifecycle.hub_name} keeps no keys; name a hub that nodes share, such as a Redis"
            raise HubUnavailable("unsupported", problem, applied=False)
        usages = iter(await ask_fleet(pairs, self._kernel, self._lifecycle))
        return [
            min((next(usages) for _ in limiter.control.tables), key=lambda usage: usage.left) for limiter, _ in asked
        ]

    def _check_own(self, limiter: Limiter) -> None:
        """Raises InvalidSetting for an object that is no limiter of this agent."""
        if not isinstance(limiter, Limiter) or self._limiters.get(limiter.name) is not limiter:
            raise InvalidSetting("limiter", limiter, "is no limiter of this agent; pass one that agent.limit returned")

    async def forget(self, identity: str, *, wait: Seconds = WAIT_S) -> Forgotten:
        """Erases all data of an identity: on this node, on all other nodes and at the hub, with its usage.

        The identity is a customer or another thing that limits count by. `forget` erases every key that is the
        identity, and every key that a contract made of several facts, such as customer and region, if one of them is
        the identity. It sends an order to all nodes, and waits at most `wait` seconds until no node has the identity
        any more. The result shows how much was erased, and how much is left.

        The use of limits is erased, too, as by a reset: if the identity comes again it begins anew. So end its requests
        first; while they go on, the identity stays, and its use counts. Usage that was not exported is not billed.
        Contracts are not erased; see `Book.forget`.

        Raises:
            InvalidKey: the identity is not a usable string.
            HubUnavailable: the hub does not answer, does not permit a search, or cannot erase anything. The order
                stays; repeat the call.
        """
        wait_s = checked_seconds("wait", wait, 0.0, WAIT_MAX)
        return await self._erasing.forget(plain_identity(identity), self._lifecycle, wait_s=wait_s)

    def on_forget(self, method: Callable[[Callable[[str], bool]], None]) -> None:
        """Registers a bound method to be called whenever an identity is erased, as long as the method's object lives.

        The method gets a function that returns whether a name is to be erased. The method must neither wait nor raise.
        """
        self._erasing.listen(method)

    @property
    def in_doubt(self) -> str:
        """Returns how integrations treat a request that memory cannot decide for certain: `ask:25ms` or `refuse`.

        `ask:25ms` waits for the hub for at most the given time; `refuse` lets memory decide.
        """
        return self._in_doubt

    @property
    def namespace(self) -> str:
        """Returns the namespace, which all agents of a fleet share."""
        return self._settings.namespace

    @property
    def clock(self) -> Clock:
        """Returns the agent's source of time, by default the clocks of the system."""
        return self._clock

    @property
    def answers(self) -> int:
        """Returns how many exchanges with this agent the hub has answered since the process began or forked."""
        return self._lifecycle.exchanges.answered

    @property
    def cut_off(self) -> bool:
        """Returns whether a shard of the hub did not answer its last exchange; False before the first exchange."""
        return any(syncer.failing for syncer in self._lifecycle.syncers)

    @property
    def requires_hub(self) -> bool:
        """Returns whether the agent was made with `require_hub`."""
        return self._required.required

    @property
    def ready(self) -> bool:
        """Returns whether the hub has answered so recently that the node's allowances are still valid."""
        now_ns = self._clock.monotonic_ns()
        return all(now_ns < shard.lease_until_ns for shard in self._kernel.shards)

    def stats(self) -> AgentStats:
        """Returns a copy of the counters of decisions and exchanges."""
        now_ns = self._clock.monotonic_ns()
        self.watch.look_at_keys(self._kernel)
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
        """Returns the agent's health, for a readiness probe: it is true while the process can be sent requests."""
        return health_of(self.stats(), keys_max=self._kernel.keys_max)

    def snapshot(self) -> NodeSnapshot:
        """Returns this node's state as a console shows it: its `stats`, and the keys that have used most."""
        return self._publishing.snapshot(self)

    def load_snapshot(self) -> LoadSnapshot | None:
        """Returns this process's load as a console shows it: its stacks of load shedders, and its waiting requests.

        Returns None if the process has neither.
        """
        return self._publishing.load()

    def hide_from_consoles(self) -> None:
        """Makes the agent send no snapshots: it is part of a console itself, and not of the fleet that this shows."""
        self._publishing.hidden = True

    async def ask_hub(self, question: Callable[[Hub], Awaitable[T]]) -> T:
        """Calls `question` with the hub, over this agent's connections, and returns its result.

        Waits at most two exchange timeouts. Raises HubUnavailable if the hub does not answer, or there is none.
        """
        if self._kernel.alone:
            raise HubUnavailable("unsupported", f"{self._hub_name} is no hub that nodes share; name one", applied=False)
        return await self._lifecycle.answer(question, undone=f"the hub {self._hub_name} has not answered")

    @property
    def watch(self) -> AnswerStats:
        """Returns statistics of the hub's answers: durations of exchanges, and keys that have nearly used a quota."""
        return self._lifecycle.exchanges.watch

    def add_hooks(self, hooks: Hooks) -> None:
        """Calls the methods of `hooks` for events of this agent, within about a second, on a separate thread.

        See `reconverge.hooks`.
        """
        self._hook_dispatcher.add(hooks)

    def remove_hooks(self, hooks: Hooks) -> None:
        """Stops calling the methods of `hooks` for events."""
        self._hook_dispatcher.remove(hooks)

    def look(self) -> None:
        """Calls the hooks at once for all events since the last call, which otherwise happens once a second."""
        self._hook_dispatcher.look()

    def _where_to_pass(self) -> Mapping[str, str]:
        return {**taken_by(Agent.__init__, "Agent(NAME=...)"), "switch": "agent.switch(...)"}

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an Agent cannot be pickled, because it has connections and threads; make one in each process,"
            " and pickle its limiters"
        )

    def __repr__(self) -> str:
        return f"Agent({self._hub_name!r}, namespace={self._settings.namespace!r}, limits={sorted(self._limiters)})"

    def follow(self, make: Callable[[Clock, Callable[[], int]], AnyFollower]) -> AnyFollower:
        """Adds a follower to the agent, and returns it: an object that regularly reads published data at the hub.

        `make(clock, interval_ns)` makes the follower; it gets the agent's clock, and a function that returns the sync
        interval in nanoseconds. Raises InvalidSetting for an agent without a hub.
        """
        if self._lifecycle.hub is None:
            raise InvalidSetting(
                "hub", self._hub_name, "holds the data of this process alone; name a hub that nodes share"
            )
        follower = make(self._clock, self._pacing.shortest_ns)
        self._lifecycle.followers.append(follower)
        if self._lifecycle.running:
            self._lifecycle.wake()  # the runner may sleep for longer, as it had nothing to read
        return follower

    def wake_followers(self) -> None:
        """Makes each object added by `follow` read its published data at once, if it is due. Never waits.

        Call it when such an object has become due earlier than planned. Unlike a decision, the call does not start the
        exchanges.
        """
        if self._lifecycle.running:
            self._lifecycle.wake()

    # ------------------------------------------------------------ what the process does to it

    def start_over_after_fork(self) -> None:
        """Makes the agent a new node in a forked child: drops the parent's allowances, counts and connections."""
        self._lifecycle.runner = None
        self._kernel.forget_everything()
        for limiter in self._limiters.values():
            limiter.control.start_over()
        self._erasing.begin()
        self._lifecycle.begin()
        if self._reader is not None:  # another thread of the parent may have been about to apply settings
            self._pacing.forget_published()
            self._apply(self._reader.in_force)
        self._hook_dispatcher.start_over()
        self._publishing.begin()  # after the hooks, which may wait with a lock that the parent's thread holds
        if self._limiters:
            self._lifecycle.has_forked()

    def stop_for_good(self, timeout_s: float) -> None:
        """Sends the last reports as the process ends; decisions after that do not start exchanges again."""
        self._lifecycle.ended = True
        self.stop(timeout_s)
        self._hook_dispatcher.stop()

    # ------------------------------------------------------------ inside

    def _forget_keys(self, keys: set[tuple[str, str]]) -> None:
        self.watch.forget(keys)

    def _apply(self, fleet_settings: FleetSettings | None) -> None:
        self._overrides.apply(fleet_settings, list(self._limiters.values()))
