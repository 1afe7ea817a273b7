"""Goal: the bounds hold that are declared for a key nobody has heard of yet, and for `available`.

Method: the state machine of the protocol, with policies that may admit before the first answer.
"""

from __future__ import annotations

from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant

from reconverge.limit import ALGORITHMS
from reconverge.limit.limit import SMOOTH_WARMING_UP
from reconverge.policies import SHARE, choose
from reconverge.simulation.truth import declared_bound
from tests.protocol.test_protocol import COST_MAX, KEYS, KEYS_MAX, NODES_MAX, Protocol, limit_of
from tests.support.aligned import TWISTS, twisted
from tests.support.effort import tried


class Daring(Protocol):
    """The same nodes, hub and network, but nodes that do not wait for the first answer."""

    @initialize(
        algorithm=st.sampled_from(ALGORITHMS),
        quota=st.sampled_from([7, 40, 300]),
        window_s=st.sampled_from([2.0, 9.0]),
        overshoot=st.sampled_from([0.1, 0.5, inf]),
        cold_allowance=st.sampled_from([0.25, 1.0, SHARE]),
        soft=st.sampled_from([0.0, 0.0, 0.3]),
        nodes=st.integers(2, NODES_MAX),
        twist=st.sampled_from(TWISTS),
        keys_max=KEYS_MAX,
    )
    def begin(
        self,
        algorithm: str,
        quota: int,
        window_s: float,
        overshoot: float,
        cold_allowance: float | str,
        soft: float,
        nodes: int,
        twist: str,
        keys_max: int,
    ) -> None:
        """Start the nodes, with one limit."""
        self.keys_max = keys_max
        limit = limit_of(quota, window_s, algorithm, 12, soft=soft)
        self.waits = False
        self.policy = choose(max_overshoot=overshoot, cold_allowance=cold_allowance)
        self._begin(twisted(limit, twist), twist, nodes)

    @invariant()
    def the_limit_holds(self) -> None:
        """No key is admitted beyond the declared bound, to which each node adds what it may do to a new key."""
        if not hasattr(self, "truth"):
            return
        capacity = self.limit.capacity
        bound = declared_bound(self.limit, self.policy, self.nodes_ever, COST_MAX)
        if self.policy.max_overshoot < inf and not self.limit.smooth:
            bound += self.nodes_ever * self.policy.cold(capacity, 0)
        for key in KEYS:
            assert self.truth[key].excess() <= bound + 1e-6, f"{key}: {self.truth[key].excess()} > {bound}"


TestDaring = Daring.TestCase
TestDaring.settings = settings(max_examples=tried(50, long=200, brief=15), stateful_step_count=30)


@given(nothing=st.none())
@settings(max_examples=1)
def test_a_smooth_limit_gives_no_second_credit_to_a_key_that_left_and_came_back(nothing: None) -> None:
    """Six steps, found at random: with room for two keys, one left while it still owed a part of its last request."""
    state = Daring()
    state.begin(
        algorithm=SMOOTH_WARMING_UP,
        quota=7,
        window_s=2.0,
        overshoot=0.1,
        cold_allowance=0.25,
        soft=0.0,
        nodes=1,
        twist=TWISTS[0],
        keys_max=len(KEYS),
    )
    for cost, key, rounds in ((5, "bob", 1), (1, "ada", 3), (1, "ada", 1), (1, "ada", 1), (1, "ada", 5), (5, "bob", 2)):
        state.all_is_well(rounds=rounds, key=key, cost=cost, times=1)
        state.the_limit_holds()
        assert state.truth["bob"].excess() <= COST_MAX + 1e-6

    state.teardown()
