"""Tests of the promises of `reconverge.Hub`, for the tests of a hub to inherit."""

from __future__ import annotations

from typing import ClassVar

from reconverge.clock import ManualClock
from reconverge.hub.port import Hub
from reconverge.testing.claims.allowances import LineClaims
from reconverge.testing.claims.asking import AskingClaims
from reconverge.testing.claims.data import DataClaims
from reconverge.testing.claims.fleets import FleetClaims
from reconverge.testing.claims.in_progress.slots import SlotClaims
from reconverge.testing.claims.keys import KeyClaims
from reconverge.testing.claims.names import NameClaims
from reconverge.testing.claims.repeats import RepeatClaims
from reconverge.testing.claims.uses import UseClaims
from reconverge.testing.claims.windows import WindowClaims


class HubClaims(
    LineClaims,
    RepeatClaims,
    SlotClaims,
    NameClaims,
    KeyClaims,
    WindowClaims,
    DataClaims,
    UseClaims,
    AskingClaims,
    FleetClaims,
):
    """Tests of the promises of every hub.

    Inherit it under a name that your test runner collects, and define which hub to test:

        class TestMyHub(HubClaims):
            def make_hub(self, clock):
                return MyHub(URL, clock=clock)

    Each claim is an ordinary method `test_...` that runs its own event loop and uses `assert`; it needs no plugin, and
    nothing but what `reconverge` itself needs. Only `make_hub` must be defined. A claim that needs one of the other
    methods is skipped if that method is not defined (`unittest.SkipTest`).
    """

    own_clock: ClassVar[bool] = False
    """Whether the hub uses a clock of its own, and ignores the one that `make_hub` is given.

    Then the claims that need time to pass are skipped, and the others assume that the hub's clock is near this
    machine's. Give a hub a `clock` if you can: many faults show only after hours.
    """

    seeds: ClassVar[range] = range(8)
    """The seeds of the random schedules to try; a claim that fails names its seed."""

    grace_s: ClassVar[float] = 0.0
    """How much longer than other hubs this one waits for nodes after a loss: with an elected leader, the time of an
    answer."""

    def make_hub(self, clock: ManualClock) -> Hub:
        """Returns a hub without any data, whose time is `clock.wall_ns()`.

        Called outside of any event loop, once for each claim, or once for each of its schedules.
        """
        return super().make_hub(clock)

    def join(self, hub: Hub) -> Hub:
        """Returns another object for the same hub and data, as another process would have; by default `hub` itself."""
        return super().join(hub)

    def make_stranger(self, hub: Hub) -> Hub:
        """Returns a hub on the same server as `hub`, with the same clock and another namespace."""
        return super().make_stranger(hub)

    def make_operator(self, hub: Hub) -> Hub:
        """Returns `hub` as an operator's command opens it, with more rights than an agent; by default `join(hub)`."""
        return super().make_operator(hub)

    def make_unreachable(self) -> Hub:
        """Returns a hub whose server cannot be reached."""
        return super().make_unreachable()

    async def lose_data(self, hub: Hub) -> None:
        """Deletes all data of `hub`, as if its server came back empty."""
        await super().lose_data(hub)
