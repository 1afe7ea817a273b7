"""Follows a recorded chaos run step by step: each must be a step of the model that is proved. Only reads files."""

# Theory of operation.
#
# Each process has written its nodes' steps in their order, and the witness the merges in the server's. All of them are
# on one machine, and their clocks are the same two, so the times of all steps are put into one order. A merge has its
# place between the sending of its batch and the arrival of the answer.
#
# The server's ledger is not recorded. It is worked out once more: the same batches, in the same order, at the same
# moments of the server's clock, merged by the definition in Python. The answers must be those that nodes have heard, so
# this compares both merge rules under real faults, too.
#
# A process that was killed, or that has ended, makes no step after its last line.

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from chaos.bound.leaders import handed_over, read_leaders
from chaos.bound.recording import ADMITS, GAVE_UP, HEARD, LEAVES, STEPS, TOOK
from chaos.bound.witness import Begun, Ended, Led, Merge, ServerEvent, moment_ns, read_servers
from chaos.judge.history import whole_lines
from chaos.names import LIMIT_NAME
from reconverge.clock import MICROSECOND_NS, MILLISECOND_NS, NEVER_NS, SECOND_NS
from reconverge.hub.report import Answer, Batch, Status
from reconverge.limit import Limit
from reconverge.policies import Policy
from reconverge.simulation.model.bound.snapshots import BoundSnapshot
from reconverge.simulation.model.bound.states import BoundKey, value_of
from reconverge.simulation.model.bound.watching_hub import Watch, terms_of
from reconverge.simulation.model.bound.worlds import BoundRun, Watching
from reconverge_sync.codec import decode_answer
from reconverge_sync.memory import MemoryHub
from reconverge_sync.merge.rule import CELLS_MAX
from reconverge_sync.mqtt.leader import WAIT_NS
from reconverge_sync.mqtt.messages import read_batch

ENDS: Final = "ends"
NO_SERVER: Final = -1
ARGUMENTS: Final = {ADMITS: ("cost",), TOOK: ("batch",), HEARD: ("answer",), GAVE_UP: (), LEAVES: ()}
"""The facts of each step that the watch of a key needs."""
JUMPS: Final = "the hub's clock jumps"
"""The reason for a run that ends at a jump of this clock: the proof assumes that there is none."""
BELIEVED: Final = "a node believes an answer that its hub has not given"
TWO_LEDGERS: Final = "a leader goes on with a ledger that another leader's ledger has replaced"
TAKEN_OVER: Final = "a replica takes over without some of the data, and no hub knows it"
"""The reason for a run that ends at a failover: the proof assumes that a hub knows that its data were lost."""
CUT_OFF: Final = "the server has ended the connection of its witness"
APART_NS: Final = 20 * MILLISECOND_NS
"""The most by which the hub's clock may put a merge after its answer, before it counts as a jump."""


class Step(NamedTuple):
    """A step of a node, as its process has written it down."""

    t_ns: int
    node: str
    number: int
    """The place of the step among those of its process."""
    what: str
    facts: dict[str, Any]


@dataclass
class Steps:
    """All that was recorded of a run."""

    of_processes: list[list[Step]] = field(default_factory=list)
    terms: dict[str, int] = field(default_factory=dict)
    batches: dict[tuple[str, int], tuple[int, Batch]] = field(default_factory=dict)
    """Each batch that was sent, and when, by node and sequence number."""
    answers: dict[tuple[str, int], tuple[int, Answer]] = field(default_factory=dict)
    """Each answer that was heard, and when, likewise."""
    servers: list[tuple[int, list[ServerEvent]]] = field(default_factory=list)
    """Each server's changes of the ledger, one list for each time that it ran, after its number."""

    @classmethod
    def read(cls, directory: Path) -> Steps:
        """Reads what the processes of a run, and the witness of its server, have written."""
        steps = cls()
        for path in sorted(directory.glob(f"{STEPS}-*.jsonl")):
            steps.add(path.stem.removeprefix(f"{STEPS}-"), whole_lines(path))
        steps.servers = list(read_servers(directory, steps.terms["shard"])) or [(0, read_leaders(directory))]
        return steps

    def add(self, node: str, lines: Sequence[dict[str, Any]]) -> None:
        """Adds the lines of one agent in one process: its terms, and then its steps."""
        if not lines:
            return
        self.terms, own, last_ns = lines[0], [], 0
        for number, facts in enumerate(lines[1:]):
            last_ns = max(last_ns, facts["t"])
            step = Step(last_ns, node, number, facts["e"], facts)
            own.append(step)
            if facts.get("batch") is not None:
                batch = facts["batch"] = read_batch(bytes.fromhex(facts["batch"]), shard=self.terms["shard"])
                self.batches[batch.node, batch.sequence] = last_ns, batch
            if "answer" in facts:
                answer = facts["answer"] = decode_answer(bytes.fromhex(facts["answer"]))
                self.answers[facts["sender"], facts["sequence"]] = last_ns, answer
        if own:
            own.append(Step(last_ns, node, len(lines), ENDS, {}))
            self.of_processes.append(own)


class HubsClock:
    """The clock of the hub whose merges are made again."""

    now_us = 0

    def wall_ns(self) -> int:
        """Returns the time of the last merge."""
        return self.now_us * MICROSECOND_NS

    def monotonic_ns(self) -> int:
        """Returns the same."""
        return self.wall_ns()


class Followed(NamedTuple):
    """The outcome of following a run."""

    run: BoundRun
    names: int
    merges: int
    compared: int
    """How many answers of the server were compared with those of the definition."""
    unheard: int
    """How many merged batches have no answer that was heard."""
    seconds: float
    """How much of the run was followed."""
    of_seconds: float


def _sent_as(event: ServerEvent) -> tuple[str, int]:
    return (event.node, event.sequence) if isinstance(event, Merge) else ("", 0)


class Follower:
    """Follows one run; `lies` is whether a fault changes answers on their way.

    At `taken_over_ns` by the nodes' clocks, a master with a replica was killed.
    """

    def __init__(
        self,
        steps: Steps,
        limit: Limit,
        policy: Policy,
        keys: Sequence[str],
        cost_max: int,
        *,
        lies: bool = False,
        taken_over_ns: int = NEVER_NS,
    ) -> None:
        self._steps = steps
        self._lies = lies
        self._taken_over_ns = taken_over_ns
        self._begun = next(each for _, events in steps.servers for each in events if isinstance(each, Begun))
        base_ns = self._begun.wall_ns - self._begun.monotonic_ns
        self._base_ns = base_ns
        self._clock = HubsClock()
        self._candidate = ""
        self._hub = MemoryHub(clock=self._clock, new_name=lambda: self._candidate)
        self._hub.lose_data()
        self._home: int | None = None
        """The server that has the ledger; None before the first merge."""
        self._ledger = ""
        """The ledger of the last merge, if a leader at a broker has made it."""
        self._ended: set[int] = set()
        """The servers that have ended, and have not begun again."""
        self._merged: set[tuple[str, int]] = set()
        self._compared = 0
        self._epochs: dict[tuple[str, Watch], int] = {}
        """The window in which each node was at its last step."""
        self.watching = Watching()
        terms = terms_of(
            limit, policy, steps.terms["lease_ns"], steps.terms["capacity"], cost_max * steps.terms["unit"]
        )
        for key in keys:
            binding = BoundKey(terms, self._begun.wall_ns, self.watching.run.accepted)
            self.watching.watches.append(Watch(binding, LIMIT_NAME, key, base_ns))
        self.watching.attach_hub(self._hub, self._hub, lambda: self._clock.wall_ns() - self._base_ns)

    def follow(self) -> Followed:
        """Follows the run until its end, a rejected step, or a step that the proof assumes away."""
        steps, run = self._steps, self.watching.run
        times = [own[0].t_ns for own in steps.of_processes] + [own[-1].t_ns for own in steps.of_processes]
        first_ns, last_ns, now_ns = min(times), max(times), min(times)
        for at_ns, server, step in heapq.merge(*self._timelines(), key=lambda each: each[0]):
            if run.rejected or run.outside:
                break
            now_ns = at_ns
            if isinstance(step, Step):
                self._take(step)
            elif isinstance(step, Merge):
                self._merge(step, server)
            else:
                self._begin_or_end(step, server)
        names = len({node for node, _ in steps.batches})
        unheard = len(self._merged & steps.batches.keys() - steps.answers.keys())
        passed_s = (min(now_ns, last_ns) - first_ns) / SECOND_NS
        of_s = (last_ns - first_ns) / SECOND_NS
        return Followed(run, names, len(self._merged), self._compared, unheard, passed_s, of_s)

    # ------------------------------------------------------------ the order of all steps

    def _timelines(self) -> Iterator[list[tuple[int, int, Step | ServerEvent]]]:
        """Yields the steps of each process, and of each server, with their times and the server's number."""
        for own in self._steps.of_processes:
            yield [(step.t_ns, NO_SERVER, step) for step in own]
        for server, events in self._steps.servers:
            yield [(at_ns, server, each) for at_ns, each in zip(self._moments_ns(events), events, strict=True)]

    def _moments_ns(self, events: Sequence[ServerEvent]) -> Sequence[int]:
        """Returns the moments of a server's changes, which rise.

        A merge has the moment by the server's clock, but after the sending of its batch, and before its answer and
        those of all later merges: this clock may have gone ahead of the nodes' since the server began.
        """
        moments, last_ns = list[int](), 0
        for each in events:
            at_ns = moment_ns(each, self._begun) if isinstance(each, Merge) else each.monotonic_ns
            sent_ns, _ = self._steps.batches.get(_sent_as(each), (0, None))
            last_ns = max(last_ns, at_ns, sent_ns + 1)
            moments.append(last_ns)
        before_ns = NEVER_NS
        for at, each in reversed(list(enumerate(events))):
            heard_ns, _ = self._steps.answers.get(_sent_as(each), (NEVER_NS, None))
            before_ns = min(before_ns, heard_ns - 1)
            moments[at] = min(moments[at], before_ns)
        return moments

    # ------------------------------------------------------------ the steps

    def _take(self, step: Step) -> None:
        watching, facts = self.watching, step.facts
        watching.note("passes", step.t_ns)
        if step.what == ENDS:
            for watch in watching.watches:
                watching.note_of(watch, "ends", step.node)
            return
        for watch, fields in zip(watching.watches, facts["at"], strict=True):
            at = BoundSnapshot(*fields)
            if not watch.knows(step.node):
                watching.note_of(watch, "starts", step.node, at)
            if step.what == ADMITS and facts["key"] != watch.key:
                continue
            if step.what == HEARD:
                self._look_for_merge(facts)
                if facts["jumped"] and at.used and at.epoch != self._epochs.get((step.node, watch)):
                    watching.run.outside = watching.run.outside or JUMPS  # use goes on in a window of another number
            self._epochs[step.node, watch] = at.epoch
            watching.note_of(watch, step.what, step.node, at, *(facts[of] for of in ARGUMENTS[step.what]))

    def _look_for_merge(self, heard: dict[str, Any]) -> None:
        which = heard["sender"], heard["sequence"]
        if heard["answer"].status is not Status.MERGED or which in self._merged:
            return
        if heard["t"] >= self._taken_over_ns:
            self.watching.run.outside = self.watching.run.outside or TAKEN_OVER
        elif self._home in self._ended:
            self.watching.run.outside = self.watching.run.outside or CUT_OFF
        else:
            self.watching.run.rejected = self.watching.run.rejected or (
                f"{which[0]} has heard an answer to its batch {which[1]}, which the server has not merged before"
            )

    def _begin_or_end(self, event: Begun | Ended, server: int) -> None:
        if isinstance(event, Ended):
            self._ended.add(server)
            return
        self._ended.discard(server)
        if server == self._home:
            self._home = None
            self._clock.now_us = (event.monotonic_ns + self._base_ns) // MICROSECOND_NS
            self._hub.lose_data()

    def _merge(self, merge: Merge, server: int) -> None:
        if merge.unwritten:
            self._merge_outdated(merge)
            return
        self._home = server
        which = merge.node, merge.sequence
        sent_ns, batch = self._steps.batches.get(which, (0, merge.bare))
        heard_ns, heard = self._steps.answers.get(which, (None, None))
        at_ns = moment_ns(merge, self._begun)
        if at_ns < sent_ns - APART_NS or (heard_ns is not None and at_ns > heard_ns + APART_NS):
            self.watching.run.outside = JUMPS
            return
        self._clock.now_us, self._candidate = merge.hub_us, merge.candidate
        if merge.led is not None:
            self._look_at_leader(merge, merge.led)
            if self.watching.run.outside:
                return
        self._make_room(cramped=merge.cramped)
        answer = self._hub.merge(batch._replace(shard=0))
        self._merged.add(which)
        expected = Status.LAPSED if merge.lapsed else Status.MERGED
        if answer.status is expected and self._lies and heard is not None and not _equal(answer, heard):
            self.watching.run.outside = BELIEVED
        elif answer.status is not expected or (heard is not None and not _equal(answer, heard)):
            self.watching.run.rejected = (
                f"the hub has answered {merge.node}, number {merge.sequence}, in another way than its definition:\n"
                f"  {heard}\n  {answer}"
            )
        self._compared += heard is not None

    def _merge_outdated(self, merge: Merge) -> None:
        """Looks whether a batch for which the script has written nothing is outdated for the definition, too."""
        record = self._hub._shards[0].nodes.get(merge.node)  # noqa: SLF001  # no method of a hub returns it
        if record is None or merge.sequence > record.sequence:
            return  # the script has failed
        _, batch = self._steps.batches.get((merge.node, merge.sequence), (0, merge.bare))
        self._clock.now_us = merge.hub_us
        status = self._hub.merge(batch._replace(shard=0)).status
        if status is not Status.STALE:
            self.watching.run.rejected = f"an outdated batch of {merge.node}, number {merge.sequence}, is {status.name}"

    def _make_room(self, *, cramped: bool) -> None:
        """Makes the hub refuse new keys, as a server without memory does; there, expired keys are gone at once."""
        (shard,) = self._hub._shards  # noqa: SLF001  # no method of a hub changes its room
        shard.cells_max = 0 if cramped else CELLS_MAX
        if cramped:
            shard.cells = {of: cell for of, cell in shard.cells.items() if self._clock.now_us <= cell.expires_us}

    def _look_at_leader(self, merge: Merge, led: Led) -> None:
        """Takes over what a leader knows of its ledger, and its clock: it goes on by an estimate of the one before."""
        shards = self._hub._shards  # noqa: SLF001  # no method of a hub gives it another ledger
        base_ns = merge.hub_us * MICROSECOND_NS - merge.t_ns
        if abs(base_ns - self._base_ns) > WAIT_NS or self._goes_back(merge):
            self.watching.run.outside = JUMPS
        elif abs(base_ns - self._base_ns) > MILLISECOND_NS:
            self._base_ns = base_ns
            for watch in self.watching.watches:
                watch.base_ns = base_ns
        if not led.before and self._ledger:
            self._hub.lose_data()
        elif led.before and led.before != shards[0].generation:
            self.watching.run.outside = TWO_LEDGERS
        elif led.ledger != self._ledger:
            shards[0] = handed_over(shards[0])
        self._ledger = led.ledger
        shards[0].lost, shards[0].grace_us = shards[0].lost or led.lost, led.grace_us

    def _goes_back(self, merge: Merge) -> bool:
        """Returns whether a leader's clock shows an earlier window than the clock of the leader before did."""
        binding = self.watching.watches[0].binding
        length_ns = binding.terms.window_ns
        return merge.hub_us * MICROSECOND_NS // length_ns < value_of(binding.hub.now) // length_ns


def _equal(one: Answer, other: Answer) -> bool:
    return one._replace(cells=tuple(one.cells)) == other._replace(cells=tuple(other.cells))
