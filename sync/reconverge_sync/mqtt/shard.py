"""One shard at one member: sends batches and questions to the leader; as the leader, answers those of other members.

Nothing here waits for a network: messages are handed in as they come, and sent by `post`. Batches are merged one after
the other, in steps between which the loop runs other tasks.
"""

# Theory of operation.
#
# Merging takes 22 to 43 us a cell in Python, so a batch of 256 cells 6 to 11 ms, and this runs on an event loop that
# may be the application's own. So a batch is merged in steps of one cell, and after SLICE_NS the loop runs other tasks.
# Between two steps the ledger is in the middle of a batch, so batches are merged one after the other, and at most
# JOBS_MAX wait: a member that gets no answer within a third of a tenure repeats its reports, which is harmless, because
# counts are absolute. Hence batches and answers are sent with QoS 0.
#
# Any client that may write to the topics may send anything. A message is checked completely before anything changes, as
# in the script of Redis; invalid messages are counted by reason and dropped.

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from reconverge.clock import MILLISECOND_NS, SECOND_NS, Clock
from reconverge.errors import HubUnavailable
from reconverge.hub.report import Answer, Batch, Totals
from reconverge_sync.mqtt.calling.awaited import AwaitedAnswers, Post, within
from reconverge_sync.mqtt.calling.calling import RECORD, Calls, OwnCall, Swap
from reconverge_sync.mqtt.calling.calls import Call, read_recorded
from reconverge_sync.mqtt.election import LeaderClaim, Role
from reconverge_sync.mqtt.leader import Candidate
from reconverge_sync.mqtt.messages import (
    MalformedMessage,
    MessageKind,
    Reply,
    read_answer,
    read_batch,
    read_question,
    read_totals,
    write_answer,
    write_batch,
    write_question,
    write_totals,
)
from reconverge_sync.mqtt.succession import Deliver, Successor, give_ledger, give_usage

SLICE_NS: Final = MILLISECOND_NS
"""For how many nanoseconds a batch is merged before the event loop runs other tasks."""
JOBS_MAX: Final = 512
"""The most messages that wait to be processed. Further messages are dropped; their senders get no answer, and try
again."""
JOBS_BYTES_MAX: Final = 8 << 20
NODES_MAX: Final = 1 << 16
"""The most nodes in one ledger, and the most accounts."""
SUCCESSORS_MAX: Final = 64
HEARD_LATELY_NS: Final = 5 * SECOND_NS
SUCCESSOR_SHARE: Final = 2
"""A leader that stops just after it has taken over waits for a successor; the wait lasts, at most, the time for the
usage divided by this number."""


@dataclass(slots=True)
class Message:
    """A message that has come, and that waits to be processed."""

    kind: MessageKind
    sender: str
    payload: bytes
    came_ns: int


@dataclass(slots=True)
class OwnBatch:
    """A batch that this member sends to itself, because it is the leader."""

    batch: Batch
    asked_ns: int
    answer: asyncio.Future[Answer]


class ShardServer:
    """One member's part in one shard: sends batches to the leader; as the leader, merges those of other members.

    `rejects` counts messages that were ignored, by reason.
    """

    def __init__(
        self,
        shard: int,
        candidate: Candidate,
        *,
        clock: Clock,
        wait_ns: int,
        post: Post,
        rejects: Counter[str],
        swap: Swap | None = None,
    ) -> None:
        self.candidate = candidate
        self.election = candidate.election
        self.shard = shard
        self._clock = clock
        self._wait_ns = wait_ns
        """For how many nanoseconds this member waits for an answer of the leader."""
        self._post = post
        self._rejects = rejects
        silence = f"the leader of shard {shard} has not answered within {{}} s; try again"
        self._answers = AwaitedAnswers[tuple[str, int], Reply](
            MessageKind.BATCH, silence, clock=clock, wait_ns=wait_ns, post=post, rejects=rejects
        )
        self._totals = AwaitedAnswers[int, dict[str, Totals]](
            MessageKind.QUESTION, silence, clock=clock, wait_ns=None, post=post, rejects=rejects
        )
        self._question = 0
        self._calls = Calls(candidate, clock=clock, wait_ns=wait_ns, post=post, rejects=rejects, swap=swap)
        self._jobs: deque[Message | OwnBatch | OwnCall] = deque()
        self._jobs_bytes = 0
        self._wanted = asyncio.Event()
        self._turn = asyncio.Lock()
        self._callers: OrderedDict[str, int] = OrderedDict()
        """When each member last sent a batch: the newest batch last, but members that leave first."""
        self._successor = Successor(candidate)
        self._took_over_ns: int | None = None
        """When a leader handed its ledger over to this member; None if none did."""
        self._reported = asyncio.Event()
        """Set when a member that is not about to leave has sent a batch."""

    async def exchange(self, batch: Batch, timeout_s: float) -> Answer:
        """Sends a batch to the leader, and returns its answer. Raises HubUnavailable."""
        if self.election.role is Role.LEADER:
            return await self._exchange_here(batch, timeout_s)
        message, sent_ns = write_batch(batch), self._clock.monotonic_ns()
        reply = await self._answers.ask(self.election.leader, (batch.node, batch.sequence), message, timeout_s)
        answer = reply.answer
        self.candidate.answered(answer.hub_us, sent_ns=sent_ns, received_ns=self._clock.monotonic_ns())
        return answer

    async def _exchange_here(self, batch: Batch, timeout_s: float) -> Answer:
        own = OwnBatch(batch, self._clock.monotonic_ns(), asyncio.get_running_loop().create_future())
        self._enqueue(own, 0)
        return await within(
            own.answer, timeout_s, "this member leads the shard, but the broker has not confirmed its claim; try again"
        )

    async def totals(self, timeout_s: float) -> dict[str, Totals]:
        """Returns the charges and refunds of all nodes by limit, from the leader's ledger. Raises HubUnavailable."""
        if self.election.role is Role.LEADER:
            here = self.candidate.totals()
            if here is None:
                raise HubUnavailable(
                    "timeout",
                    f"this member leads shard {self.shard}, but the broker has not confirmed its claim; try again",
                )
            return here
        self._question += 1
        message = write_question(self._question)
        return await self._totals.ask(self.election.leader, self._question, message, timeout_s)

    def fail(self, problem: HubUnavailable) -> None:
        """Fails all exchanges, calls and questions that wait for an answer, because the connection is lost."""
        self._answers.fail(problem)
        self._totals.fail(problem)
        self._calls.fail(problem)
        self._successor.forget()

    def hear(self, kind: MessageKind, sender: str, payload: bytes) -> None:
        """Processes a message to this member, or queues the message. Never waits and never raises."""
        try:
            if kind is MessageKind.ANSWER:
                reply = read_answer(payload)
                self._answers.hear(sender, (reply.node, reply.sequence), reply)
            elif kind is MessageKind.TOTALS:
                self._totals.hear(sender, *read_totals(payload))
            elif kind is MessageKind.REPLY:
                self._calls.hear_reply(sender, payload)
            else:
                self._enqueue(Message(kind, sender, payload, self._clock.monotonic_ns()), len(payload))
        except MalformedMessage as malformed:
            self._rejects[malformed.kind] += 1

    def _enqueue(self, job: Message | OwnBatch | OwnCall, size: int) -> None:
        if len(self._jobs) >= JOBS_MAX or self._jobs_bytes + size > JOBS_BYTES_MAX:
            self._rejects["full"] += 1
            return
        self._jobs_bytes += size
        self._jobs.append(job)
        self._wanted.set()

    async def work(self, look_soon: Callable[[], None]) -> None:
        """Processes queued messages until cancelled. Calls `look_soon` when this member has taken over a ledger."""
        while True:
            await self._wanted.wait()
            while self._jobs:
                job = self._jobs.popleft()
                async with self._turn:
                    if isinstance(job, OwnBatch):
                        await self._merge_own(job)
                    elif isinstance(job, OwnCall):
                        self._calls.answer_own(job)
                    else:
                        self._jobs_bytes -= len(job.payload)
                        await self._look_at(job, look_soon)
                await asyncio.sleep(0)
            self._wanted.clear()

    async def _look_at(self, message: Message, look_soon: Callable[[], None]) -> None:
        try:
            if message.kind is MessageKind.BATCH:
                await self._merge_message(message)
            elif message.kind is MessageKind.QUESTION:
                self._tell_totals(message)
            elif message.kind is MessageKind.CALL:
                self._answer_message(message)
            elif message.kind is MessageKind.USAGE:
                self._successor.take_usage(message.sender, message.payload)
            elif message.kind is MessageKind.LEDGER:
                if self._successor.take_ledger(message.sender, message.payload):
                    self._took_over_ns = message.came_ns
                    look_soon()
            else:
                raise MalformedMessage("kind", f"no member sends {message.kind.name} to this topic")
        except MalformedMessage as malformed:
            self._rejects[malformed.kind] += 1
        except HubUnavailable:
            self._rejects["answer"] += 1

    async def _merge_own(self, own: OwnBatch) -> None:
        if own.answer.done():
            return  # its caller no longer waits
        try:
            answer = await self._merged(own.batch)
        except HubUnavailable as error:
            if not own.answer.done():
                own.answer.set_exception(error)
            return
        if own.answer.done():
            return
        if answer is None:
            own.answer.set_exception(
                HubUnavailable(
                    "timeout", f"another member may lead shard {self.shard} by now; try again", applied=False
                )
            )
        # As for an answer to another member: another leader may have granted the same by the time of a late answer.
        elif self._clock.monotonic_ns() - own.asked_ns > self._wait_ns:
            own.answer.set_exception(
                HubUnavailable(
                    "timeout", f"the batch of shard {self.shard} was merged too late; the node sends it again"
                )
            )
        else:
            own.answer.set_result(answer)

    def _check_in_time(self, message: Message, what: str) -> None:
        """Raises MalformedMessage if this member is not the leader, or if the message's sender has stopped waiting.

        `what` names the kind of message in the error's text.
        """
        if self.election.role is not Role.LEADER:
            raise MalformedMessage("unasked", f"this member is not the leader of shard {self.shard}")
        if self._clock.monotonic_ns() - message.came_ns > self._wait_ns:
            raise MalformedMessage(
                "late", f"a {what} has waited for longer than the {self._wait_ns / 1e9:g} s of its sender"
            )

    async def _merge_message(self, message: Message) -> None:
        self._check_in_time(message, "batch")
        batch = read_batch(message.payload, shard=self.shard)
        if self._is_full(batch):
            raise MalformedMessage(
                "full", f"the ledger of shard {self.shard} has no room for the nodes or keys of a batch"
            )
        self._note_caller(message.sender, message.came_ns, leaving=batch.leaving)
        answer = await self._merged(batch)
        if answer is not None:
            self._post(message.sender, MessageKind.ANSWER, write_answer(batch, answer))

    def _note_caller(self, member: str, came_ns: int, *, leaving: bool = False) -> None:
        """Notes that a member has sent a batch, as a possible successor; a member that is `leaving` comes last."""
        self._callers[member] = came_ns
        self._callers.move_to_end(member, last=not leaving)
        if not leaving:
            self._reported.set()
        while len(self._callers) > SUCCESSORS_MAX:
            self._callers.popitem(last=False)

    def _is_full(self, batch: Batch) -> bool:
        """Returns whether the ledger has no room for the node of a batch; a node that is known always has room.

        There may be no room for a new key either; then only that key is refused, see `LedgerShard.cells_max`.
        """
        ledger = self.candidate.ledger
        if ledger is None or batch.node in ledger.nodes:
            return False
        return max(len(ledger.nodes), len(ledger.accounts)) >= NODES_MAX

    async def _merged(self, batch: Batch) -> Answer | None:
        """Merges a batch in steps, to its end; returns the answer; None if this member may not answer as the leader."""
        steps = self.candidate.merging(batch)
        if steps is None:
            return None
        begun_ns = self._clock.monotonic_ns()
        for answer in steps:
            if answer is not None:
                return answer
            if self._clock.monotonic_ns() - begun_ns > SLICE_NS:
                await asyncio.sleep(0)
                begun_ns = self._clock.monotonic_ns()
        raise AssertionError(
            "the steps of a merge ended without an answer, although the last step must return it: a bug"
        )

    def _tell_totals(self, message: Message) -> None:
        number = read_question(message.payload)
        totals = self.candidate.totals()
        if totals is not None:
            self._post(message.sender, MessageKind.TOTALS, write_totals(number, totals))

    async def call(self, call: Call, timeout_s: float) -> Any:
        """Sends a call to the leader, and returns its reply. Raises HubUnavailable."""
        if self.election.role is not Role.LEADER:
            sent_ns = self._clock.monotonic_ns()
            reply = await self._calls.ask(self.election.leader, call, timeout_s)
            if call[0] == RECORD:  # so that a member that only reports usage has the hub's time
                with contextlib.suppress(MalformedMessage):  # the caller reads it, too
                    hub_us = read_recorded(reply).hub_us
                    self.candidate.answered(hub_us, sent_ns=sent_ns, received_ns=self._clock.monotonic_ns())
            return reply
        own = OwnCall(call, self._clock.monotonic_ns(), asyncio.get_running_loop().create_future())
        self._enqueue(own, 0)
        return await within(
            own.reply, timeout_s, "this member leads the shard, but the broker has not confirmed its claim; try again"
        )

    def _answer_message(self, message: Message) -> None:
        self._check_in_time(message, "call")
        if self._calls.answer_message(message.sender, message.payload) == RECORD:
            self._note_caller(message.sender, message.came_ns)

    async def hand_over(self, deliver: Deliver, *, usage_s: float) -> tuple[LeaderClaim, str] | None:
        """Stops answering, and hands the usage (within `usage_s` seconds) and the ledger over to a successor, if any.

        If this member has only just become the leader, it waits until a member reports, and hands over to that member.
        Returns the claim with which this member answered, and the successor's name, empty if there is none; None if
        this member was not the leader.
        """
        since_ns = self._clock.monotonic_ns() - HEARD_LATELY_NS
        if not self._reported.is_set() and self._took_over_ns is not None and self._took_over_ns >= since_ns:
            # Members report once in an interval, and to a new leader only from its election on: it knows no member yet.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(usage_s / SUCCESSOR_SHARE):
                    await self._reported.wait()
        successor = next((name for name, came_ns in reversed(self._callers.items()) if came_ns >= since_ns), "")
        self.candidate.go_on()
        if self.election.role is Role.LEADER and self.candidate.ledger is not None and successor:
            self._calls.usage_is_given = True
            with contextlib.suppress(TimeoutError, HubUnavailable):
                async with asyncio.timeout(usage_s):
                    await give_usage(self.candidate.usage, self.election.term, successor, deliver)
        if self.election.role is not Role.LEADER:
            self.election.leave()
            return None
        claim = LeaderClaim(self.election.term, self.election.member, 0)
        async with self._turn:  # not in the middle of a merge
            ledger = self.candidate.hand_over()
        self._jobs.clear()
        if ledger is None or not successor:
            return claim, ""
        await give_ledger(ledger, claim.term, successor, deliver)
        return claim, successor
