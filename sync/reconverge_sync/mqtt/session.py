"""One process's membership in a fleet that meets at a broker: keeps connected, claims, and sorts what comes.

It belongs to one event loop, and lasts from the first exchange until the hub is closed; a connection lasts shorter,
and each has a name of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from random import Random
from secrets import token_hex
from typing import Final

from reconverge.clock import SECOND_NS, Clock
from reconverge.errors import HubUnavailable
from reconverge.hub.report import Answer, Batch, Totals, add_totals
from reconverge_sync.mqtt.connection import MqttLink
from reconverge_sync.mqtt.election import Claim, Role
from reconverge_sync.mqtt.leader import Candidate
from reconverge_sync.mqtt.messages import MEMBER, Kind, MalformedMessage, read_claim, write_claim
from reconverge_sync.mqtt.settings import PostedSettings
from reconverge_sync.mqtt.shard import ShardServer
from reconverge_sync.mqtt.url import BrokerAddress

VERSION: Final = "v1"
"""Of the topics."""
PAUSE_S: Final = (0.5, 1.5)
"""Between two attempts to connect, at random, so that a fleet does not come back as one."""
ASLEEP_SHARE: Final = 0.5
"""A member that looks at the time by so much of a beat too late was busy, or asleep."""
EARLY_MAX: Final = 256
"""So many messages that come before the subscription is confirmed are kept until then."""
WAIT_SHARE: Final = 3
"""An answer is waited for for a third of a tenure; see `reconverge_sync.mqtt.leader.WAIT_NS`."""
SUCCEEDED_S: Final = 1.0
"""How long a leader that has handed over waits to hear that its successor answers."""
KINDS: Final = {
    "batch": Kind.BATCH,
    "answer": Kind.ANSWER,
    "question": Kind.QUESTION,
    "totals": Kind.TOTALS,
    "ledger": Kind.LEDGER,
}
"""What messages to one member are called in their topic."""
ECHO: Final = "echo"
"""A message to oneself: when it comes, what the broker had kept for newcomers has come, too."""


class Membership:
    """Made in the loop that it runs in, and begins there. See `MqttHub` for its arguments."""

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
        self._board = PostedSettings()
        self._link: MqttLink | None = None
        self._member = ""
        self._problem: HubUnavailable | None = None
        self._early: list[tuple[str, bytes, bool]] | None = []
        self._news = asyncio.Event()
        self._look_wanted = asyncio.Event()
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
                ),
                clock=clock,
                wait_ns=self._wait_ns,
                post=self._poster(shard),
                rejects=rejects,
            )
            for shard in range(address.shards)
        ]
        loop = asyncio.get_running_loop()
        jobs = [self._stay_connected(), self._claim(), *(server.work(self.look_soon) for server in self.servers)]
        self._connecting, *_ = self._tasks = [loop.create_task(job, name="reconverge mqtt") for job in jobs]

    def take_part(self) -> None:
        """Be a candidate for leader from now on; a member that only reads or posts settings need not be."""
        if not self._takes_part:
            self._takes_part = True
            if self._link is not None:
                self._join_elections()
                self.look_soon()

    async def post(self, payload: bytes, *, keep_s: float) -> None:
        """See `SettingsStore.post`. Returns when the message has come back: brokers confirm forbidden posts, too."""
        left_s = await self._until(lambda: self._link is not None, self._unconnected)
        assert self._link is not None
        topic = self._settings_topic
        with self._board.awaited(payload) as back:
            if not self._link.post(topic, payload, qos=1, retain=True, keep_s=keep_s):
                raise HubUnavailable("busy", "the broker does not take what there is to post", applied=False)
            try:
                async with asyncio.timeout(left_s):
                    await back
            except TimeoutError:
                advice = f"what was posted does not come back; may its user read and write {topic}?"
                raise HubUnavailable("permission", advice) from None

    async def read(self) -> bytes | None:
        """What was posted last, as far as it is kept. Raises HubUnavailable."""
        await self._until(lambda: self._link is not None and self._board.complete, self._unread)
        return self._board.payload

    async def exchange(self, batch: Batch) -> Answer:
        """See `Hub.exchange`."""
        server = self.servers[batch.shard]
        left_s = await self._leader_known(server)
        return await server.exchange(batch, min(left_s, self._wait_ns / SECOND_NS))

    async def totals(self) -> dict[str, Totals]:
        """See `Hub.totals`."""
        sums: dict[str, Totals] = {}
        for server in self.servers:
            left_s = await self._leader_known(server)
            add_totals(sums, await server.totals(left_s))
        return sums

    async def _leader_known(self, server: ShardServer) -> float:
        """Wait until a leader can be asked; returns how much time is left for that. Raises HubUnavailable."""
        return await self._until(lambda: self._can_ask(server), lambda: self._no_leader(server))

    async def _until(self, condition: Callable[[], bool], problem: Callable[[], HubUnavailable]) -> float:
        """Wait for that; returns how much time is left. Raises HubUnavailable: `problem` if there is none."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._timeout_s
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
        return HubUnavailable("timeout", "no connection in time", applied=False)

    def _unread(self) -> HubUnavailable:
        if self._link is None:
            return self._unconnected()
        advice = f"what this member sends does not come back; may its user read and write {self._root}/#?"
        return HubUnavailable("permission", advice, applied=False)

    def _no_leader(self, server: ShardServer) -> HubUnavailable:
        if self._link is None:
            return self._unconnected()
        if server.election.unheard:
            return self._unread()
        return HubUnavailable("no-leader", "no member has been elected to answer yet", applied=False)

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
        """A connection on which everything is heard from now on. Raises HubUnavailable."""
        member = token_hex(10)
        gone = f"{self._root}/gone/"
        self._early = []
        link = MqttLink(
            self._address, name=member, gone_topic=gone + member, timeout_s=self._timeout_s, hear=self._hear
        )
        own = [self._topic_to(member, "+", "+", shard) for shard in range(len(self.servers))]
        claims = [self._claims_topic(shard) for shard in range(len(self.servers))]
        # Messages that come before all subscriptions are confirmed are kept: what the broker has retained may
        # be among them.
        await link.open([*claims, *own, f"{gone}+", self._settings_topic])
        early, self._early = self._early, None
        self._link, self._member, self._problem = link, member, None
        if self._takes_part:
            self._join_elections()
        for message in early:
            self._hear(*message)
        link.post(self._topic_to(member, ECHO, member, 0), b"", qos=1)
        self.look_soon()
        return link

    def _join_elections(self) -> None:
        for server in self.servers:
            server.election.join(self._member, self._clock.monotonic_ns())

    def _disconnected(self, problem: HubUnavailable) -> None:
        self._link, self._member, self._problem = None, "", problem
        self._board.clear(problem)
        for server in self.servers:
            server.election.leave()
            server.fail(problem)
        self._tell()

    async def _claim(self) -> None:
        """Send claims when they are due."""
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
        self._tell()

    def look_soon(self) -> None:
        """Have a look at once at what is due, and which member is the leader."""
        self._look_wanted.set()

    def _tell(self) -> None:
        """Wake the coroutines that wait for a change."""
        self._news.set()
        self._news = asyncio.Event()

    @property
    def _settings_topic(self) -> str:
        return f"{self._root}/settings"

    def _claims_topic(self, shard: int) -> str:
        return f"{self._root}/{shard}/claims"

    def _topic_to(self, member: str, kind: str, sender: str, shard: int) -> str:
        return f"{self._root}/{shard}/to/{member}/{kind}/{sender}"

    def _poster(self, shard: int) -> Callable[[str, Kind, bytes], bool]:
        def post(member: str, kind: Kind, payload: bytes) -> bool:
            if self._link is None or not member:
                return False
            return self._link.post(self._topic_to(member, kind.name.lower(), self._member, shard), payload)

        return post

    def _hear(self, topic: str, payload: bytes, kept: bool) -> None:  # noqa: FBT001  # a `Hear`, called by position
        """A message has come. Never waits and never fails."""
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
        if words == ["settings"]:
            self._board.hear(payload)
            return
        if kept and words[1:] != ["claims"]:
            raise MalformedMessage("retained")
        match words:
            case ["gone", member] if MEMBER.fullmatch(member):
                for server in self.servers:
                    server.election.hear_gone(member, now_ns)
                self.look_soon()
            case [shard, "claims"]:
                claim = read_claim(payload)
                # The sender of what the broker has kept may be gone; if not, it is heard within a beat.
                self._server(shard).election.hear(claim._replace(answers=claim.answers and not kept), now_ns)
                self.look_soon()
            case ["0", "to", member, "echo", sender] if member == sender == self._member:
                self._board.complete = True
                self._tell()
            case [shard, "to", member, kind, sender] if member == self._member and MEMBER.fullmatch(sender):
                if kind not in KINDS:
                    raise MalformedMessage("topic")
                self._server(shard).hear(KINDS[kind], sender, payload)
            case _:
                raise MalformedMessage("topic")

    def _server(self, shard: str) -> ShardServer:
        if not (shard.isascii() and shard.isdecimal() and int(shard) < len(self.servers)):
            raise MalformedMessage("topic")
        return self.servers[int(shard)]

    async def leave(self) -> None:
        """Hand over what this member keeps for all, and go. However that ends, everything is let go of."""
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

        async def deliver(successor: str, kind: Kind, payload: bytes) -> None:
            await link.deliver(self._topic_to(successor, kind.name.lower(), member, shard), payload)

        handed: tuple[Claim, str] | None = None
        try:
            handed = await server.hand_over(deliver)
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
        """Let go of everything at once, even where the loop is closed."""
        for task in self._tasks:
            with contextlib.suppress(RuntimeError):
                task.cancel()
        if self._link is not None:
            self._link.sever()
        self._link = None

    def abandon_in_fork(self) -> None:
        """Let go of what belongs to the parent, in a fork."""
        if self._link is not None:
            self._link.abandon_in_fork()
