"""A Redis Cluster of three masters, of which one can be killed, and which can be made to move its slots."""

from __future__ import annotations

from typing import Final

from chaos.deployments.deployment import RIVAL, USER, Guard, redis_users
from chaos.names import REPORTED, SECRET, hash_of
from reconverge_sync.cluster.hub import ClusterHub
from reconverge_sync.cluster.topology import slot_of
from tests.support.certificates import tls_options
from tests.support.redis_cluster import QUICK_MS, SLOTS, RedisCluster, SlotMove
from tests.support.servers import wait_until

MASTERS: Final = 3
SHARDS: Final = 8
"""Each master has several in the beginning; see `shards_of`."""
WHOLE_S: Final = 30.0


def master_of(shard: int) -> int:
    """The number of the master that a shard lives with in the beginning."""
    return slot_of(shard) * MASTERS // SLOTS


def shards_of(master: int) -> frozenset[int]:
    """Those that live with a master in the beginning."""
    return frozenset(shard for shard in range(SHARDS) if master_of(shard) == master)


class Cluster:
    """See `Deployment`. Whatever is done to it as a whole is done to each of its servers."""

    shards = SHARDS

    def __init__(self, guard: Guard | None = None) -> None:
        self._guard = guard
        options = () if guard is None else redis_users(ClusterHub.__doc__ or "")
        tls = () if guard is None else (*tls_options(guard.certificates), "--tls-cluster", "yes")
        self._cluster = RedisCluster(*options, masters=MASTERS, tls=tls, failed_after_ms=QUICK_MS)
        self.servers = self._cluster.servers

    @property
    def port(self) -> int:
        """See `Deployment.port`: that of the first server."""
        return self._cluster.port_of(self.servers[0])

    def start(self) -> None:
        """See `Deployment.start`."""
        self._cluster.__enter__()

    def stop(self) -> None:
        """See `Deployment.stop`."""
        self._cluster.__exit__(None, None, None)

    def url(self, host: str, port: int) -> str:  # noqa: ARG002  # its servers say where they are, so no wire leads there
        """See `Deployment.url`."""
        return self._url()

    def rivals_url(self, host: str, port: int) -> str:  # noqa: ARG002  # likewise
        """See `Deployment.rivals_url`. Without TLS: their library spends so much on it that ours would be held up."""
        login = "" if self._guard is None else f"{RIVAL}:{SECRET}@"
        return f"redis+cluster://{login}{','.join(f'127.0.0.1:{server.port}' for server in self.servers)}"

    @property
    def look_url(self) -> str:
        """See `Deployment.look_url`."""
        return self.url("", 0)

    def _url(self) -> str:
        places = ",".join(f"127.0.0.1:{self._cluster.port_of(server)}" for server in self.servers)
        if self._guard is None:
            return f"redis+cluster://{places}?shards={SHARDS}"
        return f"rediss+cluster://{USER}:{SECRET}@{places}?{self._guard.query(shards=str(SHARDS))}"

    def reported(self, name: str) -> int:
        """See `Deployment.reported`."""
        return sum(self._reported(hash_of(name, REPORTED, shard, SHARDS)) for shard in range(SHARDS))

    def _reported(self, key: str) -> int:
        for server in self.servers:
            reply = server.command("HGET", key, "all")
            if reply.startswith("$"):
                return 0 if reply == "$-1" else int(reply.partition("\r\n")[2])
        raise OSError(f"nobody owns the slot of {key}")

    # ---------------------------------------------------------------- what faults do to it

    def kill(self) -> None:
        """See `Deployment.kill`."""
        for server in self.servers:
            server.kill()

    def spawn(self) -> None:
        """See `Deployment.spawn`. What a server knows of the others it has written down."""
        for server in self.servers:
            server.start()

    def kill_master(self, number: int) -> None:
        """The same for one of them."""
        self.servers[number].kill()

    def spawn_master(self, number: int) -> None:
        """Likewise."""
        self.servers[number].start()

    def await_answer(self) -> None:
        """See `Deployment.await_answer`: wait until all servers agree that all slots are served."""
        wait_until(self._cluster.is_whole, "the cluster", WHOLE_S)

    def pause(self) -> None:
        """See `Deployment.pause`."""
        for server in self.servers:
            server.pause()

    def resume(self) -> None:
        """See `Deployment.resume`."""
        for server in self.servers:
            server.resume()

    def move_of(self, shard: int) -> SlotMove:
        """How a shard's slot goes from the master that it lives with in the beginning to the next one."""
        source, target = (self.servers[(master_of(shard) + step) % MASTERS] for step in (0, 1))
        return SlotMove(slot_of(shard), source, target, port=self._cluster.port_of(target))
