"""Goal: an operator asks why a key is refused, and has what it has used be forgotten, by one command each.

Method: the commands as they are typed, some in processes of their own, at a real Redis at which an agent decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from reconverge import Agent
from tests.support.commands.checked import said_by
from tests.support.commands.processes import run
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

FILE = """
hub = "redis://unused.example"
namespace = "{namespace}"
fallback = "redis://unused.example"

[limits]
login = "5/day"
api = "3/day; 100/week as weekly"
"""
DAY_S = 86_400
LIMITS = ("--limit", "login=5/day", "--limit", "api=3/day; 100/week as weekly")


@pytest.fixture
def node(redis_server: RedisServer) -> Iterator[Agent]:
    """An agent with two limits, one of which has two quotas."""
    with Agent(redis_server.url, namespace=f"shop-{token_hex(4)}", sync_interval=0.02, exchange_timeout=5.0) as agent:
        agent.limit("login", "5/day")
        agent.limit("api", "3/day; 100/week as weekly")
        yield agent


def inspected(node: Agent, server: RedisServer, key: str, *words: object) -> dict[str, Any]:
    done = said_by("inspect", key, "--json", "--hub", server.url, "--namespace", node.namespace, *(words or LIMITS))

    assert "" == done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def used(said: dict[str, Any]) -> dict[str, int]:
    return {each["limit"]: each["used"] for each in said["limits"]}


def use_up(node: Agent, key: str) -> None:
    """Lets a key use all of `login`, and one of `api`."""
    assert 5 == sum(node.limiter("login").ask_blocking(key, within=5.0).allowed for _ in range(6))
    assert node.limiter("api").ask_blocking(key, within=5.0).allowed  # so that the hub knows its limits, too


def test_a_refused_key_is_told_with_its_limit_and_when_it_is_free(node: Agent, redis_server: RedisServer) -> None:
    """The sentence and the table name the limit that refuses, and how much is used of it; the other limit has room."""
    use_up(node, "ada")
    eventually(lambda: used(inspected(node, redis_server, "ada")) == {"login": 5, "api": 1, "api#weekly": 1}, "reports")
    said = inspected(node, redis_server, "ada")
    shown = run("inspect", "ada", "--hub", redis_server.url, "--namespace", node.namespace, *LIMITS)

    assert (False, ["login"]) == (said["allowed"], said["refused_by"])
    login = said["limits"][0]
    assert (5, 5, 0) == (login["quota"], login["used"], login["remaining"])
    assert 0 < login["free_in_s"] <= DAY_S * (1 + 1 / 5)  # a day that slides gives one of five back a fifth later
    assert shown.stdout.startswith("ada is refused by login: 5 of 5 are used; free in ")
    assert (0, "") == (shown.returncode, shown.stderr)


def test_a_key_that_no_node_has_met_can_go_on(node: Agent, redis_server: RedisServer) -> None:
    """All of each quota is left."""
    use_up(node, "ada")
    eventually(lambda: not inspected(node, redis_server, "ada")["allowed"], "reports")
    said = inspected(node, redis_server, "eve")

    assert {"login": 0, "api": 0, "api#weekly": 0} == used(said)
    assert said["allowed"]


def test_the_limits_can_come_from_the_file_that_nodes_load(
    node: Agent, redis_server: RedisServer, tmp_path: Path
) -> None:
    """With its namespace; the hub of the file is not asked where another one is named."""
    file = tmp_path / "shop.toml"
    file.write_text(FILE.format(namespace=node.namespace))
    use_up(node, "ada")
    eventually(lambda: not inspected(node, redis_server, "ada")["allowed"], "reports")
    done = said_by("inspect", "ada", "--json", "--hub", redis_server.url, "--file", file)

    assert inspected(node, redis_server, "ada")["limits"][0]["used"] == json.loads(done.stdout)["limits"][0]["used"]


def test_a_reset_is_obeyed_by_a_node(node: Agent, redis_server: RedisServer) -> None:
    """The key may go on, and other keys have what they had."""
    use_up(node, "ada")
    use_up(node, "bob")
    eventually(lambda: not inspected(node, redis_server, "bob")["allowed"], "reports")
    where = ("--hub", redis_server.url, "--namespace", node.namespace)
    done = run("reset", "ada", "--json", *where, *LIMITS)

    assert ["login", "api"] == json.loads(done.stdout)["reset"]
    eventually(lambda: node.limiter("login").test("ada").allowed, "the reset has come to the node")
    assert not node.limiter("login").test("bob").allowed
    assert {"login": 0, "api": 0, "api#weekly": 0} == used(inspected(node, redis_server, "ada"))


def test_what_is_in_progress_is_not_reset(redis_server: RedisServer) -> None:
    """It counts until it ends, and the command says so."""
    where = ("--hub", redis_server.url, "--namespace", f"shop-{token_hex(4)}")
    done = said_by("reset", "ada", *where, "--limit", "render=20 in flight")

    assert 0 == done.status
    assert "forgotten on all nodes: nothing" in done.stdout
    assert "left alone: render" in done.stderr


def test_a_misspelt_limit_is_told(node: Agent, redis_server: RedisServer) -> None:
    """The hub would answer that nothing is used of it, which is no answer."""
    use_up(node, "ada")
    eventually(lambda: not inspected(node, redis_server, "ada")["allowed"], "reports")
    where = ("--hub", redis_server.url, "--namespace", node.namespace)
    done, reset = (said_by(command, "ada", *where, "--limit", "logn=5/day") for command in ("inspect", "reset"))

    assert "no node has reported a limit named logn; did you mean 'login'?" in done.stderr
    assert "no node has reported a limit named logn; did you mean 'login'?" in reset.stderr
    assert "forgotten on all nodes: nothing" in reset.stdout
    assert 1 == reset.status


def test_a_limit_that_is_not_given_as_nodes_declare_it_is_told(node: Agent, redis_server: RedisServer) -> None:
    """Its window is another one, so the hub counts it apart."""
    use_up(node, "ada")
    eventually(lambda: not inspected(node, redis_server, "ada")["allowed"], "reports")
    where = ("--hub", redis_server.url, "--namespace", node.namespace)
    shown = [said_by("inspect", "ada", *where, "--limit", f"login=5/{unit}").stdout for unit in ("day", "hour")]

    assert [False, True] == ["No node has reported ada lately; nodes that declare another" in each for each in shown]
    assert "the route in it, and which limits.key_of(request) returns" in " ".join(shown[1].split())


def test_a_reset_by_another_window_forgets_nothing_and_is_told(node: Agent, redis_server: RedisServer) -> None:
    """The key is refused as before; the status is 1."""
    use_up(node, "ada")
    eventually(lambda: not inspected(node, redis_server, "ada")["allowed"], "reports")
    where = ("--hub", redis_server.url, "--namespace", node.namespace)
    done = said_by("reset", "ada", *where, "--limit", "login=5/hour")

    assert (1, "ada: forgotten on all nodes: nothing\n") == (done.status, done.stdout)
    assert "no node has reported ada lately for login by 5/3600s (sliding-window); nodes that" in done.stderr
    assert "the route in it, and which limits.key_of(request) returns" in done.stderr
    assert not inspected(node, redis_server, "ada")["allowed"]


@pytest.mark.parametrize("command", ["inspect", "reset"])
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "add --limit login=5/minute, or --file FILE"),
        (("--limit", "login"), "must be a name and a limit string"),
        (("--limit", "login=5/fortnight"), "5/fortnight"),
        (("--limit", "a=1/s", "--limit", "a=2/s"), "names the limit a again"),
        (("--hub", "memory://", "--limit", "a=1/s"), "is no hub that nodes share"),
        (("--hub", f"redis://ada:sesame@127.0.0.1:{free_port()}/0", "--limit", "a=1/s"), "refused"),
    ],
    ids=["no limit", "no text", "no limit string", "twice", "memory", "no server"],
)
def test_mistakes_are_told(command: str, words: tuple[str, ...], problem: str, redis_server: RedisServer) -> None:
    """With status 2, in a sentence without a password."""
    done = said_by(command, "ada", *(() if "--hub" in words else ("--hub", redis_server.url)), *words)

    assert 2 == done.status
    assert problem in done.stderr
    assert "sesame" not in done.stderr
