"""Goal: what a node tells of a key is true, and what it makes of the answer is never more than the hub granted.

Method: a few real nodes and the real merge rule, with single exchanges at chosen moments.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, inf

import pytest

from reconverge.clock import SECOND_NS
from reconverge.hub.report import CellReport
from reconverge.limit import METERED, Limit
from reconverge.policies import BALANCED, STRICT, choose
from reconverge.simulation.explore.node import INTERVAL_NS
from tests.support.kernel.talker import MINUTE, Talker, Talkers, busy, reported


def next_report(world: Talkers, node: Talker) -> CellReport:
    """Returns the node's next report of the key, which then gets lost."""
    world.passes(0.1)
    report = reported(node.says())
    node.gives_up()
    return report


@pytest.mark.parametrize("algorithm", ["fixed-window", "sliding-window"])
def test_windows_report_what_was_charged_in_each(algorithm: str) -> None:
    """The window that it is, the count in it, and in a sliding one the count before."""
    world = busy(Limit(100, 60, algorithm=algorithm))
    (node,) = world.nodes
    before = node.table.usage("ada").own
    now = node.admitted_of(5)
    first = next_report(world, node)
    world.passes(60.0)
    second = next_report(world, node)

    assert (before + now, 0) == (first.current, first.previous)
    assert (first.epoch + 1, 0) == (second.epoch, second.current)
    assert (before + now if algorithm == "sliding-window" else 0) == second.previous


def test_a_bucket_reports_what_was_poured_in_and_what_is_left_of_it() -> None:
    """The one in whole numbers since the cell began, the other in thousandths, rounded up."""
    world = busy(Limit(600, 60, algorithm="gcra"))
    (node,) = world.nodes
    poured = node.table.cells["ada"].charged + node.admitted_of(5)
    world.passes(ns=1)

    report = next_report(world, node)

    assert poured == report.current
    assert 0 < report.previous < 1000 * poured
    assert -(-1000 * node.table.cells["ada"].level // node.table.window_ns) == report.previous


def test_demand_counts_what_was_refused_too() -> None:
    """Demand decides which node needs how much; the largest cost refused is asked for by name."""
    world = busy(MINUTE)
    (node,) = world.nodes
    allowance = node.allowance()
    used = node.table.usage("ada").own
    admitted = node.admitted_of(200)
    node.table.allow("ada", 7)

    report = next_report(world, node)

    assert (allowance - used, admitted + used) == (admitted, report.current)
    assert (207, 7) == (report.asked, report.ask)


def test_a_node_lowers_its_allowance_before_it_says_so() -> None:
    """The returned part is not used while the message is on its way, nor when that is lost."""
    world = busy(MINUTE, nodes=2)
    node, other = world.nodes
    granted = node.allowance()
    other.admitted_of(100)
    other.exchanges_with(world.hub)
    world.passes(0.1)
    node.exchanges_with(world.hub)
    world.passes(0.1)

    report = next_report(world, node)

    assert report.allowance < granted
    assert report.allowance == node.allowance()
    assert node.admitted_of(100) == report.allowance - report.current


def test_a_node_that_is_cut_off_keeps_its_allowance() -> None:
    """It may have to live on it for a while, and nobody hears of what it would give back."""
    world = busy(MINUTE)
    (node,) = world.nodes
    world.passes(0.1)
    node.admitted_of(1)
    node.fails()
    allowance = node.allowance()

    for _ in range(5):
        world.clock.advance_ns(node.due_in_ns)
        node.fails()

    assert allowance == node.allowance() > 10


@pytest.mark.parametrize("algorithm", METERED)
def test_an_allowance_may_be_filled_from_the_moment_it_is_heard_of(algorithm: str) -> None:
    """To the last unit, without another word."""
    world = Talkers(Limit(100, 3600, algorithm=algorithm), STRICT)
    (node,) = world.nodes
    node.exchanges_with(world.hub)
    before = node.admitted_of(10)
    world.passes(0.1)
    node.exchanges_with(world.hub)

    allowance = node.allowance()

    assert 0 == before < allowance == node.admitted_of(200)


def test_an_answer_from_before_the_edge_does_not_raise_the_allowance_behind_it() -> None:
    """A fixed window that was opened while the answer was on its way starts from the base that was known then."""
    world = busy(MINUTE, nodes=2)
    node, _ = world.nodes
    world.passes(59.0)
    node.admitted_of(1)
    world.all_speak()
    node.admitted_of(30)
    world.passes(60.0 - world.clock.wall_ns() / SECOND_NS % 60 - 0.001)
    told = reported(node.says())
    node.reaches(world.hub)
    assert node.flight is not None
    assert node.flight.answer is not None
    answered = node.flight.answer.cells[0]

    world.passes(0.002)
    node.hears()

    assert (answered.epoch + 1, told.base) == (node.table.cells["ada"].epoch, node.allowance())
    assert told.base < answered.allowance


def test_what_others_used_is_known_from_the_answer() -> None:
    """The sum is the others' reports to the hub, and this node's own use up to now."""
    world = busy(MINUTE, nodes=2)
    node, other = world.nodes
    other.admitted_of(10)
    world.all_speak(2)
    node.admitted_of(3)

    usage = node.table.usage("ada")

    assert other.table.usage("ada").own + usage.own == usage.total


def test_what_others_used_fades_like_ones_own() -> None:
    """With a quarter of the window to go a quarter of it counts, and a little more for the error of the clock."""
    world = busy(Limit(100, 60), nodes=2)
    node, other = world.nodes
    other.admitted_of(20)
    world.all_speak(2)
    used_by_node, used_by_other = (each.table.usage("ada").own for each in world.nodes)

    world.clock.advance_ns(105 * SECOND_NS - world.clock.wall_ns() % (60 * SECOND_NS))
    left = Fraction(15 * SECOND_NS + node.table.cells["ada"].lag_ns, 60 * SECOND_NS)
    usage = node.table.usage("ada")

    assert ceil(used_by_node * left) == usage.own
    assert ceil(used_by_node * left) + ceil(used_by_other * left) == usage.total


def test_what_others_poured_into_a_bucket_drains() -> None:
    """At their part of the rate, without another answer."""
    world = busy(Limit(600, 60, algorithm="gcra"), nodes=2)
    node, other = world.nodes
    other.admitted_of(100)
    world.all_speak(2)
    before = node.table.usage("ada")

    world.passes(60.0)
    after = node.table.usage("ada")

    assert before.total > before.own
    assert (0, 0) == (after.own, after.total)


@pytest.mark.parametrize("algorithm", METERED)
def test_a_refusal_never_leaves_as_much_as_was_asked_for(algorithm: str) -> None:
    """The fleet may have as much left: this node may not have it yet."""
    world = Talkers(Limit(100, 3600, algorithm=algorithm), STRICT)
    (node,) = world.nodes
    node.exchanges_with(world.hub)
    decision = node.table.hit("ada", 40)

    assert (False, 39) == (decision.allowed, decision.remaining)


def test_what_the_next_exchange_may_bring_is_worth_waiting_an_interval_for() -> None:
    """The fleet has plenty left, so that the caller is not sent away until the window ends."""
    world = Talkers(MINUTE, STRICT)
    (node,) = world.nodes
    node.exchanges_with(world.hub)

    assert INTERVAL_NS / SECOND_NS == node.table.hit("ada").retry_after


def test_what_the_fleet_has_used_up_is_worth_waiting_for_the_window() -> None:
    """No exchange can bring it before."""
    world = busy(MINUTE)
    (node,) = world.nodes
    for _ in range(20):
        node.admitted_of(100)
        world.all_speak()

    decision = node.table.hit("ada")

    assert 60 - world.clock.wall_ns() / SECOND_NS % 60 == pytest.approx(decision.retry_after, abs=1e-6)


def test_staleness_is_the_age_of_the_answer() -> None:
    """Infinite before the first; then it counts from the middle of the round trip."""
    world = Talkers(MINUTE, STRICT)
    (node,) = world.nodes
    before = node.table.test("ada").staleness
    node.says()
    world.passes(0.1)
    node.reaches(world.hub)
    node.hears()
    world.passes(0.2)

    assert (inf, 0.25) == (before, node.table.test("ada").staleness)


@pytest.mark.parametrize(("share", "admitted"), [(0.0, 0), (0.25, 25), (1.0, 100)])
def test_before_the_first_answer_a_node_admits_its_allowance(share: float, admitted: int) -> None:
    """A share of the limit, and nothing more until it has heard what others use."""
    world = Talkers(MINUTE, choose(cold_allowance=share))
    (node,) = world.nodes

    assert admitted == node.admitted_of(200)


def test_a_key_that_others_have_used_up_is_used_up_for_a_newcomer_too() -> None:
    """From its first answer on."""
    world = busy(MINUTE, BALANCED)
    (node,) = world.nodes
    for _ in range(10):
        node.admitted_of(100)
        world.all_speak()
    newcomer = world.another_node()
    newcomer.table.warm(["ada"])
    newcomer.exchanges_with(world.hub)

    assert (100, 0) == (newcomer.table.usage("ada").total, newcomer.admitted_of(10))
