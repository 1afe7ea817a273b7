"""Goal: a node says what its stacks shed and what waits for its limits, within a bound, and is read with suspicion.

Method: stacks and agents of this process, on a clock of the test's own; then snapshots that are made by hand.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from reconverge import Agent
from reconverge.agent.snapshots import snapshot as node_snapshot
from reconverge.agent.snapshots.load_snapshot import SUFFIX, LoadSnapshot, StackLoad, decoded, encoded, load_of
from reconverge.clock import ManualClock
from reconverge.errors import InvalidSetting
from reconverge.hub.board import SNAPSHOT_BYTES_MAX
from reconverge.shedding import AdaptiveConcurrency, Fixed, Stack, TrafficClasses
from reconverge.shedding.layers import Arrival
from reconverge_sync.memory import MemoryHub
from tests.support.fixtures.agents import MakeAgent
from tests.support.loads import some_load
from tests.support.snapshots import START_S, some_snapshot
from tests.support.waiting import eventually


def told(name: str, load: LoadSnapshot | None) -> StackLoad | None:
    """Returns the load of the stack of that name; other tests may have left stacks of other names."""
    return next((each for each in (load.stacks if load is not None else ()) if each.name == name), None)


def test_a_snapshot_says_what_a_stack_admits_and_which_layer_sheds() -> None:
    """By class, with what the layer measures; for as long as the program holds the stack."""
    stack = Stack(AdaptiveConcurrency(Fixed(2)), name="says-all")
    held = [stack.enter("ada", "critical") for _ in range(2)]
    refused = stack.enter("ada", "GET")

    load = load_of("web-1", START_S, {})

    said = told("says-all", load)
    assert said is not None
    assert not refused
    assert all(held)
    assert (("critical", "POST", "GET", "test"), (2, 0, 0, 0)) == (said.classes, said.admitted)
    (layer,) = said.layers
    assert ("concurrency", "on", (0, 0, 1, 0), (0, 0, 0, 0)) == (
        layer.name,
        layer.switch,
        layer.refused,
        layer.would_refuse,
    )
    assert {"limit": 2.0, "in_flight": 2.0} == layer.readings
    while held:
        held.pop().finish()
    del stack, refused
    assert told("says-all", load_of("web-1", START_S, {})) is None


class Odd:
    """A layer of an application that says of itself what it should not."""

    def __init__(self, readings: Mapping[str, Any]) -> None:
        self.name = "odd"
        self._readings = readings

    def enter(self, arrival: Arrival) -> None:
        """Does nothing."""

    def enter_anyway(self, arrival: Arrival) -> None:
        """Does nothing."""

    def readings(self) -> Mapping[str, float]:
        told: dict[str, Any] = {name: each() if callable(each) else each for name, each in self._readings.items()}
        return told


def test_a_layer_that_fails_to_say_how_it_stands_is_left_out_and_nothing_else_fails() -> None:
    """A reading that is no number is left out; no error reaches an exchange."""
    failing = Stack(Odd({"one": lambda: 1 // 0}), name="failing")
    many = {str(number): 1.0 for number in range(50)}
    odd = Stack(Odd({"nan": float("nan"), "much": 1e300, "good": 1.5, **many}), name="odd")

    load = load_of("web-1", START_S, {})

    assert load is not None
    assert load == decoded(encoded(load))
    said = told("odd", load)
    assert said is not None
    assert 1.5 == said.layers[0].readings["good"]
    assert {"nan", "much"}.isdisjoint(said.layers[0].readings)
    assert len(said.layers[0].readings) <= 8
    assert told("failing", load) is None
    assert load.left_out >= 1
    del failing, odd


def test_what_waits_for_a_limit_is_told() -> None:
    """Of this node, for as long as it waits."""

    async def run() -> tuple[LoadSnapshot | None, LoadSnapshot | None]:
        agent = Agent("memory://")
        render = agent.concurrency("render", 1)
        async with render.slot("ada"):
            waiter = asyncio.create_task(held(render.slot("ada", timeout=30.0)))
            await asyncio.sleep(0)  # in which the waiter comes
            during = agent.load_snapshot()
        await waiter
        return during, agent.load_snapshot()

    async def held(slot: Any) -> None:
        async with slot:
            return

    during, after = asyncio.run(run())

    assert during is not None
    assert {"render": 1} == during.waiting
    assert after is None or {} == after.waiting


def test_a_node_without_stacks_and_without_waiters_has_nothing_to_say() -> None:
    """So it leaves no second snapshot."""
    agent = Agent("memory://", clock=ManualClock(START_S))
    agent.limit("login", "3/minute").hit("ada")
    load = agent.load_snapshot()

    assert load is None or {} == load.waiting  # a stack of another test may live on


def test_a_node_leaves_it_beside_its_own_snapshot(make_agent: MakeAgent) -> None:
    """Which stays as it was, so that a console of an earlier version goes on to read that, and takes this for none."""
    hub = MemoryHub()
    agents = [make_agent(hub) for _ in range(2)]
    stack = Stack(AdaptiveConcurrency(Fixed(2)), name="beside")
    asyncio.run(hub.watch(keep_s=60.0))
    for agent in agents:
        agent.limit("login", "5/minute").allow("ada")

    def loads() -> dict[str, LoadSnapshot]:
        found = asyncio.run(hub.snapshots())
        return {name: load for name, payload in found.items() if (load := decoded(payload)) is not None}

    eventually(lambda: 2 == sum(told("beside", each) is not None for each in loads().values()), "both to tell")
    found, snapshots = loads(), asyncio.run(hub.snapshots())
    names = {agent._publishing.name for agent in agents}
    assert {f"{name}{SUFFIX}" for name in names} == set(found)
    assert names == {name for name, payload in snapshots.items() if node_snapshot.decoded(payload) is not None}
    assert 1 == len({each.process for each in found.values()})
    del stack


def test_a_snapshot_has_a_bound_whatever_there_is_to_say() -> None:
    """The last stacks stay out, and that is said."""
    layer = replace(some_load().stacks[0].layers[0], name="\u00e9" * 200)
    stack = replace(some_load().stacks[0], name="\u00e9" * 200, layers=(layer,) * 16)
    load = some_load(stacks=(stack,) * 8, waiting={"\u00e9" * 190 + str(number): 1 for number in range(50)})

    read = decoded(encoded(load))

    assert len(encoded(load)) <= SNAPSHOT_BYTES_MAX
    assert read is not None
    assert 8 == read.left_out + len(read.stacks)


GOOD = json.loads(encoded(some_load()))
STACK, LAYER = GOOD["stacks"][0], GOOD["stacks"][0]["layers"][0]


@pytest.mark.parametrize(
    "changed",
    [
        {"load": 2},
        {"host": 7},
        {"host": "x" * 1000},
        {"pid": True},
        {"at": float("inf")},
        {"at": "now"},
        {"process": None},
        {"left_out": -1},
        {"waiting": []},
        {"waiting": {"login": 1.5}},
        {"waiting": {str(number): 1 for number in range(51)}},
        {"stacks": "many"},
        {"stacks": [STACK] * 9},
        {"stacks": [1]},
        {"stacks": [STACK | {"classes": ["GET"]}]},
        {"stacks": [STACK | {"classes": ["GET"] * 2}]},
        {"stacks": [STACK | {"classes": [["GET"]] * 2}]},
        {"stacks": [STACK | {"admitted": [1, -4]}]},
        {"stacks": [STACK | {"admitted": [1, 1e30]}]},
        {"stacks": [STACK | {"layers": [LAYER] * 17}]},
        {"stacks": [STACK | {"layers": [LAYER | {"refused": [1]}]}]},
        {"stacks": [STACK | {"layers": [LAYER | {"would_refuse": [1] * 5}]}]},
        {"stacks": [STACK | {"layers": [LAYER | {"readings": {"limit": "2"}}]}]},
        {"stacks": [STACK | {"layers": [LAYER | {"readings": {"limit": 1e300}}]}]},
        {"stacks": [STACK | {"layers": [LAYER | {"readings": {str(number): 1 for number in range(9)}}]}]},
        {"stacks": [STACK | {"layers": [{}]}]},
    ],
)
def test_what_is_no_snapshot_is_not_read(changed: dict[str, Any]) -> None:
    """Each client of the hub could have written it."""
    assert decoded(json.dumps(GOOD, separators=(",", ":")).encode()) == some_load()

    assert decoded(json.dumps(GOOD | changed, separators=(",", ":")).encode()) is None


@pytest.mark.parametrize("payload", [b"", b'{"load":1,', b'{"load":1,"host":' + b"[" * 16_000, b"x" * 20_000])
def test_what_is_no_json_is_not_read(payload: bytes) -> None:
    """Nor is a node's own snapshot, and that reads no load."""
    assert decoded(payload) is None
    assert decoded(node_snapshot.encoded(some_snapshot())) is None
    assert node_snapshot.decoded(encoded(some_load())) is None


@pytest.mark.parametrize("name", ["", "x" * 101, "two\nlines", 7, None])
def test_a_stack_has_a_name_that_can_be_shown(name: Any) -> None:
    """The error names the setting."""
    with pytest.raises(InvalidSetting, match="name"):
        Stack(AdaptiveConcurrency(classes=TrafficClasses()), name=name)
    assert "api" == Stack(name="api").name
