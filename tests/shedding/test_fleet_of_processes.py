"""Goal: four processes share one view of the fleet's capacity through a real Redis, and are no outage without it.

Method: four processes ask their own stacks as often as they are told; the Redis hangs, as in a partition, and goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from tests.support.programs.process import Process
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

NODES = 4


@dataclass(frozen=True)
class AskedProcess:
    """The result of so many requests at one process."""

    admitted: int
    state: str
    fullest: int
    refused_by: list[str]


@contextmanager
def fleet(url: str, capacity: str) -> Iterator[list[Process]]:
    """So many processes, whose stacks have a fleet shedder of this capacity."""
    with ExitStack() as processes:
        nodes = [processes.enter_context(Process("floods", url, capacity, module="shedders")) for _ in range(NODES)]
        for node in nodes:
            assert "ready" == node.says()
        yield nodes


def ask(nodes: list[Process], name: str, number: int) -> list[AskedProcess]:
    for node in nodes:
        node.hears(f"{name} {number}")
    found = []
    for node in nodes:
        admitted, state, fullest, *refused_by = node.says().split()
        found.append(AskedProcess(int(admitted), state, int(fullest), refused_by))
    return found


@pytest.mark.slow
def test_four_processes_share_the_capacity(own_redis: RedisServer) -> None:
    """Of 400 the class GET gets 320 in all and the critical class the other 80, and not one request more."""
    admitted = {"GET": 0, "critical": 0}

    def flooded(name: str) -> int:
        admitted[name] += sum(each.admitted for each in ask(nodes, name, 20))
        return admitted[name]

    with fleet(own_redis.url, "400/day") as nodes:
        eventually(lambda: flooded("GET") >= 320, "all that is not reserved")
        for _ in range(5):
            flooded("GET")
        eventually(lambda: flooded("critical") >= 80, "all that is reserved")
        for name in ("GET", "critical") * 3:
            flooded(name)

    assert {"GET": 320, "critical": 80} == admitted


@pytest.mark.slow
def test_a_partition_is_no_outage_of_four_processes(own_redis: RedisServer) -> None:
    """Each process that cannot reach the Redis goes on, with no more than it did in its fullest second before.

    A burst lasts for less than a second, so it lies in two windows at most.
    """

    def all_are(state: str) -> bool:
        return all(each.state == state for each in ask(nodes, "GET", 3))

    with fleet(own_redis.url, "400/second") as nodes:
        eventually(lambda: all(each.fullest >= 5 for each in ask(nodes, "GET", 3)), "a full second on each")
        own_redis.pause()
        eventually(lambda: all_are("partitioned"), "the end of all leases")
        eventually(lambda: all(each.admitted for each in ask(nodes, "GET", 1)), "a request that each admits")
        burst = ask(nodes, "GET", 1000)
        own_redis.resume()
        eventually(lambda: all_are("ready"), "the end of the partition")

    for each in burst:
        assert each.admitted <= 2 * each.fullest
        assert ["fleet"] == each.refused_by
