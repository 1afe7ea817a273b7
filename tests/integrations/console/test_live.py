"""Goal: a console does not take nodes for cut off that it has not watched, or that have ended, or that are idle.

Method: snapshots that are left by hand at a hub in memory, a console that reads them, and a clock of the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from reconverge import Agent
from reconverge.agent.snapshots.snapshot import encoded
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.errors import HubUnavailable
from reconverge.hub.board import LEFT
from reconverge.hub.port import Hub
from reconverge.integrations.console.live import Live
from reconverge_sync.memory import MemoryHub
from tests.support.snapshots import some_snapshot


class Watched:
    """A console, and the nodes whose snapshots are at its hub."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_800_000_000.0)
        self.hub = MemoryHub(clock=self.clock)
        self.is_away = False
        self._live = Live(cast("Agent", self))

    async def ask_hub(self, question: Callable[[Hub], Awaitable[Any]]) -> Any:
        """Asks the hub as an agent does."""
        if self.is_away:
            raise HubUnavailable("timeout", "it is away", applied=False)
        return await question(self.hub)

    def leave(self, *names: str, keys: int = 3) -> None:
        """Leaves a snapshot of each node, if the console is open by then."""
        for name in names:
            snapshot = some_snapshot(at=self.clock.wall_ns() / SECOND_NS, keys=keys)
            self.leave_as(name, encoded(snapshot))

    def leave_as(self, name: str, payload: bytes) -> None:
        asyncio.run(self.hub.leave_snapshot(name, payload, keep_s=5.0))

    def view(self) -> dict[str, Any]:
        """Returns what a page is shown now."""
        return asyncio.run(self._live.view())

    def states(self) -> dict[str, str]:
        return {each["name"]: each["state"] for each in self.view()["nodes"]}

    def passes(self, seconds: float, *names: str, keys: int = 3) -> None:
        """Lets time pass, in which the console is read each second and the nodes leave snapshots."""
        for _ in range(round(seconds)):
            self.clock.advance(1.0)
            self.leave(*names, keys=keys)
            self.view()


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_at_first_a_console_waits_for_snapshots(watched: Watched) -> None:
    """For three seconds, in which nodes that have keys leave one."""
    assert watched.view()["beginning"]
    watched.clock.advance(3.0 - 1e-9)
    assert watched.view()["beginning"]
    watched.clock.advance(1e-9)
    assert not watched.view()["beginning"]


@pytest.mark.parametrize(("keys", "patience_s"), [(3, 3), (0, 13)], ids=["with keys", "without keys"])
def test_silence_counts_from_when_watching_begins_anew(watched: Watched, keys: int, patience_s: int) -> None:
    """While no page was open no node left anything; one without keys looks for a console every ten seconds."""
    watched.view()
    watched.passes(5, "a1", keys=keys)
    watched.clock.advance(20.0)

    view = watched.view()
    assert view["beginning"]
    assert ["ready"] == [each["state"] for each in view["nodes"]]
    watched.passes(patience_s)
    assert {"a1": "ready"} == watched.states()
    watched.passes(1)
    assert {"a1": "silent"} == watched.states()
    assert 1.0 == watched._live._nodes.all()[0].silent_s


def test_a_page_that_looks_now_and_then_waits_once(watched: Watched) -> None:
    """The mark at the hub lasts from one reading to the next, and nodes go on."""
    watched.view()
    watched.passes(5, "a1")
    watched.clock.advance(9.0)
    watched.leave("a1")

    assert not watched.view()["beginning"]


def test_when_the_hub_answers_again_watching_begins_anew(watched: Watched) -> None:
    """Nodes have left nothing at a hub that was away, and none of them is silent for that."""
    watched.view()
    watched.passes(5, "a1")
    watched.is_away = True
    watched.passes(20)
    assert not watched.view()["beginning"]
    assert "the hub does not answer (timeout)" == watched.view()["problem"]
    watched.is_away = False
    watched.clock.advance(1.0)

    view = watched.view()
    assert ("", True) == (view["problem"], view["beginning"])
    assert {"a1": "ready"} == watched.states()


def test_a_node_that_has_ended_is_no_longer_shown(watched: Watched) -> None:
    """It has said so, and is neither silent nor cut off."""
    watched.view()
    watched.passes(5, "a1", "b2")
    watched.leave_as("a1", LEFT)
    watched.passes(2, "b2")

    assert {"b2": "ready"} == watched.states()
