"""The statistics of an agent: its decisions, its exchanges and its health."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from reconverge.exchange.answer_stats import BEYOND_CAP, AnswerStats
from reconverge.exchange.syncer import SyncerStats
from reconverge.limiter.asking import AskStats
from reconverge.limiter.enforcement.modes import Enforcement
from reconverge.limiter.enforcement.switches import ON
from reconverge.published.settings_reader import FleetSettingsStats
from reconverge.runtime.durations import Durations
from reconverge.runtime.truth import no_number

if TYPE_CHECKING:
    from reconverge.kernel import Table


@dataclass(frozen=True, slots=True)
class LimitStats:
    """Counts of this node's decisions about one quota of a limit.

    A count is a number of decisions, not a sum of costs, unless noted.
    """

    admitted: int
    refused: int
    """Requests that the quota has refused. Requests that were admitted because the limit was in shadow are not
    counted."""
    overflowed: int
    """Decisions about keys for which `max_keys` has no room. They share one count; a `strict` limit refuses them."""
    keys: int
    would_refuse: int = 0
    """Requests that were admitted only because the limit was in shadow. For a limit with several quotas, the statistics
    of the first one count them."""
    unlimited: int = 0
    """Requests that were admitted without a decision, because the limit was off. For a limit with several quotas, the
    statistics of the first one count them."""
    near: int = 0
    """How often a key's use by all nodes has risen to 80 % of the quota, as the hub's answers report it."""
    overadmitted: int = 0
    """Cost that all nodes together have admitted beyond the capacity, as far as the hub has reported it to this
    node."""
    switch: str = ON
    """The switch in force: "on", "shadow" or "off"."""
    reentered: int = 0
    """Calls, for example in a signal handler, that came while their own thread was in a decision about this quota; they
    were refused, or put off."""
    evicted: int = 0
    """Keys that were evicted to make room for new keys, although they had not become idle."""
    smaller: int = 0
    """Answers of the hub about a key for which another node declares a smaller quota under the same name."""
    deferred: int = 0
    """New keys that had to wait for a later exchange, because the node reports at most `new_keys_max` per second."""
    asks: AskStats = field(default_factory=AskStats)
    """The results of requests that asked the hub because this node was in doubt; see `RateLimiter.ask`. For a limit
    with several quotas, only the statistics of the first one have them."""
    in_use: int | None = None
    """How many slots of a limit on work in progress are in use on this node; None for a limit on a rate."""
    past_lease: int = 0
    """How many of the slots in use have a lease that has ended, so that other nodes may use the same slots."""
    dropped_slots: int = 0
    """How many slots the garbage collector released because the program did not; each is a missing `with`."""


@dataclass(frozen=True, slots=True)
class AgentStats:
    """A snapshot of one agent's statistics."""

    hub: str
    running: bool
    kernel: str
    keys: int
    limits: dict[str, LimitStats]
    exchanges: tuple[SyncerStats, ...]
    """The exchanges with each shard of the hub; empty when there is no hub."""
    bugs: int
    """How often a step of the exchange loop has raised an unforeseen error; the loop went on each time."""
    bugs_in_a_row: int = 0
    """How many of the unforeseen errors counted by `bugs` have occurred since the hub last answered an exchange."""
    last_bug: str = ""
    """The name of the class of the last error that `bugs` counts; "" if there was none."""
    restarts: int = 0
    """How often the exchange loop has ended by an error, and was started again."""
    restorations: int = 0
    """How often the node took a new name because the process may be a copy, restored from an image."""
    overdue: float = 0.0
    """For how many seconds the exchange loop has been late to look for due work, because a call blocks its thread."""
    durations: Durations = field(default_factory=Durations)
    """A histogram of how long the exchanges took that the hub has answered."""
    orders: FleetSettingsStats | None = None
    """The state of published settings; None without a `settings_secret` and a hub."""


def stats_of_limits(
    tables: Mapping[str, Table], boards: Iterable[Enforcement], watch: AnswerStats, by_ban: Mapping[str, int]
) -> dict[str, LimitStats]:
    """Returns the statistics of each quota, by the quota's name.

    `tables` have the counts of decisions. `boards` have the counts of requests that were admitted because a limit was
    off or in shadow, and of requests that asked the hub. `watch` has counts from the hub's answers, such as how many
    keys have nearly used a quota. `by_ban` is the number of requests refused by a ban, by the name of the ban's quota.
    """
    by_table: dict[str, tuple[int, int, int, str, AskStats]] = {}
    refused_all: dict[str, int] = {}
    dropped: dict[str, int] = {}
    for board in boards:
        for number, table in enumerate(board.tables):
            would_refuse, unlimited = (0, 0) if number else (board.would_refuse, board.unlimited)
            asks = AskStats() if number else board.on.asking.stats
            dropped[table.name] = board.slots_dropped
            refused_all[table.name] = board.refused_all(table)
            by_table[table.name] = (board.disregarded(table), would_refuse, unlimited, board.state, asks)
    stats: dict[str, LimitStats] = {}
    for name, table in tables.items():
        disregarded, would_refuse, unlimited, switch, asks = by_table.get(name, (0, 0, 0, ON, AskStats()))
        in_use, past_lease = table.slots_in_use() if table.limit.slots else (None, 0)
        stats[name] = LimitStats(
            admitted=table.admitted,
            refused=by_ban[name] if name in by_ban else max(0, table.refused - disregarded) + refused_all.get(name, 0),
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
"""The states, from good to bad; an agent has the state of its worst shard."""


@no_number("a health", "write: if health, if not health", text="compare its state: health.state == 'ready'")
@dataclass(frozen=True, slots=True)
class Health:
    """The state of an agent's health, and the grounds for it.

    It is true if the state is `ready` or `degraded`: then requests can be sent to the agent's process.

    `ready`: the hub answers. `starting`: the agent has not exchanged yet, or the hub has not had time to answer.
    `degraded`: the hub does not answer just now, or has no room for further keys, or the agent has none, so that new
    keys share one count; decisions go on within their allowances. `partitioned`: the hub has not answered for so long
    that the allowances have expired, and the policy alone decides. An exchange loop that is blocked, or whose steps all
    raise errors, counts like a hub that does not answer.
    """

    state: str
    grounds: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.state in (READY, DEGRADED)


def health_of(stats: AgentStats, *, keys_max: int) -> Health:
    """Returns an agent's health, judged by its statistics; `keys_max` is the agent's setting `max_keys`."""
    findings = [_health_of_shard(number, shard, running=stats.running) for number, shard in enumerate(stats.exchanges)]
    findings += _health_of_loop(stats)
    for number, shard in enumerate(stats.exchanges):
        if shard.hub_full:
            findings.append((DEGRADED, f"shard {number}: {HUB_FULL_GROUND}; {shard.not_taken} times so far"))
    if stats.keys >= keys_max and any(limit.overflowed for limit in stats.limits.values()):
        findings.append((DEGRADED, f"max_keys={keys_max} keys are counted, and none can be evicted; {BEYOND_CAP}"))
    state = max((state for state, _ in findings), key=STATES.index, default=READY)
    return Health(state, tuple(ground for found, ground in findings if found != READY))


def _health_of_loop(stats: AgentStats) -> list[tuple[str, str]]:
    """Returns pairs of a state and its ground for an exchange loop that fails or is blocked; empty if it works."""
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
        return STARTING, f"shard {number}: the agent was stopped and exchanges nothing; the next decision restarts it"
    if not running:
        return STARTING, f"shard {number}: no exchange loop runs; the first decision starts one, or `with agent`"
    if shard.exchanges:
        over = f"shard {number}: the lease is over, or the agent was stopped"
        return PARTITIONED, f"{over}, and the hub has yet to answer under a new name"
    return STARTING, f"shard {number}: the hub has yet to answer"
