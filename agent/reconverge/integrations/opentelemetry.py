"""An agent's metrics for OpenTelemetry, which are read when they are collected.

  from reconverge.integrations.opentelemetry import instrument
  instrument(agent)

In a prefork server, call it in each worker after the fork, where the worker's own meter provider is set up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from reconverge.agent.agent import Agent
from reconverge.arguments import checked_class
from reconverge.errors import MissingExtra
from reconverge.hooks import Look, SilentHooks
from reconverge.integrations.metrics import DURATIONS, LIMITS_MAX, METRICS, Metric, Readings

try:
    from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, Observation, get_meter
except ImportError as error:
    raise MissingExtra("metrics for OpenTelemetry", "opentelemetry-api", "opentelemetry") from error

METER: Final = "reconverge"


class DurationExport(SilentHooks):
    """A hook of an agent that records the durations of new exchanges in a histogram, once a second."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram

    def looked(self, event: Look, /) -> None:
        for seconds in event.durations:
            self._histogram.record(seconds)


def instrument(
    agent: Agent, *, meter_provider: MeterProvider | None = None, limits_max: int = LIMITS_MAX
) -> Callable[[], None]:
    """Registers an agent's metrics with a meter, under their names in Prometheus without the suffix `_total`.

    A hook records the durations of exchanges once a second, because they cannot be read later.

    Args:
        agent: the agent.
        meter_provider: makes the meter; by default the global one.
        limits_max: the number of limits with their own series, in order of declaration; further ones share "(other)".

    Returns:
        A function that ends the collection.

    Raises:
        InvalidSetting: `limits_max` is not a whole number of at least 1.
    """
    checked_class("agent", agent, Agent, "pass the agent whose limits are shown")
    readings = Readings(limits_max)
    meter = get_meter(METER, meter_provider=meter_provider)
    ended = False

    def observe(metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def callback(_options: CallbackOptions) -> Iterable[Observation]:
            if ended:
                return []
            series = readings.of_agent(agent)[metric.name]
            return [Observation(each.value, dict(zip(metric.labels, each.labels, strict=True))) for each in series]

        return callback

    for metric in METRICS:
        if metric.name != DURATIONS:
            _create(meter, metric, observe(metric))
    hooks = DurationExport(meter.create_histogram(DURATIONS.removesuffix("_seconds"), "s", _help(DURATIONS)))
    agent.add_hooks(hooks)

    def end() -> None:
        nonlocal ended
        ended = True
        agent.remove_hooks(hooks)

    return end


def _create(meter: Meter, metric: Metric, callback: Callable[[CallbackOptions], Iterable[Observation]]) -> None:
    name, unit = metric.name.removesuffix("_total"), "1"
    if name.endswith("_seconds"):
        name, unit = name.removesuffix("_seconds"), "s"
    create = meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
    create(name, callbacks=[callback], unit=unit, description=metric.help)


def _help(name: str) -> str:
    (metric,) = (metric for metric in METRICS if metric.name == name)
    return metric.help
