"""A Redis with a replica, watched by three Sentinels, whose link to the replica can be cut."""

from __future__ import annotations

import re
from typing import Final

from chaos.bound.witness import Witness
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
    """A service that Sentinels watch, see `Deployment`.

    Faults concern the server that is the master in the beginning.
    """

    shards = 1

    def __init__(self, guard: Guard | None = None, witness: Witness | None = None) -> None:
        self._guard = guard
        self._witness = witness
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
        """Returns the port of a Sentinel."""
        return self._service.sentinels[0].port

    def start(self) -> None:
        self._service.__enter__()
        if self._witness is not None:
            self._witness.listen(self._service.master.socket)

    def stop(self) -> None:
        self._service.__exit__(None, None, None)

    def url(self, host: str, port: int) -> str:  # noqa: ARG002  # Sentinels name the master's address: no wire leads to it
        return self._url(USER)

    def rivals_url(self, host: str, port: int) -> str:  # noqa: ARG002  # likewise
        return self._url(RIVAL).partition("&sentinel_")[0]  # the library needs more rights than our user has

    @property
    def look_url(self) -> str:
        return self._url(USER)

    def _url(self, user: str) -> str:
        if self._guard is None:
            return self._service.url
        query = self._guard.query(sentinel_username="finder", sentinel_password=SECRET)
        return f"rediss+sentinel://{user}:{SECRET}@{self._service.hosts}/{SERVICE}?{query}"

    def reported(self, name: str) -> int:
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
        self._service.master.kill()

    def spawn(self) -> None:
        self._service.master.start()

    def await_answer(self) -> None:
        """Waits until the master accepts connections."""

    def pause(self) -> None:
        self._service.master.pause()

    def resume(self) -> None:
        self._service.master.resume()

    def cut_link(self) -> None:
        """Cuts the link by which the replica follows its master, for good."""
        self._service.cut_link()

    def await_failover(self) -> None:
        """Waits until all Sentinels name the replica as the master."""
        port = self._service.replica_port
        wait_until(self._service.has_failed_over, "the replica", FAILOVER_S)
        wait_until(lambda: self._service.is_agreed_on(port), "the sentinels", FAILOVER_S)


def _finder() -> str:
    """Returns the line that gives a Sentinel the user in the docstring of `SentinelHub`."""
    found = re.search(r"ACL SETUSER finder on >PASSWORD (.*)", SentinelHub.__doc__ or "")
    assert found is not None
    return f"user finder on >{SECRET} {found[1]}"
