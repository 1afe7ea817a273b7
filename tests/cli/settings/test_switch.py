"""Goal: one command switches all limits of a fleet, or one, and leaves all else that is published as it was.

Method: the command as it is typed, also in a process of its own, at a real Redis, with an agent that obeys.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from reconverge import Agent
from reconverge.contracts.contracts import Contracts
from reconverge.hub.registry import HubSettings
from reconverge.published.envelope import Secrets
from reconverge.published.switch_log import Turned, read_log
from reconverge_sync.redis.hub import RedisHub
from tests.support.commands.checked import Said, said_by
from tests.support.commands.processes import run
from tests.support.published import OTHER, SECRET, login, post_at, sealed_now
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

PLANS: dict[str, Any] = {
    "plans": {"free": {"limits": {"api": "2/day"}}},
    "unknown": "free",
    "customers": {"ada": "free"},
}
VARIABLE = "RECONVERGE_SETTINGS_SECRET"


@pytest.fixture
def node(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """An agent that obeys what is published, with two limits of which the hub knows."""
    namespace = f"shop-{token_hex(4)}"
    monkeypatch.setenv(VARIABLE, SECRET)
    with Agent(redis_server.url, namespace=namespace, sync_interval=0.02, exchange_timeout=5.0) as agent:
        for name in ("login", "search"):
            assert agent.limit(name, "100/day").allow("ada")
        eventually(lambda: sum(each.exchanges for each in agent.stats().exchanges) > 3, "the hub knows the limits")
        yield agent


def switch(node: Agent, server: RedisServer, *words: object) -> Said:
    return said_by("switch", *words, "--hub", server.url, "--namespace", node.namespace)


def published(node: Agent, server: RedisServer) -> dict[str, Any]:
    done = said_by("settings", "show", "--json", "--hub", server.url, "--namespace", node.namespace)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def switched(node: Agent) -> dict[str, str]:
    """How each limit of the node is switched."""
    return {name: limiter.switched for name, limiter in node.limiters.items()}


def test_all_limits_are_switched_and_switched_back(node: Agent, redis_server: RedisServer) -> None:
    """A node obeys each; `own` gives the node its own switches back."""
    where = ("--hub", redis_server.url, "--namespace", node.namespace)
    first = run("switch", "off", "--lifetime", 3600, *where, **{VARIABLE: SECRET})
    eventually(lambda: switched(node) == {"login": "off", "search": "off"}, "off")
    second = switch(node, redis_server, "own")
    eventually(lambda: switched(node) == {"login": "on", "search": "on"}, "the node's own")

    assert (0, 0) == (first.returncode, second.status)
    assert "published for nodes with this secret: all limits of" in first.stdout
    assert "off" in first.stdout
    assert "as each node says" in second.stdout


def test_a_switch_and_a_file_are_told_of_under_a_name(
    node: Agent, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of --author, or else of the user that runs the command; a console reads it."""
    monkeypatch.setenv("LOGNAME", "ada")
    (tmp_path / "fleet.toml").write_text('lifetime = 60\n[limits.search]\nswitch = "shadow"\n')
    at = ("--hub", redis_server.url, "--namespace", node.namespace)
    said_by("switch", "off", "--lifetime", 3600, "--author", "the night shift", *at)
    said_by("settings", "publish", tmp_path / "fleet.toml", *at)

    async def told() -> list[Turned] | None:
        hub = RedisHub(redis_server.url, HubSettings(node.namespace, 5.0))
        try:
            return await read_log(hub, node.namespace, Secrets(SECRET))
        finally:
            await hub.close()

    assert [("ada", None, None), ("ada", "search", "shadow"), ("the night shift", None, "off")] == [
        (each.by, each.limit, each.to) for each in asyncio.run(told()) or []
    ]


def test_one_limit_is_switched_and_the_others_are_not(node: Agent, redis_server: RedisServer) -> None:
    """The command prints the published switches as JSON."""
    done = switch(node, redis_server, "shadow", "--limit", "login", "--lifetime", 3600, "--json")
    eventually(lambda: switched(node) == {"login": "shadow", "search": "on"}, "shadow")
    shown = switch(node, redis_server, "--json")

    said = json.loads(done.stdout)
    assert (None, {"login": "shadow"}) == (said["switch"], said["limits"])
    assert (said["version"], said["limits"]) == (
        json.loads(shown.stdout)["version"],
        json.loads(shown.stdout)["limits"],
    )


def test_a_limit_of_contracts_is_switched_by_its_name(node: Agent, redis_server: RedisServer) -> None:
    """For all plans, those among them that a node meets later; a quota of one plan is told to be none."""
    contracts = Contracts(node, PLANS)
    charged = sum(each.exchanges for each in node.stats().exchanges)
    for _ in range(2):  # a busy machine may leave one in doubt
        eventually(lambda: contracts.ask_blocking("ada").allowed, "a request to be admitted")
    spent = contracts.ask_blocking("ada").allowed
    eventually(lambda: sum(each.exchanges for each in node.stats().exchanges) > charged + 3, "the hub knows the limit")
    quota = switch(node, redis_server, "off", "--limit", "api@2/86400s", "--lifetime", 60)
    done = switch(node, redis_server, "off", "--limit", "api", "--lifetime", 60)
    eventually(lambda: contracts.hit("ada").allowed, "the limit to be off")
    contracts.replace({**PLANS, "plans": {**PLANS["plans"], "team": {"limits": {"api": "1/day"}}}, "unknown": "team"})

    assert not spent
    assert (0, 2) == (done.status, quota.status)
    assert "is a quota of the limit api, whose quotas are switched as one; write --limit api" in quota.stderr
    assert [True] * 6 == [contracts.hit(each).allowed for each in ("ada", "bob") for _ in range(3)]


def test_what_else_is_published_stays_and_ends_when_it_would_have(node: Agent, redis_server: RedisServer) -> None:
    """Quotas, intervals and the end of the document are as they were; the version rises."""
    limits = login("50/day", sync_interval=0.5)
    payload = sealed_now(5, lifetime=900, namespace=node.namespace, sync_interval=0.2, limits=limits)
    post_at(redis_server.url, payload, namespace=node.namespace)
    before = published(node, redis_server)
    done = switch(node, redis_server, "off", "--limit", "login")
    after = published(node, redis_server)

    assert (0, "") == (done.status, done.stderr)
    assert {"login": before["limits"]["login"] | {"switch": "off"}} == after["limits"]
    assert (before["sync_interval"], before["expires"]) == (after["sync_interval"], after["expires"])
    assert before["version"] < after["version"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("off",), "there are no settings in force whose end could be kept; add, for instance, --lifetime 3600"),
        (("of", "--lifetime", "60"), "did you mean 'off'?"),
        (("off", "--limit", "logn", "--lifetime", "60"), "a limit named logn; did you mean 'login'?"),
        (("--limit", "login"), "has no effect without a switch; give on, shadow, off or own"),
    ],
    ids=["no lifetime", "misspelt word", "misspelt limit", "no word"],
)
def test_mistakes_are_told_and_nothing_is_published(
    words: tuple[str, ...], problem: str, node: Agent, redis_server: RedisServer
) -> None:
    """With status 2."""
    done = switch(node, redis_server, *words)

    assert 2 == done.status
    assert problem in done.stderr
    assert published(node, redis_server) is None


def test_a_limit_that_no_node_has_told_of_is_switched_by_force(node: Agent, redis_server: RedisServer) -> None:
    """A node may declare it later."""
    done = switch(node, redis_server, "off", "--limit", "later", "--lifetime", 60, "--force")

    assert 0 == done.status
    assert "no node has reported a limit named later; this switches nothing until" in done.stderr
    assert {"later": {"switch": "off"}} == published(node, redis_server)["limits"]


def test_a_wrong_secret_switches_nothing(
    node: Agent, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The published document stays, and no secret is shown."""
    switch(node, redis_server, "shadow", "--lifetime", 3600)
    with monkeypatch.context() as patch:
        patch.setenv(VARIABLE, OTHER)
        done = switch(node, redis_server, "off")

    assert 2 == done.status
    assert "was not changed" in done.stderr
    assert "shadow" == published(node, redis_server)["switch"]
    assert OTHER not in done.stdout + done.stderr


def test_without_a_word_it_tells_that_nothing_is_published(node: Agent, redis_server: RedisServer) -> None:
    """Each node switches its limits itself then."""
    done = switch(node, redis_server)

    assert (0, "") == (done.status, done.stderr)
    assert "nothing is published" in done.stdout


def test_a_namespace_without_nodes_is_switched_only_by_force(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most likely it is misspelt, and the fleet that should be switched goes on refusing."""
    monkeypatch.setenv(VARIABLE, SECRET)
    where = ("--hub", redis_server.url, "--namespace", f"shpo-{token_hex(4)}")
    done = said_by("switch", "off", "--lifetime", 60, *where)
    nothing = said_by("switch", *where)
    forced = said_by("switch", "off", "--lifetime", 60, "--force", *where)

    assert 2 == done.status
    assert "has no node that has reported a limit; name the nodes' namespace, or add --force" in done.stderr
    assert "nothing is published" in nothing.stdout
    assert 0 == forced.status
