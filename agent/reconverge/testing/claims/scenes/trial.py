"""The base class of claims: each claim is tried on a new hub, in an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final, Protocol, TypeAlias
from unittest import SkipTest

from reconverge.clock import Clock, ManualClock, SystemClock
from reconverge.hub.port import Hub
from reconverge.testing.claims.scenes.scene import START_S, Scene

Tried: TypeAlias = Callable[..., Awaitable[None]]


class Trial:
    """The methods by which a claim gets its hub. `HubClaims` explains each."""

    own_clock: ClassVar[bool] = False
    seeds: ClassVar[range] = range(8)
    grace_s: ClassVar[float] = 0.0

    def make_hub(self, clock: ManualClock) -> Hub:
        raise NotImplementedError("define which hub to test: def make_hub(self, clock: ManualClock) -> Hub")

    def join(self, hub: Hub) -> Hub:
        return hub

    def make_stranger(self, hub: Hub) -> Hub:
        raise SkipTest("the suite has no make_stranger; define it to test a hub of another namespace")

    def make_operator(self, hub: Hub) -> Hub:
        return self.join(hub)

    def make_unreachable(self) -> Hub:
        raise SkipTest("the suite has no make_unreachable; define it to test a hub that cannot be reached")

    async def lose_data(self, hub: Hub) -> None:
        raise SkipTest("the suite has no lose_data; define it to test what nodes do when a hub has lost its data")

    def scene(self) -> Scene:
        """Returns a scene with a new hub and a new clock."""
        manual = ManualClock(START_S)
        clock: Clock = SystemClock() if self.own_clock else manual
        return Scene(self.make_hub(manual), clock, join=self.join)

    def on_a_scene(self, tried: Callable[[Scene], Awaitable[None]]) -> None:
        """Runs a coroutine function with a new scene, and closes the scene."""
        scene = self.scene()
        run_and_close(tried(scene), [scene])


class Closable(Protocol):
    """Something to close after a claim."""

    async def close(self) -> None: ...


def run_and_close(claim: Awaitable[None], opened: Sequence[Closable]) -> None:
    """Runs a claim in an event loop of its own, then closes all of `opened`, also objects that the claim has added."""

    async def run() -> None:
        try:
            await claim
        finally:
            for each in opened:
                await each.close()

    asyncio.run(run())


def claims_by(run: Callable[[Any, Tried], None]) -> Callable[[Tried], Callable[[Any], None]]:
    """Returns a decorator for the claims of a suite, which makes of a coroutine function a test that needs no plug-in.

    `run` gets the suite and the claim, and calls the claim with its arguments, such as a new hub.
    """

    def claim(tried: Tried) -> Callable[[Any], None]:
        def test(self: Any) -> None:
            run(self, partial(tried, self))

        # Not `functools.wraps`: pytest would look through it, and take the scene for a fixture.
        test.__name__, test.__qualname__, test.__doc__ = tried.__name__, tried.__qualname__, tried.__doc__
        test.__module__ = tried.__module__
        return test

    return claim


claim: Final = claims_by(Trial.on_a_scene)
