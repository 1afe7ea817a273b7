"""Goal: whoever keeps to what a refusal says finds room on whichever node he meets, and is not sent away for longer.

Method: real nodes and the real merge rule, with a clock of the test's own; the decision before and after.
"""

from __future__ import annotations

from reconverge import Agent
from reconverge.clock import SECOND_NS
from reconverge.decision import Decision
from reconverge.integrations import Guard, PlainRequest, Rule
from reconverge.kernel import for_any_node as of_any_node
from reconverge.kernel.fleet_wait import INTERVALS_MAX, ROOM_FOR
from reconverge.limit import Limit
from reconverge.limiter.certainty import for_any_node
from reconverge.limiter.control import LimitControl
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.policies import AVAILABLE, STRICT, Policy
from reconverge.simulation.explore.node import INTERVAL_NS
from reconverge.testing import ManualClock
from tests.support.kernel.talker import Talker, Talkers, busy

NODES = 4


def used_up(limit: Limit, policy: Policy = STRICT) -> Talkers:
    """Four nodes that have used all of a quota, and know it."""
    world = busy(limit, policy, nodes=NODES)
    for _ in range(20):
        for node in world.nodes:
            node.admitted_of(limit.capacity)
        world.all_speak()
    return world


def refused(node: Talker) -> tuple[float, float]:
    """Returns the wait of the decision, and that of the response, in seconds."""
    decision = node.table.hit("ada")
    assert not decision.allowed
    return decision.retry_after, of_any_node(node.table, decision, "ada", 1).retry_after


def test_there_is_room_for_two_on_every_node_by_then() -> None:
    """When the decision alone would have it there is room for one request, on one of them."""
    node = used_up(Limit(100, 60)).nodes[0]
    earliest, told = refused(node)

    assert node.table.test("ada", 1).retry_after == earliest < told
    assert node.table.test("ada", ROOM_FOR * NODES).retry_after == told


def test_of_a_small_quota_a_quarter_has_to_come_back_at_most() -> None:
    """Else whoever may come five times a minute would have to wait for most of the minute."""
    earliest, told = refused(used_up(Limit(5, 60, algorithm="token-bucket")).nodes[0])

    assert earliest == told


def test_a_window_that_ends_ends_for_all() -> None:
    """There is nothing to be waited for after its edge."""
    earliest, told = refused(used_up(Limit(100, 60, algorithm="fixed-window")).nodes[0])

    assert earliest == told


def test_what_is_left_on_other_nodes_is_worth_some_intervals() -> None:
    """And not the rest of the window; in windows that outlast the lease, nodes hold next to nothing ahead of need."""
    world = busy(Limit(100, 600, algorithm="fixed-window"), nodes=NODES)
    for _ in range(20):
        for node in world.nodes:
            node.admitted_of(max(0, (97 - node.table.usage("ada").total) // NODES))
        world.all_speak()
    node = next(each for each in world.nodes if not each.table.test("ada", 4).allowed)
    while node.table.allow("ada"):
        pass
    earliest, told = refused(node)

    assert INTERVAL_NS / SECOND_NS == earliest
    assert INTERVALS_MAX * INTERVAL_NS / SECOND_NS == told


def test_who_goes_by_the_total_has_no_allowance_to_wait_for() -> None:
    """Nor has who has been admitted, or is alone."""
    earliest, told = refused(used_up(Limit(100, 60), AVAILABLE).nodes[0])
    agent = Agent("memory://", clock=ManualClock(start=0))
    limiter = agent.limit("login", "100/minute")
    decisions = [limiter.hit("ada") for _ in range(101)]

    assert earliest == told
    for decision in (decisions[0], decisions[-1]):
        assert decision is for_any_node(limiter, decision, "ada")


def priced() -> RateLimiter:
    """The limit of one of several nodes: two quotas with prices of their own, and the shorter one is used up."""
    world = busy(Limit(100, 60), nodes=NODES)
    quotas = {"api": Limit(200, 60, costs={"POST": 5}), "api#daily": Limit(10**6, 86_400, costs={"POST": 2})}
    limits = [node.kernel.composites.all_of("api", quotas, STRICT) for node in world.nodes]
    for _ in range(20):
        for limit in limits:
            while limit.allow("ada", 1, "POST"):
                pass
        world.all_speak()
    return RateLimiter(LimitControl(limits[0]))


def test_room_is_waited_for_at_the_price_of_the_kind() -> None:
    """A request of a kind that costs five waits as long as one for which five was said; one that costs one, less."""
    limiter = priced()
    refusal = limiter.hit("ada", 1, "POST")
    dear = for_any_node(limiter, refusal, "ada", 5).retry_after

    assert "api" == refusal.binding
    assert dear == for_any_node(limiter, refusal, "ada", 1, "POST").retry_after
    assert dear > for_any_node(limiter, refusal, "ada", 1).retry_after


def test_a_guard_tells_clients_to_wait_for_the_price_of_their_kind() -> None:
    """The guard hands the kind on where the quotas have different prices for it."""
    limiter = priced()
    refusal = limiter.hit("ada", 1, "POST")
    guard = Guard(Agent("memory://", clock=limiter.control.clock), key_func=lambda _request: "ada")
    outcome = guard.check(PlainRequest(client="192.0.2.1", method="POST"), [guard.declare(Rule(limits=limiter))])
    told: Decision = outcome.rulings[0].decision

    assert not told.allowed
    assert for_any_node(limiter, refusal, "ada", 5).retry_after == told.retry_after
