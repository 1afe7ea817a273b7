"""One process's membership in a fleet at a broker: keeps a connection, sends claims, and dispatches messages.

It belongs to one event loop, and lasts from the first exchange until the hub is closed. Within that time there may be
several connections, and each has a name of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from secrets import token_hex
from typing import Any, Final, TypeVar

from reconverge.clock import SECOND_NS, Clock
from reconverge.errors import HubUnavailable
from reconverge.hub.report import Answer, Batch, Totals, add_totals
from reconverge_sync.mqtt.calling.calls import Call
from reconverge_sync.mqtt.connection import MqttLink
from reconverge_sync.mqtt.election import LeaderClaim, Role
from reconverge_sync.mqtt.leader import Candidate
from reconverge_sync.mqtt.messages import MEMBER, MalformedMessage, MessageKind, read_claim, write_claim
from reconverge_sync.mqtt.retained.state import ECHO, Retained
from reconverge_sync.mqtt.shard import ShardServer
from reconverge_sync.mqtt.url import BrokerAddress

VERSION: Final = "v1"
"""The version of the messages' topics, which is one word of each topic."""
PAUSE_S: Final = (0.5, 1.5)
"""The least and most seconds between two attempts to connect, chosen at random, so that not all nodes reconnect at
once."""
ASLEEP_SHARE: Final = 0.5
"""A member counts as having been busy or asleep if its timer is late by this fraction of a beat (the time between two
claims)."""
EARLY_MAX: Final = 256
"""The most messages that are stored until the broker has confirmed the subscription."""
WAIT_SHARE: Final = 3
"""A member waits for an answer for a tenure divided by this number; see `reconverge_sync.mqtt.leader.WAIT_NS`."""
SUCCEEDED_S: Final = 1.0
"""For how many seconds a leader that has handed over waits until its successor claims."""
KINDS: Final = {
    "batch": MessageKind.BATCH,
    "answer": MessageKind.ANSWER,
    "question": MessageKind.QUESTION,
    "totals": MessageKind.TOTALS,
    "ledger": MessageKind.LEDGER,
    "call": MessageKind.CALL,
    "reply": MessageKind.REPLY,
    "usage": MessageKind.USAGE,
}
"""For each word in the topic of a message to one member, the kind of the message."""
USAGE_SHARE: Final = 2
"""Of the time for handing over, one part in this number is for the usage; the rest is for the ledger."""
SWEPT_EVERY_NS: Final = 3600 * SECOND_NS
"""The nanoseconds between two sweeps, in which the leader deletes expired pages."""
SWEPT_FIRST_NS: Final = 60 * SECOND_NS
ELECTION_TENURES: Final = 4
"""For how many tenures a change of contracts waits for the election of a leader: the command that makes the change may
run before any node."""

_T = TypeVar("_T")


class Membership:
    """The membership of one process and event loop in a fleet at a broker, which begins when the object is made.

    See `MqttHub` for the arguments.
    """

    def __init__(
        self,
        address: BrokerAddress,
        namespace: str,
        *,
        timeout_s: float,
        clock: Clock,
        hub_clock: Clock | None,
        new_name: Callable[[], str],
        rejects: Counter[str],
    ) -> None:
        self._address = address
        self._root = f"{namespace}/rc/{VERSION}"
        self._timeout_s = timeout_s
        self._clock = clock
        self._wait_ns = address.tenure_ns // WAIT_SHARE
        self._rejects = rejects
        self._random = Random()
        self._takes_part = False
        self._link: MqttLink | None = None
        self._member = ""
        self._problem: HubUnavailable | None = None
        self._early: list[tuple[str, bytes, bool]] | None = []
        self._news = asyncio.Event()
        self._look_wanted = asyncio.Event()
        self.retained = Retained(
            self._root,
            clock,
            wait_ns=self._wait_ns,
            term=lambda: self.servers[0].election.term,
            claimed=lambda: self.servers[0].election.highest,
            may_answer=self._may_answer,
            rejects=rejects,
        )
        self._sweep_ns = clock.monotonic_ns() + SWEPT_FIRST_NS
        self._sweeping: asyncio.Task[None] | None = None
        self.servers = [
            ShardServer(
                shard,
                Candidate(
                    clock,
                    random=self._random,
                    new_name=new_name,
                    tenure_ns=address.tenure_ns,
                    wait_ns=self._wait_ns,
                    hub_clock=hub_clock,
                    shard=shard,
                ),
                clock=clock,
                wait_ns=self._wait_ns,
                post=self._poster(shard),
                rejects=rejects,
                swap=self.retained.index.swap if shard == 0 else None,
            )
            for shard in range(address.shards)
        ]
        loop = asyncio.get_running_loop()
        jobs = [self._stay_connected(), self._claim(), *(server.work(self.look_soon) for server in self.servers)]
        self._connecting, *_ = self._tasks = [loop.create_task(job, name="reconverge mqtt") for job in jobs]

    def take_part(self) -> None:
        """Makes this member a candidate for leader; one that only reads or publishes settings need not be one."""
        if not self._takes_part:
            self._takes_part = True
            if self._link is not None:
                self._join_elections()
                self.look_soon()

    async def complete(self) -> float:
        """Waits until all retained messages have come; returns how many seconds of the time limit are left then.

        Raises HubUnavailable.
        """
        return await self._until(lambda: self._link is not None and self.retained.complete, self._unread)

    async def at_broker(self, work: Callable[[Retained], Awaitable[_T]]) -> _T:
        """Returns the result of `work`, which needs the retained messages but no leader.

        Raises HubUnavailable, also if `work` takes longer than an exchange may take.
        """
        try:
            async with asyncio.timeout(await self.complete()):
                return await work(self.retained)
        except TimeoutError:
            raise self._unreturned() from None

    async def exchange(self, batch: Batch) -> Answer:
        server = self.servers[batch.shard]
        left_s = await self._leader_known(server)
        return await server.exchange(batch, min(left_s, self._wait_ns / SECOND_NS))

    async def totals(self) -> dict[str, Totals]:
        sums: dict[str, Totals] = {}
        for server in self.servers:
            left_s = await self._leader_known(server)
            add_totals(sums, await server.totals(left_s))
        return sums

    async def call(self, shard: int, call: Call, *, elects: bool = False) -> Any:
        """Sends a call to the leader of a shard and returns its reply; with `elects`, waits for an election, too.

        Raises HubUnavailable.
        """
        server = self.servers[shard]
        more_s = ELECTION_TENURES * self._address.tenure_ns / SECOND_NS if elects else 0.0
        left_s = await self._leader_known(server, more_s)
        return await server.call(call, min(left_s, self._wait_ns / SECOND_NS))

    def _may_answer(self, within_ns: int) -> bool:
        return self.servers[0].election.may_answer(self._clock.monotonic_ns(), within_ns=within_ns)

    async def _leader_known(self, server: ShardServer, more_s: float = 0.0) -> float:
        """Waits until a shard's leader can be asked, for at most the time of an exchange and `more_s` seconds.

        Returns how many seconds of that time are left. Raises HubUnavailable.
        """
        return await self._until(lambda: self._can_ask(server), lambda: self._no_leader(server), more_s)

    async def _until(
        self, condition: Callable[[], bool], problem: Callable[[], HubUnavailable], more_s: float = 0.0
    ) -> float:
        """Waits until `condition()` is true, for at most the time of an exchange and `more_s` seconds.

        Returns how many seconds of that time are left. If none are left, raises the exception that `problem` returns.
        Raises HubUnavailable, too, when there is no connection and the reason is known.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._timeout_s + more_s
        while not condition():
            if self._link is None and self._problem is not None:
                raise HubUnavailable(self._problem.kind, str(self._problem).partition(": ")[2], applied=False)
            try:
                async with asyncio.timeout_at(until_s):
                    await self._news.wait()
            except TimeoutError:
                raise problem() from None
        return max(0.0, until_s - loop.time())

    def _can_ask(self, server: ShardServer) -> bool:
        if server.election.role is Role.LEADER:
            return server.election.may_answer(self._clock.monotonic_ns(), within_ns=self._wait_ns)
        return self._link is not None and server.election.answering

    def _unconnected(self) -> HubUnavailable:
        return HubUnavailable(
            "timeout",
            f"there was no connection to the broker within {self._timeout_s:g} s; check that it runs",
            applied=False,
        )

    def _unread(self) -> HubUnavailable:
        if self._link is None:
            return self._unconnected()
        return self._unreturned()

    def _unreturned(self) -> HubUnavailable:
        advice = f"this member's messages do not come back; let its user read and write {self._root}/#"
        return HubUnavailable("permission", advice, applied=False)

    def _no_leader(self, server: ShardServer) -> HubUnavailable:
        if self._link is None:
            return self._unconnected()
        if server.election.unheard:
            return self._unread()
        return HubUnavailable(
            "no-leader",
            f"the members have not elected a leader of shard {server.shard} yet; try again in a moment",
            applied=False,
        )

    async def _stay_connected(self) -> None:
        while True:
            try:
                link = await self._connect()
            except HubUnavailable as problem:
                self._problem = problem
                self._tell()
            else:
                self._disconnected(await link.lost())
                link.sever()
            await asyncio.sleep(self._random.uniform(*PAUSE_S))

    async def _connect(self) -> MqttLink:
        """Connects to the broker, subscribes to all topics, and returns the connection. Raises HubUnavailable."""
        member = token_hex(10)
        gone = f"{self._root}/gone/"
        self._early = []
        link = MqttLink(
            self._address, name=member, gone_topic=gone + member, timeout_s=self._timeout_s, hear=self._hear
        )
        own = [self._topic_to(member, "+", "+", shard) for shard in range(len(self.servers))]
        claims = [self._claims_topic(shard) for shard in range(len(self.servers))]
        # Messages that come before all subscriptions are confirmed are stored: retained ones may be among them.
        await link.open([*claims, *own, f"{gone}+", *self.retained.topics])
        early, self._early = self._early, None
        self._link, self._member, self._problem = link, member, None
        if self._takes_part:
            self._join_elections()
        for message in early:
            self._hear(*message)
        self.retained.connect(link, member)
        self.look_soon()
        return link

    def _join_elections(self) -> None:
        for server in self.servers:
            server.election.join(self._member, self._clock.monotonic_ns())

    def _disconnected(self, problem: HubUnavailable) -> None:
        self._link, self._member, self._problem = None, "", problem
        self.retained.clear(problem)
        for server in self.servers:
            server.election.leave()
            server.fail(problem)
        self._tell()

    async def _claim(self) -> None:
        """Sends this member's claims in all shards when they are due, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due_ns = min(server.election.due_ns() for server in self.servers)
            alarm = None
            if self._member:
                alarm = loop.call_later(max(0, due_ns - self._clock.monotonic_ns()) / SECOND_NS, self._look_wanted.set)
            try:
                await self._look_wanted.wait()
            finally:
                if alarm is not None:
                    alarm.cancel()
            self._look_wanted.clear()
            self._tick(due_ns)

    def _tick(self, due_ns: int) -> None:
        now_ns = self._clock.monotonic_ns()
        for shard, server in enumerate(self.servers):
            election = server.election
            if now_ns - due_ns > ASLEEP_SHARE * election.beat_ns:
                election.excuse(now_ns)
            claim = election.tick(now_ns)
            if claim is not None and self._link is not None:
                self._link.post(self._claims_topic(shard), write_claim(claim), qos=1, retain=True)
        if now_ns >= self._sweep_ns and self._may_answer(0):
            self._sweep_ns = now_ns + SWEPT_EVERY_NS
            self._sweeping = asyncio.get_running_loop().create_task(self._sweep(), name="reconverge mqtt sweep")
        self._tell()

    async def _sweep(self) -> None:
        """Deletes expired pages; if that fails, the next sweep tries again."""
        with contextlib.suppress(HubUnavailable, TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                await self.retained.pages.sweep()

    def look_soon(self) -> None:
        """Makes the member check at once whether its claims are due, and whether the leader has changed."""
        self._look_wanted.set()

    def _tell(self) -> None:
        """Wakes the coroutines that wait in `_until`, so that they check their conditions again."""
        self._news.set()
        self._news = asyncio.Event()

    def _claims_topic(self, shard: int) -> str:
        return f"{self._root}/{shard}/claims"

    def _topic_to(self, member: str, kind: str, sender: str, shard: int) -> str:
        return f"{self._root}/{shard}/to/{member}/{kind}/{sender}"

    def _poster(self, shard: int) -> Callable[[str, MessageKind, bytes], bool]:
        def post(member: str, kind: MessageKind, payload: bytes) -> bool:
            if self._link is None or not member:
                return False
            return self._link.post(self._topic_to(member, kind.name.lower(), self._member, shard), payload)

        return post

    def _hear(self, topic: str, payload: bytes, kept: bool) -> None:  # noqa: FBT001  # a `Hear`, called by position
        """Processes a message that has come; `kept` is whether the broker had retained it. Never waits or raises."""
        if self._early is not None:
            if len(self._early) < EARLY_MAX:
                self._early.append((topic, payload, kept))
            return
        try:
            self._sort(topic.removeprefix(self._root + "/").split("/"), payload, kept=kept)
        except MalformedMessage as malformed:
            self._rejects[malformed.kind] += 1

    def _sort(self, words: list[str], payload: bytes, *, kept: bool) -> None:
        now_ns = self._clock.monotonic_ns()
        if self.retained.hear(words, payload):
            return
        if kept and words[1:] != ["claims"]:
            raise MalformedMessage(
                "retained", f"the broker retains a message at {'/'.join(words)[:80]}; delete it there"
            )
        match words:
            case ["gone", member] if MEMBER.fullmatch(member):
                for server in self.servers:
                    server.election.hear_gone(member, now_ns)
                self.look_soon()
            case [shard, "claims"]:
                claim = read_claim(payload)
                # The sender of a retained claim may be gone; if not, its next claim comes within a beat.
                self._server(shard).election.hear(claim._replace(answers=claim.answers and not kept), now_ns)
                self.look_soon()
            case ["0", "to", member, kind, sender] if kind == ECHO and member == sender == self._member:
                self.retained.hear_echo(payload)
                self._tell()
            case [shard, "to", member, kind, sender] if member == self._member and MEMBER.fullmatch(sender):
                if kind not in KINDS:
                    raise MalformedMessage("topic", f"its topic names {kind[:80]!r}, which is no kind of message")
                self._server(shard).hear(KINDS[kind], sender, payload)
            case _:
                raise MalformedMessage(
                    "topic", f"its topic is {'/'.join(words)[:80]}, at which no member sends messages"
                )

    def _server(self, shard: str) -> ShardServer:
        if not (shard.isascii() and shard.isdecimal() and int(shard) < len(self.servers)):
            raise MalformedMessage(
                "topic", f"its topic names shard {shard[:80]}, and only shards below {len(self.servers)} exist"
            )
        return self.servers[int(shard)]

    async def leave(self) -> None:
        """Hands the ledgers that this member keeps over to other members, and disconnects; always closes everything."""
        link = self._link
        try:
            self._connecting.cancel()
            if link is not None:
                with contextlib.suppress(TimeoutError, HubUnavailable):
                    async with asyncio.timeout(self._timeout_s):
                        await asyncio.gather(*(self._hand_over(shard, link) for shard in range(len(self.servers))))
                await link.close()
        finally:
            self.abandon()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _hand_over(self, shard: int, link: MqttLink) -> None:
        server, member = self.servers[shard], self._member

        async def deliver(successor: str, kind: MessageKind, payload: bytes) -> None:
            await link.deliver(self._topic_to(successor, kind.name.lower(), member, shard), payload)

        handed: tuple[LeaderClaim, str] | None = None
        try:
            handed = await server.hand_over(deliver, usage_s=self._timeout_s / USAGE_SHARE)
            if handed is not None and handed[1]:
                async with asyncio.timeout(min(SUCCEEDED_S, self._timeout_s / 2)):
                    while server.election.leader != handed[1]:
                        await self._news.wait()
                return
        except (TimeoutError, HubUnavailable):
            pass
        if handed is not None:
            await link.deliver(f"{self._root}/gone/{member}", b"")

    def abandon(self) -> None:
        """Cancels all tasks and drops the connection at once, even if the loop is closed."""
        for task in (*self._tasks, *(() if self._sweeping is None else (self._sweeping,))):
            with contextlib.suppress(RuntimeError):
                task.cancel()
        if self._link is not None:
            self._link.sever()
        self._link = None

    def abandon_in_fork(self) -> None:
        """Closes the forked child's copy of the parent's connection."""
        if self._link is not None:
            self._link.abandon_in_fork()
