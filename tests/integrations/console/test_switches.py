"""Goal: switches that a console turns are obeyed by every node, and nothing else that is published is lost.

Method: a console at a hub in memory, with nodes that follow published settings.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from reconverge import Agent, HubUnavailable
from reconverge.clock import SECOND_NS, SystemClock
from reconverge.contracts.contracts import Contracts
from reconverge.integrations.console import console
from reconverge.published.envelope import PAYLOAD_BYTES_MAX, Secrets
from reconverge.published.publisher import publish
from reconverge.published.settings import SETTINGS, FleetSettings, LimitOverride
from reconverge_sync.memory import MemoryHub
from tests.integrations.console.conftest import SECRET
from tests.support.console import HOME, TOKENS, WRITER, Browser
from tests.support.fixtures.agents import MakeAgent
from tests.support.published import post, sealed_now
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

PLANS: dict[str, Any] = {
    "plans": {"free": {"limits": {"api": "2/hour"}}, "pro": {"limits": {"api": "5/hour"}}},
    "unknown": "free",
    "customers": {"ada": "pro"},
}
WRITES = {"authorization": f"Bearer {WRITER}"}


def turn(client: Browser, **said: Any) -> Any:
    """Turns a switch on the console, and returns the published switches."""
    response = client.post("/switch", json=said, headers=WRITES)

    assert 200 == response.status_code, response.text
    return response.json()


def obeyed(agents: list[Agent], switch: str, name: str = "login") -> bool:
    """Whether a limit is switched so on all of these nodes."""
    return in_force(agents, name) == {switch}


def in_force(agents: list[Agent], name: str = "login") -> set[str]:
    """The switches of a limit on all of these nodes."""
    return {agent.stats().limits[name].switch for agent in agents}


def test_the_kill_switch_is_obeyed_by_every_node_and_taken_back(
    client: Browser, agent: Agent, hub: MemoryHub, make_agent: MakeAgent
) -> None:
    """By the page of an operator that has signed in."""
    agents = [agent, make_agent(hub, namespace="shop", settings_secret=SECRET)]
    for each in agents:
        each.limit("login", "2/hour", policy="strict").hit("ada")
    client.sign_in(WRITER)
    fields = {"x-reconverge-console": client.get("/session").json()["word"], "origin": HOME}

    for to, then in (("off", "off"), ("shadow", "shadow"), (None, "on")):
        response = client.post("/switch", json={"to": to, "limit": None}, headers=fields)
        assert 200 == response.status_code
        assert to == client.get("/switches").json()["switch"]
        eventually(partial(obeyed, agents, then), f"all nodes to be {then}")


def test_one_limit_is_switched_by_itself(client: Browser, agent: Agent) -> None:
    """And left to each node again, after which nothing is published of it."""
    agent.limit("mail", "2/hour").hit("ada")
    agent.limiter("login").hit("ada")

    assert {"login": "shadow"} == turn(client, to="shadow", limit="login")["limits"]
    eventually(lambda: in_force([agent]) == {"shadow"}, "the limit to be in shadow")
    assert {"on"} == in_force([agent], "mail")

    assert {} == turn(client, to=None, limit="login")["limits"]
    eventually(lambda: in_force([agent]) == {"on"}, "the limit to be on")


def test_one_limit_is_switched_by_a_console_at_a_redis(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """The agent of the console has a thread of its own, which exchanges without an event loop."""
    redis_server.command("FLUSHALL")
    agent = make_agent(redis_server.url, namespace="shop", settings_secret=SECRET)
    agent.limit("login", "2/hour").hit("ada")
    with Browser(console(agent, tokens=TOKENS, settings_secret=SECRET)) as client:
        assert {"login": "shadow"} == turn(client, to="shadow", limit="login")["limits"]

    eventually(lambda: in_force([agent]) == {"shadow"}, "the limit to be in shadow")


def test_every_limit_that_is_shown_is_switched(client: Browser, agent: Agent) -> None:
    """Those of contracts and further quotas, too, each under the name of its limit; all of its quotas obey."""
    agent.limit("mail", "2/hour, 9/day").hit("ada")
    Contracts(agent, PLANS).hit("ada")
    eventually(lambda: len(shown_by(client, "limits")) == 5, "the node to tell of its limits")
    shown = shown_by(client, "limits")
    by_limit = {each["limit"]: turn(client, to="off", limit=each["limit"])["limits"] for each in shown}
    by_quota = [turn(client, to="off", limit=each["name"])["limits"] for each in shown]

    assert {"api", "login", "mail"} == set(by_limit)
    assert dict.fromkeys(by_limit, "off") == by_quota[-1]
    for name in agent.stats().limits:
        eventually(partial(obeyed, [agent], "off", name), f"{name} to be off")


def test_a_limit_of_which_no_node_has_told_is_not_switched(client: Browser) -> None:
    """It would switch nothing; and nothing is published."""
    response = client.post("/switch", json={"to": "off", "limit": "logn"}, headers=WRITES)

    assert 422 == response.status_code
    assert "no node has a limit 'logn'" in response.json()["errors"][0]["detail"]
    assert {} == client.get("/switches", headers=WRITES).json()["limits"]


def test_settings_of_another_namespace_are_no_beginning_for_a_switch(client: Browser, hub: MemoryHub) -> None:
    """Published with that switch they would be for the other namespace still, and no node here would obey it."""
    other = sealed_now(namespace="other", secret=SECRET)
    post(hub, other)
    response = client.post("/switch", json={"to": "off", "limit": None}, headers=WRITES)

    assert 409 == response.status_code
    assert "is for the namespace 'other'" in client.get("/switches", headers=WRITES).json()["problem"]
    assert other == asyncio.run(hub.read(bytes_max=PAYLOAD_BYTES_MAX))


def test_the_page_of_a_key_says_what_the_list_of_keys_says(client: Browser, agent: Agent) -> None:
    """Of a limit of contracts, too, whichever of its names is asked for, and by which plan the key counts."""
    contracts = Contracts(agent, PLANS)
    for _ in range(3):  # a busy machine may leave one in doubt
        eventually(lambda: contracts.ask_blocking("ada").allowed, "a request to be admitted")
    eventually(lambda: len(shown_by(client, "keys")) == 1, "the node to tell of its keys")
    (listed,) = shown_by(client, "keys")
    eventually(lambda: used(client, "api")[0] == 3, "the hub to know what was used")

    assert ("ada", 3, 5) == (listed["key"], listed["used"], listed["capacity"])
    assert (3, 5) == used(client, "api") == used(client, listed["limit"])


def test_the_keys_of_denials_by_contracts_are_known(client: Browser, agent: Agent) -> None:
    """Under the quota of the customer's plan, although the hub knows them by the name of the limit."""
    contracts = Contracts(agent, PLANS)

    def told() -> list[tuple[str, list[str]]]:
        for _ in range(3):
            contracts.ask_blocking("eve")
        return [(each["limit"], each["keys"]) for each in shown_by(client, "denials") if each["keys"]]

    eventually(lambda: told() == [("api@2/3600s", ["eve"])], "the refused customer")


def shown_by(client: Browser, part: str) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = client.get("/state", headers=WRITES).json()[part]
    return shown


def used(client: Browser, limit: str) -> tuple[int, int]:
    """Returns the use and the size of one quota on the page of a key."""
    (quota,) = client.get("/key", params={"limit": limit, "key": "ada"}, headers=WRITES).json()["quotas"]
    return quota["used"], quota["limit"]


def test_what_else_is_published_stays(client: Browser, hub: MemoryHub) -> None:
    """An interval, and a quota of another limit; the end, too, and the version rises."""
    now_s = SystemClock.wall_ns() // SECOND_NS
    before = FleetSettings(
        "shop", 7, now_s, now_s + 50_000, sync_interval=0.5, limits={"mail": LimitOverride(limit="9/hour")}
    )
    asyncio.run(publish(hub, before, Secrets(SECRET)))

    turn(client, to="shadow", limit="mail")

    payload = asyncio.run(hub.read(bytes_max=PAYLOAD_BYTES_MAX))
    assert payload is not None
    after = SETTINGS.opened(payload, Secrets(SECRET), "shop")
    assert isinstance(after, FleetSettings)
    assert (0.5, now_s + 50_000) == (after.sync_interval, after.expires)
    assert {"mail": LimitOverride(limit="9/hour", switch="shadow")} == dict(after.limits)
    assert after.version > 7


def test_a_console_tells_which_author_turned_what_by_another_process(client: Browser, hub: MemoryHub) -> None:
    """A command, or a console on another worker; each publisher adds to the log at the hub, whose other lines stay."""
    now_s = SystemClock.wall_ns() // SECOND_NS
    command = FleetSettings("shop", 7, now_s - 60, now_s + 50_000, switch="shadow")
    asyncio.run(publish(hub, command, Secrets(SECRET), author="grace"))
    before = client.get("/switches", headers=WRITES).json()
    after = turn(client, to="off", limit="login")

    assert before["turned_by_all"]
    assert [{"when": now_s - 60, "by": "grace", "limit": None, "to": "shadow"}] == before["turned"]
    assert [("write", "login", "off"), ("grace", None, "shadow")] == [
        (each["by"], each["limit"], each["to"]) for each in after["turned"]
    ]
    with Browser(console(Agent(hub, namespace="shop"), tokens=TOKENS, settings_secret=SECRET)) as other:
        assert after["turned"] == other.get("/switches", headers=WRITES).json()["turned"]


def test_a_console_tells_what_it_has_turned_where_no_log_is_kept(
    client: Browser, hub: MemoryHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And that it knows of no others; the switch is turned all the same."""

    async def fails(*_: object, **__: object) -> None:
        raise HubUnavailable("unsupported", "no pages are kept here", applied=False)

    for name in ("put_page", "get_page"):
        monkeypatch.setattr(hub, name, fails)
    said = turn(client, to="off")

    assert not said["turned_by_all"]
    assert [("write", None, "off")] == [(each["by"], each["limit"], each["to"]) for each in said["turned"]]
    assert "off" == client.get("/switches", headers=WRITES).json()["switch"]


def test_what_this_secret_has_not_signed_is_not_replaced(client: Browser, hub: MemoryHub) -> None:
    """It may be what all nodes obey."""
    now_s = SystemClock.wall_ns() // SECOND_NS
    strange = FleetSettings("shop", 7, now_s, now_s + 50_000)
    asyncio.run(publish(hub, strange, Secrets("another-secret-of-16-bytes")))

    response = client.post("/switch", json={"to": "off"}, headers=WRITES)

    assert 409 == response.status_code
    assert "was not changed" in response.json()["detail"]
    assert client.get("/switches", headers=WRITES).json()["problem"]


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"to": "of"}, 422),
        ({"to": 1}, 422),
        ({"to": "off", "limit": 7}, 422),
        ({"to": "off", "limit": "no name{}"}, 422),
        ({"to": "off", "more": 1}, 422),
        (["off"], 422),
        ({"to": "x" * 5000}, 413),
    ],
)
def test_what_makes_no_sense_publishes_nothing(client: Browser, hub: MemoryHub, said: object, status: int) -> None:
    """And says what is wrong."""
    response = client.post("/switch", json=said, headers=WRITES)

    assert (status, "application/problem+json") == (response.status_code, response.headers["content-type"])
    assert None is asyncio.run(hub.read(bytes_max=PAYLOAD_BYTES_MAX))


def test_without_the_secret_there_are_no_switches(agent: Agent) -> None:
    """The page does not name them, and nothing is at their paths."""
    with Browser(console(agent, tokens=TOKENS)) as client:
        assert not client.get("/session", headers=WRITES).json()["switches"]
        assert 404 == client.get("/switches", headers=WRITES).status_code
        assert 404 == client.post("/switch", json={"to": "off"}, headers=WRITES).status_code
