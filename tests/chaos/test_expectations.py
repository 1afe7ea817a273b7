"""Goal: what a particular scenario expects besides the invariants is found missing where it is missing.

Method: as for the judge: stories told by hand, with and without what is expected.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from chaos.judge.expectations import (
    admits_all_the_time,
    comes_back_spread_out,
    counts_overflow,
    does_not_catch_up,
    does_not_crowd,
    flags_staleness,
    has_names,
    holds_up_no_other,
    is_made_up_for_by_one_report,
    is_up_to_date,
    keeps_settings,
    leaks_nothing,
    notices,
    rejects_what_makes_no_sense,
    tells_kinds,
)
from chaos.judge.figures import figures
from chaos.judge.history import Part, Sight
from tests.chaos.stories import Story, good_story, meets, ns


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


def test_knowledge_is_no_older_than_the_longest_time_without_an_answer() -> None:
    """The fault lasts for two seconds, and a node was without an answer for one of them, or for all of it."""
    story = Story(nodes=1)
    story.knows(0, 2.9, 2, staleness_s=0.6)
    case = replace(story.case(total=6), spells=((ns(2.0), ns(4.0)),), start_ns=ns(2.0), end_ns=ns(4.0))
    before = meets(flags_staleness, case)
    story.exchanges(0, 2.99, charged=2)

    assert not before
    assert meets(flags_staleness, case)


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
    story.lives[0].ordered = [(ns(2.0), "stall"), (ns(3.0), "stall over")]
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


PART = Part("a master is away", ns(2.0), ns(3.0), frozenset({1}))


@pytest.mark.parametrize(
    ("at_s", "ages_s", "late_s", "kept"),
    [
        (2.5, (0.2, 9.0), 0.0, True),
        (2.5, (0.201, 9.0), 0.0, False),
        (2.5, (0.201, 9.0), 0.05, True),
        (1.9, (0.5, 0.5), 0.0, True),
        (3.0, (0.5, 0.5), 0.0, True),
    ],
)
def test_another_shard_that_is_held_up_is_found(
    at_s: float, ages_s: tuple[float, float], late_s: float, kept: bool
) -> None:
    """Up to two intervals are allowed, and what the machine made somebody wait; of its own shards all is."""
    story = good_story()
    story.knows_shards(0, 2.2, 0.1, 9.0)
    story.knows_shards(1, at_s, *ages_s)
    story.is_late(0, 2.5, late_s)

    assert kept == meets(holds_up_no_other, story.case(total=6, parts=(PART,), shards=2))


def test_nobody_is_held_up_by_what_did_not_happen() -> None:
    """A scenario in which nothing was wrong with a part shows nothing."""
    assert not meets(holds_up_no_other, good_story().case(total=6))


def test_ages_of_other_shards_are_told_in_intervals() -> None:
    """By what was wrong, and when nothing was; the first second is left out."""
    story = good_story()
    for at_s, age_s in ((0.5, 0.9), (1.5, 0.05), (2.5, 0.12), (2.6, 0.13), (3.1, 0.9), (4.9, 0.1)):
        story.knows_shards(0, at_s, age_s, 7.0)
    case = story.case(total=6, parts=(PART,), shards=2)

    ages = figures(case)["other_shards"]

    assert {"looks": 2, "p50": 1.3, "p99": 1.3, "max": 1.3} == ages["a master is away"]
    assert 70.0 == ages["all is well"]["max"], "then there are no others"
    assert 4 == ages["all is well"]["looks"]


def test_a_failover_has_to_have_lost_something_and_be_made_up_for() -> None:
    """By the first report of each node after it: whatever had been confirmed by then, the hub knows from then on."""
    story = Story()
    for node in range(2):
        story.admits(node, 0.5)
        story.exchanges(node, 1.5, charged=1)
        story.exchanges(node, 3.2, charged=1)
        story.knows(node, 5.5, 2)
    sights = [Sight(ns(3.1), ns(3.1), 0), Sight(ns(3.5), ns(3.5), 2)]
    spells = ((ns(1.0), ns(1.0)), (ns(2.0), ns(3.0)))
    case = story.case(total=2, sights=sights, spells=spells, loses_data=True)
    assert meets(is_made_up_for_by_one_report(2), case)

    assert not meets(is_made_up_for_by_one_report(3), case), "the replica had missed less"
    assert not meets(is_made_up_for_by_one_report(2), replace(case, sights=[sights[0], sights[1]._replace(total=1)]))

    story.lives[1].exchanges.pop()
    assert not meets(is_made_up_for_by_one_report(2), case), "one has said nothing"


def test_poison_has_to_be_counted_and_without_effect() -> None:
    """By members and whoever looks on together; and none has to be there."""
    story = good_story()
    noted = {"to be rejected": 10, "rejected by observer": 3}
    for life, rejected in zip(story.lives, (4, 3), strict=True):
        life.facts = {"rejects": {"format": rejected}}
    story.lives[0].exchanges[1:2] = story.lives[1].exchanges[1:2] = []
    assert meets(rejects_what_makes_no_sense, story.case(total=6, noted=noted))

    assert not meets(rejects_what_makes_no_sense, story.case(total=6, noted={**noted, "to be rejected": 11}))
    assert not meets(rejects_what_makes_no_sense, story.case(total=6))
    story.lives[0].facts = {"rejects": {"format": 4}, "rebirths": 1}
    assert not meets(rejects_what_makes_no_sense, story.case(total=6, noted=noted))


def test_poison_that_keeps_nodes_from_exchanging_is_found() -> None:
    """One that comes too late may have been the machine's."""
    story = good_story()
    for life in story.lives:
        life.facts = {"rejects": {"format": 5}}
    for number in range(40):
        story.exchanges(0, 2.1 + number / 100, charged=1)
    noted = {"to be rejected": 10}
    assert meets(rejects_what_makes_no_sense, story.case(total=6, noted=noted))

    story.exchanges(0, 2.9, charged=1, outcome="unknown", kind="timeout")
    assert not meets(rejects_what_makes_no_sense, story.case(total=6, noted=noted))


@pytest.mark.parametrize(
    ("facts", "kept"),
    [
        ({"obeyed": 7, "accepted": 1}, True),
        ({"obeyed": 0, "accepted": 1}, False),
        ({"obeyed": 7, "accepted": 2}, False),
        ({}, False),
    ],
)
def test_whoever_lets_go_of_published_settings_is_found(facts: dict[str, int], kept: bool) -> None:
    """Also if they are heard of again."""
    story = good_story()
    for life in story.lives:
        life.facts = {"obeyed": 7, "accepted": 1}
    story.lives[0].facts = facts

    assert kept == meets(keeps_settings, story.case(total=6, noted={"published": 7}))


@pytest.mark.parametrize(("at_s", "age_s", "kept"), [(1.0, 1.2, True), (1.0, 1.21, False), (3.0, 9.0, True)])
def test_whoever_is_out_of_date_while_all_is_well_is_found(at_s: float, age_s: float, kept: bool) -> None:
    """More than two intervals and one exchange that fails; not while it may still be recovering."""
    story = good_story()
    story.knows(0, at_s, 2, staleness_s=age_s)

    assert kept == meets(is_up_to_date, story.case(total=6))
