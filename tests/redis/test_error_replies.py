"""Goal: whatever Redis answers instead of an answer, it has its own kind, and nothing is lost or counted twice.

Method: an agent with a real loop on a real server, which is made to fail in each way that a server can be made to
fail in, and then healed. Requests go on all the while.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

import pytest
import redis

from reconverge import Agent, RateLimiter
from reconverge.hub.report import SCHEMA_VERSION
from tests.support.agents import net_at
from tests.support.fixtures.servers import PASSWORD, shop_url
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

Fault = Callable[[RedisServer, redis.Redis], AbstractContextManager[None]]
"""Breaks a server for a while; the client is a connection that was there before, and stays."""


def _configured(name: str, value: str, healed: str) -> Fault:
    @contextmanager
    def fault(server: RedisServer, admin: redis.Redis) -> Iterator[None]:
        admin.config_set(name, value)
        yield
        admin.config_set(name, healed)

    return fault


def _acl(taken: str, given: str) -> Fault:
    @contextmanager
    def fault(server: RedisServer, admin: redis.Redis) -> Iterator[None]:
        admin.execute_command("ACL", "SETUSER", "shop", *taken.split())
        _cut(admin)
        yield
        admin.execute_command("ACL", "SETUSER", "shop", *given.split())

    return fault


@contextmanager
def _no_password_is_enough(server: RedisServer, admin: redis.Redis) -> Iterator[None]:
    admin.config_set("requirepass", "another")
    _cut(admin)
    yield
    admin.config_set("requirepass", "")


@contextmanager
def _is_a_replica(server: RedisServer, admin: redis.Redis) -> Iterator[None]:
    admin.execute_command("REPLICAOF", "127.0.0.1", free_port())
    yield
    admin.execute_command("REPLICAOF", "NO", "ONE")


@contextmanager
def _is_a_replica_that_serves_nothing(server: RedisServer, admin: redis.Redis) -> Iterator[None]:
    admin.config_set("replica-serve-stale-data", "no")
    with _is_a_replica(server, admin):
        yield


@contextmanager
def _cannot_save(server: RedisServer, admin: redis.Redis) -> Iterator[None]:
    (server.directory / "dump.rdb").mkdir()
    admin.config_set("save", "3600 1")
    admin.bgsave()
    eventually(lambda: admin.info("persistence")["rdb_last_bgsave_status"] == "err", "a snapshot has failed")
    yield
    admin.config_set("stop-writes-on-bgsave-error", "no")


@contextmanager
def _is_full_of_clients(server: RedisServer, admin: redis.Redis) -> Iterator[None]:
    admin.config_set("maxclients", 1)
    _cut(admin)
    yield
    admin.config_set("maxclients", 100)


@contextmanager
def _is_busy_with_a_script(server: RedisServer, admin: redis.Redis) -> Iterator[None]:
    admin.config_set("lua-time-limit", 20)
    with closing(socket.socket(socket.AF_UNIX)) as endless:
        endless.connect(str(server.socket))
        endless.sendall(b"EVAL 'while true do end' 0\r\n")
        yield
        admin.script_kill()


def _stored(kind: str, key: str, *words: str) -> Fault:
    @contextmanager
    def fault(server: RedisServer, admin: redis.Redis) -> Iterator[None]:
        with admin.pipeline(transaction=True) as both:  # or an exchange in between makes the key anew
            both.rename(key, "kept")
            both.execute_command(kind, key, *words)
            both.execute()
        yield
        admin.rename("kept", key)

    return fault


CELL = f"shop:{{0}}:c{SCHEMA_VERSION}:login:1:86400000000:ada"
FAULTS: dict[str, tuple[str, Fault]] = {
    "wrong password": ("auth", _acl(f"resetpass >x{PASSWORD}", f"resetpass >{PASSWORD}")),
    "user switched off": ("auth", _acl("off", "on")),
    "no right to run scripts": ("permission", _acl("-eval -evalsha", "+eval +evalsha")),
    "no right to write within scripts": ("permission", _acl("-hset", "+hset")),
    "no right to have keys expire": ("permission", _acl("-pexpire", "+pexpire")),
    "no right to the keys": ("permission", _acl("resetkeys", "~shop:*")),
    "too few replicas": ("no-replicas", _configured("min-replicas-to-write", "1", "0")),
    "read-only replica": ("read-only", _is_a_replica),
    "replica without a master": ("master-down", _is_a_replica_that_serves_nothing),
    "snapshot failed": ("misconfigured", _cannot_save),
    "too many clients": ("too-many-clients", _is_full_of_clients),
    "busy": ("busy", _is_busy_with_a_script),
    "meta of another type": ("script", _stored("SET", "shop:{0}:meta", "x")),
    "nodes of another type": ("script", _stored("RPUSH", "shop:{0}:nodes", "x")),
    "accounts of another type": ("script", _stored("SADD", "shop:{0}:accounts", "x")),
    "cell of another type": ("script", _stored("SET", CELL, "x")),
    "cell that is no msgpack": ("script", _stored("HSET", CELL, "g", "x")),
}


@pytest.mark.parametrize("name", FAULTS)
def test_an_error_reply_has_its_kind_and_costs_nothing(
    acl_redis: RedisServer, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """It is counted under that kind, warned of once, and when it is over the hub knows exactly what was admitted."""
    kind, fault = FAULTS[name]
    _check_outage(acl_redis, shop_url(acl_redis), kind, fault, caplog)


def test_a_password_that_is_asked_for_all_of_a_sudden(own_redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """An agent without a password hears that it needs one."""
    _check_outage(own_redis, own_redis.url, "auth", _no_password_is_enough, caplog)


def test_a_server_that_is_loading_its_data(caplog: pytest.LogCaptureFixture) -> None:
    """After a crash it answers nothing until it has read its last snapshot, which is behind; then all is as it was."""
    slow = ["--key-load-delay", "1500", "--loading-process-events-interval-bytes", "1024"]
    with RedisServer("--enable-debug-command", "yes", *slow) as server:

        @contextmanager
        def fault(server: RedisServer, admin: redis.Redis) -> Iterator[None]:
            admin.execute_command("DEBUG", "POPULATE", "500", "x", "100")
            admin.save()
            server.kill()
            server.start()
            yield

        _check_outage(server, server.url, "loading", fault, caplog)


@pytest.mark.slow
def test_a_cluster_that_has_not_been_set_up_yet(caplog: pytest.LogCaptureFixture) -> None:
    """A node of a cluster in which nobody serves the key's slot says so; when it serves all slots, all is well."""
    with RedisServer("--cluster-enabled", "yes", "--cluster-port", str(free_port())) as server:
        with Agent(server.url, namespace="shop", sync_interval=0.02) as agent:
            login = agent.limit("login", "1000000/day")
            admitted = sum(login.allow("ada") for _ in range(10))
            eventually(lambda: _failures(agent).get("cluster-down"), "the cluster is down")
            server.command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
            eventually(lambda: agent.ready, "the cluster is up")

        assert admitted == net_at(server.url, namespace="shop")


def _check_outage(server: RedisServer, url: str, kind: str, fault: Fault, caplog: pytest.LogCaptureFixture) -> None:
    """Lets an agent live through a fault of that kind."""
    caplog.set_level(logging.WARNING, "reconverge")
    agent = Agent(url, namespace="shop", sync_interval=0.02, exchange_timeout=0.5, max_silence=0)
    login = agent.limit("login", "1000000/day")
    asked = _Asked(login)
    with closing(redis.Redis(unix_socket_path=str(server.socket))) as admin, agent:
        admin.ping()
        eventually(lambda: asked.some_more() and agent.ready and _reported(agent), "the hub has answered")
        before = _failures(agent)
        with fault(server, admin):
            eventually(lambda: asked.some_more() and _failures(agent).get(kind), f"a failure of kind {kind}")
            eventually(lambda: asked.some_more() and agent.stats().exchanges[0].failures_in_a_row > 2, "more failures")
        eventually(lambda: asked.some_more() and not agent.stats().exchanges[0].failures_in_a_row, "the fault is over")

    assert {} == before
    assert set(_failures(agent)) <= {kind, "connection", "refused", "timeout"}
    assert asked.admitted == net_at(server.url, namespace="shop")
    assert 0 == agent.stats().bugs
    assert ["unavailable", "again"] == [_word(record) for record in caplog.records]


class _Asked:
    """A limiter that is asked a little all the time, and how much it has admitted."""

    def __init__(self, limiter: RateLimiter) -> None:
        self._limiter = limiter
        self.admitted = 0

    def some_more(self) -> bool:
        """Ask three more times; always true."""
        self.admitted += sum(self._limiter.allow("ada") for _ in range(3))
        return True


def _failures(agent: Agent) -> dict[str, int]:
    return agent.stats().exchanges[0].failures


def _reported(agent: Agent) -> bool:
    return agent.stats().exchanges[0].cells > 1


def _word(record: logging.LogRecord) -> str:
    return "unavailable" if "is unavailable" in record.getMessage() else record.getMessage().rpartition(" ")[2]


def _cut(admin: redis.Redis) -> None:
    """Close all connections but this one, so that their owners have to log in again."""
    admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
