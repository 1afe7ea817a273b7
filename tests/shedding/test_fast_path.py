"""Goal: a stack that goes the fast path decides, says, holds and counts what its general way does.

Method: two stacks of the same layers on one clock. One goes the fast path where there is one; of the other, it is
taken away. Both get the same requests, ends, switches and passing of time, and whatever can be seen is compared.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconverge import Agent
from reconverge.errors import InvalidKey
from reconverge.integrations.shedding import LoadSheddingMiddleware, WsgiLoadSheddingMiddleware
from reconverge.limiter.enforcement.switches import OFF, ON, SHADOW
from reconverge.shedding import (
    AdaptiveConcurrency,
    Admission,
    Fixed,
    FleetShedder,
    Layer,
    LoopLag,
    Occupancy,
    RequestRate,
    ShedRefusal,
    Stack,
    WorkerShedder,
)
from reconverge.shedding.fast_path import Passage
from reconverge.testing import ManualClock
from tests.support.applications.asking import asgi_answer, ask_wsgi, hello, hello_wsgi, http_scope

RATES: Final = ("3/minute", "1000/minute", "2/second; 5/minute", "1000000000000/hour")
KINDS: Final = ("rate", "concurrency", "fleet", "worker", "busy")
CLASSES: Final = ("critical", "POST", "GET", "test")
SETTINGS: Final = st.fixed_dictionaries(
    {
        "kinds": st.lists(st.sampled_from(KINDS), unique=True, min_size=1, max_size=4),
        "in_order": st.booleans(),
        "rate": st.sampled_from(RATES),
        "most": st.integers(1, 3),
        "capacity": st.sampled_from(["5/minute", "1000/second"]),
        "worker": st.sampled_from([0.0, 0.0, 0.5, 1.0]),
    }
)
STEPS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), st.sampled_from(["ada", "bob"]), st.sampled_from(CLASSES)),
        st.tuples(st.just("enter"), st.sampled_from(["ada", ""]), st.sampled_from(CLASSES)),
        st.tuples(st.just("finish"), st.integers(0, 5), st.sampled_from(["served", "dropped", "ignored"])),
        st.tuples(st.just("aside"), st.integers(0, 5), st.just("")),
        st.tuples(st.just("on"), st.integers(0, 5), st.booleans()),
        st.tuples(st.just("advance"), st.sampled_from([0.01, 0.4, 61.0]), st.just("")),
        st.tuples(st.just("switch"), st.integers(0, 3), st.sampled_from([ON, ON, SHADOW, OFF])),
        st.tuples(st.just("limit"), st.integers(0, 3), st.sampled_from([ON, SHADOW, OFF])),
    ),
    min_size=1,
    max_size=30,
)


class StackSide:
    """One of the two stacks, with what runs in it."""

    def __init__(self, given: dict[str, Any], clock: ManualClock, *, fast_path: bool) -> None:
        agent = Agent("memory://", clock=clock)
        kinds = sorted(given["kinds"], key=KINDS.index) if given["in_order"] else given["kinds"]
        self.fast_path = fast_path
        self.layers = [self._made(kind, given, agent, clock) for kind in kinds]
        self.stack = Stack(*self.layers, clock=clock)
        self.running: list[Admission] = []
        self.take_away()

    def _made(self, kind: str, given: dict[str, Any], agent: Agent, clock: ManualClock) -> Layer:
        if kind == "rate":
            return RequestRate(agent.limit("api", given["rate"]))
        if kind == "concurrency":
            return AdaptiveConcurrency(Fixed(given["most"]))
        if kind == "fleet":
            return FleetShedder(agent, given["capacity"])
        signal = LoopLag() if kind == "worker" else Occupancy(2)
        worker = WorkerShedder(signal, name=kind, clock=clock)
        for dither in worker.dithers[2:]:
            dither.set(given["worker"])
        return worker

    def take_away(self) -> None:
        """Makes the other side go the general way."""
        if not self.fast_path:
            self.stack._fast_path = None

    def entered(self, key: str, name: str) -> Any:
        """Returns all that can be seen of an admission, or the error that it ended with."""
        try:
            admission = self.stack.enter(key, name)
        except InvalidKey as error:
            return str(error)
        if admission:
            self.running.append(admission)
        tickets = [(getattr(each, "in_progress", None), getattr(each, "decision", None)) for each in admission.tickets]
        seen = (bool(admission), admission.allowed, admission.refused_by, admission.finished, repr(admission))
        return seen, refusal_as_seen(admission.refusal), [*map(refusal_as_seen, admission.would_refuse)], tickets

    def held(self) -> Any:
        """Returns the slots that the layers hold, and their counts."""
        numbers = [getattr(layer, "in_flight", None) for layer in self.layers]
        busy = [getattr(getattr(layer, "signal", None), "busy", None) for layer in self.layers]
        limiters = [layer.limiter for layer in self.layers if isinstance(layer, RequestRate)]
        limiters += [each for layer in self.layers if isinstance(layer, FleetShedder) for each in layer.limiters]
        used = [(each.usages("ada"), each.usages("fleet")) for each in limiters]
        memories = [
            [memory._admitted.value for memory in layer.memories]
            for layer in self.layers
            if isinstance(layer, FleetShedder)
        ]
        return numbers, busy, used, memories, self.stack.stats()

    def step(self, what: str, one: Any, other: Any) -> Any:
        """Do one thing, and say what can be seen of it."""
        if what == "enter":
            return self.entered(one, other)
        if what == "finish" and self.running:
            admission = self.running[one % len(self.running)]
            admission.finish(other)
            admission.finish("served")  # changes nothing
            return admission.finished, len(admission.tickets)
        if what == "aside" and self.running:
            self.running[one % len(self.running)].step_aside()
        if what == "on" and self.running:
            admission = self.running[one % len(self.running)]
            refusal = admission.go_on(anyway=other) if admission.away else None
            return refusal_as_seen(refusal), admission.finished
        if what == "switch" and one < len(self.layers):
            self.stack.switch(self.layers[one].name, other)
            self.take_away()
        if what == "limit" and one < len(self.layers):
            layer = self.layers[one]
            if isinstance(layer, RequestRate):
                layer.limiter.switch(other)
            elif isinstance(layer, FleetShedder):
                layer.limiters[2].switch(other)
        return None


def refusal_as_seen(refusal: ShedRefusal | None) -> Any:
    """A refusal without what only one agent has."""
    if refusal is None:
        return None
    quotas = None if refusal.quotas is None else dict(refusal.quotas)
    return (refusal.layer, refusal.status, refusal.retry_after, refusal.reason, refusal.decision, quotas), (
        refusal.concurrent_max
    )


@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(made=SETTINGS, steps=STEPS)
def test_both_ways_are_one(made: dict[str, Any], steps: list[tuple[str, Any, Any]]) -> None:
    """Layers, order, quotas, switches and requests as drawn: admissions, refusals, slots, charges and counts agree."""
    clock = ManualClock(start=1_700_000_000.0)
    sides = [StackSide(made, clock, fast_path=fast_path) for fast_path in (True, False)]
    for step in steps:
        if step[0] == "advance":
            clock.advance(step[1])
        one, other = (side.step(*step) for side in sides)

        assert one == other
        assert sides[0].held() == sides[1].held()
    for side in sides:
        for admission in side.running:
            admission.finish()

    assert sides[0].held() == sides[1].held()


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(made=SETTINGS, times=st.integers(1, 6), change=st.booleans(), fields=st.booleans())
def test_responses_of_both_ways_are_one(made: dict[str, Any], times: int, change: bool, fields: bool) -> None:
    """Through ASGI and WSGI the responses have the same bytes, also after the limits have changed in between."""
    clock = ManualClock(start=1_700_000_000.0)
    answers: list[list[Any]] = []
    for fast_path in (True, False):
        side = StackSide(
            {**made, "kinds": [each for each in made["kinds"] if each != "worker"] or ["busy"]},
            clock,
            fast_path=fast_path,
        )
        settings: Any = {"fields": fields}
        if any(isinstance(layer, RequestRate) for layer in side.layers):
            settings["key_func"] = lambda _: "ada"
        apps = (
            LoadSheddingMiddleware(hello, side.stack, **settings),
            WsgiLoadSheddingMiddleware(hello_wsgi, side.stack, **settings),
        )
        told: list[Any] = []
        for number in range(times):
            if change and number == 2:
                for layer in side.layers:
                    if isinstance(layer, AdaptiveConcurrency):
                        layer.slots.limit = 7
                    elif isinstance(layer, RequestRate) and made["rate"] == RATES[1]:
                        layer.limiter.change("500/minute")
            answer = asyncio.run(asgi_answer(apps[0], http_scope("/")))
            told.append((answer.status, answer.headers, answer.body))
            (answer,) = ask_wsgi(apps[1])
            told.append((answer.status, answer.headers, answer.body))
        answers.append(told)

    assert answers[0] == answers[1]


# -------------------------------------------------------------------- what goes the fast path


def usual() -> list[Layer]:
    """The four, in the usual order."""
    agent = Agent("memory://", clock=ManualClock())
    fleet = FleetShedder(agent, "1000/hour")
    return [RequestRate(agent.limit("api", "9/hour")), AdaptiveConcurrency(Fixed(5)), fleet, WorkerShedder()]


def goes_straight(stack: Stack) -> bool:
    return isinstance(stack.enter("ada"), Passage)


def test_the_usual_stacks_go_straight() -> None:
    """The four, each alone, the default, and what is left when one is off do, and so the comparison compares."""
    assert goes_straight(Stack(*usual()))
    assert all(goes_straight(Stack(layer)) for layer in usual())
    assert goes_straight(Stack())
    assert goes_straight(Stack(*usual(), switches={"fleet": OFF}))


def test_what_is_not_known_goes_the_general_way() -> None:
    """A layer in shadow, another order, two of a kind, and a derived layer, whose methods may be others."""

    class Own(AdaptiveConcurrency):
        pass

    assert not goes_straight(Stack(*usual(), switches={"fleet": SHADOW}))
    assert not goes_straight(Stack(*reversed(usual())))
    assert not goes_straight(Stack(AdaptiveConcurrency(), AdaptiveConcurrency(name="second")))
    assert not goes_straight(Stack(Own()))


def test_a_switch_is_obeyed_with_the_next_request() -> None:
    """On, in shadow, off and on again: the way is chosen anew each time."""
    stack = Stack(*usual())
    found = []
    for switch in (ON, SHADOW, OFF, ON):
        stack.switch("fleet", switch)
        found.append(goes_straight(stack))

    assert [True, False, True, True] == found


# -------------------------------------------------------------------- what is held


@pytest.mark.parametrize("place", range(1, 4))
def test_an_error_in_a_layer_leaves_nothing_held(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a later layer is raised, and slots and charges of the earlier ones are given back."""
    layers: Any = usual()
    stack = Stack(*layers)
    rate, concurrency, fleet, _ = layers

    def fails(*_: object) -> Any:
        raise KeyboardInterrupt

    if place == 1:
        monkeypatch.setattr(concurrency.slots, "take", fails)
    elif place == 2:
        monkeypatch.setattr(fleet.memories[3], "admitted", fails)
    else:
        monkeypatch.setattr(stack._fast_path, "_chosen", (fails,) * 4)
    with pytest.raises(KeyboardInterrupt):
        stack.enter("ada")

    assert 0 == concurrency.in_flight
    assert 9 == rate.limiter.test("ada").remaining
    assert sum(stack.stats().admitted.values()) == 0


def test_ends_in_several_threads_count_once() -> None:
    """Of a thousand admissions, each finished by four threads at once, nothing is left, and nothing is freed twice."""
    concurrency = AdaptiveConcurrency(Fixed(1000))
    stack = Stack(concurrency)
    admissions = [stack.enter("ada", "critical") for _ in range(1000)]
    assert 1000 == concurrency.in_flight
    gate = threading.Barrier(4)

    def end(number: int) -> None:
        gate.wait()
        for admission in admissions[:: 1 if number % 2 else -1]:
            admission.finish("ignored")

    threads = [threading.Thread(target=end, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 0 == concurrency.in_flight
    assert [0, 0, 0, 0] == concurrency.slots.running


def test_tickets_of_a_passage_end_it_once() -> None:
    """A slot freed through a ticket is not freed again by the end of the request."""
    concurrency = AdaptiveConcurrency(Fixed(5))
    stack = Stack(concurrency)
    admission, other = stack.enter("ada"), stack.enter("ada")
    (ticket,) = admission.tickets
    ticket.give_back(0)
    ticket.finish(0, "served")
    admission.finish()

    assert 1 == concurrency.in_flight
    other.finish()
    assert 0 == concurrency.in_flight


async def test_a_block_ends_a_passage() -> None:
    """A timeout in a block counts as dropped, and lowers a limit that learns; nothing is held after it."""
    concurrency = AdaptiveConcurrency("aimd")
    clock = ManualClock()
    stack = Stack(concurrency, clock=clock)

    for _ in range(30):
        with suppress(TimeoutError):
            async with stack.enter("ada"):
                clock.advance(0.02)
                raise TimeoutError

    assert 20 > concurrency.limit
    assert 0 == concurrency.in_flight
