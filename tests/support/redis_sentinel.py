"""A master, its replica and three Sentinels for tests, with a link between the first two that can be cut."""

from __future__ import annotations

from typing import Final, Self

from tests.support.servers import HELD_UP_MS, RedisServer, Server, Servers, accepts, free_port, redis_binary, wait_until

SERVICE: Final = "mymaster"
QUICK_MS: Final = 1000
"""The time, in ms, after which Sentinels call a master down, in tests that kill or stop one."""
READY_S_MAX: Final = 60.0


class Sentinel(Server):
    """One Sentinel on a loopback port, with a configuration file that it rewrites."""

    def __init__(self, master_port: int, *lines: str, tls: bool, down_after_ms: int) -> None:
        super().__init__()
        self.port = free_port()
        self._config = self.directory / f"sentinel-{self.port}.conf"
        port = [f"port {self.port}"] if not tls else ["port 0", f"tls-port {self.port}", "tls-replication yes"]
        self._config.write_text(
            "\n".join(
                [
                    *port,
                    "bind 127.0.0.1",
                    f"dir {self.directory}",
                    f"sentinel monitor {SERVICE} 127.0.0.1 {master_port} 2",
                    f"sentinel down-after-milliseconds {SERVICE} {down_after_ms}",
                    f"sentinel failover-timeout {SERVICE} 3000",
                    *lines,
                    "",
                ]
            )
        )

    def start(self) -> Self:
        log = self._config.with_suffix(".log")
        if self.run([redis_binary(), str(self._config), "--sentinel"], log, lambda: accepts(self.port)) is not None:
            raise RuntimeError(f"the sentinel ended at once: {log.read_text(errors='replace')}")
        return self


class RedisService(Servers):
    """Serves `SERVICE` with three Sentinels.

    The master stays the same unless it is silent for `down_after_ms`.
    """

    def __init__(
        self,
        *,
        tls: tuple[str, ...] = (),
        options: tuple[str, ...] = (),
        sentinel_lines: tuple[str, ...] = (),
        down_after_ms: int = HELD_UP_MS,
    ) -> None:
        super().__init__()
        self._down_after_ms = down_after_ms
        self._tls = tls
        ports = [free_port() for _ in range(2 if tls else 0)]
        ways = [("--tls-port", str(port), "--tls-replication", "yes", *tls) for port in ports] or [(), ()]
        common = ("--repl-diskless-sync-delay", "0", *options)
        self.master, self.replica = (RedisServer(*common, *each) for each in ways)
        self.master_port, self.replica_port = ports or (self.master.port, self.replica.port)
        self._lines = sentinel_lines
        self.sentinels: list[Sentinel] = []

    @property
    def hosts(self) -> str:
        """Returns the Sentinels as a URL names them."""
        return ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)

    @property
    def url(self) -> str:
        return f"redis+sentinel://{self.hosts}/{SERVICE}"

    def start(self) -> Self:
        """Starts all servers, and waits until each knows the others."""
        for server in (self.master, self.replica):
            self._stack.enter_context(server)
        # A user of its own, so that the link can be cut and nothing else.
        self.master.command("ACL", "SETUSER", "replica", "on", ">link", "+psync", "+replconf", "+ping")
        for name, value in (("masteruser", "replica"), ("masterauth", "link")):
            self.replica.command("CONFIG", "SET", name, value)
        self.replica.command("REPLICAOF", "127.0.0.1", str(self.master_port))
        wait_until(lambda: "link_status:up" in self.replica.command("INFO", "replication"), "the replica", READY_S_MAX)
        wait_until(lambda: "state=online" in self.master.command("INFO", "replication"), "the replica", READY_S_MAX)
        lines = [*self._lines]
        lines += [
            f"{name.removeprefix('--')} {value}" for name, value in zip(self._tls[::2], self._tls[1::2], strict=True)
        ]
        for _ in range(3):
            sentinel = Sentinel(self.master_port, *lines, tls=bool(self._tls), down_after_ms=self._down_after_ms)
            self._stack.enter_context(sentinel)
            self.sentinels.append(sentinel)
        wait_until(self._all_are_known, "the sentinels", READY_S_MAX)
        return self

    def cut_link(self) -> None:
        """Cuts the link by which the replica follows its master, for good."""
        assert self.master.command("ACL", "SETUSER", "replica", "off") == "+OK"
        self.master.command("CLIENT", "KILL", "TYPE", "replica")
        wait_until(lambda: "connected_slaves:0" in self.master.command("INFO", "replication"), "the cut", READY_S_MAX)

    def is_agreed_on(self, port: int) -> bool:
        """Returns whether all running Sentinels name this port as that of the master."""
        named = f"sentinel monitor {SERVICE} 127.0.0.1 {port} "
        return all(named in sentinel._config.read_text() for sentinel in self.sentinels)

    def has_failed_over(self) -> bool:
        """Returns whether the replica is the master now."""
        try:
            return "role:master" in self.replica.command("INFO", "replication")
        except OSError:  # a server that becomes another one's replica disconnects its clients
            return False

    def _all_are_known(self) -> bool:
        """Returns whether each Sentinel's file names the others and the replica."""
        needed = [f"known-replica {SERVICE} 127.0.0.1 {self.replica_port}"]
        said = [sentinel._config.read_text() for sentinel in self.sentinels]
        return all(word in text for text in said for word in needed) and all(
            text.count(f"known-sentinel {SERVICE}") == len(self.sentinels) - 1 for text in said
        )
