"""Goal: what a fleet is said to cost follows from what was measured, and can be checked by hand.

Method: a fleet of simple numbers and coefficients, and the measurements that are kept.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.capacity.measured import DATA, DOCUMENT, adopt
from bench.capacity.model import least_squares
from reconverge.clock import SECOND_NS
from reconverge.limit import Limit
from reconverge.policies import STRICT
from reconverge.simulation.fleet import Fleet
from reconverge.simulation.pattern import Traffic
from reconverge.simulation.studies.capacity import COEFFICIENTS, Coefficients, cold_reports, load, regular_pace
from reconverge.simulation.studies.experiment import Experiment, run_once

RESULTS = Path(__file__).parent.parent.parent / "bench" / "results" / "capacity.json"
PLAIN = Coefficients(100.0, 10.0, 50.0, 2.0, 300.0, 100.0, 40.0, 72.0, 150.0, 120.0)
MINUTE_NS = 60 * SECOND_NS


def test_a_fleet_costs_what_its_batches_and_reports_cost() -> None:
    """Ten nodes that report 300 keys each every second, so in two batches."""
    pace = regular_pace(10, hot_keys=300, cold_keys=0, window_ns=MINUTE_NS, interval_ns=SECOND_NS)
    costs = load(pace, nodes=10, hot_keys=300, cold_keys=0, of=PLAIN)

    assert (20, 3000) == (pace.batches, pace.cells)
    assert (20 * 100 + 3000 * 10) / 1e4 == pytest.approx(costs.hub_cpu_pct)
    assert (2 * 50 + 300 * 2) / 1e4 == pytest.approx(costs.node_cpu_pct)
    assert 20 * 300 + 3000 * (100 + 16) == pytest.approx(costs.in_bytes_per_s)
    assert 20 * 40 + 3000 * 72 == pytest.approx(costs.out_bytes_per_s)
    assert 300 * (150 + 16) + 3000 * 120 == pytest.approx(costs.hub_memory_bytes)
    assert 1 == costs.hubs


def test_a_longer_interval_costs_as_much_less() -> None:
    """Of hot keys; what is kept of them stays."""
    shorter, longer = (
        load(
            regular_pace(8, hot_keys=20, cold_keys=0, window_ns=MINUTE_NS, interval_ns=interval_ns),
            nodes=8,
            hot_keys=20,
            cold_keys=0,
        )
        for interval_ns in (SECOND_NS, 10 * SECOND_NS)
    )

    assert shorter.hub_cpu_pct == pytest.approx(10 * longer.hub_cpu_pct)
    assert shorter.in_bytes_per_s == pytest.approx(10 * longer.in_bytes_per_s)
    assert shorter.hub_memory_bytes == longer.hub_memory_bytes


@pytest.mark.parametrize(("intervals", "reports"), [(0.5, 0.5), (1, 1), (2, 1), (64, 6), (1024, 10)])
def test_a_cold_key_is_reported_at_doubling_distances(intervals: float, reports: float) -> None:
    """In a window of so many intervals; never more often than exchanges are made."""
    assert reports == pytest.approx(cold_reports(round(intervals * SECOND_NS), SECOND_NS))


def test_one_redis_is_enough_for_half_a_core() -> None:
    """Beyond that the keys are to be divided among so many that each has half a core at most."""
    pace = regular_pace(100, hot_keys=10_000, cold_keys=0, window_ns=MINUTE_NS, interval_ns=SECOND_NS)
    costs = load(pace, nodes=100, hot_keys=10_000, cold_keys=0, of=PLAIN)

    assert 1040 == pytest.approx(costs.hub_cpu_pct)  # 4,000 batches and a million reports a second
    assert 21 == costs.hubs


def test_least_squares_find_the_factors() -> None:
    """Of rows that two factors explain wholly."""
    rows = [
        [batches / value, cells / value]
        for batches, cells in ((1, 1), (1, 256), (3, 90))
        for value in (80.0 * batches + 7 * cells,)
    ]

    assert [80.0, 7.0] == pytest.approx(least_squares(rows))


def test_tune_goes_by_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coefficients are those of the results that are kept, and so are the tables of the document."""
    found = json.loads(RESULTS.read_text())
    copy, document = tmp_path / DATA.name, tmp_path / DOCUMENT.name
    document.write_text(DOCUMENT.read_text())
    monkeypatch.setattr("bench.capacity.measured.DATA", copy)
    monkeypatch.setattr("bench.capacity.measured.DOCUMENT", document)
    adopt(found)

    assert COEFFICIENTS == Coefficients(**json.loads(copy.read_text()))
    assert DOCUMENT.read_text() == document.read_text()


def test_the_model_is_as_good_as_it_says() -> None:
    """Bytes are exact; and 100,000 cold keys cause at most a tenth of the traffic of as many hot ones."""
    found = json.loads(RESULTS.read_text())
    bytes_of = {
        name: (one["in_bytes"] + one["out_bytes"]) / one["seconds"]
        for name, one in {"hot": found["cold"]["hot"], **found["cold"]["rows"]}.items()
    }

    off_pct = {line["figure"]: line["off_max_pct"] for line in found["model"]}

    assert max(off_pct["in_bytes"], off_pct["out_bytes"]) <= 1
    assert off_pct["memory_bytes"] <= 30
    assert 100_000 == found["cold"]["keys"]
    assert bytes_of["once a window"] <= 0.1 * bytes_of["hot"]
    assert bytes_of["once, ten windows"] <= 0.1 * bytes_of["hot"]


@pytest.mark.slow
def test_a_thousand_nodes_keep_the_bound() -> None:
    """Simulated, with half of them cut off meanwhile."""
    fleet = Fleet(1000, Limit(4000, 10.0), SECOND_NS)
    experiment = Experiment(fleet, Traffic("uniform", 2.0), 2, 0, ("cut:half@0.5w+0.5w",))
    figures = run_once(experiment, STRICT, experiment.arrivals(0), seed=0)

    assert [0.0, 0.0] == figures.over_pct
    assert {} == figures.broken
    assert figures.admitted > 0
