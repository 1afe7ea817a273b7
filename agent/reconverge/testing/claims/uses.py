"""Promises of a hub to the program that uses it: it can be closed and used again, and fails in one way only."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable
from functools import partial

from reconverge.errors import HubUnavailable
from reconverge.hub.port import Hub
from reconverge.hub.report import Status
from reconverge.testing.claims.scenes.scene import Scene, limit
from reconverge.testing.claims.scenes.trial import Trial, claim


class UseClaims(Trial):
    """Claims about the hub as an object."""

    @claim
    async def test_it_is_a_hub(self, scene: Scene) -> None:
        """It has all the methods of one."""
        assert isinstance(scene.hub, Hub)
        assert isinstance(scene.hub.shards, int)

    @claim
    async def test_closing_twice_is_harmless(self, scene: Scene) -> None:
        """A second close does nothing and raises nothing, so that clean-up code need not know of the first."""
        await scene.voice(hub=scene.hub).says_hello()
        await scene.hub.close()
        await scene.hub.close()

    @claim
    async def test_closing_what_was_never_used_is_harmless(self, scene: Scene) -> None:
        """An agent that never exchanged anything stops like any other."""
        await scene.hub.close()

    @claim
    async def test_it_can_be_used_again_after_closing(self, scene: Scene) -> None:
        """Closing lets go of connections, and of nothing else that matters."""
        ada = scene.voice(hub=scene.hub)
        await ada.reports(current=30)
        await scene.hub.close()

        await ada.says_hello()

    def test_it_can_be_used_from_another_loop_after_closing(self) -> None:
        """An agent may be started and stopped in one event loop after another."""
        scene = self.scene()
        voice = scene.voice(hub=scene.hub)

        async def one_life() -> Status:
            status = (await voice.says_hello()).status
            await scene.close()
            return status

        assert [Status.MERGED] * 3 == [asyncio.run(one_life()) for _ in range(3)]

    def test_it_outlives_a_loop_that_was_closed_under_it(self) -> None:
        """The loop is gone before the hub could be closed in it; the hub is used from another loop all the same."""
        scene = self.scene()
        voice = scene.voice(hub=scene.hub)

        async def hello() -> Status:
            return (await voice.says_hello()).status

        async def hello_and_close() -> Status:
            status = await hello()
            await scene.close()
            return status

        with warnings.catch_warnings():
            # Of connections that can only be dropped.
            warnings.simplefilter("ignore", ResourceWarning)
            assert Status.MERGED == asyncio.run(hello())
            assert Status.MERGED == asyncio.run(hello_and_close())
            gc.collect()

    @claim
    async def test_what_no_agent_declares_is_refused(self, scene: Scene) -> None:
        """A window or a quota beyond all that can be declared would be remembered for centuries; nothing is merged."""
        ada = scene.voice()
        for of in (limit(window_us=2**53), limit(quota=2**53)):
            problem = await _problem(partial(ada.reports, of=of, need=1))
            assert problem.applied is not True

        assert 0 < (await ada.reports(need=1)).allowance

    @claim
    async def test_a_hub_that_is_not_there_is_unavailable(self, scene: Scene) -> None:
        """Every question has that error alone; it has a kind; and the hub can be closed all the same."""
        hub = scene.keep(self.make_unreachable())

        for question in (scene.voice(hub=hub).says_hello, hub.totals, scene.voice(hub=hub).says_hello):
            problem = await _problem(question)
            assert "" != problem.kind
            assert problem.applied is not True


async def _problem(question: Callable[[], Awaitable[object]]) -> HubUnavailable:
    """Returns the error that a question raises."""
    try:
        answer = await question()
    except HubUnavailable as error:
        return error
    raise AssertionError(f"instead of an error there was an answer: {answer!r}")
