"""Computes the load that a fleet causes on its hub and its nodes from its nodes, its keys and its sync interval.

The coefficients are measured by `python -m bench.capacity` and kept in `simulation/capacity.json`.
"""

# Every cost is linear in two counts: CPU and bytes in batches and reports, memory in keys and in nodes that report
# them. Other terms, such as nodes times reports, fit no better than measurements differ: with one node or with two
# hundred a report costs the same within the noise of the machine, because the merge rule seldom counts all entries of a
# cell. The factors are fitted by least squares of relative errors, since points are of one report to two hundred
# thousand. A busy machine measures twice as much for a batch and a fifth more for a report than a quiet one; bytes and
# memory are the same on both.

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from math import ceil, log2
from typing import Final, Self

from reconverge.exchange.syncer import CELLS_MAX

HUB_CPU_PCT_MAX: Final = 50.0
"""The CPU load, in % of a core, that one Redis should carry at most: exchanges come in crowds, and must not wait for
each other."""
KEY_BYTES: Final = 16
"""The length of a key, in bytes, that the computation assumes."""
DATA: Final = "capacity.json"


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The costs of each batch and each report of a key, in CPU time and bytes, and of each key in the hub's memory."""

    hub_batch_us: float
    hub_cell_us: float
    node_batch_us: float
    node_cell_us: float
    in_batch_bytes: float
    """The size in bytes of a batch from a node to the hub, without its reports."""
    in_cell_bytes: float
    """The size in bytes of a report in a batch to the hub, without the key."""
    out_batch_bytes: float
    """The size in bytes of the hub's answer to a batch, without the answers to its reports."""
    out_cell_bytes: float
    memory_key_bytes: float
    """Bytes of the hub's memory for each key, without the key and the entries of nodes."""
    memory_entry_bytes: float
    """Bytes of the hub's memory for each node that reports a key."""

    @classmethod
    def measured(cls) -> Self:
        """Returns the coefficients that `python -m bench.capacity` measured last."""
        return cls(**json.loads(files("reconverge.simulation").joinpath(DATA).read_text()))


COEFFICIENTS: Final = Coefficients.measured()


@dataclass(frozen=True, slots=True)
class ExchangeRate:
    """The number of batches, and of reports in them, that all nodes of a fleet send in a second."""

    batches: float
    cells: float
    """Reports per second, each of one key."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load that exchanges at some rate cause on the hub and on each node."""

    hub_cpu_pct: float
    """CPU time of the hub, in % of one core."""
    node_cpu_pct: float
    """CPU time of each node for its exchanges, in % of one core, without that of the event loop around them."""
    in_bytes_per_s: float
    """Bytes per second from all nodes to the hub."""
    out_bytes_per_s: float
    """Bytes per second from the hub to all nodes."""
    hub_memory_bytes: float

    @property
    def hubs(self) -> int:
        """Returns the number of Redis servers, of one core each, among which to divide the keys."""
        return max(1, ceil(self.hub_cpu_pct / HUB_CPU_PCT_MAX))


def cold_reports(window_ns: int, interval_ns: int) -> float:
    """Returns how often in a window a node reports a key for which it gets one request in each window.

    A node reports an unused key again after intervals that double, so at most once in each sync interval.
    """
    intervals = window_ns / interval_ns
    return min(intervals, max(1.0, log2(intervals)))


def regular_pace(nodes: int, *, hot_keys: int, cold_keys: int, window_ns: int, interval_ns: int) -> ExchangeRate:
    """Returns the exchange rate of a fleet in which each node reports all these keys, and never ahead of time."""
    per_window = window_ns / interval_ns
    cells = hot_keys * per_window + cold_keys * cold_reports(window_ns, interval_ns)
    batches = per_window * max(1, ceil(cells / per_window / CELLS_MAX))
    windows_per_s = nodes * 1e9 / window_ns
    return ExchangeRate(batches * windows_per_s, cells * windows_per_s)


def load(pace: ExchangeRate, *, nodes: int, hot_keys: int, cold_keys: int, of: Coefficients = COEFFICIENTS) -> Load:
    """Returns the load of exchanges at `pace`, if the nodes share the hot keys and each has its own cold keys."""
    keys = hot_keys + nodes * cold_keys
    entries = nodes * (hot_keys + cold_keys)
    return Load(
        hub_cpu_pct=(pace.batches * of.hub_batch_us + pace.cells * of.hub_cell_us) / 1e4,
        node_cpu_pct=(pace.batches * of.node_batch_us + pace.cells * of.node_cell_us) / 1e4 / nodes,
        in_bytes_per_s=pace.batches * of.in_batch_bytes + pace.cells * (of.in_cell_bytes + KEY_BYTES),
        out_bytes_per_s=pace.batches * of.out_batch_bytes + pace.cells * of.out_cell_bytes,
        hub_memory_bytes=keys * (of.memory_key_bytes + KEY_BYTES) + entries * of.memory_entry_bytes,
    )
