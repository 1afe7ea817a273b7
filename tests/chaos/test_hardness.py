"""Goal: what floods, lies, storms of signals and crashes do to a fleet is found where it was done.

Method: as for the judge: stories told by hand, with and without what is expected.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chaos.faults.attacks import HUB_BYTES
from chaos.fleet.watchdog import innermost_frame
from chaos.judge.case import Case
from chaos.judge.checker import HUNG
from chaos.judge.hardness import (
    admits_newcomers,
    answers_every_request,
    counts_are_consistent,
    goes_on_after_crashes,
    loses_little,
    runs_once,
    says_how_it_is,
    serves_customers,
    stays_small,
    was_lied_to,
    was_stormed,
)
from chaos.judge.history import Health, Unsure
from reconverge.limit import FIXED_WINDOW, Limit
from tests.chaos.stories import Story, good_story, kinds, meets, ns

HOURLY = Limit(100, 3600.0, algorithm=FIXED_WINDOW)


def with_facts(**facts: Any) -> Case:
    """A good story whose first node says this of itself in the end."""
    story = good_story()
    story.lives[0].facts = facts
    return story.case(total=6)


def test_customers_who_are_refused_since_the_flood_are_found() -> None:
    """One refusal in three decisions is less than 99 % of what customers had before."""
    story = good_story()
    assert meets(serves_customers(0.99), story.case(total=6))

    story.admits(0, 2.7, allowed=False)
    assert not meets(serves_customers(0.99), story.case(total=6))


def test_customers_who_were_never_served_prove_nothing() -> None:
    """Without an admission before the flood there is nothing to compare with."""
    story = Story()
    story.admits(0, 2.5)

    assert not meets(serves_customers(0.99), story.case(total=1))


def test_newcomers_who_are_shut_out_are_found() -> None:
    """95 of 100 are enough, 94 are not, and without newcomers nothing was shown."""
    enough, few = ({"newcomers": 100, "newcomers_admitted": admitted} for admitted in (95, 94))

    assert meets(admits_newcomers(0.95), with_facts(stranger=enough))
    assert not meets(admits_newcomers(0.95), with_facts(stranger=few))
    assert not meets(admits_newcomers(0.95), with_facts())


def test_memory_past_its_ceiling_is_found_in_a_node_and_in_the_hub() -> None:
    """Ten and five megabytes are allowed here; a kilobyte more is too much, in either."""
    ceiling = stays_small(node_mb=10, hub_mb=5)
    small, large = ({"grown_kb": grown} for grown in (9_765, 9_766))

    assert meets(ceiling, replace(with_facts(stranger=small), noted={HUB_BYTES: 5_000_000}))
    assert not meets(ceiling, replace(with_facts(stranger=large), noted={HUB_BYTES: 5_000_000}))
    assert not meets(ceiling, replace(with_facts(stranger=small), noted={HUB_BYTES: 5_001_000}))


def test_a_hub_that_told_no_lie_shows_nothing() -> None:
    """Lies are counted by the proxy, or by the hub object of a node."""
    assert not meets(was_lied_to, with_facts())
    assert meets(was_lied_to, replace(with_facts(), noted={"lies": 1}))
    assert meets(was_lied_to, with_facts(lies=1))


def healthy_story(*states: tuple[float, str]) -> Case:
    """A good story of a fault that lasts a second and a half, and the states that its first node says it is in."""
    story = good_story()
    story.lives[0].health = [Health(ns(at_s), state) for at_s, state in states]
    story.lives[1].health = [Health(ns(2.5), "degraded"), Health(ns(7.0), "ready")]
    return story.case(total=6, spells=((ns(1.5), ns(3.0)),))


def test_a_node_that_says_it_is_well_while_it_is_lied_to_is_found() -> None:
    """It has to say once that it is not, and in the end that it is well again."""
    assert meets(says_how_it_is, healthy_story((2.5, "degraded"), (7.0, "ready")))
    assert not meets(says_how_it_is, healthy_story((2.5, "ready"), (7.0, "ready")))
    assert not meets(says_how_it_is, healthy_story((2.5, "degraded"), (7.0, "starting")))


def test_a_request_without_an_answer_is_found() -> None:
    """One of thirty is one too many; no request at all shows nothing."""
    assert meets(answers_every_request, with_facts(asked=30, answered=30))
    assert not meets(answers_every_request, with_facts(asked=30, answered=29))
    assert not meets(answers_every_request, with_facts(asked=0, answered=0))


def stormed(own: int, *, most: int = 1, left: int = 0, interrupted: int = 5) -> Case:
    """A good story whose first node was stormed: it has admitted ten, and of two more it is not sure."""
    targets = {"log": {"admitted": 10, "unsure": 2, "own": own}}
    storm = {"interrupted": interrupted, "runners_most": most, "runners_left": left, "targets": targets}
    return with_facts(storm=storm)


def test_what_is_counted_lies_between_what_was_admitted_and_what_may_have_been() -> None:
    """Ten admitted and two unsure: nine were lost, and thirteen were never asked for."""
    assert [False, True, True, False] == [meets(counts_are_consistent, stormed(own)) for own in (9, 10, 12, 13)]


def test_a_second_runner_is_found() -> None:
    """Two at once, one that outlives its agent, or two exchanges of one account at a time."""
    assert meets(runs_once, stormed(10))
    assert not meets(runs_once, stormed(10, most=2))
    assert not meets(runs_once, stormed(10, left=1))

    story = good_story()
    story.exchanges(0, 4.605, charged=3)
    assert not meets(runs_once, story.case(total=6))


def test_a_storm_that_never_came_is_found() -> None:
    """Each node has to be interrupted at least as often as the scenario says."""
    case = stormed(10)
    case.lives.pop()

    assert meets(was_stormed(5), case)
    assert not meets(was_stormed(6), case)


def test_a_process_that_stood_still_is_found() -> None:
    """In any scenario, and with the place where it stood."""
    case = good_story().case(total=6)

    assert HUNG not in kinds(case)
    assert HUNG in kinds(replace(case, hangs=("decide, line 166 of _table.py",)))


def test_the_place_is_that_of_the_main_thread() -> None:
    """It comes last in a traceback, and its innermost frame first."""
    traceback = (
        'Timeout (0:00:08)!\nThread 0x01 (most recent call first):\n  File "/a/threading.py", line 3 in wait\n\n'
        'Thread 0x02 (most recent call first):\n  File "/a/_table.py", line 166 in decide\n'
        '  File "/a/b.py", line 1 in c\n'
    )

    assert "decide, line 166 of _table.py" == innermost_frame(traceback)


def test_an_interrupted_decision_may_have_been_charged_and_need_not() -> None:
    """The hub may know of six that were admitted, or of a seventh; of an eighth it cannot."""
    story = good_story()
    story.lives[0].unsure.append(Unsure(ns(0.5), 1))

    assert [False, False, True] == ["doubled" in kinds(story.case(total=total)) for total in (6, 7, 8)]


def crashed_story(admitted_by_heir: int, *, asked: int = 250) -> Case:
    """A process admits twenty and is killed; fifteen were reported. Its heir is asked for more than is left."""
    story = Story(nodes=2)
    heir = story.lives[1]
    story.lives[0].node, heir.node, heir.born_ns = 0, 0, ns(2.0)
    story.lives[0].facts = None
    story.admits(0, 0.5, cost=20)
    story.exchanges(0, 0.6, charged=15)
    if admitted_by_heir:
        story.admits(1, 4.0, cost=admitted_by_heir)
    story.admits(1, 4.5, cost=asked - 20 - admitted_by_heir, allowed=False)
    return story.case(total=20 + admitted_by_heir, limit=HOURLY)


def test_a_crash_costs_what_was_not_reported_and_the_stake_and_no_more() -> None:
    """Of a hundred five were not reported and five are its line; so ninety are admitted in all, or more."""
    assert [False, True] == [meets(loses_little(0.05), crashed_story(admitted)) for admitted in (69, 70)]


def test_a_customer_who_did_not_ask_for_the_rest_shows_nothing() -> None:
    """Nor does a story without a crash."""
    assert not meets(loses_little(0.05), crashed_story(70, asked=100))
    assert not meets(loses_little(0.05), good_story().case(total=6))


def test_an_heir_that_admits_nothing_is_found() -> None:
    """It was asked, and refused everything."""
    assert meets(goes_on_after_crashes, crashed_story(1))
    assert not meets(goes_on_after_crashes, crashed_story(0))
