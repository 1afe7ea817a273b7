"""The one master of a service, where most of its Sentinels say that it is, and as long as it says so itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

import redis.asyncio
from redis import exceptions

from reconverge.errors import HubUnavailable
from reconverge_sync.redis import CONNECTIONS_MAX, OneServer
from reconverge_sync.redis_connection import Connection, Place
from reconverge_sync.redis_diagnosis import pairs

FIND_SHARE: Final = 0.4
"""How much of an exchange's time finding the master may take."""
ANSWER_SHARE: Final = 0.8
"""How much of it the master may take; whoever takes longer is doubted, and it is looked for anew."""


class Watched:
    """Asks the master of a service, and finds out who that is, at first and after every failure. See `Servers`.

    All Sentinels are asked at the same moment, and as soon as most of those that have not failed name the same server,
    that is the one; if the time is up, the one that is named most. Every connection to it begins with the question
    whether it is a master: no replica is written to, nor read.
    """

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._server: OneServer | None = None
        self._place: Place | None = None
        self._in_doubt = True
        self._finding = asyncio.Lock()

    async def ask(self, shard: int, *command: object) -> object:
        """See `Servers.ask`."""
        async with asyncio.timeout(self._timeout_s):
            server = await self._found()
            sound = False
            try:
                answer = await server.ask(shard, *command)
                sound = True
            except exceptions.ResponseError as error:
                sound = not isinstance(error, exceptions.ReadOnlyError) and "READONLY" not in str(error)
                raise
            finally:
                if not sound:
                    self._in_doubt = True
            return answer

    async def place(self) -> Place:
        """Where the Sentinels say now that the master is. Raises HubUnavailable, or whatever the client does."""
        async with asyncio.timeout(self._timeout_s * FIND_SHARE):
            return await self._named()

    async def close(self) -> None:
        """See `Servers.close`."""
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    async def _found(self) -> OneServer:
        async with self._finding:
            if self._server is None or self._in_doubt:
                place = await self._named()
                if self._server is None or place != self._place:
                    await self.close()
                    self._server = OneServer(self._client(place))
                    self._place = place
                self._in_doubt = False
            return self._server

    def _client(self, place: Place) -> redis.asyncio.Redis:
        return self._connection.client(
            self._timeout_s * ANSWER_SHARE,
            connections_max=CONNECTIONS_MAX,
            place=place,
            redis_connect_func=_connect_to_master,
        )

    async def _named(self) -> Place:
        votes: Counter[Place] = Counter()
        problem: BaseException | None = None
        questions = {
            asyncio.create_task(self._vote_of(sentinel), name="reconverge-vote") for sentinel in self._connection.places
        }
        for question in questions:
            question.add_done_callback(_heed)
        until_s = asyncio.get_running_loop().time() + self._timeout_s * FIND_SHARE
        try:
            while questions:
                left_s = until_s - asyncio.get_running_loop().time()
                done, questions = await asyncio.wait(
                    questions, timeout=max(0.0, left_s), return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    break
                for question in done:
                    problem = problem or question.exception()
                    if question.exception() is None:
                        votes[question.result()] += 1
                if votes and votes.most_common(1)[0][1] > (votes.total() + len(questions)) // 2:
                    break
        finally:
            for question in questions:
                question.cancel()
            await asyncio.gather(*questions, return_exceptions=True)  # for their connections to be closed
        if votes:
            return votes.most_common(1)[0][0]
        raise problem or exceptions.TimeoutError("no Sentinel answers")

    async def _vote_of(self, sentinel: Place) -> Place:
        more = self._connection.more
        client = self._connection.client(
            self._timeout_s * FIND_SHARE,
            connections_max=1,
            place=sentinel,
            db=0,
            username=more.get("sentinel_username"),
            password=more.get("sentinel_password"),
        )
        service = self._connection.service
        try:
            reply: Any = await client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
        finally:
            await client.aclose()
        if reply is None:
            raise HubUnavailable("unknown-service", f"the Sentinel at {sentinel} knows no {service!r}", applied=False)
        host, port = (part.decode() if isinstance(part, bytes) else str(part) for part in reply)
        return Place(host, int(port))


async def _connect_to_master(connection: Any) -> None:
    """What a connection begins with: the login, and the question whether this is a master."""
    await connection.on_connect()
    await connection.send_command("HELLO")
    role = pairs(await connection.read_response()).get("role")
    if role != "master":
        raise exceptions.ReadOnlyError(f"READONLY the server that the Sentinels name is a {role}")


def _heed(task: asyncio.Task[Place]) -> None:
    """An exception that nobody looks at would be logged, with what it shows."""
    if not task.cancelled():
        task.exception()
