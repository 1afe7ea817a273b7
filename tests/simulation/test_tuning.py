"""Which interval is chosen, and what it is said to cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconverge import Limit
from reconverge.clock import SECOND_NS
from reconverge.errors import InvalidSetting
from reconverge.policies import BALANCED, NAIVE, STRICT
from reconverge.simulation.studies import tuning
from reconverge.simulation.studies.capacity import COEFFICIENTS
from reconverge.simulation.studies.tuning import (
    PATTERNS,
    Deployment,
    Option,
    best,
    intervals_ns,
    nearest,
    often_enough,
    simulated,
    trials,
    weigh,
)

MINUTE = Limit(40, 60.0, algorithm="fixed-window")
SECOND = replace(MINUTE, window=1.0)
KEPT = Option(
    policy="strict",
    sync_interval_s=1.0,
    over_mean_pct=0.0,
    over_max_pct=1.0,
    bound_pct=0.0,
    falsely_refused_pct=5.0,
    messages_per_s=10.0,
    hub_cpu_pct=1.0,
    hub_in_bytes_per_s=1000,
    hub_out_bytes_per_s=500,
    hub_memory_bytes=10_000,
    hubs=1,
)
BATCH_US, CELL_US = COEFFICIENTS.hub_batch_us, COEFFICIENTS.hub_cell_us


def seconds_of(limit: Limit) -> list[float]:
    """The intervals that are tried."""
    return [interval_ns / SECOND_NS for interval_ns in intervals_ns(limit)]


@pytest.fixture
def only_long_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exchanges are what takes time to simulate."""
    monkeypatch.setattr(tuning, "INTERVAL_SHARES", (0.1, 0.5, 1.0))


def test_intervals_from_a_hundredth_of_the_window_to_all_of_it_are_tried() -> None:
    """In order, each once."""
    assert [0.6, 1.2, 3.0, 6.0, 12.0, 30.0, 60.0] == seconds_of(MINUTE)


def test_no_interval_is_shorter_than_ten_milliseconds_or_longer_than_a_hundred_seconds() -> None:
    """Shorter ones are of no use on a network, and longer ones save nothing: leases are renewed more often."""
    assert [0.01, 0.02, 0.05, 0.1] == seconds_of(Limit(10, 0.1))
    assert [36.0, 72.0, 100.0] == seconds_of(Limit(10, 3600.0))
    assert [100.0] == seconds_of(Limit(10, 86_400.0))


def test_a_large_limit_is_simulated_with_a_smaller_one_of_the_same_kind() -> None:
    """It would take longer and be easier to share; a burst keeps its proportion."""
    large = Limit(1_000_000, 60.0, algorithm="token-bucket", burst=250_000)

    assert Limit(2000, 60.0, algorithm="token-bucket", burst=500) == simulated(large, SECOND_NS)
    assert Limit(2000, 60.0) == simulated(Limit(2000, 60.0), SECOND_NS)


def test_a_long_window_is_simulated_as_a_hundred_intervals() -> None:
    """A month of exchanges would take a month of a computer's time."""
    assert Limit(100, 10_000.0) == simulated(Limit(100, 86_400.0), 100 * SECOND_NS)
    assert Limit(100, 100.0) == simulated(Limit(100, 100.0), SECOND_NS)


def test_every_interval_is_tried_with_every_policy_pattern_and_seed() -> None:
    """There are as many trials as there are to wait for."""
    assert 7 * 2 * len(PATTERNS) * 3 == len(trials(Deployment(2, MINUTE, 2.0), [STRICT, NAIVE], range(3)))


@pytest.mark.parametrize(("demand", "hot_keys", "named"), [(0.0, 1, "demand"), (2.0, 0, "hot_keys")])
def test_a_deployment_that_makes_no_sense_is_refused_by_name(demand: float, hot_keys: int, named: str) -> None:
    """Before anything is simulated."""
    with pytest.raises(InvalidSetting) as caught:
        Deployment(2, MINUTE, demand, hot_keys=hot_keys)

    assert named == caught.value.name


def test_the_longest_interval_that_keeps_what_is_asked_for_is_best() -> None:
    """Not the shortest, nor the one that refuses least."""
    options = [
        replace(KEPT, sync_interval_s=0.1, falsely_refused_pct=1.0),
        replace(KEPT, sync_interval_s=2.0),
        replace(KEPT, sync_interval_s=5.0, over_max_pct=1.1),
        replace(KEPT, sync_interval_s=6.0, falsely_refused_pct=5.1),
    ]

    assert options[1] == best(options, over_pct=1.0, refused_pct=5.0)


def test_an_interval_of_which_an_agent_warns_is_not_advised() -> None:
    """Of a window of 60 s it is one above 6 s; where there is none below that, all are looked at."""
    options = [replace(KEPT, sync_interval_s=interval_s) for interval_s in (6.0, 12.0, 30.0)]

    assert options[:1] == often_enough(options, MINUTE)
    assert options[1:] == often_enough(options[1:], MINUTE)


def test_of_two_policies_with_that_interval_the_one_that_refuses_less_is_best() -> None:
    """In whatever order they come, and whatever it declares."""
    less = replace(KEPT, policy="balanced", falsely_refused_pct=4.4, bound_pct=14.0)

    assert less == best([KEPT, less], over_pct=1.0, refused_pct=5.0)
    assert less == best([less, KEPT], over_pct=1.0, refused_pct=5.0)


def test_of_two_policies_that_refuse_about_as_much_the_one_that_declares_less_is_best() -> None:
    """Half a percent is chance, and a guarantee is worth more."""
    bolder = replace(KEPT, policy="balanced", falsely_refused_pct=4.5, bound_pct=14.0)

    assert KEPT == best([KEPT, bolder], over_pct=1.0, refused_pct=5.0)
    assert KEPT == best([bolder, KEPT], over_pct=1.0, refused_pct=5.0)


def test_unless_told_otherwise_two_points_more_than_the_least_may_be_refused() -> None:
    """The least that can be had depends on the fleet; what admits too much does not count for it."""
    options = [
        replace(KEPT, sync_interval_s=0.1, falsely_refused_pct=0.0, over_max_pct=2.0),
        replace(KEPT, sync_interval_s=1.0, falsely_refused_pct=7.0),
        replace(KEPT, sync_interval_s=2.0, falsely_refused_pct=9.0),
        replace(KEPT, sync_interval_s=5.0, falsely_refused_pct=9.1),
    ]

    assert options[2] == best(options, over_pct=1.0)


def test_when_nothing_keeps_it_the_nearest_is_the_one_that_refuses_least() -> None:
    """Of those that do not admit too much; of equals the longer interval."""
    options = [
        replace(KEPT, sync_interval_s=0.1, falsely_refused_pct=1.0, over_max_pct=2.0),
        replace(KEPT, sync_interval_s=1.0, falsely_refused_pct=7.0),
        replace(KEPT, sync_interval_s=2.0, falsely_refused_pct=7.0),
        replace(KEPT, sync_interval_s=5.0, falsely_refused_pct=9.0),
    ]

    assert best(options, over_pct=1.0, refused_pct=5.0) is None
    assert options[2] == nearest(options, over_pct=1.0)
    assert nearest(options, over_pct=0.5) is None
    assert best([], over_pct=1.0) is None


@pytest.mark.usefixtures("only_long_intervals")
def test_one_node_alone_needs_no_exchanges_to_speak_of() -> None:
    """Nobody is there to share with: it admits all that fits, so the longest interval is as good as any."""
    options = weigh(Deployment(1, MINUTE, 2.0), [STRICT, BALANCED], seeds=[0])
    chosen = best(options, over_pct=0.0)

    assert {0.0} == {option.over_max_pct for option in options}
    assert {0.0} == {option.falsely_refused_pct for option in options}
    assert chosen is not None
    assert 60.0 == chosen.sync_interval_s


@pytest.mark.slow
@pytest.mark.usefixtures("only_long_intervals")
def test_the_figures_of_a_fleet_are_those_of_its_worst_pattern() -> None:
    """The worst patterns are known beforehand.

    Strict is never over. Who believes the last merged total admits the limit on every node when a crowd comes that is
    large enough, and sends messages as regular as the interval.
    """
    options = {
        (option.policy, option.sync_interval_s): option
        for option in weigh(Deployment(4, MINUTE, 8.0), [STRICT, NAIVE], seeds=[0])
    }
    naive = options["naive", 60.0]

    assert {0.0} == {option.over_max_pct for (policy, _), option in options.items() if policy == "strict"}
    assert 300.0 == naive.over_max_pct  # four nodes, each of which is asked for twice the limit
    assert 300.0 == naive.bound_pct
    assert 4 / 60 == pytest.approx(naive.messages_per_s, rel=0.06)
    assert 10 * 4 / 60 == pytest.approx(options["naive", 6.0].messages_per_s, rel=0.06)


@pytest.mark.usefixtures("only_long_intervals")
def test_what_the_hub_has_to_do_follows_from_the_messages() -> None:
    """Each is a batch of one cell, for one hot key; for several each regular one has them all, and more are sent."""
    (one,) = _with_hot_keys(1)
    (ten,) = _with_hot_keys(10)
    (many,) = _with_hot_keys(1000)

    assert one.messages_per_s * (BATCH_US + CELL_US) / 1e4 == pytest.approx(one.hub_cpu_pct, rel=0.02)
    assert one.messages_per_s < ten.messages_per_s
    # Regular ones, twice a second, of four full batches; and nine ahead of time, of nine cells, in each interval.
    assert 2 * (4 + 9) / 0.5 == pytest.approx(many.messages_per_s, rel=0.05)
    assert 2 * (4 * BATCH_US + 1000 * CELL_US + 9 * (BATCH_US + 9 * CELL_US)) / 0.5 / 1e4 == (
        pytest.approx(many.hub_cpu_pct, rel=0.05)
    )


def _with_hot_keys(count: int) -> list[Option]:
    options = weigh(Deployment(2, SECOND, 2.0, hot_keys=count), [STRICT], seeds=[0])
    return [option for option in options if option.sync_interval_s == 0.5]


@pytest.mark.slow
@pytest.mark.usefixtures("only_long_intervals")
def test_two_processes_weigh_as_one_does() -> None:
    """Whoever simulates what."""
    deployment = Deployment(2, MINUTE, 2.0)

    assert weigh(deployment, [STRICT], seeds=[0, 1]) == weigh(deployment, [STRICT], seeds=[0, 1], processes=2)


@pytest.mark.usefixtures("only_long_intervals")
def test_the_declared_bound_is_that_of_the_real_limit() -> None:
    """However small the one is that is simulated."""
    (option,) = weigh(Deployment(2, Limit(100_000, 0.01), 0.1), [BALANCED], seeds=[0])

    assert 10.002 == option.bound_pct
