"""The faults, as values: each has a method that begins it on a stage, and one that ends it."""

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
"""The number of a slot's keys that are moved before the others."""
VERSION_OF_SETTINGS: Final = 7
SETTINGS_LAST_S: Final = 3600
SETTINGS_TIMEOUT_S: Final = 10.0


class Fault(Protocol):
    """A fault that lasts for a while, or happens at one moment."""

    async def begin(self, stage: Stage) -> None:
        """Begins the fault."""
        ...

    async def end(self, stage: Stage) -> None:
        """Ends the fault; does nothing if the fault happens at one moment."""
        ...


class _Momentary:
    """A fault that happens at one moment, and cannot be undone."""

    async def end(self, stage: Stage) -> None:
        """Does nothing."""


# -------------------------------------------------------------------- wires


@dataclass(frozen=True)
class Poisoned:
    """A toxic on the wires of some nodes."""

    toxic: Toxic
    who: Nodes = None

    async def begin(self, stage: Stage) -> None:
        for wire in stage.wires_of(self.who):
            await wire.add(self.toxic)

    async def end(self, stage: Stage) -> None:
        for wire in stage.wires_of(self.who):
            await wire.remove(self.toxic)


@dataclass(frozen=True)
class Unplugged:
    """Connections are closed, and new ones are refused."""

    who: Nodes = None

    async def begin(self, stage: Stage) -> None:
        for wire in stage.wires_of(self.who):
            await wire.disable()

    async def end(self, stage: Stage) -> None:
        for wire in stage.wires_of(self.who):
            await wire.enable()


@dataclass(frozen=True)
class Reset(_Momentary):
    """Connections are closed at one moment, even in the middle of a message."""

    who: Nodes = None

    async def begin(self, stage: Stage) -> None:
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
        rules = cut_rules(stage.numbers(self.who), requests=self.requests, replies=self.replies)
        await asyncio.to_thread(stage.network.drop, repr(self), rules)

    async def end(self, stage: Stage) -> None:
        await asyncio.to_thread(stage.network.pass_all, repr(self))


@dataclass(frozen=True)
class Lossy:
    """A share of all packets is lost."""

    percent: int

    async def begin(self, stage: Stage) -> None:
        await asyncio.to_thread(stage.network.drop, repr(self), loss_rules(self.percent))

    async def end(self, stage: Stage) -> None:
        await asyncio.to_thread(stage.network.pass_all, repr(self))


# -------------------------------------------------------------------- the server


@dataclass(frozen=True)
class Killed:
    """The server is killed, and comes back empty."""

    async def begin(self, stage: Stage) -> None:
        stage.deployment.kill()

    async def end(self, stage: Stage) -> None:
        stage.deployment.spawn()
        await asyncio.to_thread(stage.deployment.await_answer)


@dataclass(frozen=True)
class Stopped:
    """The server hangs: connections stay open, and what arrives meanwhile is answered only afterwards."""

    async def begin(self, stage: Stage) -> None:
        stage.deployment.pause()

    async def end(self, stage: Stage) -> None:
        stage.deployment.resume()


@dataclass(frozen=True)
class ServerCommanded:
    """The server is given commands, by a connection that no fault cuts, and others at the end.

    `{secret}` in a command is the server's password.
    """

    commands: tuple[str, ...]
    undo: tuple[str, ...] = ()

    async def begin(self, stage: Stage) -> None:
        for command in self.commands:
            await stage.tell_server(*command.format(secret=stage.secret).split())

    async def end(self, stage: Stage) -> None:
        for command in self.undo:
            await stage.tell_server(*command.format(secret=stage.secret).split())


@dataclass(frozen=True)
class Unsaved:
    """A snapshot fails, and the server refuses to write until the failure is cleared."""

    async def begin(self, stage: Stage) -> None:
        (stage.server.directory / "dump.rdb").mkdir(exist_ok=True)
        await stage.tell_server("CONFIG", "SET", "stop-writes-on-bgsave-error", "yes")
        await stage.tell_server("CONFIG", "SET", "save", "3600 1")
        await stage.tell_server("BGSAVE")

    async def end(self, stage: Stage) -> None:
        await stage.tell_server("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
        await stage.tell_server("CONFIG", "SET", "save", "")


@dataclass(frozen=True)
class Busy:
    """A script of another program does not end."""

    async def begin(self, stage: Stage) -> None:
        await stage.tell_server("CONFIG", "SET", "lua-time-limit", "20")
        await asyncio.to_thread(self._bother, stage)

    async def end(self, stage: Stage) -> None:
        await stage.tell_server("SCRIPT", "KILL")

    @staticmethod
    def _bother(stage: Stage) -> None:
        endless = socket.socket(socket.AF_UNIX)
        endless.connect(str(stage.server.socket))
        endless.sendall(f"AUTH {stage.secret}\r\nEVAL 'while true do end' 0\r\n".encode())
        stage.callback(endless.close)


@dataclass(frozen=True)
class Ahead:
    """The server's wall clock is ahead by a number of seconds."""

    seconds: int

    async def begin(self, stage: Stage) -> None:
        stage.server.set_clock_ahead(self.seconds)

    async def end(self, stage: Stage) -> None:
        stage.server.set_clock_ahead(0)


@dataclass(frozen=True)
class Lagging:
    """The replica receives the server's writes late."""

    latency_ms: int

    async def begin(self, stage: Stage) -> None:
        await stage.replication.add(self._toxic)

    async def end(self, stage: Stage) -> None:
        await stage.replication.remove(self._toxic)

    @property
    def _toxic(self) -> Toxic:
        return Toxic("latency", "downstream", {"latency": self.latency_ms})


@dataclass(frozen=True)
class FailedOver(_Momentary):
    """The server is killed, its replica is promoted, and all wires lead to the replica."""

    async def begin(self, stage: Stage) -> None:
        await stage.promote_replica()


# -------------------------------------------------------------------- several servers


@dataclass(frozen=True)
class MasterKilled:
    """One master of a cluster is killed, and comes back empty; the fault is over when the cluster is whole."""

    master: int

    async def begin(self, stage: Stage) -> None:
        stage.cluster.kill_master(self.master)

    async def end(self, stage: Stage) -> None:
        stage.cluster.spawn_master(self.master)
        await asyncio.to_thread(stage.cluster.await_answer)


@dataclass(frozen=True)
class SlotMoved:
    """A shard's slot moves to another master of a cluster; meanwhile, each of the two masters has some of its keys."""

    shard: int

    async def begin(self, stage: Stage) -> None:
        move = stage.cluster.move_of(self.shard)
        await asyncio.to_thread(move.begin)
        await asyncio.to_thread(move.move_keys, KEYS_FIRST)

    async def end(self, stage: Stage) -> None:
        move = stage.cluster.move_of(self.shard)
        while await asyncio.to_thread(move.move_keys):
            pass
        await asyncio.to_thread(move.finish)


@dataclass(frozen=True)
class LinkCut(_Momentary):
    """The replica that Sentinels watch hears nothing of its master, for good."""

    async def begin(self, stage: Stage) -> None:
        await asyncio.to_thread(stage.service.cut_link)


@dataclass(frozen=True)
class MasterLost:
    """The master that Sentinels watch is killed for good; the fault is over when they name the replica."""

    async def begin(self, stage: Stage) -> None:
        stage.service.kill()

    async def end(self, stage: Stage) -> None:
        await asyncio.to_thread(stage.service.await_failover)


# -------------------------------------------------------------------- what others say to a broker


@dataclass(frozen=True)
class Clashed:
    """Another client connects to the broker under the name of each member, which ends the member's connection."""

    async def begin(self, stage: Stage) -> None:
        await stage.hostile_client.take_names()

    async def end(self, stage: Stage) -> None:
        await stage.hostile_client.give_names_back()


@dataclass(frozen=True)
class Fed(_Momentary):
    """A client that may publish everything publishes a number of messages that make no sense."""

    messages: int

    async def begin(self, stage: Stage) -> None:
        stage.noted |= await stage.hostile_client.publish_poison(self.messages)


@dataclass(frozen=True)
class Ordered(_Momentary):
    """Settings that change nothing are published for our fleet: signed, and valid for longer than the run."""

    async def begin(self, stage: Stage) -> None:
        now_s = int(time.time())
        orders = FleetSettings(OURS, VERSION_OF_SETTINGS, now_s, now_s + SETTINGS_LAST_S, switch="on")
        hub = open_hub(stage.deployment.look_url, HubSettings(OURS, SETTINGS_TIMEOUT_S))
        assert isinstance(hub, SettingsStore)
        await hub.post(seal(orders, Secrets(SETTINGS_SECRET)), keep_s=SETTINGS_LAST_S)
        await hub.close()
        stage.noted["published"] = VERSION_OF_SETTINGS


LOSING: Final = (Killed, FailedOver, Ahead, MasterKilled, MasterLost)
"""The faults after which a server lacks data that it had confirmed."""


# -------------------------------------------------------------------- the nodes


@dataclass(frozen=True)
class NodeKilled:
    """A node is killed at once, and another process started in its place."""

    node: int

    async def begin(self, stage: Stage) -> None:
        stage.nodes[self.node].kill()

    async def end(self, stage: Stage) -> None:
        await stage.nodes[self.node].start_again()


@dataclass(frozen=True)
class NodeEnded:
    """A node is ordered to end, by a supervisor without patience, and another process starts in its place."""

    node: int

    async def begin(self, stage: Stage) -> None:
        for _ in range(TERMS):
            stage.nodes[self.node].signal(signal.SIGTERM)
            await asyncio.sleep(TERM_PAUSE_S)

    async def end(self, stage: Stage) -> None:
        await stage.nodes[self.node].start_again()


@dataclass(frozen=True)
class Commanded(_Momentary):
    """Nodes are ordered to do something to themselves: see `chaos.fleet.node`."""

    what: str
    amount: float
    who: Nodes = None

    async def begin(self, stage: Stage) -> None:
        for number in stage.numbers(self.who):
            stage.nodes[number].tell(self.what, amount=self.amount)
