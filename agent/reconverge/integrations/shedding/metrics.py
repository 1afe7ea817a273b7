"""The metrics of a load-shedding stack, for any collector.

Their only labels are layers, classes, results and readings, of which there are few.
"""

from __future__ import annotations

from typing import Final

from reconverge.integrations.metrics import Metric, Reading
from reconverge.limiter.enforcement.switches import SWITCHES
from reconverge.shedding.stack import Stack

SHEDDING_METRICS: Final = (
    Metric("reconverge_shedding_admitted_total", "counter", "Requests that all layers admitted.", ("class",)),
    Metric(
        "reconverge_shedding_refused_total",
        "counter",
        "Requests that a layer refused, or, in shadow, would have refused.",
        ("layer", "class", "result"),
    ),
    Metric("reconverge_shedding_layer", "gauge", "What a layer measures and has set.", ("layer", "reading")),
    Metric("reconverge_shedding_switch", "gauge", "1 for the switch that a layer is in.", ("layer", "switch")),
)


def readings_of(stack: Stack) -> dict[str, list[Reading]]:
    """Returns all series of a stack as they are now, by metric name: always the same series in the same order."""
    stats = stack.stats()
    return {
        "reconverge_shedding_admitted_total": [Reading((name,), count) for name, count in stats.admitted.items()],
        "reconverge_shedding_refused_total": [
            Reading((layer, name, result), count)
            for result, by_layer in (("refused", stats.refused), ("would_refuse", stats.would_refuse))
            for layer, by_class in by_layer.items()
            for name, count in by_class.items()
        ],
        "reconverge_shedding_layer": [
            Reading((layer, name), value)
            for layer, readings in stats.readings.items()
            for name, value in readings.items()
        ],
        "reconverge_shedding_switch": [
            Reading((layer, switch), float(switch == now))
            for layer, now in stats.switches.items()
            for switch in SWITCHES
        ],
    }
