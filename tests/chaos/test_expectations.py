"""Goal: what a particular scenario expects besides the invariants is found missing where it is missing.

Method: as for the judge: stories told by hand, with and without what is expected.
"""

from __future__ import annotations

from chaos.case import Case, Expectation
from chaos.expectations import (
    admits_all_the_time,
    comes_back_spread_out,
    counts_overflow,
    does_not_catch_up,
    does_not_crowd,
    flags_staleness,
    has_names,
    leaks_nothing,
    notices,
    tells_kinds,
)
from tests.chaos.stories import Story, good_story, ns


def meets(expectation: Expectation, case: Case) -> bool:
    """Whether a case is as expected."""
    return not list(expectation(case))


def test_a_node_that_noticed_nothing_is_found() -> None:
    """An exchange that hangs as long as the outage lasts, and then succeeds, was no notice."""
    story = good_story()
    assert meets(notices, story.case(total=6))

    exchanges = story.lives[1].exchanges
    exchanges[1] = exchanges[1]._replace(outcome="ok", heard_ns=ns(3.1))
    assert not meets(notices, story.case(total=6))


def test_old_knowledge_has_to_be_said_to_be_old() -> None:
    """In an outage of a second, half a second at least."""
    story = good_story()
    story.knows(0, 2.9, 2, staleness_s=0.4)
    assert not meets(flags_staleness, story.case(total=6))

    story.knows(0, 2.95, 2, staleness_s=0.6)
    assert meets(flags_staleness, story.case(total=6))


def test_two_windows_without_any_admission_are_found() -> None:
    """One may be empty, as it was used up before; two in a row may not."""
    story = Story(nodes=1)
    for at_s in (0.5, 1.5, 2.5, 4.5):
        story.admits(0, at_s)
    assert meets(admits_all_the_time, story.case(total=4))

    story.lives[0].decisions.pop(2)
    assert not meets(admits_all_the_time, story.case(total=3))


def test_a_kind_of_failure_that_was_not_seen_is_missed() -> None:
    """Each has to be counted under its own name."""
    case = good_story().case(total=6)

    assert meets(tells_kinds("timeout"), case)
    assert not meets(tells_kinds("timeout", "busy"), case)


def test_catching_up_is_found() -> None:
    """In an interval as many exchanges as could be made ahead of time are allowed, ten and the regular one."""
    story = Story(nodes=1)
    story.lives[0].told = [(ns(2.0), "stall"), (ns(3.0), "stall over")]
    for number in range(11):
        story.exchanges(0, 3.0 + number / 1000, charged=0)
    assert meets(does_not_catch_up, story.case(total=0))

    story.exchanges(0, 3.05, charged=0)
    assert not meets(does_not_catch_up, story.case(total=0))


def test_whoever_tries_too_often_crowds() -> None:
    """In an outage of a second two attempts at the longest back-off, and six at shorter ones before."""
    story = Story(nodes=1)
    for number in range(8):
        story.exchanges(0, 2.1 + number / 100, charged=0, outcome="fail")
    assert meets(does_not_crowd, story.case(total=0))

    story.exchanges(0, 2.5, charged=0, outcome="fail")
    assert not meets(does_not_crowd, story.case(total=0))


def test_whoever_comes_back_in_step_with_all_others_crowds() -> None:
    """More than half of them within a tenth of a second; what they do after that does not matter."""
    story = Story(nodes=4)
    for node, at_s in enumerate((3.0, 3.05, 3.3, 3.6)):
        story.exchanges(node, at_s, charged=0)
        story.exchanges(node, 4.0, charged=0)
    assert meets(comes_back_spread_out, story.case(total=0))

    story.exchanges(3, 3.09, charged=0)
    story.lives[3].exchanges.sort()
    assert not meets(comes_back_spread_out, story.case(total=0))


def test_a_leak_of_one_is_found() -> None:
    """Of a thread or of a descriptor; fewer than before are none."""
    story = good_story()
    for life in story.lives:
        life.facts = {"before": {"threads": 2, "descriptors": 5}, "after": {"threads": 1, "descriptors": 5}}
    assert meets(leaks_nothing, story.case(total=6))

    story.lives[1].facts = {"before": {"threads": 2, "descriptors": 5}, "after": {"threads": 2, "descriptors": 6}}
    assert not meets(leaks_nothing, story.case(total=6))


def test_processes_that_share_a_name_are_found() -> None:
    """And too few of them, too."""
    story = good_story()
    assert meets(has_names(2), story.case(total=6))
    assert not meets(has_names(3), story.case(total=6))

    shared = [one._replace(account="account-100") for one in story.lives[1].exchanges]
    story.lives[1].exchanges = shared
    assert not meets(has_names(2), story.case(total=6))


def test_an_overflow_that_nobody_speaks_of_is_found() -> None:
    """One node that says so is enough, as not all are flooded."""
    story = good_story()
    assert not meets(counts_overflow, story.case(total=6))

    story.lives[0].facts = {"overflowed": 7}
    assert meets(counts_overflow, story.case(total=6))
