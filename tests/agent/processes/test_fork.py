"""Goal: a forked child is a node of its own, its parent does not notice, and nothing is lost or doubled between them.

Method: real processes that fork while they exchange; the server says which connections there are. The pace is an hour,
so that all but the first request of each is told by last words alone.
"""

from __future__ import annotations

import re
import signal
import sys
from secrets import token_hex

import pytest

from tests.support.agents import net_at
from tests.support.programs.process import Process
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

TOLD_BEFORE = 1
"""The cost that the hub knows of each process's ten without its last words."""


@pytest.mark.parametrize("program", ["forks_a_child_that_decides", "forks_in_its_loop"])
def test_a_child_has_a_name_and_counts_of_its_own(program: str, redis_server: RedisServer) -> None:
    """Inherited counts are the parent's alone, which keeps its name."""
    with Process(program, redis_server.url, module="forks") as process:
        process.go_on()
        parent, child, again = process.says_until("again")
        assert 0 == process.ends()[0]

    assert [parent[1], "20"] == again[1:3]
    assert parent[1] != child[1]
    assert "10" == child[2]
    assert "" == process.stderr
    assert 30 == net_at(redis_server.url)


@pytest.mark.parametrize(
    "program",
    ["forks_a_child_that_decides", "forks_a_child_that_ends", "forks_in_its_loop", "forks_with_a_careless_hub"],
)
def test_the_parents_connection_survives_the_child(program: str, redis_server: RedisServer) -> None:
    """The child neither uses nor closes it, nor makes the parent deaf on it."""
    with Process(program, redis_server.url, module="forks") as process:
        process.says()
        eventually(lambda: 1 == len(_connections(redis_server)), "the parent's connection, and no other test's")
        before = _connections(redis_server)
        process.go_on()
        again = process.says_until("again")[-1]
        after = _connections(redis_server)
        assert 0 == process.ends()[0]

    assert before <= after
    assert "0" == again[3]


@pytest.mark.skipif("coverage" in sys.modules, reason="a lock of coverage's own may be held in such a child for ever")
def test_a_child_forked_from_among_deciding_threads_can_decide(redis_server: RedisServer) -> None:
    """A lock that another thread held at that moment is not held in the child."""
    with Process("forks_while_others_decide", redis_server.url, module="forks") as process:
        status, (said,) = process.ends()

    assert 0 == status
    assert int(said.split()[2]) + 20 == net_at(redis_server.url)


@pytest.mark.parametrize("scheme", ["redis", "mqtt"])
def test_an_exchange_imports_nothing(scheme: str, request: pytest.FixtureRequest) -> None:
    """A child that is forked while another thread imports a module inherits its lock, and waits for it for ever."""
    server = request.getfixturevalue("redis_server" if scheme == "redis" else "mosquitto")
    with Process("imports_while_it_exchanges", server.url, module="forks") as process:
        status, said = process.ends()

    assert (0, ["[]"]) == (status, said)


def test_a_child_forked_while_a_server_is_joined_can_join_it_too() -> None:
    """The fork waits until nobody is in the midst of that, so that the child inherits no lock that is held."""
    with Process("forks_while_it_joins_a_server", f"embedded://{token_hex(8)}", module="forks") as process:
        status, said = process.ends()

    assert 0 == status
    assert ["child", "again"] == [line.split()[0] for line in said]
    assert "" == process.stderr


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_of_multiprocessing_say_their_last_words(method: str, redis_server: RedisServer) -> None:
    """Though they leave past the ordinary end; each is a node of its own."""
    with Process("multiplies", redis_server.url, method, module="forks") as process:
        status, said = process.ends()

    assert 0 == status
    assert 5 == len({line.split()[1] for line in said})
    assert "" == process.stderr
    assert 50 == net_at(redis_server.url)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_daemon_of_multiprocessing_ends_at_sigterm_whatever_it_is_blocked_in(
    method: str, redis_server: RedisServer
) -> None:
    """At once, and without last words: its parent would wait for ever for a handler that cannot run.

    The child is forked with the handler of its parent.
    """
    with Process("terminates", redis_server.url, method, module="forks") as process:
        status, said = process.ends()

    assert (0, ["left alone", str(-signal.SIGTERM)]) == (status, said[-2:])
    assert "" == process.stderr
    assert 10 + TOLD_BEFORE == net_at(redis_server.url)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_of_multiprocessing_that_is_no_daemon_handles_sigterm(method: str, redis_server: RedisServer) -> None:
    """Such as a worker of a server; its parent leaves it to itself."""
    with Process("has_a_child_that_is_no_daemon", redis_server.url, method, module="forks") as process:
        assert "handled" == process.ends()[1][-1]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_that_is_closed_and_joined_loses_nothing(method: str, redis_server: RedisServer) -> None:
    """While one that is terminated loses what the hub had not heard; the pace is an hour."""
    with Process("closes_a_pool", redis_server.url, method, module="forks") as process:
        status, said = process.ends()

    assert (0, ["120"]) == (status, said)
    assert "" == process.stderr
    assert 120 == net_at(redis_server.url)


def _connections(server: RedisServer) -> set[str]:
    """The connections to the server's port; those of the tests' own commands come through its socket."""
    return set(re.findall(rf"id=(\d+) addr=\S+ laddr=127\.0\.0\.1:{server.port} ", server.command("CLIENT", "LIST")))
