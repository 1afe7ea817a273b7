"""A Redis Cluster for tests: real servers that know each other, and can be made to move a slot."""

from __future__ import annotations

import socket
from random import Random
from typing import Final, Self

from redis.crc import key_slot

from tests.support.servers import HELD_UP_MS, PORTS, RedisServer, Servers, wait_until

SLOTS: Final = 16384
BUS_OFFSET: Final = 10_000
"""The difference between a server's port for other servers and its port for clients."""
KEYS_AT_ONCE: Final = 1000
FORMING_S_MAX: Final = 60.0
QUICK_MS: Final = 1000
"""The time, in ms, after which servers call a silent one failed, in tests that kill or stop some; until then they form
a cluster."""


class RedisCluster(Servers):
    """Masters that share the slots evenly, in the order of `servers`, each with the same number of replicas.

    `tls` are options that make each of them listen with TLS too, on the port in `tls_ports` of the same place. A server
    counts as failed when it is silent for `failed_after_ms`.
    """

    def __init__(
        self,
        *options: str,
        masters: int = 3,
        replicas: int = 0,
        tls: tuple[str, ...] = (),
        failed_after_ms: int = HELD_UP_MS,
    ) -> None:
        super().__init__()
        self._failed_after_ms = failed_after_ms
        self.masters = masters
        self.tls_ports = [free_cluster_port() for _ in range(masters * (1 + replicas) if tls else 0)]
        common = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(QUICK_MS)]
        common += ["--cluster-require-full-coverage", "no"]
        common += ["--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0", *tls, *options]
        self.servers = [
            RedisServer(
                *common,
                *(("--tls-port", str(self.tls_ports[number])) if tls else ()),
                port=free_cluster_port(),
            )
            for number in range(masters * (1 + replicas))
        ]

    @property
    def url(self) -> str:
        """Returns the URL for a hub: that of the first server."""
        return f"redis+cluster://127.0.0.1:{self.servers[0].port}"

    def owner_of(self, key: str) -> RedisServer:
        """Returns the server that had the key's slot in the beginning."""
        return self.servers[key_slot(key.encode()) * self.masters // SLOTS]

    def port_of(self, server: RedisServer) -> int:
        """Returns a server's port for clients in the cluster."""
        return self.tls_ports[self.servers.index(server)] if self.tls_ports else server.port

    def is_whole(self) -> bool:
        """Returns whether every server agrees that all slots are served."""
        infos = [server.command("CLUSTER", "INFO") for server in self.servers]
        return all("cluster_state:ok" in info and f"cluster_slots_ok:{SLOTS}" in info for info in infos)

    def flush(self) -> None:
        for server in self.servers[: self.masters]:
            server.command("FLUSHALL")

    def command(self, *words: str) -> None:
        """Runs a command on each server, which has to answer OK."""
        for server in self.servers:
            said = server.command(*words)
            assert said == "+OK", said

    def start(self) -> Self:
        for number, server in enumerate(self.servers):
            self._stack.enter_context(server)
            server.command("CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))
        bounds = [number * SLOTS // self.masters for number in range(self.masters + 1)]
        for number, server in enumerate(self.servers[: self.masters]):
            # Not ADDSLOTSRANGE, which Redis 6.2 lacks.
            server.command("CLUSTER", "ADDSLOTS", *map(str, range(bounds[number], bounds[number + 1])))
        ports = self.tls_ports or [server.port for server in self.servers]
        for server in self.servers:
            server.command("CLUSTER", "MEET", "127.0.0.1", str(ports[0]))
        wait_until(lambda: all(self._knows_all(server) for server in self.servers), "the cluster", FORMING_S_MAX)
        for number, server in enumerate(self.servers[self.masters :]):
            server.command("CLUSTER", "REPLICATE", node_id(self.servers[number % self.masters]))
        wait_until(self._is_formed, "the cluster", FORMING_S_MAX)
        self.command("CONFIG", "SET", "cluster-node-timeout", str(self._failed_after_ms))
        self.settle()
        return self

    def settle(self) -> None:
        """Waits until all have heard of the others' last moves; else a slot that is moved may fall back."""
        wait_until(self._is_settled, "the epochs of the cluster", FORMING_S_MAX)

    def _is_settled(self) -> bool:
        infos = [server.command("CLUSTER", "INFO") for server in self.servers[: self.masters]]
        newest, own = (
            [_number(info, name) for info in infos] for name in ("cluster_current_epoch", "cluster_my_epoch")
        )
        return len(set(newest)) == 1 and len(set(own)) == len(own) and max(own) <= newest[0]

    def _knows_all(self, server: RedisServer) -> bool:
        return "cluster_known_nodes:" + str(len(self.servers)) in server.command("CLUSTER", "INFO")

    def _is_formed(self) -> bool:
        for server in self.servers[: self.masters]:
            info = server.command("CLUSTER", "INFO")
            if "cluster_state:ok" not in info or f"cluster_slots_ok:{SLOTS}" not in info:
                return False
            if f"cluster_size:{self.masters}" not in info:
                return False
        replicas = self.servers[self.masters :]
        return all("master_link_status:up" in replica.command("INFO", "replication") for replica in replicas)


class SlotMove:
    """One slot on its way from one server to another, as `redis-cli --cluster reshard` does it, in steps."""

    def __init__(self, slot: int, source: RedisServer, target: RedisServer, *, port: int | None = None) -> None:
        self._slot = str(slot)
        self._source = source
        self._target = target
        self._port = port or target.port
        """The port at which the source finds the target: another one, if they speak TLS with each other."""

    def begin(self) -> None:
        """Announces to both servers that the slot is about to move."""
        self._expect_ok(self._target, "IMPORTING", node_id(self._source))
        self._expect_ok(self._source, "MIGRATING", node_id(self._target))

    def move_keys(self, count: int = KEYS_AT_ONCE) -> int:
        """Moves up to a number of keys. Returns how many there were."""
        keys = bulk_strings(self._source.command("CLUSTER", "GETKEYSINSLOT", self._slot, str(count)))
        if keys:
            to = ["127.0.0.1", str(self._port), "", "0", "5000", "KEYS"]
            said = self._source.command("MIGRATE", *to, *keys)
            assert said in ("+OK", "+NOKEY"), said
        return len(keys)

    def finish(self) -> None:
        """Declares to both servers, the target first, that the slot is the target's."""
        for server in (self._target, self._source):
            self._expect_ok(server, "NODE", node_id(self._target))

    def carry_out(self) -> None:
        self.begin()
        while self.move_keys():
            pass
        self.finish()

    def _expect_ok(self, server: RedisServer, *words: str) -> None:
        said = server.command("CLUSTER", "SETSLOT", self._slot, *words)
        assert said == "+OK", said


def node_id(server: RedisServer) -> str:
    """Returns the name by which the others know a server."""
    return server.command("CLUSTER", "MYID").split("\r\n")[-1]


def _number(info: str, name: str) -> int:
    return int(info.partition(f"{name}:")[2].partition("\r\n")[0])


def bulk_strings(reply: str) -> list[str]:
    """Returns the items of an array of strings without line ends, in the form in which they were sent."""
    return reply.split("\r\n")[2::2]


def free_cluster_port() -> int:
    """Returns a port on which no process listens, nor on the port for servers that belongs to it."""
    random = Random()
    while True:
        port = random.randrange(*PORTS)
        with socket.socket() as one, socket.socket() as other:
            try:
                one.bind(("127.0.0.1", port))
                other.bind(("127.0.0.1", port + BUS_OFFSET))
            except OSError:
                continue
            return port
