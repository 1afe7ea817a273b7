"""Goal: each of the four layers can be on, in shadow and off, and is seen in responses and metrics; so can one more.

Method: each is brought to refuse, behind the middleware; a layer that counts what runs by key stands for all others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
from prometheus_client import CollectorRegistry

from reconverge import Agent
from reconverge.clock import ManualClock
from reconverge.errors import InvalidSetting
from reconverge.integrations.shedding import LoadSheddingMiddleware
from reconverge.integrations.shedding.prometheus import StackCollector
from reconverge.limiter.enforcement.switches import OFF, ON, SHADOW
from reconverge.shedding import (
    AdaptiveConcurrency,
    Arrival,
    Fixed,
    FleetShedder,
    InProgress,
    Layer,
    Occupancy,
    RequestRate,
    ShedRefusal,
    Stack,
    WorkerShedder,
)
from tests.support.applications.asking import Answer, asgi_answer, hello, http_scope

SECOND = 10**9
GET = 2


def agent() -> Agent:
    return Agent("memory://", clock=ManualClock())


def rate() -> RequestRate:
    """One that has admitted its only request."""
    layer = RequestRate(agent().limit("rate", "1/hour"))
    layer.enter(Arrival("ada", GET, 0))
    return layer


def concurrency() -> AdaptiveConcurrency:
    """One whose only slot is in use."""
    layer = AdaptiveConcurrency(Fixed(1))
    layer.enter(Arrival("ada", GET, 0))
    return layer


def fleet() -> FleetShedder:
    """One whose capacity is used up, but for what is reserved."""
    layer = FleetShedder(agent(), "5/hour")
    for _ in range(4):
        layer.enter(Arrival("ada", GET, 0))
    return layer


def worker() -> WorkerShedder:
    """One whose workers have been busy for so long that it rejects each GET."""
    layer = WorkerShedder(Occupancy(1), clock=ManualClock())
    layer.enter(Arrival("ada", GET, 0))
    for step in range(1, 40):
        layer.step(step * SECOND // 20)
    return layer


LAYERS: dict[str, tuple[Callable[[], Layer], int]] = {
    "rate": (rate, 429),
    "concurrency": (concurrency, 503),
    "fleet": (fleet, 503),
    "worker": (worker, 503),
}
"""The makers of a layer that refuses the next GET, and the status of the refusal."""


def asked(stack: Stack) -> Answer:
    by_key = any(getattr(layer, "counts_by_key", False) for layer in stack.layers)
    app = LoadSheddingMiddleware(hello, stack, key_func=(lambda _: "ada") if by_key else None)
    return asyncio.run(asgi_answer(app, http_scope("/")))


def counted(stack: Stack, name: str) -> dict[str, float | None]:
    """Returns Prometheus' counts of a layer and the class GET, by result, and the state of its switch."""
    registry = CollectorRegistry()
    registry.register(StackCollector(stack))
    found = {
        result: registry.get_sample_value(
            "reconverge_shedding_refused_total", {"layer": name, "class": "GET", "result": result}
        )
        for result in ("refused", "would_refuse")
    }
    for switch in (ON, SHADOW, OFF):
        found[switch] = registry.get_sample_value("reconverge_shedding_switch", {"layer": name, "switch": switch})
    return found


@pytest.mark.parametrize("name", LAYERS)
class TestEachLayer:
    """Of each of the four, which would refuse the next request."""

    def test_on_it_refuses_names_itself_and_says_when_to_come_again(self, name: str) -> None:
        """The response has the status of the layer, its name among the violated policies, and Retry-After."""
        make, status = LAYERS[name]
        stack = Stack(make())
        answer = asked(stack)

        assert status == answer.status
        assert name in answer.body.decode()
        assert 1 <= int(answer.headers["retry-after"])
        assert {"refused": 1, "would_refuse": 0, "on": 1, "shadow": 0, "off": 0} == counted(stack, name)

    def test_in_shadow_it_counts_and_refuses_nothing(self, name: str) -> None:
        """The request is served, and what would have been refused is seen in metrics."""
        stack = Stack(LAYERS[name][0](), switches={name: SHADOW})

        assert 200 == asked(stack).status
        assert {"refused": 0, "would_refuse": 1, "on": 0, "shadow": 1, "off": 0} == counted(stack, name)

    def test_off_it_is_not_asked(self, name: str) -> None:
        """The request is served, and nothing is counted."""
        stack = Stack(LAYERS[name][0](), switches={name: OFF})

        assert 200 == asked(stack).status
        assert {"refused": 0, "would_refuse": 0, "on": 0, "shadow": 0, "off": 1} == counted(stack, name)


class Renders:
    """A layer of an application: two requests of a key at once, wherever in the fleet they run."""

    name = "renders"
    counts_by_key = True

    def __init__(self) -> None:
        self.running: dict[str, int] = {}

    def enter(self, arrival: Arrival) -> Render | ShedRefusal:
        if self.running.get(arrival.key, 0) >= 2:
            return ShedRefusal(self.name, 429, 1.0, "Two of yours run.", concurrent_max=2)
        return self.enter_anyway(arrival)

    def enter_anyway(self, arrival: Arrival) -> Render:
        self.running[arrival.key] = self.running.get(arrival.key, 0) + 1
        return Render(self, arrival.key)

    def readings(self) -> Mapping[str, float]:
        return {"in_flight": float(sum(self.running.values()))}


class Render:
    def __init__(self, layer: Renders, key: str) -> None:
        self._layer = layer
        self._key = key

    @property
    def in_progress(self) -> InProgress:
        return InProgress("renders", 2, 2 - self._layer.running[self._key])

    def finish(self, now_ns: int, outcome: str) -> None:
        self._layer.running[self._key] -= 1

    def give_back(self, now_ns: int) -> None:
        self.finish(now_ns, "ignored")


class TestOneMoreLayer:
    """A layer that counts slots by key, which this package does not know, takes its place among the others."""

    def test_its_slots_are_told_in_responses(self) -> None:
        """An admitted response has its limit and what is left, beside those of adaptive concurrency."""
        answer = asked(Stack(Renders(), AdaptiveConcurrency(Fixed(5))))

        policies = '"renders";q=2;qu="concurrent-requests", "concurrency";q=5;qu="concurrent-requests"'
        assert policies == answer.headers["ratelimit-policy"]
        assert '"renders";r=1, "concurrency";r=4' == answer.headers["ratelimit"]

    def test_its_refusal_is_told_in_responses(self) -> None:
        """A third request of a key is refused by that layer, with its policy."""
        layer = Renders()
        layer.running["ada"] = 2
        answer = asked(Stack(layer, AdaptiveConcurrency(Fixed(5))))

        assert (429, '"renders";q=2;qu="concurrent-requests"') == (answer.status, answer.headers["ratelimit-policy"])

    def test_what_it_holds_is_given_back(self) -> None:
        """A later layer that refuses leaves nothing held, and the end of a request neither."""
        layer = Renders()
        stack = Stack(layer, concurrency())

        assert 503 == asked(stack).status
        stack.switch("concurrency", OFF)
        assert 200 == asked(stack).status
        assert {"ada": 0} == layer.running

    def test_it_needs_a_key(self) -> None:
        """An application that has no function for keys is told, as for a rate."""
        with pytest.raises(InvalidSetting, match="renders"):
            LoadSheddingMiddleware(hello, Stack(Renders()))
