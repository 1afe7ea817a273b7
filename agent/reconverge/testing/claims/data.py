"""Promises of a hub about its data: they have a name, the generation, and nodes' reports restore them after a loss."""

from __future__ import annotations

from reconverge.hub.report import Totals
from reconverge.testing.claims.scenes.scene import LEARNING_S, QUOTA, Scene, limit
from reconverge.testing.claims.scenes.trial import Trial, claim


class DataClaims(Trial):
    """Tests of the promises of a hub about its data."""

    @claim
    async def test_the_generation_is_the_same_for_all(self, scene: Scene) -> None:
        """The generation is the same in all answers, over all connections and for all nodes."""
        ada, bob = scene.voice(), scene.voice()
        answers = [await ada.says_hello(), await bob.says_hello(), await ada.says_hello()]

        assert "" != answers[0].generation
        assert 1 == len({answer.generation for answer in answers})

    @claim
    async def test_refused_batches_are_answered_with_the_generation_too(self, scene: Scene) -> None:
        """The hub also names its generation in answers to a repeated batch and to a batch of a node that has left."""
        ada = scene.voice()
        hello = ada.batch()
        answer = await ada.exchanges(hello)
        assert answer.generation == (await ada.sends(hello)).generation

        await ada.leaves()

        assert answer.generation == (await ada.sends(ada.batch())).generation

    @claim
    async def test_lost_data_come_back_under_another_generation(self, scene: Scene) -> None:
        """After a loss the hub's data have another generation, by which nodes notice the loss."""
        ada = scene.voice()
        before = await ada.says_hello()
        await self.lose_data(scene.hub)

        assert before.generation != (await ada.says_hello()).generation

    @claim
    async def test_lost_data_are_rebuilt_from_what_nodes_say(self, scene: Scene) -> None:
        """Counts and totals are as before the loss, once all nodes have reported again."""
        ada, bob = scene.voice(), scene.voice()
        for voice, current in ((ada, 30), (bob, 12)):
            await voice.reports(of=limit(charged=current), current=current)
        await self.lose_data(scene.hub)
        for voice, current in ((ada, 30), (bob, 12)):
            heard = await voice.reports(of=limit(charged=current), current=current)

        assert 42 == heard.current
        assert {"limit": Totals(42, 0)} == await scene.hub.totals()

    @claim
    async def test_allowances_survive_the_loss_of_data(self, scene: Scene) -> None:
        """The hub grants no other node the allowances that nodes hold from before the loss."""
        ada, bob = scene.voice(), scene.voice()
        held = (await ada.reports(need=QUOTA, allowance=0)).allowance
        assert QUOTA == held
        held = (await ada.reports(allowance=70)).allowance
        await bob.says_hello()
        await self.lose_data(scene.hub)

        assert held == (await ada.reports()).allowance
        assert (await bob.reports(need=QUOTA)).allowance <= QUOTA - held

    @claim
    async def test_allowances_that_are_brought_along_never_exceed_the_capacity(self, scene: Scene) -> None:
        """Nodes may report allowances that another hub has granted; this hub accepts a sum up to the capacity."""
        ada, bob = scene.voice(), scene.voice()

        assert 70 == (await ada.reports(allowance=70)).allowance
        assert QUOTA - 70 == (await bob.reports(allowance=70)).allowance

    @claim
    async def test_what_a_node_may_still_hold_stays_in_the_book(self, scene: Scene) -> None:
        """The hub counts an allowance until the node has reported less: the node may not have got the answer."""
        ada, bob, eve = scene.voice(), scene.voice(), scene.voice()
        await ada.reports(allowance=70)
        lost = await bob.reports(allowance=70)
        assert QUOTA - 70 == lost.allowance
        await ada.reports(allowance=30)
        scene.pass_time(LEARNING_S)

        assert 0 == (await eve.reports(need=QUOTA)).allowance

    @claim
    async def test_nothing_new_is_granted_until_all_can_have_spoken(self, scene: Scene) -> None:
        """After a loss the hub grants nothing until all nodes have had time to report their allowances."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(need=QUOTA)
        held = (await ada.reports(allowance=70)).allowance
        await bob.says_hello()
        await self.lose_data(scene.hub)
        await ada.reports()

        assert 0 == (await bob.reports(need=QUOTA)).allowance

        scene.pass_time(LEARNING_S)
        assert QUOTA - held == (await bob.reports(need=QUOTA)).allowance

    @claim
    async def test_a_node_that_brings_news_of_lost_data_warns_the_hub(self, scene: Scene) -> None:
        """A batch of another generation shows the hub a loss of data: it then grants nothing of strict limits yet."""
        strict = limit(overshoot_milli=0)
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(of=strict)
        await bob.reports("eve", of=strict)
        scene.pass_time(LEARNING_S)
        held = (await bob.reports("eve", of=strict, need=QUOTA)).allowance
        assert QUOTA == held
        await self.lose_data(scene.hub)
        await ada.says_hello()
        scene.pass_time(LEARNING_S)

        assert 0 == (await ada.reports("eve", of=strict, need=QUOTA)).allowance
        assert held == (await bob.reports("eve", of=strict)).allowance
