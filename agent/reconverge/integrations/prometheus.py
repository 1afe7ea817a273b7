"""An agent's metrics for Prometheus: read at each scrape, or, in prefork servers, written to files by every worker.

  from prometheus_client import CollectorRegistry
  from reconverge.integrations.prometheus import AgentCollector
  registry = CollectorRegistry()
  registry.register(AgentCollector(agent))

In a server that forks workers, one worker answers each scrape. There, set `PROMETHEUS_MULTIPROC_DIR` as
prometheus-client requires, and call `agent.add_hooks(WorkerMetrics())`: then every worker writes its numbers to files
once a second, and whichever worker is scraped returns those of all.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final

from reconverge.agent.agent import Agent
from reconverge.arguments import checked_class
from reconverge.errors import InvalidSetting, MissingExtra
from reconverge.hooks import Look, SilentHooks
from reconverge.integrations.metrics import LIMITS_MAX, METRICS, RESULTS, Labels, Metric, Readings
from reconverge.integrations.misplaced import warn_if_unread
from reconverge.runtime.durations import BOUNDS_S, Durations
from reconverge.runtime.log_throttle import LoggedOnce
from reconverge.runtime.owner import Owned, this_process
from reconverge.runtime.siblings import one_of_several
from reconverge.stats import AgentStats

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.metrics_core import Metric as Family
    from prometheus_client.registry import REGISTRY, Collector
    from prometheus_client.utils import floatToGoString
except ImportError as error:
    raise MissingExtra("metrics for Prometheus", "prometheus-client", "prometheus") from error

logger = logging.getLogger("reconverge")

FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable of prometheus-client that names the folder of the workers' files."""
TOTAL: Final = "_total"
"""The suffix of a counter's name, which prometheus-client adds itself."""
LIVE_MODES: Final = {"reconverge_staleness_seconds": "livemax"}
"""The mode of prometheus-client by which the values of several workers are combined, for each gauge that is not
summed."""


class AgentCollector(Collector):
    """Collects the metrics of one agent of this process when it is scraped. Use one for each registry.

    Args:
        agent: the agent.
        limits_max: the number of limits with their own series, in order of declaration; further ones share "(other)".

    Raises:
        InvalidSetting: `limits_max` is not a whole number of at least 1.
    """

    def __init__(self, agent: Agent, *, limits_max: int = LIMITS_MAX) -> None:
        self._agent = checked_class("agent", agent, Agent, "pass the agent whose limits are shown")
        self._readings = Readings(limits_max)
        self._unread = warn_if_unread(self, agent)

    def describe(self: Any = None) -> Iterator[Family]:  # a registry that is given the class calls it on none
        """Yields the metrics without values, for the registry to check that no name is taken already."""
        if self is None:
            raise InvalidSetting("collector", AgentCollector, "is a class; register an object: AgentCollector(agent)")
        self._unread.detach()
        _check_alone(self, sys._getframe(1).f_locals.get("self"))  # noqa: SLF001  # a registry does not pass itself
        for metric in METRICS:
            yield _family(metric)

    def collect(self) -> Iterator[Family]:
        self._unread.detach()
        stats = self._agent.stats()
        readings = self._readings.of(stats, self._agent.health())
        for metric in METRICS:
            family = _family(metric)
            if isinstance(family, HistogramMetricFamily):
                family.add_metric([], _buckets(stats.durations), stats.durations.sum)
            else:
                for reading in readings[metric.name]:
                    family.add_metric(reading.labels, reading.value)
            yield family


def _check_alone(collector: AgentCollector, registry: object) -> None:
    """Raises InvalidSetting if `registry` has a collector of an agent; its own error would only list our metrics."""
    others = getattr(registry, "_collector_to_names", ()) if isinstance(registry, CollectorRegistry) else ()
    if any(isinstance(each, AgentCollector) for each in list(others)):
        problem = "is the second one of this registry, and the series of both would have the same names"
        remedy = "register one, which shows all limits of its agent, and give another agent a registry of its own"
        raise InvalidSetting("collector", collector, f"{problem}; {remedy}")


class WorkerMetrics(SilentHooks):
    """A hook that writes an agent's numbers once a second as metrics, which prometheus-client adds up over all workers.

    Use one for each registry; `agent.add_hooks` may be called before or after the fork. Gauges are summed over the
    living workers; of the staleness, the largest is used. A process writes nothing until its agent has decided or
    exchanged something: otherwise a master that only forks would count as a worker, and as infinitely stale.

    Args:
        registry: the registry to write to; by default that of prometheus-client.
        limits_max: as for `AgentCollector`.

    Raises:
        InvalidSetting: as `AgentCollector` does; or `PROMETHEUS_MULTIPROC_DIR` was set too late.
    """

    def __init__(self, *, registry: CollectorRegistry = REGISTRY, limits_max: int = LIMITS_MAX) -> None:
        _check_files()
        self._made_in = os.getpid()
        self._logged = Owned(LoggedOnce, whose=this_process)
        self._readings = Readings(limits_max)
        self._metrics = {metric.name: (metric, _written(metric, registry)) for metric in METRICS}
        self._counted: Owned[dict[tuple[str, Labels], float]] = Owned(dict, whose=this_process)
        """The values as last written, by metric and labels. A forked child counts from zero, as do its files."""

    def looked(self, event: Look, /) -> None:
        if not self._counted.get() and _is_idle(event.stats):
            return
        self._log_lonely()
        readings = self._readings.of(event.stats, event.health)
        for metric, written in self._metrics.values():
            if isinstance(written, Histogram):
                for seconds in event.durations:
                    written.observe(seconds)
                continue
            for reading in readings[metric.name]:
                child = written.labels(*reading.labels) if metric.labels else written
                if isinstance(child, Gauge):
                    child.set(reading.value)
                else:
                    child.inc(self._risen(metric.name, reading.labels, reading.value))

    def _log_lonely(self) -> None:
        """Logs a warning, once in a process, if other workers write metrics too and nothing adds them up."""
        if FOLDER in os.environ or not self._logged.get().is_new():
            return
        forked = os.getpid() != self._made_in
        several = one_of_several() or ("one that was forked after WorkerMetrics was made" if forked else None)
        if several is not None:
            logger.warning(
                "reconverge: this process is %s, and %s is not set, so each worker shows its own numbers alone; set it"
                " to an empty folder in the environment of the server",
                several,
                FOLDER,
            )

    def _risen(self, name: str, labels: Labels, value: float) -> float:
        written = self._counted.get()
        before = written.get((name, labels), 0.0)
        written[name, labels] = value
        return max(0.0, value - before)


def _check_files() -> None:
    """Raises InvalidSetting if the folder of the workers was named after prometheus-client had looked for it."""
    folder = os.environ.get(FOLDER)
    if folder is not None and values.ValueClass is values.MutexValue:
        problem = "was set after prometheus_client was imported, which writes no files then; set it before the import"
        raise InvalidSetting(FOLDER, folder, f"{problem}, or in the environment of the server")


def _is_idle(stats: AgentStats) -> bool:
    asked = any(getattr(limit, result) for limit in stats.limits.values() for result in RESULTS)
    return not asked and not any(shard.exchanges or shard.failures for shard in stats.exchanges)


def _family(metric: Metric) -> CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily:
    if metric.kind == "counter":
        return CounterMetricFamily(metric.name.removesuffix(TOTAL), metric.help, labels=metric.labels)
    if metric.kind == "gauge":
        return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    return HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)


def _written(metric: Metric, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    if metric.kind == "counter":
        return Counter(metric.name.removesuffix(TOTAL), metric.help, metric.labels, registry=registry)
    if metric.kind == "gauge":
        mode: Any = LIVE_MODES.get(metric.name, "livesum")
        return Gauge(metric.name, metric.help, metric.labels, registry=registry, multiprocess_mode=mode)
    return Histogram(metric.name, metric.help, metric.labels, registry=registry, buckets=BOUNDS_S)


def _buckets(durations: Durations) -> list[tuple[str, float]]:
    """Returns the buckets of a histogram: each bound, with the number of exchanges that took no longer."""
    bounds = map(floatToGoString, BOUNDS_S)
    return list(zip(bounds, accumulate(durations.counts), strict=True))
