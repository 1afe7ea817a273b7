"""Promises of a hub to the program that uses it: it can be closed and used again, and raises one kind of error only."""

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
    """Tests of the promises of a hub about its methods, such as closing it and using it again."""

    @claim
    async def test_it_is_a_hub(self, scene: Scene) -> None:
        """The hub has all methods of the `Hub` protocol."""
        assert isinstance(scene.hub, Hub)
        assert isinstance(scene.hub.shards, int)

    @claim
    async def test_closing_twice_is_harmless(self, scene: Scene) -> None:
        """A second close does nothing and raises nothing, so clean-up code can always close."""
        await scene.voice(hub=scene.hub).says_hello()
        await scene.hub.close()
        await scene.hub.close()

    @claim
    async def test_closing_what_was_never_used_is_harmless(self, scene: Scene) -> None:
        """A hub that was never used can be closed: an agent that never exchanged anything stops like any other."""
        await scene.hub.close()

    @claim
    async def test_it_can_be_used_again_after_closing(self, scene: Scene) -> None:
        """A closed hub opens its connections again when it is used."""
        ada = scene.voice(hub=scene.hub)
        await ada.reports(current=30)
        await scene.hub.close()

        await ada.says_hello()

    def test_it_can_be_used_from_another_loop_after_closing(self) -> None:
        """A closed hub can be used from another event loop, as by an agent that is started again."""
        scene = self.scene()
        voice = scene.voice(hub=scene.hub)

        async def one_life() -> Status:
            status = (await voice.says_hello()).status
            await scene.close()
            return status

        assert [Status.MERGED] * 3 == [asyncio.run(one_life()) for _ in range(3)]

    def test_it_outlives_a_loop_that_was_closed_under_it(self) -> None:
        """A hub whose event loop was closed before the hub was closed can be used from another loop."""
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
        """The hub refuses a window or a quota beyond all that can be declared, and merges nothing of that batch."""
        ada = scene.voice()
        for of in (limit(window_us=2**53), limit(quota=2**53)):
            problem = await _problem(partial(ada.reports, of=of, need=1))
            assert problem.applied is not True

        assert 0 < (await ada.reports(need=1)).allowance

    @claim
    async def test_a_hub_that_is_not_there_is_unavailable(self, scene: Scene) -> None:
        """Without its server, every method of the hub raises HubUnavailable with a kind; the hub can be closed."""
        hub = scene.keep(self.make_unreachable())

        for question in (scene.voice(hub=hub).says_hello, hub.totals, scene.voice(hub=hub).says_hello):
            problem = await _problem(question)
            assert "" != problem.kind
            assert problem.applied is not True


async def _problem(question: Callable[[], Awaitable[object]]) -> HubUnavailable:
    """Returns the HubUnavailable that a call raises. Raises AssertionError if the call raises none."""
    try:
        answer = await question()
    except HubUnavailable as error:
        return error
    raise AssertionError(f"expected HubUnavailable, but the hub answered {answer!r}")
