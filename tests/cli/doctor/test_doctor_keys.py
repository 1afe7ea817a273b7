"""Goal: who asks the doctor learns that a flood of keys is about to fill a Redis, and of keys that stay for good.

Method: a real Redis with keys of a namespace, with and without a `maxmemory`, and a user who may not go through them.
"""

from __future__ import annotations

import shlex

import pytest
import redis

from reconverge.hub.diagnosis import Level
from reconverge_sync.redis.diagnosis.keys import BYTES_PER_KEY, CALLS_MAX, MANY, SCANNED_AT_ONCE, KeySample, judge_keys
from tests.support.commands.checked import ALL_RIGHTS, allow, check
from tests.support.servers import RedisServer

CELL = "shop:{0}:c1:login:0:1000000:"
LIFE_MS = 85_000


def flood(server: RedisServer, keys: int, *, namespace: str = "shop") -> None:
    """Makes so many keys of that namespace, each with an end, as a flood leaves them."""
    with redis.Redis(unix_socket_path=str(server.socket)) as client:
        pipeline = client.pipeline(transaction=False)
        for number in range(keys):
            pipeline.set(f"{CELL.replace('shop', namespace)}{number}", "x" * 100, px=LIFE_MS)
        pipeline.execute()


def used_bytes(server: RedisServer) -> int:
    with redis.Redis(unix_socket_path=str(server.socket)) as client:
        return int(client.info("memory")["used_memory"])


def test_keys_that_all_end_are_counted_and_fine(own_redis: RedisServer) -> None:
    """Those of other namespaces are none of them."""
    flood(own_redis, 12)
    flood(own_redis, 5, namespace="shopping")
    own_redis.command("SET", "shop", "somebody else's, without an end")

    finding = check(own_redis.url).only("keys")

    assert "ok" == finding["level"]
    assert "12 keys of shop, each of which expires by itself" == finding["fact"]


def test_a_flood_is_seen_before_the_server_is_full(own_redis: RedisServer) -> None:
    """Memory is far from full, but twice as many keys would fill it; with the bound that is advised they would not."""
    flood(own_redis, 30_000)
    room_bytes = 20_000 * BYTES_PER_KEY
    own_redis.command("CONFIG", "SET", "maxmemory", str(used_bytes(own_redis) + room_bytes))

    before = check(own_redis.url)
    own_redis.command(*before.only("keys")["remedy"].splitlines()[-1].split()[1:])
    after = check(own_redis.url)

    assert "warning" == before.only("keys")["level"]
    assert "Twice as many would be too many" in before.only("keys")["remedy"]
    assert "ok" == after.only("keys")["level"]


def test_few_keys_with_room_for_more_are_no_flood(own_redis: RedisServer) -> None:
    """How many more there is room for is said all the same."""
    flood(own_redis, 12)
    own_redis.command("CONFIG", "SET", "maxmemory", "100mb")

    finding = check(own_redis.url).only("keys")

    assert "ok" == finding["level"]
    assert "room for about" in finding["fact"]


def test_a_key_that_stays_is_named_and_the_remedy_gives_it_an_end(own_redis: RedisServer) -> None:
    """Also one of another shard, with a space and a quotation mark in it."""
    flood(own_redis, 12)
    stays = "shop:{3}:c1:login:0:1000000:ada's own"
    with redis.Redis(unix_socket_path=str(own_redis.socket)) as client:
        client.set(stays, "1")
        before = check(own_redis.url).only("keys")
        command = before["remedy"].splitlines()[-1]
        after = _mended(client, command)

    assert "warning" == before["level"]
    assert "1 of 13 keys that were looked at never expire" in before["fact"]
    assert after > 0
    assert "ok" == check(own_redis.url).only("keys")["level"]


def _mended(client: redis.Redis, command: str) -> int:
    """Give that command as a shell would; returns the time to live of the key that it names."""
    _, *words = shlex.split(command)
    client.execute_command(*words)
    return int(client.ttl(words[1]))


def test_an_end_in_centuries_is_none(own_redis: RedisServer) -> None:
    """No hub keeps anything for 2^53 microseconds; for twice the longest window it may."""
    longest_ms = 2 * 3660 * 86_400_000
    with redis.Redis(unix_socket_path=str(own_redis.socket)) as client:
        client.set(f"{CELL}longest", "1", px=longest_ms)
        longest = check(own_redis.url).only("keys")
        client.set(f"{CELL}centuries", "1", px=2**53 // 1000)
        centuries = check(own_redis.url).only("keys")

    assert "ok" == longest["level"]
    assert "warning" == centuries["level"]
    assert f"{CELL}centuries" in centuries["remedy"]


def test_who_may_not_scan_is_told_that_it_was_not_checked(own_redis: RedisServer) -> None:
    """Nothing is made up, and the remedy's right has it checked."""
    url = allow(own_redis, *ALL_RIGHTS, "+info")
    without = check(url)
    own_redis.command("ACL", "SETUSER", "ada", "+scan")
    with_it = check(url)

    assert ["keys"] == without.at("warning")
    assert "SCAN is not permitted" in without.only("keys")["fact"]
    assert "  ACL SETUSER USER +scan" in without.only("keys")["remedy"].splitlines()
    assert "ok" == with_it.only("keys")["level"]


def test_of_very_many_keys_a_bounded_number_is_looked_at(own_redis: RedisServer) -> None:
    """The number of all is estimated; within a tenth of it, as keys of a server are in no order."""
    keys = CALLS_MAX * SCANNED_AT_ONCE * 2
    flood(own_redis, keys)

    fact = check(own_redis.url).only("keys")["fact"]
    with redis.Redis(unix_socket_path=str(own_redis.socket)) as client:
        calls = client.info("commandstats")["cmdstat_scan"]["calls"]

    about = int(fact.split()[1].replace(",", ""))
    assert fact.startswith("about ")
    assert CALLS_MAX == calls
    assert keys * 0.9 <= about <= keys * 1.1


@pytest.mark.parametrize(("keys", "level"), [(MANY, Level.OK), (MANY + 1, Level.WARNING)])
def test_many_keys_without_any_bound_on_memory_are_warned_of(keys: int, level: Level) -> None:
    """More than one node keeps, and nothing but the machine's memory stops them."""
    sample = KeySample(seen=keys, scanned=keys, whole=True)

    assert level is judge_keys(sample, "shop", {"maxmemory": 0, "used_memory": 10**8}, 0).level


def test_without_info_no_more_keys_are_claimed_than_were_seen() -> None:
    """How many the server has of which a part was looked at is only known from INFO."""
    sample = KeySample(seen=500, scanned=20_000)

    assert judge_keys(sample, "shop", {}, 0).fact.startswith("at least 500 keys of shop")
    assert judge_keys(sample, "shop", {"db0": {"keys": 40_000}}, 0).fact.startswith("about 1,000 keys of shop")
