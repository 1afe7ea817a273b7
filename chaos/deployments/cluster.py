"""A Redis Cluster of three masters, one of which can be killed, and which can be made to move its slots."""

from __future__ import annotations

from typing import Final

from chaos.bound.witness import Witness
from chaos.deployments.deployment import RIVAL, USER, Guard, redis_users
from chaos.names import REPORTED, SECRET, hash_of
from reconverge_sync.cluster.hub import ClusterHub
from reconverge_sync.cluster.topology import slot_of
from tests.support.certificates import tls_options
from tests.support.redis_cluster import QUICK_MS, SLOTS, RedisCluster, SlotMove
from tests.support.servers import wait_until

MASTERS: Final = 3
SHARDS: Final = 8
"""The number of shards: each master has several in the beginning; see `shards_of`."""
WHOLE_S: Final = 30.0


def master_of(shard: int) -> int:
    """Returns the number of the master that has a shard in the beginning."""
    return slot_of(shard) * MASTERS // SLOTS


def shards_of(master: int) -> frozenset[int]:
    """Returns the shards that a master has in the beginning."""
    return frozenset(shard for shard in range(SHARDS) if master_of(shard) == master)


class Cluster:
    """A Redis Cluster, see `Deployment`. Faults of the whole deployment concern each of its servers."""

    shards = SHARDS

    def __init__(self, guard: Guard | None = None, witness: Witness | None = None) -> None:
        self._guard = guard
        self._witness = witness
        options = () if guard is None else redis_users(ClusterHub.__doc__ or "")
        tls = () if guard is None else (*tls_options(guard.certificates), "--tls-cluster", "yes")
        self._cluster = RedisCluster(*options, masters=MASTERS, tls=tls, failed_after_ms=QUICK_MS)
        self.servers = self._cluster.servers

    @property
    def port(self) -> int:
        """Returns the port of the first server."""
        return self._cluster.port_of(self.servers[0])

    def start(self) -> None:
        self._cluster.__enter__()
        for number in range(MASTERS):
            self._witnessed(number)

    def stop(self) -> None:
        self._cluster.__exit__(None, None, None)

    def url(self, host: str, port: int) -> str:  # noqa: ARG002  # its servers announce their own addresses, so no wire leads to them
        return self._url()

    def rivals_url(self, host: str, port: int) -> str:  # noqa: ARG002  # likewise
        """Returns the URL for rivals, without TLS: their library is so slow with it that ours would be held up."""
        login = "" if self._guard is None else f"{RIVAL}:{SECRET}@"
        return f"redis+cluster://{login}{','.join(f'127.0.0.1:{server.port}' for server in self.servers)}"

    @property
    def look_url(self) -> str:
        return self.url("", 0)

    def _url(self) -> str:
        places = ",".join(f"127.0.0.1:{self._cluster.port_of(server)}" for server in self.servers)
        if self._guard is None:
            return f"redis+cluster://{places}?shards={SHARDS}"
        return f"rediss+cluster://{USER}:{SECRET}@{places}?{self._guard.query(shards=str(SHARDS))}"

    def reported(self, name: str) -> int:
        return sum(self._reported(hash_of(name, REPORTED, shard, SHARDS)) for shard in range(SHARDS))

    def _reported(self, key: str) -> int:
        for server in self.servers:
            reply = server.command("HGET", key, "all")
            if reply.startswith("$"):
                return 0 if reply == "$-1" else int(reply.partition("\r\n")[2])
        raise OSError(f"nobody owns the slot of {key}")

    # ---------------------------------------------------------------- what faults do to it

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    def spawn(self) -> None:
        """Starts the servers again. A server knows the others from its own files."""
        for number in range(MASTERS):
            self.spawn_master(number)

    def kill_master(self, number: int) -> None:
        """Kills one master as a crash does."""
        self.servers[number].kill()

    def spawn_master(self, number: int) -> None:
        """Starts a killed master again, empty."""
        self.servers[number].start()
        self._witnessed(number)

    def _witnessed(self, number: int) -> None:
        if self._witness is not None:
            self._witness.listen(self.servers[number].socket, number)

    def await_answer(self) -> None:
        """Waits until all servers agree that all slots are served."""
        wait_until(self._cluster.is_whole, "the cluster", WHOLE_S)

    def pause(self) -> None:
        for server in self.servers:
            server.pause()

    def resume(self) -> None:
        for server in self.servers:
            server.resume()

    def move_of(self, shard: int) -> SlotMove:
        """Returns the move of a shard's slot from its master in the beginning to the next master."""
        source, target = (self.servers[(master_of(shard) + step) % MASTERS] for step in (0, 1))
        return SlotMove(slot_of(shard), source, target, port=self._cluster.port_of(target))
