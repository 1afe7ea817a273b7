"""Promises of a hub that an operator orders to grant again after a loss of data: not too early, and only for that loss.

The claims are skipped for a hub that is not `Adoptable`.
"""

from __future__ import annotations

from unittest import SkipTest

from reconverge.hub.port import Adoptable
from reconverge.testing.claims.scenes.scene import (
    INTERVAL_S,
    LEARNING_S,
    QUOTA,
    SECOND_US,
    WINDOW_US,
    Scene,
    Voice,
    limit,
)
from reconverge.testing.claims.scenes.trial import Trial, claim

MONTH = limit("monthly", overshoot_milli=0, window_us=124 * WINDOW_US)
"""A limit per month: 124 windows of six hours are 31 days."""
REPORTING_S = 2 * INTERVAL_S


def operator(trial: Trial, scene: Scene) -> Adoptable:
    """Returns the hub as an operator's command opens it. Skips the test if no loss can be adopted at the hub."""
    hub = scene.keep(trial.make_operator(scene.hub))
    if not isinstance(hub, Adoptable):
        raise SkipTest(
            "this hub is no reconverge.hub.Adoptable, so an operator cannot end its wait after a loss of data"
        )
    return hub


class AdoptingClaims(Trial):
    """Tests of the promises of a hub about an operator's order that ends the wait after a loss of data."""

    @property
    def reporting_s(self) -> float:
        """Returns how many seconds after a loss of data nodes may still be reporting their counts and allowances."""
        return REPORTING_S + self.grace_s

    async def _lose(self, scene: Scene) -> tuple[Voice, Voice]:
        """Makes the hub lose its data. Returns two nodes, which have reported since, so that the hub knows of the loss.

        The first node holds an allowance of 40 for the key `ada`, and has used 30 of it.
        """
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(of=MONTH)
        await bob.says_hello()
        scene.pass_time(LEARNING_S)
        await ada.reports(of=MONTH, need=QUOTA)
        await ada.reports(of=MONTH, current=30, allowance=40)
        await self.lose_data(scene.hub)
        await bob.says_hello()
        await ada.reports(of=MONTH, current=30)
        return ada, bob

    @claim
    async def test_a_loss_that_is_adopted_is_waited_for_no_longer(self, scene: Scene) -> None:
        """After an operator's order the hub keeps nodes' reports, and grants the free part of a strict limit again."""
        hub = operator(self, scene)
        ada, bob = await self._lose(scene)
        scene.pass_time(self.reporting_s)
        assert [0, 0] == [(await bob.reports(key, of=MONTH, need=3)).allowance for key in ("ada", "eve")]

        adoption = await hub.adopt(0, bob.generation)

        assert ("", 1) == adoption
        assert all([(await bob.reports(key, of=MONTH, need=3)).allowance >= 3 for key in ("ada", "eve")])
        assert 40 == (await ada.reports(of=MONTH, current=30)).allowance

    @claim
    async def test_nothing_is_adopted_while_nodes_are_telling(self, scene: Scene) -> None:
        """The hub refuses an order to adopt a loss until the nodes have had time to report, to the last microsecond."""
        hub = operator(self, scene)
        _, bob = await self._lose(scene)
        until_us = (await hub.data(0)).reports_until_us
        assert scene.hub_us() + self.reporting_s * SECOND_US == until_us
        scene.pass_time((until_us - scene.hub_us() - 1) / SECOND_US)
        assert "still be reporting" in (await hub.adopt(0, bob.generation)).problem

        scene.pass_time(1 / SECOND_US)

        assert "" == (await hub.adopt(0, bob.generation)).problem

    @claim
    async def test_only_the_data_that_are_named_are_adopted(self, scene: Scene) -> None:
        """The hub refuses an order to adopt a loss if the order does not name the data that the hub has now."""
        hub = operator(self, scene)
        _, bob = await self._lose(scene)
        scene.pass_time(self.reporting_s)

        adoption = await hub.adopt(0, "another")

        assert "are called" in adoption.problem
        assert 0 == (await bob.reports("eve", of=MONTH, need=3)).allowance

    @claim
    async def test_the_next_loss_is_waited_for_again(self, scene: Scene) -> None:
        """After the next loss of data the hub waits again, as an order to adopt a loss is for one loss only."""
        hub = operator(self, scene)
        _, bob = await self._lose(scene)
        scene.pass_time(self.reporting_s)
        await hub.adopt(0, bob.generation)
        await self.lose_data(scene.hub)
        await bob.says_hello()
        scene.pass_time(self.reporting_s)

        data = await hub.data(0)

        assert (True, 0) == (data.waits, data.adopted)
        assert 0 == (await bob.reports("eve", of=MONTH, need=3)).allowance

    @claim
    async def test_a_node_from_before_an_adopted_loss_changes_nothing(self, scene: Scene) -> None:
        """A late report of use from before an adopted loss makes the hub wait briefly, and for that key only."""
        hub = operator(self, scene)
        old, (_, bob) = scene.voice(), await self._lose(scene)
        old.generation = "long gone"
        scene.pass_time(self.reporting_s)
        await hub.adopt(0, bob.generation)

        assert 20 == (await old.reports("eve", of=MONTH, current=20, allowance=20)).allowance

        assert (await bob.reports("mia", of=MONTH, need=3)).allowance >= 3
        assert 0 == (await bob.reports("eve", of=MONTH, need=3)).allowance
        scene.pass_time(self.reporting_s)
        assert (await bob.reports("eve", of=MONTH, need=3)).allowance >= 3

    @claim
    async def test_adoptions_are_counted(self, scene: Scene) -> None:
        """The hub counts each order to adopt a loss of data that it has carried out."""
        hub = operator(self, scene)
        _, bob = await self._lose(scene)
        scene.pass_time(self.reporting_s)
        for _ in range(2):
            await hub.adopt(0, bob.generation)
        await hub.adopt(0, "another")

        data = await hub.data(0)

        assert (2, False, True, 2) == (data.adopted, data.waits, data.lost, data.nodes)

    @claim
    async def test_without_data_there_is_nothing_to_adopt(self, scene: Scene) -> None:
        """A hub without data refuses an order to adopt a loss, and creates no data when an operator looks at them."""
        hub = operator(self, scene)
        await self.lose_data(scene.hub)

        assert "nothing to adopt" in (await hub.adopt(0, "some")).problem
        assert "" == (await hub.data(0)).generation
