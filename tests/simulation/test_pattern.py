"""Patterns of traffic are what their names say, and the same for the same seed."""

from __future__ import annotations

from collections import Counter

import pytest

from reconverge.errors import InvalidSetting
from reconverge.simulation import PATTERNS, SimulatedArrival, Traffic

NODES, QUOTA, WINDOW_NS, WINDOWS = 8, 1000, 1_000_000, 10


def drawn(pattern: str, demand: float = 2.0, seed: int = 1, **more: int) -> list[SimulatedArrival]:
    """All requests of ten windows of a microsecond's thousand each."""
    traffic = Traffic(pattern, demand, **more)
    return traffic.arrivals(nodes=NODES, quota=QUOTA, window_ns=WINDOW_NS, windows=WINDOWS, seed=seed)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_seed_draws_the_same_requests_and_another_seed_others(pattern: str) -> None:
    """A run can be repeated from its seed."""
    assert drawn(pattern) == drawn(pattern)
    assert drawn(pattern, seed=2) != drawn(pattern)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_requests_come_in_order_within_the_run_on_nodes_that_there_are(pattern: str) -> None:
    """Nothing arrives before the start, after the end, or nowhere."""
    arrivals = drawn(pattern)

    assert sorted(arrivals) == arrivals
    assert all(0 <= arrival.moment_ns < WINDOWS * WINDOW_NS for arrival in arrivals)
    assert all(0 <= arrival.node < NODES for arrival in arrivals)


@pytest.mark.parametrize("pattern", [name for name in PATTERNS if name != "surge"])
def test_as_much_is_asked_for_as_was_demanded(pattern: str) -> None:
    """Demand is cost per window, as a multiple of the quota, also when costs differ."""
    asked = sum(sum(one.cost for one in drawn(pattern, seed=seed, cost_max=3)) for seed in range(5)) / 5

    assert 2.0 == pytest.approx(asked / (QUOTA * WINDOWS), rel=0.15)


def test_a_surge_is_calm_first_and_ten_times_as_much_from_the_middle_on() -> None:
    """The demand is that of the second half."""
    by_window = Counter(arrival.moment_ns // WINDOW_NS for arrival in drawn("surge", 5.0))

    assert 500 == pytest.approx(sum(by_window[number] for number in range(5)) / 5, rel=0.1)
    assert 5000 == pytest.approx(sum(by_window[number] for number in range(5, 10)) / 5, rel=0.1)


def test_a_flash_crowd_comes_at_the_start_of_every_window() -> None:
    """Four fifths of a window's requests arrive in its first twentieth."""
    early = sum(arrival.moment_ns % WINDOW_NS < WINDOW_NS // 20 for arrival in drawn("flash"))

    assert 0.81 == pytest.approx(early / len(drawn("flash")), abs=0.03)


def test_a_spike_hits_one_node_at_one_moment_and_a_spray_all_of_them() -> None:
    """The two differ in nothing but the nodes."""
    for window in range(WINDOWS):
        spiked = [one for one in drawn("spike", 0.8) if one.moment_ns // WINDOW_NS == window]
        sprayed = [one for one in drawn("spray", 0.8) if one.moment_ns // WINDOW_NS == window]

        assert 1 == len({one.node for one in spiked})
        assert NODES == len({one.node for one in sprayed})
        assert spiked[-1].moment_ns - spiked[0].moment_ns <= WINDOW_NS * 0.002
        assert sprayed[-1].moment_ns - sprayed[0].moment_ns <= WINDOW_NS * 0.002


def test_the_first_keys_and_nodes_of_zipf_have_the_most() -> None:
    """The second has half as much as the first."""
    nodes = Counter(arrival.node for arrival in drawn("zipf", 10.0))
    keys = Counter(arrival.key for arrival in drawn("uniform", 10.0, keys=5))

    assert 2.0 == pytest.approx(nodes[0] / nodes[1], rel=0.1)
    assert 2.0 == pytest.approx(keys["key-0"] / keys["key-1"], rel=0.1)


@pytest.mark.parametrize(
    ("pattern", "demand", "keys", "cost_max", "named"),
    [
        ("tsunami", 1.0, 1, 1, "pattern"),
        ("uniform", 0.0, 1, 1, "demand"),
        ("uniform", 1.0, 0, 1, "keys"),
        ("uniform", 1.0, 1, 0, "cost_max"),
    ],
)
def test_traffic_that_makes_no_sense_is_refused_by_name(
    pattern: str, demand: float, keys: int, cost_max: int, named: str
) -> None:
    """The error names the setting that is wrong."""
    with pytest.raises(InvalidSetting) as caught:
        Traffic(pattern, demand, keys, cost_max)

    assert named == caught.value.name
