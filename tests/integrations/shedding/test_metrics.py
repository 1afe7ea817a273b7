"""Goal: what a stack does can be watched. Method: a registry of its own, scraped."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from reconverge.integrations.shedding.metrics import SHEDDING_METRICS, readings_of
from reconverge.integrations.shedding.prometheus import StackCollector
from reconverge.limiter.enforcement.switches import SHADOW
from reconverge.shedding import AdaptiveConcurrency, Fixed, Stack


def test_a_scrape_shows_what_was_refused_and_by_which_layer() -> None:
    """After one admission and one refusal, and one in shadow, each has its series, with the state of the layer."""
    registry = CollectorRegistry()
    stack = Stack(AdaptiveConcurrency(Fixed(1)))
    registry.register(StackCollector(stack))
    stack.enter("", "GET")
    stack.enter("", "GET")
    stack.switch("concurrency", SHADOW)
    stack.enter("", "test")

    def refused(name: str, result: str) -> float | None:
        labels = {"layer": "concurrency", "class": name, "result": result}
        return registry.get_sample_value("reconverge_shedding_refused_total", labels)

    assert (1, 1) == (refused("GET", "refused"), refused("test", "would_refuse"))
    assert 1 == registry.get_sample_value("reconverge_shedding_admitted_total", {"class": "GET"})
    reading = {"layer": "concurrency", "reading": "in_flight"}
    assert 2 == registry.get_sample_value("reconverge_shedding_layer", reading)
    switch = {"layer": "concurrency", "switch": "shadow"}
    assert 1 == registry.get_sample_value("reconverge_shedding_switch", switch)


def test_the_series_are_always_the_same() -> None:
    """Before the first request there are as many as afterwards, and each metric has some."""
    stack = Stack()
    before = readings_of(stack)
    stack.enter("", "GET")
    after = readings_of(stack)

    assert {metric.name for metric in SHEDDING_METRICS} == set(before)
    for name, readings in before.items():
        assert readings
        assert [each.labels for each in readings] == [each.labels for each in after[name]]
