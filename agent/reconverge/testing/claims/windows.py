"""Promises of a hub about windows and resets: its own clock opens them, and earlier use fades."""

from __future__ import annotations

from reconverge.limit.limit import SLIDING_LOG, SLIDING_WINDOW, TOKEN_BUCKET
from reconverge.testing.claims.scenes.scene import INTERVAL_S, LIMIT, QUOTA, WINDOW_S, Scene, limit
from reconverge.testing.claims.scenes.trial import Trial, claim

SLIDING = limit(algorithm=SLIDING_WINDOW)
BUCKET = limit(algorithm=TOKEN_BUCKET)
DATED = limit(algorithm=SLIDING_LOG)


class WindowClaims(Trial):
    """Tests of the promises of a hub about windows and resets."""

    @claim
    async def test_the_epoch_is_counted_from_1970(self, scene: Scene) -> None:
        """Windows are numbered from 1970 on, so all nodes and all hubs give a window the same number."""
        answer = await scene.voice().exchanges((ada := scene.voice()).batch(ada.cell()))

        assert answer.hub_us // LIMIT.window_us == answer.cells[0].epoch

    @claim
    async def test_the_hubs_clock_does_not_run_backwards(self, scene: Scene) -> None:
        """Each answer carries the hub's time, in microseconds since 1970, and that time never decreases."""
        moments = [(await scene.voice().says_hello()).hub_us for _ in range(10)]

        assert sorted(moments) == moments
        assert 1_600_000_000_000_000 < moments[0] < 10_000_000_000_000_000

    @claim
    async def test_a_node_slightly_ahead_opens_the_window(self, scene: Scene) -> None:
        """A node whose clock is slightly ahead may report use in the next window, which the hub then counts there."""
        ada, bob = scene.voice(), scene.voice()
        await bob.reports(current=50)

        answer = await ada.reports(epoch=scene.epoch() + 1, current=3)

        assert (scene.epoch() + 1, 3) == (answer.epoch, answer.current)

    @claim
    async def test_a_node_far_ahead_opens_nothing(self, scene: Scene) -> None:
        """A node whose clock is far ahead opens no window, because the hub's clock decides which window is open."""
        answer = await scene.voice().reports(epoch=scene.epoch() + 2, current=3)

        assert (scene.epoch(), 0) == (answer.epoch, answer.current)

    @claim
    async def test_a_fixed_window_starts_from_zero(self, scene: Scene) -> None:
        """The use of a fixed window counts until that window ends, and the next one starts with zero."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(current=30)
        scene.pass_time(WINDOW_S - 1e-6 * (scene.hub_us() % LIMIT.window_us) - 1e-6)
        assert 30 == (await bob.reports()).current

        scene.pass_time(1e-6)

        assert 0 == (await bob.reports()).current

    @claim
    async def test_a_fixed_window_starts_from_base_allowances_that_sum_to_the_capacity(self, scene: Scene) -> None:
        """Nodes begin a fixed window with base allowances, so not all have to exchange at that moment."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(need=QUOTA)
        await ada.reports(need=QUOTA, allowance=QUOTA // 2)
        await bob.reports(need=QUOTA)
        bases = ada.allowances["limit", "ada"].base, bob.allowances["limit", "ada"].base
        scene.pass_time(WINDOW_S)

        allowances = (await ada.reports()).allowance, (await bob.reports()).allowance

        assert bases == allowances
        assert 0 < sum(bases) <= QUOTA

    @claim
    async def test_a_sliding_window_remembers_the_one_before(self, scene: Scene) -> None:
        """Under a sliding window, use still counts in the window after its own, and in no later one."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(of=SLIDING, current=30)
        scene.pass_time(WINDOW_S)
        answer = await bob.reports(of=SLIDING, current=4)
        assert (4, 30) == (answer.current, answer.previous)

        scene.pass_time(WINDOW_S)
        answer = await ada.reports(of=SLIDING)

        assert (0, 4) == (answer.current, answer.previous)

    @claim
    async def test_a_sliding_window_forgets_what_is_two_windows_old(self, scene: Scene) -> None:
        """Under a sliding window, use from two windows ago counts no more, although no node has reported since."""
        await scene.voice().reports(of=SLIDING, current=30)
        scene.pass_time(2 * WINDOW_S)

        assert 0 == (await scene.voice().reports(of=SLIDING)).previous

    @claim
    async def test_news_of_the_window_before_count_there(self, scene: Scene) -> None:
        """If a node has not noticed a window's end and reports use in that window, the hub counts the use there."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(of=SLIDING, current=30)
        old = scene.epoch(SLIDING)
        scene.pass_time(WINDOW_S)
        await bob.reports(of=SLIDING)

        answer = await ada.reports(of=SLIDING, epoch=old, current=45)

        assert (old + 1, 0, 45) == (answer.epoch, answer.current, answer.previous)

    @claim
    async def test_what_has_faded_can_be_granted_again(self, scene: Scene) -> None:
        """In the middle of a sliding window, half of the last window's use counts; the other half can be granted."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(of=SLIDING, need=QUOTA)
        await ada.leaves(ada.cell(of=SLIDING, current=QUOTA))
        scene.pass_time(1.5 * WINDOW_S - 1e-6 * (scene.hub_us() % SLIDING.window_us))

        assert QUOTA // 2 == (await bob.reports(of=SLIDING, need=QUOTA)).allowance

    @claim
    async def test_a_departed_nodes_bucket_drains(self, scene: Scene) -> None:
        """When a node has left, the level of its bucket drains at the limit's rate."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(of=BUCKET, need=QUOTA)
        await ada.leaves(ada.cell(of=BUCKET, current=QUOTA, previous=1000 * QUOTA))
        assert 1000 * QUOTA == (await bob.reports(of=BUCKET)).previous
        scene.pass_time(WINDOW_S)

        assert 0 == (await bob.reports(of=BUCKET)).previous

    @claim
    async def test_what_has_dates_is_what_all_have_in_use(self, scene: Scene) -> None:
        """The use under a sliding log is the sum of all nodes' newest reports, even those from before this window."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(of=DATED, current=30, previous=2 * DATED.window_us)
        assert 34 == (await bob.reports(of=DATED, current=4, previous=DATED.window_us)).current
        assert 14 == (await ada.reports(of=DATED, current=10, previous=2 * DATED.window_us)).current
        scene.pass_time(WINDOW_S / 2)

        assert 17 == (await bob.reports(of=DATED, current=7, previous=DATED.window_us)).current

    @claim
    async def test_what_has_dates_counts_for_as_long_as_its_node_has_said(self, scene: Scene) -> None:
        """Use under a sliding log counts until the expiry time that its node has reported, or one interval longer."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(of=DATED, current=30, previous=DATED.window_us // 2)
        scene.pass_time(WINDOW_S / 2 - 1e-6)
        assert 30 == (await bob.reports(of=DATED)).current
        scene.pass_time(INTERVAL_S)

        assert 0 == (await bob.reports(of=DATED)).current

    @claim
    async def test_what_has_dates_counts_when_its_node_has_left(self, scene: Scene) -> None:
        """A departed node's use under a sliding log is granted to no other node until that use expires."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(of=DATED, need=QUOTA)
        await ada.leaves(ada.cell(of=DATED, current=QUOTA, previous=DATED.window_us // 2))
        scene.pass_time(WINDOW_S / 2 - 1e-6)
        assert 0 == (await bob.reports(of=DATED, need=QUOTA)).allowance
        scene.pass_time(INTERVAL_S)

        assert QUOTA == (await bob.reports(of=DATED, need=QUOTA)).allowance

    @claim
    async def test_what_a_vanished_node_may_have_used_to_the_last_counts_for_a_window(self, scene: Scene) -> None:
        """When a silent node's lease ends, all that it may have used counts for one window from then on."""
        ada, bob = scene.voice(lease_us=DATED.window_us), scene.voice()
        await ada.reports(of=DATED, need=QUOTA)
        held = await ada.reports(of=DATED, current=QUOTA, previous=1, need=QUOTA)
        assert held.overdraft > 0
        scene.pass_time(WINDOW_S + INTERVAL_S)
        answer = await bob.reports(of=DATED, need=QUOTA)
        assert (QUOTA + held.overdraft, 0) == (answer.current, answer.allowance)
        scene.pass_time(WINDOW_S - INTERVAL_S - 1e-6)
        assert 0 == (await bob.reports(of=DATED, need=QUOTA)).allowance
        scene.pass_time(INTERVAL_S)

        assert QUOTA == (await bob.reports(of=DATED, need=QUOTA)).allowance

    @claim
    async def test_a_vanished_nodes_bucket_is_full_when_its_lease_is_over(self, scene: Scene) -> None:
        """When a silent node's lease ends, its bucket counts as full: the node may have refilled the drained part."""
        ada, bob = scene.voice(lease_us=BUCKET.window_us), scene.voice()
        await ada.reports(of=BUCKET, need=QUOTA)
        held = await ada.reports(of=BUCKET, allowance=2, current=2, previous=1500)
        scene.pass_time(WINDOW_S + 0.001)

        assert (await bob.reports(of=BUCKET)).previous > 1000 * (held.allowance + held.overdraft) - 100

    @claim
    async def test_the_demand_of_the_last_window_is_answered_in_the_next(self, scene: Scene) -> None:
        """An answer carries all nodes' demand in the last window, so that nodes can judge whether a key is calm."""
        for demand in (10, 20):
            demanded = (await scene.voice().reports(demand=demand)).window_demand
        assert 30 == demanded
        scene.pass_time(WINDOW_S)

        assert 30 == (await scene.voice().reports()).last_demand

    @claim
    async def test_a_reset_is_for_all_nodes(self, scene: Scene) -> None:
        """Every node learns of a reset, and use from before the reset counts no more."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(current=60)
        reset_us = scene.hub_us()

        assert 0 == (await bob.reports(reset_us=reset_us)).current

        answer = await ada.reports(current=61)
        assert (0, reset_us) == (answer.current, answer.reset_us)

    @claim
    async def test_what_is_used_after_a_reset_counts(self, scene: Scene) -> None:
        """Use that a node reports after it has learnt of a reset counts."""
        ada, bob = scene.voice(), scene.voice()
        reset_us = scene.hub_us()
        await bob.reports(current=60)
        await bob.reports(reset_us=reset_us)

        assert 5 == (await ada.reports(current=5, reset_us=reset_us)).current

    @claim
    async def test_the_newest_reset_wins(self, scene: Scene) -> None:
        """A reset that arrives late does not bring back use that a newer reset has cleared."""
        ada, bob = scene.voice(), scene.voice()
        reset_us = scene.hub_us()
        await bob.reports(reset_us=reset_us)

        answer = await ada.reports(current=60, reset_us=reset_us - 1)

        assert (0, reset_us) == (answer.current, answer.reset_us)

    @claim
    async def test_silent_nodes_count_as_using_all_they_hold(self, scene: Scene) -> None:
        """An answer counts a silent node's unused allowance as `silent`: the node may be cut off, and still admit."""
        ada, bob = scene.voice(), scene.voice()
        held = (await ada.reports(need=50)).allowance
        await ada.reports(current=10)
        scene.pass_time(5 * INTERVAL_S)

        assert held - 10 == (await bob.reports()).silent
