"""Goal: a request that waits for longer than it may, or for a hub that is silent, is found; and scenarios find rivals.

Method: stories told by hand, with and without what is expected; short forms of scenarios no. 32.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from chaos.faults.fault import Fault, Killed, Stopped
from chaos.judge.asks import (
    ASKED_MIN,
    GRAIN_NS,
    HELD_UP,
    WITHIN_NS,
    asks_in_good_times,
    waits_for_no_silent_hub,
    waits_no_longer,
)
from chaos.judge.history import UNKNOWN, Beside
from chaos.judge.verdict import Verdict
from chaos.names import OURS
from chaos.requirements import missing
from chaos.scenarios.catalogue import scenario_of
from chaos.scenarios.scenario import Spell
from chaos.supervisor import run
from reconverge.clock import SECOND_NS
from reconverge.limiter.waiting.patience import LOST_MAX_NS
from tests.chaos.stories import Story, meets, ns
from tests.chaos.test_chaos import SEED, needs

GRAIN_S = GRAIN_NS / SECOND_NS
WITHIN_S = WITHIN_NS / SECOND_NS


def asked_story(*waits: tuple[float, int], late_ns: int = 0) -> Story:
    """A hub answers one node, whose requests wait at these moments for so long; an application beside it was late."""
    story = Story(nodes=1)
    story.exchanges(0, 0.05, charged=None)
    for at_s, took_ns in waits:
        story.admits(0, at_s, waited=True, took_ns=took_ns)
    story.lives[0].beside.append(Beside(ns(0.1), late_ns))
    return story


@pytest.mark.parametrize(("late_ns", "more_ns"), [(0, 0), (ns(0.02), 0), (0, 1), (ns(0.02), 1)])
def test_a_request_may_take_as_long_as_it_may_wait_and_an_application_was_late(late_ns: int, more_ns: int) -> None:
    """The machine may hold it up twice; one nanosecond more is too long, whatever the lateness was."""
    story = asked_story((2.5, WITHIN_NS + GRAIN_NS + HELD_UP * late_ns + more_ns), late_ns=late_ns)

    assert (not more_ns) == meets(waits_no_longer, story.case(total=1))


@pytest.mark.parametrize(("began_s", "more_ns"), [(0.01, 0), (0.01, 1), (0.07, 0)])
def test_only_before_the_first_answer_a_request_may_wait_until_its_process_has_connected(
    began_s: float, more_ns: int
) -> None:
    """That takes as long as a process may stand still, and not a nanosecond more."""
    story = asked_story()
    story.admits(0, began_s, waited=True, took_ns=WITHIN_NS + GRAIN_NS + LOST_MAX_NS + more_ns)

    assert (began_s < 0.06 and not more_ns) == meets(waits_no_longer, story.case(total=1))


@pytest.mark.parametrize("more_ns", [0, 1])
def test_a_request_may_take_longer_by_as_much_as_others_had_the_processors(more_ns: int) -> None:
    """Of this request itself, and by no nanosecond more: another one was not held up."""
    story = asked_story()
    for held_ns, took_ns in ((ns(0.3), WITHIN_NS + GRAIN_NS + ns(0.3)), (0, WITHIN_NS + GRAIN_NS + more_ns)):
        story.admits(0, 2.5, waited=True, took_ns=took_ns, held_ns=held_ns)

    assert (not more_ns) == meets(waits_no_longer, story.case(total=2))


@pytest.mark.parametrize("waited", [False, True])
def test_after_one_that_was_left_without_an_answer_none_waits(waited: bool) -> None:
    """A request that begins afterwards is decided at once."""
    story = asked_story((2.5, WITHIN_NS))
    story.admits(0, 2.5 + WITHIN_S + 0.1, waited=waited)

    assert (not waited) == meets(waits_for_no_silent_hub, story.case(total=2))


def test_requests_that_waited_already_may_go_on_until_they_may_wait_no_longer() -> None:
    """Only what begins after the first has waited in vain is to be decided at once."""
    story = asked_story((2.5, WITHIN_NS), (2.5 + WITHIN_S / 2, WITHIN_NS))

    assert meets(waits_for_no_silent_hub, story.case(total=2))


@pytest.mark.parametrize(("answered_s", "found"), [(2.6, False), (2.8, True)])
def test_once_the_hub_has_answered_requests_wait_again(answered_s: float, found: bool) -> None:
    """An answer between the two allows it; one after them does not."""
    story = asked_story((2.5, WITHIN_NS), (2.7, WITHIN_NS))
    story.exchanges(0, answered_s - 0.01, charged=1)

    assert found == (not meets(waits_for_no_silent_hub, story.case(total=2)))


def test_a_request_that_took_long_though_the_hub_has_answered_is_no_sign_of_silence() -> None:
    """The answer was about something else, or came in the same moment."""
    story = asked_story((2.5, WITHIN_NS), (2.6, WITHIN_NS // 2))
    story.exchanges(0, 2.5, charged=1, took_s=WITHIN_S / 2)

    assert meets(waits_for_no_silent_hub, story.case(total=2))


@pytest.mark.parametrize(("after_s", "found"), [(GRAIN_S, False), (2 * GRAIN_S, True)])
def test_after_a_failed_exchange_none_waits(after_s: float, found: bool) -> None:
    """Requests that begin in the moment of the failure may; what begins later may not."""
    story = asked_story((2.5 + after_s, WITHIN_NS // 2))
    story.exchanges(0, 2.4, charged=1, took_s=0.1, outcome=UNKNOWN, kind="connection")

    assert found == (not meets(waits_for_no_silent_hub, story.case(total=1)))


@pytest.mark.parametrize(("before", "after"), [(0, 0), (-1, 0), (0, -1)])
def test_where_no_request_waits_nothing_is_shown(before: int, after: int) -> None:
    """Enough of them must have waited before anything went wrong, and enough when all was well again."""
    waits = [(1.0, 1000)] * (ASKED_MIN + before) + [(2.5, 1000)] + [(3.5, 1000)] * (ASKED_MIN + after)

    assert (before == after) == meets(asks_in_good_times, asked_story(*waits).case(total=len(waits)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fault", "load_s"),
    [("ask-stopped", Stopped(), 5.5), ("ask-killed", Killed(), 9.5)],
    ids=["stopped", "killed"],
)
def test_requests_that_ask_wait_once(name: str, fault: Fault, load_s: float) -> None:
    """The server hangs, or dies, for a second."""
    scenario = replace(scenario_of(name, SEED), spells=(Spell(fault, 1.5, 2.5),), load_s=load_s)
    needs(missing(scenario))
    verdict = Verdict(scenario, SEED)

    verdict.add(run(scenario, SEED, (OURS,)))

    assert [] == verdict.found[OURS]


@pytest.mark.slow
def test_rivals_that_ask_are_caught() -> None:
    """One waits for ever, one admits in doubt, and one has forgotten that it waited in vain.

    The server hangs for longer than a busy machine delays a request, else nothing tells the first from one held up.
    """
    scenario = replace(scenario_of("ask-stopped", SEED), spells=(Spell(Stopped(), 1.0, 4.0),), load_s=5.0)
    needs(missing(scenario))
    verdict = Verdict(scenario, SEED)

    verdict.add(run(scenario, SEED, scenario.loners))

    assert [] == verdict.missed
