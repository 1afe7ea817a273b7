"""Goal: a request waits for the hub for as long as it says, and for its own process beside that, up to a longest.

Method: the real kernel, syncer and hub, whose every message the test carries; the runner has the turns that it notes.
"""

from __future__ import annotations

import pytest

from reconverge import Limit
from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.kernel import TURN_NS, Cell
from reconverge.limiter.waiting.patience import LOST_MAX_NS
from reconverge.policies import BALANCED
from reconverge.simulation.asked import Beside, SimulatedLimit
from reconverge.simulation.explore.node import INTERVAL_NS
from tests.limiter.test_asking import FIVE, WITHIN_NS, Ask, AskingNodes, Ring

SLOTS = Limit.parse("5 in flight")


def asked_of_a_hub_without_room() -> tuple[AskingNodes, Ask]:
    """All five are used on another node, so only memory would admit the request, on what it believes of a new key."""
    scene = AskingNodes(FIVE, policy=BALANCED)
    assert scene.settles(0, "zoe")  # the hub has answered it before
    scene.clock.advance_ns(MILLISECOND_NS)
    for _ in range(5):
        assert scene.settles(1)
    return scene, scene.asks(0)


@pytest.mark.parametrize("late_ns", [WITHIN_NS, LOST_MAX_NS])
def test_what_passes_while_the_loop_stands_still_is_not_the_hubs_time(late_ns: int) -> None:
    """A handler computes for so long; then the answer is read, and it refuses what memory would have admitted."""
    scene, ask = asked_of_a_hub_without_room()
    node = scene.nodes[0]
    node.sends()
    node.syncer.note_turn(scene.clock.monotonic_ns())
    scene.clock.advance_ns(late_ns)
    ask.goes_on()
    assert ask.waits

    node.reaches(scene.hub)
    node.hears()
    ask.goes_on()
    assert not ask.allowed
    assert {"admitted": 1, "refused": 1} == scene.results(0)


@pytest.mark.parametrize("late_ns", [WITHIN_NS // 2, 4 * WITHIN_NS])
def test_the_hub_has_all_its_time_for_each_answer(late_ns: int) -> None:
    """Other requests have charged what was granted for one that looks late, so it asks time and again."""
    scene = AskingNodes(FIVE, nodes=1)
    ask = scene.asks()
    for _ in range(3):
        scene.exchanges()
        assert scene.settles()
        scene.clock.advance_ns(late_ns)
        ask.goes_on()
        assert ask.waits

    scene.exchanges()
    ask.goes_on()
    assert ask.allowed


def test_a_hub_that_falls_silent_is_waited_for_once_more_at_most() -> None:
    """Its last answer does not count twice."""
    scene = AskingNodes(FIVE, nodes=1)
    node, clock = scene.nodes[0], scene.clock
    ask = scene.asks()
    scene.exchanges()
    assert scene.settles()
    clock.advance_ns(MILLISECOND_NS)
    ask.goes_on()
    node.sends()
    for _ in range(WITHIN_NS // TURN_NS + 1):
        assert ask.waits
        node.syncer.note_turn(clock.monotonic_ns())
        clock.advance_ns(TURN_NS)
        ask.goes_on()

    assert {"timeout": 1} == scene.results(0)


def test_a_request_that_waits_for_too_long_is_decided_from_memory() -> None:
    """However often the hub has granted what it asks for."""
    scene = AskingNodes(FIVE, nodes=1)
    ask = scene.asks()
    scene.exchanges()
    assert scene.settles()
    scene.clock.advance_ns(LOST_MAX_NS + WITHIN_NS)

    ask.goes_on()
    assert not ask.allowed
    assert {"timeout": 1} == scene.results(0)


@pytest.mark.parametrize("taken", [True, False], ids=["sent", "waiting"])
def test_a_process_is_waited_for_up_to_the_longest(taken: bool) -> None:
    """Whether its runner has not taken the request, or has no turn while the batch is under way."""
    scene, ask = asked_of_a_hub_without_room()
    node = scene.nodes[0]
    if taken:
        node.sends()
        node.syncer.note_turn(scene.clock.monotonic_ns())

    assert LOST_MAX_NS + WITHIN_NS == ask.sleeps(scene.clock)
    assert ask.allowed
    assert {"admitted": 1, "timeout": 1} == scene.results(0)


@pytest.mark.parametrize("every_ns", [TURN_NS // 2, TURN_NS])
def test_a_hub_that_is_silent_is_waited_for_as_long_as_the_request_says(every_ns: int) -> None:
    """The runner has all its turns."""
    scene, ask = asked_of_a_hub_without_room()
    node, clock = scene.nodes[0], scene.clock
    node.sends()
    for _ in range(WITHIN_NS // every_ns + 1):
        assert ask.waits
        node.syncer.note_turn(clock.monotonic_ns())
        clock.advance_ns(every_ns)
    ask.goes_on()

    assert ask.allowed
    assert {"admitted": 1, "timeout": 1} == scene.results(0)


def test_the_first_answer_of_a_hub_is_waited_for_as_long_as_a_process_that_stands_still() -> None:
    """A worker that has just started has yet to connect, and would admit what memory believes of a new key."""
    scene = AskingNodes(FIVE, policy=BALANCED)
    for _ in range(5):
        assert scene.settles(1)
    ask, node = scene.asks(0), scene.nodes[0]
    node.sends()
    scene.clock.advance_ns(4 * WITHIN_NS)
    ask.goes_on()
    assert ask.waits

    node.reaches(scene.hub)
    node.hears()
    ask.goes_on()
    assert not ask.allowed
    assert {"refused": 1} == scene.results(0)


def test_a_hub_that_never_answers_is_waited_for_once() -> None:
    """Memory decides about the first request after the longest time, and about the next at once."""
    scene = AskingNodes(FIVE, nodes=1, policy=BALANCED)
    ask, node = scene.asks(), scene.nodes[0]
    node.sends()
    node.syncer.note_turn(scene.clock.monotonic_ns())

    assert LOST_MAX_NS + WITHIN_NS == ask.sleeps(scene.clock)
    assert ask.allowed
    assert not scene.asks(0, "eve").waits
    assert {"timeout": 1, "in_vain": 1} == scene.results(0)


def test_the_time_begins_anew_with_a_first_answer_that_is_about_nothing() -> None:
    """The batch left before the request came, and its answer opened the connection."""
    scene = AskingNodes(FIVE, policy=BALANCED)
    for _ in range(5):
        assert scene.settles(1)
    node = scene.nodes[0]
    node.limit(FIVE, BALANCED, "other").allow("eve")
    node.sends()
    scene.clock.advance_ns(MILLISECOND_NS)
    ask = scene.asks(0)
    scene.clock.advance_ns(4 * WITHIN_NS)
    node.reaches(scene.hub)
    node.hears()
    ask.goes_on()
    assert ask.waits

    scene.exchanges()
    ask.goes_on()
    assert not ask.allowed


def waits_out(scene: AskingNodes, ask: Ask) -> int:
    """Exchanges whenever that is due, as an agent does; returns for how long the request waits."""
    clock, node = scene.clock, scene.nodes[0]
    began_ns = clock.monotonic_ns()
    while ask.waits:
        now_ns = clock.monotonic_ns()
        if node.syncer.due_ns(now_ns) <= now_ns:
            scene.exchanges()
        else:
            clock.advance_ns(max(1, min(ask.sleep_ns, node.syncer.due_ns(now_ns) - now_ns)))
        ask.goes_on()
    return clock.monotonic_ns() - began_ns


@pytest.mark.parametrize("limit", [FIVE, SLOTS], ids=["rate", "slots"])
def test_a_new_hub_that_withholds_what_is_free_is_waited_out(limit: Limit) -> None:
    """It cannot know yet whether any node holds allowances from before; until it knows, the request asks again."""
    scene = AskingNodes(limit)
    scene.hub.lose_data()
    asks = [scene.asks(0) for _ in range(2)]

    assert SECOND_NS + INTERVAL_NS == waits_out(scene, asks[0])
    asks[1].goes_on()
    assert [True, True] == [ask.allowed for ask in asks]
    assert {"admitted": 2} == scene.results(0)


def test_what_a_new_hub_does_not_withhold_is_refused_at_once() -> None:
    """Another node has used the quota, as this one hears at its first exchange."""
    scene = AskingNodes(FIVE)
    scene.hub.lose_data()
    waits_out(scene, scene.asks(0))
    assert [True] * 4 == [scene.settles(0) for _ in range(4)]

    assert not scene.settles(1)


def test_a_hub_that_withholds_for_longer_is_waited_out_once() -> None:
    """Another node knows of lost data, which this node, being new, cannot."""
    scene = AskingNodes(FIVE)
    assert scene.settles(1)
    scene.hub.lose_data()
    scene.clock.advance_ns(SECOND_NS)
    scene.exchanges(1)
    ask = scene.asks(0)

    assert SECOND_NS + INTERVAL_NS == waits_out(scene, ask)
    assert not ask.allowed
    scene.clock.advance_ns(INTERVAL_NS)
    assert not scene.settles(0)
    assert {"refused": 2} == scene.results(0)


def test_a_withholding_is_not_waited_out_where_exchanges_are_rare() -> None:
    """It lasts for a second and an interval at least."""
    scene = AskingNodes(FIVE, interval_ns=2 * SECOND_NS)
    scene.hub.lose_data()

    assert not scene.settles(0)
    assert {"refused": 1} == scene.results(0)


def test_limits_that_are_charged_together_wait_out_a_new_hub() -> None:
    """As guards and contracts ask."""
    scene, beside = AskingNodes(FIVE, nodes=1), Beside(FIVE, 1)
    asked = SimulatedLimit(scene.limits[0])
    asked.have_beside(scene.nodes[0].limit(FIVE, BALANCED, "beside"), beside)
    for asking in (*asked._asking, asked._beside_asking):
        asking.manual = False  # the test sees to it that messages are carried
    scene.hub.lose_data()
    steps = asked.ask("ada", 1, WITHIN_NS, Ring())
    next(steps)
    scene.exchanges()
    for _ in range(SECOND_NS // INTERVAL_NS + 1):
        next(steps)
        scene.clock.advance_ns(INTERVAL_NS)
        scene.exchanges()

    with pytest.raises(StopIteration) as end:
        next(steps)
    assert [True, True] == [verdict.allowed for _, verdict in end.value.value]


def test_a_round_trip_that_the_process_has_made_long_keeps_no_request_from_asking() -> None:
    """A hub that is too far is not waited for; this one is near, and its answers were read late."""
    scene = AskingNodes(FIVE)
    node = scene.nodes[0]
    for number in range(3):
        scene.asks(0, f"key{number}")
        node.sends()
        node.syncer.note_turn(scene.clock.monotonic_ns())
        scene.clock.advance_ns(2 * WITHIN_NS)
        node.reaches(scene.hub)
        node.hears()

    assert scene.asks(0).waits


def test_limits_that_are_charged_together_wait_for_their_process_alike() -> None:
    """Contracts and guards ask so: the answer comes while the loop stands still."""
    scene, beside = AskingNodes(FIVE, nodes=1, policy=BALANCED), Beside(FIVE, 1)
    asked = SimulatedLimit(scene.limits[0])
    asked.have_beside(scene.nodes[0].limit(FIVE, BALANCED, "beside"), beside)
    for asking in (*asked._asking, asked._beside_asking):
        asking.manual = False  # the test sees to it that messages are carried
    steps = asked.ask("ada", 1, WITHIN_NS, Ring())
    next(steps)
    scene.nodes[0].sends()
    scene.nodes[0].syncer.note_turn(scene.clock.monotonic_ns())
    scene.clock.advance_ns(2 * WITHIN_NS)
    next(steps)  # it goes on waiting
    scene.nodes[0].reaches(scene.hub)
    scene.nodes[0].hears()

    with pytest.raises(StopIteration):
        next(steps)
    assert [{"admitted": 1}] * 2 == [
        {result: count for result, count in asking.stats.results.items() if count}
        for asking in (*asked._asking, asked._beside_asking)
    ]


class Work:
    """Work that holds the one slot of a limit on a node."""

    def __init__(self, scene: AskingNodes, node: int) -> None:
        ask = Ask(scene.asking[node], marks=True)
        scene.exchanges(node)
        ask.goes_on()
        assert ask.settled is not None
        self.cell: Cell | None = ask.settled.charges[0].mark.cell
        self.cost = 1
        self._table = scene.limits[node].tables[0]

    def ends(self) -> None:
        self._table.release(self)


def two_nodes_that_use_one_slot(*turns: int) -> tuple[AskingNodes, Work]:
    """The nodes use it in these turns, of which the last is not over."""
    scene = AskingNodes(Limit.parse("1 in flight"))
    *earlier, last = turns
    for node in earlier:
        begun_work(scene, node).ends()
        scene.exchanges(node)
    return scene, begun_work(scene, last)


def begun_work(scene: AskingNodes, node: int) -> Work:
    """The node has used the slot for an interval and a half."""
    work = Work(scene, node)
    scene.clock.advance_ns(INTERVAL_NS)
    scene.exchanges(node)
    scene.clock.advance_ns(INTERVAL_NS // 2)
    return work


def test_the_only_slot_is_reported_as_free_before_the_next_regular_exchange() -> None:
    """Also when the other node has not needed it of late."""
    scene, work = two_nodes_that_use_one_slot(0, 1, 0, 0, 0, 0)
    cell = work.cell
    assert cell is not None
    hurries = [bool(cell.urgent)]

    work.ends()

    hurries.append(bool(cell.urgent))
    assert [False, True] == hurries
    assert cell.early_ns <= scene.clock.monotonic_ns()


@pytest.mark.parametrize("free", [True, False], ids=["given back", "in use"])
def test_a_request_that_the_hub_refuses_a_slot_asks_once_more(free: bool) -> None:
    """The slot was given back when it asked, and the report of that came after its own."""
    scene, work = two_nodes_that_use_one_slot(0, 1, 0)
    if free:
        work.ends()
    ask = scene.asks(1)
    scene.exchanges(1)
    ask.goes_on()
    assert ask.waits

    scene.exchanges(0)
    scene.clock.advance_ns(ask.sleep_ns)
    ask.goes_on()
    scene.exchanges(1)
    ask.goes_on()

    assert free == ask.allowed
    assert scene.nothing_waits()
