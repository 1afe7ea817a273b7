"""Members at one broker whose elections need no waiting: they share a clock, which leaps while no member answers."""

from __future__ import annotations

import asyncio
from secrets import token_hex
from typing import Any, Final

from reconverge.clock import SECOND_NS, Clock, SystemClock
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import Answer, Batch, Totals
from reconverge_sync.merge.rule import LedgerShard
from reconverge_sync.mqtt.calling.calls import Call
from reconverge_sync.mqtt.election import BEATS
from reconverge_sync.mqtt.hub import MqttHub
from reconverge_sync.mqtt.shard import ShardServer
from reconverge_sync.mqtt.usage import MqttUsage
from tests.support.waiting import eventually_in_loop

TENURE_NS: Final = 60 * SECOND_NS
"""A tenure so long that no leader loses its place because the machine is busy."""
TIMEOUT_S: Final = 30.0


class LeapingClock:
    """The machine's clock, with the time by which all members are ahead of it."""

    def __init__(self) -> None:
        self._ahead_ns = 0

    def monotonic_ns(self) -> int:
        return SystemClock.monotonic_ns() + self._ahead_ns

    def wall_ns(self) -> int:
        return SystemClock.wall_ns()

    def leap(self) -> None:
        """Lets half a beat pass."""
        self._ahead_ns += TENURE_NS // BEATS // 2


class MqttFleet:
    """All members of one namespace. `hub_clock`, if any, gives the hub's time.

    A leader that stops waits for a report only if `waits_to_give`: up to 7 s, in each test in which none comes.
    """

    def __init__(
        self, url: str, *, hub_clock: Clock | None = None, namespace: str | None = None, waits_to_give: bool = False
    ) -> None:
        self.url = f"{url}{'&' if '?' in url else '?'}tenure={TENURE_NS // SECOND_NS}"
        self.namespace = namespace or f"shop-{token_hex(4)}"
        self.hub_clock = hub_clock
        self.waits_to_give = waits_to_give
        self.clock = LeapingClock()
        self.hubs: list[ImpatientHub] = []
        self._electing: ShardServer | None = None
        """The server for which time leaps, so that it leaps once for all."""

    def join(self) -> ImpatientHub:
        hub = ImpatientHub(self)
        self.hubs.append(hub)
        return hub

    def servers(self, shard: int = 0) -> list[ShardServer]:
        """Returns the part of each connected member in that shard."""
        memberships = [hub._per_loop.thing for hub in self.hubs]
        return [membership.servers[shard] for membership in memberships if membership is not None]

    def ledgers(self, shard: int = 0) -> list[LedgerShard]:
        """Returns the leader's ledger, if there is a leader; there is never more than one."""
        return [server.candidate.ledger for server in self.servers(shard) if server.candidate.ledger is not None]

    def keepers(self, shard: int = 0) -> list[ImpatientHub]:
        """Returns the member that keeps the ledger, if there is one."""
        memberships = [(hub, hub._per_loop.thing) for hub in self.hubs]
        return [hub for hub, one in memberships if one is not None and one.servers[shard].candidate.ledger is not None]

    async def elect(self, server: ShardServer) -> None:
        """Waits until a member knows a leader; time passes in leaps while no member answers."""

        def can_ask() -> bool:
            if server.election.answering:
                return True
            if self._electing is not server:
                return False
            now_ns = self.clock.monotonic_ns()
            elections = [one.election for one in self.servers(server.shard)]
            answering = [election for election in elections if election.may_answer(now_ns, within_ns=0)]
            for election in answering:
                election._next_ns = now_ns  # so that new members need not wait to hear of it
            if not answering:
                self.clock.leap()
            for hub in self.hubs:
                if hub._per_loop.thing is not None:
                    hub._per_loop.thing.look_soon()
            return False

        def may_elect() -> bool:
            if self._electing is None:
                self._electing = server
            return can_ask()

        try:
            await eventually_in_loop(may_elect, "somebody answers")
        finally:
            if self._electing is server:
                self._electing = None


class ImpatientHub(MqttHub):
    """A member of such a fleet."""

    def __init__(self, fleet: MqttFleet) -> None:
        settings = HubSettings(fleet.namespace, TIMEOUT_S)
        super().__init__(fleet.url, settings, clock=fleet.clock, hub_clock=fleet.hub_clock)
        self.fleet = fleet

    async def exchange(self, batch: Batch) -> Answer:
        await self.fleet.elect(self.membership().servers[batch.shard])
        return await super().exchange(batch)

    async def totals(self) -> dict[str, Totals]:
        for server in self.membership().servers:
            await self.fleet.elect(server)
        return await super().totals()

    async def _ask(self, shard: int, call: Call, *, takes_part: bool = False, elects: bool = False) -> Any:
        """Elects a leader first, as for an exchange."""
        await self.fleet.elect(self.membership().servers[shard])
        return await super()._ask(shard, call, takes_part=takes_part, elects=elects)

    async def close(self) -> None:
        membership = self._per_loop.thing
        if membership is not None and not self.fleet.waits_to_give:
            for server in membership.servers:
                server._reported.set()
        await super().close()

    async def dies(self) -> None:
        """Ends this member as a crash does; if it is used again, it is another one."""
        membership = self._per_loop.take()
        if membership is None:
            return
        dead = membership._member
        membership.abandon()
        await asyncio.gather(*membership._tasks, return_exceptions=True)
        others = [server for shard in range(self.shards) for server in self.fleet.servers(shard)]
        await eventually_in_loop(
            lambda: not any(server.election.leader == dead for server in others), "the broker has told of its end"
        )


class ShowingFleet:
    """Two members in the place of one: the first is elected for all shards, and tests use the second."""

    def __init__(self, url: str, *, hub_clock: Clock | None = None) -> None:
        self.fleet = MqttFleet(url, hub_clock=hub_clock)
        self._leader, self._follower = self.fleet.join(), self.fleet.join()

    @property
    def usage(self) -> MqttUsage:
        return MqttUsage(self._ask, shards=self._follower.shards)

    async def _ask(self, shard: int, call: Call, *, takes_part: bool = False) -> Any:
        await self.fleet.elect(self._leader.membership().servers[shard])
        return await self._follower._ask(shard, call, takes_part=takes_part)

    async def close(self) -> None:
        await self._follower.close()
        await self._leader.close()
