"""Goal: what has dates counts until its date says so, whatever is settled, reset or set back, and in bounded memory.

Method: a lone node, and both sides of every edge.
"""

from __future__ import annotations

import pytest

from reconverge import Limit
from reconverge.kernel.history import History
from tests.support.kernel.lone import Lone

LOG = Limit(10, 60, algorithm="sliding-log")
REFUSED = Limit(10, 60, algorithm="sliding-log", count_refused=True)
SLICES = Limit(10, 60, algorithm="sliding-slices", slices=6)
"""Of ten seconds each."""
each_limit = pytest.mark.parametrize("limit", [LOG, SLICES], ids=["log", "slices"])


def history(node: Lone) -> History:
    kept = node.limiter.control.table.cells["ada"].history
    assert kept is not None
    return kept


def used(node: Lone) -> int:
    return node.limiter.usage("ada").own


@each_limit
def test_what_is_given_back_is_taken_from_what_was_charged(limit: Limit) -> None:
    """So that the rest of it expires when the charge does, and others when they do."""
    node = Lone(limit)
    first = node.limiter.reserve("ada", 4)
    node.passes(20.0)
    second = node.limiter.reserve("ada", 6)

    second.settle(1)
    first.settle(3)

    assert 4 == used(node)
    node.passes(40.0)
    assert 1 == used(node)
    node.passes(20.0)
    assert 0 == used(node)


@each_limit
def test_what_was_charged_just_now_is_taken_from_the_newest(limit: Limit) -> None:
    """A refund that names no charge takes the oldest ones; of a charge just made, the caller says so."""
    node = Lone(limit)
    node.admitted_of(4)
    node.passes(20.0)
    node.admitted_of(3)
    node.passes(20.0)
    node.admitted_of(2)

    node.limiter.control.take_back("ada", 4, None)

    assert 5 == used(node)
    node.passes(20.0)
    assert 1 == used(node)
    node.limiter.control.take_back("ada", 9, None)
    assert 0 == used(node)


@each_limit
def test_nothing_is_given_back_of_what_has_expired(limit: Limit) -> None:
    """Later charges do not change that."""
    node = Lone(limit)
    reservation = node.limiter.reserve("ada", 10)
    node.passes(60.0)
    node.admitted_of(10)

    reservation.settle(0)

    assert 10 == used(node)


@each_limit
def test_what_was_given_back_whole_is_not_waited_for(limit: Limit) -> None:
    """The key is as good as new when the rest has expired."""
    node = Lone(limit)
    node.admits()
    node.passes(20.0)
    node.limiter.reserve("ada", 5).settle(0)

    assert 40.0 == node.limiter.test("ada", 0).reset_after


@each_limit
def test_what_settling_adds_is_charged_when_it_settles(limit: Limit) -> None:
    """It has become known only now."""
    node = Lone(limit)
    reservation = node.limiter.reserve("ada", 4)
    node.passes(20.0)

    reservation.settle(10)

    assert (10, False) == (used(node), node.admits())
    node.passes(40.0, ns=-1)
    assert 10 == used(node)
    node.passes(ns=1)
    assert 6 == used(node)
    node.passes(20.0)
    assert 0 == used(node)


def test_a_log_remembers_no_more_than_fits_into_the_quota() -> None:
    """Requests of the same moment are one entry, and what has expired is none."""
    node = Lone(LOG)
    node.admitted_of(5)
    assert 1 == len(history(node))

    for _ in range(1000):
        node.admits()
        node.passes(1.0)

    kept = history(node)
    assert 10 >= len(kept)
    assert 2 * 11 >= len(kept._dates) == len(kept._amounts)


def test_a_log_that_counts_refused_requests_remembers_the_latest_only() -> None:
    """A request beyond the quota makes no difference, as it expires earlier than those that have to."""
    node = Lone(REFUSED)

    for number in range(1000):
        node.admits(cost=1 + number % 3)
        node.passes(ns=1)

    assert 11 >= len(history(node))


def test_what_no_quota_bounds_is_put_together() -> None:
    """Settled debts can be more than fit: then the two oldest become one, which expires with the younger."""
    node = Lone(LOG)
    reservations = [node.limiter.reserve("ada", 0) for _ in range(50)]
    for reservation in reservations:
        reservation.settle(1)
        node.passes(ns=1)

    assert (11, 50) == (len(history(node)), used(node))
    node.passes(60.0, ns=-12)
    assert 50 == used(node)
    node.passes(ns=1)
    assert 10 == used(node)


def test_what_has_been_put_together_is_found_when_it_settles() -> None:
    """An entry that has become part of a younger one is taken out of that."""
    node = Lone(LOG)
    first = node.limiter.reserve("ada", 5)
    for debt in [node.limiter.reserve("ada", 0) for _ in range(20)]:
        node.passes(ns=1)
        debt.settle(1)

    first.settle(3)

    assert (11, 5 + 20 - 2) == (len(history(node)), used(node))


def test_slices_are_remembered_as_far_as_they_are_in_use() -> None:
    """A thousand of them cost nothing until then, and at most one for each afterwards."""
    node = Lone(Limit(10_000, 60, algorithm="sliding-slices", slices=1000))
    node.admits()
    assert 1 >= len(history(node))

    for _ in range(3000):
        node.passes(0.06)
        node.admits()

    assert 1000 == used(node) > len(history(node)) > 990


def test_other_algorithms_remember_no_dates() -> None:
    """Their cells do not grow."""
    node = Lone("10/minute")
    node.admits()

    assert node.limiter.control.table.cells["ada"].history is None
