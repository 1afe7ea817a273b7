"""The simulated world: deterministic, fair to the faults that were asked for, and run by the production code."""

from __future__ import annotations

import pytest

from reconverge import Limit
from reconverge.clock import SECOND_NS
from reconverge.exchange.syncer import Syncer
from reconverge.kernel import Kernel
from reconverge.policies import BALANCED, NAIVE, STRICT, Policy
from reconverge.simulation import Experiment, Fleet, RunFigures, Traffic, World, run_once
from reconverge.simulation.judging.accounts import AccountedKernel
from reconverge_sync.memory import MemoryHub

LIMIT = Limit(200, 10.0, algorithm="fixed-window")
FLEET = Fleet(nodes=4, limit=LIMIT, sync_interval_ns=SECOND_NS)


def experiment(*faults: str, demand: float = 3.0, pattern: str = "uniform", windows: int = 6) -> Experiment:
    """Four nodes share 200 per ten seconds."""
    return Experiment(FLEET, Traffic(pattern, demand), windows, 1, faults)


def figures(policy: Policy, *faults: str, demand: float = 3.0, pattern: str = "uniform", seed: int = 3) -> RunFigures:
    """The figures of one run."""
    tried = experiment(*faults, demand=demand, pattern=pattern)
    return run_once(tried, policy, tried.arrivals(seed), seed=seed)


def test_the_world_drives_the_production_kernel_syncer_and_merge_rule() -> None:
    """There is no second copy of the algorithm; the kernel remembers in addition what it has left at the hub."""
    world = World(FLEET, STRICT, (), seed=0)

    assert {AccountedKernel} == {type(node.kernel) for node in world.nodes}
    assert {"keep_accounts", "open_account"} == {name for name in vars(AccountedKernel) if not name.startswith("__")}
    assert (Kernel, False) == (AccountedKernel.__base__, hasattr(Kernel, "keep_accounts"))
    assert {Syncer} == {type(node.syncer) for node in world.nodes}
    assert isinstance(world.hub, MemoryHub)


def test_the_same_seed_leads_to_the_same_history_to_the_last_request() -> None:
    """Nothing but the seed decides, whatever goes wrong."""
    tried = experiment("loss:20%@1w+3w", "crash:1@2w+1w", "repeat:10%@0w+5w")
    arrivals = tried.arrivals(7)
    histories = [
        World(FLEET, BALANCED, tried.faults_of(7), seed=7).run(arrivals, until_ns=60 * SECOND_NS) for _ in range(2)
    ]

    assert histories[0] == histories[1]
    assert histories[0] != World(FLEET, BALANCED, tried.faults_of(8), seed=8).run(arrivals, until_ns=60 * SECOND_NS)


@pytest.mark.parametrize(
    "fault",
    [
        "cut:half@1.3w+2w",
        "cut:all:requests@1.3w+2w",
        "cut:all:replies@1.3w+2w",
        "down@1.3w+2w",
        "slow:500@1w+2w",
        "loss:50%@0w+6w",
        "lose-data@2.4w",
        "crash:2@1.5w+0.5w",
        "repeat:50%@0w+6w",
        "jump:2:3600@2w",
        "offset:2:9",
    ],
)
def test_strict_is_never_over_whatever_goes_wrong(fault: str) -> None:
    """Zero, not nearly zero; and naive shows that there was something to exceed."""
    assert 0.0 == max(figures(STRICT, fault).over_pct)
    assert 10.0 < max(figures(NAIVE, fault).over_pct)


def test_nodes_that_are_cut_off_send_and_hear_nothing() -> None:
    """Every exchange of theirs fails, and no other's."""
    tried = experiment("cut:1@0w+6w")
    world = World(FLEET, BALANCED, tried.faults_of(1), seed=1)
    world.run(tried.arrivals(1), until_ns=60 * SECOND_NS)
    (cut,) = tried.faults_of(1)[0].nodes

    for node in world.nodes:
        stats = node.syncer.stats(world.now_ns)
        assert (stats.exchanges == 0) == (node.index == cut)
        assert bool(stats.failures) == (node.index == cut)


@pytest.mark.parametrize(("direction", "known"), [("requests", False), ("replies", True)])
def test_a_cut_of_one_direction_stops_the_messages_of_that_direction(direction: str, known: bool) -> None:
    """Without requests the hub hears nothing; without replies it hears all, and no node knows that it does."""
    tried = experiment(f"cut:all:{direction}@0w+6w")
    world = World(FLEET, BALANCED, tried.faults_of(1), seed=1)
    world.run(tried.arrivals(1), until_ns=60 * SECOND_NS)
    charged = sum(table.charged for table in world.hub.sums().values())

    assert {0} == {node.syncer.stats(world.now_ns).exchanges for node in world.nodes}
    assert {"timeout"} == {kind for node in world.nodes for kind in node.syncer.stats(world.now_ns).failures}
    assert known == (charged > 0)


def test_every_batch_is_a_message_of_the_window_in_which_it_is_sent() -> None:
    """A limiter that never speaks ahead of time sends ten in ten intervals, from the first window to the last."""
    tried = experiment()
    world = World(FLEET, NAIVE, (), seed=1)
    messages = world.run(tried.arrivals(1), until_ns=60 * SECOND_NS).messages

    assert 6 == len(messages)
    assert all(40 * 0.9 <= count <= 40 * 1.1 for count in messages)
    assert sum(messages) == sum(node.syncer.stats(world.now_ns).exchanges for node in world.nodes)


def test_messages_that_are_lost_are_messages_all_the_same() -> None:
    """They were sent."""
    tried = experiment("loss:100%@0w+6w")
    world = World(FLEET, BALANCED, tried.faults_of(1), seed=1)
    messages = world.run(tried.arrivals(1), until_ns=60 * SECOND_NS).messages
    failures = sum(sum(node.syncer.stats(world.now_ns).failures.values()) for node in world.nodes)

    assert 0 < failures <= sum(messages) <= failures + FLEET.nodes  # each may have one under way


def test_a_hub_that_is_down_refuses_at_once_and_keeps_its_data() -> None:
    """The nodes are told so by their failures, and no data are lost."""
    tried = experiment("down@2w+1w")
    world = World(FLEET, BALANCED, tried.faults_of(1), seed=1)
    world.run(tried.arrivals(1), until_ns=60 * SECOND_NS)

    for node in world.nodes:
        stats = node.syncer.stats(world.now_ns)
        assert {"refused"} == set(stats.failures)
        assert 0 == stats.rebirths


def test_data_that_the_hub_has_lost_are_noticed_and_told_again() -> None:
    """Every node sees another generation once, and nothing is missing in the end."""
    tried = experiment("lose-data@2.4w")
    world = World(FLEET, STRICT, tried.faults_of(1), seed=1)
    world.run(tried.arrivals(1), until_ns=80 * SECOND_NS)

    assert {1} == {node.syncer.stats(world.now_ns).rebirths for node in world.nodes}
    assert [] == world.miscounted()


def test_a_node_that_was_killed_comes_back_as_another() -> None:
    """Its name is new, and what it had not reported is all that may be missing."""
    tried = experiment("crash:1@2w+1w")
    world = World(FLEET, STRICT, tried.faults_of(1), seed=1)
    (killed,) = tried.faults_of(1)[0].nodes
    name = world.nodes[killed].syncer.account
    world.run(tried.arrivals(1), until_ns=80 * SECOND_NS)

    assert name != world.nodes[killed].syncer.account
    assert [] == world.miscounted()


def test_a_node_that_is_killed_twice_comes_back_once_when_both_crashes_are_over() -> None:
    """The second crash finds nobody alive, but nobody comes back before its end."""
    tried = experiment("crash:4@1w+1w", "crash:4@1.5w+2w")
    world = World(FLEET, BALANCED, tried.faults_of(1), seed=1)
    began = [node.syncer.account for node in world.nodes]

    world.pass_until(35 * SECOND_NS - 1)
    assert [False] * 4 == [node.alive for node in world.nodes]

    world.pass_until(35 * SECOND_NS)
    back = [node.syncer.account for node in world.nodes]
    assert [True] * 4 == [node.alive for node in world.nodes]
    assert set(began).isdisjoint(back)

    world.pass_until(60 * SECOND_NS)
    assert back == [node.syncer.account for node in world.nodes]


def test_a_node_that_was_restarted_counts_again_in_the_declared_bound() -> None:
    """Of 200: a tenth, and one request for each of four nodes and two more."""
    assert 12.0 == figures(BALANCED).bound_pct
    assert 13.0 == figures(BALANCED, "crash:2@2w+1w").bound_pct


def test_clocks_are_wrong_by_as_much_as_was_asked_for() -> None:
    """From the start, or from one moment on; and the hub's own never is."""
    tried = experiment("offset:1:9", "jump:4:-100@2w")
    world = World(FLEET, STRICT, tried.faults_of(1), seed=1)
    (wrong,) = tried.faults_of(1)[0].nodes

    assert [9 if node.index == wrong else 0 for node in world.nodes] == _ahead_s(world)

    world.pass_until(20 * SECOND_NS)

    assert [-91 if node.index == wrong else -100 for node in world.nodes] == _ahead_s(world)


def _ahead_s(world: World) -> list[float]:
    """How far every node's wall clock is ahead of the hub's."""
    return [(node.clock.wall_ns() - world.begin_ns - world.now_ns) / SECOND_NS for node in world.nodes]


def test_a_wrong_total_is_noticed() -> None:
    """The check can fail: a hub that has lost its data, and is asked before anybody could tell it again."""
    tried = experiment()
    world = World(FLEET, STRICT, (), seed=1)
    world.run(tried.arrivals(1), until_ns=60 * SECOND_NS)
    world.hub.lose_data()

    assert [] != world.miscounted()


def test_views_that_differ_are_noticed() -> None:
    """The check can fail: right after a burst not all nodes have heard of it."""
    tried = experiment(pattern="spray", demand=0.5)
    world = World(FLEET, STRICT, (), seed=1)
    arrivals = [one for one in tried.arrivals(1) if one.moment_ns < 15 * SECOND_NS]
    world.run(arrivals, until_ns=arrivals[-1].moment_ns)

    assert [] != world.disagreements()
