"""Finds the master of a service: asks its Sentinels for the address, and the server at that address for its role."""

# Theory of operation.
#
# A Sentinel that hangs must not cost its time limit at each discovery, and one that a partition has cut off must not
# decide alone. redis-py's client asks the Sentinels one after the other and takes the first answer. Here all are asked
# at once, and the majority of those that have not failed decides; if the time is up, the address with the most votes.
#
# Sentinels may be wrong for a while, so the server is asked as well: every new connection says HELLO, for which no
# right is needed, and goes no further unless the answer says `master`. Otherwise `totals`, which only reads, would be
# read from a replica.
#
# After any failure but an ordinary error reply, the next exchange asks the Sentinels again. Nothing is retried within
# an exchange: that is up to the syncer.

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from typing import Any, Final

import redis.asyncio
from redis import exceptions

from reconverge.errors import HubUnavailable
from reconverge_sync.redis.connection import Connection, Place
from reconverge_sync.redis.diagnosis.diagnose import pairs
from reconverge_sync.redis.errors import from_wrong_server
from reconverge_sync.redis.hub import CONNECTIONS_MAX, OneServer

FIND_SHARE: Final = 0.4
"""The fraction of an exchange's time that the search for the master may take."""
ANSWER_SHARE: Final = 0.8
"""The fraction of an exchange's time that the master may take to answer; after that it is searched for anew."""


class SentinelMaster:
    """Sends commands to the master of a service; searches for it at first and after failures. Implements `Servers`.

    All Sentinels are asked at the same moment. Of those that do not fail, the majority decides which server is used; if
    the time is up before, the server with the most votes is used. Every connection begins with the question whether the
    server is a master, so that no replica is read or written.
    """

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._server: OneServer | None = None
        self._place: Place | None = None
        self._in_doubt = True
        self._finding = asyncio.Lock()
        self._ends: set[asyncio.Task[None]] = set()

    async def ask(self, shard: int, *command: object) -> object:
        async with asyncio.timeout(self._timeout_s):
            server = await self._found()
            sound = False
            try:
                answer = await server.ask(shard, *command)
                sound = True
            except exceptions.ResponseError as error:
                sound = not from_wrong_server(error)
                raise
            finally:
                if not sound:
                    self._in_doubt = True
            return answer

    async def place(self) -> Place:
        """Returns the address of the master that the Sentinels name. Raises HubUnavailable or the client's errors."""
        async with asyncio.timeout(self._timeout_s * FIND_SHARE):
            return await self._named()

    async def close(self) -> None:
        await self._close_server()
        await asyncio.gather(*self._ends)

    async def _close_server(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    async def _found(self) -> OneServer:
        async with self._finding:
            if self._server is None or self._in_doubt:
                place = await self._named()
                if self._server is None or place != self._place:
                    await self._close_server()
                    self._server = OneServer(self.client_at(place, connections_max=CONNECTIONS_MAX))
                    self._place = place
                self._in_doubt = False
            return self._server

    def client_at(self, place: Place, *, connections_max: int) -> redis.asyncio.Redis:
        """Returns a client of the server at `place`, whose connections fail unless that server is a master."""
        return self._connection.client(
            self._timeout_s * ANSWER_SHARE,
            connections_max=connections_max,
            place=place,
            redis_connect_func=_connect_to_master,
        )

    async def _named(self) -> Place:
        clients = {place: self._sentinel(place) for place in self._connection.places}
        questions = {
            asyncio.create_task(self._vote_of(place, client), name="reconverge-vote")
            for place, client in clients.items()
        }
        try:
            return await self._most_named(questions)
        finally:
            # In a task of its own, because the caller may be cancelled, and connections must be closed all the same.
            end = asyncio.create_task(_dismiss(questions, list(clients.values())), name="reconverge-dismissal")
            self._ends.add(end)
            end.add_done_callback(self._ends.discard)
            await asyncio.wait({end})

    async def _most_named(self, questions: set[asyncio.Task[Place]]) -> Place:
        votes: Counter[Place] = Counter()
        problem: BaseException | None = None
        until_s = asyncio.get_running_loop().time() + self._timeout_s * FIND_SHARE
        while questions:
            left_s = max(0.0, until_s - asyncio.get_running_loop().time())
            done, questions = await asyncio.wait(questions, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            for question in done:
                problem = problem or question.exception()
                if question.exception() is None:
                    votes[question.result()] += 1
            # A majority of all that have not failed: the answers that are still to come cannot change it.
            if not done or (votes and votes.most_common(1)[0][1] > (votes.total() + len(questions)) // 2):
                break
        if votes:
            return votes.most_common(1)[0][0]
        raise problem or exceptions.TimeoutError("no Sentinel answers; check the hosts in the URL")

    def _sentinel(self, place: Place) -> redis.asyncio.Redis:
        more = self._connection.more
        return self._connection.client(
            self._timeout_s * FIND_SHARE,
            connections_max=1,
            place=place,
            db=0,
            username=more.get("sentinel_username"),
            password=more.get("sentinel_password"),
            credential_provider=None,
        )

    async def _vote_of(self, sentinel: Place, client: redis.asyncio.Redis) -> Place:
        service = self._connection.service
        reply: Any = await client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
        if reply is None:
            raise HubUnavailable(
                "unknown-service",
                f"the Sentinel at {sentinel} knows no service {service!r}; correct the URL",
                applied=False,
            )
        host, port = (part.decode() if isinstance(part, bytes) else str(part) for part in reply)
        return Place(host, int(port))


async def _dismiss(questions: Collection[asyncio.Task[Place]], clients: Collection[redis.asyncio.Redis]) -> None:
    """Cancels the tasks that ask Sentinels, and closes the clients that they use."""
    for question in questions:
        question.cancel()
    await asyncio.gather(*questions, return_exceptions=True)
    await asyncio.gather(*(client.aclose() for client in clients), return_exceptions=True)


async def _connect_to_master(connection: Any) -> None:
    """Logs a new connection in, and checks that its server is a master. Raises ReadOnlyError if it is not."""
    await connection.on_connect()
    await connection.send_command("HELLO")
    role = pairs(await connection.read_response()).get("role")
    if role != "master":
        raise exceptions.ReadOnlyError(
            f"READONLY the server that the Sentinels name is a {role}; wait until they name a master"
        )
