"""Goal: storages of the library `limits` share their counts at a cluster and at a broker as at one Redis.

Method: two storages that differ in a setting are two nodes of this process. One charges, and the other is asked.
"""

from __future__ import annotations

from limits import parse

from tests.support.applications.storages import limiter_at
from tests.support.brokers import Mosquitto
from tests.support.redis_cluster import RedisCluster
from tests.support.servers import wait_until

ITEM = parse("5/minute")


def left_at_the_other(hub: str) -> int:
    """One node uses four of five, and the other comes to know: what is left there then."""
    one, other = (
        limiter_at(f"reconverge+{hub}", "moving-window", sync_interval=seconds, namespace="storages")
        for seconds in (0.05, 0.06)
    )
    wait_until(lambda: one.storage.check() and other.storage.check(), "both nodes to be known")
    assert one.storage.book.agent is not other.storage.book.agent

    assert one.hit(ITEM, "ada")
    wait_until(lambda: all(one.hit(ITEM, "ada") for _ in range(3)), "room for all of them")
    wait_until(lambda: 1 >= other.get_window_stats(ITEM, "ada").remaining, "the other node to know")
    remaining: int = other.get_window_stats(ITEM, "ada").remaining
    return remaining


def test_storages_meet_at_a_cluster(shared_cluster: RedisCluster) -> None:
    """The URL is the hub's, behind `reconverge+`."""
    assert left_at_the_other(shared_cluster.url) <= 1


def test_storages_meet_at_a_broker(mosquitto: Mosquitto) -> None:
    """Likewise."""
    assert left_at_the_other(mosquitto.url) <= 1
