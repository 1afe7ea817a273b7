"""Sends commands to one server of a cluster, in pipelines: commands that come at about the same moment go together."""

# Theory of operation.
#
# All shards of a server are due at about the same moment, and a write for each would be a system call for each. So
# commands that come while FLIGHTS_MAX pipelines are under way wait, and are sent with the next one. A pipeline is a
# task of its own: if the task belonged to the question that began it, a caller that is cancelled would cancel the
# answers of all others, too.

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final, NamedTuple

import redis.asyncio
from redis import exceptions

FLIGHTS_MAX: Final = 2
"""The most connections of one process to one server. Commands that come while all are in use wait, and are then sent
together."""
QUESTIONS_MAX: Final = 64
"""The most questions in one pipeline; a server may take 4 ms to answer one question."""

Command = tuple[object, ...]


class _Question(NamedTuple):
    commands: tuple[Command, ...]
    answer: asyncio.Future[Any]


class NodePipeline:
    """Sends commands to one server in flights: each flight writes all waiting commands at once and reads their replies.

    A flight is a task of its own, so a caller that is cancelled does not affect the other questions of the flight.

    Args:
        client: a client with at least `FLIGHTS_MAX` connections.
        timeout_s: the seconds that one flight may take, connecting included.
    """

    def __init__(self, client: redis.asyncio.Redis, *, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._waiting: deque[_Question] = deque()
        self._flights: set[asyncio.Task[None]] = set()
        self._boarding = False

    @property
    def busy(self) -> bool:
        """Returns whether commands were sent to this server whose answers have not all arrived."""
        return bool(self._flights)

    async def ask(self, *commands: Command) -> Any:
        """Runs `commands` in their order on one connection, and returns the reply to the last one.

        Raises the client's errors.
        """
        question = _Question(commands, asyncio.get_running_loop().create_future())
        self._waiting.append(question)
        if not self._boarding and len(self._flights) < FLIGHTS_MAX:
            self._boarding = True
            flight = asyncio.create_task(self._fly(), name="reconverge-flight")
            self._flights.add(flight)
            flight.add_done_callback(self._flights.discard)
        return await question.answer

    async def close(self) -> None:
        """Cancels all commands that wait for a reply, and closes the connections."""
        flights = list(self._flights)
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)
        while self._waiting:
            _tell(self._waiting.popleft(), _closed())
        await self._client.aclose()

    async def _fly(self) -> None:
        self._boarding = False
        while self._waiting:
            board: list[_Question] = []
            while self._waiting and len(board) < QUESTIONS_MAX:
                question = self._waiting.popleft()
                if not question.answer.done():  # a caller that has given up has cancelled its future
                    board.append(question)
            if board:
                await self._carry(board)

    async def _carry(self, board: list[_Question]) -> None:
        try:
            answers = await self._send(board)
        except asyncio.CancelledError:
            for question in board:
                _tell(question, _closed())
            raise
        except Exception as error:  # noqa: BLE001  # the callers raise it
            for question in board:
                _tell(question, error)
        else:
            for question, answer in zip(board, answers, strict=True):
                _tell(question, answer)

    async def _send(self, board: list[_Question]) -> list[Any]:
        async with asyncio.timeout(self._timeout_s):
            pipeline = self._client.pipeline(transaction=False)
            for question in board:
                for command in question.commands:
                    pipeline.execute_command(*command)
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
        answers: list[Any] = []
        last = -1
        for question in board:
            last += len(question.commands)
            answers.append(replies[last])
        return answers


def _closed() -> exceptions.ConnectionError:
    return exceptions.ConnectionError("closed")


def _tell(question: _Question, answer: Any) -> None:
    if question.answer.done():
        return
    if isinstance(answer, Exception):
        question.answer.set_exception(answer)
    else:
        question.answer.set_result(answer)
