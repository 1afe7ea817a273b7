"""What can go wrong, as values: each knows how to begin on a stage, and how to end."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from chaos.faults.namespace import cut_rules, loss_rules
from chaos.faults.proxy import Toxic
from chaos.names import OURS, SETTINGS_SECRET, Nodes
from reconverge.hub import SettingsStore
from reconverge.hub.registry import HubSettings, open_hub
from reconverge.published.envelope import Secrets
from reconverge.published.settings import FleetSettings, seal

if TYPE_CHECKING:
    from chaos.stage import Stage

TERMS: Final = 8
TERM_PAUSE_S: Final = 0.01
KEYS_FIRST: Final = 2
"""So many keys of a slot go ahead of the others."""
VERSION_OF_SETTINGS: Final = 7
SETTINGS_LAST_S: Final = 3600
SETTINGS_TIMEOUT_S: Final = 10.0


class Fault(Protocol):
    """Something that goes wrong for a while, or at one moment."""

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        ...

    async def end(self, stage: Stage) -> None:
        """Have it be over. What happens at one moment has nothing to do here."""
        ...


class _Momentary:
    """What cannot be taken back."""

    async def end(self, stage: Stage) -> None:
        """Nothing to do."""


# -------------------------------------------------------------------- wires


@dataclass(frozen=True)
class Poisoned:
    """A toxic on the wires of some nodes."""

    toxic: Toxic
    who: Nodes = None

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        for wire in stage.wires_of(self.who):
            await wire.add(self.toxic)

    async def end(self, stage: Stage) -> None:
        """Have it be over."""
        for wire in stage.wires_of(self.who):
            await wire.remove(self.toxic)


@dataclass(frozen=True)
class Unplugged:
    """Connections are closed, and new ones refused."""

    who: Nodes = None

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        for wire in stage.wires_of(self.who):
            await wire.disable()

    async def end(self, stage: Stage) -> None:
        """Have it be over."""
        for wire in stage.wires_of(self.who):
            await wire.enable()


@dataclass(frozen=True)
class Reset(_Momentary):
    """Connections are closed at one moment, under whatever passes through them."""

    who: Nodes = None

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        for wire in stage.wires_of(self.who):
            await wire.disable()
            await wire.enable()


# -------------------------------------------------------------------- packets


@dataclass(frozen=True)
class Dropped:
    """No packet passes between some nodes and the server, in one direction or in both."""

    who: Nodes = None
    requests: bool = True
    replies: bool = True

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        rules = cut_rules(stage.numbers(self.who), requests=self.requests, replies=self.replies)
        await asyncio.to_thread(stage.network.drop, repr(self), rules)

    async def end(self, stage: Stage) -> None:
        """Have it be over."""
        await asyncio.to_thread(stage.network.pass_all, repr(self))


@dataclass(frozen=True)
class Lossy:
    """So many of all packets are lost."""

    percent: int

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        await asyncio.to_thread(stage.network.drop, repr(self), loss_rules(self.percent))

    async def end(self, stage: Stage) -> None:
        """Have it be over."""
        await asyncio.to_thread(stage.network.pass_all, repr(self))


# -------------------------------------------------------------------- the server


@dataclass(frozen=True)
class Killed:
    """The server is killed; it comes back empty."""

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        stage.deployment.kill()

    async def end(self, stage: Stage) -> None:
        """Have it be over."""
        stage.deployment.spawn()
        await asyncio.to_thread(stage.deployment.await_answer)


@dataclass(frozen=True)
class Stopped:
    """The server hangs: connections stay open, nothing is answered, and what came is answered later."""

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        stage.deployment.pause()

    async def end(self, stage: Stage) -> None:
        """Have it be over."""
        stage.deployment.resume()


@dataclass(frozen=True)
class ServerCommanded:
    """The server is given commands, by a way that no fault cuts, and others at the end; `{secret}` is its password."""

    commands: tuple[str, ...]
    undo: tuple[str, ...] = ()

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        for command in self.commands:
            await stage.tell_server(*command.format(secret=stage.secret).split())

    async def end(self, stage: Stage) -> None:
        """Have it be over."""
        for command in self.undo:
            await stage.tell_server(*command.format(secret=stage.secret).split())


@dataclass(frozen=True)
class Unsaved:
    """A snapshot fails, and the server refuses to write until that is forgiven."""

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        (stage.server.directory / "dump.rdb").mkdir(exist_ok=True)
        await stage.tell_server("CONFIG", "SET", "stop-writes-on-bgsave-error", "yes")
        await stage.tell_server("CONFIG", "SET", "save", "3600 1")
        await stage.tell_server("BGSAVE")

    async def end(self, stage: Stage) -> None:
        """Have it be over."""
        await stage.tell_server("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
        await stage.tell_server("CONFIG", "SET", "save", "")


@dataclass(frozen=True)
class Busy:
    """A script of somebody else's does not end."""

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        await stage.tell_server("CONFIG", "SET", "lua-time-limit", "20")
        await asyncio.to_thread(self._bother, stage)

    async def end(self, stage: Stage) -> None:
        """Have it be over."""
        await stage.tell_server("SCRIPT", "KILL")

    @staticmethod
    def _bother(stage: Stage) -> None:
        endless = socket.socket(socket.AF_UNIX)
        endless.connect(str(stage.server.socket))
        endless.sendall(f"AUTH {stage.secret}\r\nEVAL 'while true do end' 0\r\n".encode())
        stage.callback(endless.close)


@dataclass(frozen=True)
class Ahead:
    """The server's wall clock is so many seconds ahead."""

    seconds: int

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        stage.server.set_clock_ahead(self.seconds)

    async def end(self, stage: Stage) -> None:
        """Have it be over."""
        stage.server.set_clock_ahead(0)


@dataclass(frozen=True)
class Lagging:
    """What the server writes reaches its replica late."""

    latency_ms: int

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        await stage.replication.add(self._toxic)

    async def end(self, stage: Stage) -> None:
        """Have it be over."""
        await stage.replication.remove(self._toxic)

    @property
    def _toxic(self) -> Toxic:
        return Toxic("latency", "downstream", {"latency": self.latency_ms})


@dataclass(frozen=True)
class FailedOver(_Momentary):
    """The server is killed, its replica promoted, and all wires lead there."""

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        await stage.promote_replica()


# -------------------------------------------------------------------- several servers


@dataclass(frozen=True)
class MasterKilled:
    """One master of a cluster is killed; it comes back empty, and the fault is over when the cluster is whole."""

    master: int

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        stage.cluster.kill_master(self.master)

    async def end(self, stage: Stage) -> None:
        """Have it be over."""
        stage.cluster.spawn_master(self.master)
        await asyncio.to_thread(stage.cluster.await_answer)


@dataclass(frozen=True)
class SlotMoved:
    """A shard's slot goes to another master of a cluster; in between, each of the two has some of its keys."""

    shard: int

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        move = stage.cluster.move_of(self.shard)
        await asyncio.to_thread(move.begin)
        await asyncio.to_thread(move.move_keys, KEYS_FIRST)

    async def end(self, stage: Stage) -> None:
        """Have it be over."""
        move = stage.cluster.move_of(self.shard)
        while await asyncio.to_thread(move.move_keys):
            pass
        await asyncio.to_thread(move.finish)


@dataclass(frozen=True)
class LinkCut(_Momentary):
    """From now on the replica that Sentinels watch hears nothing of its master."""

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        await asyncio.to_thread(stage.service.cut_link)


@dataclass(frozen=True)
class MasterLost:
    """The master that Sentinels watch is killed for good; the fault is over when they say that the replica is it."""

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        stage.service.kill()

    async def end(self, stage: Stage) -> None:
        """Have it be over."""
        await asyncio.to_thread(stage.service.await_failover)


# -------------------------------------------------------------------- what others say to a broker


@dataclass(frozen=True)
class Clashed:
    """Somebody connects to the broker under the name of each member, which ends the member's connection."""

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        await stage.hostile_client.take_names()

    async def end(self, stage: Stage) -> None:
        """Have it be over."""
        await stage.hostile_client.give_names_back()


@dataclass(frozen=True)
class Fed(_Momentary):
    """Somebody who may publish everything publishes so many messages that make no sense."""

    messages: int

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        stage.noted |= await stage.hostile_client.publish_poison(self.messages)


@dataclass(frozen=True)
class Ordered(_Momentary):
    """Settings that change nothing are published for our fleet, signed, and for longer than the run."""

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        now_s = int(time.time())
        orders = FleetSettings(OURS, VERSION_OF_SETTINGS, now_s, now_s + SETTINGS_LAST_S, switch="on")
        hub = open_hub(stage.deployment.look_url, HubSettings(OURS, SETTINGS_TIMEOUT_S))
        assert isinstance(hub, SettingsStore)
        await hub.post(seal(orders, Secrets(SETTINGS_SECRET)), keep_s=SETTINGS_LAST_S)
        await hub.close()
        stage.noted["published"] = VERSION_OF_SETTINGS


LOSING: Final = (Killed, FailedOver, Ahead, MasterKilled, MasterLost)
"""After which a server does not know any more what it had confirmed."""


# -------------------------------------------------------------------- the nodes


@dataclass(frozen=True)
class NodeKilled:
    """A node is killed at once, and another process started in its place."""

    node: int

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        stage.nodes[self.node].kill()

    async def end(self, stage: Stage) -> None:
        """Have it be over."""
        await stage.nodes[self.node].start_again()


@dataclass(frozen=True)
class NodeEnded:
    """A node is ordered to end, by a supervisor without patience, and another process starts in its place."""

    node: int

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        for _ in range(TERMS):
            stage.nodes[self.node].signal(signal.SIGTERM)
            await asyncio.sleep(TERM_PAUSE_S)

    async def end(self, stage: Stage) -> None:
        """Have it be over."""
        await stage.nodes[self.node].start_again()


@dataclass(frozen=True)
class Commanded(_Momentary):
    """Nodes are ordered to do something to themselves: see `chaos.fleet.node`."""

    what: str
    amount: float
    who: Nodes = None

    async def begin(self, stage: Stage) -> None:
        """Have it go wrong."""
        for number in stage.numbers(self.who):
            stage.nodes[number].tell(self.what, amount=self.amount)
