"""The metrics of a stack for Prometheus, which are read when they are scraped.

registry.register(StackCollector(stack))
"""

from __future__ import annotations

from collections.abc import Iterator

from reconverge.integrations.metrics import Metric
from reconverge.integrations.shedding.metrics import SHEDDING_METRICS, readings_of
from reconverge.shedding.stack import Stack

try:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    from reconverge.errors import MissingExtra

    raise MissingExtra("metrics for Prometheus", "prometheus-client", "prometheus") from error


class StackCollector(Collector):
    """Collects the metrics of one stack of this process. Use one for each registry."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    def describe(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yields the metrics without values; a registry checks these for names that are taken already."""
        for metric in SHEDDING_METRICS:
            yield _family(metric)

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        readings = readings_of(self._stack)
        for metric in SHEDDING_METRICS:
            family = _family(metric)
            for reading in readings[metric.name]:
                family.add_metric(reading.labels, reading.value)
            yield family


def _family(metric: Metric) -> CounterMetricFamily | GaugeMetricFamily:
    if metric.kind == "counter":
        return CounterMetricFamily(metric.name.removesuffix("_total"), metric.help, labels=metric.labels)
    return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
