"""Several layers as one decision: which refuses, what is given back, and what shadow and switches do."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge import Agent
from reconverge.errors import InvalidSetting
from reconverge.limiter.enforcement.switches import OFF, ON, SHADOW
from reconverge.shedding import (
    AdaptiveConcurrency,
    Aimd,
    Fixed,
    Occupancy,
    RequestRate,
    ShedRefusal,
    Stack,
    TrafficClasses,
    WorkerShedder,
)
from reconverge.shedding.layers import Arrival, Outcome
from reconverge.testing import ManualClock
from tests.support.shed import TWO


class Doorman:
    """A layer that does as it is told, and notes what becomes of its tickets."""

    def __init__(self, name: str, *, refuses: bool = False, keeps: bool = False) -> None:
        self.name = name
        self.refuses = refuses
        self.keeps = keeps
        """Whether it forgets to give back, which is the fault to be found."""
        self.asked = 0
        self.held = 0
        self.outcomes: list[str] = []

    def enter(self, arrival: Arrival) -> DoormanSlot | ShedRefusal:
        self.asked += 1
        if self.refuses:
            return ShedRefusal(self.name, 503, 1.0, "As told.")
        return DoormanSlot(self)

    def enter_anyway(self, arrival: Arrival) -> DoormanSlot:
        return DoormanSlot(self)

    def readings(self) -> Mapping[str, float]:
        return {"held": float(self.held)}


class DoormanSlot:
    def __init__(self, doorman: Doorman) -> None:
        self._doorman = doorman
        doorman.held += 1

    def finish(self, now_ns: int, outcome: Outcome) -> None:
        self._doorman.held -= 1
        self._doorman.outcomes.append(outcome)

    def give_back(self, now_ns: int) -> None:
        if not self._doorman.keeps:
            self._doorman.held -= 1
            self._doorman.outcomes.append("given back")


def test_the_first_that_refuses_decides_and_is_named() -> None:
    """Of three layers of which two would refuse, the earlier one is named, and the later one is not asked."""
    layers = [Doorman("rate"), Doorman("fleet", refuses=True), Doorman("worker", refuses=True)]
    admission = Stack(*layers).enter("ada")

    assert not admission
    assert "fleet" == admission.refused_by
    assert 0 == layers[2].asked


def test_what_earlier_layers_hold_is_given_back() -> None:
    """A refusal by the last of three leaves nothing held by the first two."""
    layers = [Doorman("rate"), Doorman("concurrency"), Doorman("worker", refuses=True)]
    Stack(*layers).enter("ada")

    assert [0, 0, 0] == [each.held for each in layers]
    assert [["given back"], ["given back"], []] == [each.outcomes for each in layers]


def test_a_layer_that_keeps_its_ticket_is_found() -> None:
    """The claim above finds what it should: a ticket that is not given back stays."""
    keeper = Doorman("rate", keeps=True)
    Stack(keeper, Doorman("worker", refuses=True)).enter("ada")

    assert 1 == keeper.held


def test_a_shed_request_uses_up_no_quota() -> None:
    """Nine requests that a later layer refuses leave a limit of ten as it was."""
    limiter = Agent("memory://", clock=ManualClock()).limit("api", "10/minute")
    stack = Stack(RequestRate(limiter), Doorman("worker", refuses=True))
    for _ in range(9):
        assert "worker" == stack.enter("ada").refused_by

    assert 10 == limiter.hit("ada").remaining + 1


def test_a_quota_that_is_used_up_is_said_with_its_wait() -> None:
    """The eleventh of ten is refused by the rate with 429, a time to wait and what the limit said."""
    limiter = Agent("memory://", clock=ManualClock()).limit("api", "10/minute")
    stack = Stack(RequestRate(limiter), AdaptiveConcurrency())
    for _ in range(10):
        assert stack.enter("ada", "POST")
    refusal = stack.enter("ada", "POST").refusal

    assert refusal is not None
    assert ("api", 429) == (refusal.layer, refusal.status)
    assert 60 <= (refusal.retry_after or 0) < 120
    assert refusal.decision is not None


def test_shadow_counts_and_goes_on() -> None:
    """A layer in shadow that would refuse is told in the admission and in the counts, and holds the request."""
    layers = [Doorman("fleet", refuses=True), Doorman("worker")]
    stack = Stack(*layers, switches={"fleet": SHADOW})
    admission = stack.enter("ada", "GET")

    assert admission
    assert ["fleet"] == [each.layer for each in admission.would_refuse]
    assert [1, 1] == [each.held for each in layers]
    assert 1 == stack.stats().would_refuse["fleet"]["GET"]
    assert 0 == stack.stats().refused["fleet"]["GET"]


def test_a_slot_in_shadow_counts_as_running() -> None:
    """Three requests run where a limit in shadow allows one, and none runs when all have ended."""
    concurrency = AdaptiveConcurrency(Fixed(1), classes=TWO)
    stack = Stack(concurrency, switches={"concurrency": SHADOW})
    admissions = [stack.enter("ada", "user") for _ in range(3)]
    running = concurrency.in_flight
    for admission in admissions:
        admission.finish()

    assert (3, 0) == (running, concurrency.in_flight)


def test_a_layer_that_is_off_is_not_asked() -> None:
    """It is asked again after it has been switched on."""
    layer = Doorman("worker", refuses=True)
    stack = Stack(layer, switches={"worker": OFF})
    assert stack.enter("ada")
    assert 0 == layer.asked

    stack.switch("worker", ON)
    assert not stack.enter("ada")


def test_an_error_in_a_layer_leaves_nothing_held() -> None:
    """The error of a broken layer is raised, and the layers before it hold nothing."""
    layer = Doorman("rate")
    broken = Doorman("worker")
    broken.enter = lambda arrival: 1 // 0  # type: ignore[assignment,method-assign,return-value]  # the fault
    with pytest.raises(ZeroDivisionError):
        Stack(layer, broken).enter("ada")

    assert 0 == layer.held


@pytest.mark.parametrize(
    ("error", "outcome"), [(None, "served"), (TimeoutError(), "dropped"), (ValueError(), "ignored")]
)
def test_the_end_of_a_block_says_how_it_ended(error: Exception | None, outcome: str) -> None:
    """A timeout counts as dropped, any other error says nothing, and an end without one says how long it took."""
    layer = Doorman("concurrency")
    try:
        with Stack(layer).enter("ada"):
            if error is not None:
                raise error
    except (TimeoutError, ValueError):
        pass

    assert [outcome] == layer.outcomes


def test_an_end_counts_once() -> None:
    """The second call of `finish` changes nothing."""
    layer = Doorman("concurrency")
    admission = Stack(layer).enter("ada")
    admission.finish()
    admission.finish()

    assert (0, ["served"]) == (layer.held, layer.outcomes)


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["enter", "finish", "switch"]), st.integers(0, 2), st.sampled_from([ON, SHADOW, OFF])
        ),
        max_size=80,
    )
)
def test_what_runs_is_what_has_not_ended(steps: list[tuple[str, int, str]]) -> None:
    """Layers hold nothing in the end, and never more than was admitted, after any questions, ends and switches."""
    concurrency, occupancy = AdaptiveConcurrency(Fixed(3)), Occupancy(2)
    third = Doorman("third")
    clock = ManualClock()
    stack = Stack(concurrency, WorkerShedder(occupancy, clock=clock), third, clock=clock)
    running = []
    for step, number, switch in steps:
        if step == "enter":
            third.refuses = number == 0
            admission = stack.enter("ada", stack.classes.names[number])
            running += [admission] if admission else []
        elif step == "finish" and running:
            running.pop(number % len(running)).finish()
        elif step == "switch":
            stack.switch(stack.layers[number].name, switch)  # type: ignore[arg-type]  # one of the three
        assert len(running) >= max(concurrency.in_flight, occupancy.busy, third.held)
    for admission in running:
        admission.finish()

    assert (0, 0, 0) == (concurrency.in_flight, occupancy.busy, third.held)


def test_counts_are_by_layer_and_class() -> None:
    """Admissions and refusals are told by class, and refusals by the layer that refused."""
    layer = Doorman("fleet")
    stack = Stack(layer)
    stack.enter("ada", "GET")
    layer.refuses = True
    stack.enter("ada", "test")

    stats = stack.stats()
    assert {"critical": 0, "POST": 0, "GET": 1, "test": 0} == stats.admitted
    assert {"critical": 0, "POST": 0, "GET": 0, "test": 1} == stats.refused["fleet"]
    assert {"fleet": {"held": 1.0}} == stats.readings


def test_a_stack_without_layers_is_the_default() -> None:
    """It has adaptive concurrency and the worker shedder, in this order, with the four classes."""
    stack = Stack()

    assert ["concurrency", "worker"] == [layer.name for layer in stack.layers]
    assert ("critical", "POST", "GET", "test") == stack.classes.names


def test_settings_that_make_no_sense_are_told() -> None:
    """A name twice, different classes, too many layers, no layer, and an unknown name or switch are errors."""
    one, other = Doorman("worker"), Doorman("worker")
    with pytest.raises(InvalidSetting, match="name of two layers"):
        Stack(one, other)
    with pytest.raises(InvalidSetting, match="not those of all layers"):
        Stack(AdaptiveConcurrency(Aimd(), classes=TWO), WorkerShedder(classes=TrafficClasses()))
    with pytest.raises(InvalidSetting, match="at most 16"):
        Stack(*[Doorman(str(number)) for number in range(17)])
    with pytest.raises(InvalidSetting, match="is not a layer"):
        Stack("worker")  # type: ignore[arg-type]  # what is tested
    with pytest.raises(InvalidSetting, match="pass RequestRate"):
        Stack(Agent("memory://").concurrency("jobs", 1))  # type: ignore[arg-type]  # what is tested
    with pytest.raises(InvalidSetting, match="did you mean 'worker'"):
        Stack(one).switch("workers", OFF)
    with pytest.raises(InvalidSetting, match="switch"):
        Stack(one, switches={"worker": "offf"})  # type: ignore[dict-item]  # what is tested
    with pytest.raises(InvalidSetting, match="did you mean 'critical'"):
        Stack(one).enter("ada", "critica")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the child only counts, and leaves
@pytest.mark.parametrize("shadow", [False, True], ids=["fast_path", "general"])
def test_a_forked_child_counts_from_nothing(shadow: bool) -> None:
    """By both ways, also if it is forked while a thread of its parent switches; the limit that was learned stays."""
    layer = AdaptiveConcurrency(Fixed(2), classes=TWO)
    stack = Stack(layer, *([Doorman("shadowed", refuses=True)] if shadow else []), classes=TWO)
    if shadow:
        stack.switch("shadowed", SHADOW)
    held = [stack.enter() for _ in range(3)]
    assert [True, True, False] == [bool(each) for each in held]
    before = counted(stack)
    with stack._switching:  # as another thread does at the time of the fork
        child = os.fork()
        if not child:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)  # ends what waits for the lock
            first = counted(stack)
            admitted = bool(stack.enter())
            held[0].finish()  # what began in the parent
            second = counted(stack)
            stack.switch(layer.name, ON)
            os._exit(0 if (first, admitted, second) == ([0, 0, 0], True, [1, 0, shadow]) else 1)

    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert [2, 1, 2 * shadow] == before == counted(stack)


def counted(stack: Stack) -> list[int]:
    """How many requests a stack has admitted, has refused, and would have refused, of all classes and layers."""
    stats = stack.stats()
    return [
        sum(stats.admitted.values()),
        *(sum(sum(each.values()) for each in some.values()) for some in (stats.refused, stats.would_refuse)),
    ]
