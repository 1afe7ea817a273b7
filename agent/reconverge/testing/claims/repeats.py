"""Promises of a hub about messages that come twice, late, out of order or not at all."""

from __future__ import annotations

import asyncio

from reconverge.hub.report import CellAnswer, Status, Totals
from reconverge.testing.claims.scenes.scene import Scene, Voice, limit
from reconverge.testing.claims.scenes.trial import Trial, claim

STEPS_OF_AN_EXCHANGE = 16
"""At how many steps of its task an exchange is cancelled, one after the other; after that many steps it has ended."""


class RepeatClaims(Trial):
    """Tests of the promises of a hub about messages that are lost, delayed or repeated."""

    @claim
    async def test_a_batch_that_comes_twice_counts_once(self, scene: Scene) -> None:
        """The hub recognises a batch that comes a second time as stale, and counts it once."""
        ada, bob = scene.voice(), scene.voice()
        batch = ada.batch(ada.cell(current=30), limits=(limit("other", charged=7),))
        await ada.exchanges(batch)
        before = await _all_that_is_known(bob)

        answer = await ada.sends(batch)

        assert (Status.STALE, ()) == (answer.status, answer.cells)
        assert before == await _all_that_is_known(bob)

    @claim
    async def test_a_batch_that_comes_late_changes_nothing(self, scene: Scene) -> None:
        """A batch that arrives after a newer one of the same node changes nothing."""
        ada, bob = scene.voice(), scene.voice()
        late = ada.batch(ada.cell(current=30), ada.cell("eve", current=4))
        await ada.reports(current=50)
        before = await _all_that_is_known(bob)

        answer = await ada.sends(late)

        assert Status.STALE == answer.status
        assert before == await _all_that_is_known(bob)
        assert 0 == (await bob.reports("eve")).current

    @claim
    async def test_a_batch_that_comes_after_its_timeout_counts_if_it_is_the_newest(self, scene: Scene) -> None:
        """A batch that arrives after its sender's timeout counts, if no newer one of that node has arrived."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(current=30)
        await ada.sends(ada.batch(ada.cell(current=50)))

        assert 50 == (await bob.reports()).current

    @claim
    async def test_gaps_in_the_sequence_are_no_matter(self, scene: Scene) -> None:
        """The hub merges a batch although earlier batches of its node never arrived."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(current=30)
        for current in range(31, 50):
            ada.batch(ada.cell(current=current))

        await ada.reports(current=50)

        assert 50 == (await bob.reports()).current

    @claim
    async def test_the_newest_count_replaces_the_older_ones(self, scene: Scene) -> None:
        """The counts in reports are absolute: the newest replaces the older ones."""
        ada, bob = scene.voice(), scene.voice()
        for current in (10, 20, 30):
            await ada.reports(current=current)

        assert 30 == (await bob.reports()).current

    @claim
    async def test_counts_can_fall(self, scene: Scene) -> None:
        """The hub accepts a lower count, as after settling for less than was reserved."""
        ada, bob = scene.voice(), scene.voice()
        await ada.reports(current=30)
        await ada.reports(current=20)

        assert 20 == (await bob.reports()).current

    @claim
    async def test_all_nodes_counts_are_summed(self, scene: Scene) -> None:
        """The hub answers each node with the use of all nodes together."""
        for current in (10, 20, 30):
            heard = (await scene.voice().reports(current=current)).current

        assert 60 == heard

    @claim
    async def test_exchanges_may_overlap(self, scene: Scene) -> None:
        """A node with many shards makes many exchanges at once, over one hub object."""
        voices = [scene.voice(hub=scene.hub) for _ in range(20)]
        answers = await asyncio.gather(*(voice.reports(f"key{place}") for place, voice in enumerate(voices)))

        assert 20 == len(answers)

    @claim
    async def test_a_cancelled_exchange_does_no_harm(self, scene: Scene) -> None:
        """After an exchange is cancelled at any point, the next one gets its own answer; nothing counts twice."""
        ada, bob = scene.voice(), scene.voice()
        for steps in range(STEPS_OF_AN_EXCHANGE):
            exchange = asyncio.ensure_future(ada.sends(ada.batch(ada.cell("lost", current=7))))
            for _ in range(steps):
                await asyncio.sleep(0)
            exchange.cancel()
            await asyncio.gather(exchange, return_exceptions=True)

            assert 100 + steps == (await ada.reports(current=100 + steps)).current

        assert (await bob.reports("lost")).current in (0, 7)

    @claim
    async def test_lifetime_totals_never_fall(self, scene: Scene) -> None:
        """Of two lifetime totals of one account, from any of its nodes, the larger counts as the newer one."""
        ada = scene.voice(account="shared")
        await ada.exchanges(ada.batch(limits=(limit(charged=10, refunded=4),)))
        renamed = scene.voice(account="shared")
        await renamed.exchanges(renamed.batch(limits=(limit(charged=8, refunded=5),)))

        assert {"limit": Totals(10, 5)} == await scene.hub.totals()


async def _all_that_is_known(observer: Voice) -> tuple[CellAnswer, dict[str, Totals]]:
    """Returns the hub's answer to the node `observer` about the key of the test, and the lifetime totals."""
    return await observer.reports(), await observer.hub.totals()
