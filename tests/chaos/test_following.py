"""Goal: what chaos runs have recorded is followed step by step by the model, and a fault in it is found.

Method: nodes of a small world write down their steps as a chaos run's do, and their hub what it merges; then single
steps are made wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos.bound.following import JUMPS, TAKEN_OVER, TWO_LEDGERS, Followed, Follower, Steps
from chaos.bound.leaders import handed_over, read_leaders
from chaos.bound.recording import STEPS, StepRecorder
from chaos.bound.witness import Begun, Ended, Led, Merge, ServerEvent, moment_ns
from chaos.judge.history import whole_lines
from chaos.names import LIMIT_NAME
from reconverge.clock import MICROSECOND_NS, MILLISECOND_NS, NEVER_NS, SECOND_NS, ManualClock
from reconverge.hub.report import Answer, Batch, Status
from reconverge.kernel.engine import COMPILED
from reconverge.kernel.reporting import cell_reports
from reconverge.limit import FIXED_WINDOW, Limit
from reconverge.policies import STRICT
from reconverge.simulation.explore.node import INTERVAL_NS, START_S, SmallNode
from reconverge_sync.memory import MemoryHub
from reconverge_sync.merge.rule import LedgerShard

in_python = pytest.mark.skipif(COMPILED, reason="the compiled kernel does not show what its objects hold")

KEY = "ada"
LIMIT = Limit(8, 1.0, algorithm=FIXED_WINDOW)
LEARNT_S = 3.0
"""The seconds in which a hub learns that no node holds anything from before its data began."""
EDGE_NS = 2 * SECOND_NS - 150 * MILLISECOND_NS
"""A moment so late in a window that an interval later the next one begins by a clock that is a little ahead."""
SETTLING = 3
"""The number of exchanges of both nodes after which each has a part of the limit."""


class RecordedWorld:
    """Two nodes and a hub in memory, which write down what they do as the processes of a chaos run do."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock(START_S)
        self.directory = directory
        self.hub = MemoryHub(clock=self.clock)
        self.hub.lose_data()
        self.done: list[ServerEvent] = [Begun(self.clock.monotonic_ns(), self.clock.wall_ns())]
        self.leader = ""
        """The leader that has the ledger; empty if a server has it."""
        self.admitted = 0
        self._merges(Batch("observer", "observer", 0, 1, "", 1, SECOND_NS // MICROSECOND_NS, True, (), ()))
        self.clock.advance(LEARNT_S)
        self.nodes = [SmallNode(self.clock) for _ in range(2)]
        self.tables = [node.limit(LIMIT, STRICT, LIMIT_NAME) for node in self.nodes]
        self.recorders = [StepRecorder(directory, number, 0, LIMIT_NAME, [KEY]) for number in range(2)]
        for node, recorder in zip(self.nodes, self.recorders, strict=True):
            recorder.hook(node.syncers)

    def hits(self, number: int, times: int = 1) -> None:
        """A node decides requests."""
        for _ in range(times):
            now_ns = self.clock.monotonic_ns()
            if self.tables[number].decide(KEY, 1, now_ns).allowed:
                self.recorders[number].admitted(KEY, 1, now_ns)
                self.admitted += 1

    def exchanges(self, number: int, *, heard: bool = True, after_ns: int = INTERVAL_NS) -> None:
        """A node exchanges with the hub, whose answer may be lost."""
        syncer = self.nodes[number].syncer
        self.clock.advance(after_ns / SECOND_NS)
        sent_ns = self.clock.monotonic_ns()
        batch = syncer.take(sent_ns)
        if batch is None:
            return
        self.clock.advance(0.001)
        answer = self._merges(batch)
        self.clock.advance(0.001)
        if heard:
            syncer.merged(batch, answer, sent_ns=sent_ns, now_ns=self.clock.monotonic_ns())
        else:
            syncer.failed("timeout", now_ns=self.clock.monotonic_ns())

    def _merges(self, batch: Batch) -> Answer:
        before = self.hub._shards[0].generation
        answer = self.hub.merge(batch)
        bare, lapsed = batch._replace(limits=(), cells=()), answer.status is Status.LAPSED
        cramped = self.hub._shards[0].cells_max == 0
        merge = Merge(batch.node, batch.sequence, answer.hub_us, lapsed, answer.generation, bare, cramped=cramped)
        now_ns = self.clock.monotonic_ns()
        led = Led(self.leader, before, lost=False, grace_us=0)
        self.done.append(merge._replace(t_ns=now_ns, led=led) if self.leader else merge)
        return answer

    def hands_over(self, leader: str, *, ahead_s: float) -> None:
        """Another leader gets the ledger, and goes on with a clock that is ahead of the last one's."""
        self.leader = leader
        self.hub._shards[0] = handed_over(self.hub._shards[0])
        self.clock.jump(ahead_s)

    def loses_data(self) -> None:
        """The server is killed, and begins again."""
        self.done.append(Ended(self.clock.monotonic_ns()))
        self.hub.lose_data()
        self.done.append(Begun(self.clock.monotonic_ns(), self.clock.wall_ns()))

    def lives(self) -> None:
        """Nodes hit their limit, an answer is lost, and then the hub's data."""
        for _ in range(SETTLING):
            for number in range(2):
                self.hits(number)
                self.exchanges(number)
        self.hits(0, 2 * LIMIT.quota)
        self.exchanges(0, heard=False)
        self.exchanges(0)
        self.loses_data()
        for number in (0, 1, 0, 1):
            self.exchanges(number)
            self.hits(number, LIMIT.quota)

    def steps(self) -> Steps:
        """All that was written down."""
        steps = Steps(servers=[(0, list(self.done))])
        for path in sorted(self.directory.glob(f"{STEPS}-*")):
            steps.add(path.stem, whole_lines(path))
        return steps


def followed(steps: Steps, *, taken_over_ns: int = NEVER_NS) -> Followed:
    """How far the model allows these steps."""
    return Follower(steps, LIMIT, STRICT, [KEY], 1, taken_over_ns=taken_over_ns).follow()


@pytest.fixture
def world(tmp_path: Path) -> RecordedWorld:
    return RecordedWorld(tmp_path)


@in_python
def test_recorded_steps_are_steps_of_the_model(world: RecordedWorld) -> None:
    """Every step of the nodes and of the hub is accepted, to the end, beyond a lost answer and a loss of data."""
    world.lives()

    outcome = followed(world.steps())
    accepted = outcome.run.accepted
    assert ("", "") == (outcome.run.rejected, outcome.run.outside)
    assert world.admitted == accepted["a node admits a request"] > LIMIT.quota // 2
    assert accepted["a node gives up its batch"] == outcome.unheard == 1
    assert accepted["the hub loses its data"] == 1
    assert outcome.seconds == outcome.of_seconds


def _admits_more(patch: pytest.MonkeyPatch, world: RecordedWorld) -> None:
    patch.setattr("reconverge.kernel.table.slow_path.spare_of", lambda *_: 1)
    world.lives()


def _keeps_what_it_gives_back(patch: pytest.MonkeyPatch, world: RecordedWorld) -> None:
    said = cell_reports._said

    def says_what_it_had(cell: Any, *rest: Any) -> Any:
        report = said(cell, *rest)
        cell.allowance += 1
        return report

    patch.setattr(cell_reports, "_said", says_what_it_had)
    world.lives()


def _hub_grants_more(patch: pytest.MonkeyPatch, world: RecordedWorld) -> None:
    del patch
    merge = world._merges

    def grants(batch: Batch) -> Answer:
        answer = merge(batch)
        return answer._replace(cells=tuple(cell._replace(allowance=cell.allowance + 1) for cell in answer.cells))

    world._merges = grants  # type: ignore[method-assign]
    world.lives()


def _merge_is_left_out(patch: pytest.MonkeyPatch, world: RecordedWorld) -> None:
    del patch
    world.lives()
    world.done.pop()


FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch, RecordedWorld], None], str]] = {
    "a node admits more than its allowance": (_admits_more, "a node admits a request (~"),
    "a node keeps more than it reports": (_keeps_what_it_gives_back, "a node sends (~"),
    "a hub answers more than its definition does": (_hub_grants_more, "in another way than its definition"),
    "a merge was not seen": (_merge_is_left_out, "which the server has not merged before"),
}


@in_python
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_no_step_of_the_model(fault: str, world: RecordedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same life of the nodes, with one fault, is rejected where it shows."""
    lives, words = FAULTS[fault]
    with monkeypatch.context() as patch:
        lives(patch, world)

    assert words in followed(world.steps()).run.rejected


@in_python
def test_no_merge_comes_after_an_answer_to_a_later_one(world: RecordedWorld) -> None:
    """The server's clock may have gone ahead of the machine's, so it puts a merge without an answer too late."""
    for _ in range(SETTLING):
        for number in range(2):
            world.hits(number)
            world.exchanges(number)
    world.hits(0)
    world.hits(1)
    world.exchanges(0, heard=False)
    world.exchanges(1, after_ns=0)
    world.exchanges(0)
    begun = world.done[0]
    assert isinstance(begun, Begun)
    world.done[0] = begun._replace(wall_ns=begun.wall_ns - 5 * MILLISECOND_NS)

    outcome = followed(world.steps())

    assert ("", "") == (outcome.run.rejected, outcome.run.outside)


@in_python
def test_a_jump_of_the_hubs_clock_ends_the_checks(world: RecordedWorld) -> None:
    """The proof assumes that there is none: what was accepted before counts, and the reason is given."""
    world.lives()
    steps = world.steps()
    ((_, done),) = steps.servers
    last = done[-1]
    assert isinstance(last, Merge)
    done[-1] = last._replace(hub_us=last.hub_us + 3600 * SECOND_NS // MICROSECOND_NS)

    outcome = followed(steps)

    assert ("", JUMPS) == (outcome.run.rejected, outcome.run.outside)
    assert outcome.run.accepted["a batch is merged"] > 0


@in_python
def test_a_replica_that_takes_over_ends_the_checks(world: RecordedWorld) -> None:
    """It lacks grants that the master has answered, and no hub knows it; the proof assumes that a hub knows a loss."""
    world.lives()
    steps = world.steps()
    ((_, done),) = steps.servers
    begun, last = done[0], done.pop()
    assert isinstance(begun, Begun)
    assert isinstance(last, Merge)

    outcome = followed(steps, taken_over_ns=moment_ns(last, begun))

    assert ("", TAKEN_OVER) == (outcome.run.rejected, outcome.run.outside)
    assert outcome.run.accepted["a batch is merged"] > 0


@in_python
def test_a_hub_without_room_for_further_keys_is_followed(world: RecordedWorld) -> None:
    """It refuses them, in the answers that are compared, too; the one that it has goes on."""
    world.hits(0)
    world.exchanges(0)
    world.hub._shards[0].cells_max = 0
    for number in (0, 1, 0, 1):
        world.tables[number].decide("newcomer", 1, world.clock.monotonic_ns())
        world.hits(number)
        world.exchanges(number)
    steps = world.steps()
    outcome = followed(steps)
    assert ("", "") == (outcome.run.rejected, outcome.run.outside)
    assert world.admitted == outcome.run.accepted["a node admits a request"] > 0

    steps.servers = [(0, [one._replace(cramped=False) if isinstance(one, Merge) else one for one in world.done])]

    assert "in another way than its definition" in followed(steps).run.rejected


@in_python
@pytest.mark.parametrize("hears_old", [False, True])
def test_a_batch_after_a_later_one_of_its_node_changes_nothing(
    world: RecordedWorld, monkeypatch: pytest.MonkeyPatch, *, hears_old: bool
) -> None:
    """A script that writes nothing for it has not failed; a definition that merges it is another rule."""
    world.lives()
    steps = world.steps()
    ((_, done),) = steps.servers
    last = done[-1]
    assert isinstance(last, Merge)
    done.append(last._replace(unwritten=True, hub_us=last.hub_us + 1))
    if hears_old:
        merging = LedgerShard.merging

        def hears(shard: LedgerShard, batch: Batch, *, hub_us: int, candidate: str) -> Any:
            if batch.node in shard.nodes and batch.sequence <= shard.nodes[batch.node].sequence:
                del shard.nodes[batch.node]
            return merging(shard, batch, hub_us=hub_us, candidate=candidate)

        monkeypatch.setattr(LedgerShard, "merging", hears)

    assert hears_old == ("an outdated batch" in followed(steps).run.rejected)


@in_python
def test_charges_of_interrupted_decisions_are_written_down(world: RecordedWorld) -> None:
    """One decides in the middle of another, whose charge has no line yet; one is left by an exception."""
    recorder = world.recorders[0]
    for number in (0, 1):
        world.hits(number)
        world.exchanges(number)
    now_ns = world.clock.monotonic_ns()
    recorder.deciding += 2
    assert world.tables[0].decide(KEY, 1, now_ns).allowed
    world.hits(0)
    recorder.deciding -= 1
    assert world.tables[0].decide(KEY, 1, now_ns).allowed
    recorder.interrupted(KEY, now_ns)
    recorder.deciding -= 1
    world.exchanges(0)

    outcome = followed(world.steps())

    assert ("", "") == (outcome.run.rejected, outcome.run.outside)
    assert world.admitted + 2 == outcome.run.accepted["a node admits a request"]


@in_python
def test_a_charge_without_a_decision_is_not_written_down(world: RecordedWorld) -> None:
    """Nothing accounts for it, so it is rejected as a use that rises by itself."""
    world.hits(0)
    world.exchanges(0)
    assert world.tables[0].decide(KEY, 1, world.clock.monotonic_ns()).allowed
    world.hits(0)

    assert "use rises by itself" in followed(world.steps()).run.rejected


def _led(world: RecordedWorld) -> None:
    """Nodes exchange with two leaders, one after the other."""
    world.leader = "first"
    for number in (0, 1, 0, 1):
        world.hits(number)
        world.exchanges(number)
    world.hands_over("second", ahead_s=0.004)
    for number in (0, 1, 0, 1):
        world.exchanges(number)
        world.hits(number, LIMIT.quota)


@in_python
def test_a_ledger_is_followed_from_leader_to_leader(world: RecordedWorld) -> None:
    """It is handed over without its recalls, and the next leader's clock goes on by an estimate of the last one."""
    _led(world)

    outcome = followed(world.steps())

    assert ("", "") == (outcome.run.rejected, outcome.run.outside)
    assert world.admitted == outcome.run.accepted["a node admits a request"] > LIMIT.quota // 2


@in_python
def test_a_window_renumbered_by_a_jump_of_the_hubs_clock_ends_the_checks(world: RecordedWorld) -> None:
    """Use goes on to count, in a window of another number: the proof assumes that the hub's clock does not jump."""
    _led(world)
    world.hits(1, LIMIT.quota)
    world.clock.advance_ns(EDGE_NS - world.clock.wall_ns() % SECOND_NS)
    for number in range(2):
        world.hits(number)
    world.hands_over("third", ahead_s=0.1)
    for number in (0, 1, 0, 1):
        world.exchanges(number)

    outcome = followed(world.steps())

    assert ("", JUMPS) == (outcome.run.rejected, outcome.run.outside)


@in_python
def test_a_ledger_that_was_replaced_is_not_followed(world: RecordedWorld) -> None:
    """The model has one hub; a leader that went on with data from before another one's would be a second."""
    _led(world)
    last = world.done[-1]
    assert isinstance(last, Merge)
    assert last.led is not None
    world.done[-1] = last._replace(led=last.led._replace(before="replaced"))

    outcome = followed(world.steps())

    assert ("", TWO_LEDGERS) == (outcome.run.rejected, outcome.run.outside)


@in_python
def test_a_process_killed_in_the_middle_of_a_line_has_made_the_steps_before(world: RecordedWorld) -> None:
    """The rest of its file is no step; nothing else is lost with it."""
    world.lives()
    (path,) = world.directory.glob(f"{STEPS}-1.*")
    path.write_text(path.read_text() + '{"e":"took","t":1')

    assert "" == followed(world.steps()).run.rejected


@in_python
def test_a_process_killed_in_the_middle_of_its_first_line_has_made_no_step(world: RecordedWorld) -> None:
    """Then it has sent nothing either."""
    world.lives()
    (world.directory / f"{STEPS}-9.1.1.jsonl").write_text('{"shard":0,"lea')

    assert "" == followed(world.steps()).run.rejected


def test_a_merge_that_was_written_in_part_ends_its_leaders_merges(tmp_path: Path) -> None:
    """A run in which no leader has merged anything is no run to follow."""
    (tmp_path / "merges-1.jsonl").write_text('{"t":1,"batch":"0')

    with pytest.raises(RuntimeError, match="no leader has merged a batch"):
        read_leaders(tmp_path)
