"""Promises of a hub about allowances: they sum to the capacity at most, and go to the nodes that need them."""

from __future__ import annotations

from functools import partial
from random import Random

from reconverge.hub.report import LimitReport
from reconverge.limit.limit import ALGORITHMS, DRAINED, FIXED_WINDOW
from reconverge.testing.claims.scenes.scene import (
    INTERVAL_S,
    LEARNING_S,
    LIMIT,
    QUOTA,
    SECOND_US,
    WINDOW_S,
    Allowances,
    ReportedCell,
    Scene,
    Voice,
    limit,
)
from reconverge.testing.claims.scenes.trial import Trial, claim

SHORT_LEASE_US = 60 * SECOND_US
"""A lease that is much shorter than the window, in microseconds."""
VOICES = 5
STEPS = 120


class LineClaims(Trial):
    """Tests of the promises of a hub about the allowances that it grants."""

    @claim
    async def test_the_first_answer_grants_what_is_needed(self, scene: Scene) -> None:
        """If all of a limit is free, a node that needs a part of it is granted that part in its first exchange."""
        answer = await scene.voice().reports(need=10)

        assert 10 <= answer.allowance <= QUOTA
        assert QUOTA == answer.capacity
        assert QUOTA - answer.allowance == answer.free

    @claim
    async def test_a_node_without_need_is_granted_nothing(self, scene: Scene) -> None:
        """A node that reports no need is granted no allowance, which other nodes might need."""
        answer = await scene.voice().reports(need=0)

        assert 0 == answer.allowance
        assert QUOTA == answer.free

    @claim
    async def test_all_of_the_limit_can_be_used_by_one_node(self, scene: Scene) -> None:
        """A node that needs the whole limit is granted all of it, while no other node needs any."""
        assert QUOTA == (await scene.voice().reports(need=QUOTA)).allowance

    @claim
    async def test_the_next_node_finds_something_left(self, scene: Scene) -> None:
        """Nodes that come one after another, each with a slightly larger need, are all granted an allowance."""
        answers = [await scene.voice().reports(need=need) for need in (1, 1, 4, 5)]

        assert 0 < min(answer.allowance for answer in answers)
        assert 0 < min(answer.overdraft for answer in answers[:2])  # all overdrafts sum to ten

    @claim
    async def test_a_node_cannot_grant_itself_an_allowance(self, scene: Scene) -> None:
        """The hub does not believe a node that reports a larger allowance than it was granted."""
        ada, bob = scene.voice(), scene.voice()
        granted = (await bob.reports(need=QUOTA // 2)).allowance
        await ada.reports(need=1, allowance=0)

        answer = await ada.reports(allowance=QUOTA)

        assert answer.allowance <= QUOTA - granted

    @claim
    async def test_what_is_given_back_goes_to_the_node_in_need(self, scene: Scene) -> None:
        """Two nodes that both need the whole limit share it, as soon as the first has returned its surplus."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(need=QUOTA)
        assert 0 == (await bob.reports(need=QUOTA)).allowance

        kept = (await ada.reports(need=QUOTA, allowance=QUOTA // 2)).allowance

        assert QUOTA // 2 == kept
        assert QUOTA // 2 == (await bob.reports(need=QUOTA)).allowance

    @claim
    async def test_an_answer_that_was_lost_is_made_up_for_by_the_next(self, scene: Scene) -> None:
        """A node that has lost the answer with its allowance is granted the whole allowance in its next exchange."""
        ada = scene.voice()
        await ada.sends(ada.batch(ada.cell(need=QUOTA)))

        assert QUOTA == (await ada.reports(need=QUOTA)).allowance

    @claim
    async def test_an_ask_is_granted_whole_or_not_at_all(self, scene: Scene) -> None:
        """A node that asks for more than is free is granted no part of it, until it can have all."""
        ada, bob = await _with_little_free(scene)

        assert 0 == (await bob.reports(need=50, ask=50)).allowance

        await ada.reports(current=20, allowance=40)
        assert 50 <= (await bob.reports(need=50, ask=50)).allowance

    @claim
    async def test_the_oldest_ask_comes_first(self, scene: Scene) -> None:
        """A returned allowance is kept for the node that has waited longest, not for the one that reports first."""
        ada, bob = await _with_little_free(scene)
        eve = scene.voice()
        await bob.reports(need=50, ask=50)
        assert 0 == (await eve.reports(need=40, ask=40)).allowance
        reserved = (await ada.reports(current=20, allowance=40)).reserved

        assert 50 == reserved
        assert 0 == (await eve.reports(need=40, ask=40)).allowance
        assert 50 <= (await bob.reports(need=50, ask=50)).allowance

    @claim
    async def test_what_comes_free_goes_to_one_of_the_nodes_that_wait_for_it(self, scene: Scene) -> None:
        """If free cost is too little for all waiting nodes, one node is granted it: parts would fit no request."""
        ada, bob, eve = (scene.voice() for _ in range(3))
        await ada.reports(need=QUOTA)
        await ada.reports(current=QUOTA)
        for voice in (bob, eve):
            await voice.reports(need=5, ask=1)
        await ada.reports(current=QUOTA - 1, allowance=QUOTA - 1)

        granted = [(await voice.reports(need=5, ask=1, asked=0)).allowance for voice in (bob, eve, bob)]

        assert [1, 0, 1] == granted

    @claim
    async def test_what_was_used_beyond_an_allowance_is_granted_to_no_other_node(self, scene: Scene) -> None:
        """Use beyond an allowance, as after settling for more, reduces what the hub may grant to other nodes."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(need=1)
        await ada.reports(current=70, allowance=10)

        assert (await bob.reports(need=QUOTA)).allowance <= QUOTA - 70

    @claim
    async def test_the_smallest_capacity_of_all_live_nodes_counts(self, scene: Scene) -> None:
        """While nodes change a limit one by one, the hub grants up to the smallest capacity that live nodes declare."""
        ada, bob = scene.voice(), scene.voice()
        smaller = limit(quota=60)
        await bob.reports(of=smaller, need=1)

        answer = await ada.reports(of=LIMIT, need=QUOTA)

        assert 60 == answer.capacity
        assert answer.allowance <= 60

    @claim
    async def test_the_capacity_grows_when_the_last_small_one_has_gone(self, scene: Scene) -> None:
        """When the last node with the smaller capacity has left, the larger capacity holds."""
        ada, bob = scene.voice(), scene.voice()
        smaller = limit(quota=60)
        await bob.reports(of=smaller, need=1)
        await ada.reports(need=QUOTA)
        await bob.leaves(bob.cell(of=smaller))
        scene.pass_time(INTERVAL_S)

        assert QUOTA == (await ada.reports(need=QUOTA)).capacity

    @claim
    async def test_a_node_holds_little_unused_if_the_window_outlasts_its_lease(self, scene: Scene) -> None:
        """In long windows a node's unused allowance is at most its need, or a twentieth of the limit if more."""
        for algorithm in ALGORITHMS:
            of = limit(algorithm, algorithm=algorithm, quota=1000)
            ada = scene.voice(lease_us=SHORT_LEASE_US)
            for used in (0, 1, 20, 100):
                drained = 1000 * used if of.algorithm in DRAINED else 0
                answer = await ada.reports(of=of, current=used, previous=drained, need=10)
                assert 10 <= answer.allowance - used, algorithm
                assert answer.allowance - used + answer.overdraft <= 50, algorithm
                assert answer.base <= 50, algorithm
            answer = await ada.reports(of=of, current=100, previous=drained, need=400)
            assert 400 == answer.allowance - 100, algorithm

    @claim
    async def test_a_node_that_vanishes_takes_little_of_a_long_window_along(self, scene: Scene) -> None:
        """After a vanished node's lease, other nodes can use the limit except its use and its small allowance."""
        for algorithm in ALGORITHMS:
            of = limit(algorithm, algorithm=algorithm, quota=1000)
            for _ in range(3):
                ada = scene.voice(lease_us=SHORT_LEASE_US)
                await ada.reports(of=of, need=20)
                await ada.reports(of=of, current=20, previous=20_000 if of.algorithm in DRAINED else 0, need=1)
            scene.pass_time(2 * SHORT_LEASE_US / SECOND_US)
            bob = scene.voice(lease_us=SHORT_LEASE_US)
            await bob.reports(of=of, need=1)

            assert 1000 - 3 * (20 + 50) <= (await bob.reports(of=of, need=1000)).allowance, algorithm

    @claim
    async def test_strict_limits_have_no_overdraft(self, scene: Scene) -> None:
        """A node of a strict limit is never granted an overdraft."""
        strict = limit(overshoot_milli=0)
        answers = [await scene.voice().reports(of=strict, need=10) for _ in range(3)]

        assert [0, 0, 0] == [answer.overdraft for answer in answers]

    @claim
    async def test_strict_allowances_are_not_dealt_out_before_all_can_have_spoken(self, scene: Scene) -> None:
        """Once all nodes have had time to report, the hub grants allowances of strict limits as of all others."""
        strict = limit(overshoot_milli=0)
        ada = scene.voice()
        await ada.reports(of=strict, need=QUOTA)
        scene.pass_time(LEARNING_S)

        assert QUOTA == (await ada.reports(of=strict, need=QUOTA)).allowance

    def test_allowances_sum_to_at_most_the_capacity(self) -> None:
        """Allowances sum to the capacity at most, at every moment, although messages are lost, late or repeated."""
        granted = 0

        async def tried(seed: int, of: LimitReport, scene: Scene) -> None:
            nonlocal granted
            crowd = WildNodes(scene, Random(seed), of)
            if scene.time_travel:
                scene.pass_time(LEARNING_S)
            for _ in range(STEPS):
                await crowd.does_something()

                crowd.check(f"seed {seed}, {of.algorithm}, overshoot {of.overshoot_milli}")
            granted = max(granted, crowd.granted)

        for seed in self.seeds:
            for algorithm in ALGORITHMS:
                of = limit(algorithm=algorithm, overshoot_milli=0 if seed % 2 else 250)
                self.on_a_scene(partial(tried, seed, of))

        assert 0 < granted, "nothing was ever granted, so this has shown nothing"


async def _with_little_free(scene: Scene) -> tuple[Voice, Voice]:
    """Returns a node that holds an allowance of 90 out of 100 and has used 20 of it, and a second, new node."""
    ada = scene.voice()
    await ada.reports(need=QUOTA)
    assert 90 == (await ada.reports(current=20, allowance=90)).allowance
    return ada, scene.voice()


class WildNodes:
    """Nodes that report random numbers, except that they never hold more than they were granted."""

    def __init__(self, scene: Scene, random: Random, of: LimitReport) -> None:
        self._scene = scene
        self._random = random
        self._of = of
        self._voices = [scene.voice() for _ in range(VOICES)]
        self._late = [self._voices[0].batch()]
        self.granted = 0
        """The largest allowance that any node has ever held."""

    async def does_something(self) -> None:
        """Lets one random thing happen: an exchange, which may fail, a node that is replaced, or time that passes."""
        random = self._random
        voice = random.choice(self._voices)
        chance = random.random()
        if chance < 0.05:
            await voice.leaves(self._something(voice))
            self._voices.remove(voice)
            self._voices.append(self._scene.voice())
        elif chance < 0.10:
            await voice.sends(random.choice(self._late))
        elif chance < 0.15 and self._scene.time_travel:
            self._scene.pass_time(random.choice([0.01, INTERVAL_S, WINDOW_S / 3, WINDOW_S]))
        else:
            batch = voice.batch(self._something(voice))
            self._late.append(batch)
            if chance < 0.3:
                await voice.sends(batch)
            elif chance < 0.95:
                await voice.exchanges(batch)

    def check(self, where: str) -> None:
        """Raises AssertionError if the nodes together may use more than the capacity."""
        held = [voice.allowances.get((self._of.name, "ada"), Allowances()) for voice in self._voices]
        capacity = self._of.capacity
        self.granted = max([self.granted, *(allowances.allowance for allowances in held)])
        aligned = self._of.algorithm == FIXED_WINDOW
        for window in {allowances.epoch for allowances in held}:
            # A node that has yet to open that window will start it with its base; one that has left it cannot use it.
            now = sum(allowances.allowance for allowances in held if not aligned or allowances.epoch == window)
            yet = sum(allowances.base for allowances in held if aligned and allowances.epoch < window)
            assert now + yet <= capacity, f"allowances sum to {now} + {yet}, more than {capacity}: {where}"
        bases = sum(allowances.base for allowances in held)
        assert bases <= capacity, f"base allowances sum to {bases}, more than {capacity}: {where}"
        overdrafts = sum(allowances.overdraft for allowances in held)
        assert 1000 * overdrafts <= capacity * self._of.overshoot_milli, f"overdrafts sum to {overdrafts}: {where}"

    def _something(self, voice: Voice) -> ReportedCell:
        random = self._random
        held = voice.allowances.get((self._of.name, "ada"), Allowances())
        allowance = random.choice([held.allowance, held.allowance, held.allowance // 2, 0])
        epoch = self._scene.epoch(self._of)
        if epoch > held.epoch and self._of.algorithm == FIXED_WINDOW:
            allowance = held.base
        return voice.cell(
            of=self._of,
            allowance=allowance,
            epoch=max(epoch, held.epoch),
            current=random.choice([0, allowance, allowance, allowance + random.randrange(5)]),
            previous=random.choice([0, 0, random.randrange(self._of.capacity)]),
            need=random.choice([0, 1, 10, QUOTA]),
            ask=random.choice([0, 0, 0, 1, 30, QUOTA]),
        )
