"""Metrics for Prometheus about a node's usage reports to the hub, which are read at each scrape.

  from prometheus_client import CollectorRegistry
  from reconverge.integrations.usage_prometheus import UsageCollector
  from reconverge.usage import Meter, UsageReporter
  reporter = UsageReporter(Meter(), "redis://localhost:6379/0")
  registry = CollectorRegistry()
  registry.register(UsageCollector(reporter))

No metric has an identity as a label: there may be any number of identities, and they are the users' data.
`reporter.stats()` lists the identities that came from unusually many addresses.
"""

from __future__ import annotations

from collections.abc import Iterator

from reconverge.arguments import checked_class
from reconverge.errors import MissingExtra
from reconverge.usage.reporter import UsageReporter

try:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.metrics_core import Metric as Family
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingExtra("metrics of usage for Prometheus", "prometheus-client", "prometheus") from error


class UsageCollector(Collector):
    """Collects the metrics of one usage reporter of this process. Use one for each registry."""

    def __init__(self, reporter: UsageReporter) -> None:
        self._reporter = checked_class("reporter", reporter, UsageReporter, "pass the reporter whose usage is shown")

    def collect(self) -> Iterator[Family]:
        stats = self._reporter.stats()
        many = stats.from_many_addresses
        gauges = {
            "at_hub": ("1 if the usage of all nodes is added up at a hub.", int(stats.at_hub)),
            "unreported_keys": ("Keys whose usage is not reported completely yet.", stats.unreported),
            "rows": ("Rows that this node keeps.", stats.rows),
            "identities_from_many_addresses": ("Identities from unusually many addresses in this hour.", len(many)),
            "addresses_of_one_identity": (
                "About the most addresses of one such identity; 0 without any.",
                max(many.values(), default=0),
            ),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"reconverge_usage_{name}", text, value=value)
        counters = {
            "batches": ("Batches that the hub has answered.", stats.answered),
            "overflowed": ('What this node has counted under "(others)" for lack of room.', stats.overflowed),
            "folded": ('Rows that the hub has counted under "(others)".', stats.folded),
            "losses": ("How often the hub had lost what this node had reported.", stats.losses),
        }
        for name, (text, value) in counters.items():
            yield CounterMetricFamily(f"reconverge_usage_{name}", text, value=value)
        failures = CounterMetricFamily("reconverge_usage_failures", "Reports that failed.", labels=["kind"])
        for kind, count in stats.failures.items():
            failures.add_metric([kind], count)
        yield failures
        by_period = {
            "dropped": ("Rows that were never reported.", stats.dropped),
            "misdated": ("Rows with a wrong time, counted at the hub's time.", stats.misdated),
        }
        for name, (text, counts) in by_period.items():
            family = CounterMetricFamily(f"reconverge_usage_{name}", text, labels=["period"])
            for kind, count in counts.items():
                family.add_metric([kind], count)
            yield family
