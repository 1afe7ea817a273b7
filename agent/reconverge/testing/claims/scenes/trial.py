"""The base class of claims: each claim is tried on a new hub, in an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ClassVar, TypeAlias
from unittest import SkipTest

from reconverge.clock import Clock, ManualClock, SystemClock
from reconverge.hub.port import Hub
from reconverge.testing.claims.scenes.scene import START_S, Scene

Tried: TypeAlias = Callable[..., Awaitable[None]]


class Trial:
    """The methods by which a claim gets its hub; a suite overrides those that its hub supports."""

    own_clock: ClassVar[bool] = False
    """Whether the hub uses a clock of its own, and ignores the one that `make_hub` is given.

    Then claims that need time to pass are skipped, and the others assume that the hub's clock is near this machine's.
    Give a hub a `clock` if you can: many faults show only after hours.
    """

    seeds: ClassVar[range] = range(8)
    """The seeds of the random schedules to try; a claim that fails names its seed."""

    grace_s: ClassVar[float] = 0.0
    """The time, in seconds, by which this hub waits longer for nodes after a loss than other hubs do: with an elected
    leader, the time of an answer."""

    patience_s: ClassVar[float] = 0.0
    """How many seconds it may take until other hub objects read settings or an index of contracts that were stored, as
    with a broker that pushes them."""

    def make_hub(self, clock: ManualClock) -> Hub:
        """Returns a hub without any data, whose time is `clock.wall_ns()`.

        Called outside of any event loop, once for each claim, or once for each of its schedules.
        """
        raise NotImplementedError("define which hub to test: def make_hub(self, clock: ManualClock) -> Hub")

    def join(self, hub: Hub) -> Hub:
        """Returns another object for the same hub and data, as another process would have; by default `hub` itself."""
        return hub

    def make_stranger(self, hub: Hub) -> Hub:
        """Returns a hub on the same server as `hub`, with the same clock and another namespace."""
        raise SkipTest("the suite has no make_stranger; define it to test a hub of another namespace")

    def make_operator(self, hub: Hub) -> Hub:
        """Returns `hub` as an operator's command opens it, with more rights than an agent; by default `join(hub)`."""
        return self.join(hub)

    def make_unreachable(self) -> Hub:
        """Returns a hub whose server cannot be reached."""
        raise SkipTest("the suite has no make_unreachable; define it to test a hub that cannot be reached")

    async def lose_data(self, hub: Hub) -> None:
        """Deletes all data of `hub`, as if its server came back empty."""
        raise SkipTest("the suite has no lose_data; define it to test what nodes do when a hub has lost its data")

    def scene(self) -> Scene:
        """Returns a scene with a new hub and a new clock."""
        manual = ManualClock(START_S)
        clock: Clock = SystemClock() if self.own_clock else manual
        return Scene(self.make_hub(manual), clock, join=self.join)

    def on_a_scene(self, tried: Callable[[Scene], Awaitable[None]]) -> None:
        """Runs a coroutine function with a new scene in an event loop of its own, and closes the scene."""
        scene = self.scene()

        async def run() -> None:
            try:
                await tried(scene)
            finally:
                await scene.close()

        asyncio.run(run())


def claim(tried: Tried) -> Callable[[Any], None]:
    """Turns a coroutine method of a suite, which gets a scene, into a plain test method that needs no pytest plugin."""

    def test(self: Any) -> None:
        self.on_a_scene(partial(tried, self))

    # Not `functools.wraps`: pytest would look through it, and take the scene for a fixture.
    test.__name__, test.__qualname__, test.__doc__ = tried.__name__, tried.__qualname__, tried.__doc__
    test.__module__ = tried.__module__
    return test
