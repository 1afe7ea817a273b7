"""One shard at one member: what it asks of others, what others ask of it, and what of all that is taken in.

Nothing here waits for a network: messages are handed in as they come, and handed out by `post`. Batches are merged one
after the other, in steps between which the loop has its turn.
"""

# Theory of operation.
#
# Merging takes 22 to 43 us a cell in Python, so a batch of 256 cells 6 to 11 ms, and this runs on an event loop that
# may be the application's own. So a batch is merged in steps of one cell, and after SLICE_NS the loop has its turn.
# Between two steps the ledger is in the middle of a batch, so batches are merged one after the other, and at most
# JOBS_MAX wait: a member that hears no answer within a third of a tenure says everything again, which is harmless,
# because counts are absolute. Hence batches and answers also go with QoS 0.
#
# Whatever may write to the topics may write nonsense. All of a message is checked before anything changes, as the
# script of Redis does it; what is of no use is counted by reason and dropped.

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from reconverge.clock import MILLISECOND_NS, SECOND_NS, Clock
from reconverge.errors import HubUnavailable
from reconverge.hub.report import Answer, Batch, Totals
from reconverge_sync.mqtt.calling.calling import RECORD, Calls, OwnCall, Post, Swap, within
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
"""After so long with batches, the loop has its turn."""
JOBS_MAX: Final = 512
"""So many messages wait to be looked at; the senders of those beyond hear nothing, and try again."""
JOBS_BYTES_MAX: Final = 8 << 20
NODES_MAX: Final = 1 << 16
"""So many nodes, or accounts, are in one ledger."""
SUCCESSORS_MAX: Final = 64
HEARD_LATELY_NS: Final = 5 * SECOND_NS
SUCCESSOR_SHARE: Final = 2
"""A leader that has just taken over waits for a member to give it on to, for half of the time that usage may take."""


class AwaitedAnswer(NamedTuple):
    """An answer that a node waits for."""

    leader: str
    asked_ns: int
    answer: asyncio.Future[Reply]


@dataclass(slots=True)
class Message:
    """One that has come and has yet to be looked at."""

    kind: MessageKind
    sender: str
    payload: bytes
    came_ns: int


@dataclass(slots=True)
class OwnBatch:
    """A batch of this member's own, which is the leader."""

    batch: Batch
    asked_ns: int
    answer: asyncio.Future[Answer]


class ShardServer:
    """The leader's part and the asking part of one member. `rejects` counts messages that were of no use, by reason."""

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
        """The wait before a leader answers, as `reconverge_sync.mqtt.leader.WAIT_NS`."""
        self._post = post
        self._rejects = rejects
        self._asked: dict[tuple[str, int], AwaitedAnswer] = {}
        self._questions: dict[int, tuple[str, asyncio.Future[dict[str, Totals]]]] = {}
        self._question = 0
        self._calls = Calls(candidate, clock=clock, wait_ns=wait_ns, post=post, rejects=rejects, swap=swap)
        self._jobs: deque[Message | OwnBatch | OwnCall] = deque()
        self._jobs_bytes = 0
        self._wanted = asyncio.Event()
        self._turn = asyncio.Lock()
        self._callers: OrderedDict[str, int] = OrderedDict()
        """When the batches of each member came, newest last, but for members that leave."""
        self._successor = Successor(candidate)
        self._took_over_ns: int | None = None
        """When this member was given a ledger."""
        self._reported = asyncio.Event()
        """A member that stays has reported."""

    async def exchange(self, batch: Batch, timeout_s: float) -> Answer:
        """Has the leader merge a batch. Raises HubUnavailable."""
        if self.election.role is Role.LEADER:
            return await self._exchange_here(batch, timeout_s)
        leader = self.election.leader
        message = write_batch(batch)
        sent_ns = self._clock.monotonic_ns()
        asked = AwaitedAnswer(leader, sent_ns, asyncio.get_running_loop().create_future())
        key = batch.node, batch.sequence
        self._asked[key] = asked
        try:
            if not self._post(leader, MessageKind.BATCH, message):
                raise HubUnavailable("busy", "the broker takes messages too slowly", applied=False)
            reply = await within(asked.answer, timeout_s, "the leader does not answer")
        finally:
            if self._asked.get(key) is asked:
                del self._asked[key]
        answer = reply.answer
        self.candidate.answered(answer.hub_us, sent_ns=sent_ns, received_ns=self._clock.monotonic_ns())
        return answer

    async def _exchange_here(self, batch: Batch, timeout_s: float) -> Answer:
        own = OwnBatch(batch, self._clock.monotonic_ns(), asyncio.get_running_loop().create_future())
        self._enqueue(own, 0)
        return await within(own.answer, timeout_s, "this member is the leader, and may not answer just now")

    async def totals(self, timeout_s: float) -> dict[str, Totals]:
        """Returns the totals of the leader's ledger. Raises HubUnavailable."""
        if self.election.role is Role.LEADER:
            here = self.candidate.totals()
            if here is None:
                raise HubUnavailable("timeout", "this member is the leader, and may not answer just now")
            return here
        leader = self.election.leader
        self._question += 1
        number = self._question
        totals: asyncio.Future[dict[str, Totals]] = asyncio.get_running_loop().create_future()
        self._questions[number] = leader, totals
        try:
            if not self._post(leader, MessageKind.QUESTION, write_question(number)):
                raise HubUnavailable("busy", "the broker takes messages too slowly", applied=False)
            return await within(totals, timeout_s, "the leader does not answer")
        finally:
            del self._questions[number]

    def fail(self, problem: HubUnavailable) -> None:
        """The connection is gone: no question will be answered any more."""
        futures: list[asyncio.Future[Any]] = [asked.answer for asked in self._asked.values()]
        for future in [*futures, *(totals for _, totals in self._questions.values())]:
            if not future.done():
                future.set_exception(HubUnavailable(problem.kind, "the connection is gone"))
        self._calls.fail(problem)
        self._successor.forget()

    def hear(self, kind: MessageKind, sender: str, payload: bytes) -> None:
        """A message to this member has come. Never waits and never fails."""
        try:
            if kind is MessageKind.ANSWER:
                self._hear_answer(sender, read_answer(payload))
            elif kind is MessageKind.TOTALS:
                self._hear_totals(sender, *read_totals(payload))
            elif kind is MessageKind.REPLY:
                self._calls.hear_reply(sender, payload)
            else:
                self._enqueue(Message(kind, sender, payload, self._clock.monotonic_ns()), len(payload))
        except MalformedMessage as malformed:
            self._rejects[malformed.kind] += 1

    def _hear_answer(self, sender: str, reply: Reply) -> None:
        asked = self._asked.get((reply.node, reply.sequence))
        if asked is None or asked.leader != sender or asked.answer.done():
            self._rejects["unasked"] += 1
        elif self._clock.monotonic_ns() - asked.asked_ns > self._wait_ns:
            self._rejects["late"] += 1
        else:
            asked.answer.set_result(reply)

    def _hear_totals(self, sender: str, number: int, totals: dict[str, Totals]) -> None:
        question = self._questions.get(number)
        if question is None or question[0] != sender or question[1].done():
            self._rejects["unasked"] += 1
        else:
            question[1].set_result(totals)

    def _enqueue(self, job: Message | OwnBatch | OwnCall, size: int) -> None:
        if len(self._jobs) >= JOBS_MAX or self._jobs_bytes + size > JOBS_BYTES_MAX:
            self._rejects["full"] += 1
            return
        self._jobs_bytes += size
        self._jobs.append(job)
        self._wanted.set()

    async def work(self, look_soon: Callable[[], None]) -> None:
        """Look at what has come, one after the other, until cancelled; calls `look_soon` when this member inherits."""
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
                raise MalformedMessage("kind")
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
                HubUnavailable("timeout", "another member may be the leader by now", applied=False)
            )
        # As for an answer that travels: a grant that is taken in too late is one that another leader may have
        # made, too.
        elif self._clock.monotonic_ns() - own.asked_ns > self._wait_ns:
            own.answer.set_exception(HubUnavailable("timeout", "it took too long to be merged"))
        else:
            own.answer.set_result(answer)

    async def _merge_message(self, message: Message) -> None:
        if self.election.role is not Role.LEADER:
            raise MalformedMessage("unasked")
        if self._clock.monotonic_ns() - message.came_ns > self._wait_ns:
            raise MalformedMessage("late")
        batch = read_batch(message.payload, shard=self.shard)
        if self._is_full(batch):
            raise MalformedMessage("full")
        self._note_caller(message.sender, message.came_ns, leaving=batch.leaving)
        answer = await self._merged(batch)
        if answer is not None:
            self._post(message.sender, MessageKind.ANSWER, write_answer(batch, answer))

    def _note_caller(self, member: str, came_ns: int, *, leaving: bool = False) -> None:
        """A member has reported. One that leaves is the last to hand a ledger to."""
        self._callers[member] = came_ns
        self._callers.move_to_end(member, last=not leaving)
        if not leaving:
            self._reported.set()
        while len(self._callers) > SUCCESSORS_MAX:
            self._callers.popitem(last=False)

    def _is_full(self, batch: Batch) -> bool:
        """Whether the ledger has no room for another node. One that is known already is always heard.

        For another key there may be none either; then that key alone is not taken, see `Shard.cells_max`.
        """
        ledger = self.candidate.ledger
        if ledger is None or batch.node in ledger.nodes:
            return False
        return max(len(ledger.nodes), len(ledger.accounts)) >= NODES_MAX

    async def _merged(self, batch: Batch) -> Answer | None:
        """All steps of a merge: once begun, it is brought to its end."""
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
        raise AssertionError("the last step is the answer")

    def _tell_totals(self, message: Message) -> None:
        number = read_question(message.payload)
        totals = self.candidate.totals()
        if totals is not None:
            self._post(message.sender, MessageKind.TOTALS, write_totals(number, totals))

    async def call(self, call: Call, timeout_s: float) -> Any:
        """Asks the leader. Raises HubUnavailable."""
        if self.election.role is not Role.LEADER:
            sent_ns = self._clock.monotonic_ns()
            reply = await self._calls.ask(self.election.leader, call, timeout_s)
            if call[0] == RECORD:  # a member that only reports usage may lead next, and hears the time by nothing else
                with contextlib.suppress(MalformedMessage):  # the caller reads it, too
                    hub_us = read_recorded(reply).hub_us
                    self.candidate.answered(hub_us, sent_ns=sent_ns, received_ns=self._clock.monotonic_ns())
            return reply
        own = OwnCall(call, self._clock.monotonic_ns(), asyncio.get_running_loop().create_future())
        self._enqueue(own, 0)
        return await within(own.reply, timeout_s, "this member is the leader, and may not answer just now")

    def _answer_message(self, message: Message) -> None:
        if self.election.role is not Role.LEADER:
            raise MalformedMessage("unasked")
        if self._clock.monotonic_ns() - message.came_ns > self._wait_ns:
            raise MalformedMessage("late")
        if self._calls.answer_message(message.sender, message.payload) == RECORD:
            self._note_caller(message.sender, message.came_ns)

    async def hand_over(self, deliver: Deliver, *, usage_s: float) -> tuple[LeaderClaim, str] | None:
        """Answer no more. If there is a ledger and a member to have it, send it there, and before, in `usage_s`, usage.

        One that was taken over just now is given on, too, to the first member that reports to this one.
        Returns the claim with which this member answered, and its successor, if any; None if it did not answer.
        """
        since_ns = self._clock.monotonic_ns() - HEARD_LATELY_NS
        if not self._reported.is_set() and self._took_over_ns is not None and self._took_over_ns >= since_ns:
            # Members report once in an interval, and to this one only since it leads: it knows none of them yet.
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
