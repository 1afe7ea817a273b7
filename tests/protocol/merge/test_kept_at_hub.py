"""Goal: of a scarce key about which requests ask, no node holds what it has not asked for, and none is admitted twice.

Method: real nodes and the real merge rule; messages are under way for as long as a test says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from reconverge.clock import SECOND_NS
from reconverge.kernel import Cell
from reconverge.kernel.composite.all_of import settle
from reconverge.limit import Limit
from reconverge.policies import AVAILABLE, BALANCED, STRICT, Policy
from reconverge.simulation.explore.node import INTERVAL_NS
from reconverge_sync.merge.asking import CHEAP, SMALL, SMALL_BUCKET, TIGHT
from reconverge_sync.merge.ledger import Entry
from reconverge_sync.merge.ledger import LedgerCell as HubCell
from tests.support.kernel.talker import Talker, Talkers, reported

DATED = ["sliding-log", "sliding-slices"]
ALGORITHMS = ["fixed-window", "sliding-window", "token-bucket", *DATED]
POLICIES = [STRICT, BALANCED]
WINDOW_S = 60


def world_of(
    algorithm: str = "sliding-window", policy: Policy = STRICT, *, quota: int = 5, nodes: int = 4, **terms: Any
) -> Talkers:
    """Nodes that the hub has heard of, and that ask; a window has just begun."""
    limit = Limit(quota, WINDOW_S, algorithm=algorithm, **terms)
    world = Talkers(limit, policy, nodes=nodes, lease_ns=600 * SECOND_NS)
    for node in world.nodes:
        node.table.asks = True
        node.table.warm(["another"])
        node.exchanges_with(world.hub)
    world.idles(WINDOW_S - world.clock.wall_ns() / SECOND_NS % WINDOW_S)
    return world


def waits(node: Talker, *costs: int) -> None:
    for cost in costs:
        node.asks(node.table, "ada", cost)


def go(node: Talker) -> int:
    """How many of those that wait go now; none waits any longer."""
    return len(list(node.stops_asking(node.table)))


def speaks(world: Talkers, node: Talker) -> None:
    """Exchange as soon as the node may."""
    world.passes(ns=node.due_in_ns)
    node.exchanges_with(world.hub)


def asks(world: Talkers, node: Talker, *costs: int) -> int:
    """Ask, hear the hub, and go; returns how many were admitted."""
    waits(node, *costs)
    speaks(world, node)
    return go(node)


def cell_of(node: Talker) -> Cell:
    return node.table.cells["ada"]


def ledger_of(world: Talkers) -> HubCell:
    return next(cell for place, cell in world.hub._shards[0].cells.items() if place[-1] == "ada")


def entry_of(world: Talkers, node: Talker) -> Entry:
    (entry,) = [entry for name, entry in ledger_of(world).entries.items() if name.startswith(f"{node.name}-")]
    return entry


def cells_of(world: Talkers) -> Iterator[Cell]:
    return map(cell_of, world.nodes)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("nodes", [4, 32])
def test_a_new_key_admits_its_quota_on_all_nodes_together(algorithm: str, policy: Policy, nodes: int) -> None:
    """Whichever are asked, one after the other or at once."""
    world = world_of(algorithm, policy, nodes=nodes)
    for node in world.nodes:
        waits(node, 1, 1)
        node.sends()
    for node in world.nodes:
        node.reaches(world.hub)
    for node in world.nodes:
        node.hears()

    assert 5 == sum(go(node) for node in world.nodes)
    assert 0 == sum(asks(world, node, 1) for node in world.nodes)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_node_is_granted_what_waits_and_nothing_in_advance(algorithm: str) -> None:
    """And it knows that the rest is at the hub."""
    world = world_of(algorithm)
    ada, bob, *_ = world.nodes

    assert 2 == asks(world, ada, 1, 1)
    assert cell_of(ada).at_hub
    assert not ada.table.allow("ada")
    assert 3 == asks(world, bob, 1, 1, 1, 1, 1)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_abundant_key_is_granted_in_advance(algorithm: str) -> None:
    """Though requests ask about it."""
    world = world_of(algorithm, quota=4 * max(SMALL, SMALL_BUCKET, TIGHT) + 2)
    node = world.nodes[0]

    assert 1 == asks(world, node, 1)
    assert not cell_of(node).at_hub
    assert node.table.allow("ada")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_node_that_asks_about_an_abundant_key_keeps_its_allowance(algorithm: str) -> None:
    """A returned allowance would be granted again with the same exchange, and the next, and the next."""
    quota = 8 * TIGHT
    world = world_of(algorithm, quota=quota)
    ada = world.nodes[0]
    assert 10 == asks(world, ada, *[1] * 10)
    allowance = cell_of(ada).allowance

    waits(ada, quota)
    world.passes(ns=ada.due_in_ns)

    assert 10 < reported(ada.says()).allowance <= allowance


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("rounds", [1, 3])
def test_a_limit_of_five_requests_of_any_cost_admits_five(algorithm: str, rounds: int) -> None:
    """A scarce limit is counted in requests: 1000 an hour are five of cost 200, and no node keeps a part of one."""
    world = world_of(algorithm, quota=1000)
    admitted = 0
    for _ in range(rounds):
        for node in world.nodes:
            admitted += asks(world, node, 200)
            speaks(world, node)  # nothing waits, and nothing is granted ahead

    assert min(5, 4 * rounds) == admitted


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_a_request_costs_is_the_mean_of_late(algorithm: str) -> None:
    """One dear request among many cheap ones makes a key scarce for a while, and not for good."""
    world = world_of(algorithm, quota=4000)
    ada = world.nodes[0]
    assert 1 == asks(world, ada, 200)
    assert cell_of(ada).at_hub

    for _ in range(16):
        assert 1 == asks(world, ada, 1)
    assert not cell_of(ada).at_hub


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("dear", [True, False])
def test_a_key_that_would_be_asked_about_too_often_has_allowances(algorithm: str, dear: bool) -> None:
    """However few it has for each node: asks for all that it admits would be several in each interval."""
    nodes, window_s = 4, 1
    quota = CHEAP * nodes * window_s * SECOND_NS // INTERVAL_NS + dear
    world = Talkers(Limit(quota, window_s, algorithm=algorithm), STRICT, nodes=nodes, lease_ns=600 * SECOND_NS)
    for node in world.nodes:
        node.table.asks = True
        node.table.warm(["another"])
        node.exchanges_with(world.hub)
    ada, bob, *_ = world.nodes
    assert quota == asks(world, ada, *[1] * quota)
    speaks(world, ada)

    assert 0 == asks(world, bob, 1)
    assert cell_of(bob).at_hub is not dear


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("quota", [100, 200, 1000])
def test_nodes_that_come_one_after_another_to_a_new_key_each_find_an_equal_part(quota: int, algorithm: str) -> None:
    """Of a quota that is not kept at the hub, too: one request of the first node takes nothing from the others."""
    world = world_of(algorithm, quota=quota)

    first = [asks(world, node, 1) for node in world.nodes]
    rest = [
        sum(node.table.allow("ada") for _ in range(quota // 10)) for node in world.nodes if not cell_of(node).at_hub
    ]

    assert [1] * len(world.nodes) == first
    assert all(admitted >= quota // 10 for admitted in rest)
    assert rest or quota == 100


def test_a_paced_limit_has_allowances_as_ever() -> None:
    """A pace is a part of the rate, which goes with an allowance."""
    world = world_of("leaky-bucket")
    node = world.nodes[0]

    assert 1 == asks(world, node, 1)
    assert not cell_of(node).at_hub


def test_a_policy_that_goes_by_the_total_has_allowances_as_ever() -> None:
    """It has no bound that rights would have to keep."""
    world = world_of(policy=AVAILABLE)

    assert 1 == asks(world, world.nodes[0], 1)
    assert not cell_of(world.nodes[0]).at_hub


@pytest.mark.parametrize("algorithm", ["sliding-window", "token-bucket"])
def test_parts_of_a_request_that_fade_or_drain_on_several_nodes_are_of_use_to_one(algorithm: str) -> None:
    """As with one central window or bucket, and without a word of the nodes on which they do."""
    world = world_of(algorithm)
    assert [1, 1, 1, 2] == [
        asks(world, node, *[1] * count) for node, count in zip(world.nodes, (1, 1, 1, 2), strict=True)
    ]
    for node in world.nodes:
        speaks(world, node)
    if algorithm == "sliding-window":
        world.passes(ns=WINDOW_S * SECOND_NS - world.clock.wall_ns() % (WINDOW_S * SECOND_NS))
    world.passes(WINDOW_S / 6)
    assert [0, 0, 0, 0] == [asks(world, node, 1) for node in world.nodes]

    world.passes(WINDOW_S / 29)  # now a fifth of the last window's five has faded, or a request's worth has drained

    assert [1, 0, 0, 0] == [asks(world, node, 1) for node in world.nodes]


@pytest.mark.parametrize("algorithm", DATED)
def test_what_expires_on_several_nodes_is_of_use_to_one(algorithm: str) -> None:
    """Each says so in an interval, as the hub knows no dates; until then it may use that itself."""
    world = world_of(algorithm)
    for node, count in zip(world.nodes, (1, 1, 1, 2), strict=True):
        assert count == asks(world, node, *[1] * count)
    for node in world.nodes:
        speaks(world, node)
    ada, bob, *_ = world.nodes
    world.passes(WINDOW_S * 1.1)
    assert 1 == asks(world, ada, 1)
    for node in world.nodes:
        speaks(world, node)

    assert 4 == asks(world, bob, 1, 1, 1, 1, 1)
    assert 0 == sum(asks(world, node, 1) for node in world.nodes)


@pytest.mark.parametrize("algorithm", DATED)
def test_a_node_says_that_something_has_expired(algorithm: str) -> None:
    """Though nothing is asked of it meanwhile."""
    world = world_of(algorithm)
    ada, bob, *_ = world.nodes
    assert 5 == asks(world, ada, 1, 1, 1, 1, 1)
    speaks(world, ada)
    for _ in range(40 * WINDOW_S * SECOND_NS // INTERVAL_NS // 30):
        if ada.due_in_ns < INTERVAL_NS:
            ada.exchanges_with(world.hub)
        world.passes(ns=INTERVAL_NS)

    assert 5 == asks(world, bob, 1, 1, 1, 1, 1)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_was_granted_and_not_used_goes_back_at_once(algorithm: str) -> None:
    """When the request that had asked waits no longer."""
    world = world_of(algorithm)
    ada, bob, *_ = world.nodes
    waits(ada, 1, 1, 1)
    ada.exchanges_with(world.hub)
    assert 2 == asks(world, bob, 1, 1, 1)

    ada.cancels_asks(ada.table)

    assert ada.due_in_ns < SECOND_NS // 50
    speaks(world, ada)
    assert 3 == asks(world, bob, 1, 1, 1, 1)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_was_granted_and_is_used_calls_for_no_early_exchange(algorithm: str) -> None:
    """Nothing would be granted in advance."""
    world = world_of(algorithm)
    ada = world.nodes[0]

    assert 1 == asks(world, ada, 1)

    assert ada.due_in_ns > INTERVAL_NS // 2


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_request_that_is_refused_without_asking_calls_for_an_early_exchange(algorithm: str) -> None:
    """Which brings what it needs when it comes again."""
    world = world_of(algorithm)
    ada = world.nodes[0]
    assert 1 == asks(world, ada, 1)
    speaks(world, ada)

    assert not ada.table.allow("ada")

    assert ada.due_in_ns < INTERVAL_NS // 2
    speaks(world, ada)
    assert ada.table.allow("ada")


def test_an_allowance_goes_back_when_its_key_comes_to_be_kept_at_the_hub() -> None:
    """Though its node is not asked any more: what fades of it is of use to those that are."""
    world = world_of(quota=8 * TIGHT)
    ada, bob, *_ = world.nodes
    assert 40 == asks(world, ada, *[1] * 40)
    while not cell_of(ada).at_hub:
        assert 2 == asks(world, bob, 1, 1)
        ada.speaks_when_due(world.hub, INTERVAL_NS / SECOND_NS)
    assert entry_of(world, ada).allowance >= 40

    ada.speaks_when_due(world.hub, 2 * INTERVAL_NS / SECOND_NS)

    assert 0 == entry_of(world, ada).allowance


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_answer_that_is_lost_takes_what_it_granted_until_its_node_speaks(algorithm: str) -> None:
    """And none of it is admitted twice."""
    world = world_of(algorithm)
    ada, bob, *_ = world.nodes
    waits(ada, 1, 1)
    ada.says()
    ada.reaches(world.hub)
    ada.gives_up()
    assert 0 == go(ada)
    assert 3 == asks(world, bob, 1, 1, 1, 1)

    speaks(world, ada)

    assert 2 == asks(world, bob, 1, 1, 1)


@pytest.mark.parametrize("crosses", ["what was granted", "the answer", "the question"])
def test_what_was_granted_for_a_window_is_void_in_the_next(crosses: str) -> None:
    """It would count in the new window for longer than the hub counts it; so the node asks anew."""
    world = world_of()
    ada, bob, *_ = world.nodes
    assert 3 == asks(world, bob, 1, 1, 1)
    speaks(world, bob)
    world.idles(WINDOW_S - 1 - world.clock.wall_ns() / SECOND_NS % WINDOW_S)
    waits(ada, 1, 1)
    ada.says()
    if crosses != "the question":
        ada.reaches(world.hub)
    if crosses == "what was granted":
        ada.hears()
        assert 2 == cell_of(ada).allowance
    world.passes(ns=WINDOW_S * SECOND_NS // 10)
    ada.reaches(world.hub)
    if crosses == "the question":  # the hub answers in the window after the report's, and the node hears in the next
        world.idles(WINDOW_S)
    ada.hears()

    assert 0 == go(ada)
    assert not ada.table.allow("ada")
    speaks(world, ada)
    assert 2 == asks(world, ada, 1, 1)


def test_what_was_granted_is_void_once_the_key_is_reset_here() -> None:
    """The count begins anew, and what was granted was granted beside the old one."""
    world = world_of()
    ada = world.nodes[0]
    assert 2 == asks(world, ada, 1, 1)
    waits(ada, 1)
    speaks(world, ada)
    ada.cancels_asks(ada.table)

    ada.table.reset("ada")

    assert 0 == ada.admitted_of(10)
    assert 5 == asks(world, ada, *[1] * 6)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_reset_elsewhere_makes_nothing_of_what_is_granted_here(algorithm: str) -> None:
    """The hub keeps a grant from before the reset aside, as it may be used after it."""
    world = world_of(algorithm)
    ada, bob, *_ = world.nodes
    waits(ada, 1, 1, 1)
    ada.exchanges_with(world.hub)
    world.passes(0.001)
    bob.table.reset("ada")
    speaks(world, bob)

    assert 2 == asks(world, bob, *[1] * 5)
    assert 3 == go(ada)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_larger_costs_do_not_keep_smaller_ones_out(algorithm: str) -> None:
    """A rest that is too little for the one is granted to the others."""
    world = world_of(algorithm)
    ada, bob, *_ = world.nodes
    assert 3 == asks(world, bob, 1, 1, 1)

    assert 2 == asks(world, ada, 5, 1, 1)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_node_that_does_not_ask_is_granted_allowances_beside_one_that_does(algorithm: str) -> None:
    """Neither is cut off, and both together keep to the quota."""
    world = world_of(algorithm, nodes=2)
    ada, bob = world.nodes
    bob.table.asks = False
    admitted = {ada: 0, bob: 0}
    for _ in range(40):
        admitted[bob] += bob.table.allow("ada")
        bob.exchanges_with(world.hub)
        admitted[ada] += asks(world, ada, 1)
        world.passes(0.1)

    assert 5 == sum(admitted.values())
    assert min(admitted.values()) >= 1


@pytest.mark.parametrize("algorithm", [each for each in ALGORITHMS if each != "sliding-window"])
def test_no_base_allowance_remains_of_a_small_quota(algorithm: str) -> None:
    """Or the next window would begin with requests on nodes that may not be asked.

    In windows of clock time it is a sealed share, with which no node begins a window while it hears the hub.
    """
    world = world_of(algorithm)
    for node in world.nodes:
        asks(world, node, 1)
        speaks(world, node)

    assert {0} == {0 if cell.sealed else cell.base for cell in cells_of(world)}
    shares = sum(entry.base for entry in ledger_of(world).entries.values() if entry.sealed)
    assert shares == ledger_of(world).bases


def test_what_was_granted_of_a_bucket_does_not_drain_before_it_is_used() -> None:
    """Or as much would be granted once more beside it."""
    world = world_of("token-bucket")
    ada, bob, *_ = world.nodes
    waits(ada, *[1] * 5)
    ada.exchanges_with(world.hub)
    world.passes(WINDOW_S)

    assert 0 == asks(world, bob, 1)
    assert 5 == go(ada)
    speaks(world, ada)
    assert 0 == asks(world, bob, 1)


def test_what_a_node_had_in_its_bucket_before_it_asked_drains_at_the_hub() -> None:
    """All of it, at the full rate, and it is counted once."""
    world = world_of("token-bucket", nodes=2)
    ada, bob = world.nodes
    ada.table.asks = False
    ada.table.allow("ada")
    ada.exchanges_with(world.hub)
    assert ada.admitted_of(5) >= 1
    speaks(world, ada)
    used = cell_of(ada).charged
    ada.table.asks = True
    waits(ada, 5)
    speaks(world, ada)
    assert 0 == go(ada)
    assert cell_of(ada).at_hub
    speaks(world, ada)

    assert 5 - used == asks(world, bob, *[1] * 5)
    speaks(world, bob)
    world.passes(WINDOW_S / 4.9)
    assert [1, 0] == [asks(world, node, 1) for node in world.nodes]


def test_a_bucket_that_is_not_asked_about_any_more_comes_back_to_its_nodes() -> None:
    """With what drains from then on."""
    world = world_of("token-bucket", nodes=2)
    ada, bob = world.nodes
    assert 3 == asks(world, ada, 1, 1, 1)
    for node in (ada, bob):
        node.table.asks = False
    admitted = 0
    for _ in range(4 * 60):
        world.passes(1.0)
        for node in (ada, bob):
            admitted += node.table.allow("ada")
            node.exchanges_with(world.hub)

    assert not cell_of(ada).at_hub
    assert 17 <= admitted <= 22


@pytest.mark.parametrize("reports", [1, 3])
def test_what_was_used_of_a_bucket_stays_while_its_quota_is_a_fiftieth(reports: int) -> None:
    """The hub takes no bucket for more than ten times as full as it can be, but for what was used by a larger quota."""
    world = world_of("token-bucket", quota=50, nodes=2)
    ada, bob = world.nodes
    assert 50 == asks(world, ada, *[1] * 50)
    large = world.limit
    for limit in (replace(large, quota=1), large):
        for node in world.nodes:
            node.table.change(limit)
        for _ in range(reports):
            assert [0, 0] == [asks(world, node, 1) for node in world.nodes]

    assert [0, 0] == [asks(world, node, 1) for node in (bob, ada)]


@pytest.mark.parametrize(("after_s", "returned"), [(0.01, 1), (WINDOW_S / 5, 1)])
def test_what_is_given_back_of_a_bucket_at_the_hub_is_what_may_not_have_drained(after_s: float, returned: int) -> None:
    """The hub drains it meanwhile, at the full rate at most; what is left of five is more than the one to give back."""
    world = world_of("token-bucket")
    ada, bob, *_ = world.nodes
    waits(ada, *[1] * 5)
    ada.exchanges_with(world.hub)
    decision, charges = ada.table.hit_and_mark("ada", 1)
    assert decision.allowed
    assert 4 == go(ada)
    speaks(world, ada)
    world.passes(after_s)

    settle(charges, "ada", -1)
    speaks(world, ada)

    world.passes(0.02 * WINDOW_S)  # what has drained of a request is rounded away otherwise
    assert returned + (1 if after_s > 1 else 0) == asks(world, bob, *[1] * 5)


def test_a_refund_that_the_hub_hears_of_late_makes_no_room_beside_what_others_have_charged() -> None:
    """The refunded charge has drained there meanwhile, and the hub must not take the refund from another node's."""
    world = world_of("token-bucket", quota=6, nodes=2)
    ada, bob = world.nodes
    waits(ada, 4)
    speaks(world, ada)
    decision, charges = ada.table.hit_and_mark("ada", 4)
    assert decision.allowed
    ada.cancels_asks(ada.table)
    speaks(world, ada)
    settle(charges, "ada", -3)
    world.passes(40)  # all four have drained, and the hub has not heard that three were given back

    assert 2 == asks(world, bob, 1, 1)
    speaks(world, bob)
    assert 3 == asks(world, ada, 1, 1, 1)
    assert 1 == asks(world, bob, 1, 1)


def test_nothing_of_a_bucket_at_the_hub_is_given_back_twice() -> None:
    """Once it may have been empty, a later charge does not make up for one that has drained."""
    world = world_of("token-bucket")
    ada, bob, *_ = world.nodes
    waits(ada, 1)
    ada.exchanges_with(world.hub)
    decision, charges = ada.table.hit_and_mark("ada", 1)
    assert decision.allowed
    assert 0 == go(ada)
    speaks(world, ada)
    world.passes(0.22 * WINDOW_S)
    assert 5 == asks(world, ada, *[1] * 5)

    settle(charges, "ada", -1)
    speaks(world, ada)

    assert cell_of(ada).at_hub
    assert 0 == asks(world, bob, *[1] * 5)


@pytest.mark.parametrize(("after_s", "returned"), [(WINDOW_S / 50, 30), (WINDOW_S / 2, 25)])
def test_a_burst_settled_at_the_hub_loses_what_drains_once(after_s: float, returned: int) -> None:
    """Not once for each of its ten reservations: the hub drains one bucket. Nor is more given back than it then holds.

    Ten reservations of 5 fill it; each is settled for 2. After half a window 25 of the 50 have drained.
    """
    world = world_of("token-bucket", quota=50)
    ada, bob, *_ = world.nodes
    waits(ada, *[5] * 10)
    ada.exchanges_with(world.hub)
    assert cell_of(ada).at_hub
    reserved = [ada.table.hit_and_mark("ada", 5) for _ in range(10)]
    assert all(decision.allowed for decision, _ in reserved)
    assert 0 == go(ada)
    speaks(world, ada)
    world.passes(after_s)

    for _, charges in reserved:
        settle(charges, "ada", -3)
    speaks(world, ada)

    world.passes(0.01 * WINDOW_S)  # what has drained of a request is rounded away otherwise
    drained = round(50 * after_s / WINDOW_S)
    assert min(50, returned + drained) == asks(world, bob, *[1] * 60)


def test_a_hub_that_knows_nothing_of_a_bucket_takes_it_to_be_full() -> None:
    """The node has said what it has used since the last answer, and not what all have used before."""
    world = world_of("token-bucket", BALANCED)
    ada, bob, *_ = world.nodes
    assert 5 == asks(world, ada, *[1] * 5)
    assert cell_of(ada).at_hub
    waits(ada, 1)
    world.passes(ns=ada.due_in_ns)
    ada.says()
    world.hub._shards[0].cells.clear()
    ada.reaches(world.hub)
    ada.hears()

    assert 0 == go(ada)
    assert 0 == asks(world, bob, 1)
    world.passes(WINDOW_S / 4.9)
    assert 1 == asks(world, bob, 1, 1)


def test_what_a_dead_node_was_granted_of_a_bucket_drains_after_what_others_used() -> None:
    """Both at once would drain at more than the full rate; the dead node may have used it when its lease ended."""
    world = world_of("token-bucket", quota=10)
    ada, bob, *_ = world.nodes
    waits(ada, *[1] * 5)
    ada.exchanges_with(world.hub)
    bob.table.warm(["a third"])
    bob.exchanges_with(world.hub)
    world.passes(599.0)
    assert 5 == asks(world, bob, *[1] * 6)
    speaks(world, bob)

    world.passes(31.0)

    assert 5 == asks(world, bob, *[1] * 8)


def test_nodes_that_ask_about_a_bucket_take_turns_beside_allowances_that_are_used_up() -> None:
    """The drained part goes to the one that was refused first: no window ends, so the other would be late for ever."""
    world = Talkers(Limit(40, 6.0, algorithm="token-bucket"), STRICT, nodes=4, lease_ns=600 * SECOND_NS)
    admitted = dict.fromkeys(world.nodes, 0)
    for node in world.nodes[1::2]:
        node.table.asks = True
    for _ in range(240):
        for node in world.nodes:
            if node.table.asks:
                admitted[node] += asks(world, node, 1)
            else:
                admitted[node] += node.table.allow("ada")
                node.exchanges_with(world.hub)
        world.passes(0.1)

    assert min(admitted.values()) >= 40


@pytest.mark.parametrize("algorithm", [each for each in ALGORITHMS if each not in DATED])
def test_a_certain_refusal_is_no_reason_to_speak(algorithm: str) -> None:
    """Neither is one of a request that has asked: nothing can be free before a moment that the hub has told."""
    world = world_of(algorithm)
    ada, bob, *_ = world.nodes
    assert 5 == asks(world, bob, *[1] * 5)
    speaks(world, bob)
    assert 0 == asks(world, ada, 1)
    world.passes(0.2)
    ada.exchanges_with(world.hub)
    world.passes(0.2)

    refused = [ada.table.hit("ada") for _ in range(100)]

    assert {(False, True)} == {(each.allowed, each.certain) for each in refused}
    world.passes(0.2)
    batch = ada.sends()
    assert batch is None or "ada" not in [report.key for report in batch.cells]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nodes_that_have_just_begun_admit_the_quota_of_a_key(algorithm: str) -> None:
    """The first to speak is alone as far as the hub knows, and is granted nothing in advance all the same."""
    world = Talkers(Limit(5, WINDOW_S, algorithm=algorithm), STRICT, nodes=32, lease_ns=600 * SECOND_NS)
    for node in world.nodes:
        node.table.asks = True

    assert 5 == sum(asks(world, node, 1) for node in world.nodes)
