"""Goal: a node that comes from the other hub is heard under a name and an account that this one has not given up.

Method: batches as a syncer makes them, and what becomes of them on their way to one hub.
"""

from __future__ import annotations

import pytest

from reconverge.clock import MICROSECOND_NS
from reconverge.hub.fallback.identity import ACCOUNT_KEPT_NS, HubSession
from reconverge.hub.report import Batch, CellReport, LimitReport

LEASE_US = 30_000_000
LEASE_NS = LEASE_US * MICROSECOND_NS
STRICT = LimitReport("strict", "fixed-window", 1_000_000, 100, 100, 0, 7, 2)
DARING = STRICT._replace(name="daring", overshoot_milli=100)
CELL = CellReport(0, "ada", 29, 7, 0, 10, 0, 3, 5000, 4, 5, 5000, 7, 0)


def batch(*, node: str = "node.0", charged: int = 7) -> Batch:
    """One cell of a strict limit, and one of another."""
    limits = STRICT._replace(charged=charged), DARING._replace(charged=charged)
    return Batch(node, "node", 0, 3, "data", 100_000, LEASE_US, False, limits, (CELL, CELL._replace(limit=1)))


@pytest.fixture
def known() -> HubSession:
    """A hub that has heard of the node, at 0."""
    acquaintance = HubSession()
    acquaintance.for_this_hub(batch(), now_ns=0)
    acquaintance.heard(batch(), sent_ns=0)
    return acquaintance


def test_who_stays_is_heard_as_he_speaks(known: HubSession) -> None:
    """Nothing is changed as long as a node does not move."""
    assert known.for_this_hub(batch(), now_ns=10 * LEASE_NS) == batch()


def test_who_comes_back_in_time_has_his_old_name(known: HubSession) -> None:
    """So that what the hub has counted is replaced."""
    known.begin_visit(batch(), now_ns=LEASE_NS - 1)

    assert "node.0" == known.for_this_hub(batch(), now_ns=LEASE_NS - 1).node


def test_who_comes_back_too_late_has_a_name_that_is_new_each_time(known: HubSession) -> None:
    """The hub has given up on the old one."""
    names = ["node.0"]
    for visit in (1, 2, 3):
        known.begin_visit(batch(), now_ns=visit * LEASE_NS)
        names.append(known.for_this_hub(batch(), now_ns=visit * LEASE_NS).node)

    assert 4 == len(set(names))


def test_a_new_name_of_the_nodes_own_needs_no_other(known: HubSession) -> None:
    """No hub has heard it before."""
    known.begin_visit(batch(node="node.1"), now_ns=LEASE_NS)

    assert "node.1" == known.for_this_hub(batch(node="node.1"), now_ns=LEASE_NS).node


def test_an_account_that_may_be_closed_is_not_heard_again(known: HubSession) -> None:
    """In another one the node says what it has charged since: the hub has kept what there was before."""
    known.begin_visit(batch(charged=12), now_ns=ACCOUNT_KEPT_NS + 1)
    said = known.for_this_hub(batch(charged=12), now_ns=ACCOUNT_KEPT_NS + 1)

    assert "node" != said.account
    assert [(5, 0), (5, 0)] == [(limit.charged, limit.refunded) for limit in said.limits]


def test_an_account_that_is_kept_goes_on(known: HubSession) -> None:
    """Up to half of the time that the hub keeps it."""
    known.begin_visit(batch(charged=12), now_ns=ACCOUNT_KEPT_NS)
    said = known.for_this_hub(batch(charged=12), now_ns=ACCOUNT_KEPT_NS)

    assert ("node", [12, 12]) == (said.account, [limit.charged for limit in said.limits])


def test_who_has_moved_asks_for_nothing_strict_until_all_leases_are_over(known: HubSession) -> None:
    """Others may still use what the other hub has granted them; what is not strict waits for nothing."""
    known.begin_visit(batch(), now_ns=5)
    strict, daring = known.for_this_hub(batch(), now_ns=4 + LEASE_NS).cells

    assert CELL._replace(need_milli=0, ask=0, asked=0) == strict
    assert CELL._replace(limit=1) == daring
    assert batch().cells == known.for_this_hub(batch(), now_ns=5 + LEASE_NS).cells
