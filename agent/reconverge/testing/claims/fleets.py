"""Promises of a hub to real nodes: they keep the limit, and in the end the hub knows all that they have admitted."""

from __future__ import annotations

from functools import partial
from random import Random

from reconverge.hub.report import Totals
from reconverge.limit.limit import FIXED_WINDOW, SLIDING_LOG, SLIDING_WINDOW, TOKEN_BUCKET, Limit
from reconverge.policies import STRICT, Policy, choose
from reconverge.testing.claims.scenes.fleet import KEYS, LIMIT_NAME, FleetOfClaims
from reconverge.testing.claims.scenes.scene import LEARNING_S, WINDOW_S, Scene
from reconverge.testing.claims.scenes.trial import Trial, claim

MEMBERS = 4
STEPS = 150
COST_MAX = 5
BALANCED = choose("balanced", cold_allowance=0.0)
"""The balanced policy without the allowance for keys that are new to a node; that allowance has a bound of its own."""
ROUNDING = 1e-6
"""The tolerance of a comparison, because fractions of a cost are added up as floating-point numbers."""


class FleetClaims(Trial):
    """Tests of the promises of a hub in a fleet of real nodes."""

    def test_strict_nodes_never_exceed_the_limit(self) -> None:
        """Nodes with the strict policy never exceed the limit, although messages are lost and nodes crash."""
        self._try_fleets(STRICT)

    def test_balanced_nodes_stay_within_their_bound(self) -> None:
        """Nodes with the balanced policy never exceed their declared bound."""
        self._try_fleets(BALANCED)

    @claim
    async def test_all_views_agree_after_quiet(self, scene: Scene) -> None:
        """When no more requests come, every node soon knows how much all nodes have admitted."""
        scene.pass_time(1.0)
        fleet = self._fleet(scene, 0, FIXED_WINDOW, BALANCED)
        for _ in range(20):
            for member in fleet.members:
                fleet.ask(member, KEYS[0], 1, times=2)
                await member.exchanges()
            scene.pass_time(0.1)
        for _ in range(3):
            for member in fleet.members:
                await member.exchanges()
            scene.pass_time(1.0)

        assert 0 < fleet.truth[KEYS[0]].used()
        assert [fleet.truth[KEYS[0]].used()] * MEMBERS == [member.sees(KEYS[0]) for member in fleet.members]

    def _try_fleets(self, policy: Policy) -> None:
        """Tries several random fleets with this policy, and checks the bound after each step."""
        admitted = 0

        async def tried(seed: int, algorithm: str, scene: Scene) -> None:
            nonlocal admitted
            fleet = self._fleet(scene, seed, algorithm, policy)
            if scene.time_travel:
                await fleet.members[0].exchanges()
                scene.pass_time(LEARNING_S)
            for _ in range(STEPS):
                await fleet.does_something(crashes=seed % 2 == 1)

                bound = policy.bound(fleet.capacity, fleet.members_ever, COST_MAX)
                for key, truth in fleet.truth.items():
                    assert truth.excess() <= bound + ROUNDING, f"{key}: seed {seed}, {algorithm}, {policy.name}"
            for member in fleet.members:
                await member.leaves()
            known, certain = (await scene.hub.totals()).get(LIMIT_NAME, Totals(0, 0)), fleet.totals
            admitted += certain.charged

            # What a crashed node had admitted is known up to its last report.
            assert certain.charged <= known.charged <= certain.charged + fleet.lost.charged
            assert certain.refunded <= known.refunded <= certain.refunded + fleet.lost.refunded

        for seed in self.seeds:
            for algorithm in (FIXED_WINDOW, SLIDING_WINDOW, SLIDING_LOG, TOKEN_BUCKET):
                self.on_a_scene(partial(tried, seed, algorithm))

        assert 0 < admitted or self.own_clock, "nothing was ever admitted, so this has shown nothing"

    def _fleet(self, scene: Scene, seed: int, algorithm: str, policy: Policy) -> FleetOfClaims:
        window_s = 10.0 if scene.time_travel else WINDOW_S
        limit = Limit(100, window_s, algorithm=algorithm, burst=40 if algorithm == TOKEN_BUCKET else None)
        hubs = [scene.another_hub() for _ in range(MEMBERS)]
        return FleetOfClaims(hubs, scene.clock, limit=limit, policy=policy, random=Random(seed))
