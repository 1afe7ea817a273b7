"""Goal: what Prometheus scrapes is what happened, under names and labels that have a bound.

Method: a real registry, read back from the text that is scraped; a real Redis.
"""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from reconverge import Agent, InvalidSetting
from reconverge.integrations.metrics import METRICS
from reconverge.integrations.prometheus import AgentCollector, WorkerMetrics
from reconverge.testing import ManualClock
from tests.support.agents import introduce
from tests.support.hooked import hooked
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

Series = dict[tuple[str, tuple[str, ...]], float]


def scraped(registry: CollectorRegistry) -> Series:
    """Returns a scrape of a registry, by the name of the series and the values of its labels."""
    text = generate_latest(registry).decode()
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def registry_of(agent: Agent, limits_max: int = 100) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(AgentCollector(agent, limits_max=limits_max))
    return registry


def test_every_decision_is_told_by_what_became_of_it() -> None:
    """Under the limit's name, and nothing by key."""
    agent = Agent("memory://", clock=ManualClock(start=0))
    limiter = agent.limit("login", "2/minute")
    for to in ("on", "shadow", "off"):
        limiter.switch(to)
        for _ in range(3):
            limiter.allow("ada")
    series = scraped(registry_of(agent))
    results = {labels[1]: count for (name, labels), count in series.items() if name == "reconverge_requests_total"}

    assert {"admitted": 2, "refused": 1, "would_refuse": 3, "unlimited": 3} == results
    assert 1 == series["reconverge_keys", ("login",)]
    assert 1 == series["reconverge_health", ("ready",)]
    assert "ada" not in generate_latest(registry_of(agent)).decode()


@pytest.mark.parametrize("of_another", [False, True])
def test_a_second_collector_in_one_registry_is_an_error_with_its_remedy(of_another: bool) -> None:
    """The registry's own error lists the names of all series. After `unregister` another one may take its place."""
    agent, registry = Agent("memory://"), CollectorRegistry()
    first = AgentCollector(agent)
    registry.register(first)
    second = AgentCollector(Agent("memory://", namespace="another") if of_another else agent)
    with pytest.raises(
        InvalidSetting, match=r"is the second one of this registry.*; register one, .*a registry of its"
    ):
        registry.register(second)
    registry.unregister(first)

    registry.register(second)
    CollectorRegistry().register(AgentCollector(agent))


def test_limits_beyond_the_bound_are_told_together() -> None:
    """Those that were declared first keep their series, and nothing is lost of the others."""
    agent = Agent("memory://")
    for number in range(1000):
        agent.limit(f"route-{number}", "1/hour").allow("ada")
    registry = registry_of(agent, limits_max=10)
    series = scraped(registry)
    decisions = {labels: count for (name, labels), count in series.items() if "requests" in name}
    admitted = {labels[0]: count for labels, count in decisions.items() if labels[1:] == ("admitted",)}

    assert 11 == len(admitted)
    assert 990 == admitted["(other)"]
    assert 1 == admitted["route-9"]
    with pytest.raises(InvalidSetting, match="limits_max=0"):
        registry_of(agent, limits_max=0)


def test_exchanges_are_told(redis_server: RedisServer) -> None:
    """How many were answered, how long they took, and how old the last answer is."""
    with Agent(redis_server.url, sync_interval=0.02) as agent:
        introduce(agent.limit("login", "1000/hour"))
        registry = registry_of(agent)
        series = scraped(registry)
    (exchanges,) = agent.stats().exchanges
    count = series["reconverge_sync_duration_seconds_count", ()]

    assert 0 < count <= exchanges.exchanges
    assert count == series["reconverge_sync_duration_seconds_bucket", ("+Inf",)]
    assert 0 < series["reconverge_sync_duration_seconds_sum", ()]
    assert 0 <= series["reconverge_staleness_seconds", ()] < float("inf")
    assert exchanges.exchanges == sum(agent.stats().durations.counts)


def test_failures_are_told_by_class() -> None:
    """And as long as nothing was ever answered, what is known is infinitely old."""
    with Agent(f"redis://127.0.0.1:{free_port()}/0", sync_interval=0.02, stop_timeout=0.0) as agent:
        limiter = agent.limit("login", "1000/hour")
        limiter.allow("ada")
        eventually(lambda: agent.stats().exchanges[0].failures, "a failure")
        series = scraped(registry_of(agent))

    assert series["reconverge_sync_failures_total", ("refused",)] > 0
    assert float("inf") == series["reconverge_staleness_seconds", ()]
    assert 1 == series["reconverge_pending_reports", ()]
    assert 0 == series["reconverge_keys_not_taken_total", ()]
    assert 1 == series["reconverge_health", ("partitioned",)]


def test_a_key_near_its_end_and_what_is_beyond_are_told(redis_server: RedisServer) -> None:
    """Once for each time that a key comes near; and of the over-admission as much as there is."""
    with Agent(redis_server.url, sync_interval=0.02) as agent:
        limiter = agent.limit("login", "100 per 10 minutes", algorithm="fixed-window")
        introduce(limiter, "ada", "bob")
        first, second = limiter.reserve("ada", 9), limiter.reserve("ada", 1)
        first.settle(128)
        eventually(lambda: agent.stats().limits["login"].overadmitted == 30, "an exchange that tells of the excess")
        second.settle(2)
        eventually(lambda: agent.stats().limits["login"].overadmitted > 30, "another one that tells of more")
        series = scraped(registry_of(agent))

    assert 1 == series["reconverge_near_limit_total", ("login",)]
    assert 31 == series["reconverge_overadmitted_total", ("login",)]


def test_workers_write_down_what_collectors_read() -> None:
    """Once for each look, and what was counted already is not counted again."""
    agent = Agent("memory://", clock=ManualClock(start=0))
    limiter = agent.limit("login", "2/minute")
    registry = CollectorRegistry()
    with hooked(agent, WorkerMetrics(registry=registry)):
        for _ in range(3):
            limiter.allow("ada")
            agent.look()
        agent.look()
        told, written = scraped(registry_of(agent)), scraped(registry)

    assert {} == {name: value for name, value in told.items() if written.get(name, 0) != value}
    assert {metric.name.removesuffix("_total") for metric in METRICS} == {family.name for family in registry.collect()}


def test_workers_without_a_folder_are_told_once_that_nothing_adds_them_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process alone needs no folder; nor does one whose siblings are unknown."""
    several: list[str | None] = [None, "one of 3 workers of gunicorn", "one of 3 workers of gunicorn"]
    monkeypatch.setattr("reconverge.integrations.prometheus.one_of_several", lambda: several[0])
    for _ in range(2):
        agent = Agent("memory://", clock=ManualClock(start=0))
        with hooked(agent, WorkerMetrics(registry=CollectorRegistry())):
            agent.limit("login", "2/minute").allow("ada")
            agent.look()
            agent.look()
        del several[0]

    assert 1 == caplog.text.count("PROMETHEUS_MULTIPROC_DIR is not set, so each worker shows its own numbers alone")


def test_a_folder_that_is_named_too_late_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """By then prometheus-client has chosen to write no files; without a folder, workers may be a single process."""
    WorkerMetrics(registry=CollectorRegistry())
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "/run/metrics")

    with pytest.raises(InvalidSetting, match=r"was set after prometheus_client was imported.*set it before the import"):
        WorkerMetrics(registry=CollectorRegistry())
