"""The messages that a member has sent to the leader of a shard, and whose answers it waits for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from reconverge.clock import Clock
from reconverge.errors import HubUnavailable
from reconverge_sync.mqtt.messages import BROKER_BUSY, CONNECTION_LOST, MessageKind

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

Post = Callable[[str, MessageKind, bytes], bool]
"""Sends a message of a kind to a member. Returns False if there is no connection, or if too much waits to be sent."""


class AwaitedAnswer(NamedTuple, Generic[Value]):
    """The future of an answer that a member waits for, the leader that was asked, and the moment of asking."""

    leader: str
    asked_ns: int
    answer: asyncio.Future[Value]


class AwaitedAnswers(Generic[Key, Value]):
    """Asks leaders by messages of one `kind`, and gives each waiting caller the answer that has its key.

    An answer that comes more than `wait_ns` after the question counts as late, if `wait_ns` is not None. `rejects`
    counts the answers that were ignored, by reason. `silence` is the problem if none comes, with {} for the seconds.
    """

    def __init__(
        self,
        kind: MessageKind,
        silence: str,
        *,
        clock: Clock,
        wait_ns: int | None,
        post: Post,
        rejects: Counter[str],
    ) -> None:
        self._kind = kind
        self._silence = silence
        self._clock = clock
        self._wait_ns = wait_ns
        self._post = post
        self._rejects = rejects
        self._asked: dict[Key, AwaitedAnswer[Value]] = {}

    async def ask(self, leader: str, key: Key, message: bytes, timeout_s: float) -> Value:
        """Sends a message to the leader, and returns the answer. Raises HubUnavailable if none comes."""
        asked_ns = self._clock.monotonic_ns()
        asked = AwaitedAnswer[Value](leader, asked_ns, asyncio.get_running_loop().create_future())
        self._asked[key] = asked
        try:
            if not self._post(leader, self._kind, message):
                raise HubUnavailable("busy", BROKER_BUSY, applied=False)
            return await within(asked.answer, timeout_s, self._silence.format(f"{timeout_s:g}"))
        finally:
            if self._asked.get(key) is asked:  # the same batch may have been sent again meanwhile
                del self._asked[key]

    def hear(self, sender: str, key: Key, value: Value) -> None:
        """Gives an answer to the caller that waits for it; ignores one for which no caller waits, or that is late."""
        asked = self._asked.get(key)
        if asked is None or asked.leader != sender or asked.answer.done():
            self._rejects["unasked"] += 1
        elif self._wait_ns is not None and self._clock.monotonic_ns() - asked.asked_ns > self._wait_ns:
            self._rejects["late"] += 1
        else:
            asked.answer.set_result(value)

    def fail(self, problem: HubUnavailable) -> None:
        """Fails all questions that wait for an answer with `problem`, because the connection is lost."""
        for asked in self._asked.values():
            if not asked.answer.done():
                asked.answer.set_exception(HubUnavailable(problem.kind, CONNECTION_LOST))


async def within(future: asyncio.Future[Value], timeout_s: float, problem: str) -> Value:
    """Awaits a future for `timeout_s` seconds, and returns its result. Raises HubUnavailable(`problem`) after that."""
    try:
        async with asyncio.timeout(timeout_s):
            return await future
    except TimeoutError:
        raise HubUnavailable("timeout", problem) from None
