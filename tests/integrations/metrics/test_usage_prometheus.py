"""Goal: how usage is counted can be watched. Method: a registry of its own, scraped."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from reconverge.clock import SystemClock
from reconverge.integrations.usage_prometheus import UsageCollector
from reconverge.usage import Meter, UsageReporter
from reconverge_sync.memory import MemoryHub
from tests.support.waiting import eventually


def test_a_scrape_shows_how_usage_is_counted() -> None:
    """It shows unreported, lost and refused rows, and how many identities have many addresses; no identity by name."""
    meter = Meter(rows_max=1)
    registry = CollectorRegistry()
    reporter = UsageReporter(meter, MemoryHub(clock=SystemClock()), interval=0.1)
    registry.register(UsageCollector(reporter))
    for number in range(300):
        meter.add_request("acme", [("api", 1)], address=f"192.0.2.{number}")
    meter.add("zeta", "api")
    with reporter:
        eventually(lambda: reporter.stats().answered > 0, "the first report")

    def shown(name: str) -> float | None:
        return registry.get_sample_value(f"reconverge_usage_{name}")

    assert (1, 1, 1) == (shown("at_hub"), shown("overflowed_total"), shown("identities_from_many_addresses"))
    assert 0 == shown("losses_total") == shown("folded_total")
    assert 200 < (shown("addresses_of_one_identity") or 0) < 400


def test_failures_are_told_by_kind() -> None:
    """A hub that cannot be reached is a series of its own."""
    reporter = UsageReporter(Meter(), "redis://127.0.0.1:1/0", interval=0.1)
    registry = CollectorRegistry()
    registry.register(UsageCollector(reporter))
    with reporter:
        eventually(lambda: bool(reporter.stats().failures), "a failure")

    assert 1 <= (registry.get_sample_value("reconverge_usage_failures_total", {"kind": "refused"}) or 0)
