"""The metrics of an agent, for any collector.

At each collection, they are read from counters that the agent keeps anyway. No metric has the key as a label, and the
number of label values is bounded: limits beyond `limits_max` share one series.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal

from reconverge.errors import InvalidSetting
from reconverge.limiter.asking import RESULTS as ASKED
from reconverge.limiter.asking import AskStats
from reconverge.published.envelope import REASONS
from reconverge.published.reader import UNFIT
from reconverge.published.settings_reader import FleetSettingsStats
from reconverge.stats import STATES, AgentStats, Health, LimitStats

if TYPE_CHECKING:
    from reconverge.agent.agent import Agent

LIMITS_MAX: Final = 100
CLASSES_MAX: Final = 50
"""The most classes of failures that have a series of their own; about thirty classes exist."""
OTHER: Final = "(other)"
"""The label for all limits and classes beyond the bounds. No limit can have this name."""
HOLDS: Final = "holds"
ENDED: Final = "ended"
"""The label of slots whose lease has ended."""
DURATIONS: Final = "reconverge_sync_duration_seconds"

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Metric:
    """The name, kind and labels of one metric, which every agent has."""

    name: str
    """The name in Prometheus, with the suffix that Prometheus gives to counters."""
    kind: Kind
    help: str
    labels: Labels = ()


METRICS: Final = (
    Metric("reconverge_requests_total", "counter", "Decisions, by result.", ("limit", "result")),
    Metric("reconverge_near_limit_total", "counter", "How often a key had used up 80 % of its quota.", ("limit",)),
    Metric("reconverge_overadmitted_total", "counter", "Cost that the fleet admitted beyond a capacity.", ("limit",)),
    Metric("reconverge_keys", "gauge", "Keys that are counted.", ("limit",)),
    Metric("reconverge_evicted_keys_total", "counter", "Keys forgotten while they were in use.", ("limit",)),
    Metric("reconverge_deferred_keys_total", "counter", "New keys whose first report had to wait.", ("limit",)),
    Metric("reconverge_overflowed_total", "counter", "Decisions about keys for which memory had no room.", ("limit",)),
    Metric("reconverge_asks_total", "counter", "Requests in doubt, by result.", ("limit", "result")),
    Metric("reconverge_ask_wait_seconds_total", "counter", "Time that requests in doubt have waited.", ("limit",)),
    Metric("reconverge_slots_in_use", "gauge", "Slots in use on this node, by their lease.", ("limit", "lease")),
    Metric("reconverge_slots_dropped_total", "counter", "Slots that garbage collection has given back.", ("limit",)),
    Metric(DURATIONS, "histogram", "Durations of exchanges that the hub has answered."),
    Metric("reconverge_sync_failures_total", "counter", "Exchanges that failed, by the class of failure.", ("class",)),
    Metric("reconverge_pending_reports", "gauge", "Keys whose use is not reported to the hub yet."),
    Metric("reconverge_keys_not_taken_total", "counter", "How often the hub had no room for a key."),
    Metric("reconverge_staleness_seconds", "gauge", "Age of the last answer of the hub; infinite before the first."),
    Metric("reconverge_health", "gauge", "1 for the state that the agent is in.", ("state",)),
    Metric("reconverge_settings_version", "gauge", "Version of the published settings in force; 0 for the node's own."),
    Metric(
        "reconverge_settings_rejected_total",
        "counter",
        "Published settings that were rejected, by reason.",
        ("reason",),
    ),
    Metric("reconverge_bugs_total", "counter", "Unforeseen failures that the agent outlived."),
)
RESULTS: Final = ("admitted", "refused", "would_refuse", "unlimited")
"""The results of a decision: admitted, refused, admitted only because the limit is in shadow, admitted because it is
off. `LimitStats` has a counter of each name."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The value of one series of a metric, with the series' labels."""

    labels: Labels
    value: float


class Readings:
    """Reads an agent's metrics into lists of series by metric name, the series always in the same order.

    The histogram of durations is left out. Raises InvalidSetting unless `limits_max` is a whole number of at least 1.
    """

    def __init__(self, limits_max: int = LIMITS_MAX) -> None:
        if isinstance(limits_max, bool) or not isinstance(limits_max, int) or limits_max < 1:
            raise InvalidSetting("limits_max", limits_max, "must be a whole number of at least 1")
        self._limits_max = limits_max

    def of_agent(self, agent: Agent) -> dict[str, list[Reading]]:
        """Returns an agent's metrics as they are now."""
        return self.of(agent.stats(), agent.health())

    def of(self, stats: AgentStats, health: Health) -> dict[str, list[Reading]]:
        """Returns the metrics of an agent with these `stats` and this `health`, as they were when they were read."""
        limits = dict(self._limits(stats))
        failures: Counter[str] = Counter()
        for shard in stats.exchanges:
            for kind, count in shard.failures.items():
                failures[kind if kind in failures or len(failures) < CLASSES_MAX else OTHER] += count
        published = stats.orders or FleetSettingsStats()
        return {
            "reconverge_requests_total": [
                Reading((name, result), getattr(limit, result)) for name, limit in limits.items() for result in RESULTS
            ],
            "reconverge_near_limit_total": [Reading((name,), limit.near) for name, limit in limits.items()],
            "reconverge_overadmitted_total": [Reading((name,), limit.overadmitted) for name, limit in limits.items()],
            "reconverge_keys": [Reading((name,), limit.keys) for name, limit in limits.items()],
            "reconverge_evicted_keys_total": [Reading((name,), limit.evicted) for name, limit in limits.items()],
            "reconverge_deferred_keys_total": [Reading((name,), limit.deferred) for name, limit in limits.items()],
            "reconverge_overflowed_total": [Reading((name,), limit.overflowed) for name, limit in limits.items()],
            "reconverge_asks_total": [
                Reading((name, result), limit.asks.results[result])
                for name, limit in limits.items()
                for result in ASKED
            ],
            "reconverge_ask_wait_seconds_total": [
                Reading((name,), limit.asks.durations.sum) for name, limit in limits.items()
            ],
            "reconverge_slots_in_use": [
                Reading((name, lease), count) for name, limit in limits.items() for lease, count in _slots_of(limit)
            ],
            "reconverge_slots_dropped_total": [Reading((name,), limit.dropped_slots) for name, limit in limits.items()],
            "reconverge_sync_failures_total": [Reading((kind,), count) for kind, count in failures.items()],
            "reconverge_pending_reports": [Reading((), sum(shard.pending for shard in stats.exchanges))],
            "reconverge_keys_not_taken_total": [Reading((), sum(shard.not_taken for shard in stats.exchanges))],
            "reconverge_staleness_seconds": [
                Reading((), max((shard.staleness for shard in stats.exchanges), default=0.0))
            ],
            "reconverge_health": [Reading((state,), float(state == health.state)) for state in STATES],
            "reconverge_settings_version": [Reading((), published.version)],
            "reconverge_settings_rejected_total": [
                Reading((reason,), published.rejected.get(reason, 0)) for reason in (*REASONS, UNFIT)
            ],
            "reconverge_bugs_total": [Reading((), stats.bugs)],
        }

    def _limits(self, stats: AgentStats) -> Iterator[tuple[str, LimitStats]]:
        """Yields each limit's name and numbers; all limits beyond the first `limits_max` are summed up as "(other)".

        No limit is ever removed, so a limit that has a series of its own keeps it.
        """
        names = list(stats.limits)
        for name in names[: self._limits_max]:
            yield name, stats.limits[name]
        others = [stats.limits[name] for name in names[self._limits_max :]]
        if others:
            yield OTHER, _together(others)


def _slots_of(limit: LimitStats) -> tuple[tuple[str, int], ...]:
    """Returns two labels, each with a number: slots with a valid lease, and with an ended one; empty for a rate."""
    if limit.in_use is None:
        return ()
    return (HOLDS, limit.in_use - limit.past_lease), (ENDED, limit.past_lease)


def _in_use(limits: list[LimitStats]) -> int | None:
    """Returns the slots in use of all limits together; None if no limit has slots."""
    found = [limit.in_use for limit in limits if limit.in_use is not None]
    return sum(found) if found else None


def _together(limits: list[LimitStats]) -> LimitStats:
    summed: dict[str, Any] = {
        field.name: sum(getattr(limit, field.name) for limit in limits)
        for field in fields(LimitStats)
        if field.name not in ("switch", "in_use", "asks")
    }
    return LimitStats(**summed, in_use=_in_use(limits), asks=sum((limit.asks for limit in limits), AskStats()))
