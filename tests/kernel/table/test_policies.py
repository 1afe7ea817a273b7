"""Goal: each policy dares what it declares, and nothing more.

Method: any view of a key at all for the claims, single views for both sides of each condition.
"""

from __future__ import annotations

from math import ceil, floor, inf, nan

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reconverge import InvalidSetting
from reconverge.hub.report import UNBOUNDED
from reconverge.policies import (
    AVAILABLE,
    BALANCED,
    FRESH_INTERVALS,
    NAIVE,
    POLICIES,
    SHARE,
    STRICT,
    View,
    choose,
    hot_step,
)
from tests.support.kernel.odd import HUGE, named

WINDOW_NS = 60_000_000_000
INTERVAL_NS = 100_000_000

CALM = View(
    capacity=100,
    quota=100,
    window_ns=WINDOW_NS,
    aligned=True,
    cost=1,
    own=20,
    allowance=20,
    overdraft=5,
    heard=40.0,
    others=40.0,
    demand=0.5,
    own_demand=0.1,
    last_demand=100,
    nodes=2,
    passed_ns=WINDOW_NS // 2,
    staleness_ns=0,
    interval_ns=INTERVAL_NS,
)
"""Sixty of a hundred used, and fifteen more to come in what is left of the window."""
HOT = CALM._replace(last_demand=101)
"""More was asked for in the window before than there is."""

AMOUNTS = st.integers(0, 300)
RATES = st.floats(0, 20)
VIEWS = st.builds(
    View,
    capacity=st.integers(1, 200),
    quota=st.integers(1, 200),
    window_ns=st.just(WINDOW_NS),
    aligned=st.booleans(),
    cost=st.integers(0, 30),
    own=AMOUNTS,
    allowance=AMOUNTS,
    overdraft=st.integers(0, 30),
    heard=st.floats(0, 300),
    others=st.floats(0, 300),
    demand=RATES,
    own_demand=RATES,
    last_demand=AMOUNTS,
    nodes=st.integers(1, 20),
    passed_ns=st.integers(0, WINDOW_NS),
    staleness_ns=st.integers(0, 5 * INTERVAL_NS) | st.integers(0, WINDOW_NS),
    interval_ns=st.just(INTERVAL_NS),
)


def calmed(view: View) -> View:
    """The same, with a quota that all that is being asked for fits into: few views drawn at random are calm."""
    used = view.own + view.others if view.aligned else 0.0
    expected = max(view.demand, view.own_demand) * view.window_ns / 1e9
    return view._replace(quota=max(view.quota, view.last_demand, ceil(used + expected)))


@given(view=VIEWS)
def test_strict_is_its_allowance(view: View) -> None:
    """No other fact matters."""
    assert view.allowance == STRICT.reach(view)


@given(view=VIEWS)
def test_balanced_goes_past_its_allowance_by_its_overdraft_or_one_request(view: View) -> None:
    """The bound that the sum of all overdrafts and one request per node add up to."""
    assert BALANCED.reach(view) <= view.allowance + max(view.overdraft, view.cost)


@given(view=VIEWS)
def test_balanced_goes_past_its_allowance_only_while_the_fleet_is_inside(view: View) -> None:
    """Its own use and what the others may have used by now stay within the capacity."""
    reach = BALANCED.reach(view)

    assert reach <= view.allowance or reach + view.others <= view.capacity


@given(view=VIEWS, over_ns=st.integers(1, WINDOW_NS))
def test_balanced_is_its_allowance_once_answers_are_missing(view: View, over_ns: int) -> None:
    """More than three intervals old is too old to dare anything on."""
    view = view._replace(staleness_ns=FRESH_INTERVALS * view.interval_ns + over_ns)

    assert view.allowance == BALANCED.reach(view)


def test_balanced_dares_its_overdraft_on_a_calm_key_up_to_three_intervals() -> None:
    """The last moment at which an answer counts as fresh."""
    view = CALM._replace(staleness_ns=FRESH_INTERVALS * INTERVAL_NS)

    assert (25, 20) == (BALANCED.reach(view), BALANCED.reach(view._replace(staleness_ns=view.staleness_ns + 1)))


def test_balanced_dares_a_whole_request_on_a_calm_key() -> None:
    """A cost above the overdraft would otherwise never fit past the allowance."""
    assert 28 == BALANCED.reach(CALM._replace(cost=8))


def test_balanced_leaves_to_the_others_what_they_may_have_used() -> None:
    """When they are believed to leave three, three it is."""
    assert 3 == BALANCED.reach(CALM._replace(allowance=0, own=0, others=96.5, demand=0.0))


@pytest.mark.parametrize(
    "view",
    [
        HOT,
        CALM._replace(demand=41 / 30),  # forty-one more in the thirty seconds that are left
        CALM._replace(own_demand=41 / 30),
        CALM._replace(own=46),
        CALM._replace(others=66.0),
    ],
)
def test_a_key_is_hot_when_more_is_asked_for_than_there_is(view: View) -> None:
    """In the window before, or in this one as far as can be foreseen."""
    assert (True, False) == (CALM.calm, view.calm)


def test_a_key_is_calm_when_exactly_everything_will_be_used() -> None:
    """Sixty used and forty more to come."""
    assert CALM._replace(demand=40 / 30).calm


def test_without_windows_a_key_is_hot_when_it_is_asked_for_more_than_the_pace() -> None:
    """Neither a sliding window nor a bucket starts afresh, so that only the pace matters."""
    view = CALM._replace(aligned=False, own=100, others=100.0, demand=100 / 60)

    assert (True, False) == (view.calm, view._replace(demand=100.1 / 60).calm)


@given(view=VIEWS)
def test_a_hot_step_is_one_request_or_a_hundredth_of_the_share(view: View) -> None:
    """And never more than that, nor less than nothing."""
    most = max(view.cost, floor(view.capacity / 100 / view.nodes))

    assert 0 <= hot_step(view) <= most


def test_a_hot_step_makes_up_for_allowances_being_whole_numbers() -> None:
    """One request, in a window of which an answer has come."""
    assert (1, 21) == (hot_step(HOT), BALANCED.reach(HOT))


def test_a_large_share_makes_a_larger_hot_step() -> None:
    """A hundredth of a thousand between two is five, if the overdraft is as large."""
    view = HOT._replace(capacity=1000, overdraft=50)

    assert (5, 4) == (hot_step(view), hot_step(view._replace(overdraft=4)))


@given(view=VIEWS)
def test_nobody_steps_past_a_hot_allowance_without_windows(view: View) -> None:
    """A sliding window or a bucket gives what a step would bring a moment later anyway."""
    assert 0 == hot_step(view._replace(aligned=False))


@pytest.mark.parametrize("staleness_ns", [0, INTERVAL_NS])
def test_nobody_steps_past_a_hot_allowance_before_the_window_has_settled(staleness_ns: int) -> None:
    """Only an answer from half an interval into the window, or later, knows of the crowd at its start."""
    view = HOT._replace(staleness_ns=staleness_ns, passed_ns=staleness_ns + INTERVAL_NS // 2)

    assert (1, 0) == (hot_step(view), hot_step(view._replace(passed_ns=view.passed_ns - 1)))


def test_in_a_window_shorter_than_the_interval_half_the_window_is_waited_for() -> None:
    """Half an interval would be past its end."""
    view = HOT._replace(window_ns=INTERVAL_NS // 2, passed_ns=INTERVAL_NS // 4)

    assert (1, 0) == (hot_step(view), hot_step(view._replace(passed_ns=view.passed_ns - 1)))


@given(view=VIEWS)
def test_available_is_never_below_its_allowance(view: View) -> None:
    """An allowance is there to be filled, whatever the others do."""
    assert view.allowance <= AVAILABLE.reach(view)


@given(view=VIEWS.map(calmed))
def test_available_takes_what_is_left_of_a_calm_key(view: View) -> None:
    """However old the last answer is, and without any overdraft."""
    assert view.calm
    assert max(view.allowance, floor(view.capacity - view.others)) == AVAILABLE.reach(view)


@given(view=VIEWS)
def test_available_dares_no_more_than_balanced_on_a_hot_key(view: View) -> None:
    """One step, within what the others leave."""
    assume(not view.calm)

    assert AVAILABLE.reach(view) <= view.allowance + hot_step(view)


@given(view=VIEWS)
def test_naive_believes_the_last_answer(view: View) -> None:
    """Later events do not change that."""
    assert floor(view.capacity - view.heard) == NAIVE.reach(view)


@pytest.mark.parametrize(
    ("policy", "overshoot", "cold", "milli"),
    [
        ("strict", 0.0, 0.0, 0),
        ("balanced", 0.1, SHARE, 100),
        ("available", inf, 1.0, UNBOUNDED),
        ("naive", inf, 1.0, UNBOUNDED),
    ],
)
def test_each_policy_is_two_numbers(policy: str, overshoot: float, cold: float | str, milli: int) -> None:
    """How far past the limit, and how much of it on a key that is new to the node; and the first as it travels."""
    chosen = choose(policy)

    assert (overshoot, cold, milli) == (chosen.max_overshoot, chosen.cold_allowance, chosen.overshoot_milli)


@pytest.mark.parametrize(
    ("overshoot", "name"),
    [(None, "balanced"), (0, "strict"), (0.001, "balanced"), (0.5, "balanced"), (1, "balanced"), (inf, "available")],
)
def test_a_number_means_a_policy(overshoot: float | None, name: str) -> None:
    """0 is strict, infinity is available, and everything between is balanced."""
    assert name == choose(max_overshoot=overshoot).name


@given(thousandths=st.integers(1, 1000))
def test_whole_thousandths_travel_exactly(thousandths: int) -> None:
    """0.29 is 290 thousandths, though its closest float is a little less."""
    assert thousandths == choose(max_overshoot=thousandths / 1000).overshoot_milli


@given(overshoot=st.floats(0.001, 1))
def test_what_travels_is_never_more_than_was_allowed(overshoot: float) -> None:
    """Parts of a thousandth are dropped."""
    assert choose(max_overshoot=overshoot).overshoot_milli <= overshoot * 1000 + 1e-9


@pytest.mark.parametrize("number", [-0.1, -inf, nan, 0.000_9, 1.001, 10, 1e17, True, "0.1", [0.1], HUGE], ids=named)
def test_any_other_overshoot_is_refused(number: float) -> None:
    """Below zero, too small to deal out, or too large to count with."""
    with pytest.raises(InvalidSetting, match="max_overshoot"):
        choose(max_overshoot=number)


@pytest.mark.parametrize("number", [-0.1, 1.1, inf, nan, True, "1", HUGE], ids=named)
def test_a_cold_allowance_is_a_share(number: float) -> None:
    """From nothing to the whole limit."""
    with pytest.raises(InvalidSetting, match="cold_allowance"):
        choose(cold_allowance=number)


@pytest.mark.parametrize("name", ["", "STRICT", "lenient", 7, STRICT, ["strict"]], ids=named)
def test_an_unknown_policy_is_refused(name: str) -> None:
    """With those that are known."""
    with pytest.raises(InvalidSetting, match="known: strict, balanced, available, naive"):
        choose(name)


@pytest.mark.parametrize(
    ("name", "overshoot"),
    [("strict", 0.1), ("strict", inf), ("balanced", 0), ("balanced", inf), ("available", 0.1), ("naive", inf)],
)
def test_a_name_and_a_number_that_contradict_each_other_are_refused(name: str, overshoot: float) -> None:
    """Nobody guesses which of the two was meant."""
    with pytest.raises(InvalidSetting, match="does not go with the policy"):
        choose(name, max_overshoot=overshoot)


@pytest.mark.parametrize(("name", "overshoot"), [("strict", 0), ("balanced", 0.5), ("available", inf)])
def test_a_name_and_a_number_may_agree(name: str, overshoot: float) -> None:
    """Saying the same twice is harmless, and the number is the one that counts."""
    chosen = choose(name, max_overshoot=overshoot)

    assert (name, overshoot) == (chosen.name, chosen.max_overshoot)


def test_numbers_of_ones_own_change_no_policy_of_another() -> None:
    """The chosen policy is a copy."""
    choose("balanced", max_overshoot=0.5, cold_allowance=0.0)

    assert (0.1, SHARE) == (POLICIES["balanced"].max_overshoot, POLICIES["balanced"].cold_allowance)


@pytest.mark.parametrize(
    ("nodes", "cost_max", "most"), [(0, 1, 100), (1, 1, 100), (3, 1, 34), (200, 1, 1), (200, 7, 7)]
)
def test_the_declared_bound_of_a_new_key(nodes: int, cost_max: int, most: int) -> None:
    """A node admits its share of a hundred, rounded up, but one request at least; all of it if it knows no number."""
    assert most == choose("balanced").cold(100, nodes, cost_max)


@pytest.mark.parametrize(
    ("name", "bound"),
    [("strict", 0.0), ("balanced", 100 + 8 * 5), ("available", 7 * 1000.0), ("naive", 7 * 1000.0)],
)
def test_the_declared_bound(name: str, bound: float) -> None:
    """For a thousand, eight nodes and requests of up to five."""
    assert bound == choose(name).bound(1000, nodes=8, cost_max=5)


def test_one_node_alone_exceeds_nothing() -> None:
    """A node knows what it has admitted itself, so that available has a bound of zero on a single one."""
    assert 0.0 == AVAILABLE.bound(1000, nodes=1)
