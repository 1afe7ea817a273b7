"""Goal: OpenTelemetry collects the events as they were; a real SDK with a reader in memory."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from reconverge import Agent
from reconverge.integrations.metrics import METRICS
from reconverge.integrations.opentelemetry import instrument
from reconverge.testing import ManualClock
from tests.support.agents import introduce
from tests.support.servers import RedisServer


def collected(reader: InMemoryMetricReader) -> dict[str, dict[tuple[Any, ...], Any]]:
    """The newest point of every series, by the name of the metric and the values of its attributes."""
    data: Any = reader.get_metrics_data()
    if data is None:
        return {}
    return {
        metric.name: {tuple(point.attributes.values()): point for point in metric.data.data_points}
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_every_decision_is_collected_by_what_became_of_it() -> None:
    """Under the same names as for Prometheus; and nothing any more once that has been ended."""
    reader = InMemoryMetricReader()
    agent = Agent("memory://", clock=ManualClock(start=0))
    limiter = agent.limit("login", "2/minute")
    end = instrument(agent, meter_provider=MeterProvider([reader]))
    for _ in range(3):
        limiter.allow("ada")
    metrics = collected(reader)
    results = {labels[1]: point.value for labels, point in metrics["reconverge_requests"].items()}
    thread = agent._hook_dispatcher._thread
    end()
    assert thread is not None
    thread.join()

    assert {"admitted": 2, "refused": 1, "would_refuse": 0, "unlimited": 0} == results
    assert 1 == metrics["reconverge_keys"]["login",].value
    assert {} == collected(reader)


def test_exchanges_are_collected(redis_server: RedisServer) -> None:
    """All metrics there are, the durations among them as soon as the agent has looked."""
    reader = InMemoryMetricReader()
    with Agent(redis_server.url, sync_interval=0.02) as agent:
        end = instrument(agent, meter_provider=MeterProvider([reader]))
        introduce(agent.limit("login", "1000/hour"))
        agent.concurrency("render", 20)
        agent.look()
        metrics, thread = collected(reader), agent._hook_dispatcher._thread
        end()
    assert thread is not None
    thread.join()
    names = {metric.name.removesuffix("_total").removesuffix("_seconds") for metric in METRICS}

    assert names - {"reconverge_sync_failures"} == set(metrics)
    assert metrics["reconverge_sync_duration"][()].count > 0
