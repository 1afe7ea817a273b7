"""Promises of a hub to nodes whose requests wait for its answer: it grants their cost if there is room, and no more.

A hub that never decides single requests treats such a request as a large demand, and grants allowances as usual. Its
answers do not say that it keeps the key, and these claims are skipped.
"""

from __future__ import annotations

from typing import Final
from unittest import SkipTest

from reconverge.hub.report import AT_HUB, CellAnswer, LimitReport, Status
from reconverge.limit.limit import FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET
from reconverge.testing.claims.scenes.scene import WINDOW_S, ReportedCell, Scene, Voice, limit
from reconverge.testing.claims.scenes.trial import Trial, claim

FEW: Final = 5
FIXED: Final = limit("few fixed", algorithm=FIXED_WINDOW, quota=FEW)
SLIDING: Final = limit("few sliding", algorithm=SLIDING_WINDOW, quota=FEW)
BUCKET: Final = limit("few in a bucket", algorithm=TOKEN_BUCKET, quota=FEW)
ALL: Final = (FIXED, SLIDING, BUCKET)
CROWD: Final = 32


async def voices(scene: Scene, count: int) -> list[Voice]:
    """Returns `count` new nodes that the hub knows. Skips the test if the hub grants nodes only allowances."""
    them = [scene.voice() for _ in range(count)]
    for voice in them:
        await voice.says_hello()
    answers = [await voice.asks("another", of=FIXED, waits=0) for voice in them[:2]]
    if answers[-1].nodes < AT_HUB:
        raise SkipTest("this hub does not keep the free part of small quotas at itself, so there is nothing to test")
    return them


def may_charge(few: LimitReport, answer: CellAnswer, current: int = 0) -> int:
    """Returns how much more of the limit `few` a node that has charged `current` may charge after this answer."""
    assert answer.nodes >= AT_HUB, "the key is not kept at the hub"
    return answer.allowance - (0 if few is BUCKET else current)


class AskingClaims(Trial):
    """Tests of the promises of a hub about requests that ask the hub."""

    @claim
    async def test_what_waits_is_granted_and_nothing_in_advance(self, scene: Scene) -> None:
        """The hub grants the cost of a node's waiting requests and no more; the next asking node gets what is left."""
        ada, bob = await voices(scene, 2)
        for few in ALL:
            assert 1 == may_charge(few, await ada.asks(of=few, waits=1))
            assert 0 == may_charge(few, await ada.asks(of=few, waits=0, current=1), 1)
            assert FEW - 1 == may_charge(few, await bob.asks(of=few, waits=FEW))

    @claim
    async def test_what_is_granted_counts_until_its_node_speaks_again(self, scene: Scene) -> None:
        """A grant whose answer was lost counts until its node reports again; a repeated batch is granted nothing."""
        ada, bob = await voices(scene, 2)
        for few in ALL:
            batch = ada.batch(ada.asking(of=few, waits=3))
            await ada.sends(batch)
            assert FEW - 3 == may_charge(few, await bob.asks(of=few, waits=FEW))
            assert Status.STALE == (await ada.sends(batch)).status
            assert 0 == may_charge(few, await bob.asks(of=few, waits=FEW, current=2), 2)

            await ada.asks(of=few, waits=0)

            assert 3 == may_charge(few, await bob.asks(of=few, waits=FEW, current=2), 2)

    @claim
    async def test_what_was_not_used_goes_back(self, scene: Scene) -> None:
        """A grant that its node has not used is free again after that node's next report."""
        ada, bob = await voices(scene, 2)
        for few in ALL:
            assert 4 == may_charge(few, await ada.asks(of=few, waits=4))
            await ada.asks(of=few, waits=0, current=1)

            assert FEW - 1 == may_charge(few, await bob.asks(of=few, waits=FEW))

    @claim
    async def test_a_new_key_that_all_ask_about_at_once_is_granted_once(self, scene: Scene) -> None:
        """When many nodes ask about a new key at once, the grants sum to the limit; the first to arrive get them."""
        crowd = await voices(scene, CROWD)
        for few in ALL:
            granted = [may_charge(few, await voice.asks("new", of=few, waits=1)) for voice in crowd]

            assert [1] * FEW + [0] * (CROWD - FEW) == granted

    @claim
    async def test_what_is_granted_may_outlast_the_window(self, scene: Scene) -> None:
        """A grant counts beyond its window until its node reports: the node may not know that the window is over."""
        ada, bob = await voices(scene, 2)
        assert 3 == may_charge(SLIDING, await ada.asks(of=SLIDING, waits=3))
        scene.pass_time(WINDOW_S)

        answer = await bob.asks(of=SLIDING, waits=FEW)

        assert FEW - 3 == may_charge(SLIDING, answer)
        assert scene.epoch() == answer.epoch
        await ada.asks(of=SLIDING, waits=0, previous=3)
        await bob.asks(of=SLIDING, waits=0)
        scene.pass_time(WINDOW_S)
        assert FEW == may_charge(SLIDING, await ada.asks(of=SLIDING, waits=FEW))

    @claim
    async def test_parts_of_a_request_add_up(self, scene: Scene) -> None:
        """When use fades on several nodes, the parts of a unit that fade on each add up, and are granted once."""
        crowd = await voices(scene, FEW)
        assert [1] * FEW == [may_charge(SLIDING, await voice.asks(of=SLIDING, waits=1)) for voice in crowd]
        for voice in crowd:
            await voice.asks(of=SLIDING, waits=0, current=1)
        scene.pass_time(WINDOW_S * (1 - scene.hub_us() % SLIDING.window_us / SLIDING.window_us))
        scene.pass_time(WINDOW_S / FEW + 1)

        granted = [may_charge(SLIDING, await voice.asks(of=SLIDING, waits=1, previous=1)) for voice in crowd]

        assert [1] + [0] * (FEW - 1) == granted

    @claim
    async def test_what_fades_of_what_was_asked_for_is_of_use_to_allowances(self, scene: Scene) -> None:
        """Faded use is free for other nodes' allowances, even if the node that used it has not reported since."""
        ada, bob = await voices(scene, 2)
        assert FEW == may_charge(SLIDING, await ada.asks(of=SLIDING, waits=FEW))
        await ada.asks(of=SLIDING, waits=0, current=FEW)
        scene.pass_time(WINDOW_S * (1 - scene.hub_us() % SLIDING.window_us / SLIDING.window_us))
        assert 0 == (await bob.reports(of=SLIDING, need=2)).allowance

        scene.pass_time(WINDOW_S * 2 / FEW + 1)

        assert 2 == (await bob.reports(of=SLIDING, need=2)).allowance

    @claim
    async def test_what_drains_of_a_bucket_is_of_use_to_all(self, scene: Scene) -> None:
        """A bucket that several nodes have filled drains at the full rate for all; an unused grant does not drain."""
        crowd = await voices(scene, FEW)
        assert [1] * FEW == [may_charge(BUCKET, await voice.asks(of=BUCKET, waits=1)) for voice in crowd]
        for voice in crowd[:-1]:
            await voice.asks(of=BUCKET, waits=0, current=1)
        scene.pass_time(2 * WINDOW_S / FEW + 1)

        granted = [may_charge(BUCKET, await voice.asks(of=BUCKET, waits=1, current=1)) for voice in crowd[:-1]]

        assert [1, 1] + [0] * (FEW - 3) == granted
        scene.pass_time(WINDOW_S)
        assert 2 == may_charge(BUCKET, await crowd[0].asks(of=BUCKET, waits=FEW, current=2))

    @claim
    async def test_a_bucket_of_which_only_a_node_knows_is_full(self, scene: Scene) -> None:
        """A bucket that is known only from one node's report after a loss of data counts as full."""
        ada, bob = await voices(scene, 2)
        await ada.asks("lost", of=BUCKET, waits=0)
        said = ada.asking("lost", of=BUCKET, waits=1)
        answer = await bob.exchanges(bob.batch(ReportedCell(BUCKET, said.report._replace(key="unheard of"))))

        assert 0 == may_charge(BUCKET, answer.cells[0])
        scene.pass_time(WINDOW_S / FEW + 1)
        assert 1 == may_charge(BUCKET, await bob.asks("unheard of", of=BUCKET, waits=FEW))

    @claim
    async def test_a_node_that_does_not_ask_is_granted_allowances_ahead(self, scene: Scene) -> None:
        """A node that does not ask is granted allowances in advance, and a node that asks is granted what is left."""
        ada, bob = await voices(scene, 2)
        for few in ALL:
            assert 1 == may_charge(few, await ada.asks(of=few, waits=1))

            allowance = (await bob.reports(of=few, need=2)).allowance

            assert 2 <= allowance <= FEW - 1
            assert FEW - allowance == may_charge(few, await ada.asks(of=few, waits=FEW))
