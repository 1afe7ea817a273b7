"""Nodes are asked whether they agree only when the hub has given up on all names that no process goes by any more."""

from __future__ import annotations

import pytest

from reconverge.clock import MICROSECOND_NS, SECOND_NS
from reconverge.hub.report import Answer, Batch, Status
from reconverge.limit import FIXED_WINDOW, Limit
from reconverge.policies import STRICT
from reconverge.simulation import Traffic, world
from reconverge.simulation.cases import LIVENESS, Case, draw_case
from reconverge.simulation.fleet import Fleet
from reconverge.simulation.fuzz import try_case
from reconverge.simulation.judging.leases import Leases, UnderWay
from reconverge.simulation.studies.experiment import Experiment
from reconverge_sync.memory import MemoryHub
from reconverge_sync.merge.ledger import Entry

LEASE_NS = 50 * SECOND_NS
OVER_NS = LEASE_NS + MICROSECOND_NS
"""After so long the hub has given up on a name, as its clock counts whole microseconds."""
LEASES_S = (48, 50, 52, 54, 56)
"""With each of them the last lease used to end while the nodes were asked."""


def test_a_lease_runs_from_when_the_hub_merged_the_last_batch() -> None:
    """A batch that the hub found stale, or that came when the lease was over, prolongs nothing."""
    leases = Leases()
    leases.note_answer(_batch("killed"), _answer(Status.MERGED), 10)
    leases.note_answer(_batch("killed"), _answer(Status.MERGED), 20)
    leases.note_answer(_batch("killed"), _answer(Status.STALE), 30)
    leases.note_answer(_batch("killed"), _answer(Status.LAPSED), 40)

    assert 20 + OVER_NS == leases.given_up_ns((), ())


def test_a_name_that_a_process_goes_by_is_not_waited_for() -> None:
    """Its lease goes on and on."""
    leases = Leases()
    leases.note_answer(_batch("killed"), _answer(Status.MERGED), 10)
    leases.note_answer(_batch("alive"), _answer(Status.MERGED), 20)

    assert 10 + OVER_NS == leases.given_up_ns(["alive"], [UnderWay(30, _batch("alive"))])
    assert 0 == leases.given_up_ns(["alive", "killed"], ())


def test_a_batch_under_way_prolongs_the_lease_of_its_name_unless_that_is_over_by_then() -> None:
    """The hub answers LAPSED to what comes later; a name that it has yet to hear of begins with its first batch."""
    leases = Leases()
    leases.note_answer(_batch("killed"), _answer(Status.MERGED), 10)
    second, third = 10 + LEASE_NS // 2, 10 + LEASE_NS
    too_late = third + OVER_NS

    assert second + OVER_NS == leases.given_up_ns((), [UnderWay(second, _batch("killed"))])
    assert 10 + OVER_NS == leases.given_up_ns((), [UnderWay(10 + OVER_NS, _batch("killed"))])
    assert third + OVER_NS == leases.given_up_ns(
        (), [UnderWay(at_ns, _batch("killed")) for at_ns in (too_late, third, second)]
    )
    assert 7 + OVER_NS == Leases().given_up_ns((), [UnderWay(7, _batch("unheard"))])


@pytest.mark.parametrize("lease_s", LEASES_S)
def test_nodes_agree_though_the_last_batch_of_a_killed_process_arrives_long_after_its_end(lease_s: int) -> None:
    """Messages take eleven seconds when a process is killed, so its lease ends as much later at the hub."""
    assert [] == try_case(_killed_when_slow(lease_s))


def test_nodes_of_a_drawn_fleet_agree_when_repeated_batches_of_killed_processes_have_come_late() -> None:
    """Five of ten processes are killed while messages are slow and repeated."""
    assert [] == try_case(draw_case(LIVENESS, 930415))


@pytest.mark.parametrize("lease_s", LEASES_S)
def test_a_hub_that_forgets_what_a_killed_process_has_used_is_found(
    lease_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plants a fold that drops the counts; all nodes agree then, so it is seen only once the last lease is over."""
    monkeypatch.setattr(Entry, "fold", lambda *_: None)

    (problem,) = try_case(_killed_when_slow(lease_s))

    assert "but the hub reports" in problem


@pytest.mark.parametrize("lease_s", LEASES_S)
def test_a_hub_that_tells_a_node_less_once_a_lease_is_over_is_found(
    lease_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plants a hub that leaves out departed processes in what it tells a node that came after them."""
    monkeypatch.setattr(world, "open_merge_rule", _WhisperingLater)

    assert any("the nodes think" in problem for problem in try_case(_killed_when_slow(lease_s)))


def _killed_when_slow(lease_s: int) -> Case:
    """Two nodes, of which one is killed when the hub hears of it eleven seconds late."""
    limit = Limit(20, 300.0, algorithm=FIXED_WINDOW)
    fleet = Fleet(2, limit, SECOND_NS // 5, SECOND_NS // 2, lease_ns=lease_s * SECOND_NS)
    faults = ("crash:1@108s+12s", "slow:46@66s+46s")
    return Case(LIVENESS, 1, STRICT, Experiment(fleet, Traffic("uniform", 2.0), 1, 0, faults))


def _batch(node: str) -> Batch:
    return Batch(node, "account", 0, 1, "", 1, LEASE_NS // MICROSECOND_NS, leaving=False, limits=(), cells=())


def _answer(status: Status) -> Answer:
    return Answer(0, "generation", status, ())


class _WhisperingLater(MemoryHub):
    """Once a process has departed, tells nodes of which it heard later a unit less."""

    def merge(self, batch: Batch) -> Answer:
        answer = super().merge(batch)
        shard = self._shards[batch.shard]
        departed = any("" in cell.entries for cell in shard.cells.values())
        if not departed or batch.node == next(iter(shard.nodes)):
            return answer
        return answer._replace(cells=tuple(cell._replace(current=cell.current - 1) for cell in answer.cells))
