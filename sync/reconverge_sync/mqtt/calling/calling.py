"""Both sides of calls between members: a member asks the leader and waits; the leader answers from its state.

As with batches, a reply counts only while no other member can answer: the leader answers within the time that its claim
allows, and the asking member ignores a reply that comes later.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from reconverge.clock import Clock
from reconverge.errors import HubUnavailable
from reconverge_sync.mqtt.calling.answering import USAGE_OPERATIONS, answer
from reconverge_sync.mqtt.calling.awaited import AwaitedAnswers, Post
from reconverge_sync.mqtt.calling.calls import Call, RefusedReply, read_call, read_reply, write_call, write_reply
from reconverge_sync.mqtt.leader import Candidate
from reconverge_sync.mqtt.messages import MalformedMessage, MessageKind

APART_MAX: Final = 16
"""The most calls at one time whose replies wait for the broker; the leader refuses further ones."""
SWAP: Final = "swap"
"""The name of the call that replaces the index of contracts; its reply waits for the broker, see `contracts.py`."""

MUTE: Final = "the leader does not answer; a leader of an older version does not know this call, so update all members"
RECORD: Final = "record"
"""The name of the call with which a node reports usage."""
_MEANINGLESS: Final = RefusedReply(
    "protocol", "the leader does not understand the call; run one version of reconverge on all members"
)

Swap = Callable[[Call], Awaitable[Any]]
"""Replaces the index of contracts as a call requests, see `contracts.py`. Raises HubUnavailable and
MalformedMessage."""


@dataclass(slots=True)
class OwnCall:
    """A call that this member makes to itself because it is the leader."""

    call: Call
    asked_ns: int
    reply: asyncio.Future[Any]


class Calls:
    """Makes the calls of one member in one shard, and answers calls of other members while it is the leader.

    `rejects` counts messages that were ignored, by reason.
    """

    def __init__(
        self,
        candidate: Candidate,
        *,
        clock: Clock,
        wait_ns: int,
        post: Post,
        rejects: Counter[str],
        swap: Swap | None = None,
    ) -> None:
        self._candidate = candidate
        self._clock = clock
        self._wait_ns = wait_ns
        self._post = post
        self._rejects = rejects
        self._swap = swap
        self._replies = AwaitedAnswers[int, Any](
            MessageKind.CALL, MUTE, clock=clock, wait_ns=wait_ns, post=post, rejects=rejects
        )
        self._number = 0
        self._apart: set[asyncio.Task[None]] = set()
        self.usage_is_given = False
        """Whether this member is stopping, and has begun to hand over the usage to its successor."""

    async def ask(self, leader: str, call: Call, timeout_s: float) -> Any:
        """Sends a call to the leader, which is another member, and returns its reply. Raises HubUnavailable."""
        self._number += 1
        value = await self._replies.ask(leader, self._number, write_call(self._number, call), timeout_s)
        if isinstance(value, RefusedReply):
            raise HubUnavailable(value.kind, value.problem, applied=False)
        return value

    def fail(self, problem: HubUnavailable) -> None:
        """Fails all calls that wait for a reply with `problem`, because the connection is lost."""
        self._replies.fail(problem)

    def hear_reply(self, sender: str, payload: bytes) -> None:
        """Completes the waiting call to which a message is the reply. Raises MalformedMessage."""
        self._replies.hear(sender, *read_reply(payload))

    def answer_own(self, own: OwnCall) -> None:
        """Answers a call that this member has made to itself as the leader."""

        def reply(value: Any) -> None:
            if own.reply.done():
                return
            if isinstance(value, RefusedReply):
                own.reply.set_exception(HubUnavailable(value.kind, value.problem, applied=False))
            elif self._clock.monotonic_ns() - own.asked_ns > self._wait_ns:
                own.reply.set_exception(
                    HubUnavailable("timeout", f"the answer came after more than {self._wait_ns / 1e9:g} s; try again")
                )
            else:
                own.reply.set_result(value)

        if not own.reply.done():
            with contextlib.suppress(MalformedMessage):  # the caller gets the error as its reply
                self._answer(own.call, reply)

    def answer_message(self, sender: str, payload: bytes) -> str:
        """Answers a call that another member, `sender`, has sent; returns the call's name. Raises MalformedMessage."""
        number, call = read_call(payload)
        self._answer(call, lambda value: self._reply(sender, number, value))
        return cast("str", call[0])

    def _reply(self, sender: str, number: int, value: Any) -> None:
        try:
            reply = write_reply(number, value)
        except HubUnavailable as problem:
            reply = write_reply(number, RefusedReply("protocol", str(problem)))
        self._post(sender, MessageKind.REPLY, reply)

    def _answer(self, call: Call, reply: Callable[[Any], None]) -> None:
        """Carries out a call, and passes the result to `reply`, now or once the broker answers.

        Raises MalformedMessage.
        """
        kept = self._candidate.kept()
        if kept is None:
            return  # another member may be the leader by now
        if call[0] == SWAP and self._swap is not None:
            if len(self._apart) >= APART_MAX:
                reply(RefusedReply("busy", f"the leader makes {APART_MAX} changes at once already; try again later"))
            else:
                self._answer_apart(self._swap(call[1:]), reply)
        elif self.usage_is_given and call[0] in USAGE_OPERATIONS:
            reply(RefusedReply("busy", "the leader is about to stop, and hands the usage over; try again in a moment"))
        else:
            try:
                value = answer(kept, call)
            except HubUnavailable as problem:
                value = _refused(problem)
            except MalformedMessage:
                reply(_MEANINGLESS)
                raise
            reply(value)

    def _answer_apart(self, answering: Awaitable[Any], reply: Callable[[Any], None]) -> None:
        """Awaits `answering` in a task of its own, and passes its result to `reply`, so that no other message waits."""

        async def answer_then() -> None:
            try:
                value = await answering
            except HubUnavailable as problem:
                value = _refused(problem)
            except MalformedMessage as malformed:
                self._rejects[malformed.kind] += 1
                value = _MEANINGLESS
            # If it took so long that another member may be the leader, the change may have come too late.
            if self._candidate.election.may_answer(self._clock.monotonic_ns(), within_ns=0):
                reply(value)

        task = asyncio.get_running_loop().create_task(answer_then(), name="reconverge mqtt call")
        self._apart.add(task)
        task.add_done_callback(self._apart.discard)


def _refused(problem: HubUnavailable) -> RefusedReply:
    return RefusedReply(problem.kind, str(problem).partition(": ")[2])
