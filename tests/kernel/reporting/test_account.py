"""Goal: what a node has charged in its life is known to the hub exactly once, however long a cut lasts.

Method: cuts on both sides of the moment at which a node opens a new account.
"""

from __future__ import annotations

import pytest

from reconverge.clock import SECOND_NS
from reconverge.exchange.syncer import ACCOUNT_KEPT_NS
from reconverge.hub.report import Totals
from reconverge.limit import Limit
from reconverge.policies import STRICT
from reconverge_sync.merge.rule import ACCOUNT_KEPT_US
from tests.support.kernel.pair import HOUR_S, Pair
from tests.support.kernel.talker import Talker, Talkers


def cut_off(node: Talker, hours: float, world: Talkers) -> None:
    """The node tries now and then, in vain, while another one keeps the hub going."""
    other = world.another_node()
    for _ in range(round(hours * 2)):
        node.sends()
        node.gives_up()
        other.exchanges_with(world.hub)
        world.passes(HOUR_S / 2)


@pytest.mark.parametrize("hours", [1, 11, 13, 25, 60])
def test_nothing_is_lost_or_doubled_by_a_long_cut(hours: float) -> None:
    """The hub closes an account that is silent for a day, and a node opens a new one after half of that."""
    pair = Pair()
    assert 7 == pair.node.admitted_of(7)
    cut_off(pair.node, hours, pair)

    pair.node.reports_everything_to(pair.hub)

    assert Totals(17, 0) == pair.totals()


@pytest.mark.parametrize("hours", [1, 11, 13, 25, 60])
def test_nothing_is_doubled_by_a_cut_that_is_shorter_than_the_lease(hours: float) -> None:
    """An account ends without a word for a day, also of a node whose name is still good."""
    world = Talkers(Limit(500, HOUR_S, algorithm="fixed-window"), STRICT, lease_ns=30 * 24 * 3600 * SECOND_NS)
    (node,) = world.nodes
    node.exchanges_with(world.hub)
    node.admitted_of(10)
    world.all_speak(3)
    assert 10 == node.admitted_of(10)
    world.all_speak(3)
    assert 7 == node.admitted_of(7)
    cut_off(node, hours, world)

    node.reports_everything_to(world.hub)

    assert Totals(17, 0) == world.totals()


@pytest.mark.parametrize(("seconds_over", "anew"), [(-1, False), (1, True)])
def test_an_account_is_kept_for_twelve_hours(seconds_over: float, anew: bool) -> None:
    """Counted from the last batch that was answered."""
    pair = Pair()
    account = pair.node.syncer.account
    pair.passes(ACCOUNT_KEPT_NS / SECOND_NS + seconds_over - 0.1)

    assert anew == (account != pair.node.says().account)


def test_a_node_changes_its_account_long_before_the_hub_closes_it() -> None:
    """Half a day lies between, for clocks and for messages that are late."""
    assert ACCOUNT_KEPT_US * 1000 == 2 * ACCOUNT_KEPT_NS
