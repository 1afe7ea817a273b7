"""An agent's own account of its decisions, exchanges and health."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from reconverge.exchange.answer_stats import BEYOND_CAP, AnswerStats
from reconverge.exchange.syncer import SyncerStats
from reconverge.limiter.asking import AskStats
from reconverge.limiter.modes import Enforcement
from reconverge.limiter.switches import ON
from reconverge.published.settings_reader import FleetSettingsStats
from reconverge.runtime.durations import Durations

if TYPE_CHECKING:
    from reconverge.kernel import Table


@dataclass(frozen=True, slots=True)
class LimitStats:
    """The decisions of one quota of a limit on this node. Decisions, not cost, unless noted."""

    admitted: int
    refused: int
    """Without those that had no consequence, because the limit was in shadow."""
    overflowed: int
    """Decisions about keys beyond `max_keys`, which share one count; a `strict` limit refuses them."""
    keys: int
    would_refuse: int = 0
    """Admitted all the same, because the limit was in shadow. Of several quotas, counted with the first for all."""
    unlimited: int = 0
    """Admitted without being asked, because the limit was off. Of several quotas, counted with the first for all."""
    near: int = 0
    """How often an exchange found a key that all nodes together had used 80 % of the quota for, once for each time."""
    overadmitted: int = 0
    """Cost that all nodes together have admitted beyond the capacity, as far as this one has learned by exchanges."""
    switch: str = ON
    """The switch in force: "on", "shadow" or "off"."""
    reentered: int = 0
    """Calls that came in the middle of a decision about this quota, on its thread: refused, or put off."""
    evicted: int = 0
    """Keys that were forgotten before they were idle, to make room for new ones."""
    smaller: int = 0
    """Answers about a key of which another node declares a smaller quota under the same name."""
    deferred: int = 0
    """New keys that had to wait for a later exchange, because the node reports at most `new_keys_max` per second."""
    asks: AskStats = field(default_factory=AskStats)
    """The ends of requests that memory could not settle, see `RateLimiter.ask`. Of several quotas, counted with the
    first for all."""
    in_use: int | None = None
    """Of a limit on what is in progress, how many slots are in use on this node; None of a limit on a rate."""
    past_lease: int = 0
    """How many of them on a lease that has ended: other nodes may use the same slots."""
    dropped_slots: int = 0
    """How many slots the interpreter has given back, because nothing else could: each is a missing `with`."""


@dataclass(frozen=True, slots=True)
class AgentStats:
    """A snapshot of one agent."""

    hub: str
    running: bool
    kernel: str
    keys: int
    limits: dict[str, LimitStats]
    exchanges: tuple[SyncerStats, ...]
    """One for each shard of the hub; empty when there is no hub."""
    bugs: int
    """Unforeseen failures that the exchange loop outlived."""
    bugs_in_a_row: int = 0
    """How many of them there were since an exchange was last answered."""
    last_bug: str = ""
    """The class of the last one."""
    restarts: int = 0
    """How often the exchange loop failed as a whole, and was begun again."""
    restorations: int = 0
    """How often the node went on under a new name because the process may be a copy, restored from an image."""
    overdue: float = 0.0
    """For how many seconds the exchange loop should have looked at what is due, and has not: something holds it up."""
    durations: Durations = field(default_factory=Durations)
    """How long the exchanges took that were answered."""
    orders: FleetSettingsStats | None = None
    """The state of published settings; None without a `settings_secret` and a hub."""


def stats_of_limits(
    tables: Mapping[str, Table], boards: Iterable[Enforcement], watch: AnswerStats, by_ban: Mapping[str, int]
) -> dict[str, LimitStats]:
    """Sums up the decisions about each quota, by its name; `boards` add their consequences, and `watch` the exchanges.

    `by_ban` is how many requests were refused by a ban, by the name of the quota that counts bans.
    """
    by_table: dict[str, tuple[int, int, int, str, AskStats]] = {}
    dropped: dict[str, int] = {}
    for board in boards:
        for number, table in enumerate(board.tables):
            would_refuse, unlimited = (0, 0) if number else (board.would_refuse, board.unlimited)
            asks = AskStats() if number else board.on.asking.stats
            dropped[table.name] = board.slots_dropped
            by_table[table.name] = (board.disregarded(table), would_refuse, unlimited, board.state, asks)
    stats: dict[str, LimitStats] = {}
    for name, table in tables.items():
        disregarded, would_refuse, unlimited, switch, asks = by_table.get(name, (0, 0, 0, ON, AskStats()))
        in_use, past_lease = table.slots_in_use() if table.limit.slots else (None, 0)
        stats[name] = LimitStats(
            admitted=table.admitted,
            refused=by_ban[name] if name in by_ban else max(0, table.refused - disregarded),
            overflowed=table.overflowed,
            keys=len(table.cells),
            would_refuse=would_refuse,
            unlimited=unlimited,
            near=watch.near[name],
            overadmitted=watch.over[name],
            smaller=watch.smaller[name],
            switch=switch,
            reentered=table.reentered,
            evicted=table.left_early,
            deferred=table.deferred,
            in_use=in_use,
            past_lease=past_lease,
            dropped_slots=dropped.get(name, 0),
            asks=asks,
        )
    return stats


HUB_FULL_GROUND: Final = "the hub has no room for further keys (hub_full); it serves those that it has"
READY: Final = "ready"
STARTING: Final = "starting"
DEGRADED: Final = "degraded"
PARTITIONED: Final = "partitioned"
STATES: Final = (READY, STARTING, DEGRADED, PARTITIONED)
"""From good to bad; the worst shard counts."""


@dataclass(frozen=True, slots=True)
class Health:
    """How well an agent can decide now, with the grounds for it. True while it can be sent requests.

    `ready`: the hub answers. `starting`: it has not been asked yet, or has not had the time to answer the first time.
    `degraded`: it does not answer just now, has no room for further keys, or keys share one count; decisions go on
    within their allowances.
    `partitioned`: it has not answered for so long that there are no allowances, and the policy alone decides.
    An exchange loop that something holds up, or of which every step raises, counts as a hub that does not answer.
    """

    state: str
    grounds: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.state in (READY, DEGRADED)


def health_of(stats: AgentStats, *, keys_max: int) -> Health:
    """Judges a snapshot."""
    findings = [_health_of_shard(number, shard, running=stats.running) for number, shard in enumerate(stats.exchanges)]
    findings += _health_of_loop(stats)
    for number, shard in enumerate(stats.exchanges):
        if shard.hub_full:
            findings.append((DEGRADED, f"shard {number}: {HUB_FULL_GROUND}; {shard.not_taken} times so far"))
    if stats.keys >= keys_max and any(limit.overflowed for limit in stats.limits.values()):
        findings.append((DEGRADED, f"max_keys={keys_max} keys are counted, and none of them may leave; {BEYOND_CAP}"))
    state = max((state for state, _ in findings), key=STATES.index, default=READY)
    return Health(state, tuple(ground for found, ground in findings if found != READY))


def _health_of_loop(stats: AgentStats) -> list[tuple[str, str]]:
    """Returns the findings about an exchange loop that does not do its work, whatever the hub is like."""
    allowances = any(shard.lease > 0 for shard in stats.exchanges)
    state = DEGRADED if allowances else PARTITIONED
    findings = []
    if stats.overdue > 0:
        late = f"the exchange loop is {stats.overdue:.1f} s late"
        findings.append((state, f"{late}, because something holds it up, such as a call that blocks its thread"))
    if stats.bugs_in_a_row:
        since = f"the exchange loop failed {stats.bugs_in_a_row} times since an exchange was last answered"
        findings.append((state, f"{since}, the last with {stats.last_bug}; see the log"))
    return findings


def _health_of_shard(number: int, shard: SyncerStats, *, running: bool) -> tuple[str, str]:
    failing = (
        f"shard {number}: {shard.failures_in_a_row} exchanges in a row have failed, the last with {shard.failing!r}"
    )
    if shard.lease > 0:
        if shard.failures_in_a_row:
            return DEGRADED, f"{failing}; allowances may be used for another {shard.lease:.1f} s"
        return READY, ""
    if shard.failures_in_a_row:
        return PARTITIONED, f"{failing}, and no allowances are left"
    if not running and shard.exchanges:
        return STARTING, f"shard {number}: the agent was stopped and exchanges nothing; the next decision begins again"
    if not running:
        return STARTING, f"shard {number}: no loop exchanges; the first decision starts one, or `with agent`"
    if shard.exchanges:
        over = f"shard {number}: the lease is over, or the agent was stopped"
        return PARTITIONED, f"{over}, and the hub has yet to answer under a new name"
    return STARTING, f"shard {number}: the hub has yet to answer"
