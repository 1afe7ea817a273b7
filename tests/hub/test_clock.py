"""Goal: a node knows the hub's time as well as its round trips allow, and knows how well that is.

Method: round trips by the nanosecond, and any series of them past a clock that is known.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge.clock import MILLISECOND_NS, SECOND_NS, ManualClock
from reconverge.hub.clock import DRIFT, HubClock
from reconverge.limit import Limit
from reconverge.policies import AVAILABLE
from reconverge.simulation.explore.node import START_S, SmallNode
from reconverge_sync.memory import MemoryHub

AHEAD_NS = 1_750_000_000 * SECOND_NS
"""How far the hub's clock is ahead of this node's, unless a test says otherwise."""
HALF_MICROSECOND_NS = 500
"""The hub tells its time to the microsecond below."""
MINUTE_BEGINS_S = START_S - START_S % 60


class Trips:
    """A node's estimate, and the hub's clock that it estimates."""

    def __init__(self) -> None:
        self.estimate = HubClock()
        self.now_ns = 0
        self.ahead_ns = AHEAD_NS

    def make(self, *, out_ns: int, back_ns: int, drift: float = 0.0) -> bool:
        """One round trip; whether it made void what was known before."""
        sent_ns = self.now_ns
        self.wait(out_ns, drift=drift)
        hub_us = (self.now_ns + self.ahead_ns) // 1000
        self.wait(back_ns, drift=drift)
        return self.estimate.add(sent_ns=sent_ns, received_ns=self.now_ns, hub_us=hub_us)

    def wait(self, ns: int, *, drift: float = 0.0) -> None:
        """Time passes, and the hub's clock gains on this one."""
        self.now_ns += ns
        self.ahead_ns += int(drift * ns)

    @property
    def wrong_by_ns(self) -> int:
        """By how much the estimate is off."""
        return abs(self.estimate.offset_ns - self.ahead_ns)

    @property
    def error_ns(self) -> int:
        """By how much it says that it may be."""
        return self.estimate.error_ns(self.now_ns)


def test_the_hub_is_taken_to_answer_in_the_middle_of_a_round_trip() -> None:
    """When both ways take equally long, only the rest of the microsecond is unknown."""
    trips = Trips()

    trips.make(out_ns=MILLISECOND_NS, back_ns=MILLISECOND_NS)

    assert trips.wrong_by_ns <= HALF_MICROSECOND_NS


@pytest.mark.parametrize(("out_ns", "back_ns"), [(0, MILLISECOND_NS), (MILLISECOND_NS, 0)])
def test_the_error_covers_a_round_trip_that_went_one_way_only(out_ns: int, back_ns: int) -> None:
    """Half the round trip and half a microsecond, and what the clocks drift apart meanwhile: no more, and no less."""
    trips = Trips()

    trips.make(out_ns=out_ns, back_ns=back_ns)

    assert MILLISECOND_NS // 2 <= trips.wrong_by_ns + HALF_MICROSECOND_NS
    assert MILLISECOND_NS // 2 + HALF_MICROSECOND_NS <= trips.error_ns
    assert trips.error_ns <= MILLISECOND_NS // 2 + HALF_MICROSECOND_NS + DRIFT * MILLISECOND_NS + 1


def test_the_first_round_trip_makes_void_what_the_wall_clock_said() -> None:
    """Later ones that agree with it do not."""
    trips = Trips()

    first = trips.make(out_ns=10, back_ns=10)

    assert (True, False) == (first, trips.make(out_ns=MILLISECOND_NS, back_ns=0))


def test_the_shortest_round_trip_is_believed() -> None:
    """A slow and lopsided one after it changes nothing."""
    trips = Trips()
    trips.make(out_ns=1000, back_ns=1000)
    before = trips.estimate.offset_ns

    trips.make(out_ns=50 * MILLISECOND_NS, back_ns=0)

    assert before == trips.estimate.offset_ns


def test_a_shorter_round_trip_is_believed_at_once() -> None:
    """It does not matter how many worse ones came before."""
    trips = Trips()
    for _ in range(16):
        trips.make(out_ns=50 * MILLISECOND_NS, back_ns=0)

    trips.make(out_ns=1000, back_ns=1000)

    assert trips.wrong_by_ns <= HALF_MICROSECOND_NS


def test_the_sixteenth_round_trip_after_the_best_is_the_last_to_rest_on_it() -> None:
    """Old samples make room for new ones, fifteen after the best still leave it."""
    trips = Trips()
    trips.make(out_ns=0, back_ns=0)
    for _ in range(15):
        trips.make(out_ns=MILLISECOND_NS, back_ns=MILLISECOND_NS)
    with_the_best = trips.error_ns

    trips.make(out_ns=MILLISECOND_NS, back_ns=MILLISECOND_NS)

    assert with_the_best < MILLISECOND_NS <= trips.error_ns


def test_trust_wears_off_with_age() -> None:
    """Two clocks drift apart, so that a good old sample is worth less than a fair new one after a while."""
    trips = Trips()
    trips.make(out_ns=1000, back_ns=1000)
    young = trips.error_ns

    trips.wait(10 * SECOND_NS)

    assert DRIFT * 10 * SECOND_NS <= trips.error_ns - young <= DRIFT * 10 * SECOND_NS + 1


def test_a_jump_of_the_hubs_clock_makes_void_what_was_known() -> None:
    """The new round trip cannot be reconciled with the old ones: it is believed, and they are dropped."""
    trips = Trips()
    for _ in range(5):
        trips.make(out_ns=1000, back_ns=1000)
    trips.ahead_ns += SECOND_NS

    void = trips.make(out_ns=MILLISECOND_NS, back_ns=MILLISECOND_NS)

    assert void
    assert trips.wrong_by_ns <= trips.error_ns


@pytest.mark.parametrize("sign", [1, -1])
def test_a_jump_within_the_error_goes_unnoticed_and_one_beyond_it_does_not(sign: int) -> None:
    """The error of two round trips together is no evidence of a jump; a microsecond more is."""
    within, beyond = Trips(), Trips()
    for trips, jump_ns in [(within, 2 * MILLISECOND_NS), (beyond, 2 * MILLISECOND_NS + 2000)]:
        trips.make(out_ns=MILLISECOND_NS, back_ns=MILLISECOND_NS)
        trips.ahead_ns += sign * jump_ns

    assert (False, True) == (
        within.make(out_ns=MILLISECOND_NS, back_ns=MILLISECOND_NS),
        beyond.make(out_ns=MILLISECOND_NS, back_ns=MILLISECOND_NS),
    )


def test_what_the_clocks_drift_apart_within_a_round_trip_is_no_jump() -> None:
    """A hub that spoke at once and was heard a second later has gained on this clock meanwhile."""
    trips = Trips()
    trips.make(out_ns=0, back_ns=SECOND_NS, drift=0.9 * DRIFT)

    assert not trips.make(out_ns=0, back_ns=0)


DELAYS_NS = st.sampled_from([0, 1, 999, 1000, 250_000]) | st.integers(0, SECOND_NS)


@given(
    trips_made=st.lists(st.tuples(DELAYS_NS, DELAYS_NS, st.integers(0, 100 * SECOND_NS)), min_size=1, max_size=40),
    drift=st.sampled_from([0.0, 0.9 * DRIFT, -0.9 * DRIFT]),
)
def test_the_hubs_clock_is_always_within_the_error(trips_made: list[tuple[int, int, int]], drift: float) -> None:
    """The network and the drift of clocks cause no false alarm, and no larger error than is told."""
    trips = Trips()
    alarms = 0

    for out_ns, back_ns, pause_ns in trips_made:
        alarms += trips.make(out_ns=out_ns, back_ns=back_ns, drift=drift)
        assert trips.wrong_by_ns <= trips.error_ns
        trips.wait(pause_ns, drift=drift)
        assert trips.wrong_by_ns <= trips.error_ns

    assert 1 == alarms


class NodeBesideHub:
    """One node and a hub whose clock is not the one on the node's wall."""

    def __init__(self, *, hub_ahead_s: float) -> None:
        self.clock = ManualClock(MINUTE_BEGINS_S)
        self.hubs_clock = ManualClock(MINUTE_BEGINS_S + hub_ahead_s)
        self.hub = MemoryHub(clock=self.hubs_clock)
        self.node = SmallNode(self.clock)
        self.table = self.node.limit(Limit(10, 60, algorithm="fixed-window"), AVAILABLE)

    def passes(self, seconds: float) -> None:
        """Time passes for both."""
        self.clock.advance(seconds)
        self.hubs_clock.advance(seconds)

    def admitted_of(self, attempts: int) -> int:
        """How many requests the node admits now."""
        return sum(self.table.allow("ada") for _ in range(attempts))

    def keeps_in_touch(self, seconds: int) -> None:
        """Time passes in steps of a second, with exchanges."""
        for _ in range(seconds):
            self.passes(1.0)
            self.node.exchanges_with(self.hub, rounds=2)


def test_windows_follow_the_hubs_clock_and_not_the_one_on_the_wall() -> None:
    """With a hub that is twenty seconds ahead, the minute ends forty seconds after it began on the wall."""
    fleet = NodeBesideHub(hub_ahead_s=20.0)
    fleet.node.exchanges_with(fleet.hub)
    used = fleet.admitted_of(11)

    fleet.keeps_in_touch(39)
    before = fleet.admitted_of(1)
    fleet.keeps_in_touch(1)

    assert (10, 0, 1) == (used, before, fleet.admitted_of(1))


def test_what_was_charged_by_the_wall_clock_is_carried_over_to_the_hubs() -> None:
    """The first answer tells the time; what was used before it is neither lost nor counted in another window."""
    fleet = NodeBesideHub(hub_ahead_s=90.0)
    before = fleet.admitted_of(11)
    fleet.node.exchanges_with(fleet.hub, rounds=2)

    assert (10, 0, 10) == (before, fleet.admitted_of(1), fleet.table.usage("ada").own)


def test_counts_are_carried_over_a_jump_of_the_hubs_clock() -> None:
    """It is the clock that moved, not time: what was used a moment ago still counts in the window that it is now."""
    fleet = NodeBesideHub(hub_ahead_s=0.0)
    fleet.node.exchanges_with(fleet.hub)
    used = fleet.admitted_of(11)
    fleet.keeps_in_touch(2)

    fleet.hubs_clock.jump(90.0)
    fleet.keeps_in_touch(1)

    assert (10, 10) == (used, fleet.table.usage("ada").own)


def test_a_node_says_how_wrong_its_clock_may_be() -> None:
    """The error of the best round trip, in seconds; nobody can know it exactly."""
    fleet = NodeBesideHub(hub_ahead_s=0.0)
    fleet.node.sends()
    fleet.passes(0.5)
    fleet.node.reaches(fleet.hub)
    fleet.passes(0.5)
    fleet.node.hears()

    clock_error = fleet.node.syncer.stats(fleet.clock.monotonic_ns()).clock_error

    assert 0.5 <= clock_error <= 0.5 + 1e-6 + DRIFT
