"""Goal: the log says each fact once, and of what goes on happening no more than it is meant to.

Method: both mechanisms alone, at both sides of their bounds.
"""

from __future__ import annotations

import pytest

from reconverge.runtime.log_throttle import LoggedOnce, LogThrottle

WITHIN_NS = 60


def test_a_fact_is_new_once() -> None:
    """The first question about a fact is answered with True, and every later one with False."""
    logged = LoggedOnce()

    assert [True, False, False] == [logged.is_new("full") for _ in range(3)]


def test_facts_are_told_apart() -> None:
    """A fact that was logged does not keep another one from being logged."""
    logged = LoggedOnce()
    logged.is_new("login")

    assert logged.is_new("search")
    assert not logged.is_new("login")


def test_a_fact_may_be_nothing_but_that_it_happened() -> None:
    """Where there is one fact only, it needs no name."""
    logged = LoggedOnce()

    assert [True, False] == [logged.is_new(), logged.is_new()]


def test_a_fact_that_is_forgotten_is_new_again() -> None:
    """`forget` is about the facts that it names, whether they were logged or not, and about no others."""
    logged = LoggedOnce()
    for fact in ("login", "search"):
        logged.is_new(fact)

    logged.forget("login", "never met")

    assert logged.is_new("login")
    assert not logged.is_new("search")


def test_to_forget_no_fact_changes_nothing() -> None:
    """`forget` without facts, as of an empty list, is not `forget_all`."""
    logged = LoggedOnce()
    logged.is_new("login")

    logged.forget(*[])

    assert not logged.is_new("login")


def test_all_facts_can_be_forgotten() -> None:
    """After `forget_all` each fact is new once more."""
    logged = LoggedOnce()
    for fact in ("login", "search"):
        logged.is_new(fact)

    logged.forget_all()

    assert [True, True, False] == [logged.is_new(fact) for fact in ("login", "search", "login")]


def test_so_many_facts_are_logged_and_no_more() -> None:
    """The last fact within the bound is new, the next one counts as logged; what is forgotten makes room again."""
    logged = LoggedOnce(facts_max=2)
    logged.is_new("first")

    assert logged.is_new("last")
    assert not logged.is_new("next")

    logged.forget("first")

    assert logged.is_new("next")


@pytest.mark.parametrize("most", [1, 3])
def test_so_many_messages_pass_in_the_time_and_no_more(most: int) -> None:
    """The last message of a burst passes and the next does not, until the first one is exactly so long ago."""
    throttle = LogThrottle(most, within_ns=WITHIN_NS)
    passed = 0
    while throttle.allows(now_ns := 1000 + passed) and passed <= most:
        throttle.note(now_ns)
        passed += 1

    assert most == passed
    assert not throttle.allows(1000 + WITHIN_NS - 1)
    assert throttle.allows(1000 + WITHIN_NS)


def test_to_ask_is_not_to_log() -> None:
    """Only messages that are noted count."""
    throttle = LogThrottle(1, within_ns=WITHIN_NS)

    assert [True, True] == [throttle.allows(0), throttle.allows(0)]


def test_a_message_that_goes_past_the_throttle_counts() -> None:
    """A fact that is new is logged although the throttle is shut, and the time begins anew with it."""
    throttle = LogThrottle(1, within_ns=WITHIN_NS)
    throttle.note(0)
    throttle.note(WITHIN_NS - 1)

    assert not throttle.allows(WITHIN_NS)
    assert throttle.allows(2 * WITHIN_NS - 1)
