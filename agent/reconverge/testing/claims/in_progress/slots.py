"""Promises of a hub about the slots of a limit on work in progress: a slot counts until its node releases it.

Slots have no window, and do not fade. The slots of a node that is gone cease to count when its lease is over.
"""

from __future__ import annotations

from typing import Final

from reconverge.hub.report import LimitReport, Status
from reconverge.limit.limit import CONCURRENCY
from reconverge.testing.claims.scenes.scene import INTERVAL_S, LEASE_US, QUOTA, SECOND_US, WINDOW_S, Scene, limit
from reconverge.testing.claims.scenes.trial import Trial, claim

SLOTS: Final = limit("slots", algorithm=CONCURRENCY)
LEASE_S: Final = 12 * INTERVAL_S
SHORT: Final = limit("short slots", algorithm=CONCURRENCY)._replace(
    window_us=int(LEASE_S) * SECOND_US, lease_us=int(LEASE_S) * SECOND_US
)
"""A limit on slots whose lease is much shorter than the lease of its nodes."""
ALL: Final[tuple[LimitReport, ...]] = (SLOTS, SHORT)


class SlotClaims(Trial):
    """Tests of the promises of a hub about slots of work in progress."""

    @claim
    async def test_a_slot_in_use_is_granted_to_no_other_node(self, scene: Scene) -> None:
        """The hub grants a node the free slots only, however many the node asks for."""
        ada, bob = scene.voice(), scene.voice()
        for slots in ALL:
            await ada.reports(of=slots, need=QUOTA)
            await ada.reports(of=slots, current=QUOTA - 3, allowance=QUOTA - 3)

            assert 3 == (await bob.reports(of=slots, need=QUOTA)).allowance

    @claim
    async def test_slots_that_were_given_back_are_granted_again(self, scene: Scene) -> None:
        """The hub grants a slot again as soon as its node has released it."""
        ada, bob = scene.voice(), scene.voice()
        for slots in ALL:
            await ada.reports(of=slots, need=QUOTA)
            await ada.reports(of=slots, current=QUOTA, allowance=QUOTA)
            assert 0 == (await bob.reports(of=slots, need=QUOTA)).allowance
            await ada.reports(of=slots, current=10, allowance=10)

            assert QUOTA - 10 == (await bob.reports(of=slots, need=QUOTA)).allowance

    @claim
    async def test_slots_in_use_count_for_as_long_as_their_node_is_heard_of(self, scene: Scene) -> None:
        """Slots in use count however much time passes, as long as their node reports."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(of=SLOTS, need=QUOTA)
        await ada.reports(of=SLOTS, current=QUOTA, allowance=QUOTA)
        for _ in range(6):
            scene.pass_time(WINDOW_S / 2)
            await ada.reports(of=SLOTS, current=QUOTA)

            assert 0 == (await bob.reports(of=SLOTS, need=QUOTA)).allowance

    @claim
    async def test_what_a_node_has_in_progress_that_leaves_counts_until_its_lease_is_over(self, scene: Scene) -> None:
        """When a node leaves, its free slots are granted again at once; slots in use count until the lease ends."""
        for slots, lease_s in ((SLOTS, LEASE_US / SECOND_US), (SHORT, LEASE_S)):
            ada, bob = scene.voice(), scene.voice()
            await ada.reports(of=slots, need=QUOTA)
            await ada.leaves(ada.cell(of=slots, current=40))
            assert QUOTA - 40 == (await bob.reports(of=slots, need=QUOTA)).allowance
            scene.pass_time(lease_s)
            assert QUOTA - 40 == (await bob.reports(of=slots, need=QUOTA)).allowance
            scene.pass_time(INTERVAL_S)

            assert QUOTA == (await bob.reports(of=slots, need=QUOTA)).allowance

    @claim
    async def test_what_a_node_has_in_progress_that_fell_silent_counts_until_its_lease_is_over(
        self, scene: Scene
    ) -> None:
        """The slots of a silent node count until its lease ends; from then on the hub rejects the node's name."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(of=SLOTS, need=QUOTA)
        await ada.reports(of=SLOTS, current=QUOTA, allowance=QUOTA)
        scene.pass_time(LEASE_US / SECOND_US)
        assert 0 == (await bob.reports(of=SLOTS, need=QUOTA)).allowance
        scene.pass_time(INTERVAL_S)

        assert QUOTA == (await bob.reports(of=SLOTS, need=QUOTA)).allowance
        assert Status.LAPSED == (await ada.says_hello()).status

    @claim
    async def test_the_lease_of_slots_is_their_limits_own(self, scene: Scene) -> None:
        """Slots are granted again when the limit's own lease is over, although the node's name is still valid."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(of=SHORT, need=QUOTA)
        await ada.reports(of=SHORT, current=QUOTA, allowance=QUOTA)
        scene.pass_time(LEASE_S)
        assert 0 == (await bob.reports(of=SHORT, need=QUOTA)).allowance
        scene.pass_time(INTERVAL_S)

        assert QUOTA == (await bob.reports(of=SHORT, need=QUOTA)).allowance
        assert Status.MERGED == (await ada.says_hello()).status

    @claim
    async def test_what_goes_on_after_its_lease_is_counted_as_soon_as_its_node_tells_of_it(self, scene: Scene) -> None:
        """Slots in use after their lease count again when their node reports them; other nodes are granted less."""
        ada, bob, eve = scene.voice(), scene.voice(), scene.voice()
        await ada.reports(of=SHORT, need=QUOTA)
        await ada.reports(of=SHORT, current=40, allowance=40)
        scene.pass_time(LEASE_S + INTERVAL_S)
        assert 90 == (await bob.reports(of=SHORT, need=90)).allowance
        ada.allowances.clear()  # and the overdraft
        assert 0 == (await ada.reports(of=SHORT, current=40)).allowance
        await bob.reports(of=SHORT, current=20, allowance=20)

        assert 40 == (await eve.reports(of=SHORT, need=QUOTA)).allowance

    @claim
    async def test_slots_are_saved_up_for_the_oldest_ask(self, scene: Scene) -> None:
        """Slots that a node releases are reserved for the node that has waited longest.

        A node that has all slots in use learns from the hub's answer how many are reserved, and is not granted them
        again when it releases them. This also holds if the waiting node asks in doubt: no end of a window would ever
        bring it a slot.
        """
        for slots, doubts in ((SLOTS, False), (SHORT, True)):
            ada, bob = scene.voice(), scene.voice()
            await ada.reports(of=slots, need=QUOTA)
            await ada.reports(of=slots, current=QUOTA, allowance=QUOTA)
            await (bob.asks(of=slots, waits=1) if doubts else bob.reports(of=slots, need=1, ask=1))
            assert 1 == (await ada.reports(of=slots, current=QUOTA, need=5)).reserved

            assert QUOTA - 1 == (await ada.reports(of=slots, current=QUOTA - 1, allowance=QUOTA - 1, need=5)).allowance
            answer = await (bob.asks(of=slots, waits=1) if doubts else bob.reports(of=slots, need=1, ask=1))
            assert 1 == answer.allowance

    @claim
    async def test_what_is_in_progress_cannot_be_reset(self, scene: Scene) -> None:
        """A reset from one node does not free the slots of other nodes."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(of=SLOTS, need=QUOTA)
        await ada.reports(of=SLOTS, current=QUOTA, allowance=QUOTA)

        assert 0 == (await bob.reports(of=SLOTS, need=QUOTA, reset_us=scene.hub_us())).allowance
