"""A Redis with a replica, watched by three Sentinels, whose link to the replica can be cut."""

from __future__ import annotations

import re
from typing import Final

from chaos.deployments.deployment import RIVAL, USER, Guard, redis_users
from chaos.names import REPORTED, SECRET
from reconverge_sync.redis.hub import RedisHub
from reconverge_sync.sentinel.hub import SentinelHub
from tests.support.certificates import tls_options
from tests.support.redis_cluster import bulk_strings
from tests.support.redis_sentinel import QUICK_MS, SERVICE, RedisService
from tests.support.servers import wait_until

FAILOVER_S: Final = 30.0


class Service:
    """See `Deployment`. What is done to it is done to the master that it had in the beginning."""

    shards = 1

    def __init__(self, guard: Guard | None = None) -> None:
        self._guard = guard
        if guard is None:
            self._service = RedisService(down_after_ms=QUICK_MS)
        else:
            self._service = RedisService(
                tls=tls_options(guard.certificates),
                options=redis_users(RedisHub.__doc__ or ""),
                sentinel_lines=(_finder(),),
                down_after_ms=QUICK_MS,
            )

    @property
    def port(self) -> int:
        """See `Deployment.port`: that of a Sentinel."""
        return self._service.sentinels[0].port

    def start(self) -> None:
        """See `Deployment.start`."""
        self._service.__enter__()

    def stop(self) -> None:
        """See `Deployment.stop`."""
        self._service.__exit__(None, None, None)

    def url(self, host: str, port: int) -> str:  # noqa: ARG002  # Sentinels say where the master is: no wire leads there
        """See `Deployment.url`."""
        return self._url(USER)

    def rivals_url(self, host: str, port: int) -> str:  # noqa: ARG002  # likewise
        """See `Deployment.rivals_url`."""
        return self._url(RIVAL).partition("&sentinel_")[0]  # the library asks Sentinels more than our user may

    @property
    def look_url(self) -> str:
        """See `Deployment.look_url`."""
        return self._url(USER)

    def _url(self, user: str) -> str:
        if self._guard is None:
            return self._service.url
        query = self._guard.query(sentinel_username="finder", sentinel_password=SECRET)
        return f"rediss+sentinel://{user}:{SECRET}@{self._service.hosts}/{SERVICE}?{query}"

    def reported(self, name: str) -> int:
        """See `Deployment.reported`."""
        for server in (self._service.master, self._service.replica):
            try:
                said = server.command("INFO", "replication")
            except OSError:
                continue
            if "role:master" in said:
                return sum(map(int, bulk_strings(server.command("HVALS", f"{name}:{REPORTED}"))))
        raise OSError("there is no master")

    # ---------------------------------------------------------------- what faults do to it

    def kill(self) -> None:
        """See `Deployment.kill`."""
        self._service.master.kill()

    def spawn(self) -> None:
        """See `Deployment.spawn`."""
        self._service.master.start()

    def await_answer(self) -> None:
        """See `Deployment.await_answer`: it is there once it accepts connections."""

    def pause(self) -> None:
        """See `Deployment.pause`."""
        self._service.master.pause()

    def resume(self) -> None:
        """See `Deployment.resume`."""
        self._service.master.resume()

    def cut_link(self) -> None:
        """From now on the replica hears nothing of its master."""
        self._service.cut_link()

    def await_failover(self) -> None:
        """Wait until all Sentinels say that the replica is the master."""
        port = self._service.replica_port
        wait_until(self._service.has_failed_over, "the replica", FAILOVER_S)
        wait_until(lambda: self._service.is_agreed_on(port), "the sentinels", FAILOVER_S)


def _finder() -> str:
    """The line by which a Sentinel has the user that `SentinelHub` speaks of."""
    found = re.search(r"ACL SETUSER finder on >PASSWORD (.*)", SentinelHub.__doc__ or "")
    assert found is not None
    return f"user finder on >{SECRET} {found[1]}"
